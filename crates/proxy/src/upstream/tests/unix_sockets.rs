//! Servers behind a Unix socket.

use microcache_testkit::Folder;
use tokio::net::{UnixListener, UnixStream};

use super::*;
use crate::upstream::{HealthCheck, ServerAddress};

/// A group with a socket in this folder.
fn group(folder: &Folder, change: impl FnOnce(&mut GroupSettings)) -> Arc<Group> {
    let server = ServerSettings::at(ServerAddress::Unix(folder.path().join("app.sock")));
    let mut settings = GroupSettings::new("test", vec![server]);
    change(&mut settings);
    Group::start(settings, Notices::default(), &Arc::default())
}

async fn read_head(stream: &mut UnixStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(within(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn requests_share_a_connection_and_keep_their_host() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.path().join("app.sock")).unwrap();
    let group = group(&folder, |_| {});
    let serving = async {
        let (mut stream, _) = within(listener.accept()).await.unwrap();
        for _ in 0..2 {
            let head = read_head(&mut stream).await;
            assert_eq!(head, "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
            stream.write_all(OK.as_bytes()).await.unwrap();
        }
        stream
    };
    let asking = async {
        for _ in 0..2 {
            assert_eq!(get(&group).await, Ok(got(200, "ok")));
        }
    };
    let (_stream, ()) = tokio::join!(serving, asking);
    assert_eq!(group.snapshot().servers[0].idle, 1);
}

#[tokio::test]
async fn a_socket_that_appears_later_is_used() {
    let folder = Folder::new();
    let group = group(&folder, |_| {});
    let error = get(&group).await.unwrap_err().to_string();
    assert!(error.contains("there is no socket"), "{error}");
    let listener = UnixListener::bind(folder.path().join("app.sock")).unwrap();
    let serving = async {
        let (mut stream, _) = within(listener.accept()).await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(get(&group), serving);
    assert_eq!(answer, Ok(got(200, "ok")));
}

#[tokio::test]
async fn it_is_checked_like_any_server() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.path().join("app.sock")).unwrap();
    let _group = group(&folder, |settings| {
        settings.health = Some(HealthCheck::default());
    });
    let (mut stream, _) = within(listener.accept()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(
        head.starts_with("GET / HTTP/1.1\r\nHost: localhost\r\n"),
        "{head}"
    );
}
