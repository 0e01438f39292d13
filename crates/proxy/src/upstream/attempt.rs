//! Sends one request to one server, up to the head of the response: chooses the connection and decides about
//! a retry.

use std::time::{Duration, Instant as Moment};

use http::uri::Scheme;
use microcache_engine::origin::OriginError;
use tokio::time::Instant;

use super::connection::OriginConnection;
use super::exchange::{ExchangeContext, ExchangeFailure, OriginHead, exchange};
use super::fastcgi::exchange::FastCgiStream;
use super::http2::{self, ConnectionRequirements, Http2Connections, RetryClass};
use super::server::{NewConnection, OriginServer, RequestChannel, ServerFailure};
use super::settings::{GroupSettings, OriginProtocol};
use super::upload::Upload;
use crate::metrics::OriginRequestMetrics;

/// Idle limit of connections for requests that cannot be retried: on a connection that the server is closing
/// they would be lost.
const UNREPEATABLE_IDLE: Duration = Duration::from_secs(1);

/// A request for one server.
pub(super) struct OriginAttempt<'a> {
    pub(super) settings: &'a GroupSettings,
    pub(super) server: &'a OriginServer,
    pub(super) context: &'a ExchangeContext,
    /// The request may be sent twice.
    pub(super) repeatable: bool,
    /// The request needs a new connection that no other client has used.
    pub(super) alone: bool,
    /// The beginning of the attempt.
    pub(super) began: Moment,
    /// Counts every attempt.
    pub(super) counted: Option<&'a OriginRequestMetrics>,
}

/// The connection or stream that the response body is read from.
pub(super) enum Carrier {
    Http1(OriginConnection),
    Http2(http2::ResponseStream),
    FastCgi(Box<FastCgiStream>),
}

impl OriginAttempt<'_> {
    /// Returns the response head; `Connect` if no connection can be opened.
    pub(super) async fn send(
        &self,
        upload: &mut Upload,
    ) -> Result<(Carrier, OriginHead), ServerFailure> {
        match (&self.server.http2, &self.server.fastcgi) {
            (_, Some(fastcgi)) => Box::pin(self.send_fastcgi(fastcgi, upload)).await,
            (Some(http2), _) if !self.alone && !self.context.upgrade => {
                Box::pin(self.send_http2(http2, upload)).await
            }
            _ => {
                let mut connection = self.pooled(upload, self.began);
                let answer = self.send_http1(&mut connection, upload, self.began);
                let answer = answer.await?;
                on(connection, answer)
            }
        }
    }

    pub(super) fn count(&self) {
        if let Some(counted) = self.counted {
            counted.count();
        }
    }

    /// The longest idle time of a connection that is used for this request.
    fn idle_limit(&self) -> Duration {
        if self.repeatable {
            self.settings.idle_timeout
        } else {
            UNREPEATABLE_IDLE.min(self.settings.idle_timeout)
        }
    }

    /// Takes an idle connection for one request at a time that is recent enough for this request.
    pub(super) fn pooled(&self, upload: &Upload, now: Moment) -> Option<OriginConnection> {
        if self.alone {
            return None;
        }
        let repeatable = self.repeatable && upload.is_whole();
        let idle = &self.server.idle;
        idle.take(self.idle_limit(), repeatable, now)
    }

    /// Sends the request on a pooled connection now, or on a new one that takes its place.
    async fn send_http1(
        &self,
        connection: &mut Option<OriginConnection>,
        upload: &mut Upload,
        now: Moment,
    ) -> Result<OriginHead, OriginError> {
        if let Some(pooled) = connection {
            match self.send_on(pooled, upload, now).await {
                // The server closed it while it was unused, or in the same moment.
                Err(broken)
                    if broken.error == OriginError::Disconnected
                        && !broken.answered
                        && upload.can_begin()
                        && (self.repeatable || upload.sent() == 0) => {}
                answer => return answer.map_err(|broken| broken.error),
            }
        }
        *connection = None;
        // Boxed: connecting is rare, and must not enlarge the future of every request.
        let opened = Box::pin(self.server.connect(self.settings.connect_timeout)).await?;
        let opened = connection.insert(opened);
        let answer = self.send_on(opened, upload, Moment::now()).await;
        answer.map_err(|broken| broken.error)
    }

    /// Sends the request on this connection now.
    fn send_on<'a>(
        &'a self,
        connection: &'a mut OriginConnection,
        upload: &'a mut Upload,
        now: Moment,
    ) -> impl Future<Output = Result<OriginHead, ExchangeFailure>> {
        self.count();
        let silence = self.settings.first_byte_timeout;
        exchange(connection, upload, self.context, silence, now)
    }

    /// Sends the request on an HTTP/2 stream. A request that the server has not processed, or that met a
    /// connection being closed, is retried once on a newer connection, as with HTTP/1.
    async fn send_http2(
        &self,
        http2: &Http2Connections,
        upload: &mut Upload,
    ) -> Result<(Carrier, OriginHead), ServerFailure> {
        let scheme = self.server.scheme();
        let mut wanted = ConnectionRequirements {
            idle: self.idle_limit(),
            opened_after: None,
        };
        loop {
            let now = Moment::now();
            let Some(head) = upload.http2_head(scheme.clone()) else {
                let mut connection = self.pooled(upload, now);
                let answer = self.send_http1(&mut connection, upload, now).await?;
                return on(connection, answer);
            };
            if http2.has_been_declined()
                && let mut connection @ Some(_) = self.pooled(upload, now)
            {
                let answer = self.send_http1(&mut connection, upload, now).await?;
                return on(connection, answer);
            }
            let limit = self.settings.connect_timeout;
            let silence = self.settings.first_byte_timeout;
            let slot = match self.server.acquire(http2, &wanted, limit).await? {
                RequestChannel::Http1(mut connection) => {
                    let answer = self.send_on(&mut connection, upload, Moment::now()).await;
                    let answer = answer.map_err(|broken| broken.error)?;
                    return on(Some(connection), answer);
                }
                RequestChannel::Http2(slot) => slot,
            };
            let was_in_use = slot.is_older_than(now.into());
            self.count();
            let broken = match http2::exchange(slot, head, upload, self.context, silence).await {
                Ok((stream, answer)) => return Ok((Carrier::Http2(stream), answer)),
                Err(broken) => broken,
            };
            let can_begin = upload.can_begin();
            let once_more = match broken.retry {
                RetryClass::RequiresHttp1 if can_begin => {
                    let now = Moment::now();
                    let mut connection = self.pooled(upload, now);
                    let answer = self.send_http1(&mut connection, upload, now).await?;
                    return on(connection, answer);
                }
                RetryClass::NotProcessed => can_begin,
                RetryClass::ConnectionLost => can_begin && self.repeatable && was_in_use,
                RetryClass::RequiresHttp1 | RetryClass::Processed => false,
            };
            if !once_more || wanted.opened_after.is_some() {
                return Err(broken.error_for(can_begin).into());
            }
            wanted.opened_after = Some(Instant::now());
        }
    }
}

