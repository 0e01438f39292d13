//! Requests that nobody has sent: what would become of them, for operators.
//!
//! They are read by the parser of real ones, so that what is refused there is refused here, and they take
//! the way of those: only that nothing is counted, told or logged.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use microcache_engine::{
    Body, Bypass, Decision, Explained, Failure, NoResponse, Origin, OriginError, Response,
};
use microcache_policy::key::{normal_host, split_query};
use microcache_policy::{CacheStatus, Detail, FieldBlock, Fields, Scheme, Time, upgrade};
use microcache_push::{LIVE_PATH, MERCURE_PATH};
use tokio::time::{Instant, timeout_at};

use super::{Caller, Head, OwnedHead, Session, last_hop, pages};
use crate::active::ActiveConfig;
use crate::config::{Cidr, Config, GoesTo, RateOf};
use crate::h1::{BadRequest, Framing, Target, parse_request, split_target};
use crate::routing::AmbiguousPath;
use crate::shared::Shared;

/// How long the origin is waited for, with all of its answer. The command line waits for half a minute.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request that nobody has sent.
#[derive(Clone, Debug)]
pub struct Imagined {
    /// Its head, as it would come by HTTP/1.1.
    pub head: Vec<u8>,
    /// Who would send it; where nobody is named, a client of this machine, or the proxy that ends TLS.
    pub address: Option<IpAddr>,
    /// The visitor came by TLS, which ends before it gets here.
    pub is_secure: bool,
}

/// What would become of a request.
#[derive(Debug)]
pub struct Outlook {
    /// The request, as it was read.
    pub request: Read,
    /// What the engine makes of it.
    pub explained: Explained,
    /// Why it is answered here nevertheless, if it is.
    pub own: Option<Detail>,
    /// What of this server answers it in the application's place, if anything does.
    pub hosted: Option<Hosted>,
    /// What its route lets through, if not all.
    pub rated: Option<Rated>,
    /// What the origin has said, if it was asked.
    pub fetched: Option<Fetched>,
}

/// What answers in the place of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosted {
    /// The documents that are put in.
    Documents {
        /// There is one at its path.
        is_there: bool,
        /// Whoever asks may read it: it is not private, or he shows that he may.
        is_let: bool,
        /// There is a secret, and so somebody who may change them.
        has_publishers: bool,
    },
    /// Those who watch several documents, or pages.
    Watch,
    /// The script that has pages update themselves.
    Script,
    /// The Mercure hub.
    Hub,
    /// Where it tells who subscribes.
    Subscriptions,
}

/// A request as it was read.
#[derive(Debug)]
pub struct Read {
    /// The method.
    pub method: Method,
    /// The host, as it stands in keys.
    pub host: Vec<u8>,
    /// Path and query, as they came.
    pub target: Vec<u8>,
    /// Its field lines.
    pub fields: FieldBlock,
    /// The peer is a trusted proxy, and is believed what it says of the client's request.
    pub vouched: bool,
    /// Content would follow.
    pub has_body: bool,
    /// It asks for another protocol.
    pub upgrade: bool,
}

/// What the origin has said.
#[derive(Debug)]
pub struct Fetched {
    /// The answer, without its body; or the page in its place.
    pub answer: Response,
    /// There was none.
    pub failed: bool,
    /// When it was asked.
    pub asked: Time,
    /// When it answered.
    pub answered: Time,
    /// All of the body has come, if it is stored.
    pub is_whole: bool,
}

/// What a route lets through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rated {
    /// So many in such a while.
    pub quota: String,
    /// Whom they are counted for, as the option has it.
    pub by: String,
    /// Those alone for which the origin is asked.
    pub only_misses: bool,
    /// So many more would be let through now.
    pub left: u64,
}

/// Why a request would not be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status of the answer.
    pub status: u16,
    /// What is wrong.
    pub reason: &'static str,
}

/// Says what would become of a request. With `ask`, the origin is asked, and what it says is stored if it
/// would be.
pub(crate) async fn explain(
    ActiveConfig { shared, config, .. }: ActiveConfig,
    imagined: &Imagined,
    ask: bool,
) -> Result<Outlook, Refused> {
    let (session, read) = imagined.read(&shared)?;
    let engine = &shared.engine;
    let mut explained = engine.explain(&session.request(read.head())).await;
    let rated = session.rated(&read, &explained);
    let own = session.answers_itself(&read, &explained, rated.as_ref());
    let hosted = session.hosted(&read, &config, explained.route());
    let mut fetched = None;
    // Where there is no application, there is nobody to ask.
    if ask && own.is_none() && hosted.is_none() {
        fetched = Some(session.fetch(&read, &explained).await);
        explained.variants = engine.explain(&session.request(read.head())).await.variants;
    }
    Ok(Outlook {
        request: read,
        explained,
        own,
        hosted,
        rated,
        fetched,
    })
}

