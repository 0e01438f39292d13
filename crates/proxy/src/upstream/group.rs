//! An upstream group: sends a request to one of its servers and returns the response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_engine::body::Body;
use microcache_engine::origin::{
    BoxFuture, Origin, OriginError, OriginRequest, OriginResponse, Urgency,
};
use microcache_policy::ContentKind;
use microcache_store::poll_clock;
use microcache_wire::h1::Framing;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::attempt::{Carrier, OriginAttempt};
use super::balance::{Balance, ServerAssignment, ServerHealth};
use super::exchange::{ExchangeContext, OriginHead, exchange};
use super::fastcgi::{self, FastCgiExchange};
use super::health;
use super::http2::{self, Http2Connections};
use super::owner::{ClientAuth, Owner, ReservedConnection};
use super::queue::{Permit, QueueBounds, QueueError, RequestQueue};
use super::read_ahead::{ReadAhead, ReadAheadBudget, ReadAheadLimits, ReadAheadMemory, read_ahead};
use super::reservations::Reservations;
use super::response::{Http1Exchange, InFlightResponse, no_answer};
use super::server::{OriginServer, ServerFailure};
use super::settings::{GroupSettings, ServerSettings};
use super::upload::Upload;
use crate::metrics::{GroupMetrics, Metrics, OriginRequestMetrics};
use crate::observe::{Kind, Notices, ServerVisit, TARGET};

/// A named group of servers that can answer the same requests. Shared by all threads.
#[derive(Debug)]
pub struct Group {
    settings: GroupSettings,
    servers: Vec<Arc<OriginServer>>,
    balance: Arc<Balance>,
    queue: Arc<RequestQueue>,
    /// Memory for bodies that are read ahead.
    read_ahead_budget: Arc<ReadAheadBudget>,
    /// Permits for connections that are reserved for one client each.
    reservations: Arc<Reservations>,
    notices: Notices,
    metrics: GroupMetrics,
    /// Name resolution, health checks and pool sweeps; aborted when the group is retired or dropped.
    upkeep: Mutex<JoinSet<()>>,
}

/// The state of a group, for a dashboard.
#[derive(Clone, Debug)]
pub struct GroupSnapshot {
    /// Its name.
    pub name: String,
    /// Requests in flight, without tunnels and event streams.
    pub active: usize,
    /// Queued requests.
    pub queued: usize,
    /// Background refreshes among them that no client waits for.
    pub queued_refreshes: usize,
    /// Limit of background refreshes in flight, which follows the speed of the application.
    pub refresh_limit: usize,
    /// Limit of requests in flight.
    pub max_active: usize,
    /// Limit of queued requests.
    pub max_queued: usize,
    /// Its servers, in the order of the settings.
    pub servers: Vec<ServerSnapshot>,
}

/// The state of a server.
#[derive(Clone, Debug)]
pub struct ServerSnapshot {
    /// Its settings.
    pub settings: ServerSettings,
    /// Its health and counters.
    pub health: ServerHealth,
    /// Idle connections.
    pub idle: usize,
}

impl Group {
    /// Starts a group. Its background tasks run on the current runtime, which should outlive it; failures of
    /// its servers are logged and its requests are counted.
    pub(crate) fn start(
        settings: GroupSettings,
        notices: Notices,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let queue = RequestQueue::new(queue_bounds(&settings));
        let balance = Balance::new(&settings, notices.clone());
        let metrics = GroupMetrics::new(metrics, &settings.name);
        Self::with(settings, queue, balance, notices, metrics)
    }

    /// Starts a replacement with other settings. Both share the queue, so requests in flight count for both;
    /// the state of servers that are in both is carried over.
    pub fn succeeded_by(&self, settings: GroupSettings) -> Arc<Self> {
        let queue = Arc::clone(&self.queue);
        queue.set_bounds(queue_bounds(&settings));
        let notices = self.notices.clone();
        let balance = Balance::succeeding(Some(&self.balance), &settings, notices.clone());
        Self::with(settings, queue, balance, notices, self.metrics.clone())
    }

