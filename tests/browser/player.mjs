// The page of a film: each control, by mouse and by keyboard, both ways to play.

import { accessible, assert, close, open, picture, run, seeks, until } from "./lib.mjs";

const FILM = "/counting.mp4/hls/index.html";

const state = (page) => page.$eval("#state", (it) => it.textContent);
const film = (page, what) => page.$eval("#film", (it, name) => it[name], what);

async function ready(page) {
  await until(page, "it has pictures", () => {
    const text = document.querySelector("#state").textContent;
    return document.querySelector("#film").readyState >= 3 || !["", "Loading"].includes(text);
  });
  assert(["", "Loading"].includes(await state(page)), await state(page));
  await page.$eval("#film", (it) => { it.muted = true; });
}

async function looks(context) {
  for (const scheme of ["light", "dark"]) {
    for (const [width, height] of [[1280, 900], [390, 844]]) {
      const page = await open(context, FILM, { width, height, scheme });
      await ready(page);
      await page.$$eval("details", (all) => all.forEach((it) => { it.open = true; }));
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= width, `the page is ${wide} wide at ${width}`);
      await accessible(page);
      await picture(page, `player-${scheme}-${width}`);
      await close(page);
    }
  }
}

async function controls(context) {
  for (const by of context.kind === "firefox" ? ["?by=mse"] : ["", "?by=mse"]) {
    const page = await open(context, `${FILM}${by}`);
    await ready(page);
    const isOwn = (await film(page, "currentSrc")).startsWith("blob:");
    assert(isOwn === (by !== ""), await film(page, "currentSrc"));
    await page.click("#play");
    await until(page, "it plays", () => document.querySelector("#film").currentTime > 1);
    assert(await page.$eval("#play", (it) => it.textContent) === "Pause", "the button says Pause");
    await page.click("#play");
    await until(page, "it stands", () => document.querySelector("#film").paused);
    await seeks(page, [15.5, 3.5, 24.5, 0.5, 12.5]);
    await page.$eval("#seek", (it) => {
      it.value = 20.5;
      it.dispatchEvent(new Event("input"));
    });
    await until(page, "the line seeks", () => !document.querySelector("#film").seeking &&
      Math.abs(document.querySelector("#film").currentTime - 20.5) < 0.2);
    assert(await page.$eval("#time", (it) => it.textContent) === "0:20 / 0:30", "the time is told");
    await page.click("#mute");
    assert(await film(page, "muted") === false, "it is heard again");
    await until(page, "the button says so", () =>
      document.querySelector("#mute").getAttribute("aria-pressed") === "false");
    await page.$eval("#volume", (it) => {
      it.value = 0.25;
      it.dispatchEvent(new Event("input"));
    });
    assert(await film(page, "volume") === 0.25, "the volume is set");
    await page.select("#speed", "1.5");
    assert(await film(page, "playbackRate") === 1.5, "the speed is set");
    await page.evaluate(() => {
      const it = document.querySelector("#film");
      it.muted = true;
      it.currentTime = it.duration - 2;
      it.playbackRate = 2;
    });
    await page.click("#play");
    await until(page, "it ends", () => document.querySelector("#film").ended);
    assert(Math.abs(await film(page, "duration") - 30) < 0.5, "it lasts 30 s");
    await close(page);
  }
}

async function keys(context) {
  const page = await open(context, FILM);
  await ready(page);
  await page.focus("#film");
  await page.keyboard.press(" ");
  await until(page, "it plays", () => !document.querySelector("#film").paused);
  await page.keyboard.press("k");
  await until(page, "it stands", () => document.querySelector("#film").paused);
  const at = async (key, time) => {
    await page.keyboard.press(key);
    await until(page, `${key} goes to ${time}`, (to) =>
      Math.abs(document.querySelector("#film").currentTime - to) < 0.2, time);
  };
  await at("Home", 0);
  await at("5", 15);
  await at("ArrowRight", 20);
  await at("ArrowLeft", 15);
  await at("l", 25);
  await at("j", 15);
  await page.keyboard.press("m");
  assert(await film(page, "muted") === false, "m mutes and unmutes");
  await page.keyboard.press("ArrowDown");
  assert(Math.abs(await film(page, "volume") - 0.9) < 0.01, "down is less loud");
  await page.keyboard.press("ArrowUp");
  assert(await film(page, "volume") === 1, "up is louder");
  await page.keyboard.press(">");
  assert(await film(page, "playbackRate") === 1.25, "> is faster");
  await page.keyboard.press("<");
  assert(await film(page, "playbackRate") === 1, "< is slower");
  // In full screen, where the browser has it, and back.
  if (await page.evaluate(() => document.fullscreenEnabled)) {
    await page.keyboard.press("f");
    await until(page, "it fills the screen", () => document.fullscreenElement?.id === "stage");
    await page.keyboard.press("f");
    await until(page, "it is back", () => !document.fullscreenElement);
  }
  // Outside of the player letters are no commands.
  await page.focus("header a");
  await page.keyboard.press("m");
  assert(await film(page, "muted") === false, "m does nothing elsewhere");
  await close(page);
}

