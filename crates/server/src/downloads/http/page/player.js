// The page of a film: by the browser's own HLS where it has it, else by Media Source; and by that,
// too, once a viewer chooses what the browser does not let a page choose.

import { offerAddresses } from "./addresses.js";
import { bindControls } from "./controls.js";
import { LiveChannel } from "./live.js";
import { Player, playable } from "./media_source.js";
import { isLive, mediaPlaylist, multivariant } from "./playlist.js";
import { get, isElsewhere } from "./track.js";

const PLAYLIST = "application/vnd.apple.mpegurl";

// What who sees no film, or no channel, can do.
const DOWNLOAD = "download the film";
const OTHER_PLAYER = "take another player";

// A film of another server of a cluster that waits so long is had from here.
const WAIT_MS = 4000;
// Who has watched until then has not paused it.
const PAUSED_MS = 1000;
// A film that has gone is asked for anew, but not again within this time.
const ANEW_MS = 10_000;
// Where such a film is served, whatever its home is.
const HERE = "redirects=2";

const film = document.getElementById("film");
const state = document.getElementById("state");

let hasFailed = false;

// What has ended a film is not written over.
function tell(text) {
  if (!hasFailed) {
    state.textContent = text;
  }
}

function fails(error) {
  tell(error.message);
  hasFailed = true;
}

// What was told was of what is over.
function forgive() {
  hasFailed = false;
  tell("");
}

async function playOn() {
  try {
    await film.play();
  } catch (error) {
    // Whoever pauses it, or goes elsewhere, before it plays knows.
    if (error.name !== "AbortError") {
      tell(error.message);
    }
  }
}

// A choice of several; hidden while there is none.
function offer(id, options, choose) {
  const select = document.getElementById(id);
  select.replaceChildren(...options.map(([text, value, isChosen]) =>
    new Option(text, value, isChosen, isChosen)));
  select.onchange = () => {
    Promise.resolve(choose(select.value)).catch((error) => tell(error.message));
  };
  document.getElementById(`${id}-label`).hidden = options.length < 2;
}

function undecoded(main, remedy) {
  const codecs = main.variants.map((it) => it.codecs).join("; ");
  return `this browser does not decode ${codecs}; ${remedy}`;
}

// Of a codec that it lacks a browser tells what helps its makers alone. It is asked itself, because
// iPhones have no Media Source.
function unplayable(main, remedy) {
  const decodes = (it) => !it.codecs
    || film.canPlayType(`video/mp4; codecs="${it.codecs}"`) !== "";
  if (main.variants.length > 0 && !main.variants.some(decodes)) {
    return undecoded(main, remedy);
  }
  return film.error?.message || "this film does not play";
}

// What a viewer calls a variant.
function title(variant) {
  const height = variant.resolution?.split("x")[1];
  const rate = `${(variant.rate / 1e6).toFixed(1)} Mbit/s`;
  return height ? `${height}p, ${rate}` : rate;
}

// Plays by Media Source from where the film is, with what was chosen.
class Choices {
  // `here` is where the film is had from the server of this page.
  constructor(main, url, here) {
    Object.assign(this, { main, url, here });
    this.wanted = {};
    [this.shownAt, this.askedAnewAt] = [-Infinity, -Infinity];
  }

  async byMediaSource(time = film.currentTime, isPaused = film.paused) {
    this.player?.end();
    forgive();
    const again = (spans) => {
      this.wanted.spans = spans;
      this.restart();
    };
    const breaks = (error) => this.breaks(error);
    this.player = new Player(film, this.main, this.url, breaks, again, tell);
    await this.player.start(time, this.wanted);
    if (!isPaused) {
      await playOn();
    }
  }

  async restart() {
    await this.byMediaSource().catch((error) => this.breaks(error));
  }

  async byBrowser() {
    forgive();
    film.src = this.url;
  }

  start(isNative) {
    this.isNative = isNative;
    return isNative ? this.byBrowser() : this.byMediaSource();
  }

