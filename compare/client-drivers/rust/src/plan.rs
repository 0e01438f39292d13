//! What is asked for: the words of the command line, and the choices that follow from them. See ../../README.md.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

pub struct Plan {
    words: HashMap<String, String>,
    pub origin: String,
    pub path: String,
    pub urls: usize,
    pub variants: usize,
    pub identities: usize,
    pub users: usize,
    pub size: usize,
    pub stale: Duration,
    pause_micros: u64,
    seed: u64,
}

impl Plan {
    pub fn from_words(words: impl Iterator<Item = String>) -> Self {
        let words: HashMap<String, String> = words
            .map(|word| match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => panic!("`{word}` is not NAME=VALUE"),
            })
            .collect();
        let mut plan = Self {
            origin: String::new(),
            path: String::new(),
            urls: 0,
            variants: 0,
            identities: 0,
            users: 0,
            size: 0,
            stale: Duration::ZERO,
            pause_micros: 0,
            seed: 0,
            words,
        };
        plan.origin = plan.get("origin", String::new());
        plan.path = plan.get("path", String::new());
        plan.urls = plan.get("urls", 1);
        plan.variants = plan.get("variants", 1);
        plan.identities = plan.get("identities", 0);
        plan.users = plan.get("users", 1);
        plan.size = plan.get("size", 0);
        plan.stale = Duration::from_secs(plan.get("stale-seconds", 0));
        plan.pause_micros = plan.get("pause-us", 0);
        plan.seed = plan.get("seed", 1);
        plan
    }

    /// A word that not every kind of work needs.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> T {
        match self.words.get(name) {
            Some(text) => match text.parse() {
                Ok(value) => value,
                Err(_) => panic!("{name} cannot be `{text}`"),
            },
            None => default,
        }
    }

    pub fn seconds(&self, name: &str) -> Duration {
        Duration::from_secs_f64(self.get(name, 0.0))
    }

    pub fn path_of(&self, url: usize) -> String {
        format!("/{}/{url}", self.path)
    }

    /// Each user's own choices, the same in every run and every language.
    pub fn choices(&self, user: usize) -> Choices {
        Choices {
            state: self.seed.wrapping_mul(1_000_003).wrapping_add(user as u64),
        }
    }
}

/// One request, and how long its user waits after the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    pub url: usize,
    pub variant: usize,
    /// Nobody in particular, if there are no identities.
    pub identity: Option<usize>,
    pub pause: Duration,
}

impl Choice {
    /// The first time that a url is asked for, by nobody in particular.
    pub fn plain(url: usize) -> Self {
        Self {
            url,
            variant: 0,
            identity: None,
            pause: Duration::ZERO,
        }
    }
}

/// SplitMix64; a draw takes the upper 31 bits modulo what there is to choose from.
pub struct Choices {
    state: u64,
}

impl Choices {
    pub fn next(&mut self, plan: &Plan) -> Choice {
        let url = self.draw(plan.urls as u64) as usize;
        let variant = self.draw(plan.variants as u64) as usize;
        let identity = self.draw(plan.identities.max(1) as u64) as usize;
        let pause = self.draw(plan.pause_micros + 1);
        Choice {
            url,
            variant,
            identity: (plan.identities > 0).then_some(identity),
            pause: Duration::from_micros(pause),
        }
    }

    fn draw(&mut self, of: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 33) % of
    }
}

/// The first choices, to be compared with those of other languages.
pub fn print(plan: &Plan) {
    for user in 0..plan.users {
        let mut choices = plan.choices(user);
        for _ in 0..plan.get("requests", 10) {
            let choice = choices.next(plan);
            let identity = choice.identity.map_or(-1, |identity| identity as i64);
            let pause = choice.pause.as_micros();
            println!(
                "{user} {} {} {identity} {pause}",
                choice.url, choice.variant
            );
        }
    }
}
