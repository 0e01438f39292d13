//! A way to Redis that can be cut or hold everything back, for one node alone.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::listen;

/// Passes on what comes, until it is cut.
pub(crate) struct Relay {
    port: u16,
    way: Arc<Mutex<Way>>,
}

#[derive(Default)]
struct Way {
    is_cut: bool,
    holds: Arc<AtomicBool>,
    open: Vec<TcpStream>,
}

impl Relay {
    pub(crate) fn start(to: u16) -> Self {
        Self::between(vec![to])
    }

    /// To one after the other.
    pub(super) fn between(servers: Vec<u16>) -> Self {
        let mut servers = servers.into_iter().cycle();
        let way = Arc::<Mutex<Way>>::default();
        let known = Arc::clone(&way);
        let address = listen(move |stream| {
            pass_on(stream, servers.next().expect("a server"), &known);
        });
        Self {
            port: address.port(),
            way,
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn cut(&self) {
        let mut way = self.way.lock().unwrap();
        way.is_cut = true;
        for stream in way.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Passes on nothing more, as if packets were lost, and closes nothing.
    pub(crate) fn hold(&self, holds: bool) {
        self.way
            .lock()
            .unwrap()
            .holds
            .store(holds, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.way.lock().unwrap().is_cut = false;
    }
}

fn pass_on(from: TcpStream, to: u16, way: &Mutex<Way>) {
    let mut way = way.lock().unwrap();
    if way.is_cut {
        return;
    }
    let Ok(to) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else {
        return;
    };
    let clone = |stream: &TcpStream| stream.try_clone().expect("a socket");
    way.open.extend([clone(&from), clone(&to)]);
    for (mut from, mut to) in [(clone(&from), clone(&to)), (to, from)] {
        let holds = Arc::clone(&way.holds);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut piece) {
                while holds.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(5));
                }
                if to.write_all(&piece[..length]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
