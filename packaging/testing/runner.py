"""Runs tests as root in namespaces of their own, and says which passed."""

import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from testing.machine import Machine, Skipped

INSIDE = "--inside"
APART = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def run_apart(script, *arguments):
    """Runs this script anew, with the option that says so, in namespaces of its own; its exit status, which is zero where none can be made."""
    if os.geteuid() != 0 or subprocess.run([*APART, "true"], capture_output=True).returncode != 0:
        leave_out("packages: installing and running them (needs root, and rights to make namespaces)")
        return 0
    return subprocess.run([*APART, sys.executable, script, INSIDE, *map(str, arguments)]).returncode


def run_tests(tests, only, binary, prepare=lambda machine: None):
    """Runs the tests with these words in their names, on a machine that was prepared; the exit status."""
    folder = Path(tempfile.mkdtemp(prefix="microcache-packages-"))
    passed = failed = skipped = 0
    try:
        machine = Machine(folder, binary)
        prepare(machine)
        for test in tests:
            name = f"{test.__module__.removeprefix('testing.')} {test.__name__.replace('_', ' ')}"
            if only not in name:
                continue
            try:
                test(machine)
            except Skipped as why:
                skipped += 1
                leave_out(f"packages: {name} ({why})")
            except Exception:
                failed += 1
                print(f"{name} ... FAILED", flush=True)
                traceback.print_exc()
            else:
                passed += 1
                print(f"{name} ... ok", flush=True)
            finally:
                machine.stop_all()
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", folder], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def leave_out(what):
    """What this machine does not let a test try stands at the end of `make test`, too."""
    print(f"left out: {what}", flush=True)
    if "LEFT_OUT" in os.environ:
        with open(os.environ["LEFT_OUT"], "a") as file:
            file.write(f"left out: {what}\n")
