// The page: what comes over the stream is shown.

import { wireActions } from "./actions.js";
import { Chart } from "./chart.js";
import { bytes, count, id, rate, say, share } from "./format.js";
import { wireLists } from "./lists.js";
import * as panels from "./panels.js";
import { Stream, hasSecret, keepSecret } from "./stream.js";

/** As many seconds as the server remembers. */
const REMEMBERED = 600;
const SECOND = 1000;
const IN_THE_LAST = { 60: "in the last minute", 300: "in the last 5 minutes", 600: "in the last 10 minutes" };

let points = [];
let stats = null;
let ticks = 0;
const chart = new Chart(id("chart"), id("readout"));

const chosen = () => Number(document.querySelector("input[name=window]:checked").value);

function point(at, told) {
  const { total, hit, stale, collapsed, error } = told.requests;
  const { events, changes } = told.push ?? {};
  const { "4xx": refused, "5xx": failed } = told.responses;
  return {
    at, requests: total, stored: hit + stale, collapsed, errors: error, origin: told.origin.requests,
    bytes: told.bytes_sent, "4xx": refused, "5xx": failed, events, changes: changes?.made,
  };
}

/** How few of the requests reach the origin, in one window of time. */
function showRates(seconds) {
  say("rates-window", IN_THE_LAST[seconds]);
  const window = panels.ends(points, seconds);
  const change = (name) => (window ? Math.max(0, window.last[name] - window.first[name]) : 0);
  const [asked, origin] = [change("requests"), change("origin")];
  say("clients-rate", window ? rate(asked / window.seconds) : "–");
  say("origin-rate", window ? rate(origin / window.seconds) : "–");
  say("spared", share(Math.max(0, asked - origin), asked));
  const classes = ["4xx", "5xx"].map((name) => `${count(change(name))} answered ${name}`);
  say("sent", window ? [`${bytes(change("bytes") / window.seconds)}/s sent`, ...classes].join(" · ") : "");
  const empty = id("chart-empty");
  empty.hidden = asked > 0 || origin > 0;
  say(empty, points.length < 2 ? "Waiting for the first seconds." : "No requests in this time. Send some: they show here within a second.");
}

function show() {
  if (!stats) return;
  const seconds = chosen();
  chart.draw(points, seconds);
  // In words it would only be noise if it changed every second.
  if (ticks % 10 === 0) chart.tell(id("chart-words"), id("chart-rows"));
  showRates(seconds);
  panels.showOutages(stats, points);
  panels.showRatio(points, seconds, IN_THE_LAST[seconds]);
  panels.showLatency(stats, seconds, IN_THE_LAST[seconds]);
  panels.showFetches(stats);
  panels.showStores(stats);
  panels.showHealth(stats);
  panels.showCertificates(stats);
  panels.showPush(stats, points);
  panels.showRoutes(stats);
  panels.showServers(stats);
  panels.showProcess(stats);
  ticks += 1;
}

function stand(state, words) {
  id("standing").dataset.state = state;
  say("standing", words);
  document.title = state === "lost" || state === "down" ? `(${state}) Microcache` : "Microcache";
}

const stream = new Stream({
  live() {
    id("lost").hidden = true;
    id("content").classList.remove("old");
    id("forget").hidden = !hasSecret();
  },
  history(told) {
    points = told.points.map((values) => Object.fromEntries(told.columns.map((name, i) => [name, values[i]])));
    ticks = 0;
  },
  stats(told, at) {
    stats = told;
    // After the last second of the history, or after a pause of the server, there may be too little time to count in: then the newer one stands for both.
    if (points.length && at < points.at(-1).at + SECOND / 2) points.pop();
    points = [...points, point(at, told)].slice(-REMEMBERED - 1);
    if (told.draining) stand("ending", "Draining: finishing the requests in progress");
    else if (told.maintenance?.on) stand("down", "Maintenance mode: clients get 503");
    else if (panels.outages(told).length) stand("down", "An upstream is down");
    else stand("live", "Live");
    show();
    // The snapshot that is shown, by its id.
    id("content").dataset.at = at;
    lookAtLists();
  },
  lost(words, seconds) {
    stand("lost", "Connection lost");
    id("content").classList.add("old");
    id("lost").hidden = false;
    say("lost", `${words}. Trying again in ${count(seconds)} s; the numbers below are the last received.`);
  },
  secret(wasWrong) {
    stand("lost", "Locked");
    id("content").classList.add("old");
    say("secret-wrong", wasWrong ? "That is not the server's secret." : "");
    id("secret-value").value = "";
    if (!id("secret").open) id("secret").showModal();
  },
});

id("secret-form").addEventListener("submit", () => {
  keepSecret(id("secret-value").value.trim());
  id("secret-value").value = "";
  stream.open();
});
// Without the secret there is nothing to see behind it.
id("secret").addEventListener("cancel", (event) => event.preventDefault());
id("forget").addEventListener("click", () => {
  keepSecret(null);
  location.reload();
});
id("window").addEventListener("change", () => {
  ticks = 0;
  show();
});
wireActions();
const lookAtLists = wireLists();
stream.open();
