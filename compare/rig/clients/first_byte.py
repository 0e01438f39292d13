"""The first byte of a slow body that may be stored: as soon as without a cache?"""

from rig import applications
from rig.clients import ECHO, SUBJECT, alike
from rig.command import log, met
from rig.report import grid

SIZE, URLS, USERS, WORK, BODY = 100_000, 30, 10, "100ms", "1s"
# Whoever else uses the machine makes some of them later than they are: the least of all rounds counts, with and without cache alike.
ROUNDS, ROUNDS_QUICK = 3, 1
MOST = 1.01


def run(rig, programs, clients, options):
    origin = applications.simulated(rig, programs.cores, "static-100", "--size", SIZE, "--work", WORK, "--work-kind", "sleep", "--workers", 100, "--slow-body",
                                    BODY, "--max-age", 3600, "--echo", ECHO, name="origin-slow")
    results = {}
    for name, client in alike(clients).items():
        for number in range(ROUNDS_QUICK if options.quick else ROUNDS):
            for storage in ("none", "memory"):
                seen = programs.figures(client, {
                    "work": "first-byte", "storage": storage, "bytes": 1 << 30, "entries": 1 << 20, "origin": f"127.0.0.1:{origin.port}",
                    "path": f"slow-{storage}-{number}", "urls": URLS, "size": SIZE, "users": USERS})
                times = results.setdefault(name, {}).setdefault(storage, (seen["first_ms"], seen["last_ms"]))
                results[name][storage] = tuple(map(min, times, (seen["first_ms"], seen["last_ms"])))
        log(f"first byte: {name} {results[name]}")
    return results


def section(results):
    rows = [[name, *(f"{value:,.1f}" for storage in ("none", "memory") for value in by_storage[storage]), f"{ratio(by_storage):.3f}"]
            for name, by_storage in results.items()]
    return f"""## The first byte of a slow body

Bodies of {SIZE:,} bytes that begin after {WORK} and take {BODY}, may be stored, and are requested for the first time. Milliseconds: the least of the rounds' medians.

{grid(["client", "first byte, no cache", "last", "first byte, with cache", "last", "first ÷ first"], rows)}
"""


def ratio(by_storage):
    return by_storage["memory"][0] / by_storage["none"][0]


def verdicts(results):
    if SUBJECT in results:
        measured = ratio(results[SUBJECT])
        yield [SUBJECT, "first byte", "of a miss ÷ without a cache", f"≤ {MOST:.2f}", f"{measured:.3f}", met(measured <= MOST)]
