"""Lines over time as an SVG that needs nothing but a browser."""

import math
from dataclasses import dataclass
from html import escape

WIDTH, PANEL_HEIGHT, GAP = 960, 180, 44
LEFT, RIGHT, TOP, LEGEND_HEIGHT = 70, 20, 30, 26
COLOURS = ["#7f7f7f", "#e69f00", "#009e73", "#0072b2", "#d55e00", "#cc79a7"]
STYLE = "text { font: 12px sans-serif; fill: #222 } .title { font-weight: bold } .grid { stroke: #ddd } .event { stroke: #222; stroke-dasharray: 3 3 }"


@dataclass(frozen=True)
class Panel:
    """One axis of values: the lines by name, each of so many (seconds, value)."""
    title: str
    lines: dict
    logarithmic: bool = False
    least: float = 0.0

    def bounds(self):
        """The least and the greatest value of the axis, at which there are grid lines."""
        values = [value for line in self.lines.values() for _, value in line]
        if self.logarithmic:
            low, high = min(values), max(values)
            return 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
        step = nice(max(values) - self.least)
        return self.least, self.least + step * math.ceil((max(values) - self.least) / step)

    def ticks(self):
        low, high = self.bounds()
        if self.logarithmic:
            return [10.0 ** power for power in range(round(math.log10(low)), round(math.log10(high)) + 1)]
        step = nice(high - low)
        return [low + step * number for number in range(round((high - low) / step) + 1)]

    def height(self, value):
        """Where a value is between the bottom, 0, and the top, 1."""
        low, high = self.bounds()
        if self.logarithmic:
            return (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low) or 1)
        return (max(value, low) - low) / (high - low or 1)


def nice(span):
    """A step of 1, 2 or 5 times a power of ten that makes about five of the span."""
    rough = max(span, 1e-9) / 5
    power = 10 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def svg(title, panels, events, label="{} s".format):
    """The panels one below the other over the same seconds, or over what `label` makes of them; `events` are (seconds, what happened)."""
    end = max(seconds for panel in panels for line in panel.lines.values() for seconds, _ in line)
    across = lambda seconds: LEFT + (WIDTH - LEFT - RIGHT) * seconds / end
    height = TOP + LEGEND_HEIGHT + len(panels) * (PANEL_HEIGHT + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">', f"<title>{escape(title)}</title>",
             f"<style>{STYLE}</style>", f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', *legend(panels[0].lines)]
    for number, panel in enumerate(panels):
        top = TOP + LEGEND_HEIGHT + number * (PANEL_HEIGHT + GAP)
        parts += [*drawn(panel, top, across, end, label), *happened(events, top, across, is_told=number == 0)]
    return "\n".join([*parts, "</svg>", ""])


def legend(names):
    each = (WIDTH - LEFT) / len(names)
    for number, name in enumerate(names):
        left = LEFT + each * number
        yield f'<line x1="{left:.0f}" y1="16" x2="{left + 18:.0f}" y2="16" stroke="{COLOURS[number]}" stroke-width="3"/>'
        yield text(left + 24, 20, name)


def drawn(panel, top, across, end, label):
    bottom = top + PANEL_HEIGHT
    yield text(LEFT, top - 6, panel.title, 'class="title"')
    for tick in panel.ticks():
        y = bottom - PANEL_HEIGHT * panel.height(tick)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield text(LEFT - 6, y + 4, f"{tick:,g}", 'text-anchor="end"')
    for seconds in range(0, math.floor(end) + 1, max(1, round(nice(end)))):
        yield text(across(seconds), bottom + 15, label(seconds), 'text-anchor="middle"')
    for number, line in enumerate(panel.lines.values()):
        points = " ".join(f"{across(seconds):.1f},{bottom - PANEL_HEIGHT * panel.height(value):.1f}" for seconds, value in line)
        yield f'<polyline points="{points}" fill="none" stroke="{COLOURS[number]}" stroke-width="1.8"/>'


def happened(events, top, across, is_told):
    """A line for each event, with its words in one of the panels."""
    for seconds, what in events:
        yield f'<line class="event" x1="{across(seconds):.1f}" y1="{top}" x2="{across(seconds):.1f}" y2="{top + PANEL_HEIGHT}"/>'
        if is_told:
            yield text(across(seconds) + 3, top + PANEL_HEIGHT - 6, what)


def text(x, y, words, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'
