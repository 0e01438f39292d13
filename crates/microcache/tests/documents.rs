//! The documents, held against what there is: paths, links, flags, commands, configurations, and
//! what `Cache-Status` can say.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use microcache_policy::Detail;
use microcache_policy::tracking::TRACKING_PARAMETERS;
use microcache_testkit::Folder;

/// The documents outside of `docs`.
const BESIDE: [&str; 6] = [
    "README.md",
    "SECURITY.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "crates/client/README.md",
];

/// What `check` warns of in a configuration of a document, which says beside it where that is right.
const WARNED_OF: [(&str, &str); 6] = [
    ("docs/operations.md", "`*` ignores a cookie"),
    ("docs/edge.md", "woocommerce_"),
    ("docs/guides/wordpress.md", "ignores a cookie"),
    ("docs/guides/django.md", "csrftoken"),
    ("docs/guides/laravel.md", "laravel_session"),
    ("docs/guides/laravel.md", "XSRF-TOKEN"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every document by path, with its text.
fn documents() -> Vec<(String, String)> {
    let mut paths: Vec<String> = BESIDE.map(str::to_owned).into();
    add_documents("docs", &mut paths);
    let texts = paths.into_iter().map(|path| (path.clone(), read(&path)));
    texts.collect()
}

/// Those in a folder, and in the folders in it.
fn add_documents(folder: &str, paths: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).expect("there is such a folder") {
        let entry = entry.expect("an entry");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            add_documents(&path, paths);
        } else if Path::new(&path).extension().is_some_and(|end| end == "md") {
            paths.push(path);
        }
    }
}

/// The text between `open` and `close`, wherever that stands.
fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(open)
        .skip(1)
        .filter_map(move |rest| rest.split_once(close).map(|(inner, _)| inner))
}

/// The blocks of code in this language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fenced = text.split("```").skip(1).step_by(2);
    fenced
        .filter_map(|block| block.split_once('\n'))
        .filter(|(name, _)| *name == language)
        .map(|(_, code)| code)
        .collect()
}

/// What stands in backticks within a line.
fn code_spans(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose
        .flat_map(str::lines)
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// The shell's lines: whole blocks of `sh`, and what follows a prompt.
fn commands(text: &str) -> Vec<&str> {
    let typed = blocks(text, "console")
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("$ "));
    let scripts = blocks(text, "sh").into_iter().flat_map(str::lines);
    typed.chain(scripts).chain(code_spans(text)).collect()
}

fn microcache(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

#[test]
fn every_path_that_the_architecture_names_exists() {
    let text = read("ARCHITECTURE.md");
    let is_path = |span: &&str| span.contains('/') && !span.contains([' ', ':']);
    let named: BTreeSet<&str> = code_spans(&text).into_iter().filter(is_path).collect();
    assert!(named.len() > 20, "{named:?}");
    for path in named {
        assert!(root().join(path).exists(), "{path} does not exist");
    }
    for member in fs::read_dir(root().join("crates")).expect("there are crates") {
        let name = member.expect("an entry").file_name();
        let path = format!("crates/{}", name.to_string_lossy());
        assert!(text.contains(&path), "{path} is not in ARCHITECTURE.md");
    }
}

#[test]
fn every_link_leads_somewhere() {
    for (path, text) in documents() {
        let folder = root().join(&path);
        let folder = folder.parent().expect("a document is in a folder");
        let links = between(&text, "](", ")").filter(|link| !link.starts_with("http"));
        for link in links {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => root().join(&path),
                file => folder.join(file),
            };
            assert!(target.exists(), "{path}: {link} does not exist");
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).expect("a document");
                let found = headings(&text).any(|slug| slug == heading);
                assert!(found, "{path}: {link} has no such heading");
            }
        }
    }
}

/// The names by which headings are linked.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
}

