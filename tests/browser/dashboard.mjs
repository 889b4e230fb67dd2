// The dashboard: of a real server, in which a session is ended and the configuration reloaded, and of
// a synthetic one with 10 and with 10,000 sessions.

import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { WAIT_MS, accessible, assert, close, here, open, picture, run, until } from "./lib.mjs";

const SOURCES = join(here, "../../crates/server/src");
const TYPES = { html: "text/html", css: "text/css", js: "text/javascript", svg: "image/svg+xml" };
const PAGE = 200;

// Of the server whose address is given: what plays there is seen, found and ended.
async function ends(context) {
  const page = await open(context, "/admin");
  await until(page, "a session is shown", () =>
    /playing/.test(document.querySelector("#session-rows")?.textContent));
  const row = await page.$eval("#session-rows tr", (it) => it.innerText);
  assert(/127\.0\.0\.1\s+counting\.mp4\s+(udp|tcp)\s+playing/.test(row), row);
  assert(await page.$eval("#cluster", (it) => it.hidden), "it is of no cluster");
  await until(page, "its streams are counted", () =>
    /streams play/.test(document.querySelector("#figures").textContent) &&
    document.querySelector("#engines td:nth-child(4)")?.textContent.match(/^[1-9]/));
  await until(page, "what is sent is counted", () =>
    /bit\/s/.test(document.querySelector("#engines td:nth-child(5)").textContent) &&
    !/^0 /.test(document.querySelector("#engines td:nth-child(5)").textContent));
  await until(page, "the log is told", () =>
    document.querySelector("#lines").textContent.includes("counting.mp4"));
  await until(page, "the cache holds the film", () => {
    const cells = [...document.querySelectorAll("#film-rows td")].map((it) => it.textContent);
    return cells.length === 6 && cells[0] === "counting.mp4" && /^[1-9][0-9.]* [KM]iB$/.test(cells[3])
      && cells[4] !== "0 B" && cells[5] === "1";
  });
  await page.type("#find", "no such film");
  await until(page, "none is found", () =>
    document.querySelector("#shown").textContent.startsWith("none found, 1 in all"));
  await page.$eval("#find", (it) => {
    it.value = "counting";
    it.dispatchEvent(new Event("input"));
  });
  await page.waitForSelector("#session-rows button");
  // It was started without a file, which is an answer, too.
  await page.click("#reload");
  await until(page, "the reload is answered", () =>
    /^Not reloaded: .*configuration file/.test(document.querySelector("#reloaded").textContent));
  page.wrong = page.wrong.filter((it) => !/status of 409/.test(it));
  await accessible(page);
  await page.click("#session-rows button");
  await until(page, "it has ended", () => document.querySelector("#session-rows tr") === null);
  await until(page, "the log says so", () =>
    document.querySelector("#lines").textContent.includes("an operator ended it"));
  await close(page);
}

function asset(name) {
  const folder = ["page.css", "icon.svg"].includes(name) ? "downloads/http/page" :
    "admin/dashboard";
  return readFileSync(join(SOURCES, folder, name));
}

