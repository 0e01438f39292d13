//! Sockets inherited from the previous process or from systemd, and the protocol of the handover.
//!
//! A server starts its successor with one end of a socket pair as standard input, which no other process can
//! reach. Messages on it:
//!
//! | from | message | carries |
//! |---|---|---|
//! | old | `socket LABEL` | a listening socket |
//! | old | `tickets KEYS`: keys of the TLS session tickets | |
//! | old | `all`: end of the list | |
//! | new | `disk`: requests the directory of the disk tier, if it uses one | |
//! | old | `go`: the directory is released | |
//! | new | `ready`, or `failed WHY` | |
//! | old | `maintenance MODE`, if it is in maintenance mode | |
//! | old | `go`: it refuses purges and changes of that mode from now on, and stops accepting | |
//! | new | `purge RULE`, in hexadecimal digits, for every purge while the old process drains | |
//! | old | `purged`: the rule applies there too | |
//!
//! The old process closes its end when it exits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use microcache_policy::Scheme;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::maintenance::MaintenanceSwitch;
use crate::tls::Tickets;

/// Environment variable of a successor process.
pub(crate) const VARIABLE: &str = "MICROCACHE_TAKES_OVER";
/// Timeout for the next message of the other process, which meanwhile reads its configuration or opens its
/// disk tier.
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// Prefix of the message with ticket keys.
pub(crate) const TICKETS: &str = "tickets ";
/// Prefix of the message with the maintenance mode.
pub(crate) const MAINTENANCE: &str = "maintenance ";
/// Limit of a message, in bytes.
pub(super) const LONGEST: usize = 4096;

/// One end of the handover's socket pair.
pub(crate) struct HandoverChannel(OwnedFd);

impl HandoverChannel {
    /// Returns one end for this process, and one for the other.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self::of(ours)?, theirs))
    }

    pub(crate) fn of(end: OwnedFd) -> io::Result<Self> {
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&end, direction, Some(TIME_LIMIT))?;
        }
        Ok(Self(end))
    }

    pub(crate) fn say(&self, what: &str, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let with: Vec<_> = with.into_iter().collect();
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut more = SendAncillaryBuffer::new(&mut room);
        if !with.is_empty() {
            more.push(SendAncillaryMessage::ScmRights(&with));
        }
        let what = &what.as_bytes()[..what.len().min(LONGEST)];
        sendmsg(
            &self.0,
            &[IoSlice::new(what)],
            &mut more,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Receives the next message with its descriptor; `None` at the end.
    pub(crate) fn hear(&self) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut more = RecvAncillaryBuffer::new(&mut room);
        let mut text = [0; LONGEST];
        let read = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut text)],
            &mut more,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let handed = more.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut handed) => handed.next(),
            _ => None,
        });
        let text = text.get(..read.bytes).unwrap_or_default();
        let text = String::from_utf8_lossy(text).into_owned();
        Ok((!text.is_empty()).then_some((text, handed)))
    }

    /// Disables the timeout for messages of the other process.
    pub(crate) fn wait_for_ever(&self) {
        let _ = set_socket_timeout(&self.0, Timeout::Recv, None);
    }
}

/// Sockets inherited at the start of the process.
#[derive(Default)]
pub struct InheritedSockets {
    /// Each with its label from the configuration, or its address.
    sockets: Vec<(String, TcpListener)>,
    predecessor: Option<HandoverChannel>,
}

/// Label of a listening socket for this address of the configuration.
pub(crate) fn label(scheme: Scheme, wanted: SocketAddr) -> String {
    match scheme {
        Scheme::Http => wanted.to_string(),
        Scheme::Https => format!("tls {wanted}"),
    }
}

/// Label of the admin socket.
const ADMIN: &str = "admin";

impl InheritedSockets {
    /// Takes over the inherited sockets. To be called once, at the start.
    pub fn receive() -> io::Result<Self> {
        if std::env::var_os(VARIABLE).is_some() {
            return Self::from_predecessor();
        }
        let mut sockets = Vec::new();
        let mut given = listenfd::ListenFd::from_env();
        for index in 0..given.len() {
            if let Some(listener) = given.take_tcp_listener(index)? {
                sockets.push((listener.local_addr()?.to_string(), listener));
            }
        }
        Ok(Self {
            sockets,
            predecessor: None,
        })
    }

