//! Configurations of several files, and their variables.

use std::fs;
use std::path::Path;

use microcache_testkit::Folder;

use super::super::{Config, Input, OptionSource, Plain, Report};

/// Writes these files, of which the first is the main one, and reads them.
fn read(folder: &Path, files: &[(&str, &str)]) -> Result<Config, Report> {
    fs::create_dir_all(folder.join("conf.d")).unwrap();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
    let main = folder.join(files[0].0).display().to_string();
    Config::read(Input {
        file: Some((&main, files[0].1)),
        ..Input::default()
    })
}

/// Returns place, description and remedy of every mistake, without the folder.
fn mistakes(files: &[(&str, &str)]) -> Vec<String> {
    let folder = Folder::new();
    let report = read(folder.path(), files).expect_err("the files are refused");
    let prefix = format!("{}/", folder.path().display());
    let mistakes = report.mistakes();
    mistakes
        .map(|mistake| mistake.to_string().replace(&prefix, ""))
        .collect()
}

#[test]
fn included_files_are_read_in_the_order_of_their_names() {
    let folder = Folder::new();
    let config = read(
        folder.path(),
        &[
            (
                "main.toml",
                "include = [\"conf.d/*.toml\", \"conf.d/b.toml\"]\norigin = \"http://o\"\n\
                 [[routes]]\nname = \"main\"\nmatch = { path = \"/m\" }\n",
            ),
            ("conf.d/b.toml", "[[routes]]\nname = \"b\"\nmatch = { path = \"/b\" }\n"),
            (
                "conf.d/a.toml",
                "ttl = \"7s\"\n[[routes]]\nname = \"a\"\nupstream = \"a\"\nmatch = { path = \"/a\" }\n\
                 [upstreams.a]\nservers = [\"http://a\"]\n",
            ),
            ("conf.d/.a.toml", "nonsense"),
            ("conf.d/a.toml.orig", "nonsense"),
        ],
    )
    .unwrap_or_else(|report| panic!("{report}"));
    let names: Vec<_> = config.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["main", "a", "b", "default"]);
    let groups: Vec<_> = config.upstreams.iter().map(|group| &*group.name).collect();
    assert_eq!(groups, ["origin", "a"]);
    let ttl = config
        .settings
        .options
        .iter()
        .find(|option| option.name == "ttl");
    let OptionSource::File { name, line } = &ttl.unwrap().source else {
        panic!("{ttl:?}");
    };
    assert_eq!(
        (Path::new(name), *line),
        (&*folder.path().join("conf.d/a.toml"), 1)
    );
    assert_eq!(
        config.included_files().len(),
        3,
        "both patterns are watched"
    );
}

#[test]
fn mistakes_name_the_included_file() {
    let found = mistakes(&[
        (
            "main.toml",
            "origin = \"http://o\"\ninclude = [\"conf.d/*.toml\", \"none.toml\", 3]\nttl = \"1s\"\n\
             [upstreams.app]\nservers = [\"http://a\"]\n",
        ),
        (
            "conf.d/a.toml",
            "# é\nttl = \"2s\"\ngrac = 1\ninclude = []\n[upstreams.app]\nservers = [\"http://b\"]\n",
        ),
        ("conf.d/b.toml", "stale_wait = \"2\"\nthreads =\n"),
    ]);
    assert_eq!(
        found,
        [
            "main.toml:2:29: cannot read none.toml: No such file or directory (os error 2)",
            "main.toml:2:42: expected text in quotes, found 3",
            "conf.d/a.toml:2:1: `ttl` is set twice (remove it here or at main.toml:3:1)",
            "conf.d/a.toml:3:1: unknown option `grac` (`microcache config --reference` lists all options)",
            "conf.d/a.toml:4:11: an included file cannot include further files (name them in the `include` of the main file)",
            "conf.d/a.toml:5:12: `app` is set twice (remove it here or at main.toml:4:12)",
            "conf.d/b.toml:1:14: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found \"2\"",
            "conf.d/b.toml:2:10: string values must be quoted, expected literal string",
        ]
    );
}

// Cargo sets these variables for tests.
const NAME: &str = "microcache-proxy";

#[test]
fn variables_stand_for_their_values() {
    let folder = Folder::new();
    let config = read(
        folder.path(),
        &[(
            "main.toml",
            "origin = [\"http://${CARGO_PKG_NAME}:${NO_PORT:-81}\"]\nredis = \"redis://:${CARGO_PKG_NAME}@cache\"\n\
             [[routes]]\nname = \"$${x}\"\n",
        )],
    )
    .unwrap_or_else(|report| panic!("{report}"));
    let server = &config.upstreams[0].servers[0];
    assert_eq!(server.address.to_string(), format!("{NAME}:81"));
    assert_eq!(config.tiers.redis, [format!("redis://:{NAME}@cache")]);
    assert_eq!(config.routes[0].name, "${x}");
    let shown = |name| {
        let mut options = config.settings.options.iter();
        options
            .find(|option| option.name == name)
            .unwrap()
            .value
            .clone()
    };
    let origin = Plain::List(vec![Plain::Text(format!("http://{NAME}:81"))]);
    assert_eq!(shown("origin"), Some(origin));
    let hidden = Plain::Text("redis://******************@cache".to_owned());
    assert_eq!(shown("redis"), Some(hidden));
}

#[test]
fn messages_do_not_contain_the_values_of_variables() {
    let found = mistakes(&[(
        "main.toml",
        "origin = \"http://${NOT_SET}\"\nttl = \"${CARGO_PKG_NAME}\"\nredis = \"redis://${\"\n\
         [[routes]]\nname = \"${CARGO_PKG_NAME}\"\nupstream = \"x${CARGO_PKG_NAME}\"\n\
         [[routes]]\nname = \"${CARGO_PKG_NAME}\"\nmatch = { path = \"/\" }\n",
    )]);
    assert!(found.iter().all(|line| !line.contains(NAME)), "{found:?}");
    assert_eq!(
        found,
        [
            "main.toml:1:18: the environment variable `NOT_SET` is not set \
             (set it where the server is started, or write a default: ${NOT_SET:-VALUE})",
            "main.toml:2:7: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found \"${CARGO_PKG_NAME}\"",
            "main.toml:3:18: `${` begins no variable \
             (write ${NAME} or ${NAME:-DEFAULT}; `$${` stands for the characters `${`)",
            "main.toml:6:12: no upstream group is named \"x${CARGO_PKG_NAME}\" (existing groups: origin)",
            "main.toml:8:8: the name \"${CARGO_PKG_NAME}\" is used by an earlier route",
            "main.toml:9:9: this route is never reached: \"${CARGO_PKG_NAME}\" above matches all of its requests (move it up)",
        ]
    );
}
