//! Tests of a fill, one rule each.

use std::future::poll_fn;

use super::*;
use crate::request::route::Clients;

fn fill() -> Arc<Fill> {
    Fill::new(&Arc::new(FillBudget::new(1 << 20, Clients::Visitors)))
}

async fn read(reader: &mut FillReader) -> Result<Vec<u8>, BodyError> {
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| reader.poll_frame(cx)).await {
        if let Frame::Data(bytes) = frame? {
            all.extend_from_slice(&bytes);
        }
    }
    Ok(all)
}

#[tokio::test]
async fn early_and_late_readers_get_the_same_bytes() {
    let fill = fill();
    let mut early = fill.reader().unwrap();
    fill.push("hello ".into(), 100);
    let first = poll_fn(|cx| early.poll_frame(cx)).await;
    assert!(matches!(first, Some(Ok(Frame::Data(bytes))) if bytes == "hello "));
    let mut late = fill.reader().unwrap();
    fill.push("world".into(), 100);
    fill.finish(Ok(None));
    assert_eq!(read(&mut early).await.unwrap(), b"world");
    assert_eq!(read(&mut late).await.unwrap(), b"hello world");
    assert_eq!(fill.collect(), "hello world");
}

#[tokio::test]
async fn a_slice_spans_chunks() {
    let fill = fill();
    for chunk in ["abc", "def", "ghi"] {
        fill.push(chunk.into(), 100);
    }
    fill.finish(Ok(None));
    let mut part = fill.reader().unwrap().slice(2, 6);
    assert_eq!(read(&mut part).await.unwrap(), b"cdefg");
}

fn poll_ready(fill: &Fill) -> Poll<Result<(), Unwanted>> {
    fill.poll_ready(&mut Context::from_waker(Waker::noop()))
}

/// Reads the next piece, and returns its length.
fn take(reader: &mut FillReader) -> Poll<Result<usize, BodyError>> {
    match reader.poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(Frame::Data(data)))) => Poll::Ready(Ok(data.len())),
        Poll::Ready(Some(Ok(Frame::Trailers(_))) | None) => Poll::Ready(Ok(0)),
        Poll::Ready(Some(Err(error))) => Poll::Ready(Err(error)),
        Poll::Pending => Poll::Pending,
    }
}

fn zeros(length: u64) -> Bytes {
    Bytes::from(vec![0; length as usize])
}

/// A fill that is not kept from its first chunk on.
fn streamed(budget: &Arc<FillBudget>, length: u64) -> (Arc<Fill>, FillReader) {
    let fill = Fill::new(budget);
    let reader = fill.reader().unwrap();
    assert!(matches!(
        fill.push(zeros(length), 0),
        PushResult::Outgrown(_)
    ));
    (fill, reader)
}

#[test]
fn over_the_limit_it_is_a_bounded_window() {
    let budget = Arc::new(FillBudget::new(4 * WINDOW, Clients::Visitors));
    let (fill, mut reader) = streamed(&budget, WINDOW);
    assert!(fill.reader().is_none(), "no reader can begin in the middle");
    assert!(poll_ready(&fill).is_pending());
    assert_eq!(take(&mut reader), Poll::Ready(Ok(WINDOW as usize)));
    assert!(poll_ready(&fill).is_pending(), "it is still at this piece");
    assert!(take(&mut reader).is_pending());
    assert!(matches!(poll_ready(&fill), Poll::Ready(Ok(()))));
    drop(reader);
    assert!(matches!(poll_ready(&fill), Poll::Ready(Err(Unwanted))));
}

#[test]
fn the_budget_is_given_back() {
    let budget = Arc::new(FillBudget::new(100_000, Clients::Visitors));
    let one = Fill::new(&budget);
    assert!(matches!(
        one.push(zeros(120_000), u64::MAX),
        PushResult::Kept
    ));
    let two = Fill::new(&budget);
    assert!(matches!(
        two.push(zeros(60_000), u64::MAX),
        PushResult::Outgrown(_)
    ));
    assert!(matches!(two.push(zeros(4), u64::MAX), PushResult::Streamed));
    let small = Fill::new(&budget);
    assert!(matches!(
        small.push(zeros(30_000), u64::MAX),
        PushResult::Kept
    ));
    drop((one, two));
    assert_eq!(budget.used(), (0, 0));
    let three = Fill::new(&budget);
    assert!(matches!(
        three.push(zeros(120_000), u64::MAX),
        PushResult::Kept
    ));
}