/// The numbers of the variants that stand for a request.
pub(crate) async fn variants(
    shared: Arc<Shared>,
    imagined: &Imagined,
) -> Result<Vec<u64>, Refused> {
    let (session, read) = imagined.read(&shared)?;
    let engine = &shared.engine;
    Ok(engine.variants_for(&session.request(read.head())).await)
}

impl Imagined {
    /// Reads it as it would be read off a connection.
    fn read(&self, shared: &Arc<Shared>) -> Result<(Session, Read), Refused> {
        // Where TLS is spoken here, nobody has to have ended it before.
        let (scheme, terminators) = match &shared.tls {
            Some(_) if self.is_secure => (Scheme::Https, &[][..]),
            _ => (Scheme::Http, &shared.trusted_proxies[..]),
        };
        let caller = Caller::at(self.sender(terminators));
        let session = Session::new(Arc::clone(shared), caller, scheme);
        let read = session.read(self).map_err(|bad| Refused {
            status: bad.status(),
            reason: bad.reason(),
        })?;
        Ok((session, read))
    }

    fn sender(&self, trusted: &[Cidr]) -> IpAddr {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let terminator = || {
            let is_here = trusted.iter().any(|block| block.contains(here));
            trusted.first().filter(|_| self.is_secure && !is_here)
        };
        self.address
            .unwrap_or_else(|| terminator().map_or(here, Cidr::first))
    }
}

impl Session {
    /// Reads a request as it would be read off a connection.
    fn read(&self, imagined: &Imagined) -> Result<Read, BadRequest> {
        let parsed = parse_request(&imagined.head, &self.shared.head_limits)?;
        // Of what does not end the rest would be waited for.
        let (head, _) = parsed.ok_or(BadRequest::TIMEOUT)?;
        let host = head.host.unwrap_or_default();
        let (host, target) = match split_target(head.method, head.target)? {
            Target::Origin(target) => (host, target.to_vec()),
            Target::Asterisk => (host, b"*".to_vec()),
            Target::Absolute {
                authority, path, ..
            } => (authority, path.into_owned()),
            Target::Authority(_) => return Err(BadRequest::METHOD),
        };
        let method = Method::from_bytes(head.method).map_err(|_| BadRequest::METHOD)?;
        Ok(Read {
            method,
            host: normal_host(self.peer.scheme, host),
            target,
            fields: FieldBlock::copied_with(head.fields, &[]).0,
            vouched: self.peer.trusted,
            has_body: !matches!(head.framing, Framing::None | Framing::Length(0)),
            upgrade: head.upgrade && upgrade::is_asked_for(head.fields),
        })
    }

    /// Why a request is answered here, whatever the engine makes of it: the same as
    /// [`Self::beyond_hits`] and what follows it.
    fn answers_itself(
        &self,
        read: &Read,
        explained: &Explained,
        rated: Option<&Rated>,
    ) -> Option<Detail> {
        let request = self.request(read.head());
        let decision = explained.decision;
        let asks = matches!(decision, Decision::Pass(..) | Decision::Ask { .. });
        let is_purge = self.shared.takes_for_purge(&request);
        let used_up = rated.filter(|rated| rated.left == 0 && !is_purge);
        let ambiguous = self.ambiguous(read, explained).filter(|_| !is_purge);
        if ambiguous.is_some_and(|it| it.is_refused) {
            Some(Detail::AmbiguousPath)
        } else if used_up.is_some_and(|rated| !rated.only_misses) {
            Some(Detail::RateLimited)
        } else if decision.is_hit() {
            None
        } else if self.shared.pseudonym.is_in(request.fields) {
            Some(Detail::Loop)
        } else if asks && is_purge {
            Some(Detail::Purge)
        } else if asks {
            let answer = last_hop::answer(&request, explained.now);
            let own = answer.and_then(|answer| answer.cache_status.detail);
            own.or(used_up.map(|_| Detail::RateLimited))
        } else {
            None
        }
    }

