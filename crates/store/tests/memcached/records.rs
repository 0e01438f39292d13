//! Records of all sizes, and their compatibility.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use microcache_store::content::BLOCK;
use microcache_store::encoding::checksum;
use microcache_store::memcached::MemcachedSettings;
use microcache_store::memcached::value::{self, ItemValue, Manifest};
use microcache_store::{Content, Entry, FileBody, PutOutcome, SharedTier, Tier, TierError};
use microcache_testkit::{Folder, TierKind, TierServer};

use crate::pool::{HOLD, LONG, Pool, entry, found, id, is_missing, mine, patient};

#[tokio::test]
async fn records_are_found_until_removed() {
    let nodes = [(); 3].map(|()| TierServer::memcached());
    let pool = Pool::new(&nodes, patient());
    assert_eq!(pool.name(), "memcached");
    for (number, (head, body)) in [
        (&b"head"[..], &b"body"[..]),
        (b"h", b""),
        (b"", b"b"),
        (b"", b""),
    ]
    .into_iter()
    .enumerate()
    {
        let id = id(number);
        assert!(is_missing(&pool.get(id).await));
        let stored = pool.put(id, entry(head, body), LONG, None).await;
        assert_eq!(stored, Ok(PutOutcome::Stored));
        assert_eq!(
            found(pool.get(id).await),
            Some((head.to_vec(), body.to_vec()))
        );
        assert_eq!(pool.remove(id).await, Ok(()));
        assert!(is_missing(&pool.get(id).await));
        assert_eq!(pool.remove(id).await, Ok(()));
    }
    assert_eq!(pool.stats().degraded, Vec::<String>::new());
}

#[tokio::test]
async fn bodies_of_any_size_come_back_as_they_were() {
    let nodes = [(); 2].map(|()| TierServer::memcached());
    let pool = Pool::new(&nodes, patient());
    let limit = MemcachedSettings::default().max_object as usize;
    for length in [
        999_987, 999_988, 999_989, 1_000_000, 1_000_001, 1_048_500, 1_048_576, 2_000_000,
        5_500_000, limit,
    ] {
        let body: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
        let stored = pool
            .put(id(length), entry(b"head", &body), LONG, None)
            .await;
        assert_eq!(stored, Ok(PutOutcome::Stored), "{length}");
        let got = found(pool.get(id(length)).await);
        assert!(got == Some((b"head".to_vec(), body)), "{length}");
    }
    let large = vec![0; limit + 1];
    let refused = pool.put(id(0), entry(b"head", &large), LONG, None).await;
    assert_eq!(refused, Ok(PutOutcome::Refused));
    assert_eq!(pool.stats().refused, 1);
    assert!(is_missing(&pool.get(id(0)).await));
}

/// Body in a file of another tier.
#[tokio::test]
async fn a_body_in_a_file_is_kept_too() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    let body: Vec<u8> = (0..1_500_000_u32).map(|n| (n % 251) as u8).collect();
    let folder = Folder::new();
    let path = folder.write("body", [b"before", &body[..]].concat());
    let file = File::open(&path).unwrap();
    let sums = body.chunks(BLOCK as usize).map(checksum).collect();
    let file = FileBody::new(file, 6, body.len() as u64, sums).unwrap();
    let in_file = Entry {
        head: Bytes::from_static(b"head"),
        body: Content::File(Arc::new(file)),
    };
    let stored = pool.put(id(1), in_file, LONG, None).await;
    assert_eq!(stored, Ok(PutOutcome::Stored));
    assert_eq!(found(pool.get(id(1)).await), Some((b"head".to_vec(), body)));
}

/// A server with a smaller item limit rejects the record and stays in service.
#[tokio::test]
async fn a_record_too_large_for_the_server_is_refused() {
    let node = TierServer::start_with(
        TierKind::Memcached,
        &["-I", "64k", "-o", "slab_chunk_max=32768"],
    );
    let pool = Pool::new([&node], patient());
    for length in [100_000, 3_000_000] {
        let stored = pool
            .put(id(1), entry(b"head", &vec![1; length]), LONG, None)
            .await;
        assert_eq!(stored, Ok(PutOutcome::Refused), "{length}");
        let stored = pool.put(id(2), entry(b"head", b"body"), LONG, None).await;
        assert_eq!(stored, Ok(PutOutcome::Stored));
    }
    assert_eq!(pool.stats().degraded, Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_or_foreign_piece_is_a_miss() {
    let node = TierServer::memcached();
    let pool = Pool::new([&node], patient());
    let body: Vec<u8> = (0..2_500_000_u32).map(|n| (n % 251) as u8).collect();
    let id = id(1);
    for damage in ["md {key}\r\n", "ms {key} 5\r\nother\r\n"] {
        pool.put(id, entry(b"head", &body), LONG, None)
            .await
            .unwrap();
        let item = node.value(&format!("mc1:{id}"));
        let Some(ItemValue::Manifest(Manifest { generation, .. })) =
            ItemValue::decode(&item.into(), u64::MAX)
        else {
            panic!("not in pieces");
        };
        let piece = format!("mc1:{id}:{generation:032x}:1");
        node.command(&damage.replace("{key}", &piece));
        let token = mine(pool.get_or_claim(id, HOLD).await);
        let stored = pool.put(id, entry(b"head", &body), LONG, Some(token)).await;
        assert_eq!(stored, Ok(PutOutcome::Stored));
        assert_eq!(
            found(pool.get(id).await),
            Some((b"head".to_vec(), body.clone()))
        );
    }
}

#[tokio::test]
async fn hostile_contents_are_removed() {
    let node = TierServer::start_with(TierKind::Memcached, &["-I", "4m"]);
    let pool = Pool::new([&node], patient());
    let lies = Manifest {
        head: Bytes::from_static(b"head"),
        body_len: u64::MAX,
        piece_len: 1,
        generation: 1,
        sums: vec![1, 2, 3],
    };
    let whole = value::whole(b"a long head");
    let hostile = [
        b"\r\nEN\r\nMN\r\n".to_vec(),
        b"x".to_vec(),
        lies.encode().to_vec(),
        whole[..whole.len() - 1].to_vec(),
        vec![b'x'; 1_048_577],
        vec![b'x'; 3_000_000],
    ];
    for (number, value) in hostile.iter().enumerate() {
        let id = id(number);
        node.set(&format!("mc1:{id}"), value);
        match pool.get_or_claim(id, HOLD).await {
            Err(TierError::Corrupt(why)) => assert!(why.contains(&id.to_string()), "{why}"),
            other => panic!("{number}: {other:?}"),
        }
        mine(pool.get_or_claim(id, HOLD).await);
    }
    assert_eq!(pool.stats().corrupt, hostile.len() as u64);
    // Marked as stale by another client, and an empty value without a claim.
    pool.put(id(100), entry(b"head", b"body"), LONG, None)
        .await
        .unwrap();
    node.command(&format!("md mc1:{} I T30\r\n", id(100)));
    node.set(&format!("mc1:{}", id(101)), b"");
    mine(pool.get_or_claim(id(100), HOLD).await);
    mine(pool.get_or_claim(id(101), HOLD).await);
}
