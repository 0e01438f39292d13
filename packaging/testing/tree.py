"""`make install` and `make uninstall`."""

import re

from testing.machine import ROOT, run


def install_and_uninstall(machine):
    """What was installed is all there, names its own places, and goes again; what the operator has written stays."""
    folder = machine.folder / "tree"
    where = ["PREFIX=/opt/microcache", f"DESTDIR={folder}"]
    run("make", "--no-print-directory", "install", f"BINARY={machine.binary}", *where, cwd=ROOT)
    program = folder / "opt/microcache/bin/microcache"
    # The secret is made where the machine is that it is installed on.
    secret, checked = machine.folder / "token", machine.folder / "checked.toml"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    installed = (folder / "etc/microcache/microcache.toml").read_text()
    checked.write_text(installed.replace("/etc/microcache/token", str(secret)))
    run(program, "check", checked)
    unit = (folder / "opt/microcache/lib/systemd/system/microcache.service").read_text()
    assert "ExecStart=/opt/microcache/bin/microcache --config /etc/microcache/microcache.toml" in unit, unit
    assert not re.search("@[A-Z]+@", unit), unit
    config = folder / "etc/microcache/microcache.toml"
    config.write_text('origin = "http://mine"\n')
    run("make", "--no-print-directory", "install", f"BINARY={machine.binary}", *where, cwd=ROOT)
    assert config.read_text() == 'origin = "http://mine"\n'
    run("make", "--no-print-directory", "uninstall", *where, cwd=ROOT)
    left = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert left == [config.relative_to(folder)], left
