//! Sockets that come from whoever started this process: from the server that it takes the place of, or
//! from systemd.
//!
//! A server starts the one that takes its place with one end of a pair of sockets as its standard
//! input. Nobody else can reach that. What is said on it, a message a line:
//!
//! | who | says | with |
//! |---|---|---|
//! | old | `socket LABEL` | a listening socket |
//! | old | `tickets KEYS`: what opens the tickets that it has sealed | |
//! | old | `all` | |
//! | new | `disk` | if it wants the directory of the disk, of which there is one |
//! | old | `go` | when it has let go of it |
//! | new | `ready`, or `failed WHY` | |
//! | old | `go`: it takes no purges any more, and accepts no longer than it has to | |
//! | new | `purge RULE`, in hexadecimal digits, as often as there is one while the old one ends | |
//! | old | `purged`, when that counts there too | |
//!
//! When the pair is closed on the old one's side, that one has ended.

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

use crate::tls::Tickets;

/// Set for a process that is to take another one's place.
pub(crate) const VARIABLE: &str = "MICROCACHE_TAKES_OVER";
/// How long either side waits for the other one's next word. The new one reads its configuration and
/// takes up its disk meanwhile.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Before the keys of tickets.
pub(crate) const TICKETS: &str = "tickets ";
/// The longest message.
pub(crate) const LONGEST: usize = 4096;

/// One end of the pair.
pub(crate) struct Line(OwnedFd);

impl Line {
    /// An end for this process, and one for the other.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        Ok((Self::of(ours)?, theirs))
    }

    pub(crate) fn of(end: OwnedFd) -> io::Result<Self> {
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&end, direction, Some(PATIENCE))?;
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

    /// The next message; `None` at the end.
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

    /// Has the other side take as long as it likes for its next word.
    pub(crate) fn wait_for_ever(&self) {
        let _ = set_socket_timeout(&self.0, Timeout::Recv, None);
    }
}

/// What a process is handed at its start.
#[derive(Default)]
pub struct Inherited {
    /// What each is for, as the configuration has it, or where it listens.
    sockets: Vec<(String, TcpListener)>,
    predecessor: Option<Line>,
}

/// What a socket is for: clients who connect to this address of the configuration.
pub(crate) fn label(scheme: Scheme, wanted: SocketAddr) -> String {
    match scheme {
        Scheme::Http => wanted.to_string(),
        Scheme::Https => format!("tls {wanted}"),
    }
}

/// The socket of the interface for operators.
const ADMIN: &str = "admin";

impl Inherited {
    /// What there is for this process. To be called once, at its start.
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
        let line = Line::of(io::stdin().as_fd().try_clone_to_owned()?)?;
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
        // The end of the pair is held once only, so that the other side hears when it is let go of.
        let nothing = std::fs::File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        Ok(Self {
            sockets,
            predecessor: Some(line),
        })
    }

    /// The sockets for clients who connect to this address of the configuration.
    pub(crate) fn take(&mut self, scheme: Scheme, wanted: SocketAddr) -> Vec<TcpListener> {
        // Whoever else hands a socket over knows its address only.
        let label = if self.takes_over() {
            label(scheme, wanted)
        } else {
            wanted.to_string()
        };
        self.take_labelled(&label)
    }

    /// The socket of the interface for operators, which connect to this address of the configuration.
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

    /// Where sockets listen that nobody has taken.
    pub(crate) fn left(&self) -> Vec<&str> {
        self.sockets
            .iter()
            .map(|(label, _)| label.as_str())
            .collect()
    }

    /// Whether it takes the place of another server.
    pub fn takes_over(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Tells whose place it was to take why it does not.
    pub fn failed(&self, why: &str) {
        if let Some(line) = &self.predecessor {
            // If that has gone there is nobody to tell.
            let _ = line.say(&format!("failed {why}"), None);
        }
    }

    /// Has the other one let go of the directory of the disk.
    pub(crate) fn ask_for_disk(&self) -> io::Result<()> {
        let Some(line) = &self.predecessor else {
            return Ok(());
        };
        line.say("disk", None)?;
        match line.hear()? {
            Some((text, _)) if text == "go" => Ok(()),
            _ => Err(io::Error::other("the server before did not let go of it")),
        }
    }

    /// Says that it is about to accept, and waits until it may. Gives the line to the other one, which ends with that.
    pub(crate) fn ready(&mut self) -> Option<Line> {
        let line = self.predecessor.take()?;
        // If that has gone, its place is free all the same.
        let _ = line.say("ready", None).and_then(|()| line.hear());
        Some(line)
    }
}

/// The label of the socket for operators.
pub(crate) fn admin_label(wanted: SocketAddr) -> String {
    format!("{ADMIN} {wanted}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_socket_travels_with_what_it_is_for_and_what_waits_in_it() {
        let (old, new) = Line::pair().expect("a pair");
        let new = Line::of(new).expect("an end");
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
