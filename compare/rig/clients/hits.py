"""CPU time for a hit, of the process, less what the same driver takes that has its answers in an array."""

from dataclasses import dataclass

from rig.clients import SUBJECT, SUBJECTS, alike
from rig.clients.origins import unchanging
from rig.command import log, met
from rig.errors import RigError
from rig.report import grid

# As many users as there are cores.
USERS, URLS, SIZE = 2, 100, 1000
MOST_MICROS, MOST_OF_PEER = 3.0, 0.3


def run(rig, programs, clients, options):
    origin = unchanging(rig, programs, SIZE, "origin-hits")
    plan = {"work": "hits", "origin": f"127.0.0.1:{origin.port}", "path": "hits", "urls": URLS, "size": SIZE, "users": USERS,
            "warm-seconds": options.warm_seconds, "seconds": options.seconds * 2}
    results = {}
    for name, client in alike(clients).items():
        loop = programs.figures(client, {**plan, "storage": "stub"})
        seen = programs.figures(client, {**plan, "storage": "memory"})
        for each in (loop, seen):
            if each["wrong"] or each["hits"] < each["requests"] * 0.999:
                raise RigError(f"hits: {name}: {each}")
        results[name] = Hit(*(each["cpu_us"] / each["requests"] for each in (seen, loop)), seen["requests"] / seen["seconds"])
        log(f"hits: {name} {results[name].micros():.2f} µs ({results[name].whole:.2f} less {results[name].loop:.2f}), {results[name].rate:,.0f}/s")
    return results


@dataclass(frozen=True)
class Hit:
    """Microseconds of CPU for a request, with the driver's loop in it and of the loop alone; and the rate of two users who never pause."""
    whole: float
    loop: float
    rate: float

    def micros(self):
        return self.whole - self.loop


def section(results):
    rows = [[name, f"{hit.micros():.2f}", f"{hit.whole:.2f}", f"{hit.loop:.2f}", f"{hit.rate:,.0f}"] for name, hit in results.items()]
    return f"""## CPU time for a hit

{USERS} users without a pause request {URLS} URLs of {SIZE:,} bytes, all stored. CPU time of the process, less that of the same driver with its responses in an array
(choosing, building the request, checking the body and counting). Java's garbage collector is part of the cost of a hit.

{grid(["client", "µs for a hit", "with the loop", "the loop", "requests/s"], rows)}
"""


def verdicts(results):
    if SUBJECT not in results:
        return
    ours = results[SUBJECT].micros()
    yield [SUBJECT, "hits", "CPU µs for a hit", f"≤ {MOST_MICROS:.0f}", f"{ours:.2f}", met(ours <= MOST_MICROS)]
    if peers := {name: hit.micros() for name, hit in results.items() if name not in SUBJECTS}:
        name = min(peers, key=peers.get)
        yield [SUBJECT, "hits", f"the same ÷ {name}", f"≤ {MOST_OF_PEER}", f"{ours / peers[name]:.2f}", met(ours <= MOST_OF_PEER * peers[name])]
