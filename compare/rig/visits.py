"""Browsers that come again to a page that changes every second: how much they are sent, by what they accept and what they have."""

import base64
import gzip
import hashlib
import http.client
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rig.errors import RigError
from rig.servers import PATIENCE_SECONDS

IDENTITY = "identity"
CODINGS = (IDENTITY, "gzip", "br", "zstd")
DICTIONARY_ACCEPTED = "gzip, br, zstd, dcb, dcz"
# How many versions of the page have come since the one that a browser has.
AGES = (1, 3, 7)
# The page is renewed, and what is made of it is made, while nobody looks.
SETTLING_SECONDS = 0.6
# From one version to the next: the page is fresh for a second.
PAUSE_SECONDS = 1.1
# What was never asked for is not made beforehand.
WARMING = 2
# What stands before the zstd frame: a magic number and the hash of the dictionary (RFC 9842 §5).
DCZ_HEAD = 8 + 32
DCZ_MAGIC = bytes([0x5E, 0x2A, 0x4D, 0x18, 0x20, 0, 0, 0])


@dataclass(frozen=True)
class Visit:
    coding: str
    body: bytes


def returning(server, rounds):
    """The bytes of content of each visit, by who comes. What is sent is decoded, and has to be the page."""
    sizes, versions = {}, []
    for number in range(WARMING + max(AGES) + rounds):
        ask(server, IDENTITY)  # somebody else, for whom the page is renewed
        time.sleep(SETTLING_SECONDS)
        visits = {coding: ask(server, coding) for coding in CODINGS}
        page = visits[IDENTITY].body
        for age in AGES:
            if age <= len(versions):
                has = versions[-age]
                visits[f"dcz, {age} version{'s' if age > 1 else ''} behind"] = ask(server, DICTIONARY_ACCEPTED, has)
        for name, visit in visits.items():
            if decoded(visit, versions) != page:
                raise RigError(f"{server.name}: {name}: what was sent as {visit.coding} is not the page of that second")
            if number >= WARMING + max(AGES):
                sizes.setdefault(name, []).append(len(visit.body))
        versions.append(page)
        time.sleep(PAUSE_SECONDS)
    if len(set(versions)) < len(versions):
        raise RigError("the page did not change from visit to visit")
    return sizes


def ask(server, accepted, has=None):
    fields = {"Accept-Encoding": accepted}
    if has is not None:
        fields["Available-Dictionary"] = f":{base64.b64encode(hashlib.sha256(has).digest()).decode()}:"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/", headers=fields)
        response = connection.getresponse()
        return Visit(response.getheader("Content-Encoding", IDENTITY), response.read())
    except (OSError, http.client.HTTPException) as error:
        raise RigError(f"{server.name}: {error!r}\n{server.process.last_words()}") from error
    finally:
        connection.close()


def decoded(visit, versions):
    if visit.coding == IDENTITY:
        return visit.body
    if visit.coding == "gzip":
        return gzip.decompress(visit.body)
    if visit.coding == "br":
        return program(["brotli", "-dc"], visit.body)
    if visit.coding == "zstd":
        return program(["zstd", "-dqc"], visit.body)
    magic, name = visit.body[:len(DCZ_MAGIC)], visit.body[len(DCZ_MAGIC):DCZ_HEAD]
    known = next((page for page in versions if hashlib.sha256(page).digest() == name), None)
    if visit.coding != "dcz" or magic != DCZ_MAGIC or known is None:
        raise RigError(f"{visit.coding}: nobody has asked for that")
    with TemporaryDirectory(prefix="dictionary-") as home:
        dictionary = Path(home) / "dictionary"
        dictionary.write_bytes(known)
        return program(["zstd", "-dqc", f"--patch-from={dictionary}"], visit.body[DCZ_HEAD:])


def program(command, body):
    done = subprocess.run(command, input=body, capture_output=True)
    if done.returncode:
        raise RigError(f"{command[0]} cannot decode what was sent: {done.stderr.decode(errors='replace')}")
    return done.stdout
