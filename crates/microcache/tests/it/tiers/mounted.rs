//! A disk that is really full, and one that is really read-only: a small file system of the process's own,
//! which goes with it.
//!
//! A container may forbid mounting, and a chroot the namespaces that mounting is made of. There the process
//! is kept from making its files any longer instead: writing fails, reading and removing do not. Parts that
//! cannot be tested so are reported.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::lasting;
use crate::support::{Folder, Origin, Proxy, Reply, eventually, left_out, noise};

/// Goes to memory, and to the disk in one piece.
const SMALL: usize = 10_000;
/// Memory takes bodies of 64 KiB, so that this one lies on the disk alone.
const LARGE: usize = 200_000;

/// How writing is made to fail.
#[derive(Clone, Copy)]
enum Means {
    /// A file system of the process's own: the arguments of `unshare`.
    Mounts(&'static [&'static str]),
    /// A limit on the size of its files.
    Limit,
}

/// The best that can be had here. In a chroot the root is no mount of its own, whose propagation could be
/// changed; a user other than root becomes root in a user namespace, where the system has such.
fn means() -> Means {
    static FOUND: OnceLock<Means> = OnceLock::new();
    const WAYS: [&[&str]; 4] = [
        &["--mount"],
        &["--mount", "--propagation", "unchanged"],
        &["--map-root-user", "--mount"],
        &["--map-root-user", "--mount", "--propagation", "unchanged"],
    ];
    *FOUND.get_or_init(|| {
        let folder = Folder::new();
        let script = format!("{MOUNT} && umount \"$0\"");
        let works = |way: &&&[&str]| {
            let mut trial = Command::new("unshare");
            trial.args(**way).args(["sh", "-c", &script]);
            is_done(trial.arg(folder.path()).stderr(Stdio::null()))
        };
        let mut ways = WAYS.iter();
        ways.find(works)
            .map_or(Means::Limit, |way| Means::Mounts(way))
    })
}

/// Mounts a file system of 8 MiB.
const MOUNT: &str = "mount -t tmpfs -o size=8m,mode=700 tmpfs \"$0\"";

