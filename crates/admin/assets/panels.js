// The panels beside the chart: each shows one part of what `GET /v1/stats` says.

import { bytes, count, id, list, make, many, rate, say, share, shortened, span, wait } from "./format.js";

/** What a window of time begins and ends with; null while nothing is known of it. */
export function ends(points, seconds) {
  const last = points.at(-1);
  if (!last) return null;
  const first = points.find((point) => point.at >= last.at - seconds * 1000);
  return first === last ? null : { first, last, seconds: (last.at - first.at) / 1000 };
}

/** Seconds of so many microseconds, where there are any. */
const microseconds = (n) => (n === null || n === undefined ? n : n / 1e6);

const PARTS = [
  ["hit", "stored", "from the cache"],
  ["shared", "collapsed", "coalesced"],
  ["asked", "rest", "from the origin"],
  ["failed", "errors", "failed"],
];

/** The hit ratio of a window, and what became of the other requests. */
export function showRatio(points, seconds, words) {
  say("ratio-window", words);
  const window = ends(points, seconds);
  const change = (name) => (window ? Math.max(0, window.last[name] - window.first[name]) : 0);
  const all = change("requests");
  const of = { stored: change("stored"), collapsed: change("collapsed"), errors: change("errors") };
  of.rest = Math.max(0, all - of.stored - of.collapsed - of.errors);
  say("ratio", all ? share(of.stored, all) : "–");
  const shown = all ? PARTS.filter(([, name]) => of[name] > 0) : [];
  const parts = shown.map(([kind, name, text]) => ({ key: kind, kind, part: of[name], text }));
  list(id("parts"), parts, (one) => make("i", { class: one.kind }), (element, one) => {
    element.style.width = `${(one.part / all) * 100}%`;
  });
  const empty = [{ key: "none", kind: "none", text: window ? "no requests in this time" : "counting" }];
  list(id("parts-key"), parts.length ? parts : empty, (one) => make("li", { class: one.kind }), (element, one) => {
    say(element, one.part === undefined ? one.text : `${share(one.part, all)} ${one.text}`);
  });
  const told = parts.map((one) => `${share(one.part, all)} ${one.text}`).join(", ");
  id("parts").setAttribute("aria-label", told || "No requests in this time");
}

/**
 * How long things took in a window: hits, what clients waited for, the origin. Bars grow with the logarithm.
 */
export function showLatency(stats, seconds, words) {
  say("latency-window", words);
  const window = stats.windows.find((one) => one.seconds === seconds);
  const { hit_microseconds: hits, wait_microseconds: waits, first_byte_microseconds: origin } = window;
  const rows = [
    { key: "hits", name: "Hits", kind: "", of: hits },
    { key: "waits", name: "Others", kind: "waits", of: waits },
    { key: "origin", name: "Origin", kind: "origin", of: origin },
  ];
  const longest = Math.max(...rows.map((row) => row.of.p99 ?? 0), 1000);
  const length = (time) => (time ? Math.max(2, (Math.log10(Math.max(time, 1)) / Math.log10(longest)) * 100) : 0);
  const create = (one) =>
    make("div", { class: `timing ${one.kind}` }, make("span"), make("span", { class: "track" }, make("i")), make("b"), make("span", { class: "more" }));
  list(id("latency-rows"), rows, create, (element, one) => {
    const [name, track, value, more] = element.children;
    say(name, one.name);
    track.firstElementChild.style.width = `${length(one.of.p50)}%`;
    say(value, wait(microseconds(one.of.p50)));
    say(more, one.of.count ? `median; p99 ${wait(microseconds(one.of.p99))}` : "none in this time");
  });
  const times = hits.p50 && origin.p50 ? origin.p50 / hits.p50 : 0;
  say("latency-times", times >= 2 ? `A hit is ${count(times)} times as fast.` : "");
}

