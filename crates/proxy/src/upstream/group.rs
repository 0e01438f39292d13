//! An upstream group: from a request to the answer of one of its servers.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_engine::body::Body;
use microcache_engine::origin::{
    BoxFuture, Origin, OriginError, OriginRequest, OriginResponse, Tunnel,
};
use microcache_policy::is_event_stream;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;

use super::ahead::{Arrived, Bounds, Room, read_ahead};
use super::balance::{Balance, Standing};
use super::connection::Connection;
use super::exchange::{Question, ResponseHead, exchange};
use super::health;
use super::owner::{Asker, KeptConnection, Owner};
use super::pool::Pool;
use super::queue::{Full, Permit, Queue, QueueBounds};
use super::resolve::Endpoints;
use super::response::{Exchange, ResponseBody};
use super::settings::{GroupSettings, ServerSettings};
use super::transport::Transport;
use super::upload::Upload;
use crate::figures::{AskedOrigin, Figures, GroupFigures};
use crate::h1::{Decoder, Framing};
use crate::notices::{Kind, Notices, TARGET};
use crate::tls::OriginTls;

/// Requests that cannot be sent twice only go on connections that were in use this recently: what
/// meets a connection that the server is closing is lost.
const UNREPEATABLE_IDLE: Duration = Duration::from_secs(1);

/// A named group of servers that can answer the same requests. Shared by all threads.
#[derive(Debug)]
pub struct Group {
    settings: GroupSettings,
    servers: Vec<Arc<Server>>,
    balance: Arc<Balance>,
    queue: Arc<Queue>,
    /// For bodies that are read ahead.
    room: Arc<Room>,
    /// For connections that belong to one client each.
    seats: Arc<Semaphore>,
    notices: Notices,
    figures: GroupFigures,
    /// Look-ups, checks and sweeps; they end with the group, or when another one takes its place.
    upkeep: Mutex<JoinSet<()>>,
}

/// One server of a group.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) settings: ServerSettings,
    pub(super) endpoints: Endpoints,
    /// What it is sent as `Host`, if that is not what the client has sent.
    pub(super) host: Option<String>,
    /// How TLS is spoken with it, and the name that its certificate is for.
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(super) idle: Pool,
}

/// The state of a group, for a dashboard.
#[derive(Clone, Debug)]
pub struct GroupSnapshot {
    /// Its name.
    pub name: String,
    /// Requests that are with it now, tunnels and event streams left out.
    pub active: usize,
    /// Requests that wait for others to end.
    pub queued: usize,
    /// The most requests at a time.
    pub max_active: usize,
    /// The most that wait.
    pub max_queued: usize,
    /// Its servers, in the order of the settings.
    pub servers: Vec<ServerSnapshot>,
}

/// The state of a server.
#[derive(Clone, Debug)]
pub struct ServerSnapshot {
    /// Which server.
    pub settings: ServerSettings,
    /// How it does.
    pub standing: Standing,
    /// Unused connections to it.
    pub idle: usize,
}

impl Group {
    /// Starts a group. Its upkeep runs on the current runtime, which should outlive it; what goes
    /// wrong with its servers is told, and what it does is counted.
    pub(crate) fn start(
        settings: GroupSettings,
        notices: Notices,
        figures: &Arc<Figures>,
    ) -> Arc<Self> {
        let queue = Queue::new(queue_bounds(&settings));
        let balance = Balance::new(&settings, notices.clone());
        let figures = GroupFigures::new(figures, &settings.name);
        Self::with(settings, queue, balance, notices, figures)
    }

    /// Starts another one in the place of this one. What is still with this one counts for both, and what is
    /// known of servers that are in both is not forgotten.
    pub fn succeeded_by(&self, settings: GroupSettings) -> Arc<Self> {
        let queue = Arc::clone(&self.queue);
        queue.rebound(queue_bounds(&settings));
        let notices = self.notices.clone();
        let balance = Balance::succeeding(Some(&self.balance), &settings, notices.clone());
        Self::with(settings, queue, balance, notices, self.figures.clone())
    }

    fn with(
        settings: GroupSettings,
        queue: Arc<Queue>,
        balance: Arc<Balance>,
        notices: Notices,
        figures: GroupFigures,
    ) -> Arc<Self> {
        let server = |server: &ServerSettings| {
            Arc::new(Server {
                settings: server.clone(),
                endpoints: Endpoints::new(&server.host, server.port),
                host: settings.host.clone(),
                tls: session_with(&settings.tls, server),
                idle: Pool::new(settings.max_idle, settings.idle_timeout),
            })
        };
        let servers: Vec<_> = settings.servers.iter().map(server).collect();
        Arc::new(Self {
            queue,
            room: Room::new(settings.upload_memory),
            seats: Arc::new(Semaphore::new(settings.max_signed_in)),
            upkeep: Mutex::new(upkeep(&settings, &servers, &balance, &notices)),
            figures,
            notices,
            balance,
            servers,
            settings,
        })
    }

