"""Several Microcaches before one application: each with its own memory alone, and with a pool of memcached servers that they share."""

import http.client
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass

from rig import microcache_bench
from rig.command import SUBJECT, log, met
from rig.errors import RigError
from rig.memcached import Memcached
from rig.report import grid

SIZE = 4
# So few that each process is asked for each of them many times in its lifetime.
URLS = 400
USERS, PAUSE = 16, "0ms..20ms"
MEGABYTES = 64
# One site, whichever process is asked: its name is part of what an object is called.
HOST = "site.example"
# What several processes may ask for beyond one request for each object and lifetime.
MOST_PER_LIFETIME = 1.1


@dataclass(frozen=True)
class Result:
    """What the users of all processes saw, and what the application was asked."""
    reports: list
    asked: int
    lifetimes: int  # of all objects together, in the time of the run

    def per_lifetime(self):
        return self.asked / self.lifetimes

    def rate(self):
        return sum(report.rate for report in self.reports)

    def mean(self, of):
        return sum(of(report) * report.requests for report in self.reports) / sum(report.requests for report in self.reports)

    def without_page(self):
        """Requests that got something else than a 200, or nothing."""
        refused = sum(count for report in self.reports for status, count in report.statuses.items() if status != "200")
        return refused + sum(report.errors for report in self.reports)


def run(rig, cores, seconds):
    """Both ways, each from empty caches."""
    results = {}
    for name, servers in (("local", 0), ("pool", SIZE)):
        with ExitStack() as stack:
            pool = [stack.enter_context(Memcached(rig, "memcached-fleet", cores, MEGABYTES)) for _ in range(servers)]
            shared = [word for server in pool for word in ("--memcached", server.address)]
            fronts = [rig.start(stack, f"fleet-{name}", cores, lambda _, port: [
                rig.microcache, "--admin", "off", "--listen", f"127.0.0.1:{port}", *shared, rig.origin.url]) for _ in range(SIZE)]
            results[name] = load(rig, cores, fronts, f"/fleet-{name}", seconds)
            log(f"{SIZE} processes, {name}: {results[name].asked:,} requests to the application in {results[name].lifetimes:,} lifetimes")
    return results


def load(rig, cores, fronts, path, seconds):
    asked, began = rig.origin.requests(), time.monotonic()
    with ExitStack() as stack:
        runs = [stack.enter_context(microcache_bench.going_on(rig, cores, f"{front.url}{path}/[1-{URLS}]", *flags(seconds, number + 1)))
                for number, front in enumerate(fronts)]
        reports = [run.report() for run in runs]
    asked, took = rig.origin.requests() - asked, time.monotonic() - began
    return Result(reports, asked, sum(1 + int(took / lifetime) for lifetime in lifetimes(fronts[0], path)))


def flags(seconds, seed):
    return ["--users", str(USERS), "--think", PAUSE, "-d", f"{seconds}s", "--choose", "uniform", "--seed", str(seed), "-H", f"Host: {HOST}"]


def lifetimes(front, path):
    """The seconds for which each object may be kept."""
    connection = http.client.HTTPConnection("127.0.0.1", front.port)
    for number in range(1, URLS + 1):
        connection.request("GET", f"{path}/{number}", headers={"Host": HOST})
        answer = connection.getresponse()
        answer.read()
        told = re.search(r"max-age=(\d+)", answer.headers.get("Cache-Control", ""))
        if not told:
            raise RigError(f"{front.name}: {path}/{number} does not say for how long it may be kept")
        yield int(told[1])
    connection.close()


def verdicts(results):
    local, pool = results["local"], results["pool"]
    for name, result in results.items():
        yield [f"{SIZE} × {name}", "requests without a 200", "0", f"{result.without_page()}", met(result.without_page() == 0)]
    yield [f"{SIZE} × pool", "requests to the application per object and lifetime", f"< {local.per_lifetime():.2f} (local)", f"{pool.per_lifetime():.2f}",
           met(pool.per_lifetime() < local.per_lifetime())]
    yield [f"{SIZE} × pool", "the same against one request", f"≤ {MOST_PER_LIFETIME:.2f}", f"{pool.per_lifetime():.2f}",
           met(pool.per_lifetime() <= MOST_PER_LIFETIME)]


def section(results, seconds):
    head = ["each with", "requests/s", "mean ms", "99 %", "from the cache", "to the application", "lifetimes", "per object and lifetime"]
    with_what = {"local": "its own memory", "pool": f"its own memory, and a pool of {SIZE} for all"}
    rows = [[with_what[name], f"{result.rate():,.0f}", f"{result.mean(lambda seen: seen.mean):.1f}", f"{result.mean(lambda seen: seen.p99):.1f}",
             f"{result.mean(lambda seen: seen.from_store):.1%}", f"{result.asked:,}", f"{result.lifetimes:,}", f"{result.per_lifetime():.2f}"]
            for name, result in results.items()]
    return f"""## {SIZE} Microcaches before one application

As many load generators, each with {USERS} users and a Microcache of its own ({SUBJECT} with default settings), for {seconds} s from empty caches on; {URLS} URLs. An object that is fresh for 20 s
has two lifetimes in 30 s, counting the second one that has begun: a single process that requests it constantly would fetch it that often.

{grid(head, rows)}
"""
