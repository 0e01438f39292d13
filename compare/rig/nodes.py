"""The nodes of three fleets before one application, and what is done to them under load: each of Microcaches with a Redis, nginx, and Varnish."""

import ctypes
import json
import os
import re
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from rig import peers, servers
from rig.balancer import Node
from rig.errors import RigError
from rig.process import Process

PACKAGES = {servers.REDIS: servers.REDIS, "curl": "curl", "nginx": "nginx-light", "varnishd": "varnish"}
RUNBOOK = servers.ROOT / "docs" / "guides" / "operator.md"
STEP_LIMIT_SECONDS = 60
FROZEN_SECONDS = 3
# Nodes that are restarted one after the other.
SOME = 5
PAUSE_SECONDS = 0.2
PR_SET_CHILD_SUBREAPER = 36
# On so few cores Redis may be late by more than the 50 ms that a node waits by default, which is no matter of fleets.
CONFIGURATION = """listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
origin = "{origin}"
redis = "redis://127.0.0.1:{redis}/0"
redis_timeout = "1s"
memory = "32MiB"
threads = 1
drain_delay = "2s"
"""


class Fleet:
    """So many nodes, each in a folder of its own. Use as a context manager."""

    def __init__(self, rig, size):
        self.rig, self.size, self.stack, self.nodes = rig, size, None, []
        self.cores = {rig.server_core, rig.load_core}

    def __enter__(self):
        with ExitStack() as stack:
            self.stack = stack
            stack.callback(self.end)
            self.start()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def end(self):
        """Ends all but the application, also what has taken the place of a process that was started here: this process inherits it."""
        while others := [pid for pid in descendants(os.getpid()) if pid != self.rig.origin.process.child.pid]:
            for pid in others:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def roll(self, act, nodes):
        for node in nodes:
            act(node)
            time.sleep(PAUSE_SECONDS)


class Microcaches(Fleet):
    """Nodes that share a Redis."""

    has_purges = True

    def start(self):
        self.redis_port, self.home = self.rig.port(), self.rig.directory / f"nodes-{self.rig.next_port}"
        self.home.mkdir()
        (self.home / "microcache").symlink_to(self.rig.microcache)
        self.redis = self.started_redis()
        for number in range(self.size):
            port, admin = self.rig.port(), self.rig.port()
            file = self.home / f"{admin}.toml"
            file.write_text(CONFIGURATION.format(port=port, admin=admin, origin=self.rig.origin.url, redis=self.redis_port))
            command = [self.rig.microcache, "--config", file]
            self.rig.note("microcache", [*command[:2], "$DIR/ADMIN-PORT.toml"])
            Process("microcache", command, self.cores, self.home / f"{admin}.log").wait_for_port(port)
            self.nodes.append(Node(f"microcache {number + 1}", port, admin))

    def started_redis(self):
        command = [servers.REDIS, "--port", self.redis_port, "--bind", "127.0.0.1", "--dir", self.home, "--save", "3600 1"]
        self.rig.note("redis", command)
        process = Process("redis", command, self.cores, self.home / "redis.log")
        process.wait_for_port(self.redis_port)
        return process

    def restart_redis(self):
        """As a package is upgraded: SIGTERM, after which it saves its data, and a start."""
        self.redis.stop()
        self.redis = self.started_redis()

    def reload(self):
        for node in self.nodes:
            self.asked(node, "/v1/reload", "POST")

    def roll_upgrade(self):
        self.run_runbook(self.nodes, "microcache upgrade --admin http://$NODE")

    def roll_restart(self):
        self.run_runbook(self.nodes[:SOME], f"setsid microcache --config {self.home}/${{NODE#*:}}.toml >>{self.home}/rolled.log 2>&1 &", DRAIN="yes")

    def run_runbook(self, nodes, command, **settings):
        """The very script of the operator's guide."""
        script = self.home / "rolling"
        script.write_text(re.search(r"```sh\n(#!/bin/sh\n# rolling .*?)```", RUNBOOK.read_text(), re.DOTALL)[1])
        words = ["sh", script, command, *(f"127.0.0.1:{node.admin}" for node in nodes)]
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": f"{self.home}:{os.environ['PATH']}", "PAUSE": "0", **settings})
        if done.returncode:
            raise RigError(f"the runbook: {done.stdout}{done.stderr}")

    def freeze_half(self):
        half = self.nodes[::2]
        pids = [json.loads(self.asked(node, "/v1/stats"))["pid"] for node in half]
        for node, pid in zip(half, pids):
            node.is_frozen = True
            os.kill(pid, signal.SIGSTOP)
        time.sleep(FROZEN_SECONDS)
        for node, pid in zip(half, pids):
            node.continued, node.is_frozen = time.monotonic(), False
            os.kill(pid, signal.SIGCONT)

    def asked(self, node, path, method="GET"):
        return servers.Server(node.name, self.redis, node.admin).get(path, method)

    actions = {"all reloaded": reload, "upgraded one by one": roll_upgrade, "Redis restarted": restart_redis, "half of the nodes frozen": freeze_half,
               f"{SOME} nodes drained and started": roll_restart}