    fn with(
        settings: GroupSettings,
        queue: Arc<RequestQueue>,
        balance: Arc<Balance>,
        notices: Notices,
        metrics: GroupMetrics,
    ) -> Arc<Self> {
        let server = |server: &_| Arc::new(OriginServer::new(&settings, server, &notices));
        let servers: Vec<_> = settings.servers.iter().map(server).collect();
        Arc::new(Self {
            queue,
            read_ahead_budget: ReadAheadBudget::new(settings.upload_memory),
            reservations: Reservations::new(settings.max_signed_in),
            upkeep: Mutex::new(upkeep(&settings, &servers, &balance, &notices)),
            metrics,
            notices,
            balance,
            servers,
            settings,
        })
    }

    /// Ends the background tasks and closes idle connections; requests in flight continue.
    pub fn retire(&self) {
        self.upkeep.lock().abort_all();
        for server in &self.servers {
            server.idle.close();
            server.http2.iter().for_each(Http2Connections::close);
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// The settings it was started with.
    pub const fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// Current state of the group.
    pub fn snapshot(&self) -> GroupSnapshot {
        let (active, queued) = self.queue.depth();
        let (refresh_limit, queued_refreshes) = self.queue.refreshes();
        let health = self.balance.health(Instant::now());
        let servers = self.servers.iter().zip(health);
        GroupSnapshot {
            name: self.settings.name.clone(),
            active,
            queued,
            queued_refreshes,
            refresh_limit,
            max_active: self.settings.max_concurrent,
            max_queued: self.settings.max_queue,
            servers: servers
                .map(|(server, health)| ServerSnapshot {
                    settings: server.settings.clone(),
                    health,
                    idle: server.unused(),
                })
                .collect(),
        }
    }

    /// Sends a request and counts it.
    async fn fetch_counted(
        &self,
        request: &mut OriginRequest,
    ) -> Result<OriginResponse, OriginError> {
        let mut counted = Some(self.metrics.begin(request));
        if let Some((route, names)) = self.metrics.withheld(request) {
            self.log_withheld(&route, &names);
        }
        let answer = self.fetch_balanced(request, &mut counted).await;
        if let (Err(error), Some(counted)) = (&answer, &counted) {
            counted.failed(error);
        }
        answer
    }

    fn log_withheld(&self, route: &str, names: &[String]) {
        for name in names {
            let line = format!(
                "route {route}: a shared fetch omits the client's field `{name}`; if it selects the page, add it \
                 to `key.headers` of the route, or to `Vary` of the application"
            );
            self.notices
                .say(Kind::Withheld, &format!("{route} {name}"), line);
        }
    }

    /// Sends a request to a server of the group, or to the next one if a server cannot be reached. A response
    /// takes over `counted`.
    async fn fetch_balanced(
        &self,
        request: &mut OriginRequest,
        counted: &mut Option<OriginRequestMetrics>,
    ) -> Result<OriginResponse, OriginError> {
        if let Some(host) = &self.settings.host {
            request.authority = Bytes::copy_from_slice(host.as_bytes());
        }
        let mut now = poll_clock::now().into_std();
        let (permit, mut upload);
        if let Some(free) = self.permit_at_once(request) {
            permit = free;
            upload = Upload::whole(request, None, now);
        } else {
            // Boxed: a wait must not enlarge the future of every request.
            (permit, upload) = Box::pin(self.admit(request, now)).await?;
            now = Instant::now();
        }
        let context = ExchangeContext::of(request);
        if let Some(own) = self.reserved_connection(request) {
            let fetch = self.fetch_reserved(own, request, permit, upload, context, counted);
            return Box::pin(fetch).await;
        }
        let auth = ClientAuth::of(request, upload.fields());
        let repeatable = request.method.is_idempotent() || request.method.as_str() == "QUERY";
        let mut tried = Vec::new();
        let mut unreached = OriginError::Down;
        while let Some(mut assignment) = self.balance.choose(&tried, now) {
            if let Some(counted) = counted {
                counted.sent(now);
            }
            let server = &self.servers[assignment.index];
            if let Some(visit) = request.extensions.get::<ServerVisit>() {
                visit.sent(&server.settings.address);
            }
            let attempt = OriginAttempt {
                settings: &self.settings,
                server,
                context: &context,
                repeatable,
                alone: auth.signs_in,
                began: now,
                counted: counted.as_ref(),
            };
            match attempt.send(&mut upload).await {
                Ok((carrier, answer)) => {
                    let now = poll_clock::now().into_std();
                    if let Some(visit) = request.extensions.get::<ServerVisit>() {
                        visit.answered(now.saturating_duration_since(attempt.began));
                    }
                    let in_flight = Self::in_flight(assignment, counted, permit, &answer, now);
                    let challenged = answer.challenged;
                    let owner = || auth.owner(challenged, &self.settings.name, &self.reservations);
                    return self.deliver(carrier, upload, in_flight, server, owner, answer);
                }
                Err(ServerFailure {
                    error: error @ OriginError::Connect(_),
                    is_shared,
                }) => {
                    now = Instant::now();
                    if !is_shared {
                        assignment.failed(&error, now);
                    }
                    tried.push(assignment.index);
                    unreached = error;
                    if assignment.last_resort {
                        break;
                    }
                }
                Err(ServerFailure { error, .. }) => {
                    assignment.failed(&error, Instant::now());
                    if error == OriginError::Busy {
                        self.log_ended_upload();
                    }
                    return Err(error);
                }
            }
        }
        Err(unreached)
    }

    /// Sends a request and logs it with its outcome.
    async fn fetch_logged(
        &self,
        request: &mut OriginRequest,
    ) -> Result<OriginResponse, OriginError> {
        let what = format!(
            "{} {}://{}{}",
            request.method,
            request.scheme.as_str(),
            String::from_utf8_lossy(&request.authority),
            String::from_utf8_lossy(&request.target)
        );
        let began = Instant::now();
        let answer = self.fetch_counted(request).await;
        let (name, millis) = (&*self.settings.name, began.elapsed().as_millis());
        let outcome = match &answer {
            Ok(response) => format!("was answered {}", response.status),
            Err(error) => format!("failed: {error}"),
        };
        tracing::debug!(target: TARGET, kind = "origin-request", about = name, "{name}: {what} {outcome} after {millis} ms");
        answer
    }

    /// Returns the client's authenticated connection and the index of its server. A connection to a server
    /// that the group no longer has is closed.
    fn reserved_connection(&self, request: &OriginRequest) -> Option<(usize, ReservedConnection)> {
        let own = ReservedConnection::of(request, &self.settings.name)?;
        let mut servers = self.servers.iter();
        let index = servers.position(|server| Arc::ptr_eq(server, &own.server))?;
        Some((index, own))
    }

    /// Sends a request on the client's authenticated connection, and on no other.
    async fn fetch_reserved(
        &self,
        (index, own): (usize, ReservedConnection),
        request: &mut OriginRequest,
        permit: Permit,
        mut upload: Box<Upload>,
        context: ExchangeContext,
        counted: &mut Option<OriginRequestMetrics>,
    ) -> Result<OriginResponse, OriginError> {
        let ReservedConnection {
            server,
            mut connection,
            reservation,
        } = own;
        let Some(client) = request.client.take() else {
            return Err(OriginError::Disconnected);
        };
        let mut assignment = self.balance.assign(index);
        let silence = self.settings.first_byte_timeout;
        let now = Instant::now();
        if let Some(counted) = counted {
            counted.sent(now);
            counted.count();
        }
        match exchange(&mut connection, &mut upload, &context, silence, now).await {
            Ok(answer) => {
                let now = Instant::now();
                let in_flight = Self::in_flight(assignment, counted, permit, &answer, now);
                let name = self.settings.name.as_str();
                let owner = || Owner::Client(client, name.into(), reservation);
                let carrier = Carrier::Http1(connection);
                self.deliver(carrier, upload, in_flight, &server, owner, answer)
            }
            // Closing an idle connection is not a failure of the server.
            Err(broken) => {
                if broken.error != OriginError::Disconnected {
                    assignment.failed(&broken.error, Instant::now());
                }
                Err(broken.error)
            }
        }
    }

    /// Takes a permit for a request whose body is complete, if a place is free.
    fn permit_at_once(&self, request: &OriginRequest) -> Option<Permit> {
        if matches!(request.body, Body::Stream(_)) {
            return None;
        }
        self.queue.try_enter(&request.urgency)
    }

    /// Reads a body of unknown length as far as bodies are read ahead. The memory that it takes is held until it is
    /// sent.
    pub(super) async fn read_whole(
        &self,
        request: &mut OriginRequest,
    ) -> Result<Option<ReadAheadMemory>, OriginError> {
        let read = read_ahead(request, self.read_ahead_limits(), &self.read_ahead_budget);
        Ok(match read.await? {
            ReadAhead::Whole(held) => held,
            ReadAhead::InPart => None,
        })
    }

    const fn read_ahead_limits(&self) -> ReadAheadLimits {
        ReadAheadLimits {
            bytes: self.settings.upload_buffer,
            wait: self.settings.upload_wait,
        }
    }

    /// Reads the body ahead, then waits for a permit.
    async fn admit(
        &self,
        request: &mut OriginRequest,
        queued: Instant,
    ) -> Result<(Permit, Box<Upload>), OriginError> {
        let bounds = self.read_ahead_limits();
        match read_ahead(request, bounds, &self.read_ahead_budget).await? {
            ReadAhead::Whole(held) => {
                let permit = self
                    .queue
                    .enter(&request.urgency, &request.clients.audience())
                    .await;
                let permit = permit.map_err(|why| match request.urgency {
                    // Giving way is what it is for.
                    Urgency::Ahead => OriginError::Busy,
                    Urgency::Refresh { .. } => self.no_refresh(why),
                    Urgency::Client => self.no_permit(why),
                })?;
                Ok((permit, Upload::whole(request, held, queued)))
            }
            ReadAhead::InPart => {
                // A request with a body belongs to one client.
                let network = request.clients.network().ok_or(OriginError::Left)?;
                let place = self.queue.enter_upload(network).await;
                let (share, permit) = place.map_err(|why| self.no_permit(why))?;
                Ok((permit, Upload::in_part(request, share, queued)))
            }
        }
    }

    /// Logs that an upload was ended in favour of another address.
    fn log_ended_upload(&self) {
        let name = &self.settings.name;
        let line = format!(
            "upstream group {name}: an upload was ended to admit the first one of another address, because \
             `max_uploads` are in progress: its address had most of them, or it sent less than 16 KiB/s (the \
             access log has its address: 503, origin-busy)"
        );
        self.notices
            .say(Kind::Busy, &format!("{name} uploads"), line);
    }

    /// Logs that a request got no permit, and returns the error to answer it with.
    fn no_permit(&self, why: QueueError) -> OriginError {
        if why == QueueError::Left {
            return OriginError::Left;
        }
        let GroupSettings {
            name,
            max_concurrent,
            max_queue,
            queue_timeout,
            ..
        } = &self.settings;
        let line = format!(
            "upstream group {name} is at its limit: a request got no permit of `max_concurrent` ({max_concurrent}) \
             within `queue_timeout` ({queue_timeout:?}), or the queue was full (`max_queue` {max_queue})"
        );
        self.notices.say(Kind::Busy, name, line);
        OriginError::Busy
    }

    /// Logs that a refresh got no permit, and returns its error.
    fn no_refresh(&self, why: QueueError) -> OriginError {
        let (limit, _) = self.queue.refreshes();
        if why == QueueError::Left || limit == self.settings.max_concurrent {
            return self.no_permit(why);
        }
        let name = &self.settings.name;
        let line = format!(
            "upstream group {name} is slower than its pages expire: a refresh got no permit, {limit} at a time are \
             as many as it answers faster for; the stale response is served, and the next request for it tries again"
        );
        self.notices
            .say(Kind::Busy, &format!("{name} refreshes"), line);
        OriginError::Busy
    }

    /// Records the beginning of a response now, which takes over the permit.
    fn in_flight(
        mut assignment: ServerAssignment,
        counted: &mut Option<OriginRequestMetrics>,
        permit: Permit,
        answer: &OriginHead,
        now: Instant,
    ) -> InFlightResponse {
        let took = counted.as_ref().map(|it| it.answered(answer.status, now));
        assignment.answered(answer.status, took.unwrap_or_default(), now);
        InFlightResponse {
            assignment,
            metrics: counted.take(),
            permit: Some(permit),
            began: now,
        }
    }

    /// Builds the response: complete if the whole body has arrived, else streaming.
    fn deliver(
        &self,
        carrier: Carrier,
        mut upload: Box<Upload>,
        mut in_flight: InFlightResponse,
        server: &Arc<OriginServer>,
        owner: impl FnOnce() -> Owner,
        answer: OriginHead,
    ) -> Result<OriginResponse, OriginError> {
        let mut response = OriginResponse {
            status: answer.status,
            fields: answer.fields,
            length: answer.length,
            body: Body::Empty,
            tunnel: None,
            waited: upload.waited(),
        };
        let mut silence = self.settings.between_bytes_timeout;
        if answer.content == ContentKind::Call {
            upload.release_share();
        }
        if answer.content != ContentKind::Other {
            silence = self.settings.event_stream_timeout;
            // A response that may never end is not a page render: it must not hold a permit until its end.
            in_flight.release_permit();
        }
        response.body = match carrier {
            Carrier::Http1(connection) if answer.status == 101 => {
                // `in_flight` ends here, so a WebSocket holds no permit either.
                response.tunnel = Some(Box::new(connection.into_tunnel()));
                Body::Empty
            }
            Carrier::Http1(connection) => {
                let exchange = Http1Exchange {
                    connection,
                    upload,
                    keep_alive: answer.keep_alive,
                    server: Arc::clone(server),
                    owner: owner(),
                    in_flight,
                };
                exchange.deliver(answer.framing, silence)?
            }
            Carrier::FastCgi(stream) => {
                let exchange = FastCgiExchange {
                    stream: *stream,
                    upload,
                    server: Arc::clone(server),
                    in_flight,
                };
                let body = fastcgi::deliver(exchange, answer.framing, silence)?;
                // FastCGI tells the end of a body: one that has arrived has a length.
                if answer.framing != Framing::None {
                    response.length = complete_length(&body).or(response.length);
                }
                body
            }
            Carrier::Http2(stream) => {
                let body = http2::deliver(stream, upload, in_flight, answer.framing, silence);
                body.map_err(|error| no_answer(&error))?
            }
        };
        Ok(response)
    }
}

impl Origin for Group {
    fn fetch(
        &self,
        mut request: OriginRequest,
    ) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
            return Box::pin(async move { self.fetch_logged(&mut request).await });
        }
        // The block holds the request once, where an argument that is passed on would be held twice.
        Box::pin(async move { self.fetch_counted(&mut request).await })
    }
}