async function addresses(context) {
  const page = await open(context, FILM);
  await ready(page);
  await page.click("summary");
  const told = await page.$$eval("#urls code", (all) => all.map((it) => it.textContent));
  const { origin } = new URL(context.site);
  const hls = `${origin}/counting.mp4/hls/index.m3u8`;
  const expected = [`vlc '${hls}'`, `ffplay '${hls}'`, hls,
    `${origin}/counting.mp4/dash/manifest.mpd`, `${origin}/counting.mp4`];
  assert(told.join() === expected.join(), told.join());
  for (const url of told.slice(2)) {
    const status = await page.evaluate(async (it) => (await fetch(it, { method: "HEAD" })).status, url);
    assert(status === 200, `${url}: ${status}`);
  }
  await page.click("#urls button");
  await until(page, "the button says so", () =>
    document.querySelector("#urls button").textContent === "Copied");
  await close(page);
  // Of a transport stream there is no manifest, and of several files none to download.
  for (const name of ["counting.ts", "ladder.film"]) {
    const page = await open(context, `/${name}/hls/index.html`);
    await ready(page);
    const told = await page.$$eval("#urls code", (all) => all.map((it) => it.textContent));
    assert(told.length === 4, told.join());
    for (const url of told.slice(2)) {
      const head = async (it) => (await fetch(it, { method: "HEAD", redirect: "error" })).status;
      const status = await page.evaluate(head, url);
      assert(status === 200, `${url}: ${status}`);
    }
    await close(page);
  }
}

const width = (page, wide) => until(page, `it is ${wide} wide`, (to) =>
  document.querySelector("#film").videoWidth === to, wide);

// Renditions of one film: chosen by hand, and by what the network carries.
async function adapts(context) {
  for (const by of context.kind === "firefox" ? ["?by=mse"] : ["", "?by=mse"]) {
    const page = await open(context, `/ladder.film/hls/index.html${by}`);
    await ready(page);
    const offered = await page.$$eval("#quality option", (all) => all.map((it) => it.text));
    assert(/^Auto,64p, .* Mbit\/s,32p, .* Mbit\/s$/.test(offered.join()), offered.join());
    await page.$eval("#film", (it) => { it.currentTime = 10.5; });
    for (const [value, wide] of [["1", 64], ["0", 128], ["1", 64]]) {
      await page.select("#quality", value);
      await until(page, "it is by Media Source", () =>
        document.querySelector("#film").src.startsWith("blob:"));
      await page.evaluate(() => document.querySelector("#film").play());
      await width(page, wide);
      await page.evaluate(() => document.querySelector("#film").pause());
    }
    await seeks(page, [20.5, 3.5]);
    await close(page);
  }
}

async function slows(context) {
  // Less than what it begins with takes, and more than the other.
  const network = { download: 15_000, upload: 15_000, latency: 20 };
  const page = await open(context, "/ladder.film/hls/index.html?by=mse", { network });
  await ready(page);
  await width(page, 128);
  await page.evaluate(() => document.querySelector("#film").play());
  await width(page, 64);
  await page.emulateNetworkConditions(null);
  await close(page);
}

// Sound that begins eight seconds later than the pictures keeps nobody waiting.
async function late(context) {
  const page = await open(context, "/late.mp4/hls/index.html?by=mse");
  await ready(page);
  await page.click("#play");
  await until(page, "it plays without sound", () => document.querySelector("#film").currentTime > 1);
  await seeks(page, [3.5]);
  await page.evaluate(() => {
    const it = document.querySelector("#film");
    it.currentTime = 7.2;
    return it.play();
  });
  await until(page, "it plays on with sound", () => document.querySelector("#film").currentTime > 9.5
    && document.querySelector("#film").webkitAudioDecodedByteCount !== 0);
  await page.evaluate(() => document.querySelector("#film").pause());
  await seeks(page, [20.5, 2.5]);
  await close(page);
}

