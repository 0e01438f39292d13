// The client for browsers in Node: its requests, and what subscribers get of the responses.

import assert from "node:assert";
import test from "node:test";

// Pauses take a 250th of the time, and are written down; the limit of silence stays.
const pauses = [];
const { setTimeout: real } = globalThis;
globalThis.setTimeout = (act, time, ...more) => real(act, time === 45e3 ? time : pauses.push(time) && time / 250, ...more);
const { connect } = await import("../../../push/src/client.min.js");

const queue = () => {
  const [items, waits] = [[], []];
  const next = async () => {
    while (!items.length) await new Promise((done) => waits.push(done));
    return items.shift();
  };
  return { add: (it) => items.push(it) && waits.shift()?.(), next };
};
const requests = queue();
globalThis.fetch = (url, { headers, signal }) =>
  new Promise((answer, fail) => {
    signal.addEventListener("abort", () => fail(signal.reason));
    const { readable, writable } = new TransformStream();
    const writer = writable.getWriter();
    const reply = (status, type, body) => answer(new Response(body, { status, headers: { "content-type": type } }));
    const send = (...events) => writer.write(new TextEncoder().encode(events.map((it) => `data: ${it.event ? JSON.stringify(it) : it}\n\n`).join("")));
    requests.add({
      query: new URLSearchParams(url.split("?")[1]),
      token: headers.authorization,
      signal,
      json: (value, status = 200) => reply(status, status < 300 ? "application/json" : "application/problem+json", JSON.stringify(value)),
      stream: (...events) => reply(200, "text/event-stream", readable, send(...events)),
      send,
      end: () => writer.close(),
    });
  });

const subscribe = (hub, url) => {
  const seen = queue();
  hub.subscribe(url, (value, { event, patch }) => seen.add([event, value, patch]), { onerror: ({ status, ended }) => seen.add([status, ended]) });
  return seen.next;
};
const put = (url, id, value) => ({ id, event: "put", url, type: "application/json", value });

test("patches are merged and pollute no prototype", async () => {
  const hub = connect();
  const a = subscribe(hub, "/a");
  const it = await requests.next();
  assert.deepStrictEqual([...it.query], [["deltas", "1"], ["authorization", ""], ["url", "/a"]]);
  it.stream(put("/a", "1.1", { a: 1, b: { c: [1], d: 2 } }));
  assert.deepStrictEqual(await a(), ["put", { a: 1, b: { c: [1], d: 2 } }, undefined]);
  // Data may have several lines.
  it.send('{"id":"1.2","url":"/a","type":"application/json",\ndata: "patch":{"a":null,"__proto__":{"bad":1},"b":{"d":{"e":null}}}}');
  const [, value, patch] = await a();
  assert.deepStrictEqual([Object.keys(value), value.b, patch.a], [["b", "__proto__"], { c: [1], d: {} }, null]);
  assert.ok(!("bad" in {}) && !("bad" in value) && Object.getPrototypeOf(value) === Object.prototype);
  // Each subscriber has a copy of its own, and the first is a whole one.
  value.b = 0;
  const [, copy, whole] = await subscribe(hub, "/a")();
  assert.deepStrictEqual([copy.b.c, whole], [[1], undefined]);
  it.send({ id: "1.3", event: "delete", url: "/a" });
  assert.deepStrictEqual(await a(), ["delete", undefined, undefined]);
  for (const url of ["/live/*", "/{a}", "live", "/a?b", ""]) assert.throws(() => hub.subscribe(url, () => {}), TypeError);
  hub.close();
  await new Promise((done) => it.signal.addEventListener("abort", done));
});

test("a lost stream is resumed, and after a reset the documents are fetched again", async () => {
  const hub = connect();
  const [a, b] = [subscribe(hub, "/a"), subscribe(hub, "/b")];
  const lost = await requests.next();
  lost.stream(put("/a", "1.1", 1), put("/b", "1.2", null));
  assert.deepStrictEqual([await a(), await b()], [["put", 1, undefined], ["put", null, undefined]]);
  lost.end();
  const it = await requests.next();
  assert.deepStrictEqual(it.query.getAll("version"), ["1.1", "1.2"]);
  it.stream({ event: "gap" }, { event: "reset" });
  assert.deepStrictEqual([await a(), await b()], [["gap", 1, undefined], ["gap", null, undefined]]);
  (await requests.next()).json({ events: [] });
  (await requests.next()).json({ events: [put("/b", "2.1", 3)] });
  assert.deepStrictEqual([await a(), await b()], [["delete", undefined, undefined], ["put", 3, undefined]]);
  assert.deepStrictEqual((await requests.next()).query.getAll("version"), ["-", "2.1"]);
  hub.close();
});

test("tokens are renewed, refused documents end, and pauses grow", async () => {
  let n = 0;
  // The third token, which is due before the second ends, is that of another visitor.
  const claims = () => ({ sub: ++n < 3 ? 7 : 8, n, exp: Date.now() / 1e3 + 300 });
  const hub = connect({ token: async () => `e.${btoa(JSON.stringify(claims()))}.s` });
  const [a, b] = [subscribe(hub, "/a"), subscribe(hub, "/b")];
  const tokens = new Set();
  (async () => {
    for (;;) {
      const { query, token, json } = await requests.next();
      tokens.add(token);
      const urls = `${query.getAll("url")}`;
      if (tokens.size < 2) json({}, 401);
      else if (urls.includes("/b")) json({}, 403);
      else if (query.has("wait")) json({ events: [put("/a", "1.1", 1)] });
      else json({}, 503);
    }
  })();
  assert.deepStrictEqual([await a(), await b()], [[401, false], [401, false]]);
  assert.deepStrictEqual([await a(), await b()], [["put", 1, undefined], [403, true]]);
  let told = await a();
  for (; told[0]; told = await a()) assert.deepStrictEqual(told, [503, false]);
  assert.deepStrictEqual([told, n, tokens.size], [[undefined, undefined], 3, 2]);
  const longest = Math.max(...pauses.filter((it) => it < 2e5));
  assert.ok(longest > 29e3 && longest < 6e4, `${pauses}`);
});
