"""Filling a cache with many urls before it is measured."""

import time

from rig.command import log
from rig.errors import RigError
from rig.wrk import Load

LIMIT_SECONDS = 600
STEP_SECONDS = 0.05


def warm(rig, server, connections, path, urls):
    """Asks for every url once, until the origin has given as many answers as there are urls."""
    log(f"warming {server.name}")
    before = rig.origin_requests()
    load = Load(LIMIT_SECONDS, connections, 1, {rig.load_core})
    with load.going_on(server.url, "warm.lua", [path, urls]) as child:
        while rig.origin_requests() - before < urls:
            if child.poll() is not None:
                raise RigError(f"{server.name} could not be warmed: {rig.origin_requests() - before} of {urls} urls were fetched")
            time.sleep(STEP_SECONDS)
    rig.check(server, f"{path}/1")
