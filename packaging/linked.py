"""The packages that are linked into the program, for packaging/third-party and packaging/sbom."""

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "microcache"


@dataclass
class Crate:
    """A Cargo package, with the names and versions of the crates that it uses."""

    name: str
    version: str
    licence: str
    repository: str
    is_ours: bool
    uses: set = field(default_factory=set)


def crates():
    """All crates by name and version: neither macros nor what only builds or tests use. TARGET is rustc's name of the target, else it is this machine.

    `cargo metadata` would have features that only tests enable, and the crates behind them.
    """
    target = os.environ.get("TARGET") or host()
    listed = said("cargo", "tree", "--locked", "--package", PROGRAM, "--target", target, "--edges", "normal,no-proc-macro", "--prefix", "depth",
                  "--format", "|{p}|{l}|{r}|")
    found, above = {}, []
    for line in listed.splitlines():
        depth, package, licence, repository, _ = line.split("|")
        name, version, *place = package.split()
        key = (name, version.removeprefix("v"))
        # A repeated crate has the same line, and what is below it stands at the first one.
        found.setdefault(key, Crate(*key, re.sub(r"\s*/\s*", " OR ", licence), repository, any(word.startswith("(/") for word in place)))
        above[int(depth):] = [key]
        if len(above) > 1:
            found[above[-2]].uses.add(key)
    return dict(sorted(found.items()))


def folders():
    """The folder of each crate's files, by name and version."""
    target = os.environ.get("TARGET") or host()
    packages = json.loads(said("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target))["packages"]
    return {(one["name"], one["version"]): Path(one["manifest_path"]).parent for one in packages}


def host():
    return next(line.split()[1] for line in said("rustc", "-vV").splitlines() if line.startswith("host:"))


def is_static(binary):
    """Whether the C library is linked in: no header of the program names a loader for it."""
    return "INTERP" not in said("readelf", "--program-headers", "--wide", binary)


@dataclass
class Library:
    """A library of the system that is linked into a static program."""

    name: str
    version: str
    licence: str
    purl: str
    # The files of its licences on this machine.
    texts: list


def libraries(binary):
    """The libraries in a program beside the crates, as Debian's packages name them: there are none in one that loads them at its start."""
    target = os.environ.get("TARGET") or host()
    if not is_static(binary):
        return []
    release = said("rustc", "--version").split()[1]
    sysroot = Path(said("rustc", "--print", "sysroot").strip())
    found = [Library("rust-std", release, "MIT OR Apache-2.0", f"pkg:github/rust-lang/rust@{release}", [sysroot / "share/doc/rust/COPYRIGHT-library.html"])]
    if target.endswith("-gnu"):
        common = Path("/usr/share/common-licenses")
        found += [of_debian("libc.a", "LGPL-2.1-or-later", common / "LGPL-2.1"),
                  of_debian("libgcc_eh.a", "GPL-3.0-or-later WITH GCC-exception-3.1", common / "GPL-3")]
    return found


def of_debian(archive, licence, text):
    """A library that the compiler links from an archive, by the Debian source package of that archive."""
    path = Path(said("cc", f"-print-file-name={archive}").strip()).resolve()
    package = said("dpkg", "--search", path).split(":")[0]
    name, version = said("dpkg-query", "--show", "--showformat", "${source:Package} ${source:Version}", package).split()
    purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch=source"
    return Library(name, version, licence, purl, [Path("/usr/share/doc", package, "copyright"), text])


def said(*command):
    return subprocess.run([str(word) for word in command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