    /// No more requests come than those that are with it: nobody needs to look after it any more.
    pub fn retire(&self) {
        self.upkeep.lock().abort_all();
        for server in &self.servers {
            server.idle.close();
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// What it was started with.
    pub const fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// How the group does at the moment.
    pub fn snapshot(&self) -> GroupSnapshot {
        let (active, queued) = self.queue.depth();
        let standings = self.balance.standings(Instant::now());
        let servers = self.servers.iter().zip(standings);
        GroupSnapshot {
            name: self.settings.name.clone(),
            active,
            queued,
            max_active: self.settings.max_concurrent,
            max_queued: self.settings.max_queue,
            servers: servers
                .map(|(server, standing)| ServerSnapshot {
                    settings: server.settings.clone(),
                    standing,
                    idle: server.idle.len(),
                })
                .collect(),
        }
    }

    /// Asks, and counts it.
    async fn ask(&self, request: OriginRequest) -> Result<OriginResponse, OriginError> {
        let mut counted = Some(self.figures.ask(&request));
        let answer = self.ask_for(request, &mut counted).await;
        if let (Err(error), Some(counted)) = (&answer, &counted) {
            counted.failed(error);
        }
        answer
    }

    /// Leaves nothing in `counted` if there is an answer: then that goes along with it.
    async fn ask_for(
        &self,
        mut request: OriginRequest,
        counted: &mut Option<AskedOrigin>,
    ) -> Result<OriginResponse, OriginError> {
        if let Some(host) = &self.settings.host {
            request.authority = Bytes::copy_from_slice(host.as_bytes());
        }
        let (permit, mut upload) = self.admit(&mut request).await?;
        let question = Question::of(&mut request);
        if let Some(own) = self.own_connection(&request) {
            let request = &mut request;
            return self
                .ask_own(own, request, permit, upload, question, counted)
                .await;
        }
        let asker = Asker::of(&mut request);
        let repeatable = request.method.is_idempotent();
        let mut tried = Vec::new();
        let mut unreached = OriginError::Down;
        let mut now = Instant::now();
        while let Some(mut turn) = self.balance.choose(&tried, now) {
            if let Some(counted) = counted {
                counted.sent(now);
            }
            let server = &self.servers[turn.index];
            let pooled = if asker.signs_in {
                None
            } else {
                self.pooled(server, repeatable, now)
            };
            match self
                .ask_server(server, pooled, &mut upload, &question, repeatable)
                .await
            {
                Ok((connection, answer)) => {
                    let took = counted.as_ref().map(|it| it.answered(answer.status));
                    turn.answered(answer.status, took.unwrap_or_default());
                    let exchange = Exchange {
                        connection,
                        upload,
                        keep_alive: answer.keep_alive,
                        owner: asker.owner(answer.challenged, &self.settings.name, &self.seats),
                        server: Arc::clone(server),
                        turn,
                        asked: counted.take(),
                        permit: Some(permit),
                    };
                    return self.deliver(exchange, answer);
                }
                Err(error @ OriginError::Connect(_)) => {
                    now = Instant::now();
                    turn.failed(&error, now);
                    tried.push(turn.index);
                    unreached = error;
                    if turn.last_resort {
                        break;
                    }
                }
                Err(error) => {
                    turn.failed(&error, Instant::now());
                    return Err(error);
                }
            }
        }
        Err(unreached)
    }

    /// The same, and says what was asked and what came of it.
    async fn ask_and_tell(&self, request: OriginRequest) -> Result<OriginResponse, OriginError> {
        let what = format!(
            "{} {}://{}{}",
            request.method,
            request.scheme.as_str(),
            String::from_utf8_lossy(&request.authority),
            String::from_utf8_lossy(&request.target)
        );
        let began = Instant::now();
        let answer = self.ask(request).await;
        let (name, millis) = (&*self.settings.name, began.elapsed().as_millis());
        let told = match &answer {
            Ok(response) => format!("was answered {}", response.status),
            Err(error) => format!("failed: {error}"),
        };
        tracing::debug!(target: TARGET, kind = "origin-request", about = name, "{name}: {what} {told} after {millis} ms");
        answer
    }

    /// The connection that is the client's own, and its server's number. One that belongs to a group of
    /// this name before it was changed is no more than closed.
    fn own_connection(&self, request: &OriginRequest) -> Option<(usize, KeptConnection)> {
        let own = KeptConnection::of(request, &self.settings.name)?;
        let mut servers = self.servers.iter();
        let index = servers.position(|server| Arc::ptr_eq(server, &own.server))?;
        Some((index, own))
    }

    /// The answer on the client's own connection, and on no other.
    async fn ask_own(
        &self,
        (index, own): (usize, KeptConnection),
        request: &mut OriginRequest,
        permit: Permit,
        mut upload: Upload,
        question: Question,
        counted: &mut Option<AskedOrigin>,
    ) -> Result<OriginResponse, OriginError> {
        let KeptConnection {
            server,
            mut connection,
            seat,
        } = own;
        let Some(client) = request.client.take() else {
            return Err(OriginError::Disconnected);
        };
        let mut turn = self.balance.turn_of(index);
        let silence = self.settings.first_byte_timeout;
        if let Some(counted) = counted {
            counted.sent(Instant::now());
        }
        match exchange(&mut connection, &mut upload, &question, silence).await {
            Ok(answer) => {
                let took = counted.as_ref().map(|it| it.answered(answer.status));
                turn.answered(answer.status, took.unwrap_or_default());
                let exchange = Exchange {
                    connection,
                    upload,
                    keep_alive: answer.keep_alive,
                    owner: Owner::Client(client, self.settings.name.as_str().into(), seat),
                    server,
                    turn,
                    asked: counted.take(),
                    permit: Some(permit),
                };
                self.deliver(exchange, answer)
            }
            // That it closes a connection which nobody used is no failure of the server.
            Err(broken) => {
                if broken.error != OriginError::Disconnected {
                    turn.failed(&broken.error, Instant::now());
                }
                Err(broken.error)
            }
        }
    }

    /// Gives a request a place as soon as there is something to send, and one that is free.
    async fn admit(&self, request: &mut OriginRequest) -> Result<(Permit, Upload), OriginError> {
        let bounds = Bounds {
            bytes: self.settings.upload_buffer,
            wait: self.settings.upload_wait,
        };
        match read_ahead(request, bounds, &self.room).await? {
            Arrived::Whole(held) => {
                let permit = self.queue.enter(&request.urgency).await;
                let permit = permit.map_err(|Full| self.busy())?;
                Ok((permit, Upload::whole(request, held)))
            }
            Arrived::InPart => {
                let place = self.queue.enter_upload().await;
                let (share, permit) = place.map_err(|Full| self.busy())?;
                Ok((permit, Upload::in_part(request, share)))
            }
        }
    }

    /// A request did not get a place among those that are with the group.
    fn busy(&self) -> OriginError {
        let GroupSettings {
            name,
            max_concurrent,
            max_queue,
            queue_timeout,
            ..
        } = &self.settings;
        let line = format!(
            "upstream group {name} is at its limit: a request found no place among `max_concurrent` \
             ({max_concurrent}) within `queue_timeout` ({queue_timeout:?}), or `max_queue` ({max_queue}) others waited"
        );
        self.notices.say(Kind::Busy, name, line);
        OriginError::Busy
    }

    /// An unused connection to a server, if there is one that can be trusted with the request.
    fn pooled(&self, server: &Server, repeatable: bool, now: Instant) -> Option<Connection> {
        let limit = if repeatable {
            self.settings.idle_timeout
        } else {
            UNREPEATABLE_IDLE
        };
        server.idle.take(limit, now)
    }

    /// One server's answer; `Connect` if it cannot even be asked.
    async fn ask_server(
        &self,
        server: &Server,
        pooled: Option<Connection>,
        upload: &mut Upload,
        question: &Question,
        repeatable: bool,
    ) -> Result<(Connection, ResponseHead), OriginError> {
        let silence = self.settings.first_byte_timeout;
        if let Some(mut connection) = pooled {
            match exchange(&mut connection, upload, question, silence).await {
                Ok(answer) => return Ok((connection, answer)),
                // The server closed it while it was unused, or in the same moment.
                Err(broken)
                    if broken.error == OriginError::Disconnected
                        && !broken.answered
                        && upload.can_rewind()
                        && (repeatable || upload.sent() == 0) =>
                {
                    upload.rewind();
                }
                Err(broken) => return Err(broken.error),
            }
        }
        let mut connection = server.connect(self.settings.connect_timeout).await?;
        let answer = exchange(&mut connection, upload, question, silence).await;
        answer
            .map(|answer| (connection, answer))
            .map_err(|broken| broken.error)
    }

    /// Hands an answer over: at once if all of it is there, else as it comes.
    fn deliver(
        &self,
        mut exchange: Exchange,
        answer: ResponseHead,
    ) -> Result<OriginResponse, OriginError> {
        let mut response = OriginResponse {
            status: answer.status,
            fields: answer.fields,
            length: answer.length,
            body: Body::Empty,
            tunnel: None,
        };
        if answer.status == 101 {
            // A websocket is no render: it must not use up a place for as long as it lives.
            let Connection {
                stream, mut buf, ..
            } = exchange.connection;
            response.tunnel = Some(Box::new(Tunnel {
                early: buf.split().freeze(),
                io: Box::new(stream),
            }));
            return Ok(response);
        }
        if let Some((body, length)) = whole_body(&mut exchange.connection, answer.framing) {
            exchange
                .finish(length)
                .map_err(|_| OriginError::Malformed("bytes after the answer"))?;
            response.body = body;
            return Ok(response);
        }
        let mut silence = self.settings.between_bytes_timeout;
        let media_type = response.fields.fields().get("content-type");
        if media_type.is_some_and(is_event_stream) {
            silence = self.settings.event_stream_timeout;
            // Nor is a stream that may never end.
            exchange.permit = None;
        }
        exchange.connection.timer.restart(silence);
        response.body = Body::Stream(Box::new(ResponseBody {
            decoder: Decoder::new(answer.framing),
            exchange: Some(exchange),
            silence,
            received: 0,
        }));
        Ok(response)
    }
}

/// A body that came along with its head. It is copied, so that a small body which is stored does
/// not keep the whole read buffer alive.
fn whole_body(connection: &mut Connection, framing: Framing) -> Option<(Body, u64)> {
    let length = match framing {
        Framing::None => 0,
        Framing::Length(length) => usize::try_from(length).ok()?,
        Framing::Chunked | Framing::UntilClose => return None,
    };
    let body = connection.buf.get(..length)?;
    let body = match body {
        [] => Body::Empty,
        body => Body::Full(Bytes::copy_from_slice(body)),
    };
    bytes::Buf::advance(&mut connection.buf, length);
    Some((body, length as u64))
}

impl Origin for Group {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
            return Box::pin(self.ask_and_tell(request));
        }
        Box::pin(self.ask(request))
    }
}