fn is_done(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// The process on a file system of 8 MiB that no other process sees; or with a limit on its files.
struct Mounted {
    means: Means,
    proxy: Proxy,
    folder: Folder,
}

impl Mounted {
    fn start(origin: &Origin) -> Self {
        Self::with(origin, "4MiB")
    }

    /// With so much of it for the tier.
    fn with(origin: &Origin, capacity: &str) -> Self {
        Self::running(origin, |path| {
            let disk = format!("{path},{capacity}");
            ["--memory", "1MiB", "--disk", &disk]
                .map(str::to_owned)
                .into()
        })
    }

    /// With flags that name the directory.
    fn running(origin: &Origin, flags: impl FnOnce(&str) -> Vec<String>) -> Self {
        let folder = Folder::new();
        let path = folder.as_str();
        let mount = format!("{MOUNT} && exec \"$@\"");
        let means = means();
        let own = match means {
            Means::Mounts(way) => [&["unshare"], way, &["sh", "-c", &mount, path]].concat(),
            // What would end the process is ignored: then the write fails, as on a full disk.
            Means::Limit => vec!["sh", "-c", "trap '' XFSZ && exec \"$@\"", "sh"],
        };
        let flags = flags(path);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let proxy = Proxy::through(&own, origin, &flags);
        Self {
            means,
            proxy,
            folder,
        }
    }

    /// The directory, as this process gets there.
    fn path(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.proxy.pid());
        let inside = self.folder.path().strip_prefix("/").expect("a whole path");
        PathBuf::from(root).join(inside)
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Leaves not a byte free. Says what the system will say.
    fn fill(&self) -> &'static str {
        if let Means::Limit = self.means {
            left_out(
                "a disk that is full (this system lets nobody mount one): files could not grow instead",
            );
            return self.limit_files();
        }
        let mut filler = fs::File::create(self.filler()).expect("a file");
        for size in [64 * 1024, 4096, 1] {
            let piece = vec![0; size];
            let error = loop {
                if let Err(error) = filler.write_all(&piece) {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
        "No space left on device"
    }

    fn make_room(&self) {
        match self.means {
            Means::Mounts(_) => fs::remove_file(self.filler()).expect("it is there"),
            Means::Limit => self.set_limit("unlimited"),
        }
    }

    /// Has the file system read only. Returns the system's words for that.
    fn make_read_only(&self) -> &'static str {
        let Means::Mounts(way) = self.means else {
            left_out(
                "a disk that is read-only (this system lets nobody mount one): files could not grow instead",
            );
            return self.limit_files();
        };
        // Not while a file is being written.
        eventually("no file to be open for writing", || {
            self.try_run(way, "mount -o remount,bind,ro \"$0\"")
                .then_some(())
        });
        let error = fs::File::create(self.filler()).expect_err("it is read-only");
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        "Read-only file system"
    }

    fn make_writable(&self) {
        match self.means {
            Means::Mounts(way) => {
                assert!(self.try_run(way, "mount -o remount,bind,rw \"$0\""));
            }
            Means::Limit => self.set_limit("unlimited"),
        }
    }

    /// Lets no file have a byte more than it has.
    fn limit_files(&self) -> &'static str {
        self.set_limit("0");
        "File too large"
    }

    fn set_limit(&self, most: &str) {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &self.proxy.pid().to_string()]);
        // The colon leaves the hard limit as it is.
        assert!(is_done(prlimit.arg(format!("--fsize={most}:"))), "{most}");
    }

    /// Runs a script among the process's mounts. Returns whether it succeeded.
    fn try_run(&self, way: &[&str], script: &str) -> bool {
        let user: &[&str] = match way[0] {
            "--map-root-user" => &["--user", "--preserve-credentials"],
            _ => &[],
        };
        let pid = self.proxy.pid().to_string();
        let mut enter = Command::new("nsenter");
        enter
            .args(["--target", &pid, "--mount", "--root", "--wd"])
            .args(user);
        enter.args(["sh", "-c", script]).arg(self.folder.path());
        is_done(enter.stderr(Stdio::null()))
    }
}

impl Drop for Mounted {
    /// Where propagation could not be changed, the mounts may be visible to all.
    fn drop(&mut self) {
        if let Means::Mounts(["--mount", "--propagation", ..]) = self.means {
            while is_own_mount(self.folder.path())
                && is_done(Command::new("umount").arg("-l").arg(self.folder.path()))
            {}
        }
    }
}

/// Whether another file system begins here.
fn is_own_mount(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
    path.parent()
        .is_some_and(|parent| device(parent) != device(path))
}

/// Asks for new pages of this size until the condition holds. Every answer is whole.
fn ask_until(mounted: &Mounted, origin: &Origin, length: usize, says: &str) {
    let mut page = 0;
    eventually(says, || {
        page += 1;
        let target = format!("/{length}/{}/{page}", says.replace(' ', "-"));
        let body = noise(length, page);
        origin.on(&target).reply(lasting(&body));
        let answer = mounted.proxy.get(&target);
        assert!(answer.status == 200 && answer.body == body, "{target}");
        mounted.proxy.output().contains(says).then_some(())
    });
}

/// Asks for a page until the disk has taken it: nothing else can answer a second time.
fn assert_taken(mounted: &Mounted, origin: &Origin, target: &str) {
    let body = noise(LARGE, 1);
    origin.on(target).reply(lasting(&body));
    eventually("the disk to take the page", || {
        let answer = mounted.proxy.get(target);
        assert!(answer.body == body);
        answer.is_hit().then_some(())
    });
}

const OVER: &str = "microcache: disk: in service again";

#[test]
fn a_full_disk_is_done_without_and_used_again_when_there_is_room() {
    for length in [SMALL, LARGE] {
        let origin = Origin::start();
        let mounted = Mounted::start(&origin);
        assert_taken(&mounted, &origin, "/before");
        let trouble = format!("microcache: disk: writing: {}", mounted.fill());
        ask_until(&mounted, &origin, length, &trouble);
        let known = mounted.proxy.get("/before");
        known.assert_hit();
        assert!(
            known.body == noise(LARGE, 1),
            "what was there is still read"
        );

        mounted.make_room();
        ask_until(&mounted, &origin, SMALL, OVER);
        assert_taken(&mounted, &origin, "/after");
    }
}

