// Players that others wrote: hls.js, Shaka Player and dash.js.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, here, open, until } from "./lib.mjs";

export const module = (name) => readFileSync(join(here, "node_modules", name), "utf8");

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

// A page on which such a player has pictures of a film.
export async function begin(context, name, path) {
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
  return page;
}
