"""Private caches that are used for several people in several languages: who gets whose?"""

from rig import applications
from rig.clients import ECHO, SUBJECT, alike
from rig.command import log, met
from rig.report import grid

URLS, VARIANTS, IDENTITIES, USERS = 20, 3, 4, 16


def run(rig, programs, clients, options):
    """Private caches that are used for several people in several languages."""
    origin = applications.simulated(rig, programs.cores, "cim", "--work", "10ms", "--vary", ECHO, "--echo", ECHO, name="origin-mixed")
    results = {}
    for name, client in alike(clients).items():
        with programs.going_on(client, {
                "work": "load", "storage": "memory", "bytes": 1 << 30, "entries": 1 << 20, "origin": f"127.0.0.1:{origin.port}", "path": "mixed", "urls": URLS,
                "size": 5000, "variants": VARIANTS, "identities": IDENTITIES, "users": USERS, "pause-us": 5000, "seed": 2,
                "warm-seconds": options.warm_seconds / 2, "intervals": 1, "seconds": options.seconds * 2}) as driver:
            lines = driver.lines()
            next(lines)
            results[name] = next(lines)
        log(f"variants: {name} {results[name]['outcomes']}, wrong {results[name]['wrong']}, errors {results[name]['errors']}")
    return results


def section(results):
    rows = [[name, f"{seen['requests'] / seen['seconds']:,.0f}", f"{seen['outcomes'].get('hit', 0) / max(1, seen['requests']):.1%}", f"{sum(seen['wrong'].values())}",
             f"{sum(seen['errors'].values())}"] for name, seen in results.items()]
    return f"""## Variants and users

{URLS} URLs in {VARIANTS} languages for {IDENTITIES} users each, in private caches; the application sends `Vary: {ECHO}`, and both values are in each body.

{grid(["client", "requests/s", "hits", "bodies of another user", "errors"], rows)}
"""


def verdicts(results):
    if SUBJECT in results:
        wrong = sum(results[SUBJECT]["wrong"].values()) + sum(results[SUBJECT]["errors"].values())
        yield [SUBJECT, "variants", "bodies of another user, or none", "0", f"{wrong}", met(wrong == 0)]
