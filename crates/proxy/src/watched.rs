//! Watched pages of the application: each is followed once, for all its subscribers.
//!
//! A follower looks up the page as an anonymous request would find it, whenever a response is stored for its
//! URL or something is purged. If the route allows it, the page is also kept fresh as if it were requested
//! continuously; otherwise nothing would ever change.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::cache::{ChangeKind, Notice, WatchTarget, Watcher};
use microcache_engine::{Bypass, Holdings, OriginRequest, Peek};
use microcache_policy::{Fields, Network, Scheme, Time};
use microcache_push::{FindContent, FindPage, MAX_INLINE, PageError, PageStatus, PageTopic};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::{GoesTo, Watching};
use crate::session::forwarding::client_address as client_behind;
use crate::session::{Caller, PlainGet, RefreshOutcome, Session, client_address, visitor_scheme};
use crate::shared::{Active, Shared};

/// Minimum interval between two lookups of a page, and so between two notifications.
const PACE: Duration = Duration::from_millis(50);
/// Minimum interval between two requests for the same page.
const REFRESH_PACE: Duration = Duration::from_secs(1);
/// Minimum interval if the page is an error.
const ERROR_PACE: Duration = Duration::from_secs(30);
/// Interval between attempts if the response may not be stored.
const UNWATCHABLE_PACE: Duration = Duration::from_mins(1);

/// All watched pages.
struct WatchedPages {
    active: Weak<Active<Shared>>,
    pages: Mutex<PageIndex>,
}

struct PageIndex {
    all: HashMap<PageName, FollowedPage>,
    /// Numbers of the pages, by the address of their first subscriber.
    held: Holdings,
    last: u64,
    /// Begin of the interval in which new pages are counted, in total and by address.
    counted_from: Instant,
    new: usize,
    new_of: HashMap<Network, usize>,
}

/// A page, and the address of its first subscriber.
struct FollowedPage {
    page: Weak<PageTopic>,
    network: Network,
    number: u64,
}

/// The limit of watched pages is reached for this address.
struct NoRoom;

impl PageIndex {
    /// Makes room for another page of this address, which has a quarter of all at most. At the limit, the newest page of
    /// the address with the most is evicted and returned. An address starts no more pages in a second than it leaves to
    /// others: short subscriptions must not cause more origin requests than lasting ones.
    fn make_room(
        &mut self,
        most: usize,
        network: Network,
    ) -> Result<Option<Arc<PageTopic>>, NoRoom> {
        let of_one = most.div_ceil(4);
        if self.all.len() >= most || self.held.count(network) >= of_one {
            self.forget_left();
        }
        if self.counted_from.elapsed() >= Duration::from_secs(1) {
            (self.counted_from, self.new) = (Instant::now(), 0);
            self.new_of.clear();
        }
        let begun = self.new_of.get(&network).copied().unwrap_or(0);
        let left = most.saturating_sub(self.new);
        if self.held.count(network) >= of_one || begun >= of_one.min(left) {
            return Err(NoRoom);
        }
        if self.all.len() < most {
            return Ok(None);
        }
        let (_, number) = self.held.newest_beyond(network).ok_or(NoRoom)?;
        let mut all = self.all.iter();
        let found = all.find(|(_, followed)| followed.number == number);
        let name = found.map(|(name, _)| name.clone()).ok_or(NoRoom)?;
        Ok(self.remove(&name).and_then(|page| page.upgrade()))
    }

    /// Removes pages without subscribers.
    fn forget_left(&mut self) {
        let held = &mut self.held;
        self.all.retain(|_, followed| {
            let is_watched = followed.page.strong_count() > 0;
            if !is_watched {
                held.remove(followed.network, followed.number);
            }
            is_watched
        });
    }

    fn remove(&mut self, name: &PageName) -> Option<Weak<PageTopic>> {
        let followed = self.all.remove(name)?;
        self.held.remove(followed.network, followed.number);
        Some(followed.page)
    }

    fn add(&mut self, name: PageName, page: &Arc<PageTopic>, network: Network) {
        // An entry of the same name without subscribers.
        self.remove(&name);
        self.last += 1;
        let followed = FollowedPage {
            page: Arc::downgrade(page),
            network,
            number: self.last,
        };
        self.held.add(network, self.last);
        self.all.insert(name, followed);
        *self.new_of.entry(network).or_default() += 1;
        self.new += 1;
    }
}

/// Identity of a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PageName {
    scheme: Scheme,
    host: Bytes,
    target: Bytes,
}

/// Returns a finder of watched pages, which follows the active configuration.
pub(crate) fn page_finder(active: &Arc<Active<Shared>>) -> FindPage {
    let pages = WatchedPages::new(active);
    Arc::new(move |request: &OriginRequest, target: &str| pages.find(request, target))
}

