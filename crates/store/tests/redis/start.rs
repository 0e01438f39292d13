//! Invalid addresses, and authentication by servers.

use std::time::Duration;

use bytes::Bytes;
use microcache_store::redis::{ClientCertificate, Redis, RedisSettings};
use microcache_store::{Claim, PutOutcome, SharedTier, Tier};
use microcache_testkit::{Folder, WAIT_TIMEOUT, eventually_async, free_port};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

use crate::announcements::{is_end_announced, is_subscribed};
use crate::server::Server;
use crate::shared_log::append;
use crate::{body, id, in_service, pair, put, settings, start};

/// Starts a tier with invalid settings and compares the error message.
pub(crate) async fn refuse(settings: RedisSettings, expected: &str) {
    match Redis::start(settings, &Handle::current()).await {
        Ok(redis) => panic!("{redis:?}"),
        Err(error) => {
            let said = error.to_string();
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains("secret") && !said.contains('\n'), "{said}");
        }
    }
}

/// Permissions of a user, as documented, without those for announcements.
const RULES: &str = "on >secret ~mc1:* ~mcl1:* -@all +ping +getrange +set +unlink +scan +evalsha +eval +strlen +get \
                     +del +setrange +pexpire +pttl +xadd +xrange +xrevrange +time";
const FOR_ANNOUNCEMENTS: &str = "&mc1:* &mcl1:* +sadd +smembers +publish +subscribe";

/// Server with a user `cache` that has these permissions.
fn with_user(rules: &str) -> Server {
    let mut arguments = vec!["--requirepass", "other", "--user", "cache", "resetchannels"];
    arguments.extend(rules.split_whitespace());
    Server::start(&arguments)
}

#[tokio::test]
async fn a_user_of_the_servers_own_list() {
    let server = with_user(&format!("{RULES} {FOR_ANNOUNCEMENTS}"));
    let at = format!("127.0.0.1:{}", server.port());

    let redis = start(settings(&format!("redis://cache:secret@{at}"))).await;
    is_subscribed(&redis).await;
    assert_eq!(redis.stats().advice, Vec::<String>::new());
    let other = start(settings(&format!("redis://cache:secret@{at}"))).await;
    assert!(is_end_announced((&other, &redis), id(2), WAIT_TIMEOUT).await);
    let token = crate::win(&redis, id(1)).await;
    redis.release(id(1), token).await.unwrap();
    let token = crate::win(&redis, id(1)).await;
    assert_eq!(
        put(&redis, id(1), "body", Some(token)).await,
        PutOutcome::Stored
    );
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("body"));
    for (from, to) in [("head", "next"), ("next", "a longer one")] {
        let (from, to) = (Bytes::from(from), Bytes::from(to));
        let renewed = redis.renew(id(1), from, to, crate::HOUR, None).await;
        assert_eq!(renewed, Ok(PutOutcome::Stored));
    }
    redis.remove(id(1)).await.unwrap();
    let record = Bytes::from_static(b"record");
    let reported = redis.append_to_log(0, vec![record.clone()], record).await;
    assert_eq!(reported, Ok(()));
    assert!(redis.read_log(0, 0, Bytes::new()).await.is_ok());
    assert!(!format!("{redis:?}").contains("secret"));

    let refused = "invalid username or password";
    refuse(settings(&format!("redis://cache:secret2@{at}")), refused).await;
    refuse(settings(&format!("redis://:secret@{at}")), refused).await;
    refuse(settings(&format!("redis://{at}")), "password required").await;
}

