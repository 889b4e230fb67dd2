// What a viewer waits for, in Chromium. Prints raw samples as JSON, one object, and nothing else:
//
//   node measure.mjs first-frame SITE SAMPLES FILM...
//   node measure.mjs glass-to-glass SITE SAMPLES rtsp://HOST:PORT/CHANNEL
//
// first-frame: in ms, from the click on a film's link on its folder's page until its first picture is
// shown. The first time that a film is opened after the server's start its index is cold, and warm
// from then on: so name films that nobody has asked for, as many as there are to be cold samples. Then
// the folder shows no posters, for which the server would have looked into the films before the click.
//
// glass-to-glass: in ms, from when a picture is drawn until it is shown. ffmpeg publishes pictures of
// a clock, as bars for the bits of the time in ms, and below them the same inverted, by which what is
// read is known to be right. Both are of this machine's clock. The page plays by Media Source, part
// by part, at the place that it chooses itself.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WAIT_MS, assert, launch, open } from "./lib.mjs";

const BITS = 24;

async function withoutPosters(page) {
  const protocol = await page.createCDPSession();
  await protocol.send("Network.enable");
  await protocol.send("Network.setBlockedURLs", { urls: ["*/poster.mp4"] });
  page.on("requestfinished", (request) => {
    page.hasPosters ||= request.url().endsWith("/poster.mp4");
  });
}

async function firstFrame(context, rounds, films) {
  const samples = [];
  for (let round = 0; round < rounds; round += 1) {
    for (const film of films) {
      const page = await open(context, "about:blank");
      if (round === 0) {
        await withoutPosters(page);
      }
      await page.evaluateOnNewDocument(() => {
        document.addEventListener("DOMContentLoaded", () => {
          document.querySelector("#film")?.requestVideoFrameCallback((now) => {
            window.shownAt = performance.timeOrigin + now;
          });
        });
      });
      await page.goto(context.site);
      const link = `a[href$="${encodeURIComponent(film)}/hls/index.html"]`;
      const seen = await page.waitForSelector(link);
      await seen.evaluate((it) => it.addEventListener("click", (event) => {
        sessionStorage.setItem("clicked", String(performance.timeOrigin + event.timeStamp));
      }));
      await Promise.all([page.waitForNavigation(), seen.click()]);
      await page.waitForFunction(() => window.shownAt !== undefined, { timeout: WAIT_MS });
      assert(!page.hasPosters, `${film}: a poster was fetched before: its index is not cold`);
      const ms = await page.evaluate(() =>
        window.shownAt - Number(sessionStorage.getItem("clicked")));
      samples.push({ film, index: round === 0 ? "cold" : "warm", ms });
      await page.close();
    }
  }
  return samples;
}

function publish(url) {
  const bit = `mod(floor(mod(floor(T*1000),${2 ** BITS})/pow(2,floor(X*${BITS}/W))),2)`;
  const clock = "setpts=RTCTIME/(TB*1000000)," +
    `geq=lum='255*if(lt(Y,H/2),${bit},1-${bit})':cb=128:cr=128,setpts=PTS-STARTPTS`;
  return spawn("ffmpeg", ["-nostdin", "-v", "error", "-re", "-f", "lavfi", "-i",
    "color=s=384x128:r=25", "-vf", clock, "-c:v", "libx264", "-preset", "ultrafast",
    "-tune", "zerolatency", "-g", "50", "-pix_fmt", "yuv420p", "-t", "600", "-f", "rtsp", url],
  { stdio: ["ignore", "ignore", "inherit"] });
}

// Within the page: waits for so many pictures whose clock can be read.
function read(count, bits) {
  const film = document.querySelector("#film");
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const samples = [];
  return new Promise((done) => {
    const look = (now) => {
      [canvas.width, canvas.height] = [film.videoWidth, film.videoHeight];
      context.drawImage(film, 0, 0);
      const line = (y) => context.getImageData(0, y, canvas.width, 1).data;
      const [upper, lower] = [line(canvas.height >> 2), line((3 * canvas.height) >> 2)];
      let [drawn, isSound] = [0, true];
      for (let bit = 0; bit < bits; bit += 1) {
        const at = 4 * Math.floor(((bit + 0.5) * canvas.width) / bits);
        const [a, b] = [upper[at] > 128, lower[at] > 128];
        isSound &&= a !== b;
        drawn += a ? 2 ** bit : 0;
      }
      if (isSound) {
        const shown = performance.timeOrigin + now;
        const all = 2 ** bits;
        samples.push((((shown - drawn) % all) + all) % all);
      }
      if (samples.length >= count) {
        done(samples);
      } else {
        film.requestVideoFrameCallback(look);
      }
    };
    film.requestVideoFrameCallback(look);
  });
}

async function glassToGlass(context, count, [url]) {
  const publisher = publish(url);
  try {
    const channel = new URL(url).pathname;
    const give_up = Date.now() + WAIT_MS;
    while (!(await fetch(new URL(`${channel}/hls/index.m3u8`, context.site))).ok) {
      assert(Date.now() < give_up, `nobody plays ${channel}`);
      await new Promise((next) => setTimeout(next, 200));
    }
    const page = await open(context, `${channel}/hls/index.html`);
    await page.waitForFunction(() => document.querySelector("#film").readyState >= 3,
      { timeout: WAIT_MS });
    await page.evaluate(() => { document.querySelector("#film").muted = true; });
    await page.click("#play");
    const samples = await page.evaluate(read, count, BITS);
    await page.close();
    return samples.map((ms) => ({ ms }));
  } finally {
    publisher.kill();
  }
}

const MEASURES = { "first-frame": firstFrame, "glass-to-glass": glassToGlass };
const [name, site, count, ...of] = process.argv.slice(2);
const measure = MEASURES[name];
if (!measure || !(Number(count) > 0) || of.length === 0) {
  console.error(`measure.mjs ${Object.keys(MEASURES).join("|")} SITE SAMPLES FILM...|RTSP_URL`);
  process.exit(2);
}
const folder = mkdtempSync(join(tmpdir(), "onrush-browser-"));
const browser = await launch("chromium", folder);
try {
  const samples = await measure({ browser, site }, Number(count), of);
  const about = { schema_version: 1, measure: name, at: new Date().toISOString() };
  console.log(JSON.stringify({ ...about, browser: await browser.version(), unit: "ms", samples }));
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