impl Server {
    /// Opens a connection.
    pub(super) async fn connect(&self, limit: Duration) -> Result<Connection, OriginError> {
        let failed = |error: io::Error| {
            let why = match error.kind() {
                ErrorKind::TimedOut => format!("no answer within {limit:?}"),
                _ => error.to_string(),
            };
            OriginError::Connect(why.into())
        };
        let socket = self.endpoints.connect(limit).await.map_err(failed)?;
        if !self.settings.tls {
            return Ok(Connection::new(Transport::Plain(socket)));
        }
        let Some((config, name)) = &self.tls else {
            return Err(failed(io::Error::other("TLS is not set up")));
        };
        let connector = TlsConnector::from(Arc::clone(config));
        match timeout(limit, connector.connect(name.clone(), socket)).await {
            Ok(Ok(session)) => Ok(Connection::new(Transport::Tls(Box::new(session)))),
            Ok(Err(error)) => Err(failed(io::Error::other(format!("no TLS session: {error}")))),
            Err(_) => Err(failed(ErrorKind::TimedOut.into())),
        }
    }
}

fn session_with(
    tls: &OriginTls,
    server: &ServerSettings,
) -> Option<(Arc<ClientConfig>, ServerName<'static>)> {
    let ready = tls.ready.as_ref().filter(|_| server.tls)?;
    let name = tls.name.clone().unwrap_or_else(|| server.host.clone());
    let name = ServerName::try_from(name).ok()?;
    Some((Arc::clone(&ready.config), name))
}

fn queue_bounds(settings: &GroupSettings) -> QueueBounds {
    QueueBounds {
        places: settings.max_concurrent,
        uploads: settings.max_uploads.unwrap_or(settings.max_concurrent / 2),
        length: settings.max_queue,
        patience: settings.queue_timeout,
    }
}

/// What goes on beside the requests.
fn upkeep(
    settings: &GroupSettings,
    servers: &[Arc<Server>],
    balance: &Arc<Balance>,
    notices: &Notices,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (index, server) in servers.iter().enumerate() {
        if server.endpoints.is_name() {
            let (server, notices) = (Arc::clone(server), notices.clone());
            let every = settings.resolve_every;
            tasks.spawn(async move { server.endpoints.keep_resolving(every, &notices).await });
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
            }
        }
    });
    tasks
}
