// Keeps a page up to date: see docs/live.md.

// The URL as it was requested: scripts may have changed the location.
const [load] = performance.getEntriesByType("navigation");
const { pathname: path, search } = new URL(load?.name || location);
const url = path + search;
const entry = window.navigation?.currentEntry?.key;
const lock = "microcache&url=" + encodeURIComponent(url);
const ears = new BroadcastChannel("microcache");
const mouth = new BroadcastChannel("microcache");
let wanted, tag, shown, busy, source, opened, leader, lost, leave;

// Returns whether a single-page application has navigated to another page.
const away = () => location.pathname !== path && window.navigation?.currentEntry?.key !== entry;

const values = (select, all) => [...(all ? select.options : select.selectedOptions)].map((it) => it.value);
const kids = (node) => node.content?.childNodes || node.childNodes;
const name = (node) => node.id || (node.getAttribute?.("name") && node.nodeName + node.getAttribute("name"));

// Maps unique ids and names to their nodes.
const named = (root) => {
  const all = new Map();
  for (const it of root.querySelectorAll("[id],[name]")) all.set(name(it), all.has(name(it)) ? 0 : it);
  return all;
};

// Patches the page with the differences between two versions. Changes made by scripts stay, and new scripts
// do not run.
const update = (before, after, page) => {
  const texts = new Map();
  const text = (node) => {
    if (!texts.has(node)) texts.set(node, node.outerHTML ?? node.nodeName + node.data);
    return texts.get(node);
  };

  // A node's counterparts in all three trees, and its ancestors.
  const same = new Map();
  const inside = new Map();
  const [olds, lives] = [named(before), named(page)];
  for (const [key, node] of named(after)) {
    const three = [node, olds.get(key), lives.get(key)];
    if (!three.every((it) => it && it.nodeName === node.nodeName)) continue;
    for (const it of three) {
      same.set(it, three);
      for (let up = it.parentNode; up; up = up.parentNode) inside.set(up, (inside.get(up) || new Set()).add(key));
    }
  }

  // Fields that are edited or focused, and their ancestors.
  const focus = document.activeElement;
  const held = new Set();
  for (let it of page.querySelectorAll("input,select,textarea,:focus"))
    if (it === focus || it.value !== it.defaultValue || it.checked !== it.defaultChecked)
      for (; it; it = it.parentNode) held.add(it);

  // Scores the similarity of two nodes.
  const likeness = (old, other, twins) => {
    if (old.nodeName !== other.nodeName || same.get(old) !== same.get(other) || (old.id && old.id !== other.id)) return 0;
    let sum = text(old) === text(other) ? 8 : 2;
    if (!old.attributes) sum /= 4;
    if (same.has(old)) sum += 64;
    if (held.has(twins?.get(old))) sum += 32;
    for (const key of inside.get(old) || []) if (inside.get(other)?.has(key)) return sum + 16;
    return sum;
  };

  // Matches children by the longest common subsequence of similar nodes, then by equality anywhere.
  const match = (all, others, twins, loose) => {
    const found = new Map();
    let [start, end, last] = [0, all.length, others.length];
    const equal = (old, other) => text(old) === text(other) && same.get(old) === same.get(other);
    while (start < end && start < last && equal(all[start], others[start])) found.set(all[start], others[start++]);
    while (end > start && last > start && equal(all[end - 1], others[last - 1])) found.set(all[--end], others[--last]);
    all = all.slice(start, end);
    others = others.slice(start, last);
    if (all.length * others.length < 4e6) {
      const best = [...all, 0].map(() => new Float64Array(others.length + 1));
      for (let i = all.length; i--; )
        for (let k = others.length; k--; ) {
          const like = likeness(all[i], others[k], twins);
          best[i][k] = Math.max(best[i + 1][k], best[i][k + 1], like && like + best[i + 1][k + 1]);
        }
      for (let i = 0, k = 0; i < all.length && k < others.length; )
        if (best[i][k] === best[i + 1][k]) i++;
        else if (best[i][k] === best[i][k + 1]) k++;
        else found.set(all[i++], others[k++]);
    }
    const taken = new Set(found.values());
    const left = new Map();
    for (const it of others) if (it.attributes && !taken.has(it)) left.set(text(it), it);
    for (const it of all) {
      const other = left.get(text(it));
      if (found.has(it) || same.has(it) || !other || same.has(other)) continue;
      found.set(it, other);
      loose?.add(other);
      left.delete(text(it));
    }
    return found;
  };

  const gone = [];

  const change = (old, fresh, live) => {
    if (old && text(old) === text(fresh)) return;
    if (!fresh.attributes) return (live.data = fresh.data);
    for (const { name, value } of [...(old?.attributes || [])].concat(...fresh.attributes)) {
      const [was, is] = [old?.getAttribute(name), fresh.getAttribute(name)];
      if (was === is || value !== (is ?? was)) continue;
      if (name === "class") {
        live.classList.remove(...(old?.classList || []));
        live.classList.add(...fresh.classList);
      } else if (is === null) live.removeAttribute(name);
      else live.setAttributeNode(fresh.getAttributeNode(name).cloneNode());
    }
    const chosen = old?.options && values(live);
    const mine = chosen && `${chosen}` !== `${values(old)}`;
    children(old, fresh, live);
    // Keeps the user's selection, if possible.
    if (mine && values(fresh, 1).some((it) => chosen.includes(it))) for (const it of live.options) it.selected = chosen.includes(it.value);
  };

  const children = (old, fresh, live) => {
    const olds = old ? [...kids(old)] : [];
    const there = [...kids(live)];
    const twins = match(olds, there);
    const loose = new Set();
    const found = new Map();
    for (const [was, now] of match(olds, [...kids(fresh)], twins, loose)) found.set(now, was);
    const all = [];
    for (const now of kids(fresh)) {
      const [, was, it] = same.get(now) || [0, found.get(now), twins.get(found.get(now))];
      // Nodes removed by scripts stay removed.
      if (was && !it) continue;
      const is_known = it && !it.contains(live);
      all.push([is_known && was, now, is_known ? it : document.importNode(now, !inside.has(now))]);
    }
    const kept = new Set(found.values());
    for (const was of olds) if (!kept.has(was) && !same.has(was)) gone.push([twins.get(was), live]);

    // Moves as few nodes as possible, and never the focused one.
    const places = new Map(there.map((it, i) => [it, i]));
    const at = all.findIndex(([, , it]) => places.has(it) && it.contains(focus));
    const middle = places.get(all[at]?.[2]);
    const parent = live.content || live;
    let next = parent.firstChild;
    let last = -1;
    all.forEach(([, now, it], i) => {
      const place = places.get(it);
      if (i === at || (place > last && !loose.has(now) && (at < 0 || i < at === place < middle))) last = place;
      else if (parent.moveBefore && parent.isConnected && it.isConnected) parent.moveBefore(it, next);
      else parent.insertBefore(it, next);
      next = it.nextSibling;
    });
    for (const [was, now, it] of all) if (was || inside.has(now)) change(was, now, it);
  };

  const { selectionStart, selectionEnd } = focus;
  const { scrollX: left, scrollY: top } = window;
  change(before, after, page);
  for (const [it, parent] of gone) if (it?.parentNode === (parent.content || parent)) it.remove();
  if (document.activeElement !== focus) {
    const it = focus.isConnected ? focus : focus.id && document.getElementById(focus.id);
    it?.focus?.({ preventScroll: true });
    if (selectionEnd != null && it?.value) it.setSelectionRange(selectionStart, selectionEnd);
  }
  // Browsers scroll to a field that is moved.
  if (scrollY !== top) scrollTo({ left, top, behavior: "instant" });
};

