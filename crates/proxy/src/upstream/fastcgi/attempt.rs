//! Sends one request to one server with FastCGI, up to the head of the response.

use std::time::Instant;

use microcache_engine::origin::OriginError;

use super::exchange::FastCgiStream;
use super::server::FastCgiServer;
use crate::upstream::attempt::{Carrier, OriginAttempt};
use crate::upstream::connection::OriginConnection;
use crate::upstream::exchange::{ExchangeFailure, OriginHead};
use crate::upstream::server::ServerFailure;
use crate::upstream::upload::Upload;

impl OriginAttempt<'_> {
    /// Sends the request on a pooled connection, or on a new one.
    pub(in crate::upstream) async fn send_fastcgi(
        &self,
        server: &FastCgiServer,
        upload: &mut Upload,
    ) -> Result<(Carrier, OriginHead), ServerFailure> {
        if let Some(pooled) = self.pooled(upload, self.began) {
            match self.run_on(pooled, server, upload, self.began).await {
                // The application closed it while it was unused, or in the same moment.
                Err(broken)
                    if broken.error == OriginError::Disconnected
                        && !broken.answered
                        && upload.can_begin()
                        && (self.repeatable || upload.sent() == 0) => {}
                answer => return answer.map_err(|broken| broken.error.into()),
            }
        }
        let opened = self.server.connect(self.settings.connect_timeout).await?;
        let answer = self.run_on(opened, server, upload, Instant::now()).await;
        answer.map_err(|broken| broken.error.into())
    }

    async fn run_on(
        &self,
        connection: OriginConnection,
        server: &FastCgiServer,
        upload: &mut Upload,
        now: Instant,
    ) -> Result<(Carrier, OriginHead), ExchangeFailure> {
        let Some(call) = &self.context.call else {
            return Err(ExchangeFailure {
                error: OriginError::Malformed("no script was found for the request"),
                answered: false,
            });
        };
        self.count();
        let silence = self.settings.first_byte_timeout;
        let mut stream = FastCgiStream::new(connection);
        let head = stream.exchange(server, call, upload, self.context, silence, now);
        let head = head.await?;
        Ok((Carrier::FastCgi(Box::new(stream)), head))
    }
}
