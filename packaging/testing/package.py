"""The Debian package: how it is made, installed, started, upgraded, removed."""

import os
import re
import shlex
import subprocess

from testing.machine import LIMIT_SECONDS, ROOT, Application, Notified, answers, ask, ends_well, is_cached, need, run, until

HERE = ROOT / "packaging"
# systemd-analyze tells ten times this. The guide names the figure.
EXPOSURE = 1.5
GUIDE = ROOT / "docs/install.md"
CONFIG = "etc/microcache/microcache.toml"
ORIGIN, PORT = 3000, 8080
ADMIN = 8081


def built(machine, folder="package"):
    """The package, which all tests have together; packed faster than for users."""
    folder = machine.folder / folder
    if not folder.exists():
        run(HERE / "debian/build", machine.binary, folder, env={**os.environ, "COMPRESSION": "gzip"})
    return next(folder.glob("*.deb"))


def is_reproducible(machine):
    assert built(machine).read_bytes() == built(machine, "package-again").read_bytes(), "two packages of one program differ"


def is_clean(machine):
    need("lintian")
    said = run("lintian", "--allow-root", "--fail-on", "none", built(machine))
    found = [line for line in said.splitlines() if re.match("[EW]: ", line)]
    assert not found, "\n".join(found)


def install(machine):
    """Installs it, and gives what it has put where."""
    deb = machine.root / "tmp/microcache.deb"
    deb.write_bytes(built(machine).read_bytes())
    machine.do("dpkg", "--install", "/tmp/microcache.deb")
    return machine.do("dpkg", "--listfiles", "microcache").split()


def is_sandboxed(machine):
    """How much the unit leaves open, by systemd's own reckoning, which the guide repeats; and nothing in it that systemd does not know."""
    need("systemd-analyze")
    install(machine)
    units = "/usr/lib/systemd/system"
    said = machine.do("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE * 10:.0f}", f"{units}/microcache.service")
    figure = re.search(r"Overall exposure level for microcache.service: ([0-9.]+)", said)[1]
    assert float(figure) == EXPOSURE, said
    assert f"`{EXPOSURE}`" in GUIDE.read_text(), f"{GUIDE} does not say {EXPOSURE}"
    said = machine.do("systemd-analyze", "verify", f"{units}/microcache.service", f"{units}/microcache.socket")
    assert "microcache" not in said, said


def exec_start(machine):
    unit = (machine.root / "usr/lib/systemd/system/microcache.service").read_text()
    return shlex.split(re.search("^ExecStart=(.*)$", unit, re.MULTILINE)[1])


def as_the_unit_does(machine, *before):
    """Its command line, by the user of the unit, without any right but the one that the unit gives."""
    rights = ["--reuid=microcache", "--regid=microcache", "--clear-groups", "--no-new-privs", "--bounding-set=-all,+net_bind_service",
              "--inh-caps=-all,+net_bind_service", "--ambient-caps=-all,+net_bind_service"]
    return ["chroot", machine.root, *before, "setpriv", *rights, *exec_start(machine)]


def installs_and_starts(machine):
    """The user, the manual, completions; a start that says when it is ready, a page from the cache, an end."""
    files = install(machine)
    machine.do("getent", "passwd", "microcache")
    for name in ("microcache.1", "microcache-purge.1"):
        assert f"/usr/share/man/man1/{name}.gz" in files, files
    assert "/usr/share/microcache/wordpress/microcache.php" in files, files
    if which(machine, "groff"):
        manual = machine.do("sh", "-c", "zcat /usr/share/man/man1/microcache.1.gz | groff -man -Tutf8 -P-cbou -ww -rLL=120n")
        assert "--stale-while-revalidate" in manual and "warning:" not in manual, manual
    completed = machine.do("bash", "-c", """
        source /usr/share/bash-completion/completions/microcache
        COMP_WORDS=(microcache pur) COMP_CWORD=1
        _microcache microcache pur microcache
        echo "${COMPREPLY[@]}" """)
    assert completed.split() == ["purge"], completed

    notified = Notified(machine.root / "tmp/notify")
    with Application(ORIGIN):
        server = machine.start(as_the_unit_does(machine), env={**os.environ, "NOTIFY_SOCKET": "/tmp/notify"})
        notified.wait_for("READY=1")
        is_cached(PORT)
        machine.do("microcache", "stats")
        assert ask(ADMIN, "/v1/ready")[0] == 200
        said = ends_well(server)
        notified.wait_for("STOPPING=1")
    assert "microcache stopped after" in said, said


def process_id(machine):
    """Of the only microcache in these namespaces."""
    return int(run("pgrep", "--exact", "microcache"))


def which(machine, program):
    return subprocess.run(["chroot", machine.root, "which", program], capture_output=True).returncode == 0


def calls_what_its_unit_allows(machine):
    """A refused call need not end a server, so the filter of its unit is held against all that it is seen to call."""
    need("systemd-analyze")
    need("strace")
    install(machine)
    seen = machine.root / "tmp/calls"
    disk = machine.root / "var/cache/microcache"
    disk.mkdir(parents=True, exist_ok=True)
    machine.do("chown", "microcache:", "/var/cache/microcache")
    trace = ["strace", "--follow-forks", "--summary-only", "--summary-columns=name", "--output=/tmp/calls"]
    with Application(ORIGIN):
        server = machine.start([*as_the_unit_does(machine, *trace), "--disk", "/var/cache/microcache,64MiB"])
        until(lambda: answers(PORT), server)
        is_cached(PORT)
        machine.do("microcache", "purge", "--all")
        run("kill", "-TERM", str(process_id(machine)))
        server.wait(timeout=LIMIT_SECONDS)
    calls = {line for line in seen.read_text().split() if re.fullmatch("[a-z_0-9]+", line)} - {"syscall", "total"}
    assert "epoll_wait" in calls or "epoll_pwait" in calls, calls
    # What setpriv and the start of a program call comes before the filter of a unit is in force.
    refused = calls - allowed() - {"setresuid", "setresgid", "setgroups", "capset"}
    assert not refused, f"its unit does not allow {refused}"


def allowed():
    """The system calls of the unit's filter."""
    unit = (HERE / "systemd/microcache.service").read_text()
    names = set()
    for line in re.findall("^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        words = members(line.lstrip("~").split())
        names = names - words if line.startswith("~") else names | words
    return names | members(["@default"])


def members(words):
    """What is in these groups, and in the groups in them."""
    names = set()
    for word in words:
        if not word.startswith("@"):
            names.add(word)
            continue
        said = run("systemd-analyze", "syscall-filter", word)
        names |= members([line.strip() for line in said.splitlines() if line.startswith("    ") and not line.strip().startswith("#")])
    return names


def upgrades_and_goes(machine):
    """What the operator wrote outlives an upgrade and a removal, and nothing outlives a purge but the user."""
    files = install(machine)
    config = machine.root / CONFIG
    config.write_text('origin = "http://mine"\n')
    install(machine)
    assert config.read_text() == 'origin = "http://mine"\n'
    machine.do("dpkg", "--remove", "microcache")
    assert config.exists() and not (machine.root / "usr/bin/microcache").exists()
    cache = machine.root / "var/cache/microcache"
    cache.mkdir(exist_ok=True)
    machine.do("dpkg", "--purge", "microcache")
    left = [name for name in files if (machine.root / name.lstrip("/")).is_file() or "microcache" in name and (machine.root / name.lstrip("/")).exists()]
    assert not left and not cache.exists() and not config.exists(), left
    machine.do("getent", "passwd", "microcache")
