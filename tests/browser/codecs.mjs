// The page of films in other codecs than H.264 and AAC: it plays and seeks, both ways.

import { assert, close, open, run, seeks, until } from "./lib.mjs";

const FILMS = ["av1.mp4", "vp9.webm", "h264.mkv", "h264-opus.mkv"];

async function plays(context, name, by) {
  const page = await open(context, `${name}/hls/index.html${by}`);
  await until(page, `${name} has pictures`, () => {
    const text = document.querySelector("#state").textContent;
    return document.querySelector("#film").readyState >= 3 || !["", "Loading"].includes(text);
  });
  const state = await page.$eval("#state", (it) => it.textContent);
  assert(["", "Loading"].includes(state), `${name}: ${state}`);
  await page.$eval("#film", (it) => { it.muted = true; });
  await page.click("#play");
  await until(page, `${name} plays`, () => document.querySelector("#film").currentTime > 1);
  await page.click("#play");
  await until(page, `${name} stands`, () => document.querySelector("#film").paused);
  await seeks(page, [15.5, 3.5, 24.5]);
  const [source, sound, lasts] = await page.$eval("#film", (it) =>
    [it.currentSrc, it.webkitAudioDecodedByteCount, it.duration]);
  assert(by === "" || source.startsWith("blob:"), `${name}: ${source}`);
  assert(sound > 0, `${name} has no sound`);
  assert(Math.abs(lasts - 30) < 0.5, `${name} lasts ${lasts}`);
  await close(page);
}

const all = FILMS.flatMap((name) => ["", "?by=mse"].map((by) =>
  [`${name}${by}`, (context) => plays(context, name, by)]));
await run(Object.fromEntries(all));