/// Returns the length of a body that is complete.
const fn complete_length(body: &Body) -> Option<u64> {
    match body {
        Body::Empty => Some(0),
        Body::Full(bytes) => Some(bytes.len() as u64),
        _ => None,
    }
}

fn queue_bounds(settings: &GroupSettings) -> QueueBounds {
    QueueBounds {
        places: settings.max_concurrent,
        uploads: settings.max_uploads.unwrap_or(settings.max_concurrent / 2),
        length: settings.max_queue,
        time_limit: settings.queue_timeout,
    }
}

/// Starts the background tasks.
fn upkeep(
    settings: &GroupSettings,
    servers: &[Arc<OriginServer>],
    balance: &Arc<Balance>,
    notices: &Notices,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (index, server) in servers.iter().enumerate() {
        if server.endpoint.of_name().is_some() {
            let (server, notices) = (Arc::clone(server), notices.clone());
            let every = settings.resolve_every;
            tasks.spawn(async move {
                if let Some(addresses) = server.endpoint.of_name() {
                    addresses.keep_resolving(every, &notices).await;
                }
            });
        }
        if let Some(check) = settings.health.clone() {
            let (server, balance) = (Arc::clone(server), Arc::clone(balance));
            tasks.spawn(
                async move { health::keep_checking(&server, index, &balance, &check).await },
            );
        }
    }
    let servers = servers.to_vec();
    let every = settings.idle_timeout.max(Duration::from_millis(100));
    tasks.spawn(async move {
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for server in &servers {
                server.idle.sweep();
                server.http2.iter().for_each(Http2Connections::sweep);
            }
        }
    });
    tasks
}
