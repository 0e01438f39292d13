//! Pages of the application that somebody watches: each is followed once, however many watch it.
//!
//! Who follows one looks at what anybody would be given of it, whenever something was stored for its url or
//! something was purged. Where its route says so, it is kept fresh as well, as if somebody asked for it all the
//! time: or nothing would ever change.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::cache::{ChangeKind, Notice, WatchTarget, Watcher};
use microcache_engine::{Bypass, Holdings, OriginRequest, Peek};
use microcache_policy::{Network, Scheme, Time};
use microcache_push::{FindContent, MAX_INLINE, PageError, PageStatus, PageTopic};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::Watching;
use crate::in_force::{InForce, Life};
use crate::session::{Caller, Freshened, PlainGet, Session, client_address, visitor_scheme};

/// Between two looks: what changes all the time is told so often.
const PACE: Duration = Duration::from_millis(50);
/// Between two requests for the same page.
const REFRESH_PACE: Duration = Duration::from_secs(1);
/// The same where the page is an error.
const ERROR_PACE: Duration = Duration::from_secs(30);
/// Until the next attempt where the answer may not be kept.
const UNWATCHABLE_PACE: Duration = Duration::from_mins(1);

/// All of them.
pub(crate) struct WatchedPages {
    life: Weak<Life>,
    pages: Mutex<Pages>,
}

struct Pages {
    all: HashMap<Name, Followed>,
    /// Their numbers, by the address that began to watch them.
    held: Holdings,
    last: u64,
    /// When it was begun to count those that are new, and how many were since, in all and by address.
    counted_from: Instant,
    new: usize,
    new_of: HashMap<Network, usize>,
}

/// A page, and the address of the first who watched it.
struct Followed {
    page: Weak<PageTopic>,
    network: Network,
    number: u64,
}

/// The limit of watched pages is reached for this address.
struct NoRoom;

impl Pages {
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

    /// Forgets those that nobody watches any more.
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

    fn remove(&mut self, name: &Name) -> Option<Weak<PageTopic>> {
        let followed = self.all.remove(name)?;
        self.held.remove(followed.network, followed.number);
        Some(followed.page)
    }

