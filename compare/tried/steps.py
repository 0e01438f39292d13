"""The steps of a trial: counted as they succeed."""

import traceback

from rig.command import log


def steps_of(name, part):
    """Counts the steps of a part that succeed, and says why one did not."""
    steps = []

    def step(words):
        log(f"{name}: {words}")
        steps.append(words)
    try:
        part(step)
    except (AssertionError, OSError, KeyError, TypeError, ValueError):
        return len(steps) - 1, f"{steps[-1]} ... FAILED\n{traceback.format_exc()}"
    return len(steps), None
