//! A disk that is really full, and one that is really read-only: a small file system of the
//! process's own, which goes with it.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use super::{Folder, lasting, noise};
use crate::support::{Origin, Proxy, Reply, eventually};

/// Goes to memory, and to the disk in one piece.
const SMALL: usize = 10_000;
/// Memory takes bodies of 64 KiB, so that this one lies on the disk alone.
const LARGE: usize = 200_000;

/// The process on a file system of 8 MiB that nobody else sees.
struct Mounted {
    proxy: Proxy,
    folder: Folder,
}

impl Mounted {
    fn start(origin: &Origin) -> Self {
        Self::with(origin, "4MiB")
    }

    /// With so much of it for the tier.
    fn with(origin: &Origin, capacity: &str) -> Self {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).expect("a folder");
        let path = folder.0.to_str().expect("text");
        let mount = "mount -t tmpfs -o size=8m,mode=700 tmpfs \"$0\" && exec \"$@\"";
        let own = [&["unshare"], own_mounts(), &["sh", "-c", mount, path]].concat();
        let disk = format!("{path},{capacity}");
        let flags = ["--memory", "1MiB", "--disk", &disk];
        let proxy = Proxy::through(&own, origin, &flags);
        Self { proxy, folder }
    }

    /// The directory, as this process gets there.
    fn path(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.proxy.pid());
        let inside = self.folder.0.strip_prefix("/").expect("a whole path");
        PathBuf::from(root).join(inside)
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Leaves not a byte free.
    fn fill(&self) {
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
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it is there");
    }

    /// Puts the same directory over itself, to be read only.
    fn make_read_only(&self) {
        self.run("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"");
        let error = fs::File::create(self.filler()).expect_err("it is read-only");
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    }

    fn make_writable(&self) {
        self.run("umount \"$0\"");
    }

    fn run(&self, script: &str) {
        let pid = self.proxy.pid().to_string();
        let enter = ["--target", &pid];
        let status = Command::new("nsenter")
            .args(enter)
            .args(same_mounts())
            .args(["sh", "-c", script])
            .arg(&self.folder.0)
            .status();
        assert!(status.expect("nsenter runs").success(), "{script}");
    }
}

/// Whoever is not root is it in a namespace of users, where the system has such.
fn own_mounts() -> &'static [&'static str] {
    if is_root() {
        &["--mount"]
    } else {
        &["--map-root-user", "--mount"]
    }
}

fn same_mounts() -> &'static [&'static str] {
    if is_root() {
        &["--mount"]
    } else {
        &["--user", "--preserve-credentials", "--mount"]
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("a process").uid() == 0
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

const OVER: &str = "microcache: disk: in order again";

#[test]
fn a_full_disk_is_done_without_and_used_again_when_there_is_room() {
    for length in [SMALL, LARGE] {
        let origin = Origin::start();
        let mounted = Mounted::start(&origin);
        assert_taken(&mounted, &origin, "/before");
        mounted.fill();
        let trouble = "microcache: disk: writing: No space left on device";
        ask_until(&mounted, &origin, length, trouble);
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
fn a_bound_beyond_the_disk_is_told_at_the_start() {
    let origin = Origin::start();
    let told = |mounted: &Mounted| mounted.proxy.output().contains("a file system of 8 MiB");
    assert!(told(&Mounted::with(&origin, "64MiB")));
    assert!(!told(&Mounted::start(&origin)));
}

#[test]
fn a_disk_that_becomes_read_only_is_still_read_and_later_written_again() {
    let origin = Origin::start();
    let mounted = Mounted::start(&origin);
    assert_taken(&mounted, &origin, "/before");
    assert_taken(&mounted, &origin, "/changed");
    mounted.make_read_only();
    let trouble = "microcache: disk: writing: Read-only file system";
    ask_until(&mounted, &origin, SMALL, trouble);
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
