// Numbers as people read them, and elements as scripts make them. Text never becomes markup here.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** A count. */
export const count = (n) => whole.format(n);

/** A rate: small ones with a decimal, since 0.3 a second is not none. */
export const rate = (n) => (n > 0 && n < 10 ? one.format(n) : whole.format(n));

/** A share of all, never rounded up to all nor down to nothing. */
export function share(part, all) {
  if (!all) return "–";
  const percent = (part / all) * 100;
  if (part === 0) return "0 %";
  if (part === all) return "100 %";
  if (percent >= 99.99) return "99.99 %";
  if (percent < 0.01) return "< 0.01 %";
  const digits = percent >= 99 || percent < 1 ? 2 : 1;
  const floor = Math.floor(percent * 10 ** digits) / 10 ** digits;
  return `${floor.toFixed(digits)} %`;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 || n >= 100 ? whole.format(n) : one.format(n)} ${units[unit]}`;
}

/** A time to wait, from seconds. */
export function wait(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 0.1) return `${one.format(seconds * 1e3)} ms`;
  if (seconds < 1) return `${whole.format(seconds * 1e3)} ms`;
  if (seconds < 60) return `${one.format(seconds)} s`;
  return span(seconds);
}

/** A long time, from seconds. */
export function span(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** The most characters of a URL that are shown. */
const URL_LENGTH = 56;

/** A URL without its scheme, shortened in the middle: its end tells it from others. */
export function shortened(url) {
  const rest = url.replace(/^https?:\/\//, "");
  if (rest.length <= URL_LENGTH) return rest;
  const head = Math.floor(URL_LENGTH / 3);
  return `${rest.slice(0, head)}…${rest.slice(head + 1 - URL_LENGTH)}`;
}

/** The word for so many of them. */
export const many = (n, word, words = `${word}s`) => (n === 1 ? word : words);

export const id = (name) => document.getElementById(name);

/** Changes a text only if it is another one, so that nothing is read out twice. */
export function say(where, text) {
  const element = typeof where === "string" ? id(where) : where;
  if (element.textContent !== text) element.textContent = text;
}

/** An element with attributes and what is in it. */
export function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...inside);
  return element;
}

/**
 * Shows a list, changing what is there: an element that somebody looks at or has the focus in stays.
 * Each item has a `key`; `create` makes its element, `update` fills it.
 */
export function list(parent, items, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    let element = known.get(item.key);
    if (element) {
      known.delete(item.key);
    } else {
      element = create(item);
      element.dataset.key = item.key;
    }
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const gone of known.values()) gone.remove();
}

/** Prose as the server writes it, for `make`: what stands between backticks is code. */
export const prose = (text) => text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
