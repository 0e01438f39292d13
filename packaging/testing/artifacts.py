"""The published files themselves: sums, contents, the bill of materials, and that they come out the same again."""

import hashlib
import json
import os
import sys
import tarfile
import tomllib
from pathlib import Path

from testing import image
from testing.machine import ROOT, need, run

HERE = ROOT / "packaging"
# The folder of the schemas in the package of testing/requirements.txt.
SCHEMAS = "cyclonedx/schema/_res"
# Crates that only tests, other systems or the compiler use.
NOT_LINKED = {"proptest", "shuttle", "tokio-macros", "serde_derive", "syn", "cc", "windows-sys", "ring"}


def folder(machine):
    """Where they are: `packaging/release-test` sets it."""
    return machine.published


def only(machine, pattern):
    found = list(folder(machine).glob(pattern))
    assert len(found) == 1, f"{pattern}: {found}"
    return found[0]


def unpacked(machine):
    """The archive, unpacked once, as a user does."""
    into = machine.folder / "unpacked"
    if not into.exists():
        into.mkdir()
        run("tar", "-x", "-z", "-f", only(machine, "*.tar.gz"), "-C", into)
    return next(into.iterdir())


def have_their_sums(machine):
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder(machine))
    named = {line.split()[1] for line in (folder(machine) / "SHA256SUMS").read_text().splitlines()}
    there = {path.name for path in folder(machine).iterdir()} - {"SHA256SUMS"}
    assert named == there and len(named) == 4, named ^ there


def are_complete(machine):
    """The contents of the archive and their owner; the configuration, the manual, completions and licences."""
    files = unpacked(machine)
    names = {path.name for path in files.iterdir()}
    assert names >= {"microcache", "microcache.toml", "man", "completions", "README.md", "CHANGELOG.md", "LICENSE", "LICENSE-MIT", "LICENSE-APACHE",
                     "third-party.txt", "docs"}, names
    with tarfile.open(only(machine, "*.tar.gz")) as tar:
        entries = tar.getmembers()
    assert [entry.name for entry in entries] == sorted((entry.name for entry in entries), key=lambda name: Path(name).parts)
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {(0, 0, "root", "root")}
    assert len({entry.mtime for entry in entries}) == 1
    assert {entry.name.split("/")[0] for entry in entries} == {files.name}
    program = files / "microcache"
    run(program, "check", files / "microcache.toml")
    assert ".TH MICROCACHE 1 " in (files / "man/microcache.1").read_text()
    assert (files / "man/microcache-purge.1").exists()
    run("bash", "-n", files / "completions/microcache.bash")
    licences = (files / "third-party.txt").read_text()
    for name in ("tokio 1.", "aws-lc-sys 0.", "rust-std 1.", "GNU LESSER GENERAL PUBLIC LICENSE"):
        assert name in licences, name


def hold_a_static_program(machine):
    """It asks for no loader and no library, and names no folder of the machine that built it."""
    need("readelf")
    program = unpacked(machine) / "microcache"
    headers = run("readelf", "--program-headers", "--dynamic", "--wide", program)
    assert "INTERP" not in headers and "NEEDED" not in headers, headers
    data = program.read_bytes()
    for path in (ROOT, Path.home() / ".cargo", Path.home() / ".rustup", "/index.crates.io"):
        assert str(path).encode() not in data, f"{path} is named in the program"


def hold_the_same_program(machine):
    """In the archive, the package and the image."""
    program = (unpacked(machine) / "microcache").read_bytes()
    into = machine.folder / "from-package"
    run("dpkg-deb", "--extract", only(machine, "*.deb"), into)
    assert (into / "usr/bin/microcache").read_bytes() == program
    root = image.mounted(machine)
    assert (root / "usr/bin/microcache").read_bytes() == program
    libraries = [path for path in run("find", root, "-xdev", "-name", "*.so*").split()]
    assert not libraries, libraries


def have_an_image_that_docker_loads(machine):
    """By the form of `docker save`, too; and Docker finds the health check in it."""
    need("buildah")
    store = machine.folder / "docker-archive"
    options = ["--storage-driver", "vfs", "--root", store / "images", "--runroot", store / "run"]
    archive = only(machine, "*-image.tar")
    run("buildah", *options, "pull", f"docker-archive:{archive}")
    with tarfile.open(archive) as tar:
        manifest, = json.load(tar.extractfile("manifest.json"))
        config = json.load(tar.extractfile(manifest["Config"]))["config"]
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/microcache", "stats"], config
    assert config["Entrypoint"] == ["/usr/bin/microcache"] and config["User"] == "65532:65532", config


def have_a_bill_of_materials(machine):
    """It keeps to the schema, its sums are those of Cargo.lock and of the program, and it names what is linked and nothing else."""
    bill = json.loads(only(machine, "*.cdx.json").read_text())
    check_schema(machine, bill)
    program = bill["metadata"]["component"]
    digest = hashlib.sha256((unpacked(machine) / "microcache").read_bytes()).hexdigest()
    assert program["hashes"] == [{"alg": "SHA-256", "content": digest}], program
    locked = {(one["name"], one["version"]): one.get("checksum") for one in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    crates = [one for one in bill["components"] if one["purl"].startswith("pkg:cargo/")]
    assert len(crates) > 150, len(crates)
    for crate in crates:
        assert crate["hashes"][0]["content"] == locked[crate["name"], crate["version"]], crate
    names = {one["name"] for one in bill["components"]}
    assert not names & NOT_LINKED, names & NOT_LINKED
    assert names >= {"tokio", "rustls", "aws-lc-sys", "tikv-jemalloc-sys", "microcache-policy", "rust-std"}, names
    assert all(one["licenses"][0]["expression"] for one in bill["components"])
    references = [program["bom-ref"], *(one["bom-ref"] for one in bill["components"])]
    assert len(references) == len(set(references))
    graph = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    assert set(graph) == set(references)
    reached, waiting = set(), [program["bom-ref"]]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += graph[name]
    assert reached == set(references), set(references) - reached


def check_schema(machine, bill):
    sys.path.insert(0, "/usr/lib/python3/dist-packages")
    try:
        import jsonschema
    finally:
        sys.path.pop(0)

    def schema(name):
        return json.loads((machine.schemas / SCHEMAS / f"{name}.SNAPSHOT.schema.json").read_text())

    main = schema(f"bom-{bill['specVersion']}")
    others = {one["$id"]: one for one in map(schema, ("spdx", "jsf-0.82"))}
    jsonschema.Draft7Validator(main, resolver=jsonschema.RefResolver.from_schema(main, store=others)).validate(bill)


def are_packed_the_same_again(machine):
    """From the same program and commit, in another folder: byte for byte."""
    commit = int(run("git", "log", "-1", "--format=%ct"))
    with tarfile.open(only(machine, "*.tar.gz")) as tar:
        assert tar.next().mtime == commit, "the files are of another commit: make release"
    again = machine.folder / "again"
    # Cargo has what it needs: the files were packed here before.
    environment = {**os.environ, "CARGO_NET_OFFLINE": "true"}
    run(HERE / "release", "--program", unpacked(machine) / "microcache", "--into", again / "dist", "--work", again / "work", env=environment)
    check_same(folder(machine), again / "dist")


def check_same(first, second):
    sums = [(path / "SHA256SUMS").read_text() for path in (first, second)]
    assert sums[0] == sums[1], f"they differ:\n{sums[0]}\n{sums[1]}"
