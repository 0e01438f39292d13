//! Notifications to the service manager, by systemd's protocol of `Type=notify`.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use microcache_proxy::ServerStage;
use rustix::time::{ClockId, clock_gettime};

/// Notifies the service manager, if there is one.
pub(crate) fn tell(stage: ServerStage) {
    let Some(place) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match place.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&place),
    };
    let sent = address.and_then(|address| {
        UnixDatagram::unbound()?.send_to_addr(message(stage).as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!(
            kind = "service",
            "cannot notify the service manager (NOTIFY_SOCKET): {error}"
        );
    }
}

fn message(stage: ServerStage) -> String {
    match stage {
        ServerStage::Ready => "READY=1".to_owned(),
        ServerStage::Reloading => {
            // Both fields must be in one message.
            let now = clock_gettime(ClockId::Monotonic);
            let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
            format!("RELOADING=1\nMONOTONIC_USEC={micros}")
        }
        ServerStage::Replaced(process) => format!("MAINPID={process}"),
        ServerStage::Stopping => "STOPPING=1".to_owned(),
    }
}
