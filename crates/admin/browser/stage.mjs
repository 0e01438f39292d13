// What the test stands on: a slow application, Microcache in front of it, a load, and a browser.

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const BINARY = process.env.MICROCACHE ?? new URL("../../../target/debug/microcache", import.meta.url).pathname;
const BROWSER = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) => path && existsSync(path));
/** As root there is no sandbox to be had; and the browser itself asks nobody for anything. */
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
/** How long anything may take on a busy machine. */
export const PATIENCE = 30000;

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Waits for something to be so. */
export async function eventually(what, look) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what}: not within ${PATIENCE} ms`);
    await sleep(50);
  }
}

/** A program of ours, with what it prints. */
export class Program {
  constructor(...args) {
    this.output = "";
    this.child = spawn(BINARY, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.ended = new Promise((resolve) => this.child.on("exit", resolve));
    for (const stream of [this.child.stdout, this.child.stderr]) stream.on("data", (data) => (this.output += data));
  }

  /** What it has printed for this pattern. */
  said(pattern) {
    return eventually(`${pattern} in what it prints`, () => {
      if (this.child.exitCode !== null) throw new Error(`it ended:\n${this.output}`);
      return this.output.match(pattern)?.[1];
    });
  }

  async stop(signal = "SIGTERM") {
    if (this.child.exitCode === null) this.child.kill(signal);
    await this.ended;
  }
}

export async function application(...flags) {
  const program = new Program("origin", "--listen", "127.0.0.1:0", ...flags);
  program.url = `http://${await program.said(/(127\.0\.0\.1:\d+)/)}`;
  return program;
}

/** Microcache, where it listens, and where its operators are. */
export async function server(origin, ...flags) {
  const program = new Program("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", ...flags, origin);
  program.url = await program.said(/listening on (http:\/\/[^\s]+)/);
  program.admin = await program.said(/admin +(http:\/\/[^\s]+)/);
  return program;
}

export const load = (url, rate, seconds, ...more) =>
  new Program("bench", "--rate", String(rate), "-d", `${seconds}s`, "-c", "8", ...more, url);

export async function browser() {
  if (!BROWSER) throw new Error("no Chromium is installed (Debian: apt-get install chromium), or CHROMIUM does not name it");
  return chromium.launch({ executablePath: BROWSER, args: FLAGS });
}

/** A page of the dashboard that notes whatever should not happen. */
export async function open(browser, admin, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.faults = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && page.faults.push(message.text()));
  page.on("pageerror", (error) => page.faults.push(String(error)));
  page.on("request", (request) => request.url().startsWith(`${admin}/`) || page.faults.push(`asked for ${request.url()}`));
  await page.goto(`${admin}/`);
  return page;
}

export const isLive = (page) => page.waitForFunction(() => document.getElementById("standing").textContent === "Live");

/** What axe-core finds that is serious. It is run beside the page's own policy, as a debugger may. */
export async function barriers(page) {
  const session = await page.context().newCDPSession(page);
  const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
  const run = async (expression) => {
    const answer = await session.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (answer.exceptionDetails) throw new Error(JSON.stringify(answer.exceptionDetails));
    return answer.result.value;
  };
  await run(`${axe};0`);
  const found = await run("axe.run().then((found) => ({ passes: found.passes.length, violations: found.violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.map((node) => node.html.slice(0, 200)) })) }))");
  await session.detach();
  if (found.passes < 10) throw new Error(`axe looked at nothing: ${JSON.stringify(found)}`);
  return found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
}

/** Another watcher: the snapshots that all watchers are sent, by their ids. */
export async function watch(admin) {
  const stop = new AbortController();
  const response = await fetch(`${admin}/v1/stream`, { signal: stop.signal });
  const snapshots = new Map();
  (async () => {
    let rest = "";
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      const events = (rest + piece).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const [, name, id, data] = event.match(/^event: (\w+)\nid: (\d+)\ndata: (.*)$/);
        if (name === "stats") snapshots.set(Number(id), JSON.parse(data));
      }
    }
  })().catch(() => {});
  return { snapshots, stop: () => stop.abort() };
}