// A status of so many sessions, the `second`th.
function status(count, second) {
  const buckets = [[100_000, 50_000], [1_100_000, 900], [9_100_000, 30], [null, second % 7]];
  const engine = (core) => ({
    core, path: "uring_registered_zc", streams: count, playing: count / 2,
    bytes: second * count * 250_000, in_flight: count % 97, shed: count > 9000 ? 12 : 0,
    lateness: { buckets: buckets.map(([end, of]) => [end, of * second]), sum: 0 },
    batches: { buckets: [[64, 800 * second]], sum: 0 },
    admission: { load_measured: Math.min(count / 12_000 + 0.02 * Math.sin(second), 1),
      train_ns: 785 },
  });
  const channel = (number) => ({
    name: `channel ${number}`, input: number === 2 ? "published" : `rtp://239.1.1.${number}:5004`,
    state: number === 3 ? "silent" : "live", players: count, members: number,
    publishers: { active: "10.0.0.9:5004", standby: null, standbys: 0, standby_ns: 0, switches: 0 },
    received: { bytes: second * 500_000, missing: number * 3 }, sent: { bytes: second * 9e6 },
  });
  return {
    version: "0.1.0", at_ns: second * 1e9, engines: [2, 3].map(engine),
    sessions: { now: count, refused: 17, connections: count },
    cache: { bytes: 2 ** 30, bytes_ready: 2 ** 29, chunk_bytes: 65_536, chunks_in_use: 3000,
      chunks_read: 9000, chunks_built: 700, full: 0, bytes_read: 5e9 },
    channels: [1, 2, 3].map(channel),
    downloads: { http_connections: 40, ftp_connections: 1, refused: 2, active: 12,
      http_answers: [0, 90 * second, 5, 1, 0], transfers: 800, bytes: second * 2e7 },
    users: { allowed: 5, challenged: 4, stale: 3, wrong: 2, slowed: 1, forbidden: 0 },
    tls: { refused: 6, failed: 7 },
    hls: { channels: 2, kept_bytes: 64_200_000, stored_bytes: 7.2e9, stores_failed: 1,
      sent_bytes: second * 1e7,
      playlists: 30 * second, media: 60 * second, waiting: 8192 + count, waits: 9000 * second,
      waits_refused: 17, waits_late: 3, waits_left: 12 },
    process: { resident_bytes: 2e9, started_s: 1 }, cluster: { name: "films" },
  };
}

// What the server did in the `number`th five seconds.
function sample(number, count) {
  return {
    number, sessions: Math.round(count * (0.6 + 0.4 * Math.sin(number / 90))),
    rtp_bps: count * 4e6 * (0.6 + 0.4 * Math.sin(number / 90)), http_bps: 2e8 + 1e8 * Math.cos(number / 40),
    requests_hz: 90, late_ns: number % 50 === 0 ? null : 9e5 + (number % 13) * 1e5,
    load: Math.min(count / 12_000, 1),
  };
}

const REFUSED = [
  { client: "10.1.2.3", what: "RTSP: films/a.mp4", why: "the user or the password is wrong",
    times: 3, at_s: Math.floor(Date.now() / 1000) - 7 },
  { client: "2001:db8:1:2:3:4:5:6", what: "rtsp://h/A film with a long name, number 7.mp4",
    why: "453 the processors are busy", times: 1, at_s: Math.floor(Date.now() / 1000) - 600 },
];

// What the second channel of HLS has: hours, most of them on a disk.
function hlsRows(count) {
  return [
    { path: "live/cam", window_s: 61.4, segments: 31, parts: 42, bytes: 4_200_000,
      stored_bytes: 0, waiting: count, refused: 0 },
    { path: "live/a channel with a long name", window_s: 14_400, segments: 7200, parts: 42,
      bytes: 60_000_000, stored_bytes: 7.2e9, waiting: 8192, refused: 17 },
  ];
}

// A cache of which one film has most, with more than are named.
function cacheMap(count) {
  const film = (at) => ({ film: `films/A film with a long name, number ${at}.mp4`,
    bytes: Math.round(2 ** 28 / (at + 1)), in_use_bytes: Math.round(2 ** 27 / (at + 1) ** 2),
    sessions: Math.round(count / (at + 2)) });
  return {
    bytes: 2 ** 30, films: Array.from({ length: 20 }, (_, at) => film(at)),
    others: { film: "", bytes: 9e6, in_use_bytes: 1e6, sessions: 7 }, others_count: 31,
    closed_bytes: 4e6,
  };
}

// A cluster of three nodes, or of as many as are not all shown; the second drains.
function nodes(count) {
  const node = (at) => ({
    node: `node-${at}`, is_this: at === 1, accepts: at !== 2, version: "0.1.0", sessions: at,
    load_bps: at * 1e6, capacity_bps: 1e9, rtsp: `10.0.0.${at}:8554`, rtsps: null,
    http: at === 3 ? null : `10.0.0.${at}:8080`, https: at === 3 ? "10.0.0.3:8443" : null, films: 0,
  });
  return {
    cluster: "films", node: "node-1", is_registered: count <= 10,
    error: count <= 10 ? null : "cannot connect",
    nodes: Array.from({ length: count <= 10 ? 3 : 300 }, (_, at) => node(at + 1)),
    channels: [{ channel: "live/cam", node: "node-1", is_this: true, lease: 7 },
      { channel: "live/eye", node: "node-1", is_this: true, lease: null },
      { channel: "live/news", node: "node-3", is_this: false, lease: 9 }],
    ignored: count <= 10 ? [] : [{ key: "evil", reason: "no entry of a node" }],
  };
}