/// A response on an HTTP/1 connection, without which there is none.
fn on(
    connection: Option<OriginConnection>,
    answer: OriginHead,
) -> Result<(Carrier, OriginHead), ServerFailure> {
    let connection = connection.ok_or(OriginError::Disconnected)?;
    Ok((Carrier::Http1(connection), answer))
}

impl OriginServer {
    /// The scheme of the server's own URLs.
    fn scheme(&self) -> Scheme {
        match self.settings.protocol {
            OriginProtocol::Https => Scheme::HTTPS,
            OriginProtocol::Http | OriginProtocol::FastCgi => Scheme::HTTP,
        }
    }

    /// Sends a health check on a connection of its own and returns the status code.
    pub(super) async fn check_health(
        &self,
        upload: &mut Upload,
        context: &ExchangeContext,
        limit: Duration,
    ) -> Result<u16, OriginError> {
        if let (Some(fastcgi), Some(call)) = (&self.fastcgi, &context.call) {
            let mut stream = FastCgiStream::new(self.connect(limit).await?);
            let now = Moment::now();
            let head = stream.exchange(fastcgi, call, upload, context, limit, now);
            let head = head.await.map_err(|broken| broken.error)?;
            return Ok(head.status);
        }
        let mut connection = match (self.open(limit).await?, upload.http2_head(self.scheme())) {
            (NewConnection::Http2(connection), Some(head)) => {
                let slot = connection.first_slot()?;
                let answer = http2::exchange(slot, head, upload, context, limit).await;
                let answer = answer.map_err(|broken| broken.error_for(true))?;
                return Ok(answer.1.status);
            }
            (NewConnection::Http1(connection), _) => connection,
            (NewConnection::Http2(_), None) => self.connect(limit).await?,
        };
        let answer = exchange(&mut connection, upload, context, limit, Moment::now()).await;
        answer
            .map(|answer| answer.status)
            .map_err(|broken| broken.error)
    }
}
