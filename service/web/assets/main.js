// Boot: the token, the pages by their address, and the stream of events that keeps them true.

import * as api from "./api.js";
import { h, replace } from "./dom.js";
import * as events from "./events.js";
import * as job from "./job.js";
import * as jobs from "./jobs.js";
import { showLogin } from "./login.js";
import * as overview from "./overview.js";
import * as timeline from "./timeline.js";
import * as worlds from "./world.js";

const REFRESH_MS = 3000;
const PRICES_MS = 60_000;
const SETTLE_MS = 150;
const RECONNECT_MS = 2000;

const main = document.getElementById("main");
const live = document.getElementById("live");
const app = { world: worlds.emptyWorld(), page: null, session: null, reading: false, again: false, lastSeq: null };

function pageOf(hash) {
  const path = hash.replace(/^#/, "") || "/";
  const one = /^\/jobs\/([^/]+)$/.exec(path);
  if (one) return { tab: "#/jobs", mount: (element) => job.mount(element, decodeURIComponent(one[1])) };
  const module = { "/": overview, "/jobs": jobs, "/timeline": timeline, "/events": events }[path] ?? overview;
  return { tab: path in { "/jobs": 1, "/timeline": 1, "/events": 1 } ? `#${path}` : "#/", mount: module.mount };
}

function navigate() {
  if (!app.session) return;
  app.page?.destroy();
  replace(main);
  document.title = "bacepipe";
  const { tab, mount } = pageOf(location.hash);
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.getAttribute("href") === tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  app.page = mount(main);
  draw();
}

async function draw() {
  try {
    await app.page?.update(app.world);
  } catch (error) {
    failed(error);
  }
}

async function refresh() {
  if (!app.session) return;
  if (app.reading) { app.again = true; return; }
  app.reading = true;
  const session = app.session;
  try {
    await worlds.read(app.world, { signal: session.signal });
    shown("live", "live");
    await draw();
  } catch (error) {
    failed(error);
  } finally {
    app.reading = false;
    if (app.again) { app.again = false; soon(); }
  }
}

let settling = null;
function soon() {
  settling ??= setTimeout(() => { settling = null; refresh(); }, SETTLE_MS);
}

async function follow(session) {
  while (!session.signal.aborted) {
    try {
      for await (const message of api.stream("/v1/events", { signal: session.signal, after: app.lastSeq })) {
        if (message.data?.seq === undefined) continue;
        app.lastSeq = message.data.seq;
        worlds.addEvent(app.world, message.data);
        soon();
      }
    } catch (error) {
      failed(error);
    }
    await new Promise((resolve) => setTimeout(resolve, RECONNECT_MS));
  }
}

function failed(error) {
  if (error.name === "AbortError" || !app.session) return;
  if (error.status === 401 || error.status === 403) { leave(error.message); return; }
  shown("lost", error.status ? error.message : "the server does not answer");
}

function shown(state, text) {
  live.dataset.state = state;
  live.textContent = text;
}

async function enter() {
  const session = new AbortController();
  app.session = session;
  for (const id of ["tabs", "live", "leave"]) document.getElementById(id).hidden = false;
  shown("waiting", "connecting");
  replace(main, h("p", { class: "empty" }, "Reading …"));
  try {
    await worlds.read(app.world, { signal: session.signal });
    await worlds.readPrices(app.world, { signal: session.signal });
  } catch (error) {
    failed(error);
    if (!app.session) return;
  }
  navigate();
  const timers = [
    setInterval(refresh, REFRESH_MS),
    setInterval(() => worlds.readPrices(app.world, { signal: session.signal }).catch(failed), PRICES_MS),
  ];
  session.signal.addEventListener("abort", () => timers.forEach(clearInterval));
  follow(session);
}

function leave(message = "") {
  app.session?.abort();
  app.page?.destroy();
  Object.assign(app, { session: null, page: null, world: worlds.emptyWorld(), lastSeq: null });
  api.forgetToken();
  for (const id of ["tabs", "live", "leave"]) document.getElementById(id).hidden = true;
  showLogin(main, { message, entered: enter });
}

document.getElementById("theme").addEventListener("click", () => window.toggleTheme());
document.getElementById("leave").addEventListener("click", () => leave());
main.addEventListener("click", (event) => {
  const row = event.target.closest("tr[data-go]");
  if (row && !event.target.closest("a")) location.hash = row.dataset.go;
});
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) { api.takeTokenFromAddress(); leaveQuietly(); return; }
  navigate();
});

function leaveQuietly() {
  app.session?.abort();
  enter();
}

api.takeTokenFromAddress();
if (api.token()) enter(); else showLogin(main, { message: "", entered: enter });