// Of the cluster each node is told, or those that are used most.
async function ofCluster(page, count) {
  await until(page, "nodes are shown", () => document.querySelector("#node-rows tr"));
  const [note, ignored] = await page.$$eval("#cluster-note, #cluster-ignored", (all) =>
    all.map((it) => it.textContent));
  const rows = await page.$$eval("#node-rows tr", (all) =>
    all.map((row) => [...row.cells].map((it) => it.textContent).join(" | ")));
  if (count > 10) {
    assert(rows.length === 200 && rows[0].startsWith("node-300 |"), rows[0]);
    assert(/300 nodes.* not reached.*: cannot connect. The 200 /.test(note), note);
    assert(ignored.endsWith("evil: no entry of a node"), ignored);
    return;
  }
  assert(note === "Cluster films: 3 nodes, 6 sessions, 6.0 Mbit/s.", note);
  assert(rows.join("\n") === [
    "node-1 | this one | 1 | 0.1 % | 1.0 Mbit/s | 1.0 Gbit/s | 10.0.0.1:8554 | 10.0.0.1:8080 | 0.1.0",
    "node-2 | drains | 2 | 0.2 % | 2.0 Mbit/s | 1.0 Gbit/s | 10.0.0.2:8554 | 10.0.0.2:8080 | 0.1.0",
    "node-3 | takes viewers | 3 | 0.3 % | 3.0 Mbit/s | 1.0 Gbit/s | 10.0.0.3:8554 | 10.0.0.3:8443 | 0.1.0",
  ].join("\n"), rows.join("\n"));
  const channels = await page.$$eval("#cluster-channel-rows td", (all) =>
    all.map((it) => it.textContent));
  assert(channels.join(" | ") === "live/cam | node-1, this one | 7 | - | " +
    "live/eye | node-1, this one | none: for this node's viewers alone | - | " +
    "live/news | node-3 | 9 | -", channels.join(" | "));
  assert(ignored === "", ignored);
}

function sessions(count, find, first) {
  const all = Array.from({ length: count }, (_, at) => ({
    id: at.toString(16).padStart(16, "0"), client: `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`,
    film: at % 9 === 0 ? "live/news" : `films/A film with a long name, number ${at % 50}.mp4`,
    transport: ["udp", "tcp"][at % 2], state: "playing",
    position_s: at % 9 === 0 ? null : at % 5400, lost: at % 3 === 0 ? null : at % 40,
    lost_ratio: at % 3 === 0 ? null : (at % 40) / 256, jitter_ms: at % 3 === 0 ? null : at % 11,
  }));
  const found = all.filter((it) => it.client.includes(find) || it.film.includes(find));
  return { all: count, found: found.length, sessions: found.slice(first, first + PAGE) };
}

