// The dashboard: what the server tells each second, and a page of its sessions.

import { Chart } from "./chart.js";
import { tellFilms } from "./films.js";
import { tellNodes } from "./nodes.js";
import { bits, bytes, load, milliseconds, percent, quantile, rates } from "./figures.js";

const LINES = 200;
const PAGE = 200;
const SESSIONS_EVERY_MS = 2000;
const SAMPLE_EVERY_S = 5;
const AGAIN_MS = 3000;

const of = (id) => document.getElementById(id);
const state = of("state");
let before;

// Lateness beyond a second is one here: the scale is for what is short.
const late = (ns) => Math.min(ns ?? 0, 1e9);

// Each with what it is now, and what it is of a sample of the hour.
const chart = (title, write) => new Chart(of("charts"), title, write);
const charts = [
  [chart("Sessions", (it) => String(it)), (now) => now.sessions.now, (it) => it.sessions],
  [chart("Sent by RTP", bits), (_, of) => of.rtp_bps + of.channels_bps, (it) => it.rtp_bps],
  [chart("Sent by HTTP and FTP", bits), (_, of) => of.http_bps, (it) => it.http_bps],
  [chart("Late, 99.9 %", milliseconds), (_, of) => late(of.late_ns), (it) => late(it.late_ns)],
  [chart("Load of the busiest processor", percent), load, (it) => it.load],
  [chart("HTTP requests a second", (it) => it.toFixed(0)),
    (_, of) => of.grown((it) => (it.downloads?.http_answers ?? []).reduce((a, b) => a + b, 0)),
    (it) => it.requests_hz],
];

// Pairs of a name and what it is, changed in place, so that nobody who reads is thrown out.
function figures(list, pairs) {
  pairs.forEach(([name, value], at) => {
    let pair = list.children[at];
    if (!pair) {
      pair = document.createElement("div");
      pair.append(document.createElement("dt"), document.createElement("dd"));
      list.append(pair);
    }
    const [term, told] = pair.children;
    if (term.textContent !== name) {
      term.textContent = name;
    }
    if (told.textContent !== value) {
      told.textContent = value;
    }
  });
  while (list.children.length > pairs.length) {
    list.lastChild.remove();
  }
}

function rows(body, table) {
  table.forEach((cells, at) => {
    const row = body.rows[at] ?? body.insertRow();
    cells.forEach((cell, column) => {
      const place = row.cells[column] ?? row.insertCell();
      if (place.textContent !== cell) {
        place.textContent = cell;
      }
    });
  });
  while (body.rows.length > table.length) {
    body.deleteRow(-1);
  }
}

// Why requests were refused, in words; what has none is told by its name.
const REASONS = {
  challenged: "asked for a password", stale: "password: asked again", wrong: "wrong password",
  slowed: "too many wrong passwords", forbidden: "may not do that",
  unanswered: "nobody could say in time",
};

function refusals({ sessions, downloads, users, tls, hls }) {
  const of = (name) => (REASONS[name] ?? name.replaceAll("_", " "));
  return [
    ["sessions: processors busy, or no room (453)", sessions.refused],
    ["downloads: too many", downloads?.refused],
    ...Object.entries(users).filter(([name]) => name !== "allowed")
      .map(([name, value]) => [`users: ${of(name)}`, value]),
    ["TLS: too many handshakes", tls?.refused], ["TLS: handshakes failed", tls?.failed],
    ["HLS: too many wait (503)", hls?.waits_refused],
    ["HLS: nothing came in time (503)", hls?.waits_late],
  ].filter(([, value]) => typeof value === "number").map(([why, value]) => [why, String(value)]);
}

function tellHls(status, all, by) {
  rows(of("hls-rows"), all.map((it) => [it.path, `${it.window_s.toFixed(0)} s`,
    String(it.segments), String(it.parts), bytes(it.bytes), bytes(it.stored_bytes),
    String(it.waiting), String(it.refused)]));
  const { hls } = status;
  const a_second = (name) => by.grown((it) => it.hls?.[name] ?? 0).toFixed(1);
  figures(of("hls-figures"), hls ? [
    ["channels", String(hls.channels)], ["in memory", bytes(hls.kept_bytes)],
    ["on disk", bytes(hls.stored_bytes ?? 0)], ["sent from memory", bytes(hls.sent_bytes ?? 0)],
    ["segments that could not be stored", String(hls.stores_failed ?? 0)],
    ["playlists and manifests a second", a_second("playlists")],
    ["segments and parts a second", a_second("media")],
    ["reloads that wait", String(hls.waiting)], ["reloads that have waited", String(hls.waits)],
    ["players that left while they waited", String(hls.waits_left)],
  ] : []);
}

