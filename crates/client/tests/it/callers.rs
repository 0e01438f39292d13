//! The inner service is called in the task of the caller.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::support::{Client, Site, page, request, whole};

tokio::task_local! {
    static TRACE: u32;
}

/// Says twice which trace its caller is in: before it has waited, and after that.
fn tracing_site() -> Site {
    Site::later(|_, _| {
        let trace = || TRACE.try_with(|trace| *trace).ok();
        Box::pin(async move {
            let before = trace();
            sleep(Duration::from_millis(30)).await;
            let body = format!("{before:?} {:?}", trace());
            Ok(page(body, &[("cache-control", "max-age=100")]))
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_miss_that_is_stored_finds_the_task_locals_of_its_caller() {
    let site = tracing_site();
    let client = Client::private(&site).await;
    let first = TRACE.scope(7, client.send(request("/", &[]))).await;
    let first = whole(first.expect("an answer")).await;
    assert_eq!(first.body(), "Some(7) Some(7)");
    let second = TRACE.scope(8, client.send(request("/", &[]))).await;
    assert_eq!(whole(second.expect("a hit")).await.body(), first.body());
    assert_eq!(site.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_takes_the_fetch_of_others_not_along() {
    let site = tracing_site();
    let client = Client::private(&site).await;
    let first = TRACE.scope(7, client.send(request("/", &[])));
    assert!(timeout(Duration::from_millis(10), first).await.is_err());
    let second = client.send(request("/", &[])).await.expect("an answer");
    assert_eq!(whole(second).await.body(), "Some(7) None");
    assert_eq!(site.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_poll_blocks_no_other() {
    let site = tracing_site();
    let client = Client::private(&site).await;
    let mut first = pin!(TRACE.scope(7, client.send(request("/", &[]))));
    for _ in 0..3 {
        let is_pending = poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending);
        tokio::task::yield_now().await;
    }
    let second = client.send(request("/", &[])).await.expect("an answer");
    let second = whole(second).await;
    assert_eq!(second.body(), "Some(7) None");
    let first = whole(first.await.expect("an answer")).await;
    assert_eq!(first.body(), second.body());
    assert_eq!(site.request_count(), 1);
}