#[test]
fn every_flag_is_one() {
    let mut known: BTreeSet<String> = ["--config", "--sample", "--reference", "--version"]
        .map(str::to_owned)
        .into();
    known.extend(flags_of(&["--help"]));
    for job in JOBS {
        known.extend(flags_of(&[job, "--help"]));
    }
    known.insert("--help".to_owned());
    let mut seen = 0;
    for (path, text) in documents() {
        for command in commands(&text) {
            let ours = match command.split_once("-- ") {
                Some((cargo, ours)) if cargo.starts_with("cargo run") => ours,
                _ if ["cargo", "compare/", "docker ", "kubectl "]
                    .iter()
                    .any(|other| command.starts_with(other)) =>
                {
                    continue;
                }
                _ if command.contains("microcache --") => command,
                _ if command.starts_with("--") => command,
                _ => continue,
            };
            for word in ours.split_whitespace().filter(|w| w.starts_with("--")) {
                seen += 1;
                let flag = word.split('=').next().unwrap_or(word);
                assert!(known.contains(flag), "{path}: {flag} in `{command}`");
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

/// What the program does beside serving.
const JOBS: [&str; 18] = [
    "bench",
    "check",
    "completions",
    "config",
    "demo",
    "drain",
    "entries",
    "explain",
    "fetch",
    "maintenance",
    "man",
    "origin",
    "purge",
    "reload",
    "stats",
    "top",
    "upgrade",
    "warm",
];

/// The flags in this help.
fn flags_of(arguments: &[&str]) -> BTreeSet<String> {
    let help = String::from_utf8(microcache(arguments).stdout).expect("help is text");
    let words = help.split(|c: char| c.is_whitespace() || matches!(c, ',' | '[' | '=' | '`'));
    let flags = words.filter(|word| word.starts_with("--"));
    flags.map(str::to_owned).collect()
}

/// What the program is called in commands.
const PROGRAM: [&str; 3] = [
    "microcache",
    "/usr/bin/microcache",
    "target/release/microcache",
];

/// Commands of other programs, which may have its name as a word.
const OTHERS: [&str; 3] = ["compare/", "cargo ", "kubectl create "];

/// A flag of one job is none of another.
#[test]
fn every_flag_is_one_of_its_job() {
    let jobs: BTreeMap<&str, _> = JOBS
        .iter()
        .map(|&job| (job, flags_of(&[job, "--help"])))
        .collect();
    let serving = flags_of(&["--help"]);
    let mut seen = 0;
    for (path, text) in documents() {
        for command in commands(&text) {
            if OTHERS.iter().any(|other| command.starts_with(other)) {
                continue;
            }
            let words = command.split_whitespace();
            let words: Vec<&str> = words
                .skip_while(|word| !PROGRAM.contains(word))
                .skip(1)
                .take_while(|word| !word.starts_with(['|', ';', '&', '>', '#']))
                .collect();
            let job = words.iter().find(|word| jobs.contains_key(*word));
            let known = job.map_or(&serving, |job| &jobs[job]);
            for word in words.iter().filter(|word| word.starts_with("--")) {
                let flag = word.split(['=', '`', ',']).next().unwrap_or(word);
                seen += 1;
                let is_known = known.contains(flag) || ["--help", "--version"].contains(&flag);
                assert!(is_known, "{path}: {flag} in `{command}`");
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn every_target_of_make_is_one() {
    let makefile = read("Makefile");
    let mut seen = 0;
    for (path, text) in documents() {
        for command in commands(&text) {
            let Some(rest) = command.strip_prefix("make ") else {
                continue;
            };
            seen += 1;
            let target = rest.split_whitespace().next().unwrap_or_default();
            let rule = format!("\n{target}:");
            assert!(makefile.contains(&rule), "{path}: `make {target}`");
        }
    }
    assert!(seen > 3, "{seen}");
}

#[test]
fn every_configuration_is_fine() {
    let mut seen = 0;
    // The reference is written by the program itself, and its examples are parts.
    let documents = documents().into_iter();
    for (path, text) in documents.filter(|(path, _)| path != "docs/configuration.md") {
        for (number, code) in configurations(&text).into_iter().enumerate() {
            seen += 1;
            check(&code, &path, &format!("{path}, block {number}"));
        }
    }
    assert!(seen > 20, "{seen}");
}

/// The blocks of TOML, and the files that the shell's lines write.
fn configurations(text: &str) -> Vec<String> {
    let blocks = blocks(text, "toml").into_iter().map(str::to_owned);
    let written = blocks_of_the_shell(text).filter_map(|script| {
        let (_, rest) = script.split_once(".toml <<'END'\n")?;
        Some(rest.split_once("\nEND\n")?.0.to_owned())
    });
    blocks.chain(written).collect()
}

fn blocks_of_the_shell(text: &str) -> impl Iterator<Item = &str> {
    blocks(text, "sh").into_iter()
}

/// The lines under the name of a file in a `ConfigMap`, less their indent; and the chart's version is the program's.
#[test]
fn the_configuration_for_kubernetes_is_fine() {
    let place = "packaging/kubernetes.yaml";
    let text = read(place);
    let (_, rest) = text
        .split_once("  microcache.toml: |\n")
        .expect("there is a ConfigMap");
    let lines: Vec<&str> = rest
        .lines()
        .map_while(|line| line.strip_prefix("    "))
        .collect();
    assert!(lines.len() > 5, "{lines:?}");
    check(&lines.join("\n"), place, place);
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("/microcache:{version}\"")));
    let chart = read("packaging/helm/Chart.yaml");
    assert!(chart.contains(&format!("version: {version}\nappVersion: \"{version}\"\n")));
}

/// As it stands, and with each line that it proposes.
#[test]
fn the_configuration_of_the_package_is_fine() {
    let place = "packaging/microcache.toml";
    let text = read(place);
    check(&text, place, place);
    let proposed = |line: &&str| {
        let named = line
            .strip_prefix('#')
            .and_then(|line| line.split_once(" = "));
        named.is_some_and(|(name, _)| !name.contains(' '))
    };
    let lines: Vec<&str> = text.lines().filter(proposed).collect();
    assert!(lines.len() > 2, "{lines:?}");
    for line in lines {
        check(&text.replace(line, &line[1..]), place, line);
    }
}

/// Has the program look at a configuration, in a folder with the files that it names. It may not warn of anything that
/// is not in [`WARNED_OF`]: what a document proposes takes no protection away from visitors.
fn check(configuration: &str, document: &str, place: &str) {
    let folder = Folder::new();
    fs::create_dir(folder.file("site")).expect("a folder");
    for beginning in ["\"/var/www/", "\"/home/"] {
        for path in between(configuration, beginning, "\"") {
            let path = folder.path().join(path);
            if path.extension().is_some() {
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(path, "").expect("a file");
            } else {
                fs::create_dir_all(path).expect("a folder");
            }
        }
    }
    for secret in ["token", "mercure-key", "reader-key"] {
        let file = folder.write(secret, "correct-horse-battery-staple-correct");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("it is ours");
    }
    for page in ["robots.txt", "redirects.txt", "404.html", "5xx.html"] {
        folder.write(page, "# a file of the site\n");
    }
    let user = "ann:$2b$05$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui";
    let users = folder.write("htpasswd", user);
    fs::set_permissions(&users, Permissions::from_mode(0o600)).expect("it is ours");
    let here = format!("\"{}/", folder.as_str());
    let places = [
        "\"/etc/microcache/",
        "\"/run/secrets/microcache/",
        "\"/var/www/",
        "\"/home/",
    ];
    let text = places
        .into_iter()
        .fold(configuration.to_owned(), |text, at| text.replace(at, &here));
    folder.write("file.toml", text);
    let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(["check", "file.toml"])
        .current_dir(folder.path())
        .output()
        .expect("the binary runs");
    let reported = [output.stdout, output.stderr].concat();
    let reported = String::from_utf8_lossy(&reported).into_owned();
    assert!(output.status.success(), "{place}: {reported}");
    let dangers = reported.lines().filter(|line| line.contains("warning: "));
    for danger in dangers {
        let is_known = |(at, what): &(&str, &str)| *at == document && danger.contains(what);
        assert!(WARNED_OF.iter().any(is_known), "{place}: {danger}");
    }
}

/// What stands in the text as a line of a configuration names options that there are.
#[test]
fn every_line_of_a_configuration_names_an_option() {
    let reference = read("docs/configuration.md");
    let mut seen = 0;
    for (path, text) in documents()
        .into_iter()
        .filter(|(path, _)| path.starts_with("docs/"))
    {
        for span in code_spans(&text) {
            let Some((name, value)) = span.split_once(" = ") else {
                continue;
            };
            let is_value =
                value.starts_with(['"', '[', '{', 't', 'f']) || value.parse::<f64>().is_ok();
            let is_name = name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            if !is_value || !is_name {
                continue;
            }
            seen += 1;
            let example = format!("- example: `{name} = ");
            assert!(
                reference.contains(&example),
                "{path}: `{span}` names no option"
            );
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn every_metric_that_is_named_is_one() {
    let source = sources(&root().join("crates/admin/src"));
    let known: BTreeSet<&str> = between(&source, "\"microcache_", "\"").collect();
    assert!(known.len() > 20, "{known:?}");
    let mut seen = 0;
    for (path, text) in documents() {
        let named = blocks(&text, "yaml").into_iter().chain(code_spans(&text));
        // WordPress has actions of such names.
        let named = named.filter(|place| !place.starts_with("do_action("));
        for metric in named.flat_map(|place| place.split("microcache_").skip(1)) {
            let end = metric.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            let metric = &metric[..end.unwrap_or(metric.len())];
            // A histogram is read by its parts.
            let parts = ["_bucket", "_sum", "_count"];
            let family = parts.iter().find_map(|part| metric.strip_suffix(part));
            let is_known = known.contains(metric) || family.is_some_and(|one| known.contains(one));
            assert!(is_known, "{path}: microcache_{metric} is no metric");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// The alerts stand in one place, and the guide names each with its severity.
#[test]
fn every_alert_is_in_the_operators_guide() {
    let rules = read("packaging/prometheus/microcache.rules.yml");
    let alerts: Vec<_> = rules
        .split("- alert: ")
        .skip(1)
        .map(|rule| {
            let name = rule.split_whitespace().next().expect("a name");
            let severity = between(rule, "severity: ", "}").next();
            (name, severity.expect("a severity"))
        })
        .collect();
    assert!(alerts.len() > 5, "{alerts:?}");
    let guide = read("docs/guides/operator.md");
    let rows = guide
        .lines()
        .filter(|line| line.starts_with("| `Microcache"));
    let reported: Vec<_> = rows
        .filter_map(|row| {
            let mut cells = row.split('|').map(str::trim).skip(1);
            Some((cells.next()?.trim_matches('`'), cells.next()?))
        })
        .collect();
    let sorted = |mut all: Vec<_>| {
        all.sort_unstable();
        all
    };
    assert_eq!(sorted(reported), sorted(alerts));
}

/// The text of all sources in a folder.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("there is such a folder");
    let texts = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        match path.extension() {
            _ if path.is_dir() => sources(&path),
            Some(end) if end == "rs" => fs::read_to_string(&path).expect("a source"),
            _ => String::new(),
        }
    });
    texts.collect()
}

#[test]
fn every_option_that_is_named_is_one() {
    let reference = read("docs/configuration.md");
    let operations = read("docs/operations.md");
    let bounds = operations
        .split_once("## Limits and queues")
        .expect("there is such a section")
        .1;
    let mut seen = 0;
    for row in bounds.lines().filter(|line| line.starts_with("| `")) {
        let cell = row.split('|').nth(1).expect("a row has cells");
        for option in code_spans(cell) {
            seen += 1;
            let heading = format!("### `{option}`");
            assert!(reference.contains(&heading), "{option} is no option");
        }
    }
    assert!(seen > 15, "{seen}");
}

/// Tiers, as `Cache-Status` names them.
const TIERS: [&str; 3] = ["disk", "memcached", "redis"];

/// The rows below this head of a table.
fn table_of<'a>(text: &'a str, head: &str) -> &'a str {
    let (_, table) = text.split_once(head).expect("there is a table");
    table.split("\n\n").next().expect("it has an end")
}

#[test]
fn every_detail_of_cache_status_is_explained() {
    let rules = read("docs/caching-rules.md");
    let table = table_of(&rules, "| `detail` | why |");
    let explained: BTreeSet<&str> = between(table, "\n| `", "` |").collect();
    let details = Detail::ALL.iter().map(|detail| detail.as_str());
    assert_eq!(explained, details.chain(TIERS).collect());
}

#[test]
fn every_tracking_parameter_is_documented() {
    let rules = read("docs/caching-rules.md");
    let table = table_of(&rules, "| product | parameters |");
    let documented: BTreeSet<&str> = table.split('`').skip(1).step_by(2).collect();
    assert_eq!(documented, TRACKING_PARAMETERS.iter().copied().collect());
}
