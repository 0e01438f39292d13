//! Killed at any instant, and what is on disk afterwards is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{disk_in, lasting, tier_of};
use crate::support::{Client, Folder, Origin, Proxy, noise, request};

const PAGES: usize = 80;
const CLIENTS: usize = 4;
const KILLS: usize = 12;

#[test]
fn after_a_kill_at_any_instant_every_answer_is_the_origins() {
    let (origin, folder) = (Origin::start(), Folder::absent());
    let bodies: Arc<Vec<Vec<u8>>> = Arc::new((0..PAGES).map(body).collect());
    for (page, body) in bodies.iter().enumerate() {
        origin.on(&format!("/{page}")).reply(lasting(body));
    }
    // Little memory, so that large ones are written while they arrive.
    let flags = ["--memory", "1MiB", "--disk", &disk_in(&folder)];
    let from_disk = Arc::new(AtomicUsize::new(0));
    for round in 0..KILLS {
        let proxy = Proxy::start(&origin, &flags);
        load_until_killed(proxy, round, &bodies, &from_disk);
    }
    let proxy = Proxy::start(&origin, &flags);
    for (page, body) in bodies.iter().enumerate() {
        let response = proxy.get(&format!("/{page}"));
        assert_eq!(response.status, 200);
        assert!(response.body == *body, "/{page}");
        count(&from_disk, tier_of(&response).is_some());
    }
    let found = from_disk.load(Ordering::Relaxed);
    assert!(found > PAGES, "only {found} answers came from disk");
}

fn body(page: usize) -> Vec<u8> {
    let length = [0, 100, 5_000, 60_000, 200_000, 700_000][page % 6] + page;
    noise(length, page as u64)
}

/// Kills it after a number of answers that is another one each time, under load.
fn load_until_killed(
    proxy: Proxy,
    round: usize,
    bodies: &Arc<Vec<Vec<u8>>>,
    from_disk: &Arc<AtomicUsize>,
) {
    let answers = Arc::new(AtomicUsize::new(0));
    let address = proxy.address();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (answers, bodies) = (Arc::clone(&answers), Arc::clone(bodies));
            let from_disk = Arc::clone(from_disk);
            thread::spawn(move || {
                let mut connection = Client::connect(address);
                for step in 0.. {
                    let page = (client * 31 + round * 17 + step * 7) % bodies.len();
                    if !connection.try_send(request("GET", &format!("/{page}"), &[])) {
                        return;
                    }
                    let Ok(response) = connection.try_response() else {
                        return;
                    };
                    assert_eq!(response.status, 200, "{response:?}");
                    assert!(response.body == bodies[page], "/{page}");
                    count(&from_disk, tier_of(&response).is_some());
                    count(&answers, true);
                }
            })
        })
        .collect();
    let last = 5 + round * round * 2;
    crate::support::eventually("enough answers", || {
        (answers.load(Ordering::Relaxed) >= last).then_some(())
    });
    drop(proxy);
    for client in clients {
        client.join().expect("every answer was right");
    }
}

fn count(counter: &AtomicUsize, one: bool) {
    counter.fetch_add(usize::from(one), Ordering::Relaxed);
}
