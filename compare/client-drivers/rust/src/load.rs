//! Users who draw urls, check what they get, and pause: one line for each interval.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::check;
use crate::client::Client;
use crate::cpu;
use crate::figures::{self, Sample};
use crate::pause::Pause;
use crate::plan::{Choice, Plan};

type Samples = Arc<Mutex<Vec<Sample>>>;

pub async fn run(plan: Arc<Plan>, client: Arc<Client>) {
    if plan.get("warm-urls", 0) == 1 {
        each_once(&plan, &client).await;
    }
    let samples = Samples::default();
    for user in 0..plan.users {
        tokio::spawn(user_loop(
            user,
            plan.clone(),
            client.clone(),
            samples.clone(),
        ));
    }
    tokio::time::sleep(plan.seconds("warm-seconds")).await;
    samples.lock().expect("no panic").clear();
    let (mut began, mut spent) = (Instant::now(), cpu::spent());
    println!("{{\"began\":true}}");
    for interval in 0..plan.get("intervals", 1) {
        tokio::time::sleep_until((began + plan.seconds("seconds")).into()).await;
        let seen = std::mem::take(&mut *samples.lock().expect("no panic"));
        let (now, cpu) = (Instant::now(), cpu::spent());
        println!(
            "{}",
            figures::line(interval, now - began, cpu - spent, &seen)
        );
        (began, spent) = (now, cpu);
    }
}

/// All urls once, shared among the users. A request that fails is one that warms nothing.
pub async fn each_once(plan: &Arc<Plan>, client: &Arc<Client>) {
    let share = |user| {
        let (plan, client) = (plan.clone(), client.clone());
        tokio::spawn(async move {
            for url in (user..plan.urls).step_by(plan.users) {
                let choice = Choice::plain(url);
                let answer = client.ask(&choice).await;
                let wrong = answer
                    .ok()
                    .and_then(|answer| check::wrong(&plan, &choice, &answer));
                assert_eq!(wrong, None, "warming: {}", plan.path_of(url));
            }
        })
    };
    let shares: Vec<_> = (0..plan.users).map(share).collect();
    for share in shares {
        share.await.expect("warmed");
    }
}

async fn user_loop(user: usize, plan: Arc<Plan>, client: Arc<Client>, samples: Samples) {
    let (mut choices, pause) = (plan.choices(user), Pause::new());
    let mut overslept = Duration::ZERO;
    loop {
        let choice = choices.next(&plan);
        let began = Instant::now();
        let answer = client.ask(&choice).await;
        let ended = Instant::now();
        let wrong = answer
            .as_ref()
            .ok()
            .and_then(|answer| check::wrong(&plan, &choice, answer));
        let answer = answer.map(|answer| (answer.status.as_u16(), answer.outcome));
        let sample = Sample {
            latency: ended - began,
            answer,
            wrong,
            overslept,
        };
        samples.lock().expect("no panic").push(sample);
        let begun = Instant::now();
        pause.take(choice.pause).await;
        overslept = begun.elapsed().saturating_sub(choice.pause);
    }
}
