"""The load on a fleet: a load balancer that takes turns, users who choose pages by Zipf, and purges of which every node is asked whether it knows them."""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from rig.versions import TTL_SECONDS

# One site, whichever node is asked: its name is part of what an object is called.
HOST = "site.example"
RATE, PAGES, ARTICLES = 1000, 1000, 20
PATIENCE_SECONDS = 15
# As load balancers do it: a node that has failed twice gets nothing, until it answers again.
CHECK_SECONDS, FAILED_CHECKS = 0.2, 2
PURGE_SECONDS, PROBE_SECONDS, PROBE_STEP_SECONDS = 2.0, 1.2, 0.05
# Sooner than this after the begin of an object's lifetime, a request to the application is one too many; the rest is for delays on the way.
LIFETIME_SECONDS = 0.9 * TTL_SECONDS


@dataclass
class Node:
    """Where a node of the fleet is reached, and what the balancer knows of it. `admin` is where it says whether it is ready; without, connecting has to do."""
    name: str
    port: int
    admin: int | None = None
    is_in: bool = True
    continued: float = 0.0  # when it was last continued after it had been frozen
    is_frozen: bool = False
    idle: list = field(default_factory=list)


@dataclass
class Phase:
    """What was seen in a part of the run."""
    begin: float
    end: float = 0.0
    requests: int = 0
    failures: Counter = field(default_factory=Counter)
    longest: float = 0.0
    purges: list = field(default_factory=list)  # seconds from each one's acknowledgement until no node gave the old version
    after_freeze: list = field(default_factory=list)  # the same of frozen nodes, from when they continued
    backwards: int = 0  # an older version from a node that has given a newer one

    def asked(self, notes):
        """The requests to the application in this time for pages, the lifetimes that they began, and the requests for articles."""
        noted = [note for note in notes if self.begin <= note.at < self.end]
        pages = [note for note in noted if note.is_page]
        return len(pages), sum(note.begins for note in pages), len(noted) - len(pages)


@dataclass(frozen=True)
class Note:
    """A request to the application, and whether a lifetime of its page begins with it."""
    at: float
    is_page: bool
    begins: bool


def judged(asked):
    begun = {}
    for at, path in asked:
        begins = at - begun.get(path, 0.0) >= LIFETIME_SECONDS
        if begins:
            begun[path] = at
        yield Note(at, path.startswith("/page/"), begins)


