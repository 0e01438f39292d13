//! A server that is taken out behind `HAProxy`, which asks `/v1/ready`: no connection is lost.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::support::{
    Client, Origin, Process, Proxy, Reply, config_file, eventually, free_port, left_out,
};

/// Connections that are open at one time.
const VISITORS: usize = 4;

/// A real `HAProxy`, which gives each connection to one server, and to no second one if that fails.
struct Haproxy {
    process: Process,
    address: SocketAddr,
}

impl Haproxy {
    /// In front of servers, by their addresses for visitors and for operators.
    fn before(servers: &[(SocketAddr, SocketAddr)]) -> Option<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let lines = servers
            .iter()
            .enumerate()
            .map(|(number, (visitors, operators))| {
                format!(
                    " server s{number} {visitors} check addr {} port {}\n",
                    operators.ip(),
                    operators.port()
                )
            })
            .collect::<Vec<_>>()
            .concat();
        let text = format!(
            "defaults\n mode tcp\n retries 0\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n timeout check 5s\n\
             frontend f\n bind {address}\n default_backend b\n\
             backend b\n option httpchk GET /v1/ready\n default-server inter 100ms fall 2 rise 1\n{lines}"
        );
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(config_file(&text));
        let Some(mut process) = Process::start(command.stdin(Stdio::null())) else {
            left_out("a server that is taken out behind HAProxy, which is not installed");
            return None;
        };
        process.listens(address.port());
        Some(Self { process, address })
    }
}

/// What became of the connections of visitors.
#[derive(Default)]
struct Visits {
    answered: AtomicUsize,
    lost: AtomicUsize,
    are_over: AtomicBool,
}

impl Visits {
    /// Opens one connection after the other, each for one request.
    fn go_on(&self, address: SocketAddr) {
        while !self.are_over.load(Ordering::Relaxed) {
            let is_answered = Client::connect(address)
                .try_get("/page")
                .is_ok_and(|response| response.status == 200);
            let count = if is_answered {
                &self.answered
            } else {
                &self.lost
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until so many more were made.
    fn wait_for_more(&self, more: usize) {
        let made = || self.answered.load(Ordering::Relaxed) + self.lost.load(Ordering::Relaxed);
        let before = made();
        eventually("more visits", || (made() >= before + more).then_some(()));
    }
}

/// Ends the visits, also where the test fails.
struct Over<'a>(&'a Visits);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.are_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn haproxy_opens_no_connection_to_a_server_that_is_about_to_end() {
    let origin = Origin::start();
    let page = Reply::new(200).with("Cache-Control: max-age=3600");
    origin.on("/page").reply(page.body("page"));
    let (mut ends, operators) = Proxy::operated(&origin, &["--drain-delay", "1h"]);
    let (stays, others) = Proxy::operated(&origin, &[]);
    let servers = [(ends.address(), operators), (stays.address(), others)];
    let Some(haproxy) = Haproxy::before(&servers) else {
        return;
    };
    let visits = Visits::default();
    thread::scope(|scope| {
        let _over = Over(&visits);
        for _ in 0..VISITORS {
            scope.spawn(|| visits.go_on(haproxy.address));
        }
        visits.wait_for_more(200);
        ends.terminate();
        haproxy.process.output_with("Server b/s0 is DOWN");
        visits.wait_for_more(200);
        // The delay is over, as it would be by itself.
        ends.terminate();
        assert!(ends.wait().success());
        visits.wait_for_more(200);
    });
    let (answered, lost) = (visits.answered.into_inner(), visits.lost.into_inner());
    assert_eq!(lost, 0, "of {}", answered + lost);
    assert!(stays.get("/page").is_hit());
}
