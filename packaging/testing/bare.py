"""The published program alone in a folder: no C library, no shell, no user. As in every container, there is /proc."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import ssl
import struct
import subprocess
import termios

from testing import readme
from testing.machine import LIMIT_SECONDS, Application, answers, ask, ends_well, is_cached, need, run, until
from testing.names import Names

ORIGIN, SECURE, PORT, ADMIN = 3000, 3443, 8080, 8081
NAME_SERVER = "127.0.0.53"
NAMES = {"four.shop.test": ["127.0.0.1"], "six.shop.test": ["::1"], "both.shop.test": ["::1", "127.0.0.1"], "secure.shop.test": ["127.0.0.1"]}
FOUND = ["localhost", "listed", "four.shop.test", "six.shop.test", "both.shop.test", "four"]
# Debian, Fedora and Ubuntu have lines like these.
MODULES = "hosts: files mymachines mdns4_minimal [NOTFOUND=return] resolve [!UNAVAIL=return] dns myhostname\npasswd: systemd files\ngroup: systemd files\n"
# A module that ends the process that loads it.
TRAP = "__attribute__((constructor)) static void end(void) { __builtin_trap(); }"


def root(machine):
    """The folder: the program, and the files that every machine and container has."""
    folder = machine.folder / "bare"
    if not folder.exists():
        for name in ("etc/ssl/certs", "dev", "tmp"):
            (folder / name).mkdir(parents=True)
        shutil.copy(machine.binary, folder / "microcache")
        (folder / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.0.1 listed\n")
        (folder / "etc/resolv.conf").write_text(f"nameserver {NAME_SERVER}\nsearch shop.test\noptions attempts:1 timeout:2\n")
        (folder / "dev/null").touch()
        run("mount", "--bind", "/dev/null", folder / "dev/null")
        # A server finds its own program there, for an upgrade.
        (folder / "proc").mkdir()
        run("mount", "--bind", "/proc", folder / "proc")
    return folder


def in_it(folder, *arguments):
    return [shutil.which("chroot"), folder, "/microcache", *arguments]


def started(machine, folder, *arguments):
    """A server, which answers."""
    server = machine.start(in_it(folder, "--listen", f"127.0.0.1:{PORT}", *arguments), env={})
    until(lambda: answers(ADMIN, "/v1/ready"), server)
    return server


def runs_the_example(machine):
    """Nothing but the program: README's example."""
    readme.works(machine, in_it(root(machine)))


def fetch(folder, url, *arguments):
    """The exit status of `microcache fetch`, and what it printed."""
    done = subprocess.run([str(word) for word in in_it(folder, "fetch", "--cache", "/tmp/fetched", *arguments, url)], env={}, capture_output=True, text=True,
                          timeout=LIMIT_SECONDS)
    return done.returncode, done.stdout + done.stderr


def finds_names(machine):
    """By /etc/hosts and DNS, IPv4 and IPv6, with search domains: without /etc/nsswitch.conf, and with one that names modules, absent or harmful."""
    folder = root(machine)
    switch = folder / "etc/nsswitch.conf"
    with Application(ORIGIN), Application(ORIGIN, "::1"), Names(NAMES, NAME_SERVER):
        finds_all(folder, "no-switch")
        switch.write_text(MODULES)
        finds_all(folder, "no-modules")
        set_traps(machine, folder)
        finds_all(folder, "traps")
        server = started(machine, folder, f"http://four.shop.test:{ORIGIN}")
        is_cached(PORT)
        ends_well(server)
        switch.unlink()


def finds_all(folder, case):
    for name in FOUND:
        status, said = fetch(folder, f"http://{name}:{ORIGIN}/{case}")
        assert (status, said) == (0, "a page"), f"{name}, {case}: {status} {said}"
    status, said = fetch(folder, f"http://missing.shop.test:{ORIGIN}/{case}")
    assert 0 < status < 64 and "missing.shop.test" in said, f"{case}: {status} {said}"


