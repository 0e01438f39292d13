//! The files of the disk tier: whatever is in one, it is read without harm, and what is believed is what
//! would be written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_store::content::BLOCK;
use microcache_store::disk::format::{FilePrefix, check_body};
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|input: &[u8]| {
    check(input);
    if let Some(sealed) = sealed(input) {
        assert!(
            check(&sealed).is_some(),
            "written by the rules, and not believed"
        );
    }
});

/// Reads a file as the tier does.
fn check(file: &[u8]) -> Option<()> {
    let prefix = FilePrefix::decode(file, file.len() as u64).ok()?;
    // These lie within the file, or decoding would have failed.
    let head = &file[prefix.head()];
    let body = &file[prefix.body().start as usize..prefix.body().end as usize];
    let table = &file[prefix.body().end as usize..];
    prefix.check_head(file, head).ok()?;
    assert_eq!(prefix.encode(head), file[..FilePrefix::LEN]);
    let sums = prefix.sums(table).ok()?;
    assert_eq!(sums.len() as u64, prefix.body_len.div_ceil(BLOCK));
    check_body(body, &sums).ok()?;
    for (block, sum) in body.chunks(BLOCK as usize).zip(&sums) {
        assert_eq!(xxh3_64(block), *sum);
    }
    Some(())
}

/// The same contents with a prefix and a table that belong to them: the first byte says how long
/// the head is.
fn sealed(input: &[u8]) -> Option<Vec<u8>> {
    let (&head_len, rest) = input.split_first()?;
    let (head, body) = rest.split_at_checked(head_len.into())?;
    let table: Vec<u8> = body
        .chunks(BLOCK as usize)
        .flat_map(|block| xxh3_64(block).to_le_bytes())
        .collect();
    let prefix = FilePrefix {
        id: microcache_store::EntryId::of(head),
        expires: u64::from(head_len),
        head_len: u32::from(head_len),
        body_offset: FilePrefix::LEN as u32 + u32::from(head_len),
        body_len: body.len() as u64,
        table_sum: xxh3_64(&table),
    };
    Some([&prefix.encode(head)[..], head, body, &table].concat())
}
