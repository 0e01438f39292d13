//! Configurations from a URL, flags and a file.

use std::time::Duration;

use microcache_policy::Separator;

use super::super::*;
use super::{FILE, read};

#[test]
fn one_url_is_enough() {
    let config = Config::read(Input {
        urls: &["http://localhost:3000".to_owned()],
        ..Input::default()
    })
    .unwrap();
    assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert!(config.threads >= 1);
    assert_eq!(config.memory, 256 << 20);
    assert_eq!(config.upstreams.len(), 1);
    let server = &config.upstreams[0].servers[0];
    assert_eq!(server.address.to_string(), "localhost:3000");
    assert_eq!(config.routes.len(), 1);
    assert!(config.routes[0].matcher.is_everything());
    assert_eq!(config.hit_for_miss, 2000);
    assert_eq!(config.stale_wait, 2000);
    assert_eq!(config.limits.head_bytes, 32 << 10);
    assert_eq!(config.limits.max_connections, None);
    assert_eq!(config.timeouts.idle, Duration::from_secs(75));
}

#[test]
fn the_tables_and_the_crates_agree_on_defaults() {
    let config = read("origin = \"http://a\"");
    assert_eq!(config.routes[0].rules, microcache_policy::Rules::default());
    let group = &config.upstreams[0];
    let expected = GroupSettings::new("origin", group.servers.clone());
    assert_eq!(group, &expected);
    let config = read("origin = \"http://a\"\nhealth_check = {}");
    let expected = crate::upstream::settings::HealthCheck::default();
    assert_eq!(config.upstreams[0].health, Some(expected));
}

#[test]
fn lists_on_the_command_line_take_commas() {
    let owned = |texts: &[&str]| {
        texts
            .iter()
            .map(|&text| text.to_owned())
            .collect::<Vec<_>>()
    };
    let config = Config::read(Input {
        urls: &owned(&["http://a,http://b:81", "http://c"]),
        flags: &[
            ("listen", owned(&["127.0.0.1:1, [::1]:2", "127.0.0.1:3"])),
            ("trusted_proxies", owned(&["10.0.0.0/8,::1"])),
            ("memcached", owned(&["a:11211,b:11211"])),
            ("ignore_cookies", owned(&["theme,b_*"])),
            ("targeted", owned(&["A-Control,B-Control"])),
            ("tag_fields", owned(&["X-A=space,X-B,XKEY"])),
            (
                "bypass",
                owned(&["header:Accept=a,b,cookie:c, query:d=e,f"]),
            ),
        ],
        ..Input::default()
    });
    let config = config.unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(config.listen.len(), 3);
    assert_eq!(config.upstreams[0].servers.len(), 3);
    assert_eq!(config.trusted_proxies.len(), 2);
    assert_eq!(config.tiers.memcached.len(), 2);
    let rules = &config.routes[0].rules;
    let is_ignored = |name: &str| rules.cookies_ignored.matches(name.as_bytes());
    assert!(is_ignored("theme") && is_ignored("b_x"));
    assert_eq!(rules.targeted, ["A-Control", "B-Control"]);
    let tag_fields = rules.tag_fields.iter();
    let tag_fields = tag_fields.map(|field| (field.name.as_str(), field.separator));
    let expected = [
        ("X-A", Separator::Space),
        ("X-B", Separator::Comma),
        ("XKEY", Separator::CommaOrSpace),
    ];
    assert_eq!(tag_fields.collect::<Vec<_>>(), expected);
    let values: Vec<_> = config.routes[0]
        .bypass
        .iter()
        .map(|one| one.value.as_deref())
        .collect();
    assert_eq!(values, [Some("a,b"), None, Some("e,f")]);
    // A password may have a comma.
    let config = Config::read(Input {
        urls: &owned(&["http://a"]),
        flags: &[("redis", owned(&["redis://u:p,w@a,rediss://b,unix:///c,d"]))],
        ..Input::default()
    });
    let redis = config
        .unwrap_or_else(|report| panic!("{report}"))
        .tiers
        .redis;
    assert_eq!(redis, ["redis://u:p,w@a", "rediss://b", "unix:///c,d"]);
}

#[test]
fn flags_override_the_file() {
    let input = Input {
        file: Some((
            FILE,
            "origin = \"http://a\"\nlisten = \"0.0.0.0:1\"\nttl = \"5s\"\nstale_if_error = \"1h\"\nthreads = 7\n\
             [[routes]]\nmatch = { path = \"/a\" }\nttl = \"7s\"",
        )),
        urls: &["http://b".to_owned(), "http://c:81".to_owned()],
        flags: &[
            ("ttl", vec!["3s".to_owned()]),
            (
                "listen",
                vec!["127.0.0.1:2".to_owned(), "127.0.0.1:3".to_owned()],
            ),
            ("threads", vec!["2".to_owned()]),
            ("max_concurrent", vec!["5".to_owned()]),
        ],
    };
    let config = Config::read(input).unwrap();
    let addresses: Vec<_> = config.upstreams[0]
        .servers
        .iter()
        .map(|server| server.address.to_string())
        .collect();
    assert_eq!(addresses, ["b:80", "c:81"]);
    assert_eq!(config.upstreams[0].max_concurrent, 5);
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.threads, 2);
    assert_eq!(
        config.routes[0].rules.ttl, 7000,
        "a route's own word is the nearest"
    );
    assert_eq!(config.routes[1].rules.ttl, 3000);
    assert_eq!(config.routes[1].rules.stale_if_error, 3_600_000);
}

