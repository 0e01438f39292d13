//! php-fpm, with a site of its own.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::support::{Folder, Process, Proxy, Signal, left_out};

/// Programs by the names that distributions give them, the newest first.
const PROGRAMS: [&str; 3] = [
    "/usr/sbin/php-fpm8.4",
    "/usr/sbin/php-fpm8.2",
    "/usr/sbin/php-fpm",
];

/// A running php-fpm with two workers.
pub(crate) struct Fpm {
    process: Process,
    folder: Folder,
    pub(crate) site: Folder,
}

impl Fpm {
    /// Nothing if it is not there.
    pub(crate) fn start() -> Option<Self> {
        let (folder, site) = (Folder::new(), Folder::new());
        folder.write("fpm.conf", configuration(&folder));
        for program in PROGRAMS {
            let mut command = Command::new(program);
            // It would not run as root otherwise, and as another user it ignores the flag.
            command.args([
                "-F",
                "-n",
                "-R",
                "-y",
                &folder.file("fpm.conf"),
                "-p",
                folder.as_str(),
            ]);
            let Some(mut process) = Process::start(command.stdin(Stdio::null())) else {
                continue;
            };
            let socket = folder.file("fpm.sock");
            process.ready("its socket", |_| UnixStream::connect(&socket).ok());
            return Some(Self {
                process,
                folder,
                site,
            });
        }
        left_out("PHP behind FastCGI, for which php-fpm is not installed");
        None
    }

    /// A proxy by the one command.
    pub(crate) fn proxy(&self, flags: &[&str]) -> Proxy {
        let socket = self.socket();
        let own = ["--php", self.site.as_str(), "--php-socket", &socket];
        Proxy::before(&[], &[&own, flags].concat())
    }

    /// Ends it with its workers, which would outlive a master that is killed.
    pub(crate) fn stop(&mut self) {
        if self.process.is_running() {
            self.process.signal(Signal::TERM);
            self.process.wait();
        }
    }

    /// The socket that it listens on.
    pub(crate) fn socket(&self) -> String {
        self.folder.file("fpm.sock")
    }

    /// The URL of its socket.
    pub(crate) fn url(&self) -> String {
        format!("fastcgi://unix:{}", self.socket())
    }
}

impl Drop for Fpm {
    fn drop(&mut self) {
        self.stop();
    }
}

fn configuration(folder: &Folder) -> String {
    let folder = folder.as_str();
    let user = format!("user = {0}\ngroup = {0}", "root");
    let user = if rustix::process::geteuid().is_root() {
        user
    } else {
        String::new()
    };
    format!(
        "[global]
         pid = {folder}/fpm.pid
         error_log = {folder}/fpm.log
         [www]
         {user}
         listen = {folder}/fpm.sock
         pm = static
         pm.max_children = 2
         clear_env = yes
         ping.path = /ping
         catch_workers_output = yes
         php_admin_value[post_max_size] = 64M
         php_admin_value[memory_limit] = 256M
         php_admin_flag[log_errors] = on
         php_admin_flag[display_errors] = off
         php_admin_value[error_log] =
         "
    )
    .replace("         ", "")
}