impl WatchedPages {
    fn new(active: &Arc<Active<Shared>>) -> Self {
        Self {
            active: Arc::downgrade(active),
            pages: Mutex::new(PageIndex {
                all: HashMap::new(),
                held: Holdings::default(),
                last: 0,
                counted_from: Instant::now(),
                new: 0,
                new_of: HashMap::new(),
            }),
        }
    }

    /// Finds or creates the page with this path and query, for a client's request.
    fn find(&self, request: &OriginRequest, target: &str) -> Result<Arc<PageTopic>, PageError> {
        let fields = request.fields.fields();
        let name = PageName {
            scheme: visitor_scheme(fields).unwrap_or(request.scheme),
            host: request.authority.clone(),
            target: Bytes::copy_from_slice(target.as_bytes()),
        };
        let shared = self.active.upgrade().and_then(|active| active.get());
        let shared = shared.ok_or(PageError::TooMany)?;
        let mut routes = shared.config.routes.iter();
        if routes.all(|route| route.watch == Watching::Off) {
            return Err(PageError::NoneAllowed);
        }
        // The application sees the address of the first subscriber.
        let address = client_address(fields).unwrap_or(Ipv4Addr::LOCALHOST.into());
        let follower = Follower::new(&shared, &name, address);
        if follower.allowed() == Watching::Off || !follower.admits(fields) {
            return Err(PageError::NotAllowed);
        }
        let mut pages = self.pages.lock();
        let known = pages.all.get(&name);
        if let Some(page) = known.and_then(|followed| followed.page.upgrade()) {
            return Ok(page);
        }
        let network = request.clients.network();
        let network = network.unwrap_or_else(|| Network::of(address));
        let most = shared.config.push.max_pages;
        let gives_way = pages.make_room(most, network);
        let gives_way = gives_way.map_err(|NoRoom| PageError::TooMany)?;
        let page = Arc::new(PageTopic::new(target));
        pages.add(name.clone(), &page, network);
        drop(pages);
        if let Some(other) = gives_way {
            other.evict();
        }
        tokio::spawn(follow(
            Weak::clone(&self.active),
            name,
            address,
            Arc::downgrade(&page),
        ));
        Ok(page)
    }
}

/// Follows a page while it has subscribers.
async fn follow(
    active: Weak<Active<Shared>>,
    name: PageName,
    address: IpAddr,
    page: Weak<PageTopic>,
) {
    let Some(left) = page.upgrade().map(|page| page.on_last_left()) else {
        return;
    };
    let Some(mut reloads) = active.upgrade().map(|active| active.reloads()) else {
        return;
    };
    let mut seen = FollowerState::default();
    let mut watchers = None;
    loop {
        // Before the configuration is read, so that no later reload is missed.
        reloads.mark_unchanged();
        let shared = active.upgrade().and_then(|active| active.get());
        let watched = page.upgrade().filter(|page| !page.is_evicted());
        let (Some(shared), Some(watched)) = (shared, watched) else {
            return;
        };
        let follower = Follower::new(&shared, &name, address);
        // Subscribed before the lookup, so that no later change is missed.
        watchers = follower.watchers(watchers);
        let Some(watching) = &mut watchers else {
            // The limit of watchers is reached, perhaps only for a while.
            sleep(UNWATCHABLE_PACE).await;
            continue;
        };
        let next = follower.look(&mut seen, &watched).await;
        drop((follower, shared, watched));
        tokio::select! {
            () = watching.changed(&mut seen) => {}
            () = next_look(next) => {}
            // The route may forbid watching now, or allow refreshes.
            _ = reloads.changed() => {}
            () = left.notified() => return,
        }
        sleep(PACE).await;
    }
}

