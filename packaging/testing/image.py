"""The image: made without a daemon, and run as an engine would, by a user who has no rights."""

import os

from testing.machine import ROOT, Application, answers, ends_well, is_cached, need, run, until
from testing.names import Names

ORIGIN, PORT = 3000, 8080
NAME = "app.shop.test"
USER = "65532:65532"


def mounted(machine):
    """The file system of the image, built once, unless it is unpacked from an archive: `machine.image`."""
    need("buildah")
    home = machine.folder / "image"
    options = ["--storage-driver", "vfs", "--root", str(home / "images"), "--runroot", str(home / "run")]
    if not home.exists():
        home.mkdir()
        image = machine.image or "microcache:test"
        if not machine.image:
            run(ROOT / "packaging/image/build", machine.binary, image, env={**os.environ, "ENGINE": "buildah", "OPTIONS": " ".join(options)})
        container = run("buildah", *options, "from", *([] if machine.image else ["--pull-never"]), image).split()[-1]
        (home / "root").symlink_to(run("buildah", *options, "mount", container).split()[-1])
        # What an engine mounts into every container.
        run("mount", "--bind", "/proc", made(home / "root/proc"))
        (home / "root/etc/resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1 timeout:2\n")
        (home / "root/etc/hosts").write_text("127.0.0.1 localhost\n")
    return (home / "root").resolve()


def made(folder):
    folder.mkdir(exist_ok=True)
    return folder


def in_it(root, *command):
    """As its user, without any right."""
    return ["setpriv", "--no-new-privs", "--inh-caps=-all", "chroot", f"--userspec={USER}", root, *command]


def runs_for_a_user_without_rights(machine):
    """Its own configuration, its health check, nothing in it that is not needed, nothing that its user could write but the cache."""
    root = mounted(machine)
    files = run("find", root, "-xdev", "-type", "f", "-printf", "%P\\n").splitlines()
    programs = [name for name in files if "bin/" in name]
    assert programs == ["usr/bin/microcache"], programs
    assert "etc/ssl/certs/ca-certificates.crt" in files, files
    with Application(ORIGIN):
        server = machine.start(in_it(root, "/usr/bin/microcache", "--config", "/etc/microcache/microcache.toml", "--disk", "/var/cache/microcache,64MiB"))
        until(lambda: answers(PORT), server)
        is_cached(PORT)
        run(*in_it(root, "/usr/bin/microcache", "stats"))
        ends_well(server)


def finds_names(machine):
    """An application is called by a name there, which only DNS knows."""
    root = mounted(machine)
    with Application(ORIGIN), Names({NAME: ["127.0.0.1"]}):
        server = machine.start(in_it(root, "/usr/bin/microcache", "--listen", f"0.0.0.0:{PORT}", f"http://{NAME}:{ORIGIN}"))
        until(lambda: answers(PORT), server)
        is_cached(PORT)
        ends_well(server)
