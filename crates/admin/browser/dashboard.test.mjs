// The dashboard in a browser, before a server under load. SCREENSHOTS=FOLDER keeps the pictures of the documents.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Program, application, barriers, browser, eventually, isLive, load, open, server, watch } from "./stage.mjs";

/** Requests of the load, in a second. */
const RATE = 300;
/** Longer than all that needs it. */
const SECONDS = 240;

let origin, cache, driver, chromium;

before(async () => {
  origin = await application("--size", "20000", "--work", "120ms", "--work-kind", "sleep", "--workers", "16");
  cache = await server(origin.url, "--ttl", "1s");
  driver = load(`${cache.url}/articles/[1-40]`, RATE, SECONDS);
  chromium = await browser();
});

after(async () => {
  await chromium?.close();
  await driver?.stop("SIGKILL");
  await cache?.stop();
  await origin?.stop();
});

/** A GET through the cache: what its Cache-Status says. */
async function status(path) {
  const response = await fetch(cache.url + path);
  await response.arrayBuffer();
  return response.headers.get("cache-status");
}

const text = (page, id) => page.locator(`#${id}`).textContent();
const number = (words) => Number(words.replaceAll(/[^\d.]/g, ""));

/** The focus goes from here with the tabulator until it is there. */
async function tab(page, selector) {
  for (let i = 0; i < 200; i += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate((selector) => document.activeElement?.matches(selector), selector)) return;
  }
  assert.fail(`the tabulator does not lead to ${selector}`);
}

