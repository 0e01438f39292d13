"""One server process with its children: started on given cores, read for its CPU time, stopped by id."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from rig.errors import RigError

START_LIMIT_SECONDS = 30
STOP_LIMIT_SECONDS = 10
SETTLE_LIMIT_SECONDS = 10
SETTLE_STEP_SECONDS = 0.1
IDLE_SHARE = 0.02
CPUCLOCK_SCHED = 2  # of <linux/posix-timers.h>: the scheduler's nanoseconds, for all threads, ended ones too


class Process:
    """A running program. Use as a context manager: it is gone when the block ends, however it ends."""

    def __init__(self, name, command, cores, log):
        self.name, self.command, self.log = name, [str(word) for word in command], Path(log)
        with self.log.open("wb") as output:
            self.child = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this program, which then stops the servers in order
                preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def tree(self):
        """The ids of the process and of all its descendants."""
        found, ahead = [], [self.child.pid]
        while ahead:
            pid = ahead.pop()
            found.append(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    ahead += [int(word) for word in children.read_text().split()]
                except OSError:
                    pass  # a thread that ended meanwhile has no children
        return found

    def move_to(self, cores):
        """Gives all its threads other cores; those it starts later follow."""
        for pid in self.tree():
            for thread in Path(f"/proc/{pid}/task").iterdir():
                try:
                    os.sched_setaffinity(int(thread.name), cores)
                except ProcessLookupError:
                    pass  # it has ended meanwhile

    def cpu_seconds(self):
        """CPU time, user and system, of the whole tree so far, with the processes of it that have ended."""
        return sum(time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED) + of_ended_children(pid) for pid in self.tree())

    def settle(self):
        """Waits until it has nothing to do."""
        deadline = time.monotonic() + SETTLE_LIMIT_SECONDS
        while time.monotonic() < deadline:
            before = self.cpu_seconds()
            time.sleep(SETTLE_STEP_SECONDS)
            if self.cpu_seconds() - before < SETTLE_STEP_SECONDS * IDLE_SHARE:
                return

    def memory_kilobytes(self):
        """KB that belong to its processes alone, and its part of what they share."""
        return sum(proportional(pid) for pid in self.tree())

    def wait_for_port(self, port, limit=START_LIMIT_SECONDS):
        """Returns when something accepts on the port; a process that ends before that is an error told with its own words."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                raise RigError(f"{self.name} ended with status {self.child.returncode} instead of serving:\n{self.last_words()}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RigError(f"{self.name} does not accept on port {port}:\n{self.last_words()}")

    def last_words(self):
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self):
        if self.child.poll() is not None:
            return
        tree = self.tree()
        self.child.terminate()
        try:
            self.child.wait(STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in tree:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.child.wait()


def of_ended_children(pid):
    """CPU seconds of the children that a process has waited for, in clock ticks: nginx, for one, has a process that reads its cache's directory and ends."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def proportional(pid):
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise RigError(f"the system does not say what process {pid} takes")