    fn add(&mut self, name: Name, page: &Arc<PageTopic>, network: Network) {
        // One of the same name that nobody watches any more.
        self.remove(&name);
        self.last += 1;
        let followed = Followed {
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

/// What tells pages apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    scheme: Scheme,
    host: Bytes,
    target: Bytes,
}

impl WatchedPages {
    pub(crate) fn new(life: &Arc<Life>) -> Self {
        Self {
            life: Arc::downgrade(life),
            pages: Mutex::new(Pages {
                all: HashMap::new(),
                held: Holdings::default(),
                last: 0,
                counted_from: Instant::now(),
                new: 0,
                new_of: HashMap::new(),
            }),
        }
    }

    /// The page of this path and query, for whoever sends a request.
    pub(crate) fn find(
        &self,
        request: &OriginRequest,
        target: &str,
    ) -> Result<Arc<PageTopic>, PageError> {
        let fields = request.fields.fields();
        let name = Name {
            scheme: visitor_scheme(fields).unwrap_or(request.scheme),
            host: request.authority.clone(),
            target: Bytes::copy_from_slice(target.as_bytes()),
        };
        let in_force = self.life.upgrade().and_then(|life| life.in_force());
        let in_force = in_force.ok_or(PageError::TooMany)?;
        let mut routes = in_force.config.routes.iter();
        if routes.all(|route| route.watch == Watching::Off) {
            return Err(PageError::NoneAllowed);
        }
        // As the first who watches it is at this address, the application is told that it is for him.
        let address = client_address(fields).unwrap_or(Ipv4Addr::LOCALHOST.into());
        if Follower::new(&in_force, &name, address).allowed() == Watching::Off {
            return Err(PageError::NotAllowed);
        }
        let mut pages = self.pages.lock();
        let known = pages.all.get(&name);
        if let Some(page) = known.and_then(|followed| followed.page.upgrade()) {
            return Ok(page);
        }
        let network = request.audience.networks().pop();
        let network = network.unwrap_or_else(|| Network::of(address));
        let most = in_force.config.push.max_pages;
        let gives_way = pages.make_room(most, network);
        let gives_way = gives_way.map_err(|NoRoom| PageError::TooMany)?;
        let page = Arc::new(PageTopic::new(target));
        pages.add(name.clone(), &page, network);
        drop(pages);
        if let Some(other) = gives_way {
            other.evict();
        }
        tokio::spawn(follow(
            Weak::clone(&self.life),
            name,
            address,
            Arc::downgrade(&page),
        ));
        Ok(page)
    }
}

/// Follows a page for as long as somebody watches it.
async fn follow(life: Weak<Life>, name: Name, address: IpAddr, page: Weak<PageTopic>) {
    let Some(left) = page.upgrade().map(|page| page.on_last_left()) else {
        return;
    };
    let mut seen = Seen::default();
    let mut watchers = None;
    loop {
        let in_force = life.upgrade().and_then(|life| life.in_force());
        let watched = page.upgrade().filter(|page| !page.is_evicted());
        let (Some(in_force), Some(watched)) = (in_force, watched) else {
            return;
        };
        let follower = Follower::new(&in_force, &name, address);
        // Before the look: what changes after it is not missed.
        watchers = follower.watchers(watchers);
        let Some(watching) = &mut watchers else {
            // There are too many; there may be fewer later.
            sleep(UNWATCHABLE_PACE).await;
            continue;
        };
        let next = follower.look(&mut seen, &watched).await;
        drop((follower, in_force, watched));
        tokio::select! {
            () = watching.changed(&mut seen) => {}
            () = next_look(next) => {}
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

/// What was seen of a page.
#[derive(Default)]
struct Seen {
    /// What was there, by when it was asked for, and its version.
    shown: Option<(Time, u64)>,
    /// Something was there at some time.
    was_shown: bool,
    /// There was a purge since.
    purge: bool,
    /// The application is not asked before.
    not_before: Option<Instant>,
}

/// Who tells of changes.
struct Watchers {
    watched: WatchTarget,
    url: Watcher,
    purges: Watcher,
}

impl Watchers {
    async fn changed(&mut self, seen: &mut Seen) {
        tokio::select! {
            notice = self.url.next() => {
                let purged = |notice| matches!(notice, Notice::Changed(change) if change.kind == ChangeKind::Purged);
                seen.purge |= purged(notice);
            }
            _ = self.purges.next() => seen.purge = true,
        }
    }
}

/// Looks at a page as somebody without cookies and credentials would.
struct Follower {
    session: Session,
    plain: PlainGet,
    in_force: InForce,
}

impl Follower {
    fn new(in_force: &InForce, name: &Name, address: IpAddr) -> Self {
        let shared = Arc::clone(&in_force.shared);
        Self {
            session: Session::new(shared, Caller::at(address), name.scheme),
            plain: PlainGet::of(name.host.clone(), name.target.clone()),
            in_force: in_force.clone(),
        }
    }

    /// What its route allows.
    fn allowed(&self) -> Watching {
        let engine = &self.in_force.shared.engine;
        let found = engine.find(&self.session.request(self.plain.head()));
        if found.bypass == Some(Bypass::Path) {
            return Watching::Off;
        }
        self.in_force.config.routes[found.route].watch
    }

    /// Those who tell of changes; others where another configuration has it stored under another key.
    fn watchers(&self, before: Option<Watchers>) -> Option<Watchers> {
        let engine = &self.in_force.shared.engine;
        let watched = engine.watched(&self.session.request(self.plain.head()));
        if before.as_ref().is_some_and(|it| it.watched == watched) {
            return before;
        }
        let url = engine.cache.watch(watched.clone()).ok()?;
        let purges = engine.cache.watch(WatchTarget::Purges).ok()?;
        Some(Watchers {
            watched,
            url,
            purges,
        })
    }

    fn peek(&self) -> Option<Peek> {
        let engine = &self.in_force.shared.engine;
        let request = self.session.request(self.plain.head());
        engine.peek(&request, engine.clock.now())
    }

    /// Looks, tells what is new, and has what is out of date renewed. Says when to look again by itself.
    async fn look(&self, seen: &mut Seen, page: &PageTopic) -> Option<Instant> {
        let allowed = self.allowed();
        if allowed == Watching::Off {
            // It was allowed when the first came.
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
            Freshened::Asked => REFRESH_PACE,
            Freshened::NotKept => {
                // What was kept before may be kept again: the application may be in trouble.
                if !seen.was_shown {
                    page.publish(PageStatus::Unwatchable);
                }
                UNWATCHABLE_PACE
            }
        };
        let peek = self.peek();
        seen.take(peek.as_ref(), page);
        // Whoever makes up urls must not have the application say each second that there is nothing.
        let is_error = peek.as_ref().is_some_and(|peek| peek.status() >= 400);
        let pause = if is_error { ERROR_PACE } else { pause };
        seen.not_before = Some(now + pause);
        let fresh_for = peek.map_or(0, |peek| peek.fresh_for);
        Some(now + Duration::from_millis(fresh_for).max(pause))
    }
}

/// How the content of a page is had, which is read only if somebody wants to be told it.
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

impl Seen {
    /// Tells what is new.
    fn take(&mut self, peek: Option<&Peek>, page: &PageTopic) {
        let Some(peek) = peek else {
            if std::mem::take(&mut self.purge) && self.shown.take().is_some() {
                page.publish(PageStatus::Purged);
                // Who purges wants another one to be seen.
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
