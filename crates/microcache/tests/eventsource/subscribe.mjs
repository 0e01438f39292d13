// Subscribes by a client of event streams, says what comes as lines of JSON, and ends after so many events:
// node subscribe.mjs HUB COUNT TOKENS TOPIC... Each connection has the next of the tokens, which commas divide.
import { EventSource } from "eventsource";

const [hub, count, tokens, ...topics] = process.argv.slice(2);
const url = new URL(hub);
for (const topic of topics) url.searchParams.append("topic", topic);
const unused = tokens.split(",");
const says = what => console.log(JSON.stringify(what));
const withToken = (address, init) => {
  const token = unused.shift();
  const seen = init.headers["Last-Event-ID"] ?? null;
  return fetch(address, { ...init, headers: { ...init.headers, Authorization: `Bearer ${token}` } }).then(answer => {
    says({ status: answer.status, seen, after: answer.headers.get("Last-Event-ID") });
    return answer;
  });
};
const source = new EventSource(url, { fetch: withToken });
let left = Number(count);
const event = ({ type, data, lastEventId }) => {
  says({ type, data, id: lastEventId });
  left -= 1;
  if (left === 0) source.close();
};
source.addEventListener("message", event);
source.addEventListener("sold", event);
