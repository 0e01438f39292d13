"""A memcached server that a measurement fills, kills, makes hang and brings back."""

import getpass
import os
import signal
import socket
import tempfile
from pathlib import Path

from rig.errors import RigError
from rig.process import Process

PACKAGES = {"memcached": "memcached"}
PATIENCE_SECONDS = 10


class Memcached:
    """One server, which has the same port each time it is started. Use as a context manager."""

    def __init__(self, rig, name, cores, megabytes):
        self.name, self.cores, self.port = name, cores, rig.port()
        self.home = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=rig.directory))
        self.command = ["memcached", "-u", getpass.getuser(), "-l", "127.0.0.1", "-p", self.port, "-m", megabytes]
        self.process = None
        rig.note(name, self.command)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process.child.poll() is None:
            self.wake()  # a process that is stopped does not hear that it is to end
            self.process.stop()

    def start(self):
        """Starts it, empty."""
        self.process = Process(self.name, self.command, self.cores, self.home / "log")
        self.process.wait_for_port(self.port)

    def kill(self):
        """Ends it at once: whoever connects is refused."""
        self.process.child.kill()
        self.process.child.wait()

    def hang(self):
        """Leaves it there without answering: whoever connects, or has a connection, waits."""
        os.kill(self.process.child.pid, signal.SIGSTOP)

    def wake(self):
        os.kill(self.process.child.pid, signal.SIGCONT)

    def set(self, key, value):
        """Stores an item, as an application does that fills its cache itself."""
        answer = self.asked(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")
        if answer != b"STORED\r\n":
            raise RigError(f"{self.name} does not store {len(value)} bytes: {answer!r}")

    def stats(self):
        lines = self.asked(b"stats\r\n").decode().splitlines()
        return {name: value for _, name, value in (line.split(" ", 2) for line in lines if line.startswith("STAT "))}

    def asked(self, request):
        """One request on a connection of its own."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as connection:
                connection.sendall(request + b"quit\r\n")
                with connection.makefile("rb") as answer:
                    return answer.read()
        except OSError as error:
            raise RigError(f"{self.name}: {error}\n{self.process.last_words()}") from error
