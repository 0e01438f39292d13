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
LONGEST_WAIT_SECONDS = 20
PAUSE_SECONDS = 5


class Pace:
    """The paces before and after each round."""

    def __init__(self):
        self.awaited, self.rounds = None, []

    def steady(self, contenders, log):
        """Every contender once, each at the pace of the one before it if that returns in time."""
        for contender in contenders:
            before = self.awaited_pace(log)
            yield contender
            self.rounds.append((before, now()))

    def awaited_pace(self, log):
        end = time.monotonic() + LONGEST_WAIT_SECONDS
        while not are_one(pace := now(), self.awaited) and time.monotonic() < end:
            log(f"a cache line takes {pace:.0f} ns from core to core and back instead of {self.awaited:.0f}; waiting")
            time.sleep(PAUSE_SECONDS)
        self.awaited = pace
        return pace

    @property
    def number(self):
        """The number of the round under way."""
        return len(self.rounds)

    def even(self, rounds):
        """The rounds of each server at the pace at which most were measured; all of them if some server has none at any pace."""
        paces = {pace for of_server in rounds.values() for one in of_server for pace in self.of(one.number) if pace}
        at_one = [{server: [one for one in of_server if self.is_at(one.number, pace)] for server, of_server in rounds.items()} for pace in sorted(paces)]
        complete = [at for at in at_one if all(at.values())]
        return max(complete, key=lambda at: sum(map(len, at.values())), default=rounds)

    def is_at(self, number, pace):
        """Whether a round is known to have begun and ended at this pace."""
        return all(one and are_one(one, pace) for one in self.of(number))

    def of(self, number):
        return self.rounds[number] if number < len(self.rounds) else ()

    def text(self):
        known = [pace for paces in self.rounds for pace in paces if pace]
        if not known:
            return ""
        usual = median(known)
        uneven = sum(not all(are_one(pace, usual) for pace in paces) for paces in self.rounds)
        return f"\nA cache line took {usual:.0f} ns from core to core and back; {uneven} of {len(self.rounds)} rounds were measured at another pace."


def are_one(pace, other):
    """Whether two paces are one, as far as they are known."""
    return not pace or not other or 1 / TOLERANCE < pace / other < TOLERANCE


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
        answer(shared)
        os._exit(0)
    os.sched_setaffinity(0, {here})
    times = []
    try:
        for turn in range(EXCHANGES):
            began = time.perf_counter_ns()
            shared[0] = 2 * (turn % 64) + 1
            if not has_become(shared, 2 * (turn % 64) + 2):
                return None
            times.append(time.perf_counter_ns() - began)
    finally:
        os.waitpid(child, 0)
        os.sched_setaffinity(0, before)
    return median(times)


def answer(shared):
    """Replaces each value of the first byte by the next one."""
    for turn in range(EXCHANGES):
        if not has_become(shared, 2 * (turn % 64) + 1):
            return
        shared[0] = 2 * (turn % 64) + 2


def has_become(shared, value):
    """Spins until the first byte has this value. False if that takes too long."""
    end = time.perf_counter() + PATIENCE_SECONDS
    while shared[0] != value:
        if time.perf_counter() > end:
            return False
    return True


# One machine, one pace: of all rounds of a run.
PACE = Pace()