class Nginxes(Fleet):
    """nginx nodes, each with a cache of its own."""

    has_purges = False

    def start(self):
        self.homes = {}
        for number in range(self.size):
            port, home = self.rig.port(), self.rig.directory / f"nginx-{self.rig.next_port}"
            home.mkdir()
            command = servers.nginx(self.rig, self.stack, home, port, 1)
            self.rig.note("nginx", command)
            # It is upgraded only as a daemon, and by its whole path.
            command[-1].write_text(command[-1].read_text().replace("daemon off;", ""))
            servers.run(["/usr/sbin/nginx" if word == "nginx" else word for word in peers.command(command)])
            self.nodes.append(Node(f"nginx {number + 1}", port))
            self.homes[port] = home

    def pid(self, node):
        """The master process; 0 while one takes the place of another."""
        file = self.homes[node.port] / "nginx.pid"
        return int(file.exists() and file.read_text() or 0)

    def reload(self):
        for node in self.nodes:
            os.kill(self.pid(node), signal.SIGHUP)

    def upgrade(self, node):
        """As its manual says: a new master process by SIGUSR2, then SIGQUIT to the old one."""
        old = self.pid(node)
        os.kill(old, signal.SIGUSR2)
        await_that(lambda: self.pid(node) not in (0, old), f"{node.name} is upgraded")
        os.kill(old, signal.SIGQUIT)

    actions = {"all reloaded": reload, "upgraded one by one": lambda self: self.roll(self.upgrade, self.nodes)}


class Varnishes(Fleet):
    """Varnish nodes, each with a cache of its own. They are restarted, because there is no upgrade without."""

    has_purges = False

    def start(self):
        self.commands, self.processes = {}, {}
        for number in range(self.size):
            port, home = self.rig.port(), self.rig.directory / f"varnish-{self.rig.next_port}"
            home.mkdir()
            words = servers.varnish(self.rig, self.stack, home, port, 1)
            # Twenty of them on one machine: a few threads each, and less memory for a log that nobody reads.
            self.commands[port] = [*words, "-p", "thread_pool_min=10", "-p", "vsl_space=4M"]
            self.rig.note("varnish", self.commands[port])
            node = Node(f"varnish {number + 1}", port)
            self.run(node)
            self.nodes.append(node)

    def run(self, node):
        home = Path(self.commands[node.port][3]).parent
        self.processes[node.port] = Process(node.name, peers.command(self.commands[node.port]), self.cores, home / "log")
        self.processes[node.port].wait_for_port(node.port)

    def restart(self, node):
        self.processes[node.port].stop()
        self.run(node)

    actions = {f"{SOME} nodes restarted": lambda self: self.roll(self.restart, self.nodes[:SOME])}


CONTENDERS = {"microcache": Microcaches, "nginx": Nginxes, "varnish": Varnishes}


def inherit_orphans():
    """Makes this process the parent of what its children leave behind."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid):
    with suppress(OSError):  # one that ends meanwhile has none
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                yield from descendants(child)
                yield child


def await_that(is_so, what):
    deadline = time.monotonic() + STEP_LIMIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise RigError(f"not within {STEP_LIMIT_SECONDS} s: {what}")
        time.sleep(0.05)