function told(status, by) {
  const { cache, downloads, sessions } = status;
  const playing = status.engines.reduce((all, it) => all + it.playing, 0);
  figures(of("figures"), [
    ["sessions", String(sessions.now)], ["streams play", String(playing)],
    ["sent by RTP", bits(by.rtp_bps + by.channels_bps)], ["by HTTP and FTP", bits(by.http_bps)],
    ["late (99.9 %)", milliseconds(by.late_ns)], ["load", percent(load(status))],
    ["connections", String(sessions.connections + (downloads?.http_connections ?? 0))],
    ["memory", bytes(status.process.resident_bytes)],
  ]);
  rows(of("engines"), status.engines.map((it, at) => {
    const last = before?.engines[at] ?? it;
    const bursts = it.lateness.buckets.reduce((all, [, count]) => all + count, 0);
    const crossings = it.batches.buckets.reduce((all, [, count]) => all + count, 0);
    return [String(it.core), it.path, percent(it.admission.load_measured),
      `${it.playing} of ${it.streams}`, bits((8 * (it.bytes - last.bytes)) / by.seconds),
      milliseconds(quantile(by.lateness[at], 0.999)), `${it.admission.train_ns} ns`,
      crossings > 0 ? (bursts / crossings).toFixed(1) : "-", String(it.in_flight),
      String(it.shed)];
  }));
  const channels = new Map(before?.channels.map((it) => [it.name, it]));
  rows(of("channel-rows"), status.channels.map((it) => {
    const last = channels.get(it.name) ?? it;
    const rate = (now, then) => bits((8 * Math.max(now - then, 0)) / by.seconds);
    return [it.name, it.input, it.state, rate(it.received.bytes, last.received.bytes),
      String(it.received.missing), String(it.players), String(it.members),
      rate(it.sent.bytes, last.sent.bytes), it.publishers.active ?? "-",
      standby(it.publishers)];
  }));
  status.channels.forEach((it, at) => {
    const row = of("channel-rows").rows[at];
    const cell = row.cells[10] ?? row.insertCell();
    const name = it.input === "published" ? it.name : undefined;
    if (cell.firstChild?.dataset?.name === name) {
      return;
    }
    cell.replaceChildren(...(name === undefined ? [] : [dismissal(name)]));
  });
  tellCache(cache);
  figures(of("download-figures"), downloads ? [
    ["HTTP connections", String(downloads.http_connections ?? 0)],
    ["FTP connections", String(downloads.ftp_connections ?? 0)],
    ...Object.entries(downloads).filter(([, value]) => typeof value === "number")
      .filter(([name]) => !name.endsWith("_connections"))
      .map(downloadFigure),
  ] : [["none are served", ""]]);
  figures(of("refusal-figures"), refusals(status));
}

// What downloads count, in words; what has none is told by its name.
const COUNTS = {
  active: "transfers now", bytes: "sent of files", full: "transfers that found no room to send",
  steps: "steps of transfers", cold: "steps that waited for a disk",
  segments_kept_bytes: "segments kept",
};

function downloadFigure([name, value]) {
  const told = COUNTS[name] ?? name.replaceAll("_", " ");
  return [told, name.endsWith("bytes") ? bytes(value) : String(value)];
}

function tellRefused(all) {
  const now_s = Date.now() / 1000;
  const ago = (at_s) => {
    const s = Math.max(Math.round(now_s - at_s), 0);
    return s < 120 ? `${s} s ago` : `${Math.round(s / 60)} min ago`;
  };
  of("refused-none").hidden = all.length > 0;
  rows(of("refused-rows"), all.map((it) =>
    [it.client, it.what, it.why, String(it.times), ago(it.at_s)]));
}