// Pictures begin eight seconds later than sound, and are begun with.
async function beginsDark(context) {
  const page = await open(context, "/begins-dark.mp4/hls/index.html?by=mse");
  await ready(page);
  const isAtFirst = () => !document.querySelector("#film").seeking
    && Math.abs(document.querySelector("#film").currentTime - 8) < 0.2;
  await until(page, "it is at the first picture", isAtFirst);
  await page.click("#play");
  await until(page, "it plays", () => document.querySelector("#film").currentTime > 9);
  await page.click("#play");
  await seeks(page, [20.5]);
  await page.evaluate(() => { document.querySelector("#film").currentTime = 2.5; });
  await until(page, "it is at the first picture again", isAtFirst);
  await seeks(page, [9.5]);
  await close(page);
}

// Sound, or pictures, end 50 seconds before the film: the other goes on, and both are back for whoever
// goes back.
async function endsEarly(context) {
  for (const name of ["ends-silent", "ends-dark"]) {
    const page = await open(context, `/${name}.mp4/hls/index.html?by=mse`);
    await ready(page);
    await seeks(page, [3.5]);
    await page.evaluate(() => {
      const it = document.querySelector("#film");
      it.currentTime = 8.5;
      return it.play();
    });
    // Chromium waits for pictures only after three seconds.
    await until(page, "it plays on", () => document.querySelector("#film").currentTime > 15);
    await page.evaluate(() => document.querySelector("#film").pause());
    await seeks(page, name === "ends-silent" ? [40.5, 3.5] : [3.5]);
    await page.click("#play");
    await until(page, "it plays with sound", () => document.querySelector("#film").currentTime > 5
      && document.querySelector("#film").webkitAudioDecodedByteCount !== 0);
    await close(page);
  }
}

// Sound in two languages: the one that is chosen is heard. The second is a tone of 880 Hz.
async function languages(context) {
  for (const by of ["", "?by=mse"]) {
    const page = await open(context, `/languages.mp4/hls/index.html${by}`);
    await ready(page);
    const offered = await page.$$eval("#sound option", (all) => all.map((it) => it.text));
    assert(offered.length === 2 && new Set(offered).size === 2, offered.join());
    assert(await page.$eval("#sound-label", (it) => !it.hidden), "the choice is shown");
    await page.evaluate(() => {
      const it = document.querySelector("#film");
      it.muted = false;
      const context = new AudioContext();
      const ear = context.createAnalyser();
      ear.fftSize = 8192;
      context.createMediaElementSource(it).connect(ear);
      ear.connect(context.destination);
      // The loudest frequency; 0 while nothing is heard.
      window.heard = () => {
        const levels = new Float32Array(ear.frequencyBinCount);
        ear.getFloatFrequencyData(levels);
        const most = Math.max(...levels);
        return most < -60 ? 0 : (levels.indexOf(most) * context.sampleRate) / ear.fftSize;
      };
      return context.resume();
    });
    await page.click("#play");
    const is880 = () => Math.abs(window.heard() - 880) < 20;
    await until(page, "the first is heard", () => window.heard() > 0 && Math.abs(window.heard() - 880) > 40);
    await page.select("#sound", "1");
    await until(page, "the second is heard", is880);
    const at = await film(page, "currentTime");
    await page.select("#sound", "0");
    await until(page, "the first is heard again", () =>
      window.heard() > 0 && Math.abs(window.heard() - 880) > 40);
    const later = await film(page, "currentTime");
    assert(later >= at && await film(page, "paused") === false, "it plays on from where it was");
    await page.evaluate(() => document.querySelector("#film").pause());
    // A choice while it stands is kept until it plays.
    await page.select("#sound", "1");
    await seeks(page, [3.5]);
    await page.click("#play");
    await until(page, "the second is heard", is880);
    await close(page);
  }
}

