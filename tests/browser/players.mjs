// Films in players that others wrote: hls.js, Shaka Player and dash.js. Each plays, seeks and shows
// the right pictures; hls.js of I-frames alone, too.

import { assert, close, open, run, secondShown, seeks, until } from "./lib.mjs";
import { begin, module } from "./others.mjs";

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

// Of MP4 each I-frame is a segment of its own, of a transport stream a range of one.
const SKIMMED = [
  ["/counting.mp4/hls/index.m3u8", /\/video\/[^/]*\/i\d+\.m4s$/],
  ["/counting.ts/hls/index.m3u8", /\/stream\/[^/]*\/\d+\.ts$/],
];

async function plays(context, name, path) {
  const page = await begin(context, name, path);
  await page.evaluate(() => document.querySelector("#film").pause());
  await seeks(page, [15.5, 3.5, 24.5, 12.5]);
  const lasts = await page.$eval("#film", (it) => it.duration);
  assert(Math.abs(lasts - 30) < 0.5, `${name} ${path}: ${lasts}`);
  // What they say of their own state is no error of ours.
  page.wrong = page.wrong.filter((it) => !it.startsWith("console: "));
  await close(page);
}

// Pictures that stand alone, as they are shown beside a scale while somebody looks for a place: of the
// playlist of I-frames alone, each in the second that it is of.
async function skims(context, path, segments) {
  const page = await open(context, "/players.html");
  const asked = [];
  page.on("response", (answer) => asked.push(new URL(answer.url()).pathname));
  await page.evaluate(module("hls.js/dist/hls.min.js"));
  await page.evaluate((url) => {
    const main = new window.Hls({ enableWorker: false });
    main.once(window.Hls.Events.LEVEL_LOADED, () => {
      window.player = main.createIFramePlayer();
      window.failed = window.player ? undefined : "no I-frames";
      window.player?.on(window.Hls.Events.ERROR, (_, error) => {
        if (error.fatal) {
          window.failed = `${error.type} ${error.details}`;
        }
      });
      window.player?.attachMedia(document.querySelector("#film"));
    });
    main.loadSource(url);
    // A pointer that moves asks again and again. Chromium stands still if hls.js 1.7.4 is asked only
    // once for what lies before: the end of the stream is behind a gap then.
    setInterval(() => {
      if (window.at !== undefined) {
        window.player?.loadMediaAt(window.at);
      }
    }, 500);
  }, new URL(path, context.site).href);
  await page.evaluate(`window.secondShown = ${secondShown}`);
  for (const time of [15.5, 3.5, 24.5]) {
    await page.evaluate((at) => { window.at = at; }, time);
    await until(page, `${path}: the picture of second ${Math.floor(time)}`, (second) => {
      const film = document.querySelector("#film");
      return window.failed || (film.readyState >= 2 && window.secondShown() === second);
    }, Math.floor(time));
    const failed = await page.evaluate(() => window.failed);
    assert(!failed, `${path}: ${failed}`);
  }
  const fetched = asked.filter((it) => /\.(m4s|ts)$/.test(it));
  const strange = fetched.filter((it) => !segments.test(it));
  assert(fetched.length > 0 && strange.length === 0, `${path}: fetched ${fetched.join(" ")}`);
  page.wrong = page.wrong.filter((it) => !it.startsWith("console: "));
  await close(page);
}

const played = PLAYED.map(([name, path]) =>
  [`${name} ${path}`, (context) => plays(context, name, path)]);
const skimmed = SKIMMED.map(([path, segments]) =>
  [`hls.js, I-frames of ${path}`, (context) => skims(context, path, segments)]);
await run(Object.fromEntries([...played, ...skimmed]));
