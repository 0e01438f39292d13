//! The queue, one step at a time, and with threads.

use super::*;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};

type Entering<T = Permit> = Pin<Box<dyn Future<Output = Result<T, QueueError>> + Send>>;

const LONG: Duration = Duration::from_mins(1);
const A: Network = Network::from_bits(1);
const B: Network = Network::from_bits(2);
const C: Network = Network::from_bits(3);

fn bounds(places: usize, uploads: usize, length: usize, time_limit: Duration) -> QueueBounds {
    QueueBounds {
        places,
        uploads,
        length,
        time_limit,
    }
}

fn queue(places: usize, uploads: usize, length: usize, time_limit: Duration) -> Arc<RequestQueue> {
    RequestQueue::new(bounds(places, uploads, length, time_limit))
}

fn refresh(demand: &Arc<AtomicU32>) -> Urgency {
    refresh_within(demand, LONG)
}

/// A refresh of a copy that can be used for so long yet.
fn refresh_within(demand: &Arc<AtomicU32>, left: Duration) -> Urgency {
    Urgency::Refresh {
        demand: Arc::clone(demand),
        left,
    }
}

fn demand(n: u32) -> Arc<AtomicU32> {
    Arc::new(AtomicU32::new(n))
}

/// Begins to wait, for a client of A or for a refresh: the queue knows of it when this returns.
fn enter(queue: &Arc<RequestQueue>, urgency: Urgency) -> Entering {
    let audience = match urgency {
        Urgency::Client => Audience::of(A),
        Urgency::Refresh { .. } | Urgency::Ahead => Arc::default(),
    };
    enter_for(queue, urgency, audience)
}

/// The same for these clients.
fn enter_for(queue: &Arc<RequestQueue>, urgency: Urgency, audience: Arc<Audience>) -> Entering {
    let queue = Arc::clone(queue);
    let mut entering: Entering = Box::pin(async move { queue.enter(&urgency, &audience).await });
    assert!(poll(&mut entering).is_none(), "there should be no place");
    entering
}

/// The same for an upload.
fn enter_upload(queue: &Arc<RequestQueue>, network: Network) -> Entering<(UploadPermit, Permit)> {
    let queue = Arc::clone(queue);
    let mut entering: Entering<_> = Box::pin(async move { queue.enter_upload(network).await });
    assert!(poll(&mut entering).is_none(), "there should be no place");
    entering
}

