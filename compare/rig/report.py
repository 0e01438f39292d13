"""From samples to tables."""

import statistics
from dataclasses import dataclass, field

from rig.pace import PACE

# What a page says of its tables.
LEFT_OUT = "Rounds at another pace than most of a table are left out where each server has others."


@dataclass(frozen=True)
class Sample:
    """One round of load on one server."""
    cpu_micros: float
    rate: float
    number: int = field(default_factory=lambda: PACE.number)


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of the rounds."""
    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values):
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits):
        return f"{self.median:,.{digits}f} ({self.least:,.{digits}f}–{self.greatest:,.{digits}f})"


@dataclass(frozen=True)
class Mark:
    """What is wanted of one server's CPU time per request against another's, at most."""
    versus: str
    factor: float


class Table:
    """The samples of one measurement, by server, and the marks that hold for it."""

    def __init__(self, title, marks=()):
        self.title, self.marks, self.samples = title, marks, {}

    def add(self, server, sample):
        self.samples.setdefault(server, []).append(sample)

    def cpu(self, server):
        return Spread.of([sample.cpu_micros for sample in PACE.even(self.samples)[server]])

    def rate(self, server):
        return Spread.of([sample.rate for sample in PACE.even(self.samples)[server]])

    def ratio(self, server, other):
        """Median over median, or None where one of them was not measured."""
        if server not in self.samples or other not in self.samples:
            return None
        return self.cpu(server).median / self.cpu(other).median

    def verdicts(self, subject):
        """One row per mark: title, whose, wanted, measured, met or missed."""
        for mark in self.marks:
            ratio = self.ratio(subject, mark.versus)
            if ratio is not None:
                yield [self.title, mark.versus, f"≤ {mark.factor:.2f}", f"{ratio:.3f}", "met" if ratio <= mark.factor else "missed"]

    def rows(self, subject):
        for server in self.samples:
            cpu, rate = self.cpu(server), self.rate(server)
            yield [server, times(self.ratio(subject, server)), times(self.ratio(server, "floor")), cpu.text(2 if cpu.median < 100 else 1), rate.text(0)]

    def markdown(self, subject):
        head = ["server", f"{subject} ÷ this", "this ÷ floor", "CPU µs per request (min–max)", "requests/s (min–max)"]
        return f"### {self.title}\n\n" + grid(head, list(self.rows(subject)))


def times(ratio):
    return "–" if ratio is None else f"{ratio:.2f}"


def grid(head, rows):
    """A Markdown table whose source is readable in a terminal, too: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    def line(cells):
        return "| " + " | ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                                 for i, (cell, width) in enumerate(zip(cells, widths))) + " |"
    rule = "|" + "|".join("-" * (width + 2) if i == 0 else "-" * (width + 1) + ":" for i, width in enumerate(widths)) + "|"
    return "\n".join([line(head), rule, *map(line, rows)]) + "\n"