// No browser without a window has such pictures; what is asked of the browser is seen all the same.
async function pictureInPicture(context) {
  const page = await open(context, "about:blank");
  await page.evaluateOnNewDocument(() => {
    let element = null;
    window.calls = [];
    Object.defineProperty(document, "pictureInPictureEnabled", { get: () => !window.isWithout });
    Object.defineProperty(document, "pictureInPictureElement", { get: () => element });
    HTMLVideoElement.prototype.requestPictureInPicture = async function request() {
      window.calls.push(`request ${this.id}`);
      if (window.refuses) {
        throw new DOMException("pictures in pictures are not allowed", "NotAllowedError");
      }
      element = this;
      this.dispatchEvent(new Event("enterpictureinpicture"));
    };
    document.exitPictureInPicture = async () => {
      window.calls.push("exit");
      const was = element;
      element = null;
      was.dispatchEvent(new Event("leavepictureinpicture"));
    };
  });
  await page.goto(new URL(FILM, context.site).href);
  await ready(page);
  const pressed = () => page.$eval("#pip", (it) => it.getAttribute("aria-pressed"));
  const calls = () => page.evaluate(() => window.calls.splice(0).join());
  assert(await page.$eval("#pip", (it) => !it.hidden), "the button is there");
  await page.click("#pip");
  assert(await calls() === "request film" && await pressed() === "true", "it is asked for");
  await page.click("#pip");
  assert(await calls() === "exit" && await pressed() === "false", "it is ended");
  await page.focus("#film");
  await page.keyboard.press("p");
  assert(await calls() === "request film" && await pressed() === "true", "p asks for it");
  // Whoever closes the small window says so.
  await page.evaluate(() => document.exitPictureInPicture());
  assert(await calls() === "exit" && await pressed() === "false", "it was closed");
  await page.evaluate(() => { window.refuses = true; });
  await page.keyboard.press("p");
  await until(page, "it is told why not", () =>
    document.querySelector("#state").textContent === "pictures in pictures are not allowed");
  assert(await pressed() === "false", "the button is not pressed");
  await page.evaluateOnNewDocument(() => { window.isWithout = true; });
  await page.reload();
  await ready(page);
  assert(await page.$eval("#pip", (it) => it.hidden), "where there is none, there is no button");
  await close(page);
  if (context.kind !== "firefox") {
    // By the browser's own, if it says that it has it.
    const own = await open(context, FILM);
    await ready(own);
    const has = await own.evaluate(() => document.pictureInPictureEnabled);
    assert(await own.$eval("#pip", (it) => it.hidden) === !has, "the button is there if it can be");
    console.log(`picture in picture of its own: ${has}`);
    await close(own);
  }
}

// What iPhones have: the full screen of a film alone, no Media Source, and a list of sounds. It is seen
// what is asked of the browser.
async function phone(context) {
  const page = await open(context, "about:blank");
  await page.evaluateOnNewDocument(() => {
    Object.defineProperty(document, "fullscreenEnabled", { get: () => false });
    window.filled = [];
    HTMLVideoElement.prototype.webkitEnterFullscreen = function enter() {
      window.filled.push(this.id);
    };
    delete window.MediaSource;
    window.sounds = Object.assign(new EventTarget(), { length: 0 });
    Object.defineProperty(HTMLMediaElement.prototype, "audioTracks", { get: () => window.sounds });
  });
  await page.goto(new URL("/languages.mp4/hls/index.html", context.site).href);
  await ready(page);
  assert(await page.$eval("#sound-label", (it) => it.hidden), "there is nothing to choose");
  await page.evaluate(() => {
    const all = [{ label: "English", enabled: true }, { label: "", language: "de", enabled: false }];
    Object.assign(window.sounds, all, { length: 2 });
    window.sounds.dispatchEvent(new Event("addtrack"));
  });
  const offered = await page.$$eval("#sound option", (all) => all.map((it) => it.text));
  assert(offered.join() === "English,de", offered.join());
  assert(await page.$eval("#sound-label", (it) => !it.hidden), "the choice is shown");
  for (const [value, expected] of [["1", "false,true"], ["0", "true,false"]]) {
    await page.select("#sound", value);
    const heard = await page.evaluate(() => [0, 1].map((it) => window.sounds[it].enabled).join());
    assert(heard === expected, heard);
  }
  await page.click("#fullscreen");
  await page.focus("#film");
  await page.keyboard.press("f");
  const filled = await page.evaluate(() => window.filled.join());
  assert(filled === "film,film", filled);
  await page.evaluateOnNewDocument(() => {
    delete HTMLVideoElement.prototype.webkitEnterFullscreen;
  });
  await page.reload();
  await ready(page);
  assert(await page.$eval("#fullscreen", (it) => it.hidden), "where there is none, there is no button");
  await close(page);
}

// A folder whose name is not UTF-8, as an old disk may have it.
async function names(context) {
  const page = await open(context, "/z%E9/counting.mp4/hls/index.html?by=mse");
  await ready(page);
  await seeks(page, [15.5, 3.5]);
  assert(await page.$eval("#name", (it) => it.textContent) === "counting.mp4", "its name is told");
  await close(page);
}

// What does not play says why, and a stream that the browser plays itself plays.
async function streams(context) {
  const page = await open(context, "/counting.ts/hls/index.html?by=mse");
  await until(page, "it says why", () => document.querySelector("#state").textContent
    .startsWith("this browser does not play transport streams"));
  await close(page);
  const native = await open(context, "/counting.ts/hls/index.html");
  await ready(native);
  await seeks(native, [15.5, 3.5]);
  await close(native);
}

const checks = {
  looks, controls, keys, addresses, adapts, slows, late, beginsDark, endsEarly, names, streams,
  languages, pictureInPicture, phone,
};
const others = { controls, keys, adapts, late, beginsDark, endsEarly };
await run(process.argv[3] === "firefox" ? others : checks);
