"""The load of people who read before they click: siege with so many users and random pauses."""

import json
import os
import subprocess
from dataclasses import dataclass

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
PATIENCE_SECONDS = 30
# siege ends on its own when its time is over and the last answers are there.
END_LIMIT_SECONDS = 120
# Room for all threads' first connections before any of them is refused.
LEAST_USERS = 255


@dataclass(frozen=True)
class Report:
    """What siege saw."""
    transactions: int
    availability: float
    rate: float
    mean_seconds: float
    longest_seconds: float
    failed: int


def siege(rig, users, pause, seconds, target):
    """Runs siege on a url, or on a file of urls, of which each user then takes any at a time."""
    settings = rig.directory / "siegerc"
    settings.write_text(SETTINGS.format(users=max(users, LEAST_USERS), patience=PATIENCE_SECONDS))
    urls = [target] if isinstance(target, str) else ["-i", "-f", target]
    command = ["siege", "-R", settings, f"-c{users}", f"-d{pause}", f"-t{seconds}s", *urls]
    rig.note(f"siege -c{users}", command)
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=seconds + END_LIMIT_SECONDS,
                              env={**os.environ, "HOME": str(rig.directory)})
    except subprocess.TimeoutExpired as error:
        raise RigError(f"siege on {target} did not end") from error
    return parsed(done.stdout, done.stderr)


def parsed(text, trouble):
    try:
        seen = json.loads(text[text.index("{"):text.rindex("}") + 1])
        return Report(seen["transactions"], seen["availability"], seen["transaction_rate"], seen["response_time"],
                      seen["longest_transaction"], seen["failed_transactions"])
    except (ValueError, KeyError) as error:
        raise RigError(f"siege gave no figures:\n{(text + trouble)[-2000:]}") from error
