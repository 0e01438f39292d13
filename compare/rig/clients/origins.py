"""Applications for what is measured apart from the load."""

from rig import applications
from rig.clients import ECHO


def unchanging(rig, programs, size, name):
    """An application that takes no time for pages that never change."""
    return applications.simulated(rig, programs.cores, "static-100", "--size", size, "--max-age", 86400, "--etag", "--echo", ECHO, name=name)