/// A user from before there were announcements.
#[tokio::test]
async fn without_permission_for_announcements_the_tier_works_and_says_so() {
    let server = with_user(RULES);
    let url = format!("redis://cache:secret@127.0.0.1:{}", server.port());
    let redis = start(settings(&url)).await;
    eventually_async("both remarks", async || redis.stats().advice.len() == 2).await;
    let advice = redis.stats().advice.join("\n");
    for part in [
        "SADD, SMEMBERS, PUBLISH",
        "+sadd +smembers +publish ~mc1:*",
        "+subscribe &mc1:*",
    ] {
        assert!(advice.contains(part), "{advice}");
    }
    let token = crate::win(&redis, id(1)).await;
    assert_eq!(
        crate::ask(&redis, id(1), crate::HOUR).await,
        Claim::HeldElsewhere
    );
    assert_eq!(
        put(&redis, id(1), "body", Some(token)).await,
        PutOutcome::Stored
    );
    append(&*redis, &["a"]).await;
    assert!(redis.claim_end(id(1)).is_none() && redis.log_news(0).is_none());
}

#[tokio::test]
async fn a_server_without_a_command_is_refused_with_the_remedy() {
    for (missing, says) in [
        (
            "-xadd -pttl",
            "does not know or permit PTTL, XADD (for an ACL user: +pttl +xadd ~mc1:*",
        ),
        (
            "-eval",
            "does not know or permit EVAL (for an ACL user: +eval +evalsha ~mc1:*",
        ),
        ("-evalsha", "does not know or permit EVAL"),
        (
            "resetkeys ~mc1:*",
            "permit XADD, XRANGE, XREVRANGE, DEL (for",
        ),
    ] {
        let server = with_user(&format!("{RULES} {FOR_ANNOUNCEMENTS} {missing}"));
        let url = format!("redis://cache:secret@127.0.0.1:{}", server.port());
        refuse(settings(&url), says).await;
    }
}

#[tokio::test]
async fn a_memory_policy_that_loses_purges_is_reported() {
    let server = Server::start(&["--maxmemory", "100mb"]);
    let redis = start(settings(&server.address())).await;
    let advice = redis.stats().advice;
    assert!(
        advice[0].contains("maxmemory-policy noeviction: "),
        "{advice:?}"
    );
}

#[tokio::test]
async fn a_database_and_a_path() {
    let folder = Folder::new();
    let path = folder.file("socket");
    let server = Server::start(&["--unixsocket", &path]);
    let redis = start(settings(&format!("unix://{path}?db=3"))).await;
    assert_eq!(put(&redis, id(1), "body", None).await, PutOutcome::Stored);
    let other = start(settings(&server.address())).await;
    assert_eq!(body(&other, id(1)).await, None);
    let same = start(settings(&format!("{}/3", server.address()))).await;
    assert_eq!(body(&same, id(1)).await.as_deref(), Some("body"));
    refuse(settings(&format!("{}/300", server.address())), "database").await;
}

#[tokio::test]
async fn unknown_names() {
    refuse(
        settings("redis://no-such-host.invalid"),
        "cannot resolve no-such-host.invalid: ",
    )
    .await;
}

#[tokio::test]
async fn servers_that_are_not_redis() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    refuse(settings(&url), "not a Redis server").await;
}

#[tokio::test]
async fn a_server_that_is_no_cluster() {
    let server = Server::start(&[]);
    let cluster = RedisSettings {
        cluster: true,
        ..settings(&server.address())
    };
    refuse(cluster, "cluster support disabled").await;
}

#[tokio::test]
async fn a_server_that_is_not_there_yet() {
    let port = free_port();
    let redis = start(settings(&format!("redis://127.0.0.1:{port}"))).await;
    assert!(redis.get(id(1)).await.is_err());
    let degraded = redis.stats().degraded;
    assert!(
        degraded[0].contains(&format!("127.0.0.1:{port}: ")),
        "{degraded:?}"
    );
    let _server = Server::start_at(port);
    in_service(&redis).await;
    assert_eq!(put(&redis, id(1), "body", None).await, PutOutcome::Stored);
}

