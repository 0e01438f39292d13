//! Field blocks of stored heads.
//!
//! Encoding a stored head takes longer than everything else about a hit. So each thread keeps the blocks of the heads that
//! it has sent again, without the dynamic table: they are valid on all connections. The memory of a block does not depend
//! on the stored response, and the store does not know of it.

use std::cell::RefCell;

use microcache_engine::{Body, Response};

use super::stream_fields::stream_fields;
use crate::h2::hpack::StaticBlock;
use crate::session::never_has_content;

/// Heads that a thread remembers. A power of two.
const SLOTS: usize = 512;
/// Size of a head in bytes above which its block is not kept.
const LARGEST: usize = 4096;

thread_local! {
    static BLOCKS: RefCell<HeadBlocks> = RefCell::default();
}

/// Passes the block of a head, with its status, its fields and its `content-length`, to `write`. Returns `false` without
/// a call if there is none: the response is not stored, or its head is sent for the first time.
pub(super) fn with_block(response: &Response, write: impl FnOnce(&StaticBlock)) -> bool {
    is_stored(response) && BLOCKS.with_borrow_mut(|blocks| blocks.of(response).map(write).is_some())
}

/// Returns `true` if other responses have the same head, in the same memory.
fn is_stored(response: &Response) -> bool {
    match &response.body {
        Body::Stored(_) => response.fields.is_none(),
        // An encoded body, whose head is stored beside it. The head of a part is not.
        Body::Full(_) => response.age.is_some() && response.status != 206,
        _ => false,
    }
}

/// Blocks by the address of their heads.
#[derive(Default)]
struct HeadBlocks {
    /// Empty before the first head.
    slots: Vec<HeadSlot>,
}

#[derive(Default)]
struct HeadSlot {
    /// Address of the fields that were sent last. A hint only: the memory may have been reused.
    address: usize,
    /// The block was sent since another head was sent that belongs here.
    is_in_use: bool,
    block: Option<HeadBlock>,
}

/// Block, and the parts of the head that it encodes.
struct HeadBlock {
    status: u16,
    length: Option<u64>,
    fields: Box<[u8]>,
    encoded: StaticBlock,
}

impl HeadBlocks {
    /// Returns the block of a head that was sent before.
    fn of(&mut self, response: &Response) -> Option<&StaticBlock> {
        let fields = response.fields().as_block();
        if fields.len() > LARGEST {
            return None;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, HeadSlot::default);
        }
        let address = fields.as_ptr().addr();
        let slot = &mut self.slots[place(address)];
        if slot.address != address {
            // A head in use goes only when a second one takes its place, so that many that are sent once do not displace it.
            if !std::mem::take(&mut slot.is_in_use) {
                *slot = HeadSlot {
                    address,
                    ..HeadSlot::default()
                };
            }
            return None;
        }
        slot.is_in_use = true;
        if !slot
            .block
            .as_ref()
            .is_some_and(|block| block.is_of(response))
        {
            slot.block = None;
        }
        let block = slot.block.get_or_insert_with(|| HeadBlock::new(response));
        Some(&block.encoded)
    }
}

impl HeadBlock {
    fn new(response: &Response) -> Self {
        let mut encoded = StaticBlock::new(response.status);
        for (name, value) in stream_fields(response.fields()) {
            encoded.field(name, value);
        }
        if let Some(length) = response.length
            && !never_has_content(response.status)
        {
            let mut number = itoa::Buffer::new();
            encoded.field(b"content-length", number.format(length).as_bytes());
        }
        Self {
            status: response.status,
            length: response.length,
            fields: response.fields().as_block().into(),
            encoded,
        }
    }

    fn is_of(&self, response: &Response) -> bool {
        self.status == response.status
            && self.length == response.length
            && *self.fields == *response.fields().as_block()
    }
}

/// Returns the slot of an address, whose low bits are mostly zero.
const fn place(address: usize) -> usize {
    let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use microcache_engine::Outcome;
    use microcache_policy::{CacheStatus, FieldBlock, FieldsBuf};

    use super::*;
    use crate::h2::hpack::{Decoder, Scratch};

    fn response(lines: &[(&str, &str)]) -> Response {
        let lines = lines
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        Response {
            status: 200,
            fields: Some(FieldBlock::from(lines.collect::<FieldsBuf>())),
            age: Some(1),
            cache_status: CacheStatus::default(),
            length: Some(4),
            body: Body::Full(Bytes::from_static(b"body")),
            tunnel: None,
            outcome: Outcome::Hit,
        }
    }

    fn decoded(block: &StaticBlock) -> String {
        let mut lines = String::new();
        let taken =
            Decoder::default().decode(block.as_bytes(), &mut Scratch::default(), |name, value| {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                lines.extend([text(name), "=".to_owned(), text(value), "\n".to_owned()]);
            });
        taken.expect("a valid block");
        lines
    }

    #[test]
    fn a_head_has_a_block_from_its_second_use_on() {
        let mut blocks = HeadBlocks::default();
        let mut response = response(&[("Server", "one"), ("Keep-Alive", "5"), ("ETag", "\"a\"")]);
        let mut lines = |response: &Response| blocks.of(response).map(decoded);
        let expected = ":status=200\nserver=one\netag=\"a\"\ncontent-length=4\n";
        assert_eq!(lines(&response), None);
        for _ in 0..3 {
            assert_eq!(lines(&response).as_deref(), Some(expected));
        }
        // The same memory with another status, and with another length.
        response.status = 404;
        let expected = expected.replace("200", "404");
        assert_eq!(lines(&response), Some(expected.clone()));
        response.length = Some(17);
        let expected = expected.replace("length=4", "length=17");
        assert_eq!(lines(&response), Some(expected));
    }

    #[test]
    fn another_head_in_the_same_memory_has_its_own_block() {
        let mut blocks = HeadBlocks::default();
        let first = response(&[("Server", "one")]);
        assert!(blocks.of(&first).is_none());
        assert!(blocks.of(&first).is_some());
        let second = response(&[("Server", "two")]);
        let address = |response: &Response| response.fields().as_block().as_ptr().addr();
        let slot = std::mem::take(&mut blocks.slots[place(address(&first))]);
        blocks.slots[place(address(&second))] = HeadSlot {
            address: address(&second),
            ..slot
        };
        let block = blocks.of(&second).map(decoded);
        assert!(block.is_some_and(|lines| lines.contains("server=two")));
    }

    #[test]
    fn heads_that_are_sent_once_do_not_displace_one_in_use() {
        let mut blocks = HeadBlocks::default();
        let hot = response(&[("Server", "hot")]);
        assert!(blocks.of(&hot).is_none());
        let once: Vec<_> = (0..8 * SLOTS)
            .map(|_| response(&[("Server", "once")]))
            .collect();
        for response in &once {
            assert!(blocks.of(&hot).is_some());
            assert!(blocks.of(response).is_none());
        }
        assert_eq!(blocks.slots.len(), SLOTS);
    }

    #[test]
    fn only_heads_that_other_responses_share_have_blocks() {
        let stored = response(&[("Server", "one")]);
        assert!(is_stored(&stored));
        let (age, length) = (None, None);
        for not_stored in [
            Response {
                age,
                ..response(&[])
            },
            Response {
                status: 206,
                ..response(&[])
            },
            Response {
                body: Body::Empty,
                length,
                ..response(&[])
            },
        ] {
            assert!(!is_stored(&not_stored));
        }
        let mut blocks = HeadBlocks::default();
        let large = response(&[("X-Large", &"x".repeat(LARGEST))]);
        assert!(blocks.of(&large).is_none() && blocks.of(&large).is_none());
    }
}