export function showFetches(stats) {
  const { in_progress: fetches, waiting, most_awaited: wanted } = stats.fetches;
  say("fetches", count(fetches));
  say("fetches-words", `${many(fetches, "fetch", "fetches")} in progress`);
  say("waiting", count(waiting));
  say("waiting-words", waiting === 1 ? "request waits for one" : "requests wait for them");
  const rows = wanted.slice(0, 4).map((one) => ({ key: one.url ?? "", ...one }));
  const create = () => make("li", {}, make("span", { class: "name" }), make("span", { class: "value" }));
  list(id("fetching"), rows, create, (element, one) => {
    const [name, value] = element.children;
    say(name, one.url ? shortened(one.url) : "not a URL");
    name.title = one.url ?? "";
    const waits = one.refresh ? "refresh" : `${count(one.waiting)} ${many(one.waiting, "waits", "wait")}`;
    say(value, `${waits}, ${wait(one.age_seconds)}`);
  });
  const queued = stats.upstreams.reduce((sum, group) => sum + group.queued, 0);
  const empty = id("fetching-empty");
  empty.hidden = rows.length > 0 && queued === 0;
  const idle = fetches ? "" : "No request waits for the origin.";
  say(empty, queued ? `${count(queued)} ${many(queued, "request waits", "requests wait")} for a permit of the origin.` : idle);
  const { jobs, stored, fresh, not_stored: others, failed } = stats.warming;
  id("warming").hidden = jobs + stored + fresh + others + failed === 0;
  const lists = jobs ? `${count(jobs)} ${many(jobs, "list", "lists")} in progress, ` : "";
  say("warming", `Warming: ${lists}${count(stored)} stored, ${count(fresh)} fresh, ${count(others)} not stored, ${count(failed)} failed`);
}

/** What compression spares clients, by coding. */
function compressed(told) {
  const sent = Object.entries(told.sent).filter(([, answers]) => answers > 0);
  const facts = sent.map(([coding, answers]) => `${count(answers)} ${coding}`);
  if (told.refused) facts.push(`${count(told.refused)} skipped`);
  const amount = `${bytes(told.bytes_saved)} saved`;
  return { key: "compression", name: "Compression", amount, facts: facts.join(" · "), troubles: "" };
}

/** A place where responses lie: how full it is, and what else is to be said of it. */
function store(name, bytesHeld, capacity, facts, troubles) {
  return { key: name, name, bytesHeld, capacity, facts: facts.join(" · "), troubles: troubles.join(" · ") };
}

export function showStores(stats) {
  const memory = stats.memory;
  const facts = [`${count(memory.keys)} ${many(memory.keys, "key")}`, `${count(memory.evicted)} evicted`];
  if (memory.refused) facts.push(`${count(memory.refused)} refused`);
  const stores = [store("Memory", memory.bytes, memory.capacity, facts, [])];
  for (const tier of stats.tiers) {
    const facts = [`${share(tier.hits, tier.hits + tier.misses)} found`, `${count(tier.written)} written`];
    const failed = tier.errors + tier.timeouts + tier.corrupt;
    if (failed) facts.push(`${count(failed)} failed`);
    stores.push(store(tier.name, tier.bytes, tier.capacity, facts, tier.degraded));
  }
  if (stats.compression.responses) stores.push(compressed(stats.compression));
  showPlaces("stores", stores);
}

function showPlaces(name, places) {
  const create = () =>
    make("div", { class: "store" },
      make("div", { class: "head" }, make("b"), make("span")),
      make("meter", { min: "0" }),
      make("div", { class: "more" }),
      make("div", { class: "more bad" }));
  list(id(name), places, create, (element, one) => {
    const [head, meter, facts, troubles] = element.children;
    say(head.children[0], one.name);
    say(head.children[1], one.amount ?? (one.capacity ? `${bytes(one.bytesHeld)} of ${bytes(one.capacity)}` : bytes(one.bytesHeld)));
    meter.hidden = !one.capacity;
    if (one.capacity) {
      meter.max = one.capacity;
      meter.value = one.bytesHeld ?? 0;
      meter.setAttribute("aria-label", `${one.name}: ${share(one.bytesHeld ?? 0, one.capacity)} full`);
    }
    say(facts, one.facts);
    troubles.hidden = !one.troubles;
    say(troubles, one.troubles);
  });
}