def set_traps(machine, folder):
    """Modules that end each program that loads them, where a C library looks for its own."""
    need("cc")
    source, library = machine.folder / "trap.c", machine.folder / "trap.so"
    source.write_text(TRAP)
    run("cc", "-shared", "-nostdlib", "-fPIC", source, "-o", library)
    for place in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        for name in set(re.findall("[a-z0-9_]+", MODULES)) - {"hosts", "passwd", "group"}:
            shutil.copy(library, folder / place / f"libnss_{name}.so.2")


def verifies_certificates(machine):
    """A server with a certificate of an authority in the usual file is trusted, and no other one; as an origin, too."""
    need("openssl")
    folder, made = root(machine), machine.folder / "certificates"
    made.mkdir()
    for name in ("ours", "other"):
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", made / f"{name}.key", "-out", made / f"{name}.pem")
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=secure.shop.test", "-keyout", made / "leaf.key", "-out", made / "leaf.csr")
    (made / "names").write_text("subjectAltName=DNS:secure.shop.test\n")
    run("openssl", "x509", "-req", "-in", made / "leaf.csr", "-CA", made / "ours.pem", "-CAkey", made / "ours.key", "-CAcreateserial", "-days", "2",
        "-extfile", made / "names", "-out", made / "leaf.pem")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made / "leaf.pem", made / "leaf.key")
    trusted, url = folder / "etc/ssl/certs/ca-certificates.crt", f"https://secure.shop.test:{SECURE}/"
    with Application(SECURE, tls=tls), Names(NAMES, NAME_SERVER):
        shutil.copy(made / "other.pem", trusted)
        status, said = fetch(folder, url)
        assert 0 < status < 64 and "certificate" in said.lower(), f"{status} {said}"
        shutil.copy(made / "ours.pem", trusted)
        status, said = fetch(folder, url)
        assert (status, said) == (0, "a page"), f"{status} {said}"
        server = started(machine, folder, url)
        is_cached(PORT)
        ends_well(server)


def is_upgraded(machine):
    """SIGUSR2: another process takes the sockets over and serves, and the old one ends."""
    folder = root(machine)
    with Application(ORIGIN):
        server = started(machine, folder, f"http://localhost:{ORIGIN}")
        is_cached(PORT)
        server.send_signal(signal.SIGUSR2)
        server.wait(timeout=LIMIT_SECONDS)
        assert server.returncode == 0, server.communicate()[0]
        # An orphan, so that it is a child of the first process in these namespaces, which is this one.
        follower = int(run("pgrep", "--exact", "microcache"))
        try:
            is_cached(PORT)
        finally:
            os.kill(follower, signal.SIGTERM)
            _, status = os.waitpid(follower, 0)
        assert status == 0, status


def has_threads_that_free_memory(machine):
    """The allocator looks up how to start threads at run time, which a static C library might not support."""
    folder = root(machine)
    with Application(ORIGIN):
        server = started(machine, folder, f"http://localhost:{ORIGIN}")
        is_cached(PORT)
        until(lambda: "jemalloc_bg_thd" in run("sh", "-c", f"cat /proc/{server.pid}/task/*/comm").split(), server)
        ends_well(server)


def shows_itself_on_a_terminal(machine):
    """`microcache top`, until a key ends it."""
    folder = root(machine)
    with Application(ORIGIN):
        server = started(machine, folder, f"http://localhost:{ORIGIN}")
        is_cached(PORT)
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        top = subprocess.Popen([str(word) for word in in_it(folder, "top")], stdin=its, stdout=its, stderr=its, env={"TERM": "xterm"})
        machine.processes.append(top)
        os.close(its)
        shown = b""
        while b"busiest urls" not in shown:
            assert select.select([ours], [], [], LIMIT_SECONDS)[0], shown
            shown += os.read(ours, 65536)
        os.write(ours, b"q")
        assert top.wait(timeout=LIMIT_SECONDS) == 0
        os.close(ours)
        status = ask(ADMIN, "/v1/ready")[0]
        assert status == 200, status
        ends_well(server)
