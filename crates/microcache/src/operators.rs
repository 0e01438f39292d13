//! The listener of the admin interface.

use std::net::SocketAddr;

use microcache_admin::Admin;
use microcache_proxy::config;
use microcache_proxy::{Handle, InheritedSockets, ServerError, SharedSecret};

/// The admin interface, or its absence.
pub(crate) enum AdminListener {
    Admin {
        admin: Admin,
        /// The configured address, whose port may be 0.
        configured: SocketAddr,
        address: SocketAddr,
    },
    /// Disabled by the configuration.
    Off,
    /// The default address is in use by another process.
    InUse(SocketAddr),
}

/// Binds the admin address. A chosen address that is in use is an error; the default one is not.
pub(crate) fn bind(
    wanted: &config::Admin,
    inherited: &mut InheritedSockets,
) -> Result<AdminListener, String> {
    let Some(address) = wanted.address else {
        return Ok(AdminListener::Off);
    };
    let token = wanted.token_file.as_deref();
    let token = token.map(|path| SharedSecret::read(path, "admin_token_file"));
    let token = token.transpose();
    let token = token.map_err(|error| error.to_string())?;
    let bound = match inherited.take_admin(address) {
        Some(listener) => Admin::on(listener, token),
        None => Admin::bind(address, token),
    };
    match bound.and_then(|admin| Ok((admin.address()?, admin))) {
        Ok((bound, admin)) => Ok(AdminListener::Admin {
            admin,
            configured: address,
            address: bound,
        }),
        Err(_) if !wanted.is_chosen => Ok(AdminListener::InUse(address)),
        Err(error) => Err(format!(
            "admin interface: cannot listen on {address}: {error} (choose another address with --admin, or --admin off)"
        )),
    }
}

impl AdminListener {
    /// The line of the banner.
    pub(crate) fn summary(&self) -> String {
        match self {
            Self::Admin { address, .. } => {
                format!(
                    "http://{address} for the dashboard, purges and statistics (microcache stats)"
                )
            }
            Self::Off => "off".to_owned(),
            Self::InUse(address) => format!(
                "none: {address} is in use (choose another with --admin ADDRESS, or --admin off)"
            ),
        }
    }

    /// Starts serving the admin interface.
    pub(crate) fn start(self, handle: Handle) -> Result<(), ServerError> {
        match self {
            Self::Admin {
                admin, configured, ..
            } => {
                let socket = admin.socket().map_err(ServerError::Thread)?;
                handle.operators_listen(configured, socket);
                admin.start(handle).map_err(ServerError::Thread)
            }
            Self::Off | Self::InUse(_) => Ok(()),
        }
    }
}
