"""The load of `microcache bench --subscribe`: streams that stay open, and what is published meanwhile."""

import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass

from rig.errors import RigError

# What is beside the measured time: streams are opened, and what is under way at the end is waited for.
END_LIMIT_SECONDS = 120
SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Round:
    """One round on one server. Times are milliseconds."""
    cpu_micros: float  # the server's, for each event that arrived on a stream
    deliveries: int
    rate: float
    last_median: float  # from when a publication was due until the last stream had it
    last_p99: float
    stream_p99: float  # the same of each stream
    skipped: int
    missing: int  # lost, out of order, or told twice
    refused: int
    gone: int
    client: float  # the share of a core that the load generator's reading took


class CpuWatch:
    """Notes the CPU time of a process all along, so that it can be told afterwards what it was between two moments."""

    def __init__(self, process):
        self.process, self.samples, self.is_over = process, [], threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.sample()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        self.sample()

    def watch(self):
        while not self.is_over.wait(SAMPLE_SECONDS):
            self.sample()

    def sample(self):
        self.samples.append((time.time(), self.process.cpu_seconds()))

    def at(self, moment):
        for (before, less), (after, more) in zip(self.samples, self.samples[1:]):
            if before <= moment <= after:
                return less + (more - less) * (moment - before) / (after - before)
        raise RigError(f"{self.process.name} was not watched at {moment}")

    def between(self, start, end):
        return self.at(end) - self.at(start)


def command(client, url, *flags):
    return [str(word) for word in (client, "bench", "--format", "json", "-t", 1, *flags, url)]


def run(client, cores, server, url, *flags):
    """One round. The server's CPU time counts from when all streams are open."""
    words = command(client, url, *flags)
    with CpuWatch(server.process) as watch:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=END_LIMIT_SECONDS, check=False,
                              preexec_fn=lambda: os.sched_setaffinity(0, cores))
    if done.returncode:
        raise RigError(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}\n{server.process.last_words()}")
    return parsed(json.loads(done.stdout), watch)


def parsed(seen, watch):
    published, streams = seen["publications"], seen["streams"]
    # The report is about the last of these times; what came before was opening and warming.
    start = seen["began_unix"] + (seen["opened_within_ms"] + seen["warmup_ms"]) / 1e3
    cpu = watch.between(start, start + seen["elapsed_ms"] / 1e3)
    deliveries = published["deliveries"]
    if not deliveries:
        raise RigError(f"nothing that was published to {watch.process.name} arrived:\n{watch.process.last_words()}")
    last, stream = published["last_stream_ms"], published["stream_ms"]
    return Round(cpu / deliveries * 1e6, deliveries, published["deliveries_per_second"], last["p50"], last["p99"], stream["p99"], published["skipped"],
                 published["lost"] + published["out_of_order"] + published["duplicates"], streams["refused"], streams["gone"], seen["busiest_thread"])
