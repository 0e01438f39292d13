// The busiest urls and the latest errors: lists of their own, asked for while they are to be seen.

import { bytes, count, id, make, rate, say, share, shortened, span, wait } from "./format.js";
import { bringLookUp, purge } from "./actions.js";
import { table } from "./panels.js";
import { ask } from "./stream.js";

/** Every so often. */
const PAUSE = 2000;

/** What is done with the url of a row. The words say which url it is, for those who hear them. */
function actions({ url, truncated }) {
  if (!url || truncated) return "";
  const button = (word, act) => make("button", { type: "button", "aria-label": `${word} ${url}`, onclick: act }, word);
  return make("span", {}, button("Look up", () => bringLookUp(url)), button("Purge…", () => purge("url", url, false)));
}

const some = (n, words = count) => (n === null || n === undefined ? "–" : words(n));

function showTop(told) {
  id("top-empty").hidden = told.urls.length > 0;
  table("top", [
    ["Url", "text", (one) => shortened(one.truncated ? `${one.url}…` : one.url), (one) => one.url],
    ["Requests", "n", (one) => some(one.requests)],
    ["Bytes", "n", (one) => some(one.bytes, bytes)],
    ["Misses", "n", (one) => some(one.misses)],
    ["Origin time", "n", (one) => some(one.origin_microseconds, (n) => wait(n / 1e6))],
    ["Actions", "acts", actions],
  ], told.urls.map((one) => ({ key: one.url, ...one })));
}

function showErrors(told) {
  id("errors-empty").hidden = told.errors.length > 0;
  const ago = (at) => `${span(Math.max(0, (Date.now() - at) / 1000))} ago`;
  table("errors", [
    ["When", "", (one) => ago(one.at_milliseconds)],
    ["What", "", (one) => (one.kind === "origin" ? "origin" : "answer")],
    ["Times", "n", (one) => count(one.count)],
    ["Status", "n", (one) => some(one.status, String)],
    ["Reason", "wraps", (one) => one.reason],
    ["Url", "text", (one) => (one.url ? shortened(one.url) : "–"), (one) => one.url ?? ""],
    ["Upstream", "", (one) => one.upstream ?? "–"],
  ], told.errors.map((one) => ({ key: [one.kind, one.status, one.reason, one.url, one.upstream].join(" "), ...one })));
}

function nodeState(node) {
  if (node.away_seconds !== null) return `no figures for ${span(node.away_seconds)}`;
  if (node.draining) return "draining";
  return node.this ? "this node" : "in service";
}

function showNodes(told) {
  const error = id("nodes-error");
  error.hidden = told.last_error === null;
  say(error, told.last_error === null ? "" : `The other nodes could not be read: ${told.last_error}`);
  table("nodes", [
    ["Node", "text", (one) => `${one.name} ${one.pid}`],
    ["State", "", nodeState],
    ["Version", "", (one) => one.version],
    ["Up for", "n", (one) => span(one.uptime_seconds)],
    ["Requests/s", "n", (one) => rate(one.requests_per_second)],
    ["Origin/s", "n", (one) => rate(one.origin_per_second)],
    ["Hit ratio", "n", (one) => share(one.stored, one.requests)],
    ["Errors", "n", (one) => count(one.errors)],
    ["Memory", "n", (one) => bytes(one.memory.bytes)],
    ["Purges", "", (one) => (one.purges.behind_seconds === null ? "all read" : `behind for ${span(one.purges.behind_seconds)}`)],
  ], told.nodes.map((one) => ({ key: one.id, ...one })));
}

/** Keeps one list fresh while its card is near the screen. */
class Fresh {
  constructor(card, path, show) {
    this.path = path;
    this.show = show;
    this.isSeen = false;
    this.isAsked = false;
    this.last = 0;
    new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1).isIntersecting;
      this.look(true);
    }, { rootMargin: "300px" }).observe(card);
  }

  /** Asks, unless it has just asked or nobody sees the answer. */
  async look(now = false) {
    if (this.isAsked || !this.isSeen || (!now && Date.now() - this.last < PAUSE)) return;
    this.isAsked = true;
    try {
      this.show(await ask(this.path()));
    } catch {
      // The stream says that the server is gone, and asks for the secret.
    }
    this.last = Date.now();
    this.isAsked = false;
  }
}

/** Returns what is to be called every second while there is a connection. */
export function wireLists() {
  const by = () => document.querySelector("input[name=by]:checked").value;
  const top = new Fresh(id("top"), () => `/v1/top?limit=20&by=${by()}`, showTop);
  const nodes = new Fresh(id("nodes"), () => "/v1/nodes", showNodes);
  const errors = new Fresh(id("errors"), () => "/v1/errors?limit=30", showErrors);
  id("top-by").addEventListener("change", () => top.look(true));
  return () => {
    nodes.look();
    top.look();
    errors.look();
  };
}