  // What the film is had from is gone, or does not answer: goes on from here, at the same place.
  // So it does where segments have other names by now, as after a restart or a change of the file.
  breaks(error) {
    const isHere = !isElsewhere(this.url);
    const isAnew = error.status === 404 && performance.now() - this.askedAnewAt > ANEW_MS;
    if (this.isMoving || (isHere && !isAnew)) {
      fails(error);
      return;
    }
    this.isMoving = true;
    if (isHere) {
      this.askedAnewAt = performance.now();
    }
    this.moveHere().catch(fails).finally(() => { this.isMoving = false; });
  }

  async moveHere() {
    // A browser that has lost a film pauses it by itself.
    const isPaused = film.paused && performance.now() - this.shownAt > PAUSED_MS;
    const time = film.currentTime;
    const answer = await get(this.here);
    [this.main, this.url] = [multivariant(await answer.text()), answer.url];
    if (this.isNative && !this.player) {
      await this.byBrowser();
      await new Promise((done) => film.addEventListener("loadedmetadata", done, { once: true }));
      film.currentTime = time;
      if (!isPaused) {
        await playOn();
      }
    } else {
      await this.byMediaSource(time, isPaused);
    }
  }

  // A host that is gone refuses nothing: it is silent.
  watch() {
    let timer;
    film.addEventListener("timeupdate", () => { this.shownAt = performance.now(); });
    const isLate = () => {
      // It may have been had from here since.
      if (isElsewhere(this.url) && !this.isMoving) {
        this.breaks(new Error("the film does not come"));
      }
    };
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(isLate, WAIT_MS);
    };
    if (isElsewhere(this.url)) {
      film.addEventListener("waiting", wait);
      ["playing", "pause", "ended"].forEach((event) =>
        film.addEventListener(event, () => clearTimeout(timer)));
    }
  }

  async quality(value) {
    this.wanted.variant = value === "auto" ? undefined : Number(value);
    if (this.player) {
      await this.player.setQuality(this.wanted.variant);
    } else {
      await this.restart();
    }
  }

  async sound(value) {
    Object.assign(this.wanted, { sound: this.sounds[Number(value)], spans: undefined });
    if (this.player) {
      await this.player.setSound(this.wanted.sound);
    } else {
      await this.restart();
    }
  }

  offer() {
    const of = new Player(film, this.main, this.url, fails);
    this.sounds = of.sounds;
    const variants = of.variants.length < 2 ? [] :
      [["Auto", "auto", true], ...of.variants.map((it, at) => [title(it), at, false])];
    offer("quality", variants, (value) => this.quality(value));
    const sounds = this.sounds.map((it, at) => [it.name, at, it === of.sound]);
    offer("sound", sounds, (value) => this.sound(value));
  }
}

// Of what the browser's own HLS alone plays, sound is chosen where the browser lets a page do that:
// iPhones have no Media Source. Which tracks there are it tells later.
function offerOwnSounds() {
  const { audioTracks } = film;
  const show = () => {
    const tracks = Array.from(audioTracks);
    const sounds = tracks.map((it, at) => [it.label || it.language || `${at + 1}`, at, it.enabled]);
    offer("sound", sounds, (value) => {
      tracks.forEach((it, at) => { it.enabled = at === Number(value); });
    });
  };
  if (audioTracks) {
    ["addtrack", "removetrack"].forEach((it) => audioTracks.addEventListener(it, show));
    show();
  }
}

// Subtitles are WebVTT, which browsers show by themselves.
async function subtitlesOf(it, url) {
  const own = new URL(it.uri, url).href;
  const { segments } = mediaPlaylist(await (await get(own)).text(), own);
  if (segments.length === 0) {
    return [];
  }
  const track = document.createElement("track");
  Object.assign(track, { kind: "subtitles", label: it.name, srclang: it.language ?? "" });
  // All of them lie beside the segments.
  track.src = segments[0].url.replace(/[^/?]*\.vtt/, "all.vtt");
  return [track];
}

