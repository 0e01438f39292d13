"""The load: wrk for so many seconds, and what it saw."""

import os
import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig.errors import RigError

SCRIPTS = Path(__file__).parent.parent / "wrk"
TIMEOUT = "30s"


@dataclass(frozen=True)
class Load:
    """How the load is made; the same for every server of a part."""
    seconds: int
    connections: int
    threads: int
    cores: tuple

    def command(self, url, script=None, arguments=()):
        command = ["wrk", f"-t{self.threads}", f"-c{self.connections}", f"-d{self.seconds}s", "--timeout", TIMEOUT]
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
        """Runs wrk once. Returns requests completed and requests per second; a lost or refused request is an error."""
        done = subprocess.run(self.command(url, script, arguments), capture_output=True, text=True, preexec_fn=self.pin)
        text = done.stdout
        completed = re.search(r"(\d+) requests in", text)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
        trouble = re.search(r"(Socket errors|Non-2xx or 3xx responses):.*", text)
        if done.returncode or trouble or not completed or not rate:
            raise RigError(f"wrk on {url}: {trouble[0] if trouble else text + done.stderr}")
        if int(completed[1]) == 0:
            raise RigError(f"wrk on {url}: no request completed in {self.seconds} s; the server hangs, or other programs have the cores")
        return int(completed[1]), float(rate[1])
