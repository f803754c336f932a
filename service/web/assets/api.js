// The REST API with the bearer token of this browser tab. The token lives in sessionStorage and nowhere else.

const KEY = "bace-token";

export class Refusal extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? problem?.title ?? `The server answered ${status}.`);
    this.status = status;
    this.problem = problem ?? {};
  }
}

export const token = () => sessionStorage.getItem(KEY);
export const setToken = (value) => sessionStorage.setItem(KEY, value);
export const forgetToken = () => sessionStorage.removeItem(KEY);

// An address with #token=… (as `bace up` prints it) hands the token over; it is taken out of the address at once.
export function takeTokenFromAddress() {
  const found = /^#token=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!found) return;
  setToken(found[1]);
  history.replaceState(null, "", location.pathname + location.search);
}

export async function get(path, { signal, optional = false } = {}) {
  const answer = await fetch(path, { headers: headers(), signal, cache: "no-store" });
  if (optional && answer.status === 404) return null;
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

export async function post(path, document) {
  const answer = await fetch(path, {
    method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(document ?? {}),
  });
  if (!answer.ok) throw await refusal(answer);
  return answer.status === 204 ? null : answer.json();
}

// Every item of a list, page after page.
export async function pages(path, options) {
  const items = [];
  let cursor = null;
  do {
    const joint = path.includes("?") ? "&" : "?";
    const page = await get(cursor ? `${path}${joint}cursor=${encodeURIComponent(cursor)}` : path, options);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor);
  return items;
}

// Messages of a server-sent stream as {kind, id, data}. EventSource cannot carry a token, so the stream is read here.
export async function* stream(path, { signal, after = null }) {
  const given = { ...headers(), Accept: "text/event-stream" };
  if (after !== null) given["Last-Event-ID"] = String(after);
  const answer = await fetch(path, { headers: given, signal, cache: "no-store" });
  if (!answer.ok) throw await refusal(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text = (text + value).replaceAll("\r\n", "\n");
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const message = parse(block);
      if (message?.kind === "end") return;
      if (message?.kind === "error") throw new Refusal(message.data.status, message.data);
      if (message) yield message;
    }
  }
}

function parse(block) {
  const message = { kind: "message", id: null, data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const [name, value] = at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
    if (name === "event") message.kind = value;
    else if (name === "id") message.id = value;
    else if (name === "data") message.data += (message.data ? "\n" : "") + value;
  }
  return message.data ? { ...message, data: JSON.parse(message.data) } : null;
}

const headers = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

async function refusal(answer) {
  const text = await answer.text();
  try {
    return new Refusal(answer.status, JSON.parse(text));
  } catch {
    return new Refusal(answer.status, null);
  }
}
