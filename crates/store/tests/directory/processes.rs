//! Concurrent processes, some of them killed.

use std::env;
use std::process::Command;
use std::time::Instant;

use microcache_store::random::number;
use microcache_store::{Claim, DirectorySettings, GetOutcome, SharedTier, Tier, TierError};
use microcache_testkit::Process;

use crate::place::{HOLD, LONG, Place, entry, found, id, mine, open_with};

/// Environment variable of child processes: their task and directory.
const ROLE: &str = "MICROCACHE_TEST_DIRECTORY";
const KEYS: usize = 20;
const ROUNDS: usize = 300;

/// Runs this program as a child process with a task.
fn start(role: &str, place: &Place) -> Process {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", "processes::another_process", "--nocapture"])
        .env(ROLE, format!("{role} {}", place.directory.display()));
    Process::start(&mut command).expect("it is there")
}

/// Entry point of child processes; does nothing as a test.
#[tokio::test]
async fn another_process() {
    let Ok(role) = env::var(ROLE) else { return };
    let (role, directory) = role.split_once(' ').expect("a role and a place");
    let place = Place::at(directory);
    match role {
        "random" => work_at_random(&place).await,
        "claim" => {
            let tier = place.open();
            mine(tier.get_or_claim(id(1), HOLD).await);
            println!("claimed");
            std::future::pending::<()>().await;
            drop(tier);
        }
        "spool" => {
            let tier = open_with(large(&place));
            let body = whole(0, 16 << 20);
            for round in 0.. {
                let number = round % 4;
                if let Ok(Claim::Granted(token)) = tier.claim(id(number), HOLD).await {
                    let mut spool = tier.spool(id(number), token).expect("a place");
                    for piece in body.chunks(100_000) {
                        let piece = bytes::Bytes::copy_from_slice(piece);
                        spool.write(piece).await.expect("written");
                        println!("a piece");
                    }
                    let kept = spool.finish(id(number), "head".into(), LONG).await;
                    // On a busy machine the other process may have the claim by now.
                    if kept.is_ok() {
                        println!("kept");
                    }
                }
            }
        }
        // Runs until killed.
        _ => {
            let tier = open_with(large(&place));
            println!("writing");
            let body = whole(0, 8 << 20);
            for round in 0.. {
                let stored = tier
                    .put(id(round % 4), entry(b"head", &body), LONG, None)
                    .await;
                stored.expect("it is put");
            }
        }
    }
}