/** What happened of it in a second, of the last three; null while nothing is known of it. */
function pace(points, name) {
  const known = points.slice(-4).filter((point) => point[name] !== undefined);
  if (known.length < 2) return null;
  const [first, last] = [known[0], known.at(-1)];
  return Math.max(0, ((last[name] - first[name]) * 1000) / (last.at - first.at));
}

/** Documents that were put in, and who is told of their changes and of those of pages. */
export function showPush(stats, points) {
  const push = stats.push;
  id("push").hidden = !push;
  if (!push) return;
  say("subscribers", count(push.subscribers));
  const sockets = push.sockets ? `, ${count(push.sockets)} by WebSocket` : "";
  say("subscribers-words", `${many(push.subscribers, "subscribes", "subscribe")} now${sockets}`);
  for (const name of ["events", "changes"]) {
    const each = pace(points, name);
    say(`${name}-rate`, each === null ? "–" : rate(each));
  }
  const facts = [`${count(push.documents)} ${many(push.documents, "document")}`, `${count(push.changes.made)} ${many(push.changes.made, "change")}`];
  showPlaces("documents", [store("Documents", push.bytes, push.capacity_bytes, facts, [])]);
  const troubles = [
    [push.resets, "resets"],
    [push.gaps, "gaps"],
    [push.subscriptions_rejected, "subscriptions rejected"],
    [push.changes.refused, many(push.changes.refused, "change refused", "changes refused")],
    [push.changes.write_failures, many(push.changes.write_failures, "change not persisted", "changes not persisted")],
  ];
  const said = troubles.filter(([times]) => times > 0).map(([times, words]) => `${count(times)} ${words}`);
  said.push(...(push.redis?.warnings ?? []));
  id("push-troubles").hidden = said.length === 0;
  say("push-troubles", said.join(" · "));
}

const address = (server) => (server.port === undefined ? server.host : `${server.host}:${server.port}`);

function servers(stats) {
  return stats.upstreams.flatMap((group) =>
    group.servers.map((server) => ({ key: `${group.name} ${address(server)}`, group, server })));
}

/** Groups without a server that is up, with the seconds since the last one was lost. */
export function outages(stats) {
  const groups = stats.upstreams.filter((group) => group.servers.length && group.servers.every((server) => !server.up));
  return groups.map((group) => ({ group, seconds: Math.min(...group.servers.map((server) => server.down_for_seconds ?? 0)) }));
}

/** Which groups have no server, since when, how many requests failed since then, and how long stored pages last. */
export function showOutages(stats, points) {
  const rows = outages(stats).map((one) => ({ key: one.group.name, ...one }));
  list(id("outages"), rows, () => make("p", { class: "notice grave" }), (element, { group, seconds }) => {
    const last = points.at(-1);
    const before = points.findLast((point) => point.at <= last.at - seconds * 1000);
    const errors = last.errors - (before ?? points[0]).errors;
    const failed = `${before ? "" : "At least "}${count(errors)} ${many(errors, "request")} ${errors === 1 ? "was" : "were"} answered with an error since`;
    const stale = group.stale_if_error_seconds;
    const held = stale ? `Stored pages are served stale for up to ${span(stale)} after they expire.` : "Stale pages are not served.";
    say(element, `${group.name}: no server has been up for ${span(seconds)}. ${failed}. ${held}`);
  });
}

export function showHealth(stats) {
  const create = () =>
    make("li", {}, make("span", { class: "state" }), make("span", { class: "name" }), make("span", { class: "value" }));
  list(id("health"), servers(stats), create, (element, { server }) => {
    const [state, name, value] = element.children;
    state.classList.toggle("down", !server.up);
    say(state, server.up ? "up" : "down");
    say(name, address(server));
    say(value, `${count(server.active)} active, ${count(server.failures)} failed`);
  });
}

