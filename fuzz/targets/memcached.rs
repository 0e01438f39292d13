//! What memcached servers answer, and what is in the items they keep. Other clients write there
//! too, and nothing says that a server is one.

#![no_main]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use microcache_store::memcached::protocol::{MetaResponse, ProtocolError, read_answer};
use microcache_store::memcached::value::{ItemValue, whole};
use tokio::io::BufReader;

const MAX_VALUE: usize = 1000;
const MAX_OBJECT: u64 = 100_000;

fuzz_target!(|input: &[u8]| {
    let at_once = read_all(input, 8192);
    let in_pieces = read_all(input, 1);
    assert_eq!(at_once, in_pieces);
    for answer in at_once.0 {
        if let MetaResponse::Done(item) = answer {
            assert!(item.value.len() <= MAX_VALUE);
            decode(&item.value);
        }
    }
    decode(&Bytes::copy_from_slice(input));
});

/// All answers, and why there are no more.
fn read_all(input: &[u8], buffer: usize) -> (Vec<MetaResponse>, String) {
    let mut reader = BufReader::with_capacity(buffer, input);
    let mut answers = Vec::new();
    loop {
        match read_next(&mut reader) {
            Ok(answer) => answers.push(answer),
            Err(end) => return (answers, end.to_string()),
        }
    }
}

/// All input is there, so there is nothing to wait for.
fn read_next(reader: &mut BufReader<&[u8]>) -> Result<MetaResponse, ProtocolError> {
    let reading = pin!(read_answer(reader, MAX_VALUE));
    match reading.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits for bytes that are there"),
    }
}

/// What is read is written in the same way, and promises no more than it may.
fn decode(item: &Bytes) {
    match ItemValue::decode(item, MAX_OBJECT) {
        None => {}
        Some(ItemValue::Whole { head, body }) => {
            assert_eq!([&whole(&head)[..], &body].concat(), item[..]);
        }
        Some(ItemValue::Manifest(manifest)) => {
            assert_eq!(manifest.encode(), item);
            assert!(manifest.body_len <= MAX_OBJECT);
            assert!(manifest.sums.len() * 8 <= item.len());
            assert!(manifest.assemble(&[]).is_none() || manifest.body_len == 0);
        }
    }
}
