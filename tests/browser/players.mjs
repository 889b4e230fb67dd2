// Films in players that others wrote: hls.js, Shaka Player and dash.js. Each plays, seeks and shows
// the right pictures.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, close, here, open, run, seeks, until } from "./lib.mjs";

const module = (name) => readFileSync(join(here, "node_modules", name), "utf8");

// What each is started with: a script, and how it plays `url` in the video element.
const PLAYERS = {
  "hls.js": ["hls.js/dist/hls.min.js", (url) => {
    const player = new window.Hls({ enableWorker: false });
    player.on(window.Hls.Events.ERROR, (_, error) => {
      if (error.fatal) {
        window.failed = `${error.type} ${error.details}`;
      }
    });
    player.loadSource(url);
    player.attachMedia(document.querySelector("#film"));
  }],
  shaka: ["shaka-player/dist/shaka-player.compiled.js", async (url) => {
    const player = new window.shaka.Player();
    player.addEventListener("error", (event) => { window.failed = `code ${event.detail.code}`; });
    await player.attach(document.querySelector("#film"));
    await player.load(url);
  }],
  "dash.js": ["dashjs/dist/modern/umd/dash.all.min.js", (url) => {
    const player = window.dashjs.MediaPlayer().create();
    player.updateSettings({ debug: { logLevel: 0 } });
    player.on("error", (event) => { window.failed = JSON.stringify(event.error); });
    player.initialize(document.querySelector("#film"), url, false);
  }],
};

const PLAYED = [
  ["hls.js", "/counting.mp4/hls/index.m3u8"],
  ["hls.js", "/counting.ts/hls/index.m3u8"],
  ["hls.js", "/ladder.film/hls/index.m3u8"],
  ["shaka", "/counting.mp4/hls/index.m3u8"],
  ["shaka", "/ladder.film/hls/index.m3u8"],
  ["shaka", "/counting.mp4/dash/manifest.mpd"],
  ["shaka", "/ladder.film/dash/manifest.mpd"],
  ["dash.js", "/counting.mp4/dash/manifest.mpd"],
  ["dash.js", "/ladder.film/dash/manifest.mpd"],
];

async function plays(context, name, path) {
  const page = await open(context, "/players.html");
  const [script, start] = PLAYERS[name];
  await page.evaluate(module(script));
  const url = new URL(path, context.site).href;
  await page.evaluate(start, url);
  await until(page, `${name} has pictures of ${path}`, () =>
    window.failed || document.querySelector("#film").readyState >= 3);
  const failed = await page.evaluate(() => window.failed);
  assert(!failed, `${name} ${path}: ${failed}`);
  await page.evaluate(() => document.querySelector("#film").play());
  await until(page, `${name} plays ${path}`, () => document.querySelector("#film").currentTime > 1);
  await page.evaluate(() => document.querySelector("#film").pause());
  await seeks(page, [15.5, 3.5, 24.5, 12.5]);
  const lasts = await page.$eval("#film", (it) => it.duration);
  assert(Math.abs(lasts - 30) < 0.5, `${name} ${path}: ${lasts}`);
  // What they say of their own state is no error of ours.
  page.wrong = page.wrong.filter((it) => !it.startsWith("console: "));
  await close(page);
}

await run(Object.fromEntries(PLAYED.map(([name, path]) =>
  [`${name} ${path}`, (context) => plays(context, name, path)])));
