// A live channel: on our own page, in hls.js with and without low latency, and as a transport stream;
// by DASH in dash.js and Shaka Player.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  WAIT_MS, accessible, assert, close, here, open, picture, run, until,
} from "./lib.mjs";

const module = (name) => readFileSync(join(here, "node_modules", name), "utf8");
const SCRIPT = module("hls.js/dist/hls.min.js");

const start = (url, lowLatencyMode) => {
  const player = new window.Hls({ enableWorker: false, lowLatencyMode });
  window.player = player;
  player.on(window.Hls.Events.ERROR, (_, error) => {
    if (error.fatal) {
      window.failed = `${error.type} ${error.details}`;
    }
  });
  player.loadSource(url);
  player.attachMedia(document.querySelector("#film"));
  document.querySelector("#film").play().catch(() => {});
};

async function byHls(context, path, isLow) {
  const page = await open(context, "/players.html");
  await page.evaluate(SCRIPT);
  await page.evaluate(start, new URL(path, context.site).href, isLow);
  await until(page, `hls.js has pictures of ${path}`, () =>
    window.failed || document.querySelector("#film").readyState >= 3);
  const begun = await page.$eval("#film", (film) => film.currentTime);
  await until(page, `hls.js plays ${path}`, (from) =>
    window.failed || document.querySelector("#film").currentTime > from + 6, begun);
  const [failed, latency, parts] = await page.evaluate(() => [
    window.failed, window.player.latency, window.player.latestLevelDetails?.partList?.length ?? 0,
  ]);
  assert(!failed, `hls.js ${path}: ${failed}`);
  assert(parts > 0, `hls.js ${path}: no parts`);
  console.log(`hls.js ${path}: ${latency.toFixed(1)} s behind`);
  page.wrong = page.wrong.filter((it) => !it.startsWith("console: "));
  await close(page);
}

// How each player of DASH is started, and how it tells what it was told of the clock and of live.
const DASH = {
  "dash.js": ["dashjs/dist/modern/umd/dash.all.min.js", (url) => {
    const player = window.dashjs.MediaPlayer().create();
    player.updateSettings({ debug: { logLevel: 0 } });
    player.on("error", (event) => { window.failed = JSON.stringify(event.error); });
    player.initialize(document.querySelector("#film"), url, true);
    window.told = () => [player.isDynamic(), player.getCurrentLiveLatency()];
  }],
  shaka: ["shaka-player/dist/shaka-player.compiled.js", async (url) => {
    const player = new window.shaka.Player();
    player.addEventListener("error", (event) => { window.failed = `code ${event.detail.code}`; });
    await player.attach(document.querySelector("#film"));
    await player.load(url).catch((error) => { window.failed = `code ${error.code}`; });
    document.querySelector("#film").play().catch(() => {});
    window.told = () => [player.isLive(), player.getStats().liveLatency];
  }],
};

async function byDash(context, name) {
  const page = await open(context, "/players.html");
  const [script, begin] = DASH[name];
  await page.evaluate(module(script));
  const timings = [];
  page.on("response", (answer) => {
    if (answer.url().endsWith("/dash/time.txt")) {
      timings.push(answer.status());
    }
  });
  await page.evaluate(begin, new URL("/live/cam/dash/manifest.mpd", context.site).href);
  await until(page, `${name} has pictures`, () =>
    window.failed || document.querySelector("#film").readyState >= 3);
  const begun = await page.$eval("#film", (film) => film.currentTime);
  await until(page, `${name} plays`, (from) =>
    window.failed || document.querySelector("#film").currentTime > from + 10, begun);
  const [failed, [isLive, latency]] = await page.evaluate(() => [window.failed, window.told()]);
  assert(!failed, `${name}: ${failed}`);
  assert(isLive, `${name} takes it for a film`);
  // A machine that is busy is further behind; by the wrong clock it were hours or years.
  assert(latency > 0 && latency < 60, `${name} is ${latency} s behind`);
  // Shaka Player takes the time line's word for it, and asks for no clock.
  assert(timings.length > 0 || name === "shaka", `${name} did not ask for the time`);
  assert(timings.every((it) => it === 200), `${name}: ${timings}`);
  console.log(`${name}: ${latency.toFixed(1)} s behind`);
  page.wrong = page.wrong.filter((it) => !it.startsWith("console: "));
  await close(page);
}