/// Transient: other clients may leave, or the limit may be raised.
#[tokio::test]
async fn a_server_that_has_too_many_clients() {
    let server = Server::start(&["--maxclients", "3"]);
    let at = ("127.0.0.1", server.port());
    let mut others = Vec::new();
    while others.len() < 3 {
        let mut other = TcpStream::connect(at).await.unwrap();
        other.write_all(b"PING\r\n").await.unwrap();
        let mut answer = [0; 5];
        let _ = other.read_exact(&mut answer).await;
        // The connection that checks the server may still be open.
        if &answer == b"+PONG" {
            others.push(other);
        }
    }
    let redis = start(settings(&server.address())).await;
    let degraded = redis.stats().degraded;
    assert!(
        degraded[0].contains("max number of clients"),
        "{degraded:?}"
    );
    drop(others);
    in_service(&redis).await;
    assert_eq!(put(&redis, id(1), "body", None).await, PutOutcome::Stored);
}

#[tokio::test]
async fn a_server_that_accepts_and_is_silent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let connect_deadline = Duration::from_millis(50);
    let redis = start(RedisSettings {
        connect_deadline,
        ..settings(&url)
    })
    .await;
    assert!(redis.stats().degraded[0].contains("response timeout"));
}

#[tokio::test]
async fn connections_end_with_the_tier() {
    let (server, redis) = pair().await;
    let count = || server.say::<String>("CLIENT LIST").lines().count();
    assert!(count() > 2);
    drop(redis);
    // The server answers this on a separate connection.
    eventually_async("only this connection", async || count() == 1).await;
}

/// CA, and a certificate for this machine signed by it, in PEM.
struct Certificates {
    authority: String,
    chain: String,
    key: String,
}

impl Certificates {
    fn make() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        // With the subject of the CA it would look self-signed.
        params
            .distinguished_name
            .push(DnType::CommonName, "this machine");
        let certificate = params.signed_by(&key, &authority).unwrap();
        Self {
            authority: authority.pem(),
            chain: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

#[tokio::test]
async fn tls_with_certificates_on_both_sides() {
    let certificates = Certificates::make();
    let folder = Folder::new();
    let authority = folder.write("authority", &certificates.authority);
    let chain = folder.write("chain", &certificates.chain);
    let key = folder.write("key", &certificates.key);
    let port = free_port();
    let port_text = port.to_string();
    let _server = Server::start(&[
        "--tls-port",
        &port_text,
        "--tls-ca-cert-file",
        &authority,
        "--tls-cert-file",
        &chain,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        "yes",
    ]);
    let secure = RedisSettings {
        authorities: Some(certificates.authority.clone().into()),
        certificate: Some(ClientCertificate {
            chain: certificates.chain.clone().into(),
            key: certificates.key.clone().into(),
        }),
        ..settings(&format!("rediss://127.0.0.1:{port}"))
    };
    let redis = start(secure.clone()).await;
    assert_eq!(redis.stats().degraded, Vec::<String>::new());
    assert_eq!(put(&redis, id(1), "body", None).await, PutOutcome::Stored);
    assert_eq!(body(&redis, id(1)).await.as_deref(), Some("body"));

    let stranger = Certificates::make().authority;
    let wrong = RedisSettings {
        authorities: Some(stranger.into()),
        ..secure.clone()
    };
    refuse(wrong, "TLS: invalid peer certificate").await;
    let without = RedisSettings {
        certificate: None,
        ..secure
    };
    refuse(without, "TLS: received fatal alert").await;
}

/// Takes the input for the beginning of a command, and waits for the rest.
#[tokio::test]
async fn tls_with_a_server_that_does_without() {
    let server = Server::start(&[]);
    let certificates = Certificates::make();
    let secure = RedisSettings {
        authorities: Some(certificates.authority.into()),
        connect_deadline: Duration::from_millis(100),
        ..settings(&server.address().replace("redis:", "rediss:"))
    };
    let redis = start(secure).await;
    assert!(redis.stats().degraded[0].contains("response timeout"));
}
