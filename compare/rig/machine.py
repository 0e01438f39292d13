"""The machine: its packages, its cores, and how to name it in a report."""

import os
import platform
import resource
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from rig import peers
from rig.errors import RigError

POLICY = Path("/usr/sbin/policy-rc.d")
# At the start: a script that watches its servers leaves their core later.
AVAILABLE_CORES = sorted(os.sched_getaffinity(0))


def need_packages(packages):
    """Installs the Debian packages of which something is missing. `packages` maps a command, or a file, to its packages."""
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    missing = {name for command, names in packages.items() if not is_there(command) for name in names.split()}
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise RigError(f"not a Debian machine; please install by hand: {' '.join(sorted(missing))}")
    if os.geteuid() != 0:
        raise RigError(f"please install as root: apt-get install {' '.join(sorted(missing))}")
    with services_kept_down():
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", *sorted(missing)]):
            done = subprocess.run(["apt-get", "-q", *arguments], env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise RigError(f"apt-get {' '.join(arguments)} failed:\n{done.stdout[-2000:]}")


def is_there(command):
    return peers.has(command) or (Path(command).exists() if Path(command).is_absolute() else shutil.which(command))


@contextmanager
def services_kept_down():
    """Debian's server packages start a service when installed. The measurement starts its own, so none may run beside it."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def raise_file_limit(wanted):
    """Lets every server have as many descriptors as the machine permits, and says how many; fewer than wanted are only root's to raise."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if wanted > hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return wanted
        except (OSError, ValueError) as error:
            raise RigError(f"{wanted:,} open files are needed and {hard:,} permitted; run as root, or raise the limit (ulimit -Hn)") from error
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def cores():
    """The core the server is held to and the core for the load."""
    if len(AVAILABLE_CORES) < 2:
        raise RigError("this measurement needs two cores: one for the server, one for the load")
    return AVAILABLE_CORES[0], AVAILABLE_CORES[1]


def busy_share(seconds=1.0):
    """The share of all cores in use while nothing of ours runs: the noise that the run has to live with."""
    def read():
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]
    total, idle = read()
    time.sleep(seconds)
    later_total, later_idle = read()
    return 1 - (later_idle - idle) / max(1, later_total - total)


def description():
    """Processor, cores, memory, system and kernel, in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    virtual = ", virtual machine" if any("hypervisor" in line for line in lines if line.startswith("flags")) else ""
    return f"{model}, {os.cpu_count()} cores{virtual}, {memory:.0f} GiB, {system}, Linux {platform.release()}"


def fast_directory(fallback):
    """A place for nginx's files: memory where there is enough of it, else the page cache over a plain directory."""
    shared = Path("/dev/shm")
    if shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2 * 2**30:
        return shared
    return fallback
