//! Connections to a Unix socket, and what to do when there is none.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};

/// Pause before another attempt while the queue of the socket is full.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Connects within `limit`. Where the system refuses at once because the application accepts too slowly, the attempt
/// is repeated, as the system itself does with TCP.
pub(super) async fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let deadline = Instant::now() + limit;
    loop {
        let refused = match timeout_at(deadline, UnixStream::connect(path)).await? {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if refused.kind() != io::ErrorKind::WouldBlock {
            return Err(io::Error::new(refused.kind(), explained(path, &refused)));
        }
        timeout_at(deadline, sleep(FULL_PAUSE)).await?;
    }
}

/// Returns the reason for which a socket cannot be used, and the remedy.
fn explained(path: &Path, error: &io::Error) -> String {
    let name = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no socket {name}: start the application, or compare the path with the one it listens on"
        ),
        io::ErrorKind::PermissionDenied => format!("permission denied: {}", remedy(path)),
        io::ErrorKind::ConnectionRefused => match std::fs::metadata(path) {
            Ok(about) if !about.file_type().is_socket() => format!("{name} is not a socket"),
            _ => format!("no application listens on the socket {name}: start it"),
        },
        _ => format!("{name}: {error}"),
    }
}

/// Returns the change that lets this process connect: writing to the socket needs a right to it, and reaching it needs
/// one to each directory above.
fn remedy(path: &Path) -> String {
    let name = path.display();
    let uid = rustix::process::geteuid().as_raw();
    match std::fs::metadata(path) {
        Ok(about) => format!(
            "Microcache (user {uid}) may not write to {name} (user {}, group {}, mode {:o}): add its user to that \
             group, and let the application create the socket with mode 660",
            about.uid(),
            about.gid(),
            about.mode() & 0o777
        ),
        Err(_) => format!(
            "Microcache (user {uid}) may not enter a directory of {name}: give its user or group the right to it (x)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use microcache_testkit::Folder;
    use tokio::net::UnixListener;

    const LIMIT: Duration = Duration::from_secs(30);

    async fn refusal(path: &Path) -> String {
        connect(path, LIMIT).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_socket_that_cannot_be_used_is_explained() {
        let folder = Folder::new();
        let path = folder.path().join("app.sock");
        let name = path.display();
        let why = refusal(&path).await;
        assert!(
            why.starts_with(&format!("there is no socket {name}: start")),
            "{why}"
        );
        let listener = UnixListener::bind(&path).unwrap();
        assert!(connect(&path, LIMIT).await.is_ok());
        drop(listener);
        let why = refusal(&path).await;
        assert_eq!(
            why,
            format!("no application listens on the socket {name}: start it")
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(refusal(&path).await, format!("{name} is not a socket"));
    }

    #[test]
    fn a_forbidden_socket_is_named_with_its_group_and_mode() {
        let folder = Folder::new();
        let path = folder.path().join("app.sock");
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let why = explained(&path, &denied);
        assert!(why.contains("may not enter a directory of"), "{why}");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let why = explained(&path, &denied);
        assert!(why.contains("add its user to that group"), "{why}");
    }

    #[tokio::test]
    async fn a_full_socket_is_tried_until_the_time_is_up() {
        let folder = Folder::new();
        let path = folder.path().join("app.sock");
        let socket =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        socket
            .bind(&socket2::SockAddr::unix(&path).unwrap())
            .unwrap();
        socket.listen(0).unwrap();
        let first = connect(&path, LIMIT).await.unwrap();
        let error = connect(&path, Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let waiting = connect(&path, LIMIT);
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("its queue is full"),
            () = tokio::task::yield_now() => {}
        }
        drop(socket.accept().unwrap());
        drop(first);
        assert!(waiting.await.is_ok());
    }
}