// How much of the cache is ready, and how much of that is in use.
function tellCache(cache) {
  const map = of("cache-map");
  if (!cache) {
    map.hidden = true;
    figures(of("cache-figures"), [["no files are served", ""]]);
    return;
  }
  const all = Math.max(cache.bytes, 1);
  const used = cache.chunks_in_use * cache.chunk_bytes;
  const svg = map.firstElementChild ?? map.appendChild(
    document.createElementNS("http://www.w3.org/2000/svg", "svg"));
  svg.setAttribute("viewBox", "0 0 100 10");
  svg.setAttribute("preserveAspectRatio", "none");
  ["ready", "used"].forEach((name, at) => {
    const part = svg.children[at] ?? svg.appendChild(
      document.createElementNS("http://www.w3.org/2000/svg", "rect"));
    part.setAttribute("class", name);
    part.setAttribute("height", "10");
    part.setAttribute("width", String((100 * (at === 0 ? cache.bytes_ready : used)) / all));
  });
  const hits = cache.chunks_read > 0 ? 1 - cache.chunks_built / cache.chunks_read : 0;
  const text = `${bytes(used)} in use of ${bytes(cache.bytes_ready)}`;
  map.setAttribute("aria-label", `Cache: ${text}`);
  figures(of("cache-figures"), [
    ["size", bytes(cache.bytes)], ["ready", bytes(cache.bytes_ready)], ["in use", bytes(used)],
    ["hits", percent(Math.max(hits, 0))], ["found it full", String(cache.full)],
    ["read from files", bytes(cache.bytes_read)],
  ]);
}

function log(lines) {
  const place = of("lines");
  const isAtEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 20;
  lines.forEach(({ text }) => place.append(`${text}\n`));
  while (place.childNodes.length > LINES) {
    place.firstChild.remove();
  }
  if (isAtEnd) {
    place.scrollTop = place.scrollHeight;
  }
}

let [hasCache, isNode] = [false, false];
let [lastLine, lastSample] = [0, 0];
function hear({ data }) {
  const news = JSON.parse(data);
  const { status } = news;
  clearTimeout(lost);
  lost = undefined;
  if (/onnect/.test(state.textContent)) {
    state.textContent = "";
  }
  of("version").textContent = status.version;
  const isSame = before && before.process.started_s === status.process.started_s;
  if (!isSame) {
    [before, lastLine, lastSample] = [undefined, 0, 0];
    charts.forEach(([it]) => it.forget());
  }
  // A connection that was made anew tells again what was told.
  const lines = news.log.filter(({ number }) => number > lastLine);
  lastLine = lines.length > 0 ? lines[lines.length - 1].number : lastLine;
  log(lines);
  const by = rates(before ?? status, status);
  // A server without files has none, and says 404.
  hasCache = Boolean(status.cache);
  isNode = Boolean(status.cluster);
  told(status, by);
  tellHls(status, news.hls ?? [], by);
  const samples = (news.hour ?? []).filter(({ number }) => number > lastSample);
  lastSample = samples.length > 0 ? samples[samples.length - 1].number : lastSample;
  charts.forEach(([it, value, of]) => {
    it.add(samples.map(of));
    it.draw(value(status, by));
  });
  const minutes = Math.floor((charts[0][0].samples.length * SAMPLE_EVERY_S) / 60);
  of("covered").textContent = minutes >= 60 ? "" :
    `The server runs since ${minutes === 1 ? "a minute" : `${minutes} minutes`}.`;
  tellRefused(news.refused ?? []);
  before = status;
}

// A connection lasts a minute here, and is made anew at once.
let lost;
function connect() {
  const events = new EventSource("admin/events");
  events.addEventListener("message", hear);
  events.addEventListener("error", () => {
    lost ??= setTimeout(() => { state.textContent = "Not connected; trying again"; }, AGAIN_MS);
    // Where the answer is another one, a browser does not ask again by itself.
    if (events.readyState === EventSource.CLOSED) {
      setTimeout(connect, AGAIN_MS);
    }
  });
}

let first = 0;

async function end(id, button) {
  let isEnded = false;
  button.disabled = true;
  try {
    const answer = await fetch(`admin/sessions/${id}/end`, {
      method: "POST", headers: { "X-Onrush": "1" },
    });
    isEnded = answer.ok;
    state.textContent = isEnded ? "" : (await answer.text()).trim();
  } finally {
    button.disabled = isEnded;
  }
  await sessions();
}

// Asks for the configuration file to be read again, and shows what came of it.
async function reload() {
  const [button, place] = [of("reload"), of("reloaded")];
  button.disabled = true;
  place.textContent = "Reading it";
  try {
    const answer = await fetch("admin/reload", { method: "POST", headers: { "X-Onrush": "1" } });
    const text = await answer.text();
    let said;
    try {
      said = JSON.parse(text);
    } catch {
      // Who may not is told so in plain text.
      said = { error: text.trim() };
    }
    const { changed, error } = said;
    const all = changed?.length > 0 ? `Changed: ${changed.join(", ")}` : "Nothing has changed";
    place.textContent = answer.ok ? all : `Not reloaded: ${error}`;
  } catch (error) {
    place.textContent = `Not reloaded: ${error.message}`;
  } finally {
    button.disabled = false;
  }
}