#[test]
fn bad_flags_are_named() {
    let report = Config::read(Input {
        file: None,
        urls: &["localhost:3000".to_owned()],
        flags: &[
            ("ttl", vec!["1 sec".to_owned()]),
            ("threads", vec!["many".to_owned()]),
            ("listen", vec!["8080".to_owned()]),
        ],
    })
    .unwrap_err();
    assert_eq!(report.count(), 4);
    assert_eq!(
        report.to_string(),
        "--listen: cannot use \"8080\"; write an IP address and a port: 127.0.0.1:8080 for this machine only, \
         0.0.0.0:8080 for all\n\
         --threads: expected a number from 1 to 1024, found many\n\
         --ttl: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found \"1 sec\"\n\
         origin: cannot use \"localhost:3000\"; write http://localhost:3000"
    );
}

#[test]
fn with_acme_the_default_addresses_are_ports_80_and_443() {
    let of = |text: &str| {
        let config = read(&format!("origin = \"http://a\"\n{text}"));
        let ports = |all: &[SocketAddr]| all.iter().map(SocketAddr::port).collect::<Vec<_>>();
        let tls = &config.tls;
        (ports(&config.listen), ports(&tls.listen), tls.secure_port())
    };
    let (all, none) = (vec![80], Vec::new());
    assert_eq!(
        of("acme = \"a.example\""),
        (all.clone(), vec![443], Some(443))
    );
    let said = "acme = \"a.example\"\nredirect_http = false";
    assert_eq!(of(said), (all, vec![443], None));
    let said = "acme = \"a.example\"\nlisten = \"127.0.0.1:81\"";
    assert_eq!(of(said), (vec![81], vec![443], None));
    let said = "acme = \"a.example\"\ntls_listen = \"127.0.0.1:444\"";
    assert_eq!(of(said), (vec![8080], vec![444], None));
    assert_eq!(of("tls = \"a.pem\""), (vec![8080], vec![8443], None));
    assert_eq!(of(""), (vec![8080], none, None));
    let names =
        "acme = [\"Shop.Example.\", \"xn--bcher-kva.example\", \"192.0.2.1\", \"[2001:DB8::1]\"]";
    let read = read(&format!("origin = \"http://a\"\n{names}"));
    let names = [
        "shop.example",
        "xn--bcher-kva.example",
        "192.0.2.1",
        "2001:db8::1",
    ];
    assert_eq!(read.acme.names, names);
    assert!(read.acme.directory.starts_with("https://acme-v02."));
}

#[test]
fn without_an_origin_the_error_has_a_remedy() {
    let report = Config::read(Input::default()).unwrap_err().to_string();
    assert_eq!(
        report,
        "origin: missing; type the URL of the application: microcache http://localhost:3000"
    );
    let report = Config::read(Input {
        file: Some((FILE, "ttl = \"1s\"")),
        ..Input::default()
    });
    let report = report.unwrap_err().to_string();
    assert!(
        report.contains("add origin = \"http://localhost:3000\""),
        "{report}"
    );
}

#[test]
fn the_sample_loads_as_it_is_and_with_every_setting_switched_on() {
    let sample = sample();
    read(&sample);
    let switched_on: String = sample
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // Of two such sets there can be one.
    let this_process = ["push_directory", "push_sync", "push_forward_auth"];
    let redis = [
        "push_redis",
        "push_redis_cluster",
        "push_redis_ca",
        "push_forward_auth",
    ];
    for (other, others) in [("memcached", &this_process[..]), ("redis", &redis)] {
        let is_other = |line: &&str| {
            let name = line.split(" = ").next().unwrap_or_default();
            name == other || others.contains(&name)
        };
        let without: Vec<&str> = switched_on.lines().filter(|line| !is_other(line)).collect();
        let without = without.join("\n");
        let config = read(&without);
        // One of them is the authentication server.
        assert_eq!(config.upstreams.len(), 3);
        // Six of them are those of the Mercure hub, the documents, the watch endpoint and the scripts.
        assert_eq!(config.routes.len(), 13);
    }
    for about in options::top_level() {
        let setting = format!("\n{} = ", about.name);
        assert!(
            switched_on.contains(&setting),
            "{} is not in the sample",
            about.name
        );
    }
}
