"""What the application is asked by processes with memory of their own, and by such that share a pool of memcached servers."""

import http.client
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from rig.clients import SUBJECT, alike
from rig.command import log, met
from rig.errors import RigError
from rig.memcached import Memcached
from rig.report import grid

SIZE, URLS, USERS, SECONDS, MEGABYTES = 4, 200, 16, 20, 64


def run(rig, programs, clients, options):
    """What the application is asked by processes with memory of their own, and by such that share a pool."""
    results = {}
    for name, client in alike(clients).items():
        for storage in ("memory", "memcached"):
            if storage == "memory" and name != SUBJECT or storage == "memcached" and not client.has_memcached:
                continue
            results[f"{name}, {storage}"] = one_fleet(rig, programs, client, storage, f"fleet-{len(results)}", options)
            log(f"{SIZE} processes: {name}, {storage}: {results[f'{name}, {storage}']}")
    return results


@dataclass(frozen=True)
class Asked:
    """What reached the application, and how many lifetimes of its objects ended meanwhile."""
    asked: int
    ended: int
    failed: int

    def per_lifetime(self):
        return self.asked / max(1, self.ended)


def one_fleet(rig, programs, client, storage, path, options):
    """All ask for each object first. What is counted begins when the last of them is warm."""
    objects = lifetimes(rig.origin, path)
    with ExitStack() as stack:
        servers = [stack.enter_context(Memcached(rig, "memcached", programs.cores, MEGABYTES)) for _ in range(SIZE)] if storage == "memcached" else []
        plan = {"work": "load", "storage": storage, "bytes": 1 << 30, "entries": 1 << 20, "origin": f"127.0.0.1:{rig.origin.port}", "path": path, "urls": URLS,
                "size": 5000, "users": USERS, "pause-us": 20_000, "warm-urls": 1, "warm-seconds": options.warm_seconds, "intervals": 1, "seconds": SECONDS,
                **({"memcached": ",".join(server.address for server in servers)} if servers else {})}
        began = time.monotonic()
        lines = [stack.enter_context(programs.going_on(client, {**plan, "seed": number + 1})).lines() for number in range(SIZE)]
        for line in lines:
            next(line)
        rig.origin.forget()
        warm = time.monotonic() - began
        seen = [next(line) for line in lines]
        asked, end = rig.origin.requests(), time.monotonic() - began
    failed = sum(sum(each["wrong"].values()) + sum(each["errors"].values()) for each in seen)
    return Asked(asked, sum(int(end / each) - int(warm / each) for each in objects), failed)


def lifetimes(origin, path):
    """The seconds for which each object may be kept."""
    def one(number):
        connection = http.client.HTTPConnection("127.0.0.1", origin.port)
        connection.request("GET", f"/{path}/{number}")
        told = re.search(r"max-age=(\d+)", connection.getresponse().headers.get("Cache-Control", ""))
        connection.close()
        if not told:
            raise RigError(f"{origin.name}: /{path}/{number} does not say for how long it may be kept")
        return int(told[1])
    with ThreadPoolExecutor(50) as pool:
        return list(pool.map(one, range(URLS)))


def section(results):
    rows = [[name, f"{seen.asked:,}", f"{seen.ended:,}", f"{seen.per_lifetime():.2f}", f"{seen.failed}"] for name, seen in results.items()]
    return f"""## {SIZE} processes before one application

Each with {USERS} users and a client of its own, for {SECONDS} s; {URLS} URLs, which each has requested before. With memory of their own, or with a shared pool of {SIZE} memcached servers.
Processes that share a pool should send one request for each lifetime that ends.

{grid(["client", "to the application", "lifetimes that ended", "per object and lifetime", "failed"], rows)}
"""


def verdicts(results):
    local, pool = (results.get(f"{SUBJECT}, {storage}") for storage in ("memory", "memcached"))
    if local and pool:
        yield [SUBJECT, "processes", "requests per object and lifetime, with a pool", f"< {local.per_lifetime():.2f} (without)", f"{pool.per_lifetime():.2f}",
               met(pool.per_lifetime() < local.per_lifetime())]
