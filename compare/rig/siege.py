"""The load of people who read before they click: siege with so many users and random pauses.

One siege of 3,000 threads often deadlocks when it cancels them at its end, so that several share the users.
"""

import json
import os
import subprocess
import time
from dataclasses import dataclass

from rig import forms
from rig.errors import RigError

# What siege does beyond its options. A connection per request is its default, and what the published measurements used.
SETTINGS = """verbose = false
quiet = true
show-logfile = false
logging = false
parser = false
cookies = false
cache = false
connection = close
limit = {users}
failures = 1000000
timeout = {patience}
json_output = true
"""
# Fields that siege writes of its own. Those of a form take their places: two by its settings, and the third by being the first of the options.
SET_FIELDS, FIRST_FIELD = ("User-Agent", "Accept-Encoding"), "Accept"
PATIENCE_SECONDS = 30
USERS_PER_PROCESS = 100
# siege drops what is under way when its time is over; what still runs so much later has deadlocked.
END_LIMIT_SECONDS = 15


@dataclass(frozen=True)
class Report:
    """What siege saw."""
    transactions: int
    availability: float  # percent
    rate: float
    mean_seconds: float
    longest_seconds: float
    failed: int


def siege(rig, users, pause, seconds, target, cores, form=forms.PLAIN):
    """Besieges a url, or a file of urls of which each user takes any at a time. None if a siege deadlocked."""
    settings = rig.directory / "siegerc"
    fields = "".join(f"{name.lower()} = {value}\n" for name, value in forms.FORMS[form].items() if name in SET_FIELDS)
    settings.write_text(SETTINGS.format(users=USERS_PER_PROCESS, patience=PATIENCE_SECONDS) + fields)
    flags = forms.flags(form, own=["Connection", *SET_FIELDS], first=FIRST_FIELD)
    urls = [target] if isinstance(target, str) else ["-i", "-f", target]
    shares = [min(USERS_PER_PROCESS, users - first) for first in range(0, users, USERS_PER_PROCESS)]
    commands = [list(map(str, ["siege", "-R", settings, f"-c{share}", f"-d{pause}", f"-t{seconds}s", *flags, *urls])) for share in shares]
    children = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 env={**os.environ, "HOME": str(rig.directory)},
                                 preexec_fn=lambda: os.sched_setaffinity(0, cores)) for command in commands]
    try:
        deadline = time.monotonic() + seconds + END_LIMIT_SECONDS
        return together([parsed(child.communicate(timeout=max(0, deadline - time.monotonic()))[0]) for child in children])
    except subprocess.TimeoutExpired:
        return None
    finally:
        for child in children:
            child.kill()
            child.wait()


def parsed(text):
    try:
        seen = json.loads(text[text.index("{"):text.rindex("}") + 1])
        return Report(seen["transactions"], seen["availability"], seen["transaction_rate"], seen["response_time"],
                      seen["longest_transaction"], seen["failed_transactions"])
    except (ValueError, KeyError) as error:
        raise RigError(f"siege gave no figures:\n{text[-2000:]}") from error


def together(reports):
    """What one siege with all the users would have said."""
    done, failed = sum(report.transactions for report in reports), sum(report.failed for report in reports)
    waiting = sum(report.mean_seconds * report.transactions for report in reports)
    return Report(done, 100 * done / max(1, done + failed), sum(report.rate for report in reports), waiting / max(1, done),
                  max(report.longest_seconds for report in reports), failed)