test("under load the page shows the numbers that the interface has", async () => {
  const page = await open(chromium, cache.admin);
  const other = await watch(cache.admin);
  await isLive(page);
  // Snapshots are the same for all who watch: that which the page shows is known here too.
  const seen = await eventually("a snapshot that both have", async () => {
    const shown = await page.evaluate(() => {
      const of = (id) => document.getElementById(id).textContent;
      const cell = (table, column) => {
        const heads = [...document.querySelectorAll(`#${table}-head th`)].map((head) => head.textContent);
        return document.querySelector(`#${table}-rows tr`).children[heads.indexOf(column)].textContent;
      };
      return { at: Number(document.getElementById("content").dataset.at), rate: of("clients-rate"), origin: of("origin-rate"), spared: of("spared"), sent: of("sent"), fetches: of("fetches"), keys: of("stores"), timings: [...document.querySelectorAll("#latency-rows .timing")].map((row) => [...row.children].map((part) => part.textContent)), requests: cell("servers", "Requests"), failed: cell("servers", "Failed"), clients: of("clients") };
    });
    const ids = [...other.snapshots.keys()].filter((id) => id <= shown.at).sort((a, b) => a - b);
    // Of two snapshots within half a second the page counts the newer one only: a server that was kept from running sends such.
    const last = ids.slice(-5);
    const regular = last.every((id, i) => i === 0 || id - last[i - 1] >= 500);
    return last.length === 5 && regular && last.at(-1) === shown.at && { shown, last: last.slice(1) };
  });
  const { shown, last } = seen;
  const told = other.snapshots.get(shown.at);
  assert.equal(number(shown.fetches), told.fetches.in_progress);
  assert.equal(number(shown.requests), told.upstreams[0].servers[0].requests);
  assert.equal(number(shown.failed), told.upstreams[0].servers[0].failures);
  assert.equal(number(shown.clients.split(" client")[0]), told.connections.open);
  assert.match(shown.keys, new RegExp(`${told.memory.keys} keys`));
  const mean = (of) => ((of(told) - of(other.snapshots.get(last[0]))) * 1000) / (shown.at - last[0]);
  const clients = mean((told) => told.requests.total);
  assert.ok(clients > RATE / 10, `a load: ${clients}`);
  // The three large numbers are those of one window.
  const spared = 1 - number(shown.origin) / number(shown.rate);
  assert.ok(number(shown.rate) > RATE / 10 && Math.abs(number(shown.spared) / 100 - spared) < 0.02, JSON.stringify(shown));
  assert.match(shown.sent, /^[\d.,]+ [KM]iB\/s sent · 0 answered 4xx · \d+ answered 5xx$/);
  // So are the times: those of the window that is chosen.
  const window = told.windows.find((one) => one.seconds === 60);
  assert.deepEqual(shown.timings, timings(window));
  assert.ok(window.hit_microseconds.count > 0 && window.wait_microseconds.count > 0, "there are some of each");
  other.stop();
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

/** The rows that the page has for a window, put together from the numbers themselves. */
function timings(window) {
  const words = (micros) => (micros < 1000 ? `${Math.max(1, Math.round(micros))} µs` : micros < 1e5 ? `${(micros / 1e3).toFixed(1)} ms` : micros < 1e6 ? `${Math.round(micros / 1e3)} ms` : `${(micros / 1e6).toFixed(1)} s`);
  const row = (name, { p50, p99 }) => [name, "", words(p50), `median; p99 ${words(p99)}`];
  return [row("Hits", window.hit_microseconds), row("Others", window.wait_microseconds), row("Origin", window.first_byte_microseconds)];
}

test("a group without a server has a banner", async () => {
  const gone = await application("--size", "100");
  const alone = await server(gone.url, "--fail-limit", "1", "--fail-pause", "1h");
  const page = await open(chromium, alone.admin);
  await isLive(page);
  assert.equal(await text(page, "outages"), "");
  await gone.stop();
  assert.equal((await fetch(`${alone.url}/`)).status, 502);
  await page.waitForFunction(() => /^origin: no server has been up for \d+ s\. /.test(document.getElementById("outages").textContent));
  await page.waitForFunction(() => document.getElementById("outages").textContent.includes(" 1 request was answered with an error since."));
  assert.match(await text(page, "outages"), /Stored pages are served stale for up to 1 d /);
  assert.equal(await page.locator("#standing").getAttribute("data-state"), "down");
  assert.deepEqual(await barriers(page), []);
  assert.deepEqual(page.faults, []);
  await page.context().close();
  await alone.stop();
});

test("times are those of the window that is chosen", async () => {
  const page = await open(chromium, cache.admin);
  const other = await watch(cache.admin);
  await isLive(page);
  for (const [label, seconds, words] of [["10 min", 600, /10 minutes/], ["5 min", 300, /5 minutes/], ["1 min", 60, /minute/]]) {
    await page.getByLabel(label, { exact: true }).check({ force: true });
    assert.match(await text(page, "latency-window"), words);
    const seen = await eventually("a snapshot that both have", async () => {
      const shown = await page.evaluate(() => ({
        at: Number(document.getElementById("content").dataset.at),
        timings: [...document.querySelectorAll("#latency-rows .timing")].map((row) => [...row.children].map((part) => part.textContent)),
      }));
      const told = other.snapshots.get(shown.at);
      return told && { shown, told };
    });
    assert.deepEqual(seen.shown.timings, timings(seen.told.windows.find((one) => one.seconds === seconds)));
  }
  // GET /v1/stats has them as well.
  const { windows } = await (await fetch(`${cache.admin}/v1/stats`)).json();
  assert.deepEqual(windows.map((one) => one.seconds), [60, 300, 600]);
  assert.ok(windows[0].hit_microseconds.count <= windows[2].hit_microseconds.count);
  other.stop();
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("documents and subscribers have a card where there are any", async () => {
  const folder = await mkdtemp(join(tmpdir(), "microcache-dashboard-"));
  const file = join(folder, "token");
  await writeFile(file, "correct-horse-battery\n");
  const pushing = await server(origin.url, "--push", "/live/", "--push-directory", "none", "--push-token-file", file);
  const document = `${pushing.url}/live/stock`;
  const visitor = await chromium.newPage();
  await visitor.goto(document);
  await visitor.evaluate((url) => {
    const both = [new EventSource(url), new WebSocket(url.replace("http", "ws"))];
    return Promise.all(both.map((one) => new Promise((resolve) => one.addEventListener("open", () => resolve()))));
  }, document);
  const put = async (headers) => {
    const body = JSON.stringify({ stock: Math.random() });
    const answer = await fetch(document, { method: "PUT", headers: { "Content-Type": "application/json", ...headers }, body });
    return answer.status;
  };
  const secret = { Authorization: "Bearer correct-horse-battery" };
  let publishes = true;
  const publisher = (async () => {
    while (publishes) assert.ok([201, 204].includes(await put(secret)));
  })();
  const other = await watch(pushing.admin);
  const phone = { viewport: { width: 390, height: 844 } };
  for (const options of [{}, { colorScheme: "dark", ...phone }]) {
    const page = await open(chromium, pushing.admin, options);
    await isLive(page);
    const { shown, told, before } = await eventually("a snapshot that both have", async () => {
      const shown = await page.evaluate(() => {
        const of = (id) => document.getElementById(id).textContent;
        const card = document.getElementById("push");
        return { at: Number(document.getElementById("content").dataset.at), hidden: card.hidden, subscribers: of("subscribers"), words: of("subscribers-words"), events: of("events-rate"), changes: of("changes-rate"), documents: of("documents"), troubles: document.getElementById("push-troubles").hidden };
      });
      const ids = [...other.snapshots.keys()].filter((id) => id <= shown.at).sort((a, b) => a - b).slice(-4);
      const regular = ids.every((id, i) => i === 0 || id - ids[i - 1] >= 500);
      // The page has been open for as long as its rates go back.
      const told = other.snapshots.get(shown.at);
      return ids.length === 4 && regular && ids[0] > (page.since ??= shown.at) && told && { shown, told: told.push, before: { at: ids[0], ...other.snapshots.get(ids[0]).push } };
    });
    assert.equal(shown.hidden, false);
    assert.equal(number(shown.subscribers), told.subscribers);
    assert.equal(told.subscribers, 2);
    assert.equal(shown.words, "subscribe now, 1 by WebSocket");
    assert.match(shown.documents, new RegExp(`^Documents.* of 64.0 MiB1 document · ${told.changes.made.toLocaleString("en")} changes`));
    const mean = (of) => ((of(told) - of(before)) * 1000) / (shown.at - before.at);
    const events = mean((push) => push.events);
    assert.ok(events > 0, "there is something to count");
    assert.ok(Math.abs(number(shown.events) - events) <= 0.51, `${shown.events} is ${events}`);
    assert.ok(Math.abs(number(shown.changes) - mean((push) => push.changes.made)) <= 0.51, shown.changes);
    assert.equal(shown.troubles, true, "all is well");
    assert.deepEqual(await barriers(page), []);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= (options.viewport ?? { width: 1280 }).width, `${width}`);
    assert.deepEqual(page.faults, []);
    await page.context().close();
  }
  publishes = false;
  await publisher;
  // What is not as it should be is said, and who has left is not counted.
  assert.equal(await put({ ...secret, "If-Match": '"other"' }), 412);
  await visitor.close();
  const page = await open(chromium, pushing.admin);
  await page.waitForFunction(() => document.getElementById("push-troubles").textContent === "1 change refused");
  await page.waitForFunction(() => document.getElementById("subscribers").textContent === "0");
  await page.context().close();
  other.stop();
  await pushing.stop();
  await rm(folder, { recursive: true });
  // A server without either has no such card.
  const plain = await open(chromium, cache.admin);
  await isLive(plain);
  assert.equal(await plain.locator("#push").isVisible(), false);
  await plain.context().close();
});

test("the picture that matters is on the first screen", async () => {
  const page = await open(chromium, cache.admin);
  await isLive(page);
  for (const id of ["chart", "clients-rate", "origin-rate", "ratio", "fetches", "stores", "health"]) {
    const box = await page.locator(`#${id}`).boundingBox();
    assert.ok(box && box.height > 0 && box.y + box.height <= 800, `${id}: ${JSON.stringify(box)}`);
  }
  await page.waitForFunction(() => document.querySelector("#chart .line.clients").getAttribute("d").length > 20);
  assert.match(await text(page, "ratio"), /%/);
  // The history was there before the page was: more seconds than it has been open.
  await page.getByLabel("10 min").check({ force: true });
  assert.match(await text(page, "ratio-window"), /10 minutes/);
  await page.context().close();
});

test("what is confirmed is purged, and what is not stays", async () => {
  const page = await open(chromium, cache.admin);
  await isLive(page);
  const kept = "/kept?max-age=600";
  const other = "/other?max-age=600";
  for (const path of [kept, other]) {
    await status(path);
    assert.match(await status(path), /hit/);
  }
  await page.fill("#lookup-url", cache.url + kept);
  await page.click("#lookup button");
  await page.waitForSelector("#lookup-answer .answer");
  await eventually("what is stored", async () => /status 200|1 stored response|hit/i.test(await text(page, "lookup-answer")));
  await page.fill("#purge-name", cache.url + kept);
  await page.click("#purge button");
  assert.match(await text(page, "confirm-words"), /kept\?max-age=600/);
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.waitForFunction(() => !document.getElementById("confirm").open);
  assert.match(await status(kept), /hit/, "nothing was confirmed");
  await page.click("#purge button");
  await page.click("#confirm-yes");
  await page.waitForFunction(() => document.getElementById("purge-answer").textContent.startsWith("Purged"));
  assert.match(await status(kept), /fwd=/, "it is fetched anew");
  assert.match(await status(other), /hit/, "nothing else was purged");
  // What makes no sense is refused with the remedy.
  await page.fill("#purge-name", "no url");
  await page.click("#purge button");
  const refused = page.waitForResponse((response) => response.status() === 400);
  await page.click("#confirm-yes");
  await refused;
  await page.waitForSelector("#purge-answer .wrong");
  assert.deepEqual(page.faults.filter((fault) => !/40[04]/.test(fault)), []);
  await page.context().close();
});

test("the keyboard is enough", async () => {
  const page = await open(chromium, cache.admin);
  await isLive(page);
  const path = "/by-keyboard?max-age=600";
  await status(path);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await tab(page, "#window input");
  await page.keyboard.press("ArrowRight");
  assert.match(await text(page, "ratio-window"), /5 minutes/);
  await tab(page, "#chart");
  await page.waitForFunction(() => document.querySelector("#chart .line.clients").getAttribute("d").length > 20);
  await page.keyboard.press("ArrowLeft");
  assert.match(await text(page, "readout"), /from clients, .* to the origin/);
  await page.keyboard.press("Escape");
  await tab(page, "#purge-name");
  await page.keyboard.type(cache.url + path);
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("confirm").open);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Cancel");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.getElementById("confirm").open);
  assert.equal(await page.evaluate(() => document.activeElement.id), "purge-name", "the focus is back");
  assert.match(await status(path), /hit/);
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("confirm").open);
  // On a busy machine the first dialog's event comes only now. It answers nothing.
  await page.evaluate(() => document.getElementById("confirm").dispatchEvent(new Event("close")));
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("purge-answer").textContent.startsWith("Purged"));
  assert.match(await status(path), /fwd=/);
  assert.deepEqual(page.faults, []);
  await page.context().close();
});

