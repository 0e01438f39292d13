//! nginx or Varnish with the configuration of a site.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use super::comparison::Server;
use crate::support::{Folder, Process, Signal, free_port, left_out};

/// A running server.
pub(crate) struct Original {
    process: Process,
    port: u16,
    _home: Folder,
}

impl Original {
    /// Nothing if it is not installed.
    pub(crate) fn start(server: Server, site: &str) -> Option<Self> {
        let (home, port) = (Folder::new(), free_port());
        let site = site
            .replace("{port}", &port.to_string())
            .replace("{home}", home.as_str());
        let mut command = match server {
            Server::Nginx => nginx(&home, &site),
            Server::Varnish => varnish(&home, &site, port),
        };
        let Some(mut process) = Process::start(command.stdin(Stdio::null())) else {
            left_out("configurations of real sites beside the original, which is not installed");
            return None;
        };
        process.listens(port);
        Some(Self {
            process,
            port,
            _home: home,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }
}

impl Drop for Original {
    /// Varnish's worker ends with its master, if that is not killed.
    fn drop(&mut self) {
        if self.process.is_running() {
            self.process.signal(Signal::TERM);
            self.process.wait();
        }
    }
}

/// nginx with `site` within `http`.
fn nginx(home: &Folder, site: &str) -> Command {
    home.write("site.conf", site);
    let folder = home.as_str();
    let text = format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
         events {{}}
         http {{
             include /etc/nginx/mime.types;
             default_type application/octet-stream;
             access_log off;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
             include {folder}/site.conf;
         }}"
    );
    home.write("nginx.conf", text);
    let mut command = Command::new("/usr/sbin/nginx");
    command.args(["-p", folder, "-c", "nginx.conf", "-e", "stderr"]);
    command
}

fn varnish(home: &Folder, site: &str, port: u16) -> Command {
    let file = home.write("site.vcl", site);
    let mut command = Command::new("/usr/sbin/varnishd");
    command.args(["-F", "-j", "none", "-n", home.as_str(), "-f", &file]);
    command.args(["-a", &format!("127.0.0.1:{port}"), "-s", "malloc,16m"]);
    command
}