class Load:
    """Load on nodes for the length of the block, from a thread of its own."""

    def __init__(self, nodes, origin_port, purges):
        self.nodes, self.origin, self.with_purges = nodes, Node("origin", origin_port), purges
        self.phases, self.is_over, self.seen, self.turn = {}, False, Counter(), 0
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)

    def __enter__(self):
        self.begin("")
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join(4 * PATIENCE_SECONDS)

    def begin(self, title):
        """What is seen from now on belongs to the phase of this title."""
        now = time.monotonic()
        if self.phases:
            self.phase.end = now
        self.phase = self.phases[title] = Phase(now)

    async def run(self):
        beside = [asyncio.create_task(self.check(node)) for node in self.nodes]
        if self.with_purges:
            beside.append(asyncio.create_task(self.purge_one_after_the_other()))
        weights = [1 / rank for rank in range(1, PAGES + 1)]
        chosen = random.Random(1)
        due, under_way = time.monotonic(), set()
        while not self.is_over:
            due += 1 / RATE
            await asyncio.sleep(max(0, due - time.monotonic()))
            page = chosen.choices(range(1, PAGES + 1), weights)[0]
            task = asyncio.create_task(self.visit(self.next_node(), f"/page/{page}"))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        for task in beside:
            task.cancel()

    def next_node(self):
        """The next one that is in; if none is, the next one."""
        for _ in self.nodes:
            self.turn += 1
            node = self.nodes[self.turn % len(self.nodes)]
            if node.is_in:
                break
        return node

    async def visit(self, node, path):
        """The version that a node gives of a path; a failure is noted."""
        phase, sent = self.phase, time.monotonic()
        phase.requests += 1
        try:
            status, body = await asyncio.wait_for(exchange(node, f"GET {path}"), PATIENCE_SECONDS)
            given, version, _ = body.split(" ", 2) if status == 200 else ("", 0, "")
            if given == path:
                phase.longest = max(phase.longest, time.monotonic() - sent)
                return int(version)
            why = f"status {status}"
        except (OSError, EOFError, ValueError) as error:
            why = type(error).__name__
        phase.failures[f"{node.name}: {why}"] += 1
        return None

    async def check(self, node):
        failed = 0
        while True:
            failed = 0 if await is_ready(node) else failed + 1
            node.is_in = failed < FAILED_CHECKS if node.is_in else failed == 0
            await asyncio.sleep(CHECK_SECONDS)

    async def purge_one_after_the_other(self):
        await asyncio.gather(*(self.visit(node, f"/article/{number}") for node in self.nodes for number in range(ARTICLES)))
        async with asyncio.TaskGroup() as under_way:
            for number in range(10**9):
                under_way.create_task(self.purge(f"/article/{number % ARTICLES}", number // ARTICLES + 1))
                await asyncio.sleep(PURGE_SECONDS)

    async def purge(self, path, version):
        """A new version of an article, purged at a random node."""
        phase = self.phase
        await exchange(self.origin, f"GET /publish{path}")
        asked = json.dumps({"url": f"http://{HOST}{path}"})
        for node in random.sample(self.nodes, len(self.nodes)):
            with suppress(OSError, EOFError, ValueError):
                if node.is_in and (await asyncio.wait_for(exchange(Node("", node.admin), "POST /v1/purges", asked), 1))[0] == 200:
                    break
        acknowledged = time.monotonic()
        late = await asyncio.gather(*(self.old_until(node, path, version, acknowledged) for node in self.nodes))
        phase.purges.append(max(seconds for seconds, was_frozen in late if not was_frozen))
        phase.after_freeze += [seconds for seconds, was_frozen in late if was_frozen]

    async def old_until(self, node, path, version, acknowledged):
        """For how long a node gives an older version than this, and whether it was frozen meanwhile: then it counts from when it continues."""
        late, was_frozen = 0.0, node.is_frozen
        while time.monotonic() < max(acknowledged, node.continued) + PROBE_SECONDS:
            was_frozen |= node.is_frozen
            given = await self.visit(node, path) if node.is_in or node.is_frozen else None
            was_frozen |= node.continued > acknowledged
            if given is not None:
                if given < version:
                    late = time.monotonic() - max(acknowledged, node.continued)
                self.phase.backwards += given < self.seen[node.name, path]
                self.seen[node.name, path] = max(given, self.seen[node.name, path])
            await asyncio.sleep(PROBE_STEP_SECONDS)
        return late, was_frozen


async def is_ready(node):
    """Whether it says so; without an interface for that, whether it accepts a connection."""
    with suppress(OSError, EOFError, ValueError):
        if node.admin:
            return (await asyncio.wait_for(exchange(Node("", node.admin), "GET /v1/ready"), CHECK_SECONDS))[0] == 200
        (await asyncio.wait_for(asyncio.open_connection("127.0.0.1", node.port), CHECK_SECONDS))[1].close()
        return True
    return False


async def exchange(node, request, body=""):
    """Status and content of one response, on a connection that is kept where the server keeps it. Nothing is tried twice."""
    kept = [connection for connection in node.idle if not connection[0].at_eof()]
    reader, writer = kept.pop() if kept else await asyncio.open_connection("127.0.0.1", node.port)
    node.idle[:] = kept
    try:
        host = f"127.0.0.1:{node.port}" if "/v1/" in request else HOST
        writer.write(f"{request} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
                     if body else f"{request} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        content = await reader.readexactly(int(head.partition("content-length:")[2].split("\r\n", 1)[0]))
    except BaseException:
        writer.close()
        raise
    node.idle.append((reader, writer)) if node.name and "connection: close" not in head else writer.close()
    return int(head.split(" ", 2)[1]), content.decode()
