"""The load: wrk for so many seconds, and what it saw."""

import os
import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError

SCRIPTS = Path(__file__).parent.parent / "wrk"
PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Seen:
    """What wrk saw in one round."""
    requests: int
    rate: float
    lost: int
    median_ms: float
    late_ms: float  # 99 % were faster


@dataclass(frozen=True)
class Load:
    """How the load is made; the same for every server of a part."""
    seconds: int
    connections: int
    threads: int
    cores: tuple
    patience: int = PATIENCE_SECONDS  # an answer that takes longer is counted as lost
    fields: tuple = ()  # options that add fields to each request

    def command(self, url, script=None, arguments=()):
        command = ["wrk", f"-t{self.threads}", f"-c{self.connections}", f"-d{self.seconds}s", "--latency", "--timeout", f"{self.patience}s", *self.fields]
        if script:
            command += ["-s", str(SCRIPTS / script)]
        return command + [url] + (["--", *map(str, arguments)] if arguments else [])

    @contextmanager
    def going_on(self, url, script, arguments):
        """Load for as long as the block lasts, and no longer than `seconds`; what it saw is of no interest."""
        command = self.command(url, script, arguments)
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=self.pin)
        try:
            yield child
        finally:
            child.kill()
            child.wait()

    def pin(self):
        os.sched_setaffinity(0, self.cores)

    def run(self, url, script=None, arguments=()):
        """Runs wrk once, and takes nothing but answers: a lost, refused or late one is an error."""
        seen = self.try_out(url, script, arguments)
        if seen.lost:
            raise RigError(f"wrk on {url}: {seen.lost} answers lost, refused or late")
        return seen

    def try_out(self, url, script=None, arguments=()):
        """Runs wrk once, and says what it saw."""
        done = subprocess.run(self.command(url, script, arguments), capture_output=True, text=True, preexec_fn=self.pin)
        text = done.stdout
        completed = re.search(r"(\d+) requests in", text)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
        if done.returncode or not completed or not rate:
            raise RigError(f"wrk on {url}: {text + done.stderr}")
        if int(completed[1]) == 0:
            raise RigError(f"wrk on {url}: no request completed in {self.seconds} s; the server hangs, or other programs have the cores")
        trouble = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
        lost = sum(map(int, trouble.groups())) if trouble else 0
        return Seen(int(completed[1]), float(rate[1]), lost + (int(refused[1]) if refused else 0), percentile(text, 50), percentile(text, 99))


def percentile(text, share):
    """Milliseconds of a line such as `99%    1.32ms`."""
    found = re.search(rf"^\s+{share}%\s+([\d.]+)(us|ms|s|m)\s*$", text, re.MULTILINE)
    if not found:
        raise RigError(f"wrk gave no {share} % latency:\n{text}")
    return float(found[1]) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000}[found[2]]
