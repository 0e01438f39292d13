// Looking up and purging. Nothing is purged that was not confirmed.

import { bytes, count, id, make, many, prose, say, span } from "./format.js";
import { ask } from "./stream.js";

const NAMES = {
  url: ["URL", "https://www.example.org/news?page=2", (name) => `the URL ${name}, with all its variants`],
  prefix: ["Prefix of URLs", "https://www.example.org/shop/", (name) => `all URLs that begin with ${name}`],
  glob: ["Pattern of URLs", "https://www.example.org/*/reviews", (name) => `all URLs that match ${name}`],
  host: ["Host", "www.example.org", (name) => `all URLs of the host ${name}`],
  tag: ["Tag", "product-17", (name) => `all responses with the tag ${name}`],
  all: ["", "", () => "all stored responses"],
};

/**
 * Resolves to whether it was confirmed; a question that another one replaced is never answered. The focus goes back to where it was.
 *
 * The event that a dialog closed may come late, when the next question is already open: it says nothing about that one.
 */
function confirmed(title, words, yes) {
  const dialog = id("confirm");
  say("confirm-title", title);
  say("confirm-words", words);
  say("confirm-yes", yes);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => dialog.open || resolve(dialog.returnValue === "yes");
  });
}

function answer(where, ...inside) {
  id(where).replaceChildren(make("div", { class: "answer" }, ...inside));
}

const failed = (where, error) => answer(where, make("p", { class: "wrong" }, error.message));

/** Asks whether that is meant, and purges. */
export async function purge(kind, name, soft) {
  const what = NAMES[kind][2](name);
  const words = soft
    ? `${what}: stale from now on, and served while it is revalidated.`
    : `${what}: removed now. The next visitor waits for the origin.`;
  const title = soft ? "Purge softly?" : "Purge?";
  if (!(await confirmed(title, words[0].toUpperCase() + words.slice(1), kind === "all" ? "Purge everything" : "Purge"))) return;
  try {
    const told = await ask("/v1/purges", { [kind]: kind === "all" ? true : name, soft });
    const parts = [make("p", {}, `Purged${soft ? " softly" : ""}: ${what}. It is in force.`)];
    const unwritten = told.purges.map((one) => one.persist_error).filter(Boolean);
    if (unwritten.length) parts.push(make("p", { class: "wrong" }, `In force on this server, but ${unwritten[0]}`));
    answer("purge-answer", ...parts);
  } catch (error) {
    failed("purge-answer", error);
  }
}

/** One stored response: its facts in a line, and what it varies on. */
function stored(variant) {
  const left = variant.ttl_seconds;
  const facts = [
    variant.tier,
    variant.state,
    `status ${variant.status}`,
    bytes(variant.size),
    `age ${span(variant.age_seconds)}`,
    left >= 0 ? `fresh for ${span(left)} more` : `stale for ${span(-left)}`,
    variant.source && `by ${variant.source}`,
    `${count(variant.hits)} ${many(variant.hits, "hit")}`,
    variant.tags?.length && `tags ${variant.tags.join(", ")}`,
    variant.hashed_tags && `${count(variant.hashed_tags)} tags without names`,
    variant.purged_by_every_tag && "purged by every tag",
  ];
  const varies = variant.varies_on?.map(({ name, value }) => `${name}: ${value ?? "not shown"}`).join(", ");
  return make("li", {}, facts.filter(Boolean).join(" · "), varies ? make("div", { class: "rfc" }, `for ${varies}`) : "");
}

/** Why, with the section of the RFC and what to change. */
function step({ message, reason, rfc, hint }) {
  const item = make("li", {}, make("b", {}, ...prose(message)), ": ", ...prose(reason), rfc ? make("span", { class: "rfc" }, ` (${rfc})`) : "");
  if (hint) item.append(make("div", {}, "To change it: ", ...prose(hint)));
  return item;
}

export async function lookUp(url) {
  try {
    const told = await ask(`/v1/explain?url=${encodeURIComponent(url)}`);
    const parts = [make("p", {}, make("b", {}, `${told.verdict}. `), ...prose(told.summary))];
    if (told.cache_status) parts.push(make("p", {}, make("code", {}, told.cache_status)));
    if (told.steps.length) parts.push(make("h3", {}, "Why"), make("ul", {}, ...told.steps.map(step)));
    const variants = told.stored.length;
    const title = variants ? `${count(variants)} stored ${many(variants, "response")}` : "No stored responses";
    parts.push(make("h3", {}, title), make("ul", {}, ...told.stored.map(stored)));
    answer("lookup-answer", ...parts);
  } catch (error) {
    failed("lookup-answer", error);
  }
}

/** Brings a form into view, filled, with the focus where the next key is meant. */
function bring(input, value) {
  input.value = value;
  input.scrollIntoView({ block: "center" });
  input.focus();
}

export function bringLookUp(url) {
  bring(id("lookup-url"), url);
  lookUp(url);
}

function chooseKind() {
  const [label, placeholder] = NAMES[id("purge-kind").value];
  const isNamed = label !== "";
  id("purge-named").hidden = !isNamed;
  id("purge-name").required = isNamed;
  id("purge-name").placeholder = placeholder;
  say("purge-name-label", label);
}

export function wireActions() {
  id("purge-kind").addEventListener("change", chooseKind);
  chooseKind();
  id("purge").addEventListener("submit", (event) => {
    event.preventDefault();
    purge(id("purge-kind").value, id("purge-name").value.trim(), id("purge-soft").checked);
  });
  id("lookup").addEventListener("submit", (event) => {
    event.preventDefault();
    lookUp(id("lookup-url").value.trim());
  });
}