#[test]
fn a_limit_above_the_disk_is_reported_at_the_start() {
    let origin = Origin::start();
    let reported = |capacity: &str| {
        let output = Mounted::with(&origin, capacity).proxy.output();
        match means() {
            Means::Mounts(_) => output.contains("is on a file system of 8 MiB, less than the"),
            Means::Limit => output.contains("is on a file system of "),
        }
    };
    let beyond = match means() {
        Means::Mounts(_) => "64MiB",
        Means::Limit => "1048576GiB",
    };
    assert!(reported(beyond));
    assert!(!reported("4MiB"));
}

#[test]
fn a_disk_that_becomes_read_only_is_still_read_and_later_written_again() {
    let origin = Origin::start();
    let mounted = Mounted::start(&origin);
    assert_taken(&mounted, &origin, "/before");
    assert_taken(&mounted, &origin, "/changed");
    let trouble = format!("microcache: disk: writing: {}", mounted.make_read_only());
    ask_until(&mounted, &origin, SMALL, &trouble);
    mounted.proxy.get("/before").assert_hit();
    // What a request makes invalid is not used any more, though it cannot be removed.
    let new = noise(LARGE, 2);
    let page = new.clone();
    origin
        .on("/changed")
        .answer(move |seen| match &*seen.method {
            "POST" => Reply::new(200).body("done"),
            _ => lasting(&page),
        });
    let post = mounted
        .proxy
        .send("POST", "/changed", &["Content-Length: 0"]);
    post.assert_is(200, "done");
    assert!(mounted.proxy.get("/changed").body == new);

    mounted.make_writable();
    ask_until(&mounted, &origin, SMALL, OVER);
    assert_taken(&mounted, &origin, "/after");
    assert!(mounted.proxy.get("/changed").body == new);
}

#[test]
fn an_access_log_on_a_full_disk_counts_lost_lines_and_continues_when_there_is_room() {
    let origin = Origin::start();
    origin.on("/").reply(lasting("x"));
    let mut mounted = Mounted::running(&origin, |path| {
        let log = format!("{path}/access.log");
        ["--access-log", &log, "--log-buffer", "64KiB"]
            .map(str::to_owned)
            .into()
    });
    let mut client = mounted.proxy.connect();
    let mut requested = 0;
    let mut ask = || {
        requested += 1;
        assert_eq!(client.get("/").status, 200);
    };
    ask();
    let log = mounted.path().join("access.log");
    let length = || fs::metadata(&log).map_or(0, |data| data.len());
    eventually("the first line", || (length() > 0).then_some(()));
    let trouble = format!(": {}", mounted.fill());
    let output = || mounted.proxy.output();
    // What is left of a page of memory takes a part of a line.
    eventually("the disk to be full", || {
        ask();
        output().contains(&trouble).then_some(())
    });
    eventually("lines to be lost", || {
        ask();
        output().contains("is too slow").then_some(())
    });
    mounted.make_room();
    let again = "works again";
    eventually(again, || output().contains(again).then_some(()));
    ask();
    assert_eq!(output().matches(&trouble).count(), 1, "{}", output());
    // With the process goes its file system.
    let log = fs::File::open(&log).expect("a log");
    mounted.proxy.terminate();
    assert!(mounted.proxy.wait().success());
    let text = std::io::read_to_string(log).expect("text");
    assert!(text.ends_with('\n'));
    let is_whole = |line: &str| line.starts_with("127.0.0.1 - - [") && line.ends_with('"');
    assert!(text.lines().all(is_whole), "no line is torn");
    let output = mounted.proxy.output();
    let lost = output
        .lines()
        .rfind(|line| line.contains("log: not written to "));
    let lost = lost.expect("it says so").split(' ').rev().nth(1);
    let lost: usize = lost.expect("a number").parse().expect("a number");
    assert_eq!(text.lines().count() + lost, requested);
}