// Offers those that come; for the others nobody waits.
async function offerSubtitles(main, url) {
  const loads = main.subtitles.map((it) => subtitlesOf(it, url).catch(() => []));
  const tracks = (await Promise.all(loads)).flat();
  film.append(...tracks);
  const names = tracks.map((it, at) => [it.label, at, false]);
  offer("subtitles", names.length > 0 ? [["Off", -1, true], ...names] : [], (value) => {
    tracks.forEach((it, at) => {
      it.track.mode = at === Number(value) ? "showing" : "disabled";
    });
  });
}

// Where more follows and what was goes it is a channel, and no film. A manifest there is of films
// that are known to their end, but not of transport streams, whose playlists tell no codec.
async function kindOf(text, main, url) {
  const [first] = main.variants;
  const media = first ? await (await get(new URL(first.uri, url).href)).text() : text;
  const hasManifest = main.variants.every((it) => it.codecs)
    && mediaPlaylist(media, url).isComplete;
  return { isChannel: isLive(media), hasManifest };
}

// By Media Source where that can be: it is nearer to the newest than the browser's own.
async function playLive(main, url, by) {
  const edge = document.getElementById("edge");
  edge.hidden = false;
  const toEnd = () => {
    const { seekable } = film;
    if (seekable.length > 0) {
      film.currentTime = seekable.end(seekable.length - 1) - 1;
    }
  };
  if (playable(main).length > 0 && by !== "native") {
    const latency = document.getElementById("latency");
    const channel = new LiveChannel(film, url, fails, (seconds) => {
      latency.textContent = `${Math.max(seconds, 0).toFixed(1)} s behind`;
    });
    edge.addEventListener("click", () => channel.toEdge());
    await channel.begin(main);
    return;
  }
  if (film.canPlayType(PLAYLIST) === "") {
    throw new Error(`this browser does not play this channel; ${OTHER_PLAYER}`);
  }
  film.addEventListener("error", () => fails(new Error(unplayable(main, OTHER_PLAYER))));
  edge.addEventListener("click", toEnd);
  film.src = url;
}

// A name that is not UTF-8 is shown as it stands in the address.
function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

async function play() {
  const path = decoded(location.pathname.replace(/\/hls\/[^/]*$/, ""));
  const name = path.slice(path.lastIndexOf("/") + 1);
  document.title = `${name} - Onrush`;
  document.getElementById("name").textContent = name;
  const wishes = new URLSearchParams(location.search);
  const by = wishes.get("by");
  wishes.delete("by");
  const page = new URL(location.href);
  // A signature, if there is one, is for all of the film.
  page.search = String(wishes) === "" ? "" : page.search.replace(/([?&])by=[^&]*&?/, "$1");
  page.hash = "";
  bindControls(film, tell);
  const asked = `${new URL("index.m3u8", page).href}${page.search}`;
  const here = `${asked}${page.search ? "&" : "?"}${HERE}`;
  // A server of a cluster sends on to the one that has the film, which may be gone by then.
  const answer = await get(asked).catch((error) => {
    if (error instanceof TypeError) {
      return get(here);
    }
    throw error;
  });
  const { url } = answer;
  const text = await answer.text();
  const main = multivariant(text);
  const kind = await kindOf(text, main, url);
  offerAddresses(document.getElementById("urls"), page.href, kind);
  if (kind.isChannel) {
    await playLive(main, url, by);
    return;
  }
  const choices = new Choices(main, url, here);
  film.addEventListener("error", () =>
    choices.breaks(new Error(unplayable(choices.main, DOWNLOAD))));
  choices.watch();
  if (playable(main).length > 0) {
    choices.offer();
  } else {
    offerOwnSounds();
  }
  // Those of another server a browser would not show.
  offerSubtitles(main, here);
  if (film.canPlayType(PLAYLIST) !== "" && by !== "mse") {
    await choices.start(true);
    return;
  }
  if (!("MediaSource" in window)) {
    throw new Error(`this browser plays neither HLS nor Media Source; ${DOWNLOAD}`);
  }
  // Of these playlists tell no codec.
  if (main.variants.every((it) => !it.codecs)) {
    throw new Error(`this browser does not play transport streams; ${DOWNLOAD}`);
  }
  if (playable(main).length === 0) {
    throw new Error(undecoded(main, DOWNLOAD));
  }
  await choices.start(false);
}

play().catch(fails);
