// Films with sound in AC-3 and in AAC, in a browser that lacks AC-3: the other is heard, whichever is
// the film's default.

import { assert, close, open, run, until } from "./lib.mjs";
import { begin } from "./others.mjs";

const FILMS = ["ac3-first.mp4", "aac-first.mp4"];
const PLAYED = [
  ["hls.js", "hls/index.m3u8"],
  ["shaka", "hls/index.m3u8"],
  ["shaka", "dash/manifest.mpd"],
  ["dash.js", "dash/manifest.mpd"],
];

async function isHeard(page, what) {
  await until(page, `${what} is heard`, () =>
    document.querySelector("#film").webkitAudioDecodedByteCount > 0);
  page.wrong = page.wrong.filter((it) => !it.startsWith("console: "));
  await close(page);
}

async function lacksAc3(context) {
  const page = await open(context, "/players.html");
  const plays = await page.evaluate(() => MediaSource.isTypeSupported('audio/mp4; codecs="ac-3"'));
  assert(!plays, "this browser has AC-3: there is nothing to be seen");
  await close(page);
}

async function onOurPage(context, film) {
  const page = await open(context, `${film}/hls/index.html?by=mse`);
  await page.$eval("#film", (it) => { it.muted = true; });
  await page.click("#play");
  await until(page, `${film} plays`, () => document.querySelector("#film").currentTime > 1);
  await isHeard(page, film);
}

const checks = { "no AC-3": lacksAc3 };
for (const film of FILMS) {
  checks[`our page, ${film}`] = (context) => onOurPage(context, film);
  for (const [name, path] of PLAYED) {
    checks[`${name} /${film}/${path}`] = async (context) =>
      isHeard(await begin(context, name, `/${film}/${path}`), `${name} ${film}`);
  }
}
await run(checks);
