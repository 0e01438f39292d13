"""The pace of the machine: the time for a cache line between the server's core and the load's.

The host of a virtual machine may move its cores between processors that share a cache and those that don't. A request over loopback then takes up
to twice the CPU time, for all servers alike, so medians of rounds at different paces say nothing.
"""

import mmap
import os
import time
from statistics import median

from rig import machine

EXCHANGES = 3000
SAMPLES = 3
# A core that does not answer for so long is in use by another program.
PATIENCE_SECONDS = 0.2
# Paces within this factor are one.
TOLERANCE = 1.5
LONGEST_WAIT_SECONDS = 60
PAUSE_SECONDS = 1


class Pace:
    """The pace at the first round, and the rounds that were measured at another one."""

    def __init__(self):
        self.nanoseconds, self.rounds, self.uneven = None, 0, 0

    def steady(self, contenders, log):
        """Every contender once, each at the pace of the first one if that returns in time."""
        for contender in contenders:
            self.nanoseconds = self.nanoseconds or now()
            if not self.is_usual():
                log("the machine has another pace; waiting")
            end = time.monotonic() + LONGEST_WAIT_SECONDS
            while not self.is_usual() and time.monotonic() < end:
                time.sleep(PAUSE_SECONDS)
            was_usual = self.is_usual()
            yield contender
            self.rounds += 1
            self.uneven += not (was_usual and self.is_usual())

    def is_usual(self):
        seen = now()
        return not seen or not self.nanoseconds or 1 / TOLERANCE < seen / self.nanoseconds < TOLERANCE

    def text(self):
        if not self.nanoseconds:
            return ""
        return f"\nA cache line took {self.nanoseconds:.0f} ns from core to core and back; {self.uneven} of {self.rounds} rounds were measured at another pace."


def now():
    """Nanoseconds for a cache line from core to core and back; None if a core is in use."""
    seen = [one for one in (exchanged(*machine.cores()) for _ in range(SAMPLES)) if one]
    return median(seen) if seen else None


def exchanged(here, there):
    """The median of some thousand exchanges, in nanoseconds."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    before = os.sched_getaffinity(0)
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {there})
        os._exit(0 if all(reached(shared, 2 * (turn % 64) + 1) for turn in range(EXCHANGES)) else 1)
    os.sched_setaffinity(0, {here})
    times = []
    try:
        for turn in range(EXCHANGES):
            began = time.perf_counter_ns()
            shared[0] = 2 * (turn % 64) + 1
            if not reached(shared, 2 * (turn % 64) + 2, answer=False):
                return None
            times.append(time.perf_counter_ns() - began)
    finally:
        os.waitpid(child, 0)
        os.sched_setaffinity(0, before)
    return median(times)


def reached(shared, value, answer=True):
    """Spins until the first byte has this value, and then answers with the next one. False if that takes too long."""
    end = time.perf_counter() + PATIENCE_SECONDS
    while shared[0] != value:
        if time.perf_counter() > end:
            return False
    if answer:
        shared[0] = value + 1
    return True