// Who stands by, since when, and how often it has taken over.
function standby(of) {
  const since = of.standby ? `${of.standby}, for ${Math.round(of.standby_ns / 1e9)} s` : "-";
  return of.switches > 0 ? `${since}; switched ${of.switches}×` : since;
}

// A button that lets the publisher of a channel go.
function dismissal(name) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.name = name;
  button.textContent = "End";
  button.setAttribute("aria-label", `End the publisher of ${name}`);
  const path = name.split("/").map(encodeURIComponent).join("/");
  const ask = async () => {
    const answer = await fetch(`admin/publishers/${path}`, {
      method: "POST", headers: { "X-Onrush": "1" },
    });
    state.textContent = answer.ok ? "" : (await answer.text()).trim();
  };
  button.addEventListener("click", () => {
    ask().catch((error) => { state.textContent = error.message; });
  });
  return button;
}

function sessionRows({ all, found, sessions: shown }) {
  const lost = (it) => (it.lost === null ? "-" : `${it.lost} (${percent(it.lost_ratio)})`);
  const at = (it) => (it.position_s === null ? "live" : `${Math.floor(it.position_s)} s`);
  const body = of("session-rows");
  const buttons = new Map([...body.querySelectorAll("button")].map((it) => [it.dataset.id, it]));
  const focused = document.activeElement?.dataset?.id;
  rows(body, shown.map((it) => [it.client, it.film, it.transport, it.state, at(it), lost(it),
    it.jitter_ms === null ? "-" : `${it.jitter_ms.toFixed(1)} ms`]));
  shown.forEach((it, number) => {
    const row = body.rows[number];
    const cell = row.cells[7] ?? row.insertCell();
    if (cell.firstChild?.dataset?.id === it.id) {
      return;
    }
    let button = buttons.get(it.id);
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.dataset.id = it.id;
      button.textContent = "End";
      button.setAttribute("aria-label", `End the session of ${it.client} with ${it.film}`);
      button.addEventListener("click", () => {
        end(it.id, button).catch((error) => { state.textContent = error.message; });
      });
    }
    cell.replaceChildren(button);
    if (focused === it.id) {
      button.focus();
    }
  });
  const last = Math.min(first + shown.length, found);
  const range = found > 0 ? `${first + 1} to ${last} of ${found}` : "none";
  of("shown").textContent = found < all ? `${range} found, ${all} in all` : range;
  of("back").disabled = first === 0;
  of("on").disabled = first + PAGE >= found;
}

async function sessions() {
  const query = new URLSearchParams({ find: of("find").value, first: String(first) });
  const answer = await fetch(`admin/sessions?${query}`);
  if (!answer.ok) {
    return;
  }
  const told = await answer.json();
  if (first > 0 && first >= told.found) {
    // Those of this page have gone: there is a last page before it.
    first = Math.max(Math.ceil(told.found / PAGE) - 1, 0) * PAGE;
    await sessions();
    return;
  }
  sessionRows(told);
}

async function films() {
  const answer = await fetch("admin/cache");
  if (answer.ok) {
    const count = tellFilms(of("film-rows"), await answer.json());
    of("films-none").hidden = count > 0;
  }
}

async function nodes() {
  const answer = await fetch("admin/cluster");
  if (answer.ok) {
    tellNodes(await answer.json(), rows, of);
  }
}

async function always() {
  for (;;) {
    if (!document.hidden) {
      // A server that is away comes back; the events say so.
      await sessions().catch(() => undefined);
      if (hasCache) {
        await films().catch(() => undefined);
      }
      if (isNode) {
        await nodes().catch(() => undefined);
      }
    }
    await new Promise((done) => setTimeout(done, SESSIONS_EVERY_MS));
  }
}

function turn(to) {
  first = Math.max(to, 0);
  sessions().catch(() => undefined);
}

connect();
of("reload").addEventListener("click", reload);
of("find").addEventListener("input", () => turn(0));
of("back").addEventListener("click", () => turn(first - PAGE));
of("on").addEventListener("click", () => turn(first + PAGE));
always();