    /// What of this server has the answers of a route, if no application has.
    fn hosted(&self, read: &Read, config: &Config, route: usize) -> Option<Hosted> {
        let (path, _) = split_query(&read.target);
        let push = self.shared.push.as_ref();
        match config.routes.get(route)?.goes_to {
            GoesTo::Upstream(_) | GoesTo::Files(_) => None,
            GoesTo::Watch if path == LIVE_PATH.as_bytes() => Some(Hosted::Script),
            GoesTo::Watch => Some(Hosted::Watch),
            GoesTo::Mercure if path == MERCURE_PATH.as_bytes() => Some(Hosted::Hub),
            GoesTo::Mercure => Some(Hosted::Subscriptions),
            GoesTo::Push => Some(Hosted::Documents {
                is_there: push.is_some_and(|push| push.at_hand(&read.target).is_some()),
                is_let: push.is_some_and(|push| push.is_readable_by(path, read.fields.fields())),
                has_publishers: config.push.keys.publisher_secret.is_some(),
            }),
        }
    }

    /// What the route of a request lets through. It is looked at, and none of it is used up.
    fn rated(&self, read: &Read, explained: &Explained) -> Option<Rated> {
        let rates = self.shared.rates.as_deref()?;
        let request = self.request(read.head());
        let client = self
            .peer
            .client(request.fields, &self.shared.trusted_proxies);
        let routes = match self.ambiguous(read, explained) {
            Some(ambiguous) => ambiguous.routes,
            None => vec![explained.route()],
        };
        let limits = routes.into_iter().filter_map(|it| rates.any_limit(it));
        let all = limits.map(|limit| Rated {
            quota: limit.quota.to_string(),
            by: limit.by.to_string(),
            only_misses: limit.of() == RateOf::Misses,
            left: rates.left(limit, &request, client, explained.now),
        });
        all.min_by_key(|rated| rated.left)
    }

    /// The routes of a request whose path can be read in several ways that matter.
    fn ambiguous(&self, read: &Read, explained: &Explained) -> Option<AmbiguousPath> {
        if explained.bypass != Some(Bypass::Path) {
            return None;
        }
        let routing = &self.shared.routing;
        routing.ambiguous(&read.method, &read.host, &read.target)
    }

    /// Has the origin asked, and takes its answer to the end if it is stored.
    async fn fetch(&self, read: &Read, explained: &Explained) -> Fetched {
        let engine = &self.shared.engine;
        let rules = &engine.rules(explained.route()).request;
        let head = OwnedHead {
            method: read.method.clone(),
            host: read.host.clone().into(),
            target: read.target.clone().into(),
            fields: read.fields.clone(),
            has_body: false,
            upgrade: false,
        };
        let incoming = self.incoming(head, rules, Body::Empty);
        let asked = engine.clock.now();
        let deadline = Instant::now() + PATIENCE;
        let answer = Arc::clone(engine).ask_for_operator(incoming, explained);
        let answer = timeout_at(deadline, answer).await;
        let answered = engine.clock.now();
        let failed = !matches!(answer, Ok(Ok(_)));
        let mut answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(none)) => pages::failed(&none, answered),
            Err(_) => pages::failed(&too_late(explained), answered),
        };
        let body = std::mem::replace(&mut answer.body, Body::Empty);
        // What nobody stores is not read.
        let is_whole = !answer.cache_status.stored
            || !matches!(body, Body::Empty) && timeout_at(deadline, drain(body)).await == Ok(true);
        Fetched {
            answer,
            failed,
            asked,
            answered,
            is_whole,
        }
    }
}

impl Read {
    fn head(&self) -> Head<'_> {
        Head {
            method: &self.method,
            host: &self.host,
            target: &self.target,
            fields: self.fields(),
            has_body: self.has_body,
            upgrade: self.upgrade,
        }
    }

    /// Its field lines.
    pub fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }
}

fn too_late(explained: &Explained) -> NoResponse {
    NoResponse {
        cache_status: CacheStatus {
            detail: Some(Detail::OriginTimeout),
            ..explained.decision.cache_status()
        },
        cause: Failure::Origin(OriginError::Timeout),
    }
}

/// Takes a body to its end. Says whether it came to one.
pub(super) async fn drain(mut body: Body) -> bool {
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}
