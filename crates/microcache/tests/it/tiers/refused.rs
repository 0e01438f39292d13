//! Mistakes in the options of tiers are reported before anything starts.

use std::process::Command;

use crate::support::config_file;

fn check(option: &str, says: &str) {
    let path = config_file(&format!("origin = \"http://a\"\n{option}\n"));
    let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .arg("check")
        .arg(&path)
        .output()
        .expect("the binary runs");
    let reported = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{option}: {reported}");
    let line = 1 + option.lines().count();
    assert!(
        reported.contains(&format!(":{line}:")),
        "{option}: {reported}"
    );
    assert!(reported.contains("1 mistake"), "{option}: {reported}");
    assert!(reported.contains(says), "{option}: {reported}");
}

#[test]
fn a_mistake_in_an_option_is_reported_with_its_place() {
    for (option, says) in [
        (
            r#"disk = "/var/cache/microcache""#,
            "a directory and a size",
        ),
        (r#"disk = ",1GiB""#, "a directory and a size"),
        (
            r#"disk = "/var/cache/microcache,much""#,
            "a directory and a size",
        ),
        (
            r#"disk = "/var/cache/microcache,1G""#,
            r#"a directory and a size: "1GiB" or "1GB""#,
        ),
        (
            r#"disk = "/var/cache/microcache,1KiB""#,
            "the size must be from 1MiB",
        ),
        (r"disk = 1", ""),
        (r#"disk_max_object = "1B""#, "1KiB"),
        (r"disk_max_files = 0", "from 1"),
        (r#"disk_lift = "2GiB""#, "1GiB"),
        (
            r#"memcached = ["a:0"]"#,
            "is not a valid address; expected host, host:port or host:port:weight",
        ),
        (r#"memcached = ["a:11211:0"]"#, "is not a valid address"),
        (r#"memcached = ["a b"]"#, "is not a valid address"),
        (r#"memcached_timeout = "0s""#, ""),
        (r#"memcached_max_object = "none""#, ""),
        (
            r#"memcached_pages = "$url""#,
            "not one of $uri, $args, $is_args, $request_uri and $host",
        ),
        (r#"memcached_pages = "page""#, "to distinguish pages"),
        (r#"memcached_pages_type = "html""#, "a media type"),
        (r"redis = 6379", ""),
        (r#"redis_cluster = "yes""#, ""),
        (r"redis_ca = true", ""),
        (r"redis_timeout = 50", ""),
        (r#"redis_max_object = "1B""#, "1KiB"),
        (r#"claim_timeout = "-1s""#, ""),
        (r#"tier_queue = "1KiB""#, "1MiB"),
        (
            "memcached = [\"a\"]\nredis = \"redis://a\"",
            "`memcached` and `redis` cannot be used together",
        ),
        (r#"dsik = "/var/cache,1GiB""#, "did you mean `disk`?"),
    ] {
        check(option, says);
    }
}
