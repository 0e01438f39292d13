//! What is measured apart from the load: CPU time for a hit, memory for an entry, the time to the first byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::check;
use crate::client::Client;
use crate::cpu;
use crate::figures::nearest;
use crate::load::each_once;
use crate::plan::{Choice, Plan};

/// How many of the stored urls are asked for again, to see that they are stored.
const SAMPLED: usize = 1000;

/// Users without a pause ask for urls that are stored.
pub async fn hits(plan: Arc<Plan>, client: Arc<Client>) {
    each_once(&plan, &client).await;
    let (counts, stopped) = (
        Arc::new(Counts::default()),
        Arc::new(AtomicBool::new(false)),
    );
    let users: Vec<_> = (0..plan.users)
        .map(|user| {
            let (plan, client) = (plan.clone(), client.clone());
            tokio::spawn(hit_loop(
                user,
                plan,
                client,
                counts.clone(),
                stopped.clone(),
            ))
        })
        .collect();
    tokio::time::sleep(plan.seconds("warm-seconds")).await;
    let (began, spent, before) = (Instant::now(), cpu::spent(), counts.read());
    tokio::time::sleep(plan.seconds("seconds")).await;
    let (took, spent, after) = (began.elapsed(), cpu::spent() - spent, counts.read());
    stopped.store(true, Ordering::Relaxed);
    for user in users {
        user.await.expect("no panic");
    }
    println!(
        "{{\"requests\":{},\"hits\":{},\"wrong\":{},\"seconds\":{:.6},\"cpu_us\":{}}}",
        after[0] - before[0],
        after[1] - before[1],
        after[2] - before[2],
        took.as_secs_f64(),
        spent.as_micros()
    );
}

/// Requests, hits among them, and answers that are wrong or missing.
#[derive(Default)]
struct Counts([AtomicU64; 3]);

impl Counts {
    fn read(&self) -> [u64; 3] {
        std::array::from_fn(|number| self.0[number].load(Ordering::Relaxed))
    }

    fn add(&self, number: usize) {
        self.0[number].fetch_add(1, Ordering::Relaxed);
    }
}

async fn hit_loop(
    user: usize,
    plan: Arc<Plan>,
    client: Arc<Client>,
    counts: Arc<Counts>,
    stopped: Arc<AtomicBool>,
) {
    let mut choices = plan.choices(user);
    while !stopped.load(Ordering::Relaxed) {
        let choice = choices.next(&plan);
        counts.add(0);
        match client.ask(&choice).await {
            Ok(answer) if check::wrong(&plan, &choice, &answer).is_none() => {
                if answer.outcome == "hit" {
                    counts.add(1);
                }
            }
            _ => counts.add(2),
        }
        // A hit need not wait for anything, and others are to have their turn.
        tokio::task::yield_now().await;
    }
}

/// All urls once, and the memory of the process before and after.
pub async fn fill(plan: Arc<Plan>, client: Arc<Client>) {
    let before = resident();
    each_once(&plan, &client).await;
    tokio::time::sleep(plan.seconds("warm-seconds")).await;
    let after = resident();
    let step = (plan.urls / SAMPLED).max(1);
    let (mut asked, mut found) = (0, 0);
    for url in (0..plan.urls).step_by(step) {
        let answer = client.ask(&Choice::plain(url)).await.expect("an answer");
        asked += 1;
        found += u64::from(answer.outcome == "hit");
    }
    println!(
        "{{\"urls\":{},\"resident_before\":{before},\"resident_after\":{after},\"sampled\":{asked},\"hits\":{found}}}",
        plan.urls
    );
}

fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("it is Linux");
    let pages = pages
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("pages") * rustix::param::page_size() as u64
}

/// Each url once, and never again: milliseconds to the first byte of its body, and to the last. The first that each user
/// asks for is where connections are made and programs compiled, and is left out.
pub async fn first_byte(plan: Arc<Plan>, client: Arc<Client>) {
    let users: Vec<_> = (0..plan.users)
        .map(|user| {
            let (plan, client) = (plan.clone(), client.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                for url in (user..plan.urls).step_by(plan.users) {
                    let (choice, began) = (Choice::plain(url), Instant::now());
                    let answer = client.ask(&choice).await.expect("an answer");
                    let first = (answer.first_byte - began).as_secs_f64() * 1e3;
                    times.push((first, began.elapsed().as_secs_f64() * 1e3));
                    assert_eq!(check::wrong(&plan, &choice, &answer), None);
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for user in users {
        times.extend(user.await.expect("no panic").split_off(1));
    }
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut sorted: Vec<f64> = times.iter().map(of).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        nearest(&sorted, 0.5)
    };
    let (first, last) = (median(|times| times.0), median(|times| times.1));
    println!(
        "{{\"requests\":{},\"first_ms\":{first:.3},\"last_ms\":{last:.3}}}",
        times.len()
    );
}