test("nobody is kept out, in light and dark, on a desk and on a phone", async () => {
  const phone = { width: 390, height: 844 };
  for (const options of [{}, { colorScheme: "dark" }, { viewport: phone }, { viewport: phone, colorScheme: "dark" }]) {
    const page = await open(chromium, cache.admin, options);
    await isLive(page);
    const name = JSON.stringify(options);
    assert.deepEqual(await barriers(page), [], name);
    await page.fill("#purge-name", "x");
    await page.locator("#purge button").scrollIntoViewIfNeeded();
    await page.click("#purge button");
    assert.deepEqual(await barriers(page), [], `${name}, asking`);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= (options.viewport ?? { width: 1280 }).width, `${name}: ${width}`);
    assert.deepEqual(page.faults, []);
    await page.context().close();
  }
});

test("the page asks for the secret, keeps it in its tab, and loses it with the tab", async () => {
  const folder = await mkdtemp(join(tmpdir(), "microcache-dashboard-"));
  const file = join(folder, "token");
  await writeFile(file, "correct-horse-battery\n");
  const guarded = await server(origin.url, "--admin-token-file", file);
  const page = await open(chromium, guarded.admin);
  await page.waitForFunction(() => document.getElementById("secret").open);
  assert.deepEqual(await barriers(page), []);
  assert.equal(await text(page, "secret-wrong"), "");
  await page.fill("#secret-value", "wrong-horse-battery");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.getElementById("secret-wrong").textContent !== "");
  await page.fill("#secret-value", "correct-horse-battery");
  await page.keyboard.press("Enter");
  await isLive(page);
  await page.selectOption("#purge-kind", "all");
  await page.click("#purge button");
  await page.click("#confirm-yes");
  await page.waitForFunction(() => document.getElementById("purge-answer").textContent.startsWith("Purged"));
  const kept = await page.evaluate(() => [localStorage.length, document.cookie, location.href]);
  assert.deepEqual(kept, [0, "", `${guarded.admin}/`]);
  await page.reload();
  await isLive(page);
  await page.click("#forget");
  await page.waitForFunction(() => document.getElementById("secret").open);
  assert.deepEqual(page.faults.filter((fault) => !fault.includes("401")), []);
  await page.context().close();
  await guarded.stop();
  await rm(folder, { recursive: true });
});

