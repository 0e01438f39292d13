// Keeps documents up to date in pages: see docs/push.md. One worker follows the documents of all tabs of a sign-in; a
// page without workers follows its own. client.min.js is made of this file by `make client.min.js`.

const entries = (it) => it instanceof Object && !Array.isArray(it) && Object.entries(it);

// Applies a merge patch (RFC 7396) to a copy. No member is assigned: `__proto__` is a name like any other.
const merge = (old, patch) => {
  if (!entries(patch)) return patch;
  const all = new Map(entries(old) || []);
  for (const [name, it] of entries(patch)) it === null ? all.delete(name) : all.set(name, merge(all.get(name), it));
  return Object.fromEntries(all);
};

const claims = (token) => {
  try {
    return JSON.parse(atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/")));
  } catch {
    return {};
  }
};

// Follows documents for ports. A port sends `[url, token]` to enter, `[0, token]` to renew the token, and `[]` to leave.
// It receives `[change]`, `[0, error]`, or `[]` if a token is needed.
const serve = () => {
  const urls = new Map();
  const docs = new Map();
  const streams = [];
  let fails = 0;
  let token, opened, opening, renewal;

  const say = (about, ...message) => urls.forEach((url, port) => url === about && port.postMessage(message));

  // Asks the tab that was opened or shown last.
  const renew = () => [...urls.keys()].pop()?.postMessage([]);

  const open = () => {
    const all = [...new Set(urls.values())].sort((one, other) => other.length - one.length);
    for (const url of docs.keys()) all.includes(url) || docs.delete(url);
    if (opened === (opened = all.join())) return;
    for (const stop of streams.splice(0)) stop();
    // A URL with all names would be too long.
    while (all[0]) follow(all.splice(0, 1 + 2e3 / (all[0].length + 40)));
  };

  const ask = async (query, accept, signal) => {
    // Without a token, an empty one in the URL keeps cookies from counting: the worker serves tabs of all sign-ins.
    const response = await fetch("/.well-known/microcache/watch?deltas=1&authorization" + query, {
      headers: { accept, ...(token && { authorization: "Bearer " + token }) },
      signal,
      redirect: "error",
    });
    // Problem documents have another type.
    if (response.headers.get("content-type").startsWith(accept)) return response;
    const { status } = response;
    // Another token may help; otherwise the request is wrong.
    if (token && status === 401) renew((token = 0));
    throw { status, ended: status < 404 && token !== 0, message: await response.text() };
  };

  const take = ({ url, id, type, value, text, patch }) => {
    const old = docs.get(url);
    if (!id) return say(url, 0, { message: "not a document", ended: true });
    if (old?.id === id) return;
    const document = patch === undefined ? type && (value ?? text ?? null) : merge(old?.document, patch);
    const change = { event: type ? "put" : "delete", url, id, type, document, patch };
    docs.set(url, change);
    say(url, change);
  };

  const follow = async (all) => {
    let over, is_unsure, cut;
    streams.push(() => cut?.abort((over = true)));

    const listen = async (wait) => {
      const { signal } = cut;
      let query = "";
      let rest = "";
      for (const url of all) {
        const about = "&url=" + encodeURIComponent(url);
        // Each document is fetched again after a reset, and if the server refuses one of them.
        if (is_unsure)
          try {
            const { events } = await (await ask("&wait=0" + about, "application/json", signal)).json();
            events.forEach(take);
            if (!events[0] && docs.has(url)) take({ url, id: "-" });
          } catch (error) {
            if (!error.ended) throw error;
            say(url, 0, error);
            continue;
          }
        const id = docs.get(url)?.id;
        query += about + (id ? "&version=" + id : "");
      }
      const { body } = await ask(query, "text/event-stream", signal);
      const reader = body.pipeThrough(new TextDecoderStream()).getReader();
      is_unsure = false;
      for (let read; !(read = await reader.read()).done; wait()) {
        const events = (rest + read.value).split("\n\n");
        rest = events.pop();
        for (const event of events) {
          const lines = event.split("\n").map((line) => (line.startsWith("data: ") ? line.slice(6) : ""));
          const it = JSON.parse(lines.join(""));
          if (it.url) take(it);
          else if (it.event === "reset") return cut.abort((is_unsure = true));
          else for (const url of all) say(url, { ...docs.get(url), ...it });
        }
      }
    };

    for (;;) {
      // Half a second to a minute.
      if (fails) await new Promise((done) => setTimeout(done, Math.min(2 ** fails, 99) * 300 * (1 + Math.random())));
      if (over) return;
      cut = new AbortController();
      const began = Date.now();
      let timer;
      // The server is never silent for longer than 15 seconds.
      const wait = () => {
        clearTimeout(timer);
        timer = setTimeout(() => cut.abort(), 45e3);
        if (Date.now() - began > 1e4) fails = 0;
      };
      wait();
      try {
        if (token === 0) renew();
        else await listen(wait);
      } catch (error) {
        if (error.ended) is_unsure = true;
        else if (!over) for (const url of all) say(url, 0, error);
      }
      clearTimeout(timer);
      fails += !over;
    }
  };

  return (port) => {
    port.onmessage = ({ data: [url, fresh] }) => {
      if (url) {
        if (!urls.delete(port) && docs.has(url)) port.postMessage([{ ...docs.get(url), patch: undefined }]);
        urls.set(port, url);
      } else if (!fresh) urls.delete(port);
      if (fresh && !(url && token)) {
        // Without `iat` this relies on the clock here. Timers count to 2³¹ ms.
        const { exp, iat = Date.now() / 1e3 } = claims((token = fresh));
        opened = 0;
        clearTimeout(renewal);
        renewal = exp && setTimeout(renew, Math.max(((exp - iat) * 800) % 2e9, 1e4));
      }
      clearTimeout(opening);
      opening = setTimeout(open, 20);
    };
  };
};

export const connect = ({ token } = {}) => {
  const all = new Set();
  const me = token && Math.random();
  let first, name, local;

  // Tabs have the same worker if their tokens permit the same to the same subject.
  const next = async () => {
    const fresh = await token?.();
    const { sub, microcache = me } = claims(fresh);
    const is = JSON.stringify([sub, microcache]);
    if (is !== (name ??= is)) throw Error("another sign-in");
    return fresh;
  };

  const fail = (it, error) => {
    if (error.ended) stop(it);
    it.onerror(Object.assign(Error(error.message), error, { url: it.url }));
  };

  const leave = ({ port }) => port?.postMessage([]);

  const stop = (it) => {
    leave(it);
    it.port = void all.delete(it);
  };

  const enter = async (it) => {
    try {
      const fresh = await (first ||= next());
      if (!all.has(it)) return;
      let port;
      if (globalThis.SharedWorker && !local) {
        const worker = new SharedWorker(import.meta.url, { name, type: "module" });
        // The page's policy may forbid workers.
        worker.onerror = () => enter(it, (local ??= serve()));
        port = worker.port;
      } else {
        const { port1, port2 } = new MessageChannel();
        (local ??= serve())(port2);
        port = port1;
      }
      port.onmessage = async ({ data: [change, error] }) => {
        if (it.port !== port) return;
        if (change) it.listener(change.document, change);
        else if (error) fail(it, error);
        else
          try {
            port.postMessage([0, await next()]);
          } catch (error) {
            fail(it, error);
          }
      };
      it.port = port;
      port.postMessage([it.url, fresh]);
    } catch (error) {
      first = 0;
      setTimeout(enter, 5e3, it);
      fail(it, error);
    }
  };

  const on = globalThis.addEventListener;
  on?.("visibilitychange", () => all.forEach(({ port, url }) => port?.postMessage([url])));
  on?.("pagehide", ({ persisted }) => persisted || all.forEach(leave));

  return {
    subscribe(url, listener, { onerror = console.error } = {}) {
      if (!/^\/[!-)+->@-z~]+$/.test(url)) throw TypeError("not a document");
      const it = { url, listener, onerror };
      enter(it, all.add(it));
      return () => stop(it);
    },
    close: () => all.forEach(stop),
  };
};

const accept = serve();
globalThis.onconnect = ({ ports }) => accept(ports[0]);
