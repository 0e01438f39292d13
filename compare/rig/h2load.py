"""The load over HTTP/2: h2load for so many seconds, and what it saw."""

import os
import re
import subprocess
from dataclasses import dataclass

from rig.errors import RigError


@dataclass(frozen=True)
class Counted:
    """What h2load saw in one round."""
    requests: int
    rate: float


@dataclass(frozen=True)
class H2Load:
    """How the load is made; the same for every server of a part."""
    seconds: int
    connections: int
    streams: int
    cores: tuple
    fields: tuple = ()  # options that add fields to each request

    def command(self, url):
        return ["h2load", "-t1", f"-c{self.connections}", f"-m{self.streams}", f"-D{self.seconds}", *self.fields, url]

    def run(self, url):
        """Runs h2load once, and takes nothing but answers over HTTP/2."""
        done = subprocess.run(self.command(url), capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, self.cores))
        text = done.stdout
        rate = re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", text)
        counted = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
        if done.returncode or not rate or not counted:
            raise RigError(f"h2load on {url}: {text + done.stderr}")
        if "Application protocol: h2" not in text:
            raise RigError(f"h2load on {url}: the server does not speak HTTP/2:\n{text}")
        finished, succeeded, *lost = map(int, counted.groups())
        if not succeeded or any(lost):
            raise RigError(f"h2load on {url}: {finished - succeeded} of {finished} answers lost, refused or late")
        return Counted(succeeded, float(rate[1]))
