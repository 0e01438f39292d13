// Keeps a page up to date: see docs/live.md.

const url = location.pathname + location.search;
const lock = "microcache&url=" + encodeURIComponent(url);
const ears = new BroadcastChannel("microcache");
const mouth = new BroadcastChannel("microcache");
let wanted, tag, shown, busy, source, asked, leader, lost;
let leave = () => source.close();

const typed = new Set();
addEventListener("input", ({ target }) => typed.add(target), true);

// For each node an equal one, or one like it.
const match = (nodes, list, live) => {
  const found = new Map();
  let rest = [...list];
  [...nodes].forEach((node, i, all) => {
    const near = rest.slice(0, 50);
    const fits = (it) => it.nodeName === node.nodeName && !all.slice(i, i + 50).some((other) => other.isEqualNode(it));
    const like =
      near.find((it) => it.isEqualNode(node)) ||
      near.find((it) => it.id === node.id && fits(it)) ||
      (live && !node.id && near.find(fits));
    rest = rest.slice(rest.indexOf(like) + 1);
    found.set(node, like);
  });
  return found;
};

// Changes what differs. New scripts do not run.
const patch = (old, fresh, live) => {
  if (old.isEqualNode(fresh) || typed.has(live)) return;
  if (!old.attributes) return (live.data = fresh.data);
  for (const it of old.attributes) fresh.hasAttribute(it.name) || live.removeAttribute(it.name);
  for (const it of fresh.attributes) it.value === old.getAttribute(it.name) || live.setAttributeNode(it.cloneNode());
  const twins = match(old.childNodes, live.childNodes, 1);
  let next = live.firstChild;
  match(fresh.childNodes, old.childNodes).forEach((before, node) => {
    const twin = twins.get(before);
    twins.delete(before);
    if (!before) live.insertBefore(document.importNode(node, true), next);
    if (!twin) return;
    patch(before, node, twin);
    next = twin.nextSibling;
  });
  twins.forEach((twin) => twin?.remove());
};

// The same in another coding has a weak one.
const opaque = (tag) => tag?.replace("W/", "");

const ask = async (cache, size) => {
  const page = await fetch(location, { cache, headers: { accept: "text/html,*/*;q=0.8" } });
  if (!page.ok || page.redirected) return;
  const bytes = await page.arrayBuffer();
  if (size && size !== bytes.byteLength) return ask("no-cache");
  const html = new TextDecoder(document.characterSet).decode(bytes);
  const root = new DOMParser().parseFromString(html, "text/html").documentElement;
  return Object.assign(root, { tag: opaque(page.headers.get("etag")) });
};

// What this page was made of, if it is cached.
let base = ask("force-cache", performance.getEntriesByType("navigation")[0]?.decodedBodySize).catch(() => {});

const look = async () => {
  const version = wanted;
  const tell = (name) =>
    document.dispatchEvent(new CustomEvent("microcache:" + name, { cancelable: true, detail: { url, version } }));
  try {
    // What it was made of may be what there is.
    const known = await base;
    const fresh = !lost && tag && tag === known?.tag ? known : await ask("no-cache");
    const old = known || fresh;
    if (fresh && url === location.pathname + location.search && !old.isEqualNode(fresh) && tell("before-update")) {
      const focus = document.activeElement;
      for (const it of typed) it.isConnected || typed.delete(it);
      patch(old, fresh, document.documentElement);
      base = fresh;
      for (const it of typed) it.isConnected || document.getElementById(it.id)?.replaceWith(it);
      if (document.activeElement !== focus) document.getElementById(focus.id)?.focus({ preventScroll: true });
      tell("update");
    }
    shown = version;
  } catch {}
  busy = 0;
};

const soon = () => (busy = busy || setTimeout(look, Math.random() * 200));

ears.onmessage = ({ data: { event, url: about, version, etag } }) => {
  lost = !event;
  if (about !== url) return;
  if (event !== "page") return ears.close(), leave();
  tag = opaque(etag);
  if (shown !== (wanted = version)) soon();
};

const open = (query) => {
  source?.close();
  asked = query;
  if (!query) return;
  source = new EventSource("/.well-known/microcache/watch?" + query);
  const tell = ({ data }) => mouth.postMessage(JSON.parse(data));
  source.addEventListener("page", tell);
  source.addEventListener("unwatchable", tell);
  source.onerror = ({ target }) => {
    if (target.readyState < 2) return;
    mouth.postMessage({});
    setTimeout(() => asked === query && open(query), 60000);
  };
};

// One tab asks for what the locks of all tabs name.
const check = async () => {
  const names = (await navigator.locks.query()).held.map((it) => it.name);
  const query = names.filter((it) => it.startsWith("microcache&")).join("&");
  if (leader && asked !== query) open(query);
};

const lead = async (steal) => {
  try {
    await navigator.locks.request("microcache", { steal }, () => new Promise(check, (leader = true)));
  } catch {
    open();
    lead((leader = false));
  }
};

const join = async () => {
  try {
    await navigator.locks.request(lock, { mode: "shared" }, () => {
      lead(!document.hidden);
      addEventListener("visibilitychange", () => document.hidden || leader || lead(true));
      return new Promise((done) => (leave = done));
    });
  } catch {
    open(lock);
  }
};
join();

setInterval(() => {
  if (leader) check();
  if (!document.hidden && (lost || wanted !== shown)) soon();
}, 5000);