// A variant in another content coding has a weak entity tag.
const opaque = (tag) => tag?.replace("W/", "");

const ask = async (cache, size) => {
  const page = await fetch(url, { cache, headers: { accept: "text/html,*/*;q=0.8" } });
  if (!page.ok || page.redirected) return;
  const bytes = await page.arrayBuffer();
  if (size && size !== bytes.byteLength) return ask("no-cache");
  const html = new TextDecoder(document.characterSet).decode(bytes);
  const root = new DOMParser().parseFromString(html, "text/html").documentElement;
  return Object.assign(root, { tag: opaque(page.headers.get("etag")) });
};

// The response that this page was made of, if it is cached.
let base = ask("force-cache", load?.decodedBodySize).catch(() => {});

const look = async () => {
  const version = wanted;
  const tell = (name) =>
    document.dispatchEvent(new CustomEvent("microcache:" + name, { cancelable: true, detail: { url, version } }));
  try {
    // The page may have been made of the current version.
    const known = await base;
    const fresh = !lost && tag && tag === known?.tag ? known : await ask("no-cache");
    const old = known || fresh;
    if (fresh && old.outerHTML !== fresh.outerHTML && tell("before-update")) {
      update(old, fresh, document.documentElement);
      base = fresh;
      tell("update");
    }
    shown = version;
  } catch {}
  busy = 0;
};

const soon = () => away() || (busy = busy || setTimeout(look, Math.random() * 200));

ears.onmessage = ({ data: { event, url: about, version, etag } }) => {
  lost = !event;
  if (about !== url) return;
  if (event !== "page") return ears.close(), leave();
  tag = opaque(etag);
  if (shown !== (wanted = version)) soon();
};

const open = (query) => {
  source?.close();
  opened = query;
  if (!query) return;
  source = new EventSource("/.well-known/microcache/watch?" + query);
  const tell = ({ data }) => mouth.postMessage(JSON.parse(data));
  source.addEventListener("page", tell);
  source.addEventListener("unwatchable", tell);
  source.onerror = ({ target }) => {
    if (target.readyState < 2) return;
    mouth.postMessage({});
    setTimeout(() => opened === query && open(query), 60000);
  };
};

// With Web Locks, one tab subscribes to the pages of all tabs.
const check = async () => {
  const names = (await navigator.locks.query()).held.map((it) => it.name);
  const query = names.filter((it) => it.startsWith("microcache&")).join("&");
  if (leader && opened !== query) open(query);
};

const lead = async (steal) => {
  try {
    await navigator.locks.request("microcache", { steal }, () => new Promise(check, (leader = true)));
  } catch {
    open();
    lead((leader = false));
  }
};

// Without Web Locks every visible tab subscribes: HTTP/1 has six connections.
const alone = () => open(!document.hidden && lock);

const join = async () => {
  try {
    await navigator.locks.request(lock, { mode: "shared" }, () => {
      lead(!document.hidden);
      addEventListener("visibilitychange", () => document.hidden || leader || lead(true));
      return new Promise((done) => (leave = done));
    });
  } catch {
    leave = () => open(removeEventListener("visibilitychange", alone));
    addEventListener("visibilitychange", alone);
    alone();
  }
};
join();

setInterval(() => {
  if (leader) check();
  if (!document.hidden && (lost || wanted !== shown)) soon();
}, 5000);
