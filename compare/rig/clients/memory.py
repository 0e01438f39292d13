"""Memory for an entry: what a process grows by that stores many."""

from dataclasses import dataclass

from rig.clients import SUBJECT, SUBJECTS, alike
from rig.clients.origins import unchanging
from rig.command import log, met
from rig.errors import RigError
from rig.report import grid

ENTRIES, ENTRIES_QUICK, SIZE, USERS = 100_000, 20_000, 1000, 16


def run(rig, programs, clients, options):
    entries = ENTRIES_QUICK if options.quick else ENTRIES
    origin = unchanging(rig, programs, SIZE, "origin-memory")
    results = {}
    for name, client in alike(clients).items():
        seen = programs.figures(client, {
            "work": "fill", "storage": "memory", "entries": 2 * entries, "bytes": 1 << 30, "origin": f"127.0.0.1:{origin.port}", "path": "memory",
            "urls": entries, "size": SIZE, "users": USERS, "warm-seconds": 1})
        if seen["hits"] < seen["sampled"]:
            raise RigError(f"memory: {name} does not have all that it was given: {seen}")
        live = (seen["live_after"] - seen["live_before"]) / entries if "live_after" in seen else None
        results[name] = Entry(entries, (seen["resident_after"] - seen["resident_before"]) / entries, live)
        log(f"memory: {name} {results[name]}")
    return results


@dataclass(frozen=True)
class Entry:
    """Bytes for each of so many entries: of the process, and of what is live in Java's heap."""
    entries: int
    resident: float
    live: float | None

    def least(self):
        """What is held against a client: for Java what is live, although the process takes more."""
        return self.resident if self.live is None else self.live


def section(results):
    rows = [[name, f"{entry.resident:,.0f}", "–" if entry.live is None else f"{entry.live:,.0f}"] for name, entry in results.items()]
    entries = next(iter(results.values())).entries
    return f"""## Memory for an entry

{entries:,} URLs of {SIZE:,} bytes, stored: the growth of the process, and for Java the live heap after a collection, which is used in the comparison.

{grid(["client", "bytes of the process", "live in the heap"], rows)}
"""


def verdicts(results):
    peers = {name: entry.least() for name, entry in results.items() if name not in SUBJECTS}
    if SUBJECT in results and peers:
        ours, name = results[SUBJECT].least(), min(peers, key=peers.get)
        yield [SUBJECT, "memory", "bytes for an entry", f"< {peers[name]:,.0f} ({name})", f"{ours:,.0f}", met(ours < peers[name])]
