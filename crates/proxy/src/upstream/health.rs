//! Active health checks of servers, on separate connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_engine::origin::{OriginError, OriginRequest};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::balance::Balance;
use super::exchange::ExchangeContext;
use super::server::OriginServer;
use super::server_address::ServerAddress;
use super::settings::HealthCheck;
use super::upload::Upload;

/// Checks a server for as long as it is polled.
pub(super) async fn keep_checking(
    server: &OriginServer,
    index: usize,
    balance: &Balance,
    check: &HealthCheck,
) {
    let mut ticks = interval(check.interval.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let status = timeout(check.timeout, ask(server, check)).await;
        let seen = match status {
            Ok(Ok(status)) if check.expect.contains(&status) => Ok(()),
            Ok(Ok(status)) => {
                let (first, last) = (check.expect.start(), check.expect.end());
                Err(format!("was answered {status}, not {first} to {last}"))
            }
            Ok(Err(error)) => Err(format!("failed: {error}")),
            Err(_) => Err(format!("had no answer within {:?}", check.timeout)),
        };
        balance.checked(index, seen.as_ref().copied().map_err(String::as_str), check);
    }
}

async fn ask(server: &OriginServer, check: &HealthCheck) -> Result<u16, OriginError> {
    let host = check.host.clone().or_else(|| server.host.clone());
    let authority = host.unwrap_or_else(|| authority(server));
    let target = Bytes::copy_from_slice(check.path.as_bytes());
    let mut request = OriginRequest::bare(check.method.clone(), authority.into(), target);
    request.fields.push("User-Agent", "microcache-health-check");
    if let Some(fastcgi) = &server.fastcgi {
        request
            .extensions
            .insert(Arc::new(fastcgi.checked(&check.path)));
    }
    let mut upload = Upload::whole(&mut request, None, Instant::now());
    let context = ExchangeContext::of(&mut request);
    let status = server.check_health(&mut upload, &context, check.timeout);
    status.await
}

/// `Host` of a check. A Unix socket has no name of its own.
fn authority(server: &OriginServer) -> String {
    match server.settings.address {
        ServerAddress::Tcp { .. } => server.settings.authority(),
        ServerAddress::Unix(_) => "localhost".to_owned(),
    }
}
