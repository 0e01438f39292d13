"""The contenders: how each is configured, started and named. Everything runs on loopback out of one temporary directory."""

import getpass
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rig import machine, peers, tls
from rig.errors import RigError
from rig.peers import ROOT
from rig.process import START_LIMIT_SECONDS, Process

COMPARE = ROOT / "compare"
# Valkey where there is one: Debian has it from version 13 on.
REDIS = "valkey-server" if shutil.which("valkey-server") else "redis-server"
PACKAGES = {"nginx": "nginx-light", "varnishd": "varnish", "haproxy": "haproxy", "wrk": "wrk", "gcc": "gcc libc6-dev"}
# Before slow applications Apache is one more.
MICROCACHE_PACKAGES = {**PACKAGES, "apache2": "apache2-bin"}
FIRST_PORT = 21080
COMMIT_LIMIT_SECONDS = 5
# How long one request for a check or for warming may take; the slow applications take seconds when many ask.
PATIENCE_SECONDS = 60
# What each cache may keep, unless a script wants more.
STORE_MEBIBYTES = 1024
# How long a stale response is served while it is refreshed, unless a script wants more; what Microcache does by default.
STALE_SECONDS = 10
# What a server opens beside its clients' connections: connections to the origin, files, listeners, and some to spare.
OTHER_FILES = 4096
# Its small files count as a page of memory each.
NGINX_ROOM = 4
# What makes nginx ask for a response once, and serve the old one meanwhile.
NGINX_COLLAPSING = "proxy_cache_lock on; proxy_cache_use_stale updating error timeout; proxy_cache_background_update on;"
APACHE_MODULES = "/usr/lib/apache2/modules"
APACHE_THREADS = 256
# HAProxy keeps nothing whose lifetime the response does not say.
HAPROXY_LIFETIME = "http-response set-header Cache-Control max-age=1 if !{ res.hdr(Cache-Control) -m found }"
# A hit leaves no line in a log at nginx and HAProxy either; these are all records that a hit would write.
VARNISH_SILENT = ",".join(f"-{record}" for record in (
    "Begin End Link SessOpen SessClose Timestamp ReqStart ReqMethod ReqURL ReqProtocol ReqHeader ReqUnset ReqAcct VCL_call VCL_return "
    "Hit RespProtocol RespStatus RespReason RespHeader RespUnset").split())


class Server:
    """One running server."""

    def __init__(self, name, process, port, secure=False):
        self.name, self.process, self.port, self.secure = name, process, port, secure
        self.url = f"{'https' if secure else 'http'}://127.0.0.1:{port}"

    def get(self, path, method="GET", fields=None):
        """The body that one request gets, on a connection of its own."""
        return self.answer(path, method, fields)[0]

    def answer(self, path, method="GET", fields=None):
        """The same with the Cache-Status that comes with it, if any."""
        if self.secure:
            # The certificate is made for the run, and nobody's.
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS, context=ssl._create_unverified_context())
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, headers=fields or {})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise RigError(f"{self.name}: {method} {path}: {error!r}\n{self.process.last_words()}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise RigError(f"{self.name}: {method} {path} gave {response.status}\n{self.process.last_words()}")
        return body, response.getheader("Cache-Status", "")


class Rig:
    """The directory, the ports, the programs and the origin that all contenders share."""

    def __init__(self, sizes, connections, first_port=FIRST_PORT):
        """With sizes, the floor is the origin; without them the script sets `origin` to an application."""
        self.sizes, self.next_port = [str(size) for size in sizes], first_port
        self.floor_answers, self.connections = self.sizes, connections
        self.server_core, self.load_core = machine.cores()
        self.file_limit = machine.raise_file_limit(connections + OTHER_FILES)
        self.microcache = self.origin = None
        self.stale_seconds = STALE_SECONDS
        self.store_mebibytes = STORE_MEBIBYTES
        self.secure = False
        self.commands = {}
        self.stack = ExitStack()

    def __enter__(self):
        with ExitStack() as stack:
            self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
            self.directory.chmod(0o755)  # servers that drop their rights still have to get in
            if self.sizes:
                self.floor = self.directory / "floor"
                run(["gcc", "-O2", "-Wall", "-pthread", "-o", self.floor, COMPARE / "floor.c"])
                self.origin = self.start(stack, "origin", {self.load_core}, lambda _, port: [self.floor, "-p", port, "-o", *self.sizes])
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def port(self):
        """The next port, from a range below the one the kernel gives to clients; in use is told, not worked around."""
        port, self.next_port = self.next_port, self.next_port + 1
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise RigError(f"port {port} is not free ({error.strerror}); is another run still going?") from error
        return port

    def speak_tls(self):
        """Has the contenders speak TLS from now on, and everything that uses OpenSSL offer and take the same."""
        os.environ["OPENSSL_CONF"] = str(tls.make_certificate(self.directory))
        self.secure = True

    def files(self):
        """A directory with the bodies as files, for the peers without a cache."""
        files = self.directory / "files"
        if not files.exists():
            files.mkdir()
            for size in self.sizes:
                (files / size).write_bytes(self.origin.get(f"/{size}"))
        return files

    def origin_requests(self):
        return int(self.origin.get("/count"))

    def note(self, name, command):
        """Keeps a command for the report, without the paths of this machine."""
        text = " ".join(map(str, command)).replace(str(self.directory), "$DIR").replace(str(ROOT) + "/", "")
        if self.microcache:
            text = text.replace(str(self.microcache), "target/release/microcache")
        self.commands.setdefault(name, text)

    def start(self, stack, name, cores, command_for, limit=START_LIMIT_SECONDS, secure=False, is_peer=False):
        """Starts a server that lives as long as `stack`, in a directory and on a port of its own."""
        port, home = self.port(), Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))
        home.chmod(0o755)
        command = command_for(home, port)
        self.note(name, command)
        process = stack.enter_context(Process(name, peers.command(command) if is_peer else command, cores, home / "log"))
        process.wait_for_port(port, limit)
        return Server(name, process, port, secure)

    @contextmanager
    def running(self, names, threads, cores, contenders=None):
        """Starts the named contenders, gives them as a list, and stops them at the end of the block."""
        contenders = contenders or CONTENDERS
        with ExitStack() as stack:
            yield [self.start(stack, name, cores, partial(contenders[name], self, stack, threads=threads), secure=self.secure, is_peer=True)
                   for name in names]

    def check(self, server, path, fields=None):
        """The same body as the origin's, and once it has been asked for, an answer without the origin."""
        wanted = self.origin.get(path)
        deadline = time.monotonic() + COMMIT_LIMIT_SECONDS
        while True:
            before = self.origin_requests()
            body = server.get(path, fields=fields)
            asked = self.origin_requests() - before
            if body != wanted:
                raise RigError(f"{server.name}: {path} has another body than the origin's ({len(body)} for {len(wanted)} bytes)")
            if not asked:
                return
            if time.monotonic() > deadline:
                raise RigError(f"{server.name} never answers {path} from its cache")


