//! PHP behind FastCGI: an origin that finds the script or file a path names, and has its group run the script.
//!
//! Files are answered here, as `files` does, so that neither php-fpm nor a permit is occupied by them.

mod closed;
mod lookup;
pub(super) mod script;
mod sendable;
pub(super) mod settings;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use microcache_engine::body::Body;
use microcache_engine::origin::{BoxFuture, Origin, OriginError, OriginRequest, OriginResponse};
use tokio::task::spawn_blocking;

use self::lookup::{Destination, INDEX_FILE, destination};
use self::script::Script;
use self::settings::PhpSettings;
use super::fastcgi::call::ScriptCall;
use super::group::Group;
use crate::config::{Cidr, forwarded_client};
use crate::files::{DirectoryOrigin, Root, bare, with_slash};

/// Origin of a group of FastCGI servers.
pub(super) struct PhpOrigin {
    group: Arc<Group>,
    settings: Arc<PhpSettings>,
    root: PathBuf,
    files: DirectoryOrigin,
    trusted_proxies: Vec<Cidr>,
    /// Address of this server.
    address: IpAddr,
}

impl PhpOrigin {
    /// Runs scripts below `root`. Proxies that are trusted name the visitor; `address` is that of this server.
    pub(super) fn new(
        group: Arc<Group>,
        root: PathBuf,
        trusted_proxies: &[Cidr],
        address: IpAddr,
    ) -> Self {
        let files = Root {
            folder: root.clone(),
            index: INDEX_FILE.to_owned(),
            precompressed: false,
        };
        Self {
            settings: Arc::new(group.settings().php.clone()),
            group,
            root,
            files: DirectoryOrigin::new(files),
            trusted_proxies: trusted_proxies.to_vec(),
            address,
        }
    }

    async fn answer(&self, request: OriginRequest) -> Result<OriginResponse, OriginError> {
        match self.find(&request).await? {
            Destination::Script(script) => self.run(script, request).await,
            Destination::File => self.files.fetch(request).await,
            Destination::Folder => Ok(with_slash(&request.target)),
            Destination::Denied => Ok(bare(403)),
            Destination::Nothing => Ok(bare(404)),
        }
    }

    /// Finds the script or file on a thread that may block.
    async fn find(&self, request: &OriginRequest) -> Result<Destination, OriginError> {
        let sends_files = [Method::GET, Method::HEAD].contains(&request.method);
        let (root, settings) = (self.root.clone(), Arc::clone(&self.settings));
        let target = request.target.clone();
        let found = spawn_blocking(move || {
            destination(&root, &settings, &target, sends_files).map_err(|error| {
                OriginError::Connect(format!("{}: {error}", root.display()).into())
            })
        });
        found.await.unwrap_or(Err(OriginError::Disconnected))
    }

    async fn run(
        &self,
        script: Script,
        mut request: OriginRequest,
    ) -> Result<OriginResponse, OriginError> {
        // FastCGI has no 100 (Continue).
        request.fields.remove("Expect");
        // Nor a body without a length: it is read completely, within the limits of reading ahead.
        let mut held = None;
        if request.length.is_none() && matches!(request.body, Body::Stream(_)) {
            held = self.group.read_whole(&mut request).await?;
            if matches!(request.body, Body::Stream(_)) {
                return Ok(bare(411));
            }
        }
        let call = ScriptCall {
            script,
            scheme: request.scheme,
            // The session has put the peer last, so this is the client that limits and logs know.
            client: forwarded_client(request.fields.fields(), &self.trusted_proxies),
            server: self.address,
        };
        request.extensions.insert(Arc::new(call));
        let answer = self.group.fetch(request).await;
        drop(held);
        answer
    }
}

impl Origin for PhpOrigin {
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(self.answer(request))
    }
}