async function byPage(context, name = "cam") {
  const page = await open(context, `/live/${name}/hls/index.html`);
  const asked = new Map();
  page.on("request", (request) => {
    if (request.url().includes("_HLS_msn=")) {
      asked.set(request.url(), 1 + (asked.get(request.url()) ?? 0));
    }
  });
  await until(page, "the page has pictures", () =>
    document.querySelector("#film").readyState >= 3
      || document.querySelector("#state").textContent !== "");
  await page.evaluate(() => { document.querySelector("#film").muted = true; });
  await page.click("#play");
  const begun = await page.$eval("#film", (film) => film.currentTime);
  await until(page, "the page plays", (from) =>
    document.querySelector("#film").currentTime > from + 6, begun);
  // A machine that is busy may make it wait for what comes next, and say so.
  await until(page, "nothing is told", () => document.querySelector("#state").textContent === "");
  const [latency, source] = await page.evaluate(() => [
    document.querySelector("#latency").textContent, document.querySelector("#film").currentSrc,
  ]);
  assert(source.startsWith("blob:"), source);
  assert(/^[0-9.]+ s behind$/.test(latency), latency);
  console.log(`the page: ${latency}`);
  await page.click("#edge");
  await until(page, "it goes on from the edge", () => document.querySelector("#film").readyState >= 3);
  // Each answer has what was waited for, and so the next question is another one.
  assert(asked.size > 0, "the page asked for nothing that comes next");
  const most = Math.max(...asked.values());
  assert(most <= 3, `the page asked ${most} times for the same`);
  await close(page);
}

// Some requests come to nothing, as where a network fails for moments: it plays on, and tells nobody.
async function fails(context) {
  const page = await open(context, "/live/cam/hls/index.html");
  await until(page, "the page has pictures", () => document.querySelector("#film").readyState >= 3);
  await page.evaluate(() => { document.querySelector("#film").muted = true; });
  await page.click("#play");
  const fates = ["abort", "abort", "respond", "respond"];
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const fate = request.url().includes("_HLS_msn=") ? fates.pop() : undefined;
    request[fate ?? "continue"](fate === "respond" ? { status: 503 } : undefined).catch(() => {});
  });
  const giveUp = Date.now() + WAIT_MS;
  while (fates.length > 0) {
    assert(Date.now() < giveUp, `${fates.length} requests did not fail`);
    await new Promise((done) => setTimeout(done, 50));
  }
  const failed = await page.$eval("#film", (film) => film.currentTime);
  await until(page, "it plays on", (from) =>
    document.querySelector("#film").currentTime > from + 6, failed);
  await until(page, "nothing is told", () => document.querySelector("#state").textContent === "");
  page.wrong = page.wrong.filter((it) => !it.startsWith("console: "));
  await close(page);
}

async function listed(context) {
  const page = await open(context, "/");
  const links = await page.$$eval(".channels a", (all) => all.map((it) => it.getAttribute("href")));
  assert(links.includes("live/cam/hls/index.html"), links.join(" "));
  await until(page, "the channel has a poster", () =>
    document.querySelector(".channels a[href*='live/cam'] .poster.shown video")?.videoWidth > 0);
  await accessible(page);
  await close(page);
}

async function looks(context) {
  for (const scheme of ["light", "dark"]) {
    for (const [width, height] of [[1280, 900], [390, 844]]) {
      const page = await open(context, "/live/cam/hls/index.html", { width, height, scheme });
      await until(page, "it has pictures", () => document.querySelector("#film").readyState >= 2);
      await page.$$eval("details", (all) => all.forEach((it) => { it.open = true; }));
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= width, `the page is ${wide} wide at ${width}`);
      await accessible(page);
      await picture(page, `live-${scheme}-${width}`);
      await close(page);
    }
  }
}

// Channels of other codecs, if they are named: on our page, and in hls.js.
const named = process.argv.slice(4).flatMap((name) => [
  [`our page, ${name}`, (context) => byPage(context, name)],
  [`hls.js, ${name}`, (context) => byHls(context, `/live/${name}/hls/index.m3u8`, true)],
]);

await run(named.length > 0 ? Object.fromEntries(named) : {
  looks,
  "the folder names channels": listed,
  "our page": byPage,
  "our page, when requests fail": fails,
  "hls.js with parts": (context) => byHls(context, "/live/cam/hls/index.m3u8", true),
  "hls.js without": (context) => byHls(context, "/live/cam/hls/index.m3u8", false),
  "hls.js, a transport stream": (context) => byHls(context, "/live/ts/hls/index.m3u8", true),
  "dash.js": (context) => byDash(context, "dash.js"),
  "Shaka Player, by DASH": (context) => byDash(context, "shaka"),
});
