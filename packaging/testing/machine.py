"""A copy of this machine that can be written to, in namespaces of its own: its files are seen through an overlay, its network is a loopback."""

import fcntl
import http.client
import http.server
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# The longest that anything here may take before it counts as hanging.
LIMIT_SECONDS = 60
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


class Skipped(Exception):
    """What this machine does not let the test try, and why."""


class Machine:
    """What the tests share: the folder for what they make, and the overlay."""

    def __init__(self, folder, binary):
        self.folder, self.binary = folder, binary
        # An archive of an image that was published; without one, an image is built.
        self.image = None
        self.processes = []
        loopback_up()
        # In memory: not every file system can be the upper one.
        run("mount", "-t", "tmpfs", "tmpfs", folder)
        upper, work, self.root = (folder / name for name in ("upper", "work", "root"))
        for path in (upper, work, self.root):
            path.mkdir()
        run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", self.root)
        for path in ("dev", "proc"):
            run("mount", "--rbind", f"/{path}", self.root / path)

    def do(self, *command, **options):
        """Runs a command in the copy, to its end."""
        return run("chroot", self.root, *command, **options)

    def start(self, command, **options):
        """Starts a process, which ends with the test at the latest."""
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        self.processes.append(process)
        return process

    def stop_all(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.processes.clear()


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT_SECONDS * 10, cwd=options.pop("cwd", ROOT), **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def need(program):
    if not shutil.which(program):
        raise Skipped(f"{program} is not installed")


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def ends_well(process):
    """Ends a process as a service manager does."""
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, f"it ended with {process.returncode}:\n{said}"
    return said


class Notified:
    """Where a service says that it is ready (sd_notify)."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        path.chmod(0o777)
        self.socket.settimeout(LIMIT_SECONDS)
        self.said = ""

    def wait_for(self, word):
        while word not in self.said.splitlines():
            self.said += self.socket.recv(4096).decode() + "\n"


def until(condition, process):
    """Waits for what a process will bring about."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"it is not there:\n{process.communicate()[0]}")
        time.sleep(0.05)


def answers(port, path="/"):
    """Whether a server answers there."""
    try:
        return ask(port, path)[0] == 200
    except OSError:
        return False


def ask(port, path="/", method="GET", body=None, **headers):
    """The status of an answer, its Cache-Status, and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_SECONDS)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Cache-Status", ""), answer.read().decode()
    finally:
        connection.close()


class Application:
    """An application that says how long its page is good for."""

    def __init__(self, port, host="127.0.0.1", tls=None):
        class Page(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = b"a page"
                self.send_response(200)
                self.send_header("Cache-Control", "max-age=600")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        self.server = Server((host, port), Page)
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def is_cached(port):
    """Asks for a page twice: the second answer comes from the cache."""
    first, second = ask(port), ask(port)
    assert first[0] == 200 and first[2] == "a page", first
    assert "; hit" in second[1], second