#[test]
fn without_room_the_window_is_small() {
    let budget = Arc::new(FillBudget::new(WINDOW, Clients::Visitors));
    let (large, other) = streamed(&budget, WINDOW / 2 + FREE - CHUNK_COST);
    let (fill, _reader) = streamed(&budget, FREE / 2);
    assert!(matches!(poll_ready(&fill), Poll::Ready(Ok(()))));
    fill.push(zeros(FREE / 2), 0);
    assert!(poll_ready(&fill).is_pending());
    drop((large, other));
    assert!(matches!(poll_ready(&fill), Poll::Ready(Ok(()))));
}

#[test]
fn memory_of_bytes_without_readers_is_released() {
    let budget = Arc::new(FillBudget::new(4 * WINDOW, Clients::Visitors));
    let (fill, reader) = streamed(&budget, WINDOW);
    drop(reader);
    for _ in 0..10 {
        fill.push(zeros(WINDOW), 0);
    }
    assert_eq!(budget.used(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn stalled_readers_take_no_room_from_arriving_bytes() {
    let budget = Arc::new(FillBudget::new(4 * WINDOW, Clients::Visitors));
    let mut readers = Vec::new();
    for _ in 0..20 {
        let fill = Fill::new(&budget);
        let reader = fill.reader().unwrap();
        assert!(matches!(
            fill.push(zeros(WINDOW), u64::MAX),
            PushResult::Kept
        ));
        fill.finish(Ok(None));
        readers.push(reader);
        tokio::time::advance(STALLED).await;
    }
    let (arriving, behind) = budget.used();
    assert!(arriving == 0 && behind <= 2 * WINDOW, "{behind}");
    let taken: Vec<_> = readers.iter_mut().map(take).collect();
    let (gone, rest) = taken.split_at(18);
    assert!(
        gone.iter()
            .all(|took| *took == Poll::Ready(Err(BodyError::TooSlow)))
    );
    assert!(
        rest.iter()
            .all(|took| *took == Poll::Ready(Ok(WINDOW as usize)))
    );
}

#[test]
fn a_slow_reader_is_let_go_where_others_wait() {
    let budget = Arc::new(FillBudget::new(64 * WINDOW, Clients::Visitors));
    let fill = Fill::new(&budget);
    let mut readers: Vec<_> = (0..3).map(|_| fill.reader().unwrap()).collect();
    assert!(matches!(
        fill.push(zeros(WINDOW), 0),
        PushResult::Outgrown(_)
    ));
    fill.mark();
    fill.release_slow_readers();
    assert!(poll_ready(&fill).is_pending(), "nobody waits for anybody");
    assert!(take(&mut readers[0]).is_ready());
    assert!(take(&mut readers[0]).is_pending());
    assert!(take(&mut readers[1]).is_ready());
    fill.push(zeros(1), 0);
    assert!(take(&mut readers[0]).is_ready());
    assert!(take(&mut readers[1]).is_ready());
    assert!(take(&mut readers[1]).is_pending());
    fill.release_slow_readers();
    assert!(matches!(poll_ready(&fill), Poll::Ready(Ok(()))));
    assert!(take(&mut readers[0]).is_pending(), "it was not slow");
    assert_eq!(take(&mut readers[2]), Poll::Ready(Err(BodyError::TooSlow)));
}

#[tokio::test]
async fn an_error_reaches_every_reader() {
    let fill = fill();
    let mut reader = fill.reader().unwrap();
    fill.push("some".into(), 100);
    fill.finish(Err(BodyError::Incomplete));
    assert_eq!(read(&mut reader).await, Err(BodyError::Incomplete));
    assert!(fill.reader().is_none(), "nobody is let in to half a body");
}
