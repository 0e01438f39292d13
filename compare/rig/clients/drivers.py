"""Programs that drive HTTP clients with a cache, one in Rust and one in Java, which follow the same plan: see client-drivers/README.md."""

import ctypes
import json
import os
import re
import subprocess
from contextlib import contextmanager

from rig.applications import JAVA_PACKAGES
from rig.errors import RigError
from rig.servers import COMPARE, run

PACKAGES = JAVA_PACKAGES
DRIVERS = COMPARE / "client-drivers"
# The heap is the same whatever the machine has; what is stored here takes a tenth of it.
JAVA_OPTIONS = ["-Xmx2g"]
# A driver that was to go on for so long takes this much longer at most.
END_LIMIT_SECONDS = 120
# As many choices as are compared between the languages.
CHOICES = {"users": 5, "urls": 1000, "variants": 3, "identities": 4, "pause-us": 20_000, "seed": 7, "requests": 50}
PR_SET_TIMERSLACK = 29  # of <linux/prctl.h>


class Drivers:
    """Both programs, built."""

    def __init__(self, rig, cores):
        self.rig, self.cores = rig, cores
        run(["cargo", "build", "--release", "--locked"], cwd=DRIVERS / "rust")
        run(["mvn", "-q", "-B", "-f", DRIVERS / "java", "package"])
        target = os.environ.get("CARGO_TARGET_DIR", DRIVERS / "rust" / "target")
        self.rust = [f"{target}/release/client-driver"]
        self.java = ["java", *JAVA_OPTIONS, "-jar", DRIVERS / "java" / "target" / "client-driver.jar"]
        wanted = list(choices(**CHOICES))
        for program in (self.rust, self.java):
            told = run_for_output([*program, "work=choices", *words(CHOICES)])
            if told.split() != [str(number) for choice in wanted for number in choice]:
                raise RigError(f"{program[0]} does not choose as it is to")

    def versions(self):
        """Of the libraries that are compared, by their names."""
        locked = re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', (DRIVERS / "rust" / "Cargo.lock").read_text())
        jars = [re.fullmatch(r"(.+?)-(\d.*)", path.stem).groups() for path in (DRIVERS / "java" / "target" / "lib").glob("*.jar")]
        return dict([*locked, *jars])

    def command(self, client, plan):
        program = self.java if client.is_java else self.rust
        command = [str(word) for word in (*program, f"client={client.name}", *words(plan), *client.words)]
        self.rig.note(f"{plan['work']}, {'Java' if client.is_java else 'Rust'}", command)
        return command

    @contextmanager
    def going_on(self, client, plan):
        """The driver for the length of the block."""
        child = subprocess.Popen(self.command(client, plan), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=lambda: prepare(self.cores))
        try:
            yield Driver(client, child)
        finally:
            if child.poll() is None:
                child.kill()
            child.communicate()

    def figures(self, client, plan):
        """The one line of a driver that measures one thing."""
        with self.going_on(client, plan) as driver:
            return next(driver.lines())


class Driver:
    """A driver that goes on, and says something now and then."""

    def __init__(self, client, child):
        self.client, self.child = client, child

    def lines(self):
        for line in self.child.stdout:
            yield json.loads(line)
        if self.child.wait(END_LIMIT_SECONDS):
            raise RigError(f"the driver of {self.client.name} has failed:\n{self.child.stderr.read()[-2000:]}")
        raise RigError(f"the driver of {self.client.name} says no more than it has")


def prepare(cores):
    """On these cores; and a pause of a thread is as long as it asks for, not 50 µs longer, in whatever language."""
    os.sched_setaffinity(0, cores)
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)


def words(plan):
    return [f"{name}={value}" for name, value in plan.items()]


def run_for_output(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise RigError(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def choices(**plan):
    """What both are to choose, written a third time."""
    mask = (1 << 64) - 1
    for user in range(plan["users"]):
        state = plan["seed"] * 1_000_003 + user
        for _ in range(plan["requests"]):
            drawn = []
            for of in (plan["urls"], plan["variants"], plan["identities"], plan["pause-us"] + 1):
                state = (state + 0x9E3779B97F4A7C15) & mask
                mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
                mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
                drawn.append(((mixed ^ (mixed >> 31)) >> 33) % of)
            yield user, *drawn
