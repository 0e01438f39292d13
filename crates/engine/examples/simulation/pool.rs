//! A model of a pool of memcached servers: the commands that `crates/store/src/memcached` sends, over streams
//! with latency.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use microcache_store::memcached::{ServerAddress, ServerLink};
use microcache_testkit::Chance;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::sleep;

use crate::network::{Network, Path};

/// Bytes under way on a connection.
const BUFFER: usize = 64 * 1024;
/// The host of a server, before its number.
const HOST: &str = "cache-";
/// The beginning of the log's keys.
const LOG: &[u8] = b"mcl1";

pub(crate) struct Pool {
    network: Arc<Network>,
    servers: Vec<Mutex<Memcached>>,
}

#[derive(Default)]
struct Memcached {
    items: BTreeMap<Vec<u8>, Item>,
    /// Increases with each start.
    process: u64,
    started: u64,
    number: u64,
    has_log: bool,
}

#[derive(Default)]
struct Item {
    value: Bytes,
    number: u64,
    expires: u64,
    is_claimed: bool,
}

impl Pool {
    pub(crate) fn new(network: Arc<Network>, servers: usize) -> Self {
        let servers = (0..servers).map(|_| Mutex::default()).collect();
        Self { network, servers }
    }

    pub(crate) fn addresses(&self) -> Vec<ServerAddress> {
        let address = |number| ServerAddress {
            host: format!("{HOST}{number}"),
            port: 11_211,
            weight: 1,
        };
        (0..self.servers.len()).map(address).collect()
    }

    /// The servers with a copy of the log.
    pub(crate) fn log_servers(&self) -> Vec<usize> {
        let servers = self.servers.iter().enumerate();
        let with_log = servers.filter(|(_, server)| server.lock().has_log);
        with_log.map(|(number, _)| number).collect()
    }

    /// Returns empty, as another process.
    pub(crate) fn restart(&self, server: usize) {
        let mut server = self.servers[server].lock();
        *server = Memcached {
            process: server.process + 1,
            started: self.network.now(),
            has_log: server.has_log,
            ..Memcached::default()
        };
    }

    /// Evicts about half of the items, and rarely records of the log.
    pub(crate) fn evict(&self, server: usize, chance: &mut Chance) {
        let loses_log = chance.below(4) == 0;
        let is_kept = |key: &[u8], chance: &mut Chance| {
            (key.starts_with(LOG) && !loses_log) || chance.below(2) == 0
        };
        self.servers[server]
            .lock()
            .items
            .retain(|key, _| is_kept(key, chance));
    }

    /// The link of a node.
    pub(crate) fn link(self: &Arc<Self>, node: usize) -> ServerLink {
        let pool = Arc::clone(self);
        ServerLink::Simulated(Arc::new(move |host, _| {
            let number = host
                .strip_prefix(HOST)
                .and_then(|number| number.parse().ok());
            let server = number.expect("an address of this pool");
            Box::pin(Arc::clone(&pool).connect(node, server))
        }))
    }

    async fn connect(self: Arc<Self>, node: usize, server: usize) -> io::Result<DuplexStream> {
        sleep(self.network.round_trip()).await;
        if self.network.is_killed(server) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if self.network.path(node, server) != Path::Works {
            std::future::pending::<()>().await;
        }
        let (near, far) = duplex(BUFFER);
        tokio::spawn(self.serve(node, server, far));
        Ok(near)
    }

    /// Serves a connection. A cut is for ever: the node opens another one.
    async fn serve(self: Arc<Self>, node: usize, server: usize, mut stream: DuplexStream) {
        let process = self.servers[server].lock().process;
        let mut buffer = BytesMut::new();
        let mut is_dead = false;
        loop {
            // Commands that were sent together are read together.
            buffer.reserve(BUFFER);
            if !matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
                return;
            }
            sleep(self.network.round_trip()).await;
            let path = self.network.path(node, server);
            is_dead |= path == Path::Cut;
            if self.network.is_killed(server) || self.servers[server].lock().process != process {
                return;
            }
            if is_dead {
                buffer.clear();
                continue;
            }
            let answers = self.execute(node, server, &mut buffer);
            is_dead |= path == Path::Deaf;
            if !is_dead && stream.write_all(&answers).await.is_err() {
                return;
            }
        }
    }

    /// Executes the complete commands.
    fn execute(&self, node: usize, server: usize, input: &mut BytesMut) -> Vec<u8> {
        let mut memcached = self.servers[server].lock();
        let (received, mut commands, mut answers) = (input.len(), 0, Vec::new());
        while memcached
            .execute(input, self.network.now(), &mut answers)
            .is_some()
        {
            commands += 1;
        }
        let bytes = received - input.len() + answers.len();
        self.network.count(node, commands, bytes);
        answers
    }
}