    fn from_predecessor() -> io::Result<Self> {
        let line = HandoverChannel::of(io::stdin().as_fd().try_clone_to_owned()?)?;
        let mut sockets = Vec::new();
        loop {
            match line.hear()? {
                Some((text, None)) if text == "all" => break,
                Some((text, None)) if text.starts_with(TICKETS) => {
                    Tickets::of_this_process().take_up(&text[TICKETS.len()..]);
                }
                Some((text, Some(socket))) => {
                    let label = text.strip_prefix("socket ").unwrap_or(&text);
                    sockets.push((label.to_owned(), TcpListener::from(socket)));
                }
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        // Standard input is replaced, so that dropping the line closes the last copy of it.
        let nothing = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        Ok(Self {
            sockets,
            predecessor: Some(line),
        })
    }

    /// Takes the listening sockets for this address of the configuration.
    pub(crate) fn take(&mut self, scheme: Scheme, wanted: SocketAddr) -> Vec<TcpListener> {
        // systemd passes sockets without their scheme.
        let label = if self.takes_over() {
            label(scheme, wanted)
        } else {
            wanted.to_string()
        };
        self.take_labelled(&label)
    }

    /// Takes the admin socket for this address of the configuration.
    pub fn take_admin(&mut self, wanted: SocketAddr) -> Option<TcpListener> {
        let label = if self.takes_over() {
            admin_label(wanted)
        } else {
            wanted.to_string()
        };
        self.take_labelled(&label).into_iter().next()
    }

    fn take_labelled(&mut self, label: &str) -> Vec<TcpListener> {
        let wanted = self.sockets.extract_if(.., |(is, _)| is.as_str() == label);
        wanted.map(|(_, listener)| listener).collect()
    }

    /// Labels of inherited sockets that the configuration does not use.
    pub(crate) fn left(&self) -> Vec<&str> {
        self.sockets
            .iter()
            .map(|(label, _)| label.as_str())
            .collect()
    }

    /// Returns true if this process replaces another one.
    pub fn takes_over(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Reports to the previous process that this one cannot take over.
    pub fn failed(&self, why: &str) {
        if let Some(line) = &self.predecessor {
            // If the previous process has ended, the report is not needed.
            let _ = line.say(&format!("failed {why}"), None);
        }
    }

    /// Asks the previous process to release the directory of the disk tier.
    pub(crate) fn ask_for_disk(&self) -> io::Result<()> {
        let Some(line) = &self.predecessor else {
            return Ok(());
        };
        line.say("disk", None)?;
        match line.hear()? {
            Some((text, _)) if text == "go" => Ok(()),
            _ => Err(io::Error::other("the previous process did not release it")),
        }
    }

    /// Reports readiness, takes up the maintenance mode, and waits for the permission to accept. Returns the line to
    /// the previous process, which closes when that ends.
    ///
    /// # Errors
    ///
    /// The previous process still runs and did not give the permission, so that two would accept.
    pub(crate) fn ready(
        &mut self,
        maintenance: &MaintenanceSwitch,
    ) -> io::Result<Option<HandoverChannel>> {
        let Some(line) = self.predecessor.take() else {
            return Ok(None);
        };
        let mut permission = line.say("ready", None).and_then(|()| line.hear());
        if let Ok(Some((text, _))) = &permission
            && let Some(mode) = text.strip_prefix(MAINTENANCE)
        {
            maintenance.take_up(mode);
            permission = line.hear();
        }
        match permission {
            Ok(Some((text, _))) if text == "go" => Ok(Some(line)),
            Ok(Some((text, _))) => {
                let why = format!("it sent `{text}` in place of the permission to accept");
                Err(io::Error::other(why))
            }
            // The previous process has ended, so this one may accept too.
            Ok(None) => Ok(Some(line)),
            Err(error) if is_closed(&error) => Ok(Some(line)),
            Err(error) => Err(error),
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Label of the admin socket for this address.
pub(crate) fn admin_label(wanted: SocketAddr) -> String {
    format!("{ADMIN} {wanted}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;

    /// Returns the result of [`InheritedSockets::ready`] when the previous process acts like this on `ready`.
    fn ready_after(old_process: impl FnOnce(HandoverChannel) + Send + 'static) -> io::Result<()> {
        let (old, new) = HandoverChannel::pair().expect("a pair");
        let mut inherited = InheritedSockets {
            sockets: Vec::new(),
            predecessor: Some(HandoverChannel::of(new).expect("an end")),
        };
        let old = std::thread::spawn(move || old_process(old));
        let maintenance = MaintenanceSwitch::default();
        let ready = inherited.ready(&maintenance);
        old.join().expect("no panic");
        ready.map(|line| assert!(line.is_some()))
    }

    #[test]
    fn a_new_process_accepts_only_with_permission_or_after_the_end_of_the_previous_one() {
        let hears_ready = |old: &HandoverChannel| {
            assert!(matches!(old.hear(), Ok(Some((text, None))) if text == "ready"));
        };
        ready_after(move |old| {
            hears_ready(&old);
            old.say("go", None).expect("sent");
        })
        .expect("permitted");
        ready_after(move |old| hears_ready(&old)).expect("the previous process has ended");
        ready_after(drop).expect("the previous process has ended before");
        let refused = ready_after(move |old| {
            hears_ready(&old);
            old.say("purge 00", None).expect("sent");
        });
        let refused = refused.expect_err("no permission").to_string();
        assert!(refused.contains("purge 00"), "{refused}");
    }

    #[test]
    fn a_socket_is_handed_over_with_its_label_and_queue() {
        let (old, new) = HandoverChannel::pair().expect("a pair");
        let new = HandoverChannel::of(new).expect("an end");
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).expect("it waits");
        client.write_all(b"x").expect("sent");
        old.say("socket a:1", Some(listener.as_fd())).expect("sent");
        drop(listener);
        old.say("all", None).expect("sent");
        let (text, socket) = new.hear().expect("heard").expect("a message");
        assert_eq!(text, "socket a:1");
        let listener = TcpListener::from(socket.expect("a socket"));
        let (_, peer) = listener.accept().expect("who has waited");
        assert_eq!(peer, client.local_addr().unwrap());
        assert!(matches!(new.hear(), Ok(Some((text, None))) if text == "all"));
        drop(old);
        assert!(matches!(new.hear(), Ok(None)));
    }
}
