"""The load of ApacheBench: so many connections, each with one request after the other, for so many seconds."""

import os
import re
import subprocess
from dataclasses import dataclass

from rig import forms
from rig.errors import RigError

# ab stops at 50,000 requests unless told otherwise, whatever the time.
MOST_REQUESTS = 5_000_000
END_LIMIT_SECONDS = 120
GAVE_UP = "Test aborted"


@dataclass(frozen=True)
class Report:
    """What ab saw."""
    requests: int
    failed: int
    seconds: float
    rate: float
    mean_ms: float
    stdev_ms: float
    max_ms: float


def command(connections, seconds, url, form=forms.PLAIN):
    # -l: a page that says how often it was rendered may change its length. -r: a broken connection is counted, not the end.
    # With -k it says of its own that the connection is kept.
    return ["ab", "-q", "-l", "-r", "-k", "-c", str(connections), "-t", str(seconds), "-n", str(MOST_REQUESTS), *forms.flags(form, own=["Connection"]), url]


def ab(connections, seconds, url, cores, form=forms.PLAIN):
    """Runs ab. None if it gave up, as it does after ten failures of a certain kind."""
    try:
        done = subprocess.run(command(connections, seconds, url, form), capture_output=True, text=True, timeout=seconds + END_LIMIT_SECONDS,
                              preexec_fn=lambda: os.sched_setaffinity(0, cores))
    except subprocess.TimeoutExpired as error:
        raise RigError(f"ab on {url} did not end") from error
    if GAVE_UP in done.stdout + done.stderr:
        return None
    return parsed(done.stdout, done.stderr)


def parsed(text, trouble):
    def number(pattern, absent=None):
        found = re.search(pattern, text, re.MULTILINE)
        if not found and absent is None:
            raise RigError(f"ab gave no figures:\n{(text + trouble)[-2000:]}")
        return float(found[1]) if found else absent
    # min, mean, standard deviation, median, max
    total = r"^Total:\s+\d+\s+"
    return Report(int(number(r"^Complete requests:\s+(\d+)")), int(number(r"^Failed requests:\s+(\d+)") + number(r"^Non-2xx responses:\s+(\d+)", 0)),
                  number(r"^Time taken for tests:\s+([\d.]+)"), number(r"^Requests per second:\s+([\d.]+)"),
                  number(r"^Time per request:\s+([\d.]+) \[ms\] \(mean\)$"), number(total + r"\d+\s+([\d.]+)"), number(total + r"\d+\s+[\d.]+\s+\d+\s+(\d+)"))
