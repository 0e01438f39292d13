// Two lines over time, in SVG: what clients ask, and what the origin is asked.

import { count, list, make, rate, say } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const TOP = 8;
const BOTTOM = 20;
const LEFT = 46;
const RIGHT = 6;

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** The next number above that an axis can end with. */
function ceiling(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 1)));
  const step = [1, 2, 4, 5, 10].find((step) => step * power >= most);
  return Math.max(step * power, 4);
}

const short = (n) => (n >= 10000 ? `${count(n / 1000)} k` : rate(n));

/** Rates between points that follow each other: what happened, and in which second. */
export function rates(points) {
  const found = [];
  for (let i = 1; i < points.length; i += 1) {
    const [before, now] = [points[i - 1], points[i]];
    const seconds = (now.at - before.at) / 1000;
    if (seconds <= 0) continue;
    found.push({
      at: now.at,
      clients: Math.max(0, now.requests - before.requests) / seconds,
      origin: Math.max(0, now.origin - before.origin) / seconds,
    });
  }
  return found;
}

export class Chart {
  constructor(svg, readout) {
    this.svg = svg;
    this.readout = readout;
    this.shown = [];
    this.cursor = null;
    this.grid = shape("g", {});
    this.area = shape("path", { class: "area" });
    this.clients = shape("path", { class: "line clients" });
    this.origin = shape("path", { class: "line origin" });
    this.mark = shape("g", {});
    svg.append(this.grid, this.area, this.clients, this.origin, this.mark);
    svg.addEventListener("pointermove", (event) => this.point(event.offsetX));
    svg.addEventListener("pointerleave", () => this.forget());
    svg.addEventListener("blur", () => this.forget());
    svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.paint()).observe(svg);
  }

  draw(points, seconds) {
    const now = points.at(-1)?.at ?? 0;
    this.seconds = seconds;
    this.now = now;
    this.shown = rates(points).filter((one) => one.at > now - seconds * 1000);
    this.paint();
  }

  paint() {
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (!width || !this.seconds) return;
    this.width = width;
    this.height = height;
    const most = this.shown.reduce((most, one) => Math.max(most, one.clients, one.origin), 0);
    this.most = ceiling(most);
    this.paintGrid();
    const line = (name) => this.shown.map((one, i) => `${i ? "L" : "M"}${this.x(one.at)} ${this.y(one[name])}`).join("");
    const clients = line("clients");
    this.clients.setAttribute("d", clients);
    this.origin.setAttribute("d", line("origin"));
    const ends = this.shown.length > 1 ? `L${this.x(this.shown.at(-1).at)} ${this.y(0)}L${this.x(this.shown[0].at)} ${this.y(0)}Z` : "";
    this.area.setAttribute("d", ends && clients + ends);
    this.paintMark();
  }

  paintGrid() {
    const parts = [];
    for (let i = 0; i <= 4; i += 1) {
      const value = (this.most / 4) * i;
      const y = Math.round(this.y(value));
      parts.push(shape("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }));
      const label = shape("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" });
      label.textContent = short(value);
      parts.push(label);
    }
    for (let i = 0; i <= 4; i += 1) {
      const ago = this.seconds * (1 - i / 4);
      const words = ago === 0 ? "now" : ago < 120 ? `−${ago} s` : `−${ago / 60} min`;
      const anchor = i === 0 ? "start" : i === 4 ? "end" : "middle";
      const x = LEFT + ((this.width - LEFT - RIGHT) * i) / 4;
      const label = shape("text", { x, y: this.height - 4, "text-anchor": anchor });
      label.textContent = words;
      parts.push(label);
    }
    this.grid.replaceChildren(...parts);
  }

  x(at) {
    const ago = (this.now - at) / (this.seconds * 1000);
    return Math.round((LEFT + (this.width - LEFT - RIGHT) * (1 - ago)) * 10) / 10;
  }

  y(value) {
    return Math.round((TOP + (this.height - TOP - BOTTOM) * (1 - value / this.most)) * 10) / 10;
  }

  /** The second that is nearest to a place. */
  point(x) {
    let nearest = null;
    for (const one of this.shown) {
      if (!nearest || Math.abs(this.x(one.at) - x) < Math.abs(this.x(nearest.at) - x)) nearest = one;
    }
    this.cursor = nearest?.at ?? null;
    this.paintMark();
  }

  key(event) {
    const last = this.shown.length - 1;
    if (last < 0) return;
    const here = this.shown.findIndex((one) => one.at === this.cursor);
    const next = { ArrowLeft: here < 0 ? last : here - 1, ArrowRight: here < 0 ? last : here + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.forget();
    if (next === undefined) return;
    event.preventDefault();
    this.cursor = this.shown[Math.min(last, Math.max(0, next))].at;
    this.paintMark();
  }

  forget() {
    this.cursor = null;
    this.paintMark();
  }

  paintMark() {
    const one = this.shown.find((one) => one.at === this.cursor);
    this.readout.hidden = !one;
    if (!one) {
      this.mark.replaceChildren();
      return;
    }
    const x = this.x(one.at);
    this.mark.replaceChildren(
      shape("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM }),
      shape("circle", { class: "dot clients", cx: x, cy: this.y(one.clients), r: 4 }),
      shape("circle", { class: "dot origin", cx: x, cy: this.y(one.origin), r: 4 }),
    );
    const ago = Math.round((this.now - one.at) / 1000);
    say(this.readout, `${ago === 0 ? "now" : `${ago} s ago`}: ${rate(one.clients)} from clients, ${rate(one.origin)} to the origin`);
    const space = this.width - this.readout.offsetWidth;
    this.readout.style.left = `${Math.max(LEFT, Math.min(space - RIGHT, x + 12))}px`;
  }

  /** The same in words and as a table, for those who do not see it. */
  tell(words, rows) {
    const all = this.shown;
    if (all.length === 0) {
      say(words, "Nothing yet.");
      rows.replaceChildren();
      return;
    }
    const mean = (some, name) => some.reduce((sum, one) => sum + one[name], 0) / some.length;
    const most = Math.max(...all.map((one) => one.clients));
    say(words, `In the last ${count(all.length)} seconds: ${rate(mean(all, "clients"))} requests per second from clients on average, ${rate(most)} at most; ${rate(mean(all, "origin"))} to the origin.`);
    const tenth = (this.seconds * 1000) / 10;
    const parts = [];
    for (let i = 0; i < 10; i += 1) {
      const some = all.filter((one) => Math.floor((this.now - one.at) / tenth) === i);
      if (some.length === 0) continue;
      const from = Math.round((tenth * i) / 1000);
      const to = Math.round((tenth * (i + 1)) / 1000);
      parts.push({ key: String(i), cells: [`${from} to ${to}`, rate(mean(some, "clients")), rate(mean(some, "origin"))] });
    }
    const row = () => make("tr", {}, make("td"), make("td", { class: "n" }), make("td", { class: "n" }));
    list(rows, parts, row, (element, part) => part.cells.forEach((text, i) => say(element.children[i], text)));
  }
}