/// Concurrent processes with spooled bodies, two at a time.
#[tokio::test]
async fn a_process_that_is_killed_while_a_body_arrives_leaves_it_whole_or_not() {
    let place = Place::new();
    let tier = open_with(DirectorySettings {
        in_memory: 64 << 20,
        ..large(&place)
    });
    let mut seen = 0;
    for round in 0..12 {
        let mut children = [(); 2].map(|()| start("spool", &place));
        // A body has 168 pieces: in the later rounds, each process has stored one and is in the middle of another.
        for child in &mut children {
            child.ready("pieces", |output| {
                let is_far = output.matches("a piece").count() > 25 * round;
                (is_far && (round < 7 || output.contains("kept"))).then_some(())
            });
            child.kill();
        }
        for key in 0..4 {
            if let Some((head, body)) = found(tier.get(id(key)).await) {
                assert_eq!((&head[..], body), (&b"head"[..], whole(0, 16 << 20)));
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "some came to their end");
    assert_eq!(tier.stats().corrupt, 0);
    tier.put(id(5), entry(b"head", b"body"), LONG, None)
        .await
        .expect("it is put");
    mine(tier.get_or_claim(id(6), HOLD).await);
}

fn large(place: &Place) -> DirectorySettings {
    DirectorySettings {
        capacity: 256 << 20,
        ..place.settings()
    }
}

/// Body that identifies its key and its completeness.
fn whole(key: usize, length: usize) -> Vec<u8> {
    let mut body = vec![key as u8; length.max(1)];
    *body.last_mut().expect("it is not empty") = 255 - key as u8;
    body
}

fn check(key: usize, (head, body): &(Vec<u8>, Vec<u8>)) {
    assert_eq!(
        *head,
        format!("head of {key}, {} bytes", body.len()).into_bytes()
    );
    assert_eq!(*body, whole(key, body.len()));
}

/// Random operations; each hit belongs to its key and is complete.
async fn work_at_random(place: &Place) {
    let tier = open_with(DirectorySettings {
        capacity: 2 << 20,
        ..place.settings()
    });
    let tolerant = |result: Result<_, TierError>| match result {
        Ok(()) => {}
        Err(error) => panic!("{error}"),
    };
    for _ in 0..ROUNDS {
        let key = number() as usize % KEYS;
        let length = 1 + number() as usize % 150_000;
        let head = format!("head of {key}, {length} bytes");
        let record = entry(head.as_bytes(), &whole(key, length));
        match number() % 8 {
            0 => tier.remove(id(key)).await.expect("removed"),
            1 => tolerant(tier.put(id(key), record, LONG, None).await.map(drop)),
            2 => {
                if let Ok(Claim::Granted(token)) = tier.claim(id(key), HOLD).await {
                    let head = head.into_bytes();
                    let from = tier.head(id(key)).await.expect("read").unwrap_or_default();
                    // A head of another length would not match.
                    let to = if from == head {
                        head.into()
                    } else {
                        from.clone()
                    };
                    let renewed = tier.renew(id(key), from, to, LONG, Some(token)).await;
                    tolerant(renewed.map(drop));
                    tier.release(id(key), token).await.expect("released");
                }
            }
            _ => match tier.get_or_claim(id(key), HOLD).await.expect("looked") {
                GetOutcome::Entry(found) => {
                    let body = found.body.bytes().expect("in memory").to_vec();
                    check(key, &(found.head.to_vec(), body));
                }
                GetOutcome::Missing(Claim::HeldElsewhere | Claim::Unstorable) => {}
                GetOutcome::Missing(Claim::Granted(token)) if number().is_multiple_of(8) => {
                    tier.release(id(key), token).await.expect("released");
                }
                GetOutcome::Missing(Claim::Granted(token)) => {
                    tolerant(tier.put(id(key), record, LONG, Some(token)).await.map(drop));
                }
            },
        }
    }
    assert_eq!(tier.stats().corrupt, 0);
}

async fn is_written_record(processes: usize) {
    let place = Place::new();
    let children: Vec<_> = (0..processes).map(|_| start("random", &place)).collect();
    for mut child in children {
        assert!(child.wait().success());
    }
    let tier = place.open();
    for key in 0..KEYS {
        if let Some(found) = found(tier.get(id(key)).await) {
            check(key, &found);
        }
    }
    let names = place.names();
    let is_left = |name: &&String| name.contains(".new") || name.contains(".claim");
    assert_eq!(names.iter().find(is_left), None);
}

#[tokio::test]
async fn records_read_by_two_processes_are_complete() {
    is_written_record(2).await;
}

#[tokio::test]
async fn records_read_by_eight_processes_are_complete() {
    is_written_record(8).await;
}

#[tokio::test]
async fn the_claim_of_a_process_that_is_killed_is_free_at_once() {
    let place = Place::new();
    let tier = place.open();
    let mut child = start("claim", &place);
    child.ready("its claim", |output| {
        output.contains("claimed").then_some(())
    });
    assert!(matches!(
        tier.get_or_claim(id(1), HOLD).await,
        Ok(GetOutcome::Missing(Claim::HeldElsewhere))
    ));
    child.kill();
    mine(tier.get_or_claim(id(1), HOLD).await);
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_writes_leaves_whole_records_or_none() {
    let place = Place::new();
    let tier = open_with(large(&place));
    let began = Instant::now();
    for round in 0..12_u64 {
        let mut child = start("write", &place);
        child.ready("a write", |output| output.contains("writing").then_some(()));
        tokio::time::sleep(std::time::Duration::from_millis(5 + 7 * round)).await;
        child.kill();
        for key in 0..4 {
            if let Some((head, body)) = found(tier.get(id(key)).await) {
                assert_eq!((&head[..], body), (&b"head"[..], whole(0, 8 << 20)));
            }
        }
    }
    assert_eq!(tier.stats().corrupt, 0, "after {:?}", began.elapsed());
    // No lock is left behind.
    tier.put(id(5), entry(b"head", b"body"), LONG, None)
        .await
        .expect("it is put");
}