test("a page that has lost its server says so, and goes on when it is back", async () => {
  const first = await server(origin.url);
  const page = await open(chromium, first.admin);
  await isLive(page);
  await first.stop();
  await page.waitForFunction(() => document.getElementById("standing").textContent === "Connection lost");
  assert.match(await text(page, "lost"), /Trying again in \d+ s/);
  assert.deepEqual(await barriers(page), []);
  const again = new Program("--listen", "127.0.0.1:0", "--admin", new URL(first.admin).host, origin.url);
  await again.said(/admin +(http:\/\/[^\s]+)/);
  await isLive(page);
  assert.equal(await page.locator("#lost").isVisible(), false);
  await page.context().close();
  await again.stop();
});

const pictures = async () => {
  const folder = process.env.SCREENSHOTS;
  // A minute of the load, so that the chart is full.
  const begun = Date.now();
  const still = await open(chromium, cache.admin);
  await isLive(still);
  await eventually("a load of a minute", async () => {
    const { uptime_seconds: up } = await (await fetch(`${cache.admin}/v1/stats`)).json();
    return up > 62 || Date.now() - begun > 25000;
  });
  await still.context().close();
  for (const [name, options] of [
    ["dashboard-light", {}],
    ["dashboard-dark", { colorScheme: "dark" }],
    ["dashboard-phone", { viewport: { width: 390, height: 844 } }],
  ]) {
    const page = await open(chromium, cache.admin, options);
    await isLive(page);
    await page.waitForTimeout(2500);
    await page.screenshot({ path: join(folder, `${name}.png`) });
    await page.context().close();
  }
};
if (process.env.SCREENSHOTS) test("pictures for the documents", pictures);
