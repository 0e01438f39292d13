// Visitors with a real browser, for compare/forms: forms.mjs URL OTHER-ORIGIN FIELD MODE. Ends at the first thing that is not as it should be.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { chromium } = createRequire(new URL("../../crates/admin/browser/package.json", import.meta.url))("playwright-core");
const [url, other, field, mode] = process.argv.slice(2);
const token = `input[name=${field}]`;

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
const step = (words) => console.log(words);

async function visitor(options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(20000);
  return {
    page,
    cookies: async () => (await context.cookies()).map((it) => it.name).sort(),
    value: () => page.locator(token).first().inputValue(),
    /** Opens a page. Returns true if it was a hit. */
    async open(path) {
      const response = await page.goto(url + path);
      return response.headers()["cache-status"].includes("; hit");
    },
    /** Opens a page that is from memory. A form that was sent has removed it there, and its message is read first. */
    async hit(path) {
      for (let i = 0; i < 3; i++) if (await this.open(path)) return;
      assert.fail(`${path} is no hit`);
    },
    async filled() {
      await page.waitForFunction((it) => document.querySelector(it)?.value, token);
    },
    async send(text) {
      await page.fill("input[name=text]", text);
      await page.click("button");
    },
    notice: () => page.locator("#notice").textContent(),
  };
}

