//! Bodies too large for memory: spooled, and read from their files.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use microcache_store::tier::Spool;
use microcache_store::{
    Claim, Content, Directory, DirectorySettings, GetOutcome, PutOutcome, SharedTier, Tier,
};
use microcache_testkit::eventually_async;

use crate::place::{HOLD, LONG, Place, entry, found, id, is_theirs, mine, open_with};

const MIB: usize = 1024 * 1024;

/// Settings with bodies above 1 MiB in files.
fn open(place: &Place) -> Arc<Directory> {
    open_with(DirectorySettings {
        in_memory: MIB as u64,
        ..place.settings()
    })
}

pub(crate) fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn read_all(content: &Content) -> Vec<u8> {
    let Content::File(file) = content else {
        panic!("it is in memory")
    };
    let blocks = (0..file.blocks()).map(|number| file.read_block(number).expect("a block"));
    blocks.flatten().collect()
}

/// Starts to spool a body under a claim.
async fn begin(tier: &Directory, number: usize, body: &[u8]) -> Box<dyn Spool> {
    let token = mine(tier.get_or_claim(id(number), HOLD).await);
    let mut spool = tier.spool(id(number), token).expect("room for one");
    for piece in body.chunks(70_001) {
        let written = spool.write(Bytes::copy_from_slice(piece)).await;
        written.expect("it is written");
    }
    spool
}

async fn store(tier: &Directory, number: usize, body: &[u8]) {
    let spool = begin(tier, number, body).await;
    let kept = spool.finish(id(number), "head".into(), LONG).await;
    assert_eq!(read_all(&kept.expect("it is kept")), body);
}

async fn is_there(tier: &Directory, number: usize, head: &[u8], body: &[u8]) {
    let entry = tier.get(id(number)).await.expect("it works");
    let entry = entry.expect("it is there");
    assert_eq!(
        (&entry.head[..], read_all(&entry.body)),
        (head, body.to_vec())
    );
}

fn drafts(place: &Place) -> usize {
    let names = place.names();
    names.iter().filter(|name| name.contains(".new")).count()
}

async fn no_draft_is_left(place: &Place) {
    eventually_async("no drafts", async || drafts(place) == 0).await;
}

#[tokio::test]
async fn a_body_written_during_its_arrival_is_read_from_its_file() {
    let place = Place::new();
    let [one, other] = [(); 2].map(|()| open(&place));
    let body = body(9_999_999);
    let spool = begin(&one, 1, &body).await;
    assert!(is_theirs(&other.get_or_claim(id(1), HOLD).await));
    assert_eq!(drafts(&place), 1, "it does not wait in memory");
    let kept = spool.finish(id(1), "head".into(), LONG).await;
    assert_eq!(read_all(&kept.expect("it is kept")), body);
    is_there(&other, 1, b"head", &body).await;
    assert!(!place.claim(id(1)).exists(), "its time is over");
    assert_eq!(drafts(&place), 0);
    let whole = open_with(DirectorySettings {
        in_memory: 16 * MIB as u64,
        ..place.settings()
    });
    let found = found(whole.get(id(1)).await);
    assert_eq!(found, Some((b"head".to_vec(), body)), "who has room has it");
}

#[tokio::test]
async fn an_entry_removed_meanwhile_does_not_return() {
    let place = Place::new();
    let [one, other] = [(); 2].map(|()| open(&place));
    let spool = begin(&one, 1, &body(3 * MIB)).await;
    other.remove(id(1)).await.expect("removed");
    let kept = spool.finish(id(1), "head".into(), LONG).await;
    assert!(kept.is_err());
    assert_eq!(found(other.get(id(1)).await), None);
    assert_eq!(drafts(&place), 0);
    store(&other, 1, &body(2 * MIB)).await;
}

#[tokio::test]
async fn an_aborted_write_leaves_nothing() {
    let place = Place::new();
    let tier = open(&place);
    let spool = begin(&tier, 1, &body(3 * MIB)).await;
    assert_eq!(drafts(&place), 1);
    drop(spool);
    no_draft_is_left(&place).await;
}

/// For a variant, the claim ends with the Vary record, and the body has another id.
#[tokio::test]
async fn it_may_come_to_lie_under_another_id() {
    let place = Place::new();
    let tier = open(&place);
    let body = body(2 * MIB);
    let spool = begin(&tier, 1, &body).await;
    let kept = spool.finish(id(2), "head".into(), LONG).await;
    assert_eq!(read_all(&kept.expect("it is kept")), body);
    is_there(&tier, 2, b"head", &body).await;
    assert_eq!(found(tier.get(id(1)).await), None);
}

