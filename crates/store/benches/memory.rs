//! Benchmark of the memory tier: resident bytes per object, and the cost of a look-up.
//!
//!     cargo bench -p microcache-store --bench memory -- [OBJECTS [BODY [LOOKUPS]]]
//!
//! Each look-up selects the response of a random key and copies its head and body, as a hit does. For instructions
//! per look-up, run the program under callgrind with two numbers of look-ups, and divide the difference.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use microcache_policy::{Fields, Lifetime, OriginView, Rules, Time};
use microcache_store::{Memory, MemoryLimits, Stored};
use tikv_jemallocator::Jemalloc;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// A head of 200 bytes.
const HEAD: &[u8] =
    b"Date: Fri, 27 Nov 2026 20:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
    Cache-Control: public, max-age=3600\r\nETag: \"5f3-62a0b1c2d3e4f\"\r\n\
    Last-Modified: Fri, 27 Nov 2026 19:00:00 GMT\r\n";

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|it| it.parse().ok());
    let mut next = |default| numbers.next().unwrap_or(default);
    let (objects, body, lookups): (usize, usize, usize) =
        (next(1_000_000), next(100), next(2_000_000));
    let memory = Memory::new(MemoryLimits {
        capacity: 64 << 30,
        object: 1 << 20,
        variants: 8,
    });
    let rules = Rules::default();
    let request = OriginView {
        fields: Fields::default(),
        rules: &rules,
        address: "",
        is_trusted: false,
    };
    let before = resident();
    let began = Instant::now();
    for number in 0..objects {
        let key = key(number);
        memory
            .put(
                key.as_bytes(),
                stored(key.as_bytes(), body),
                &request,
                Time::default(),
            )
            .expect("it is small");
    }
    let filled = began.elapsed();
    let each = (resident() - before) as f64 / objects as f64;
    let counted = memory.stats().bytes as f64 / objects as f64;
    println!(
        "{objects} objects of {} + {body} B: {each:.0} B resident each, {counted:.0} B counted, \
         {:.0} ns to store",
        HEAD.len(),
        filled.as_nanos() as f64 / objects as f64
    );
    let mut out = Vec::with_capacity(1 << 20);
    let mut chance = 1_u64;
    let began = Instant::now();
    for _ in 0..lookups {
        // Knuth's generator: the upper bits are good enough.
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = (chance >> 33) as usize % objects;
        out.clear();
        let object = memory.get(key(number).as_bytes()).expect("it is stored");
        let hit = object.select(&request, Time::default()).expect("it is one");
        hit.count_use();
        out.extend_from_slice(hit.fields().as_block());
        out.extend_from_slice(hit.body().expect("it is in memory"));
        black_box(&out);
    }
    println!(
        "{:.0} ns per look-up",
        began.elapsed().as_nanos() as f64 / lookups.max(1) as f64
    );
}

fn key(number: usize) -> String {
    format!("https example.com/page/{number:09}")
}

fn stored(key: &[u8], body: usize) -> Stored {
    let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
    let body = Bytes::from(vec![b'x'; body]);
    Stored::new(
        key,
        200,
        Fields::new(HEAD),
        body.into(),
        lifetime,
        Time::default(),
    )
}

/// Resident memory of the process, in bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 = pages
        .split(' ')
        .nth(1)
        .and_then(|it| it.parse().ok())
        .expect("a number");
    pages * 4096
}
