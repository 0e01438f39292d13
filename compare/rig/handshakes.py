"""The load of new connections: one after the other, each with a handshake and one request, by `openssl s_time`."""

import os
import re
import subprocess
from dataclasses import dataclass

from rig.errors import RigError

@dataclass(frozen=True)
class Made:
    """What was done in one round."""
    requests: int
    rate: float


@dataclass(frozen=True)
class Handshakes:
    """How the load is made; the same for every server of a part."""
    seconds: int
    resumed: bool
    cores: tuple

    def command(self, port, path):
        # It asks by HTTP/1.0 without a host, for which HAProxy's cache has nothing: so the rest of a request of today follows the path.
        path += " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Client: s_time"
        return ["openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-reuse" if self.resumed else "-new", "-time", str(self.seconds), "-www", path]

    def run(self, port, path):
        """Connects for so many seconds; a session that was to be resumed and was not is an error, and the other way round."""
        done = subprocess.run(self.command(port, path), capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, self.cores))
        text = done.stdout
        counted = re.search(r"(\d+) connections in (\d+) real seconds", text)
        if done.returncode or not counted:
            raise RigError(f"openssl s_time: {text + done.stderr}")
        number = int(counted[1])
        # A letter for each connection, on a line of its own: r for a session that was resumed.
        resumed = sum(line.count("r") for line in text.splitlines() if set(line) <= {"r", "*", "t"})
        if not number or resumed != (number if self.resumed else 0):
            raise RigError(f"openssl s_time: {resumed} of {number} sessions were resumed")
        return Made(number, number / self.seconds)
