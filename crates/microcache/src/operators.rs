//! The listener for operators: whether there is one, and what is said of it.

use std::net::SocketAddr;

use microcache_admin::Admin;
use microcache_proxy::config;
use microcache_proxy::{Handle, Inherited, ServerError, Token};

/// What became of the address for operators.
pub(crate) enum Operators {
    Admin {
        admin: Admin,
        /// What the configuration says, where the port may be left open.
        wanted: SocketAddr,
        address: SocketAddr,
    },
    /// It is not wanted.
    Off,
    /// The one that is taken when nothing is said is somebody else's.
    Taken(SocketAddr),
}

/// Takes the address for operators. One that was chosen has to be had.
pub(crate) fn bind(wanted: &config::Admin, inherited: &mut Inherited) -> Result<Operators, String> {
    let Some(address) = wanted.address else {
        return Ok(Operators::Off);
    };
    let token = wanted.token_file.as_deref();
    let token = token.map(|path| Token::read(path, "admin_token_file"));
    let token = token.transpose();
    let token = token.map_err(|error| error.to_string())?;
    let bound = match inherited.take_admin(address) {
        Some(listener) => Admin::on(listener, token),
        None => Admin::bind(address, token),
    };
    match bound.and_then(|admin| Ok((admin.address()?, admin))) {
        Ok((bound, admin)) => Ok(Operators::Admin {
            admin,
            wanted: address,
            address: bound,
        }),
        Err(_) if !wanted.is_chosen => Ok(Operators::Taken(address)),
        Err(error) => Err(format!(
            "cannot listen on {address} for operators: {error} (choose another address with --admin, or --admin off)"
        )),
    }
}

impl Operators {
    /// What is said of it at the start.
    pub(crate) fn summary(&self) -> String {
        match self {
            Self::Admin { address, .. } => {
                format!(
                    "http://{address} for the dashboard, purges and statistics (microcache stats)"
                )
            }
            Self::Off => "off".to_owned(),
            Self::Taken(address) => format!(
                "none, for {address} is taken (--admin ADDRESS chooses another one, --admin off none)"
            ),
        }
    }

    /// Begins to answer.
    pub(crate) fn start(self, handle: Handle) -> Result<(), ServerError> {
        match self {
            Self::Admin { admin, wanted, .. } => {
                let socket = admin.socket().map_err(ServerError::Thread)?;
                handle.operators_listen(wanted, socket);
                admin.start(handle).map_err(ServerError::Thread)
            }
            Self::Off | Self::Taken(_) => Ok(()),
        }
    }
}