// Browsers may get another variant than scripts do.
for (const path of ["/", "/contact"]) await (await visitor()).open(path);
if (mode === "wait") {
  step("without JavaScript, a form of a page whose token is waited for is accepted");
  const plain = await visitor({ javaScriptEnabled: false });
  const another = await visitor({ javaScriptEnabled: false });
  for (const one of [plain, another]) {
    await one.hit("/contact");
    assert(await one.value());
  }
  assert.notEqual(await plain.value(), await another.value());
  await plain.send("plain");
  assert.equal(await plain.notice(), "Thanks for plain");
  await another.send("another");
  assert.equal(await another.notice(), "Thanks for another");
  await plain.hit("/contact");
  await plain.send("again");
  assert.equal(await plain.notice(), "Thanks for again");
} else {
  step("a stranger gets a page from memory, without a token and a cookie");
  const ann = await visitor();
  assert(await ann.open("/contact"), "a hit");
  await ann.page.waitForTimeout(300);
  assert.equal(await ann.value(), "");
  assert.deepEqual(await ann.cookies(), []);

  step("the token is there once the form has the focus");
  await ann.page.focus("input[name=text]");
  await ann.filled();
  assert((await ann.cookies()).length > 0, "a session");

  step("the form is accepted, and its message is shown once");
  await ann.send("ann");
  assert.equal(await ann.notice(), "Thanks for ann");
  await ann.hit("/");
  assert.equal(await ann.page.locator("#notice").count(), 0);
  await ann.hit("/contact");

  step("another visitor has another session and token");
  const bob = await visitor();
  await bob.hit("/contact");
  await Promise.all([ann, bob].map(async (one) => {
    await one.page.focus("input[name=text]");
    await one.filled();
  }));
  assert.notEqual(await ann.value(), await bob.value());

  step("the token of one is refused with the session of the other");
  const stolen = await ann.value();
  const refused = (one, value) => one.page.evaluate(async ([name, value]) => {
    const body = new URLSearchParams({ [name]: value, text: "stolen" });
    return (await fetch("/contact", { method: "POST", body })).status;
  }, [field, value]);
  assert([403, 419, 422].includes(await refused(bob, stolen)));
  assert.equal(await refused(bob, await bob.value()), 200);
  assert([403, 419, 422].includes(await refused(bob, "")));

  step("a form that a script sends at once waits for its token");
  const carl = await visitor();
  await carl.open("/contact");
  await carl.page.evaluate(() => {
    const form = document.querySelector("form");
    form.querySelector("input[name=text]").value = "carl";
    form.requestSubmit();
  });
  assert.equal(await carl.notice(), "Thanks for carl");

  step("the first click of a button whose script sends the token of the page");
  const eve = await visitor();
  await eve.open("/contact");
  await eve.page.evaluate(() => {
    const button = Object.assign(document.createElement("button"), { id: "send" });
    document.body.append(button);
    button.onclick = async () => {
      const token = document.querySelector("meta[name=csrf-token]")?.content ?? document.cookie.match(/csrftoken=(\w+)/)?.[1];
      const headers = { "X-CSRF-Token": token, "X-CSRFToken": token };
      window.status = (await fetch("/contact", { method: "POST", headers, body: new URLSearchParams({ text: "eve" }) })).status;
    };
  });
  await eve.page.click("#send");
  await eve.page.waitForFunction(() => window.status);
  assert.equal(await eve.page.evaluate(() => window.status), "200");

  step("a page that a script puts in place of another one, and a session that begins anew in between");
  await carl.open("/");
  await carl.open("/contact");
  await carl.page.focus("input[name=text]");
  await carl.filled();
  const replace = (path) => carl.page.evaluate(async (path) => {
    document.body.innerHTML = new DOMParser().parseFromString(await (await fetch(path)).text(), "text/html").body.innerHTML;
  }, path);
  await replace("/login");
  assert.equal(await carl.value(), "");
  await carl.page.focus("input[name=text]");
  await carl.filled();
  await carl.page.evaluate(() => {
    const form = document.querySelector("form");
    const send = async (event) => {
      event.preventDefault();
      form.querySelector("input[name=text]").value = "Carl";
      await fetch("/login", { method: "POST", body: new URLSearchParams(new FormData(form)) });
      window.sent = true;
    };
    form.addEventListener("submit", send);
    form.requestSubmit();
  });
  await carl.page.waitForFunction(() => window.sent);
  await replace("/contact");
  await carl.page.fill("input[name=text]", "Carl again");
  await carl.page.click("button");
  assert.equal(await carl.notice(), "Thanks for Carl again");

  step("pages of one who is signed in are his own, until he signs out");
  for (const path of ["/", "/contact"]) {
    assert(!(await carl.open(path)), `${path} is his own`);
    assert.equal(await carl.page.locator("#name").textContent(), "Carl");
    await bob.open(path);
    assert.equal(await bob.page.locator("#name").count(), 0);
  }
  await carl.page.focus("input[name=text]");
  await carl.filled();
  await carl.page.evaluate((name) => fetch("/logout", { method: "POST", body: new URLSearchParams({ [name]: document.querySelector(`input[name=${name}]`).value }) }), field);
  await carl.hit("/");
  assert.equal(await carl.page.locator("#name").count(), 0);

  step("a prefetched page begins no session");
  const dora = await visitor();
  await dora.open("/");
  await dora.page.evaluate(() => {
    const link = Object.assign(document.createElement("link"), { rel: "prefetch", href: "/contact" });
    document.head.append(link);
    return new Promise((resolve) => { link.onload = link.onerror = resolve; });
  });
  assert.deepEqual(await dora.cookies(), []);

  step("another origin cannot read a token");
  const victim = await visitor();
  await victim.open("/contact");
  await victim.page.focus("input[name=text]");
  await victim.filled();
  await victim.page.goto(other + "/");
  const read = await victim.page.evaluate(async (target) => {
    const tried = {};
    await fetch(target, { credentials: "include" }).then(() => { tried.fetched = true; }, () => {});
    tried.opaque = await (await fetch(target, { credentials: "include", mode: "no-cors" })).text();
    const frame = Object.assign(document.createElement("iframe"), { src: target });
    document.body.append(frame);
    await new Promise((resolve) => { frame.onload = resolve; });
    tried.framed = frame.contentDocument?.body.textContent;
    return tried;
  }, url + "/csrf-token");
  assert.deepEqual(read, { opaque: "", framed: undefined });

  step("without JavaScript the form is refused");
  const plain = await visitor({ javaScriptEnabled: false });
  await plain.open("/contact");
  await plain.page.fill("input[name=text]", "plain");
  const [response] = await Promise.all([plain.page.waitForResponse((it) => it.request().method() === "POST"), plain.page.click("button")]);
  assert([403, 419, 422].includes(response.status()), String(response.status()));
}
await browser.close();
