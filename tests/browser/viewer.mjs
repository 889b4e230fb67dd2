// A viewer of a page of a film or a channel: `viewer.mjs URL` plays it until its end, or until it is
// told to stop, and prints each fifth of a second what has been shown, as a line of JSON: `position`,
// `pictures`, `state`, and the `host` that sent media last.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WAIT_MS, launch } from "./lib.mjs";

const EVERY_MS = 200;
const MEDIA = /\.(m4s|mp4|ts|aac)(\?|$)/;

const folder = mkdtempSync(join(tmpdir(), "onrush-viewer-"));
const browser = await launch("chromium", folder);
let isStopped = false;
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, () => { isStopped = true; });
}
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(WAIT_MS);
  let host;
  page.on("console", (message) => console.error(`console: ${message.text()}`));
  page.on("request", (request) => {
    if (MEDIA.test(request.url())) {
      ({ host } = new URL(request.url()));
    }
  });
  await page.goto(process.argv[2]);
  await page.waitForFunction(() => document.querySelector("#film").readyState >= 3
    || document.querySelector("#state").textContent !== "");
  await page.$eval("#film", (film) => {
    film.muted = true;
    return film.play();
  });
  let [isEnded, before, last] = [false, 0, 0];
  while (!isEnded && !isStopped) {
    const shown = await page.$eval("#film", (film) => ({
      position: film.currentTime,
      pictures: film.getVideoPlaybackQuality().totalVideoFrames,
      isEnded: film.ended,
      state: document.querySelector("#state").textContent,
    }));
    ({ isEnded } = shown);
    // They are counted anew when the page has the film from elsewhere.
    before += shown.pictures < last ? last : 0;
    last = shown.pictures;
    console.log(JSON.stringify({ ...shown, pictures: before + last, host }));
    await new Promise((done) => setTimeout(done, EVERY_MS));
  }
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
