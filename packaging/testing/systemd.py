"""The package under a real systemd: it is process 1 of namespaces of its own, and has nothing else to start.

The kernel's settings are not part of any namespace, so systemd sees /proc/sys and /sys read-only, and nothing is started that would write there. Its
control groups are below one that is made for it and removed.
"""

import os
import shutil
import subprocess
from pathlib import Path

from testing import package
from testing.machine import LIMIT_SECONDS, Application, Skipped, need, run

SYSTEMD = Path("/lib/systemd/systemd")
# Nothing is wanted at the start but the script: no mounts, no settings of the kernel, no swap, no devices.
UNITS = {
    "sysinit.target": "[Unit]\nDescription=Nothing\n",
    "try.service": """[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/sh /shared/script >/shared/said 2>&1; echo $? >/shared/status'
ExecStopPost=/bin/systemctl exit 0
""",
    "default.target": "[Unit]\nDescription=The trial\nWants=try.service\n",
}
BOOT = """set -e
root=$1
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind /dev/$device "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
umount --recursive --lazy "$root/proc"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
cd "$root"
mkdir -p before
pivot_root . before
umount --lazy /before
exec env --ignore-environment container=test PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --system --log-target=null --show-status=0 </dev/null >/dev/null 2>&1
"""


def runs_the_unit(machine):
    """It starts behind its sandbox, keeps a disk and a log, is reloaded, refuses a bad file without trying again, and leaves nothing behind."""
    if not SYSTEMD.exists():
        raise Skipped("systemd is not installed")
    need("pivot_root")
    shared = machine.root / "shared"
    shared.mkdir(exist_ok=True)
    (shared / "microcache.deb").write_bytes(package.built(machine).read_bytes())
    shutil.copy(Path(__file__).parent / "under-systemd", shared / "script")
    shutil.copy(Path(__file__).parent / "machine.py", shared / "machine.py")
    settings = machine.root / "etc/systemd/system"
    for path in settings.glob("*.wants"):
        shutil.rmtree(path)
    for name, text in UNITS.items():
        (settings / name).unlink(missing_ok=True)
        (settings / name).write_text(text)
    # Such a file keeps packages from starting services, in images.
    (machine.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
    with ControlGroup() as group:
        apart = ["unshare", "--mount", "--pid", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", BOOT, "boot", machine.root]
        booted = subprocess.Popen(["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group.path, *map(str, apart)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        machine.processes.append(booted)
        said, _ = booted.communicate(timeout=LIMIT_SECONDS * 3)
    status = shared / "status"
    if not (shared / "said").exists():
        raise Skipped(f"systemd does not start in a namespace here: {said.strip() or booted.returncode}")
    assert status.exists() and status.read_text().strip() == "0", (shared / "said").read_text()


class ControlGroup:
    """A group for what systemd makes, below the ones that this process is in."""

    def __enter__(self):
        mounted = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        top = next((Path(words[1]) for words in mounted if words[2] == "cgroup2"), None)
        if top is None:
            raise Skipped("the kernel has no unified control groups here")
        self.path = top / f"microcache-packages-{os.getpid()}-{os.stat('/proc/self/ns/pid').st_ino}"
        self.path.mkdir()
        return self

    def __exit__(self, *_):
        for folder, _, _ in os.walk(self.path, topdown=False):
            os.rmdir(folder)
