// The live numbers, and every other request to the interface. With a secret, requests carry it, which an
// EventSource cannot: so the events are read by hand.

const KEPT = "microcache-secret";
/** Without an event for so long, the connection is taken for lost. */
const SILENCE = 5000;
const LONGEST_PAUSE = 10000;

let secret = sessionStorage.getItem(KEPT);

export const hasSecret = () => secret !== null;

export function keepSecret(value) {
  secret = value;
  if (value === null) sessionStorage.removeItem(KEPT);
  else sessionStorage.setItem(KEPT, value);
}

function fields(more = {}) {
  return secret === null ? more : { ...more, Authorization: `Bearer ${secret}` };
}

/** An answer of the interface. What it refuses is thrown, with its words. */
export async function ask(path, body) {
  const options = { headers: fields(), cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.headers = fields({ "Content-Type": "application/json" });
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("No response from the server.");
  }
  const told = await response.json().catch(() => null);
  if (!response.ok) throw refusal(response.status, told);
  return told;
}

function refusal(status, told) {
  const words = told?.detail ? `${told.detail} – ${told.hint}` : `The server answered ${status}.`;
  const error = new Error(words);
  error.status = status;
  error.field = told?.field;
  return error;
}

/**
 * Watches for as long as the page is seen. `on` has: history, stats, live, lost (words, seconds until
 * the next try), secret (whether the one that was sent is wrong).
 */
export class Stream {
  constructor(on) {
    this.on = on;
    this.failures = 0;
    this.stop = null;
    this.timer = null;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.close();
      else this.open();
    });
  }

  close() {
    clearTimeout(this.timer);
    this.stop?.abort();
    this.stop = null;
  }

  async open() {
    this.close();
    const stop = new AbortController();
    this.stop = stop;
    let words = "Connection lost";
    try {
      await this.read(stop);
    } catch (error) {
      if (this.stop !== stop) return;
      if (error.status === 401) {
        const sent = hasSecret();
        keepSecret(null);
        this.on.secret(sent);
        return;
      }
      if (error.status) words = error.message;
    }
    if (this.stop !== stop) return;
    this.failures += 1;
    this.again(words, Math.min(1000 * 2 ** (this.failures - 1), LONGEST_PAUSE));
  }

  again(words, pause) {
    const seconds = Math.round(pause / 1000);
    this.on.lost(words, seconds);
    this.timer = setTimeout(() => (seconds > 1 ? this.again(words, pause - 1000) : this.open()), 1000);
  }

  async read(stop) {
    let silence = setTimeout(() => stop.abort(), SILENCE);
    try {
      const response = await fetch("/v1/stream", { headers: fields(), cache: "no-store", signal: stop.signal });
      if (!response.ok) throw refusal(response.status, await response.json().catch(() => null));
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE);
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) this.tell(event);
      }
    } catch (error) {
      // A silence is a loss; a page that is hidden has closed it itself.
      if (error.name === "AbortError" && this.stop !== stop) return;
      throw error;
    } finally {
      clearTimeout(silence);
    }
  }

  tell(text) {
    const event = {};
    for (const line of text.split("\n")) {
      const colon = line.indexOf(": ");
      event[line.slice(0, colon)] = line.slice(colon + 2);
    }
    this.failures = 0;
    this.on.live();
    this.on[event.event]?.(JSON.parse(event.data), Number(event.id));
  }
}