impl Memcached {
    /// Executes a command; `None` if it is not complete yet.
    fn execute(&mut self, input: &mut BytesMut, now: u64, out: &mut Vec<u8>) -> Option<()> {
        let end = input.windows(2).position(|bytes| bytes == b"\r\n")?;
        let line = String::from_utf8_lossy(&input[..end]).into_owned();
        let words: Vec<&str> = line.split(' ').collect();
        let key = words
            .get(1)
            .map_or(Vec::new(), |key| key.as_bytes().to_vec());
        let flags = words.get(2..).unwrap_or_default();
        let flag = |name: char| {
            flags
                .iter()
                .find_map(|flag| flag.strip_prefix(name)?.parse().ok())
        };
        let lifetime = |seconds: u64| now + seconds * 1000;
        let length = if words[0] == "ms" {
            words[2].parse().ok()
        } else {
            None
        };
        if length.is_some_and(|length: usize| input.len() < end + length + 4) {
            return None;
        }
        input.advance(end + 2);
        if self.items.get(&key).is_some_and(|item| item.expires <= now) {
            self.items.remove(&key);
        }
        self.has_log |= key.starts_with(LOG);
        let number: Option<u64> = flag('C');
        let current = self.items.get(&key).map(|item| item.number);
        let reply = match words[0] {
            "mn" => "MN".to_owned(),
            "stats" => {
                self.write_statistics(now, out);
                return Some(());
            }
            "mg" => {
                let [claim, touch] = [flag('N'), flag('T')].map(|it| it.map(lifetime));
                self.get(&key, flags, [claim, touch], now, out);
                return Some(());
            }
            "ms" => {
                let length = length.unwrap_or(0);
                let value = Bytes::copy_from_slice(&input[..length]);
                input.advance(length + 2);
                match (number, current) {
                    (Some(_), None) => "NF".to_owned(),
                    (Some(number), Some(current)) if number != current => "EX".to_owned(),
                    (_, Some(_)) if flags.contains(&"ME") => "NS".to_owned(),
                    _ => {
                        let expires = lifetime(flag('T').unwrap_or(u64::MAX / 2000));
                        self.set(key, value, expires);
                        "HD".to_owned()
                    }
                }
            }
            "md" => match (number, current) {
                (_, None) => "NF".to_owned(),
                (Some(number), Some(current)) if number != current => "EX".to_owned(),
                _ => {
                    self.items.remove(&key);
                    "HD".to_owned()
                }
            },
            "ma" => {
                let text = self
                    .items
                    .get(&key)
                    .map(|item| String::from_utf8_lossy(&item.value).into_owned());
                let counted = text
                    .and_then(|text| text.parse::<u64>().ok())
                    .map(|last| last + flag('D').unwrap_or(1));
                match counted.or(flag('J')) {
                    None => "NF".to_owned(),
                    Some(sum) => {
                        let sum = sum.to_string();
                        self.set(key, sum.clone().into(), u64::MAX);
                        format!("VA {}\r\n{sum}", sum.len())
                    }
                }
            }
            other => panic!("no command of this model: {other}"),
        };
        out.extend_from_slice(reply.as_bytes());
        out.extend_from_slice(b"\r\n");
        Some(())
    }

    fn set(&mut self, key: Vec<u8>, value: Bytes, expires: u64) {
        self.number += 1;
        let item = Item {
            value,
            number: self.number,
            expires,
            is_claimed: false,
        };
        self.items.insert(key, item);
    }

    fn get(
        &mut self,
        key: &[u8],
        flags: &[&str],
        [claim, touch]: [Option<u64>; 2],
        now: u64,
        out: &mut Vec<u8>,
    ) {
        let won = claim.filter(|_| !self.items.contains_key(key));
        if let Some(expires) = won {
            self.set(key.to_vec(), Bytes::new(), expires);
        }
        let Some(item) = self.items.get_mut(key) else {
            return out.extend_from_slice(b"EN\r\n");
        };
        item.expires = touch.unwrap_or(item.expires);
        let mut properties = String::new();
        for flag in flags {
            let _ = match *flag {
                "c" => write!(properties, " c{}", item.number),
                "f" => write!(properties, " f0"),
                "t" if item.expires == u64::MAX => write!(properties, " t-1"),
                "t" => write!(properties, " t{}", (item.expires - now) / 1000),
                _ => Ok(()),
            };
        }
        properties.push_str(match (won, item.is_claimed) {
            (Some(_), _) => " W",
            (None, true) => " Z",
            (None, false) => "",
        });
        item.is_claimed |= won.is_some();
        if flags.contains(&"v") {
            out.extend_from_slice(format!("VA {}{properties}\r\n", item.value.len()).as_bytes());
            out.extend_from_slice(&item.value);
            out.extend_from_slice(b"\r\n");
        } else {
            out.extend_from_slice(format!("HD{properties}\r\n").as_bytes());
        }
    }

    fn write_statistics(&self, now: u64, out: &mut Vec<u8>) {
        let (process, uptime) = (self.process + 1, (now - self.started) / 1000);
        let time = crate::DATE / 1000 + now / 1000;
        let lines =
            format!("STAT pid {process}\r\nSTAT uptime {uptime}\r\nSTAT time {time}\r\nEND\r\n");
        out.extend_from_slice(lines.as_bytes());
    }
}
