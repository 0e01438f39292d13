// Keeps a page as its url is answered now: <script type="module" src="/.well-known/microcache/live.js"></script>

const here = () => location.pathname + location.search;
const url = here();
const mine = "microcache&url=" + encodeURIComponent(url);
const { locks } = navigator;
const channel = new BroadcastChannel("microcache");
let base, wanted, shown, busy, source, asked, leave, isLeader, isLost, isOver;

// For each node its like in a list: an equal one, or one of its kind that no other is equal to.
const match = (nodes, list) => {
  const found = new Map();
  let rest = [...list];
  [...nodes].forEach((node, i, all) => {
    const near = rest.slice(0, 50);
    const kind = (it) => it.nodeName + it.id + it.name;
    const isFree = (it) => kind(it) === kind(node) && !all.slice(i, i + 50).some((other) => other.isEqualNode(it));
    const like = near.find((it) => it.isEqualNode(node)) || near.find(isFree);
    if (!like) return;
    found.set(node, like);
    rest = rest.slice(rest.indexOf(like) + 1);
  });
  return found;
};

// What somebody has typed into stays.
const typed = new Set();
addEventListener("input", ({ target }) => typed.add(target), true);

// Changes in the document what differs between two answers. What scripts and people did elsewhere stays.
// New scripts do not run.
const patch = (old, fresh, live) => {
  if (old.isEqualNode(fresh) || typed.has(live)) return;
  if (!old.attributes) return void (live.data = fresh.data);
  for (const { name } of [...old.attributes, ...fresh.attributes]) {
    const now = fresh.getAttributeNode(name);
    if (!now) live.removeAttribute(name);
    else if (now.value !== old.getAttribute(name)) live.setAttributeNode(now.cloneNode());
  }
  const twins = match(old.childNodes, live.childNodes);
  const kept = match(fresh.childNodes, old.childNodes);
  let last;
  for (const node of fresh.childNodes) {
    const before = kept.get(node);
    let twin = twins.get(before);
    if (twin) patch(before, node, twin);
    else if (!before) {
      twin = document.importNode(node, true);
      last ? last.after(twin) : live.prepend(twin);
    }
    twins.delete(before);
    last = twin || last;
  }
  twins.forEach((twin) => twin.remove());
};

const ask = async (cache) => {
  const answer = await fetch(location.origin + url, { cache, headers: { accept: "text/html" } });
  if (!answer.ok || answer.redirected) throw answer;
  const html = new TextDecoder(document.characterSet).decode(await answer.arrayBuffer());
  return new DOMParser().parseFromString(html, "text/html").documentElement;
};

const look = async () => {
  const version = wanted;
  const tell = (name) =>
    document.dispatchEvent(new CustomEvent("microcache:" + name, { cancelable: true, detail: { url, version } }));
  try {
    const fresh = await ask("no-cache");
    if (here() === url && !base.isEqualNode(fresh) && tell("before-update")) {
      const { activeElement } = document;
      const again = (it) => (it.isConnected ? it : document.getElementById(it.id));
      patch(base, fresh, document.documentElement);
      base = fresh;
      for (const it of typed) again(it)?.replaceWith(it);
      if (activeElement !== document.activeElement) again(activeElement)?.focus({ preventScroll: true });
      tell("update");
    }
    shown = version;
  } catch {}
  busy = 0;
};

const soon = () => (busy = busy || setTimeout(look, Math.random() * 200));

const hear = ({ data: { event, url: about, version } }) => {
  isLost = event === "lost";
  if (about !== url) return;
  if (event === "page" && shown !== (wanted = version)) soon();
  if (event === "unwatchable") leave((isOver = true));
};

const open = (parameters) => {
  const tell = (data) => {
    hear({ data });
    channel.postMessage(data);
  };
  source?.close();
  asked = parameters;
  source = new EventSource(location.origin + "/.well-known/microcache/watch?" + asked);
  for (const name of ["page", "unwatchable"]) source.addEventListener(name, ({ data }) => tell(JSON.parse(data)));
  source.onerror = ({ target }) => {
    if (target.readyState < 2) return;
    tell({ event: "lost" });
    setTimeout(() => asked === parameters && open(asked), 60000);
  };
};

// The tab that was looked at last has one connection for all: each has a lock that says its url.
const check = async () => {
  const names = (await locks.query()).held.map((it) => it.name).filter((name) => name.startsWith("microcache&"));
  const parameters = [...new Set(names.sort())].join("&");
  if (isLeader && asked !== parameters) open(parameters);
};

const lead = (steal) =>
  locks
    .request("microcache", { steal }, () => {
      isLeader = true;
      return new Promise(check);
    })
    .catch(() => {
      source?.close();
      lead((isLeader = asked = false));
    });

const join = () => {
  lead(!document.hidden);
  document.addEventListener("visibilitychange", () => document.hidden || isLeader || lead(true));
  return new Promise((done) => (leave = done));
};

ask("force-cache")
  .then((it) => {
    base = it;
    if (locks) {
      channel.onmessage = hear;
      locks.request(mine, { mode: "shared" }, join);
    } else {
      open(mine);
      leave = () => source.close();
    }
    setInterval(() => {
      if (isLeader) check();
      if (!document.hidden && !isOver && (isLost || wanted !== shown)) soon();
    }, 5000 + Math.random() * 1000);
  })
  .catch(() => {});