def build_microcache():
    """Builds the program as a user would, and returns it; CARGO_TARGET_DIR is obeyed."""
    run(["cargo", "build", "--release", "--locked", "--bin", "microcache"], cwd=ROOT)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "microcache"


def run(command, cwd=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise RigError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-4000:]}")


def configured(template, home, **words):
    """Writes a configuration of compare/peers with its @WORDS@ filled in."""
    path = home / template
    path.write_text(filled(COMPARE / "peers" / template, **words))
    return path


def filled(template, **words):
    return re.sub(r"@([A-Z_]+)@", lambda word: str(words[word[1].lower()]), template.read_text())


def floor(rig, _stack, _home, port, threads):
    return [rig.floor, "-p", port, "-t", threads, *rig.floor_answers]


def microcache(rig, _stack, _home, port, threads):
    return [rig.microcache, "--admin", "off", *microcache_address(rig, port), "--threads", threads, "--memory", f"{rig.store_mebibytes}MiB", rig.origin.url]


def microcache_address(rig, port):
    """Where it listens; what it has to be told besides if that is for TLS."""
    if not rig.secure:
        return ["--listen", f"127.0.0.1:{port}"]
    return ["--listen", f"127.0.0.1:{rig.port()}", "--tls-listen", f"127.0.0.1:{port}",
            "--tls", f"{rig.directory}/certificate.pem,{rig.directory}/key.pem"]


def nginx_tls(rig):
    """The words of its templates that are about TLS."""
    if not rig.secure:
        return {"protocols": "", "secrets": ""}
    secrets = f"ssl_certificate {rig.directory}/certificate.pem; ssl_certificate_key {rig.directory}/key.pem; ssl_protocols TLSv1.2 TLSv1.3;"
    return {"protocols": " ssl http2", "secrets": secrets}


def nginx(rig, stack, home, port, threads, collapsing=NGINX_COLLAPSING, beside=None):
    cache = Path(tempfile.mkdtemp(prefix="compare-nginx-", dir=beside or machine.fast_directory(home)))
    stack.callback(shutil.rmtree, cache, ignore_errors=True)
    path = configured("nginx.conf", home, user=getpass.getuser(), threads=threads, dir=home, cache=cache, origin=rig.origin.port,
                      port=port, collapsing=collapsing, **nginx_tls(rig), files=rig.file_limit, store=NGINX_ROOM * rig.store_mebibytes, keys=rig.store_mebibytes // 8,
                      open_files=min(150_000, rig.file_limit - rig.connections - OTHER_FILES))
    return ["nginx", "-p", home, "-c", path]


def nginx_fastcgi(rig, stack, home, port, threads):
    """nginx that runs PHP itself, and caches what it says."""
    cache = Path(tempfile.mkdtemp(prefix="compare-nginx-", dir=machine.fast_directory(home)))
    stack.callback(shutil.rmtree, cache, ignore_errors=True)
    path = configured("nginx-fastcgi.conf", home, user=getpass.getuser(), threads=threads, dir=home, cache=cache, port=port, files=rig.file_limit,
                      store=NGINX_ROOM * rig.store_mebibytes, site=rig.origin.site, socket=rig.origin.socket)
    return ["nginx", "-p", home, "-c", path]


