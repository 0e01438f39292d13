"""The load of `microcache bench`, which tells outcomes apart by Cache-Status."""

import json
import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

from rig.errors import RigError

# What it has begun is finished after its time is over.
END_LIMIT_SECONDS = 60


@dataclass(frozen=True)
class Report:
    """What it saw. Times are milliseconds."""
    requests: int
    rate: float
    errors: int
    from_store: float  # the share of answers for which nobody waited for the origin
    mean: float
    median: float
    p95: float
    p99: float
    longest: float
    statuses: dict
    outcomes: dict


class Run:
    """A run that goes on; `report` waits for its end."""

    def __init__(self, child, command):
        self.child, self.command = child, command

    def report(self):
        try:
            text, trouble = self.child.communicate(timeout=END_LIMIT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RigError(f"{' '.join(self.command)} did not end") from error
        try:
            return parsed(json.loads(text))
        except (ValueError, KeyError) as error:
            raise RigError(f"{' '.join(self.command)} gave no figures:\n{(text + trouble)[-2000:]}") from error


@contextmanager
def going_on(rig, cores, url, *flags):
    """A run for the length of the block, so that something can be done to the servers meanwhile."""
    command = [str(word) for word in (rig.microcache, "bench", *flags, "--format", "json", url)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: os.sched_setaffinity(0, cores))
    try:
        yield Run(child, command)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


def parsed(seen):
    total = seen["latency_ms"]["total"]
    outcomes = {name: outcome["requests"] for name, outcome in seen["outcomes"].items()}
    return Report(seen["requests"], seen["rate"], seen["errors"], seen["hit_ratio"] or 0.0, total["mean"], total["p50"], total["p95"], total["p99"],
                  total["max"], seen["statuses"], outcomes)
