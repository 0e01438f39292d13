"""The slow applications behind the caches. Each counts what it is asked, so that nobody has to be believed."""

import json
import time

from rig import machine
from rig.errors import RigError
from rig.servers import COMPARE, Server, run

JAVA_PACKAGES = {"javac": "default-jdk-headless", "mvn": "maven"}
# Filling the table takes its time where other programs have the cores.
JAVA_START_LIMIT_SECONDS = 180
# A small young generation, so that what a scan costs does not depend on when the last collection was: see java-blog/README.md.
JAVA_OPTIONS = ["-XX:+UseSerialGC", "-Xmn48m", "-Xmx2g"]
COUNTERS = "/_origin/counters"
# An application that was overrun works off what has piled up.
IDLE_LIMIT_SECONDS = 300
IDLE_STEP_SECONDS = 0.1


class Application(Server):
    """An application with counters, which may be on a port of their own."""

    def __init__(self, server, counter_port=None):
        super().__init__(server.name, server.process, server.port)
        self.counters = Server(f"{server.name}'s counters", server.process, counter_port or server.port)

    def counts(self):
        return json.loads(self.counters.get(COUNTERS))

    def requests(self):
        return self.counts()["requests"]

    def count_from_zero(self):
        """Waits until the application has done what it was asked for before, and counts from zero."""
        deadline = time.monotonic() + IDLE_LIMIT_SECONDS
        while self.counts()["in_flight"]:
            if time.monotonic() > deadline:
                raise RigError(f"{self.name} still works {IDLE_LIMIT_SECONDS} s after the load has ended")
            time.sleep(IDLE_STEP_SECONDS)
        self.forget()

    def forget(self):
        self.counters.get(COUNTERS, "DELETE")

    def render_seconds(self, warming, measured):
        """The mean time of a page when only one is asked for at a time."""
        for _ in range(warming):
            self.get("/")
        begun = time.monotonic()
        for _ in range(measured):
            self.get("/")
        return (time.monotonic() - begun) / measured


def simulated(rig, cores, like, *flags, name="origin"):
    """`microcache origin`, a simulation of an application."""
    server = rig.start(rig.stack, name, cores, lambda _, port: [
        rig.microcache, "origin", "--like", like, *flags, "--listen", f"127.0.0.1:{port}"])
    return Application(server)


def java_blog(rig, cores):
    """The real one of workload 2."""
    machine.need_packages(JAVA_PACKAGES)
    run(["mvn", "-q", "-B", "-f", COMPARE / "java-blog", "package"])
    jar = COMPARE / "java-blog" / "target" / "java-blog.jar"
    counters = rig.port()
    server = rig.start(rig.stack, "java-blog", cores, lambda home, port: ["java", *JAVA_OPTIONS, "-jar", jar, port, counters, home], JAVA_START_LIMIT_SECONDS)
    return Application(server, counters)
