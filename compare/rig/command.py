"""What the scripts of this directory have in common as commands: options, signals, turns, and the page they write."""

import argparse
import datetime
import shlex
import signal
import sys
from pathlib import Path

from rig import machine, peers, servers
from rig.errors import RigError
from rig.pace import PACE
from rig.report import grid

SUBJECT = "microcache"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def parser(description, page, contenders):
    """The options that every measurement has; a script adds its own."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", type=names(contenders), default=list(contenders), metavar="SERVER,…",
                         help=f"of {', '.join(contenders)} (default all)")
    options.add_argument("--installed-peers", action="store_true", help="this machine's own nginx, HAProxy and so on, although `make peers` has set up others")
    options.add_argument("--microcache", type=Path, metavar="FILE", help="measure this program instead of building one")
    options.add_argument("--port", type=positive, default=servers.FIRST_PORT, metavar="N", help="the first port to use (default %(default)s)")
    options.add_argument("--quick", action="store_true", help="fewer and shorter rounds: a look, not a measurement")
    options.add_argument("--write", action="store_true", help=f"also write the result to {page.relative_to(servers.ROOT)}")
    return options


def parsed(options):
    chosen = options.parse_args()
    if chosen.microcache and chosen.write:
        options.error("--write is for what this tree builds, not for a program given with --microcache")
    if chosen.installed_peers:
        peers.take_installed()
    if peers.need_root():
        options.error("the peers of `make peers` are run by chroot, which only root can do; --installed-peers does without them")
    return chosen


def positive(word):
    value = int(word)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def numbers(word):
    return [positive(part) for part in word.split(",")]


def names(known):
    def parse(word):
        chosen = word.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return [name for name in known if name in chosen]
    return parse


def run(packages, measure, options, page):
    """Measures, prints what came out, and writes the page if asked. `measure` returns what to print and the page's text."""
    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        machine.need_packages(packages)
        printed, text = measure(options)
    except RigError as error:
        sys.exit(f"{program()}: {error}")
    print(printed)
    if options.write:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
        log(f"written to {page.relative_to(servers.ROOT)}")


def stop(number, _frame):
    """Leaves by the way on which every server is stopped; a second signal must not cut that short."""
    for further in SIGNALS:
        signal.signal(further, signal.SIG_IGN)
    sys.exit(f"{program()}: stopped by {signal.Signals(number).name}")


def program():
    return f"compare/{Path(sys.argv[0]).name}"


def microcache(options):
    """The program to measure: the given one, or what this tree builds."""
    if options.microcache:
        return options.microcache.resolve()
    log("building Microcache")
    return servers.build_microcache()


def turns(contenders, rounds):
    """Every server once per round, each round beginning with another one, so that no server always follows the same one."""
    for number in range(rounds):
        first = number % max(1, len(contenders))
        yield from PACE.steady(contenders[first:] + contenders[:first], log)


def page(title, body, rig, programs, load, noise):
    """A page of docs/benchmarks: what came out, on which machine, with which programs and commands."""
    typed = shlex.join([program(), *sys.argv[1:]])
    versions = [[name, *servers.version(name)] for name in programs]
    commands = "\n".join(f"{name + ':':12} {command}" for name, command in [*rig.commands.items(), ("load", load)])
    return f"""# {title}

Written by `{typed}` on {datetime.datetime.now(datetime.timezone.utc):%d %B %Y, %H:%M} UTC; the figures are not edited by hand.
The set-up, the method and the tuning of each peer are described in [compare/README.md](../../compare/README.md).

{body}
## Machine and programs

{machine.description()}; at most {rig.file_limit:,} open files per process.
Before the run, other programs used {noise:.0%} of its cores.{PACE.text()}

{grid(["program", "version", "from"], versions)}
## Commands

```
{commands}
```
"""


def met(is_met):
    return "met" if is_met else "missed"


def log(text):
    print(text, file=sys.stderr, flush=True)