#[tokio::test]
async fn a_large_one_takes_no_more_than_there_is() {
    let place = Place::new();
    let tier = open_with(DirectorySettings {
        in_memory: MIB as u64,
        spools: 1,
        ..DirectorySettings::new(&place.directory, 16 * MIB as u64)
    });
    assert_eq!(tier.largest(), 4 * MIB as u64);
    for number in 0..8 {
        store(&tier, number, &body(3 * MIB)).await;
    }
    let in_all = || {
        let records = place.names().into_iter().filter(|name| name.len() != 4);
        let length = |name: String| {
            let file = place.home().join(&name[..2]).join(&name);
            fs::metadata(file).map_or(0, |it| it.len())
        };
        records.map(length).sum::<u64>()
    };
    assert!(
        (9 * MIB..=16 * MIB).contains(&(in_all() as usize)),
        "{}",
        in_all()
    );
    is_there(&tier, 7, b"head", &body(3 * MIB)).await;
    // A body being written is accounted for, even if the total is recounted.
    let spool = begin(&tier, 9, &body(4 * MIB)).await;
    fs::remove_file(place.home().join("size")).expect("it was there");
    store_small(&tier).await;
    assert!(in_all() <= 16 * MIB as u64, "{}", in_all());
    let token = mine(tier.get_or_claim(id(10), HOLD).await);
    assert!(tier.spool(id(10), token).is_none(), "one at a time");
    drop(spool);
    no_draft_is_left(&place).await;
    eventually_async("room", async || tier.spool(id(10), token).is_some()).await;
    let mut spool = tier.spool(id(10), token).expect("room for one");
    let mut written = Ok(());
    for _ in 0..5 {
        written = written.and(spool.write(body(MIB).into()).await);
    }
    assert!(written.is_err(), "it is larger than what is kept");
}

async fn store_small(tier: &Directory) {
    let stored = tier.put(id(20), entry(b"head", b"body"), LONG, None).await;
    assert_eq!(stored, Ok(PutOutcome::Stored));
}

/// A reader of a damaged body gets an error; the next lookup misses.
#[tokio::test]
async fn a_damaged_entry_is_met_once() {
    let place = Place::new();
    let tier = open(&place);
    let body = body(3 * MIB);
    store(&tier, 1, &body).await;
    let file = place.file(id(1));
    let whole = fs::read(&file).expect("it is there");
    for at in [0, 10, 62, 65_536 + 2_000_000, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&file, &bytes).expect("written");
        let got = tier.get(id(1)).await.expect("it works");
        if let Some(entry) = got {
            assert!(at > 65_536 && at < whole.len() - 1, "{at}");
            let file = entry.body.file().expect("it is in a file");
            let wrong = |&number: &u64| file.read_block(number).is_err();
            let wrong: Vec<_> = (0..file.blocks()).filter(wrong).collect();
            assert_eq!(wrong, [2_000_000 / (128 * 1024)]);
            // As the sender of the response does.
            file.mark_damaged();
        }
        assert!(tier.get(id(1)).await.expect("it works").is_none(), "{at}");
        assert!(!file.exists(), "{at}");
        fs::write(&file, &whole[..at]).expect("written");
        assert!(tier.get(id(1)).await.expect("it works").is_none(), "{at}");
    }
    fs::write(&file, &whole).expect("written");
    is_there(&tier, 1, b"head", &body).await;
}

#[tokio::test]
async fn a_large_one_gets_another_head() {
    let place = Place::new();
    let [one, other] = [(); 2].map(|()| open(&place));
    let body = body(3 * MIB + 1);
    store(&one, 1, &body).await;
    let renew = |from: &'static str| other.renew(id(1), from.into(), "new".into(), LONG, None);
    assert_eq!(renew("other").await, Ok(PutOutcome::Superseded));
    let Ok(Claim::Granted(token)) = one.claim(id(1), HOLD).await else {
        panic!("nobody else has it")
    };
    let renewed = one.renew(id(1), "head".into(), "newer".into(), LONG, Some(token));
    assert_eq!(renewed.await, Ok(PutOutcome::Stored));
    is_there(&other, 1, b"newer", &body).await;
    assert!(matches!(
        other.get_or_claim(id(1), HOLD).await,
        Ok(GetOutcome::Entry(_))
    ));
    assert_eq!(drafts(&place), 0);
}