def varnish(rig, _stack, home, port, threads):
    path = configured("varnish.vcl", home, origin=rig.origin.port, cookies=configured("varnish-cookies.vcl", home), grace=rig.stale_seconds)
    most_threads = max(1000, rig.connections // 2)  # a thread per ready connection; one per open connection is slower
    return ["varnishd", "-F", "-n", home / "work", "-a", f"127.0.0.1:{port}", "-f", path, "-s", f"malloc,{rig.store_mebibytes}m",
            "-p", f"thread_pools={threads}", "-p", "thread_pool_min=200", "-p", f"thread_pool_max={most_threads}",
            "-p", f"thread_queue_limit={rig.connections + OTHER_FILES}",
            "-p", f"vsl_mask={VARNISH_SILENT}"]


def apache(rig, stack, home, port, threads):
    cache = Path(tempfile.mkdtemp(prefix="compare-apache-", dir=machine.fast_directory(home)))
    stack.callback(shutil.rmtree, cache, ignore_errors=True)
    user = "User www-data" if os.geteuid() == 0 else ""
    cache.chmod(0o777)  # it gives up its rights, as Apache must where it is started by root
    path = configured("apache.conf", home, dir=home, user=user, modules=APACHE_MODULES, threads=threads, workers=threads * APACHE_THREADS,
                      per_process=APACHE_THREADS, port=port, cache=cache, origin=rig.origin.port)
    return ["apache2", "-D", "FOREGROUND", "-f", path]


def squid(rig, _stack, home, port, threads):
    """Always one thread: its workers are processes, each with memory of its own."""
    path = configured("squid.conf", home, dir=home, port=port, origin=rig.origin.port, store=rig.store_mebibytes, files=rig.file_limit)
    home.chmod(0o777)  # it gives up its rights where it is started by root
    return ["squid", "-N", "-f", path]


def haproxy(rig, _stack, home, port, threads, rules=""):
    return ["haproxy", "-db", "-f", configured("haproxy.cfg", home, threads=threads, port=port, origin=rig.origin.port, rules=rules, store=rig.store_mebibytes,
                                        secrets=f" ssl crt {rig.directory}/both.pem alpn h2,http/1.1" if rig.secure else "",
                                        connections=rig.connections + OTHER_FILES)]


def waited(server):
    """How many requests found nothing in Microcache and waited for the origin; it says so when it stops."""
    farewell = re.search(r"stopped after .*", server.process.last_words())
    if not farewell:
        raise RigError(f"Microcache did not say what it did:\n{server.process.last_words()}")
    return sum(map(int, re.findall(r"(\d+) (?:miss|collapsed)\b", farewell[0])))


def microcache_as_it_is(rig, _stack, _home, port, threads):
    """Default settings; only a longer stale window is told."""
    window = [] if rig.stale_seconds == STALE_SECONDS else ["--stale-while-revalidate", f"{rig.stale_seconds}s"]
    return [rig.microcache, "--admin", "off", "--listen", f"127.0.0.1:{port}", *window, rig.origin.url]


def microcache_fastcgi(rig, _stack, _home, port, threads):
    """The same for an application in PHP, with as many requests at a time as it has workers."""
    return [rig.microcache, "--admin", "off", "--listen", f"127.0.0.1:{port}", "--php", rig.origin.site, "--php-socket", rig.origin.socket,
            "--max-concurrent", rig.origin.workers]


# In the order of the tables.
CONTENDERS = {"microcache": microcache, "floor": floor, "nginx": nginx, "haproxy": haproxy, "varnish": varnish}
# In front of applications that say nothing about caching: each keeps a response for a second, in its own way.
MICROCACHES = {
    "microcache": microcache_as_it_is, "nginx-naive": partial(nginx, collapsing=""), "nginx": nginx, "varnish": varnish,
    "haproxy": partial(haproxy, rules=HAPROXY_LIFETIME), "apache": apache}
# In front of php-fpm itself, without a web server behind them.
PHP_MICROCACHES = {"microcache-fastcgi": microcache_fastcgi, "nginx-fastcgi": nginx_fastcgi}
VERSIONS = {
    **peers.VERSIONS, "microcache": ["git", "describe", "--always", "--dirty"], "wrk": ["wrk", "-v"], "gcc": ["gcc", "--version"], "rustc": ["rustc", "--version"],
    "siege": ["siege", "--version"], "java": ["java", "-version"], "ab": ["ab", "-V"], "php": ["php", "-v"],
    "pushpin": ["pushpin", "--version"],
    "mariadb": ["mariadbd", "--version"], "memcached": ["memcached", "-V"], "redis": [REDIS, "--version"],
    "h2o": ["h2o", "--version"], "h2load": ["h2load", "--version"], "openssl": ["openssl", "version"]}


def version(name):
    """The first line with a number that a program prints about itself, and its source: siege begins with others."""
    words = VERSIONS[name]
    try:
        done = subprocess.run(peers.command(words), cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return "unknown", peers.source(words)
    lines = (line for line in (done.stdout + done.stderr).splitlines() if any(map(str.isdigit, line)))
    return next(lines, "unknown").strip(), peers.source(words)