async fn next_look(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// State of a follower: what was last seen of the page.
#[derive(Default)]
struct FollowerState {
    /// Latest version of the page, and the time when it was requested.
    shown: Option<(Time, u64)>,
    /// The page was present at some time.
    was_shown: bool,
    /// The page was purged since.
    purge: bool,
    /// Earliest time of the next origin request.
    not_before: Option<Instant>,
}

/// Subscriptions to changes of the page in the cache.
struct PageWatchers {
    watched: WatchTarget,
    url: Watcher,
    purges: Watcher,
}

impl PageWatchers {
    async fn changed(&mut self, seen: &mut FollowerState) {
        tokio::select! {
            notice = self.url.next() => {
                let purged = |notice| matches!(notice, Notice::Changed(change) if change.kind == ChangeKind::Purged);
                seen.purge |= purged(notice);
            }
            _ = self.purges.next() => seen.purge = true,
        }
    }
}

/// Looks up a page as a client without cookies and credentials.
struct Follower {
    session: Session,
    plain: PlainGet,
}

impl Follower {
    fn new(shared: &Arc<Shared>, name: &PageName, address: IpAddr) -> Self {
        Self {
            session: Session::new(Arc::clone(shared), Caller::at(address), name.scheme),
            plain: PlainGet::of(name.host.clone(), name.target.clone()),
        }
    }

    /// Permissions of the route for watched pages.
    fn allowed(&self) -> Watching {
        let engine = &self.session.shared.engine;
        let found = engine.find(&self.plain.on(&self.session));
        if found.bypass == Some(Bypass::Path) {
            return Watching::Off;
        }
        self.session.shared.config.routes[found.route].watch
    }

    /// Returns whether the route of the page admits the client of a subscription.
    fn admits(&self, subscription: Fields<'_>) -> bool {
        let shared = &self.session.shared;
        let found = shared.engine.find(&self.plain.on(&self.session));
        let trusted = &shared.trusted_proxies;
        // The forwarding fields end with the peer.
        let client = client_address(subscription).map(|peer| {
            let is_trusted = trusted.iter().any(|block| block.contains(peer));
            client_behind(peer, is_trusted, subscription, trusted)
        });
        let route = &shared.config.routes[found.route];
        let mut routes = shared.config.routes.iter();
        // The subscription was authenticated as its own route demands.
        let subscribed = routes.find(|route| route.goes_to == GoesTo::Watch);
        route.addresses.admits(client)
            && subscribed.is_some_and(|it| it.has_authentication_of(route))
    }

    /// Returns the subscriptions to changes, renewed if the configuration stores the page under another key.
    fn watchers(&self, before: Option<PageWatchers>) -> Option<PageWatchers> {
        let engine = &self.session.shared.engine;
        let watched = engine.watched(&self.plain.on(&self.session));
        if before.as_ref().is_some_and(|it| it.watched == watched) {
            return before;
        }
        let url = engine.cache.watch(watched.clone()).ok()?;
        let purges = engine.cache.watch(WatchTarget::Purges).ok()?;
        Some(PageWatchers {
            watched,
            url,
            purges,
        })
    }

    fn peek(&self) -> Option<Peek> {
        let engine = &self.session.shared.engine;
        let request = self.plain.on(&self.session);
        engine.peek(&request, engine.clock.now())
    }

    /// Looks up the page, publishes changes, and renews it if it is out of date. Returns the time of the next
    /// lookup.
    async fn look(&self, seen: &mut FollowerState, page: &PageTopic) -> Option<Instant> {
        let allowed = self.allowed();
        if allowed == Watching::Off {
            // It was allowed when the first subscriber came.
            page.publish(PageStatus::Unwatchable);
            return Some(Instant::now() + UNWATCHABLE_PACE);
        }
        let peek = self.peek();
        seen.take(peek.as_ref(), page);
        if allowed == Watching::Stored {
            return None;
        }
        let now = Instant::now();
        let fresh_for = peek.map_or(0, |peek| peek.fresh_for);
        if fresh_for > 0 {
            return Some(now + Duration::from_millis(fresh_for));
        }
        if let Some(at) = seen.not_before.filter(|at| *at > now) {
            return Some(at);
        }
        let pause = match self.session.freshen(&self.plain).await {
            RefreshOutcome::Requested => REFRESH_PACE,
            RefreshOutcome::NotStored => {
                // A page that was storable before may be so again: the application may have a temporary
                // failure.
                if !seen.was_shown {
                    page.publish(PageStatus::Unwatchable);
                }
                UNWATCHABLE_PACE
            }
        };
        let peek = self.peek();
        seen.take(peek.as_ref(), page);
        // Invented URLs must not cause an origin request per second.
        let is_error = peek.as_ref().is_some_and(|peek| peek.status() >= 400);
        let pause = if is_error { ERROR_PACE } else { pause };
        seen.not_before = Some(now + pause);
        let fresh_for = peek.map_or(0, |peek| peek.fresh_for);
        Some(now + Duration::from_millis(fresh_for).max(pause))
    }
}

/// Returns a loader of the page's content, which is read only if a subscriber asks for it.
fn content_of(peek: &Peek) -> Option<FindContent> {
    peek.may_have_content(MAX_INLINE).then(|| {
        let peek = peek.clone();
        let find = move || {
            let media_type = String::from_utf8(peek.media_type().to_vec()).ok()?;
            Some((media_type, peek.content(MAX_INLINE)?))
        };
        Arc::new(find) as FindContent
    })
}

impl FollowerState {
    /// Publishes changes.
    fn take(&mut self, peek: Option<&Peek>, page: &PageTopic) {
        let Some(peek) = peek else {
            if std::mem::take(&mut self.purge) && self.shown.take().is_some() {
                page.publish(PageStatus::Purged);
                // After a purge, a new version is expected at once.
                self.not_before = None;
            }
            return;
        };
        self.purge = false;
        let version = match self.shown {
            Some((began, version)) if began == peek.began() => version,
            _ => peek.version(),
        };
        self.was_shown = true;
        self.shown = Some((peek.began(), version));
        let tag = peek.tag();
        let status = PageStatus::Version {
            number: version,
            tag: tag.and_then(|tag| String::from_utf8(tag.to_vec()).ok()),
        };
        page.publish_with_content(status, content_of(peek));
    }
}