/** Certificates by the hosts that they are for: what is wrong with one, or until when it holds. */
export function showCertificates(stats) {
  const certificates = stats.certificates.map((one) => ({ key: one.names.join(" "), ...one }));
  id("certificates-title").hidden = certificates.length === 0;
  const create = () =>
    make("li", {}, make("span", { class: "state" }), make("span", { class: "name" }), make("span", { class: "value" }));
  list(id("certificates"), certificates, create, (element, one) => {
    const [state, name, value] = element.children;
    state.classList.toggle("down", one.state !== "valid" && one.state !== "ordering");
    say(state, one.state);
    say(name, one.key);
    const until = one.expires ? `until ${new Date(one.expires * 1000).toISOString().slice(0, 10)}` : "none yet";
    say(value, one.last_error ?? until);
    value.title = one.last_error ?? "";
  });
}

/**
 * A table: columns are [heading, class, value of an item, its unshortened text], where a value is a text or an
 * element that is made once.
 */
export function table(name, columns, items) {
  const head = id(`${name}-head`);
  if (head.childElementCount !== columns.length) {
    const words = ([heading, kind]) => (kind === "acts" ? make("span", { class: "unseen" }, heading) : heading);
    head.replaceChildren(...columns.map((column) => make("th", { scope: "col", class: column[1] }, words(column))));
  }
  const create = (item) =>
    make("tr", {}, ...columns.map(([, kind, value]) => {
      const inside = value(item);
      return make("td", { class: kind }, inside);
    }));
  list(id(`${name}-rows`), items, create, (row, item) => {
    columns.forEach(([, , value, whole = value], i) => {
      const cell = row.children[i];
      if (cell.firstElementChild) return;
      const text = value(item);
      say(cell, text);
      if (cell.classList.contains("text")) cell.title = whole(item);
    });
  });
}

export function showServers(stats) {
  table("servers", [
    ["Upstream", "", ({ group }) => group.name],
    ["Server", "text", ({ server }) => address(server)],
    ["State", "", ({ server }) => (server.up ? "up" : "down")],
    ["Weight", "n", ({ server }) => (server.backup ? "backup" : count(server.weight))],
    ["Active", "n", ({ server }) => count(server.active)],
    ["Waiting", "n", ({ group }) => count(group.queued)],
    ["Requests", "n", ({ server }) => count(server.requests)],
    ["Failed", "n", ({ server }) => count(server.failures)],
    ["5xx", "n", ({ server }) => count(server.responses["5xx"])],
    ["First byte", "n", ({ server }) => wait(microseconds(server.first_byte_microseconds))],
    ["Down for", "n", ({ server }) => (server.downtime_seconds ? span(server.downtime_seconds) : "–")],
  ], servers(stats));
}

export function showRoutes(stats) {
  const stored = (route) => route.requests.hit + route.requests.stale;
  table("routes", [
    ["Route", "text", (route) => route.name],
    ["Requests", "n", (route) => count(route.requests.total)],
    ["Hit ratio", "n", (route) => share(stored(route), route.requests.total)],
    ["To the origin", "n", (route) => count(route.origin.requests)],
    ["Fetches saved", "n", (route) => count(route.saved.fetches)],
    ["Origin time saved", "n", (route) => span(route.saved.origin_seconds)],
    ["Errors", "n", (route) => count(route.requests.error)],
    ["4xx", "n", (route) => count(route.responses["4xx"])],
    ["5xx", "n", (route) => count(route.responses["5xx"])],
    ["Sent", "n", (route) => bytes(route.bytes_sent)],
    ["Hit, median", "n", (route) => wait(microseconds(route.hit_microseconds.p50))],
    ["Origin, median", "n", (route) => wait(microseconds(route.origin.first_byte_microseconds.p50))],
  ], stats.routes.map((route) => ({ key: route.name, ...route })));
}

export function showProcess(stats) {
  say("process", `${stats.version}, up ${span(stats.uptime_seconds)}`);
  const taken = stats.connections;
  say("clients", `${count(taken.open)} client ${many(taken.open, "connection")}, ${count(taken.tunnels)} ${many(taken.tunnels, "tunnel")} and streams; ${count(stats.purges.active_rules)} ${many(stats.purges.active_rules, "purge")} active`);
}
