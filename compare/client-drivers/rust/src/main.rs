//! Drives clients that cache with a plan that ../../java follows in the same way. See ../../README.md.

mod check;
mod client;
mod cpu;
mod figures;
mod load;
mod parts;
mod pause;
mod plan;

use std::sync::Arc;

use client::Client;
use plan::Plan;

#[tokio::main]
async fn main() {
    let plan = Arc::new(Plan::from_words(std::env::args().skip(1)));
    let work: String = plan.get("work", String::new());
    if work == "choices" {
        return plan::print(&plan);
    }
    let client = Arc::new(Client::new(&plan).await);
    match work.as_str() {
        "load" => load::run(plan, client).await,
        "hits" => parts::hits(plan, client).await,
        "fill" => parts::fill(plan, client).await,
        "first-byte" => parts::first_byte(plan, client).await,
        _ => panic!("there is no work `{work}`"),
    }
}