// A server that tells of so many sessions, for as long as it tells anything of them.
async function synthetic(count) {
  let second = 1;
  const [dismissed, now] = [[], { count, isBusy: false }];
  const server = createServer((request, answer) => {
    const url = new URL(request.url, "http://h");
    const name = url.pathname.replace(/^\/admin\/?/, "");
    const send = (type, text) => answer.writeHead(200, { "Content-Type": type }).end(text);
    if (now.isBusy && (name === "events" || name.endsWith("/end"))) {
      answer.writeHead(503, { "Content-Type": "text/plain" }).end("503: busy\n");
    } else if (name === "sessions") {
      const [find, first] = [url.searchParams.get("find"), url.searchParams.get("first")];
      send("application/json", JSON.stringify(sessions(now.count, find, Number(first))));
    } else if (name === "cache") {
      send("application/json", JSON.stringify(cacheMap(count)));
    } else if (name === "cluster") {
      send("application/json", JSON.stringify(nodes(count)));
    } else if (name.startsWith("publishers/")) {
      dismissed.push([request.method, request.headers["x-onrush"], name].join(" "));
      answer.writeHead(204).end();
    } else if (name === "reload") {
      const isOwn = request.method === "POST" && request.headers["x-onrush"] === "1";
      answer.writeHead(isOwn ? 200 : 403, { "Content-Type": "application/json" });
      answer.end(JSON.stringify({ changed: count > 10 ? ["limits.sessions_max"] : [] }));
    } else if (name === "events") {
      answer.writeHead(200, { "Content-Type": "text/event-stream" });
      let hasHour = false;
      const timer = setInterval(() => {
        second += 1;
        const log = [{ number: second, text: `INFO second ${second}` }];
        const news = { status: status(count, second), log, hls: hlsRows(count), refused: REFUSED };
        // All of the hour at first, and then what is new.
        const first = hasHour ? 720 + second : 1;
        hasHour = true;
        news.hour = Array.from({ length: 721 + second - first }, (_, at) => sample(first + at, count));
        answer.write(`data: ${JSON.stringify(news)}\n\n`);
      }, 200);
      answer.on("close", () => clearInterval(timer));
    } else {
      const file = name || "dashboard.html";
      send(TYPES[file.split(".").pop()], asset(file));
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return Object.assign(server, { dismissed, now });
}

async function many(context) {
  for (const count of [10, 10_000]) {
    const server = await synthetic(count);
    const site = `http://127.0.0.1:${server.address().port}/`;
    for (const scheme of ["light", "dark"]) {
      for (const [width, height] of [[1280, 1600], [390, 844]]) {
        const page = await open({ ...context, site }, "/admin", { width, height, scheme });
        await until(page, "sessions are shown", (least) =>
          document.querySelectorAll("#session-rows tr").length >= least, Math.min(count, PAGE));
        await until(page, "charts are drawn", () =>
          document.querySelectorAll("svg path[d]").length >= 6 &&
          document.querySelector("svg path").getAttribute("d").split("L").length > 20);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert(wide <= width, `the dashboard is ${wide} wide at ${width}`);
        const rows = await page.$$eval("#session-rows tr", (all) => all.length);
        assert(rows === Math.min(count, PAGE), `${rows} rows`);
        await accessible(page);
        await picture(page, `dashboard-${count}-${scheme}-${width}`);
        await until(page, "films of the cache are shown", () =>
          document.querySelectorAll("#film-rows tr").length === 22);
        await page.$eval("#films", (it) => it.scrollIntoView());
        await picture(page, `dashboard-films-${count}-${scheme}-${width}`);
        await close(page);
      }
    }
    const page = await open({ ...context, site }, "/admin");
    await until(page, "sessions are shown", () => document.querySelector("#session-rows tr"));
    await until(page, "channels by HLS are shown", (waiting) => {
      const cells = [...document.querySelectorAll("#hls-rows td")].map((it) => it.textContent);
      return cells.length === 16 && cells.slice(8).join(" | ") ===
        "live/a channel with a long name | 14400 s | 7200 | 42 | 57.2 MiB | 6.7 GiB | 8192 | 17"
        && cells[6] === String(waiting);
    }, count);
    await until(page, "what HTTP sends is told, of files and of channels", () =>
      /by HTTP and FTP\s*240 Mbit\/s/.test(document.querySelector("#figures").textContent));
    await until(page, "films of the cache are shown", () =>
      document.querySelectorAll("#film-rows tr").length === 22);
    const films = await page.$$eval("#film-rows tr", (all) => all.map((row) => [
      ...[...row.cells].map((it) => it.textContent),
      ...[...row.querySelectorAll("rect")].map((it) => Number(it.getAttribute("width")).toFixed(1)),
    ].join(" | ")));
    assert(films[0] === `films/A film with a long name, number 0.mp4 |  | 25 % | 256 MiB | 128 MiB | \
${count / 2} | 100.0 | 50.0`, films[0]);
    assert(/^31 other films \|.* \| 7 \| /.test(films[20]), films[20]);
    assert(films[21].startsWith("files that are closed or have changed |"), films[21]);
    assert(await page.$eval("#films-none", (it) => it.hidden), "there are films");
    await ofCluster(page, count);
    const told = await page.$eval("#refusal-figures", (it) => it.innerText.replace(/\s+/g, " "));
    for (const why of ["wrong password 2", "TLS: too many handshakes 6",
      "HLS: too many wait (503) 17", "processors busy, or no room (453) 17"]) {
      assert(told.includes(why), `${why}: ${told}`);
    }
    const refused = await page.$$eval("#refused-rows td", (all) => all.map((it) => it.textContent));
    assert(refused.slice(0, 4).join(" | ") ===
      "10.1.2.3 | RTSP: films/a.mp4 | the user or the password is wrong | 3", refused.join(" | "));
    assert(/^([7-9]|[1-9][0-9]+) s ago$/.test(refused[4]) && refused[9].endsWith(" min ago"),
      refused.join(" | "));
    // The hour before this page was opened is there.
    await until(page, "an hour is drawn", () =>
      document.querySelector("svg path").getAttribute("d").split("L").length > 200 &&
      document.querySelector("#covered").textContent === "");
    const buttons = await page.$$eval("#channel-rows button", (all) =>
      all.map((it) => it.getAttribute("aria-label")));
    assert(buttons.join() === "End the publisher of channel 2", buttons.join());
    await page.click("#channel-rows button");
    for (const begun = Date.now(); server.dismissed.length === 0;) {
      assert(Date.now() < begun + WAIT_MS, "nobody was asked to let the publisher go");
      await new Promise((done) => setTimeout(done, 50));
    }
    assert(server.dismissed.join() === "POST 1 publishers/channel%202", server.dismissed.join());
    await page.click("#reload");
    const expected = count > 10 ? "Changed: limits.sessions_max" : "Nothing has changed";
    await until(page, "what the reload says", (text) =>
      document.querySelector("#reloaded").textContent === text, expected);
    if (count > PAGE) {
      await page.click("#on");
      await until(page, "the next are shown", () =>
        document.querySelector("#shown").textContent.startsWith("201 to 400 of 10000"));
      await page.click("#back");
      await until(page, "the first are back", () =>
        document.querySelector("#shown").textContent.startsWith("1 to 200 of 10000"));
    }
    await page.type("#find", "live/news");
    await until(page, "those are found", (all) =>
      document.querySelector("#shown").textContent.endsWith(`found, ${all} in all`) &&
      [...document.querySelectorAll("#session-rows td:nth-child(2)")]
        .every((it) => it.textContent === "live/news"), count);
    await close(page);
    server.closeAllConnections();
    server.close();
  }
}

// What a server refuses for a while is asked for again, and a page of sessions that have gone is
// left.
async function recovers(context) {
  const server = await synthetic(2.5 * PAGE);
  const site = `http://127.0.0.1:${server.address().port}/`;
  server.now.isBusy = true;
  const page = await open({ ...context, site }, "/admin");
  await until(page, "it is not connected", () =>
    /^Not connected/.test(document.querySelector("#state").textContent));
  await page.waitForSelector("#session-rows button");
  await page.click("#session-rows button");
  await until(page, "who was not ended can be tried again", () =>
    document.querySelector("#state").textContent === "503: busy" &&
    !document.querySelector("#session-rows button").disabled);
  server.now.isBusy = false;
  await until(page, "it is connected", () =>
    /sessions/.test(document.querySelector("#figures").textContent));
  for (const shown of ["201 to 400 of 500", "401 to 500 of 500"]) {
    await page.click("#on");
    await until(page, "the next are shown", (text) =>
      document.querySelector("#shown").textContent === text, shown);
  }
  server.now.count = 10;
  await until(page, "those that are left are shown", () =>
    document.querySelector("#shown").textContent === "1 to 10 of 10" &&
    document.querySelectorAll("#session-rows tr").length === 10);
  page.wrong = page.wrong.filter((it) => !/status of 503/.test(it));
  await close(page);
  server.closeAllConnections();
  server.close();
}

const checks = { many, recovers };
await run(process.argv[4] === "synthetic" ? checks : { ends, ...checks });
