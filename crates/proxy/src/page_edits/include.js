// Completes pages in the browser: see docs/edge.md.

const most = 3;
const policy = window.trustedTypes?.createPolicy("microcache", { createHTML: (html) => html });

// Responses by URL: elements with the same one share it.
const responses = new Map();

const get = (url, accept) => {
  const wanted = new URL(url, location);
  if (wanted.origin !== location.origin) return Promise.reject(new Error("another origin"));
  return fetch(wanted, { credentials: "same-origin", mode: "same-origin", redirect: "error", headers: { Accept: accept } });
};

const fragment = (url) => {
  if (!responses.has(url)) {
    const text = get(url, "text/html").then(async (it) => {
      if (!it.ok || !/^text\/html\b/i.test(it.headers.get("content-type"))) throw new Error(it.status);
      return { html: await it.text(), isGuarded: it.headers.has("microcache-includes") };
    });
    responses.set(url, text);
  }
  return responses.get(url);
};

class Include extends HTMLElement {
  async connectedCallback() {
    let depth = 0;
    for (let up = this; up; up = up.parentElement?.closest("microcache-include")) depth++;
    if (this.filled || depth > most) return;
    this.filled = true;
    this.style.display = "contents";
    let found;
    for (const url of [this.getAttribute("src"), this.getAttribute("alt")]) {
      if (url) found ??= await fragment(url).catch(() => undefined);
    }
    if (found) {
      // Scripts in it do not run, and only elements that were checked are filled.
      const template = document.createElement("template");
      template.innerHTML = policy ? policy.createHTML(found.html) : found.html;
      const inner = found.isGuarded ? [] : template.content.querySelectorAll("microcache-include");
      for (const it of inner) it.replaceWith(...it.childNodes);
      this.replaceChildren(template.content);
    }
    this.dispatchEvent(new CustomEvent("microcache:include", { bubbles: true, detail: { ok: !!found } }));
  }
}
// Pages that are completed by the server have none of these elements, unless a stranger has written them.
if (!import.meta.url.endsWith("?tokens")) customElements.define("microcache-include", Include);

const own = document.querySelector("script[data-microcache-tokens]");
const tokens = JSON.parse(own?.dataset.microcacheTokens || "[]");
const key = (token) => (token.variable || token.attribute).split(".").pop();
let values;

const source = async (url) => {
  const response = await get(url, "text/html, application/json, text/plain");
  if (!response.ok) throw new Error(response.status);
  return [response.headers.get("content-type"), await response.text()];
};

const read = (token, [type, text]) => {
  if (/json/i.test(type)) {
    const value = JSON.parse(text);
    return typeof value === "string" ? value : (value[key(token)] ?? value.token);
  }
  if (!/^text\/html\b/i.test(type)) return text.trim();
  const page = new DOMParser().parseFromString(text, "text/html");
  if (token.select) return page.querySelector(token.select)?.getAttribute(token.attribute);
  const value = new RegExp(`\\b${key(token)}["']?\\s*[:=]\\s*["']([^"'\\\\]*)["']`);
  return [...page.scripts].map((it) => it.text.match(value)?.[1]).find((it) => it);
};

// Puts a value where its token belongs.
const put = (token, value) => {
  if (token.select) {
    for (const it of document.querySelectorAll(token.select)) {
      if (!it.hasAttribute(token.attribute)) continue;
      it.setAttribute(token.attribute, value);
      if (token.attribute === "value") it.value = value;
    }
    return;
  }
  const path = token.variable.split(".");
  const last = path.pop();
  const object = path.reduce((it, name) => it?.[name], window);
  if (object && last in object) object[last] = value;
  for (const it of document.querySelectorAll("script[type*=json]")) {
    it.textContent = it.textContent.replace(new RegExp(`("${last}"\\s*:\\s*)""`), (_, name) => name + JSON.stringify(value));
  }
};

// Fetches the visitor's tokens, one after the other: the first response may begin a session.
const fetched = async () => {
  const sources = new Map();
  for (const { from } of tokens) if (!sources.has(from)) sources.set(from, await source(from));
  return tokens.map((token) => {
    const value = read(token, sources.get(token.from));
    if (typeof value !== "string") throw new Error("no token in " + token.from);
    return value;
  });
};

const fill = async () => {
  values ??= fetched();
  try {
    (await values).forEach((value, at) => put(tokens[at], value));
    return true;
  } catch {
    values = undefined;
    return false;
  }
};

// What sends without a form: rails-ujs, Turbo, and scripts of buttons.
const sender = (element) => !(element.form || element.closest?.("form")) && element.closest?.("button, [data-method], [data-remote], [data-turbo-method]");

const needs = (element) => {
  const form = element.form || element.closest?.("form");
  if (!form) return sender(element);
  const isInside = (token) => token.select && form.querySelector(token.select);
  return (form.getAttribute("method") || "get").toLowerCase() !== "get" || tokens.some(isInside);
};

// Scripts that navigate put another page's elements in, without tokens.
const isEmpty = ({ select, attribute }) => select && [...document.querySelectorAll(select)].some((it) => it.getAttribute(attribute) === "");

if (tokens.length) {
  let done = false;
  let passing;
  const isReady = () => done && !tokens.some(isEmpty);
  const begin = async (event) => {
    if (needs(event.target) && !isReady()) done = await fill();
  };
  // Has an event wait until the tokens are there.
  const holds = (event, target, again) => {
    if (target === passing || isReady()) return false;
    event.preventDefault();
    event.stopImmediatePropagation();
    fill().then((it) => {
      done = it;
      // Without a token the application answers, too.
      passing = target;
      again();
      passing = undefined;
    });
    return true;
  };
  addEventListener("focusin", begin);
  addEventListener("pointerdown", begin);
  if (document.activeElement !== document.body) begin({ target: document.activeElement });
  addEventListener(
    "click",
    (event) => {
      const button = sender(event.target);
      if (button && !event.ctrlKey && !event.metaKey && !event.shiftKey) holds(event, button, () => button.click());
    },
    true,
  );
  addEventListener(
    "submit",
    (event) => {
      const form = event.target;
      if (!needs(form) || holds(event, form, () => form.requestSubmit(event.submitter))) return;
      // The response may begin another session, and this page may stay.
      done = false;
      values = undefined;
    },
    true,
  );
}