fn poll<T>(entering: &mut Entering<T>) -> Option<Result<T, QueueError>> {
    let mut cx = Context::from_waker(Waker::noop());
    match entering.as_mut().poll(&mut cx) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn granted<T>(entering: &mut Entering<T>) -> Option<T> {
    poll(entering).map(|result| result.expect("a place"))
}

async fn taken(queue: &Arc<RequestQueue>) -> Permit {
    queue
        .enter(&Urgency::Client, &Audience::of(A))
        .await
        .expect("a place")
}

#[tokio::test]
async fn places_are_bounded_and_handed_on_in_order() {
    let queue = queue(2, 2, 10, LONG);
    let (one, two) = (taken(&queue).await, taken(&queue).await);
    let mut first = enter(&queue, Urgency::Client);
    let mut second = enter(&queue, Urgency::Client);
    assert_eq!(queue.depth(), (2, 2));
    drop(one);
    assert!(poll(&mut second).is_none());
    let three = granted(&mut first).expect("first come, first served");
    drop(two);
    let four = granted(&mut second).expect("the next");
    assert_eq!(queue.depth(), (2, 0));
    drop((three, four));
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test]
async fn other_bounds_hold_at_once_and_take_no_place_away() {
    let queue = queue(2, 1, 1, LONG);
    let (one, two) = (taken(&queue).await, taken(&queue).await);
    let mut first = enter(&queue, Urgency::Client);
    queue.set_bounds(bounds(1, 1, 2, LONG));
    let mut second = enter(&queue, Urgency::Client);
    drop(one);
    assert!(poll(&mut first).is_none(), "there was one place too many");
    queue.set_bounds(bounds(3, 1, 2, LONG));
    let places = (granted(&mut first), granted(&mut second));
    assert!(places.0.is_some() && places.1.is_some());
    assert_eq!(queue.depth(), (3, 0));
    drop((two, places));
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test]
async fn clients_go_before_refreshes_and_hot_ones_before_cold() {
    let queue = queue(1, 1, 10, LONG);
    let place = taken(&queue).await;
    let (cold, hot) = (demand(5), demand(1));
    let mut cold_refresh = enter(&queue, refresh(&cold));
    let mut hot_refresh = enter(&queue, refresh(&hot));
    let mut equal_refresh = enter(&queue, refresh(&cold));
    let mut client = enter(&queue, Urgency::Client);
    // What counts is the demand when a place comes free.
    hot.store(9, Ordering::Relaxed);
    drop(place);
    let place = granted(&mut client).expect("the client is first");
    assert!(poll(&mut hot_refresh).is_none());
    drop(place);
    assert!(poll(&mut cold_refresh).is_none());
    drop(granted(&mut hot_refresh).expect("the hot refresh"));
    assert!(poll(&mut equal_refresh).is_none());
    drop(granted(&mut cold_refresh).expect("the one that came first"));
    drop(granted(&mut equal_refresh).expect("the last"));
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fetch_ahead_comes_last_until_a_client_joins_it() {
    let queue = queue(1, 1, 2, LONG);
    let place = taken(&queue).await;
    let audience: Arc<Audience> = Arc::default();
    let mut ahead = enter_for(&queue, Urgency::Ahead, Arc::clone(&audience));
    // However long it waits.
    tokio::time::advance(LONG * 3 / 4).await;
    let mut cold_refresh = enter(&queue, refresh(&demand(0)));
    assert!(poll(&mut ahead).is_none());
    let client = audience.join(B);
    assert!(poll(&mut ahead).is_none());
    drop(place);
    let place = granted(&mut ahead).expect("a client waits for it");
    drop(client);
    // It displaces no refresh, and gives way to one.
    let mut other_refresh = enter(&queue, refresh(&demand(0)));
    let full = queue.enter(&Urgency::Ahead, &Arc::default()).await;
    assert_eq!(full.err(), Some(QueueError::Full));
    drop(place);
    drop(granted(&mut cold_refresh).expect("the first refresh"));
    drop(granted(&mut other_refresh).expect("the other"));
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn requests_close_to_their_timeout_go_before_popular_ones() {
    let second = Duration::from_secs(1);
    let queue = queue(1, 1, 10, 10 * second);
    let mut place = taken(&queue).await;
    let (cold, hot) = (demand(1), demand(1000));
    let mut waiting = vec![
        enter(&queue, refresh_within(&cold, 100 * second)),
        enter(&queue, refresh_within(&cold, 4 * second)),
    ];
    let mut renewed = Vec::new();
    // Hot pages keep coming, and each fetch takes a second.
    for seconds in 1..=6 {
        let mut next = enter(&queue, refresh(&hot));
        tokio::time::advance(second).await;
        drop(place);
        let due = waiting.iter_mut().enumerate();
        let due: Vec<_> = due
            .filter_map(|(n, cold)| Some((n, granted(cold)?)))
            .collect();
        place = match due.into_iter().next() {
            None => granted(&mut next).expect("the hot one: nothing is due"),
            Some((number, granted)) => {
                drop(waiting.remove(number));
                renewed.push((seconds, number));
                granted
            }
        };
    }
    // Half of the copy's time, or of the time that a refresh waits.
    assert_eq!(renewed, [(2, 1), (5, 0)]);
}

#[tokio::test(start_paused = true)]
async fn refreshes_take_few_places_unless_clients_wait_or_their_copies_end() {
    let second = Duration::from_secs(1);
    let queue = queue(16, 16, 20, 60 * second);
    let refreshing = async |urgency: Urgency| queue.enter(&urgency, &Arc::default()).await;
    let first = refreshing(refresh(&demand(1))).await.expect("an eighth");
    let second_one = refreshing(refresh(&demand(1)))
        .await
        .expect("of the places");
    assert!(queue.try_enter(&refresh(&demand(1))).is_none());
    // Fetches before any client asks have a limit of their own.
    drop(refreshing(Urgency::Ahead).await.expect("a place"));
    let mut cold = enter(&queue, refresh_within(&demand(1), Duration::MAX));
    let mut hot = enter(&queue, refresh(&demand(9)));
    let mut ending = enter(&queue, refresh_within(&demand(0), second));
    let audience: Arc<Audience> = Arc::default();
    let mut joined = enter_for(&queue, refresh(&demand(0)), Arc::clone(&audience));
    assert_eq!(queue.depth(), (2, 4));
    assert_eq!(queue.refreshes(), (2, 4));
    // Clients need no room in the limit, also those that join a refresh.
    let client = taken(&queue).await;
    let joining = audience.join(B);
    let joined = granted(&mut joined).expect("clients wait for it");
    drop(joining);
    // Their places are no room for refreshes.
    drop((client, joined));
    assert!(poll(&mut hot).is_none() && poll(&mut cold).is_none());
    drop(first);
    let hot = granted(&mut hot).expect("the first in demand");
    tokio::time::advance(second * 3 / 4).await;
    let ending = granted(&mut ending).expect("a quarter of its copy's time is left");
    // None of them ends, so one more may begin after a while.
    tokio::time::advance(2 * second).await;
    assert!(poll(&mut cold).is_none());
    tokio::time::advance(2 * second).await;
    let cold = granted(&mut cold).expect("a slow one does not count");
    drop((second_one, cold));
    drop((hot, ending));
    assert_eq!(queue.depth(), (0, 0));
    assert!(refreshing(refresh(&demand(0))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refresh_takes_room_in_its_turn_and_at_once_if_its_copy_ends() {
    let queue = queue(8, 8, 20, LONG);
    let slow = queue.try_enter(&refresh(&demand(1))).expect("an eighth");
    let mut waiting = enter(&queue, refresh(&demand(9)));
    let of_no_time = refresh_within(&demand(0), Duration::ZERO);
    let ending = queue.enter(&of_no_time, &Arc::default()).await;
    let ending = ending.expect("needs no room");
    drop(ending);
    assert!(poll(&mut waiting).is_none(), "that was no room");
    // There is room now, which is not the newcomer's.
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(queue.try_enter(&refresh(&demand(1))).is_none());
    let mut newcomer = enter(&queue, refresh(&demand(1)));
    let first = granted(&mut waiting).expect("its turn");
    assert!(poll(&mut newcomer).is_none());
    drop((slow, first));
    assert!(granted(&mut newcomer).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_of_refreshes_is_used_at_once() {
    let queue = queue(64, 64, 100, LONG);
    let cold = || refresh_within(&demand(0), Duration::MAX);
    let mut held: VecDeque<_> = (0..8)
        .map(|_| queue.try_enter(&cold()).expect("an eighth"))
        .collect();
    let mut waiting: Vec<_> = (0..80).map(|_| enter(&queue, cold())).collect();
    for _ in 0..40 {
        waiting.retain_mut(|waiting| {
            granted(waiting)
                .map(|permit| held.push_back(permit))
                .is_none()
        });
        assert_eq!(queue.depth().0, queue.refreshes().0);
        tokio::time::advance(Duration::from_millis(50)).await;
        held.pop_front();
    }
    assert_eq!(queue.refreshes().0, 12, "raised by half");
}

#[tokio::test]
async fn uploads_have_some_of_the_places_and_their_own_line() {
    let queue = queue(3, 2, 1, LONG);
    let (share, place) = queue.enter_upload(A).await.expect("a place");
    let (second_share, second) = queue.enter_upload(B).await.expect("another");
    let mut upload = enter_upload(&queue, C);
    assert_eq!(queue.enter_upload(A).await.err(), Some(QueueError::Full));
    let third = taken(&queue).await;
    let mut client = enter(&queue, Urgency::Client);
    assert_eq!(queue.depth(), (3, 2));
    drop(third);
    drop(granted(&mut client).expect("the upload's turn, but not its places"));
    assert_eq!(queue.depth(), (2, 1));
    // The body of one is there, and a place is free.
    drop(share);
    let third = granted(&mut upload).expect("the next upload");
    assert_eq!(queue.depth(), (3, 0));
    let mut upload = enter_upload(&queue, B);
    drop((place, second));
    assert!(
        poll(&mut upload).is_none(),
        "two bodies are still on their way"
    );
    drop(second_share);
    drop(granted(&mut upload).expect("a share"));
    drop(third);
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test]
async fn an_upload_that_leaves_passes_place_and_share_on() {
    let queue = queue(1, 1, 10, LONG);
    let first = queue.enter_upload(A).await.expect("a place");
    let granted_but_gone = enter_upload(&queue, C);
    let mut next = enter_upload(&queue, C);
    let mut client = enter(&queue, Urgency::Client);
    drop(first);
    drop(granted_but_gone);
    // Their address has had its turn.
    assert!(poll(&mut next).is_none());
    drop(granted(&mut client).expect("the place was passed on"));
    drop(granted(&mut next).expect("and the share"));
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test]
async fn a_full_queue_refuses_each_kind_for_itself() {
    let queue = queue(1, 1, 1, LONG);
    let _place = taken(&queue).await;
    let (warm, hot) = (demand(2), demand(3));
    let mut displaced = enter(&queue, refresh(&warm));
    let _client = enter(&queue, Urgency::Client);
    assert_eq!(
        queue.enter(&Urgency::Client, &Audience::of(A)).await.err(),
        Some(QueueError::Full)
    );
    assert_eq!(
        queue.enter(&refresh(&warm), &Arc::default()).await.err(),
        Some(QueueError::Full)
    );
    let _hot = enter(&queue, refresh(&hot));
    assert_eq!(
        poll(&mut displaced).map(Result::err),
        Some(Some(QueueError::Full))
    );
    assert_eq!(queue.depth(), (1, 2));
    let closed = RequestQueue::new(bounds(1, 1, 0, LONG));
    let _place = taken(&closed).await;
    assert_eq!(
        closed.enter(&Urgency::Client, &Audience::of(A)).await.err(),
        Some(QueueError::Full)
    );
    assert_eq!(
        closed.enter(&refresh(&hot), &Arc::default()).await.err(),
        Some(QueueError::Full)
    );
}

#[tokio::test]
async fn the_wait_in_the_queue_ends() {
    let queue = queue(1, 1, 1, Duration::from_millis(1));
    let place = taken(&queue).await;
    assert_eq!(
        queue.enter(&Urgency::Client, &Audience::of(A)).await.err(),
        Some(QueueError::Full)
    );
    assert_eq!(queue.depth(), (1, 0));
    drop(place);
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test]
async fn a_request_without_clients_leaves_the_queue_and_passes_its_permit_on() {
    let queue = queue(1, 1, 10, LONG);
    let place = taken(&queue).await;
    let gone = enter(&queue, Urgency::Client);
    let granted_but_gone = enter(&queue, Urgency::Client);
    let mut patient = enter(&queue, refresh(&demand(0)));
    drop(gone);
    assert_eq!(queue.depth(), (1, 2));
    drop(place);
    assert!(poll(&mut patient).is_none());
    drop(granted_but_gone);
    let place = granted(&mut patient).expect("the place was passed on");
    assert_eq!(queue.depth(), (1, 0));
    drop(place);
    assert_eq!(queue.depth(), (0, 0));
}

#[test]
fn threads_never_take_more_places_than_there_are_and_none_waits_for_ever() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 500;
    const PLACES: usize = 3;
    let queue = queue(PLACES, PLACES, THREADS, LONG);
    let inside = AtomicUsize::new(0);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (queue, inside, served) = (&queue, &inside, &served);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    for round in 0..ROUNDS {
                        let by = Network::from_bits((thread % 3) as u64);
                        let audience = Audience::of(by);
                        let urgency = match (thread + round) % 3 {
                            0 => refresh(&demand(1)),
                            _ => Urgency::Client,
                        };
                        if round % 7 == thread % 7 {
                            // Leaves at once, wherever it stands by then.
                            tokio::select! {
                                biased;
                                permit = queue.enter(&urgency, &audience) => drop(permit),
                                () = tokio::task::yield_now() => {}
                            }
                            continue;
                        }
                        let permit = queue.enter(&urgency, &audience).await.expect("a place");
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < PLACES);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        served.fetch_add(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            });
        }
    });
    assert_eq!(queue.depth(), (0, 0));
    let left: usize = (0..THREADS)
        .map(|thread| (0..ROUNDS).filter(|round| round % 7 == thread % 7).count())
        .sum();
    assert_eq!(served.load(Ordering::SeqCst), THREADS * ROUNDS - left);
}

fn enter_by(queue: &Arc<RequestQueue>, network: Network) -> Entering {
    enter_for(queue, Urgency::Client, Audience::of(network))
}

/// The numbers of those that get a place, in order, while one after the other gives it back.
fn order(place: Permit, waiting: &mut [Entering]) -> Vec<usize> {
    let mut order = Vec::new();
    let mut held = Some(place);
    while held.take().is_some() {
        let granted_to = |(n, it): (usize, &mut Entering)| Some((n, poll(it)?.ok()?));
        if let Some((number, place)) = waiting
            .iter_mut()
            .enumerate()
            .filter(|(n, _)| !order.contains(n))
            .find_map(granted_to)
        {
            order.push(number);
            held = Some(place);
        }
    }
    order
}

#[tokio::test]
async fn addresses_take_turns() {
    let queue = queue(1, 1, 10, LONG);
    let place = taken(&queue).await;
    let mut waiting: Vec<_> = [A, A, A, A, B, B, C]
        .into_iter()
        .map(|network| enter_by(&queue, network))
        .collect();
    assert_eq!(order(place, &mut waiting), [0, 4, 6, 1, 5, 2, 3]);
    drop(waiting);
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test]
async fn the_longest_line_of_a_full_queue_gives_way_and_no_other() {
    let queue = queue(1, 1, 4, LONG);
    let place = taken(&queue).await;
    let mut many: Vec<_> = (0..4).map(|_| enter_by(&queue, A)).collect();
    let refused = queue.enter(&Urgency::Client, &Audience::of(A)).await;
    assert_eq!(refused.err(), Some(QueueError::Full), "it displaces nobody");
    let first = enter_by(&queue, B);
    assert_eq!(
        poll(&mut many[3]).map(Result::err),
        Some(Some(QueueError::Full))
    );
    let second = enter_by(&queue, C);
    assert_eq!(
        poll(&mut many[2]).map(Result::err),
        Some(Some(QueueError::Full))
    );
    let refused = queue.enter(&Urgency::Client, &Audience::of(B)).await;
    assert_eq!(refused.err(), Some(QueueError::Full), "they would be even");
    let mut waiting = vec![many.remove(0), many.remove(0), first, second];
    assert_eq!(order(place, &mut waiting), [0, 2, 3, 1]);
}

#[tokio::test]
async fn a_shared_fetch_takes_the_first_turn_of_its_addresses_and_outlives_any_queue() {
    let queue = queue(1, 1, 4, LONG);
    let place = taken(&queue).await;
    let mut many: Vec<_> = (0..3).map(|_| enter_by(&queue, A)).collect();
    let audience = Audience::of(A);
    let mut shared = enter_for(&queue, Urgency::Client, Arc::clone(&audience));
    let visitor = audience.join(B);
    assert!(poll(&mut shared).is_none());
    // It is the newest of the longest line, and of others as well.
    let last = enter_by(&queue, C);
    assert!(poll(&mut shared).is_none());
    assert_eq!(
        poll(&mut many[2]).map(Result::err),
        Some(Some(QueueError::Full))
    );
    let mut waiting = vec![many.remove(0), many.remove(0), shared, last];
    assert_eq!(order(place, &mut waiting), [0, 2, 3, 1]);
    drop((visitor, waiting));
    assert_eq!(queue.depth(), (0, 0));
}

#[tokio::test]
async fn a_refresh_that_clients_come_to_wait_for_takes_their_turn() {
    let queue = queue(1, 1, 4, LONG);
    let place = taken(&queue).await;
    let audience = Arc::new(Audience::default());
    let wanted = enter_for(&queue, refresh(&demand(1)), Arc::clone(&audience));
    let mut waiting = vec![
        enter(&queue, refresh(&demand(9))),
        wanted,
        enter_by(&queue, A),
    ];
    let visitor = audience.join(B);
    assert!(poll(&mut waiting[1]).is_none());
    assert_eq!(order(place, &mut waiting), [2, 1, 0]);
    drop(visitor);
}

#[tokio::test]
async fn a_request_without_clients_is_not_sent() {
    let queue = queue(1, 1, 4, LONG);
    let place = taken(&queue).await;
    let audience = Arc::new(Audience::default());
    let (leader, other) = (audience.join(A), audience.join(B));
    let mut left = enter_for(&queue, Urgency::Client, Arc::clone(&audience));
    drop(leader);
    assert!(poll(&mut left).is_none(), "one of them is still there");
    drop(other);
    assert_eq!(
        poll(&mut left).map(Result::err),
        Some(Some(QueueError::Left))
    );
    // What goes on without its client is sent.
    let kept = audience.join(A);
    let mut renewal = enter_for(&queue, Urgency::Client, Arc::clone(&audience));
    kept.keep();
    drop(place);
    drop(granted(&mut renewal).expect("the place"));
    drop((left, renewal));
    assert_eq!(queue.depth(), (0, 0));
    let place = queue.enter(&Urgency::Client, &Arc::default()).await;
    let place = place.expect("it need not wait");
    let entered = queue.enter(&Urgency::Client, &Arc::default()).await;
    assert_eq!(entered.err(), Some(QueueError::Left));
    drop(place);
}

#[tokio::test]
async fn one_address_has_half_of_the_places_for_uploads() {
    let queue = queue(8, 4, 2, LONG);
    let mut slow = Vec::new();
    for _ in 0..2 {
        slow.push(queue.enter_upload(A).await.expect("a place"));
    }
    let mut more = enter_upload(&queue, A);
    let mut most = enter_upload(&queue, A);
    let visitor = queue.enter_upload(B).await.expect("a place");
    slow.push(queue.enter_upload(C).await.expect("a place"));
    // The queue is full as well: the address with most gives way.
    let mut third = enter_upload(&queue, B);
    assert_eq!(
        poll(&mut most).map(Result::err),
        Some(Some(QueueError::Full))
    );
    drop(visitor);
    assert!(poll(&mut more).is_none(), "its address has its part");
    drop(granted(&mut third).expect("a place"));
    slow.clear();
    drop(granted(&mut more).expect("a place"));
    drop((more, most, third));
    assert_eq!(queue.depth(), (0, 0));
}

#[test]
fn a_free_place_is_taken_without_waiting() {
    let queue = queue(1, 1, 1, LONG);
    let permit = queue.try_enter(&Urgency::Client);
    assert!(permit.is_some());
    assert!(queue.try_enter(&Urgency::Client).is_none());
    drop(permit);
    assert!(queue.try_enter(&Urgency::Client).is_some());
    assert_eq!(queue.depth(), (0, 0));
}
