// Plays a film by its playlist: by the browser itself where it can, else by Media Source.
//
// Segments are CMAF, so that nothing is taken apart here: they are fetched in the order of play and
// appended. What is not needed any more is removed, and what is far ahead is not fetched yet.

import { mediaPlaylist, multivariant, segmentAt } from "./playlist.js";

// Seconds that are held ahead of and behind what is shown.
const AHEAD = 30;
const BEHIND = 30;
const PLAYLIST = "application/vnd.apple.mpegurl";

const film = document.getElementById("film");
const state = document.getElementById("state");

function tell(text) {
  state.textContent = text;
}

async function get(url) {
  const response = await fetch(url);
  if (!response.ok) {
    throw new Error(`${new URL(url).pathname}: ${response.status} ${response.statusText}`);
  }
  return response;
}

async function text(url) {
  return (await get(url)).text();
}

// One track: a playlist, and the buffer that its segments go to.
class Track {
  constructor(source, medium, codec) {
    this.buffer = source.addSourceBuffer(`${medium}/mp4; codecs="${codec}"`);
    this.generation = 0;
  }

  // Takes another playlist, from the next segment on.
  async load(url) {
    this.generation += 1;
    const generation = this.generation;
    const playlist = mediaPlaylist(await text(url), url);
    const init = await (await get(playlist.init)).arrayBuffer();
    if (generation !== this.generation) {
      return;
    }
    await this.append(init);
    await this.remove(0, Infinity);
    this.playlist = playlist;
    this.next = undefined;
  }

  idle() {
    if (!this.buffer.updating) {
      return Promise.resolve();
    }
    return new Promise((done) => this.buffer.addEventListener("updateend", done, { once: true }));
  }

  async append(bytes) {
    await this.idle();
    this.buffer.appendBuffer(bytes);
    await this.idle();
  }

  async remove(start, end) {
    await this.idle();
    if (end > start && this.buffer.buffered.length > 0) {
      this.buffer.remove(start, end);
      await this.idle();
    }
  }

  // Until when there is no gap from `time` on.
  bufferedTo(time) {
    const { buffered } = this.buffer;
    for (let at = 0; at < buffered.length; at += 1) {
      if (buffered.start(at) <= time + 0.25 && time < buffered.end(at)) {
        return buffered.end(at);
      }
    }
    return time;
  }

  // Fetches what is needed next; whether there was something.
  async fill(time) {
    const { playlist, generation } = this;
    if (!playlist) {
      return false;
    }
    this.next ??= segmentAt(playlist, this.bufferedTo(time) + 0.05);
    const segment = playlist.segments[this.next];
    if (!segment || segment.start > time + AHEAD) {
      return false;
    }
    const { next } = this;
    const bytes = await (await get(segment.url)).arrayBuffer();
    // Meanwhile somebody may have gone elsewhere.
    if (generation === this.generation && next === this.next) {
      await this.append(bytes);
      await this.remove(0, film.currentTime - BEHIND);
      if (next === this.next) {
        this.next = next + 1;
      }
    }
    return true;
  }

  isWhole() {
    return this.playlist && this.next >= this.playlist.segments.length;
  }
}

async function fillAlways(tracks, source) {
  for (;;) {
    const time = film.currentTime;
    const filled = await Promise.all(tracks.map((track) => track.fill(time)));
    const isWhole = tracks.every((track) => track.isWhole());
    // Whatever is appended later opens it again.
    if (isWhole && source.readyState === "open") {
      source.endOfStream();
    }
    if (!filled.some(Boolean)) {
      await new Promise((done) => setTimeout(done, 200));
    }
  }
}

async function playByMediaSource(main, url) {
  const variant = main.variants.find((it) =>
    MediaSource.isTypeSupported(`video/mp4; codecs="${it.codecs}"`));
  if (!variant) {
    const codecs = main.variants.map((it) => it.codecs).join("; ");
    throw new Error(`this browser does not decode ${codecs}`);
  }
  const source = new MediaSource();
  film.src = URL.createObjectURL(source);
  await new Promise((done) => source.addEventListener("sourceopen", done, { once: true }));
  const sounds = main.sounds.filter((it) => it.group === variant.group);
  const codecs = variant.codecs.split(",");
  const isVideo = Boolean(variant.resolution);
  const tracks = [new Track(source, isVideo ? "video" : "audio", codecs[0])];
  const loads = [tracks[0].load(new URL(variant.uri, url).href)];
  if (sounds.length > 0 && isVideo) {
    const sound = new Track(source, "audio", codecs[1]);
    tracks.push(sound);
    const first = sounds.find((it) => it.isDefault) ?? sounds[0];
    loads.push(sound.load(new URL(first.uri, url).href));
    offerSounds(sounds, first, async (chosen) => {
      await sound.load(new URL(chosen.uri, url).href);
    });
  }
  await Promise.all(loads);
  source.duration = Math.max(...tracks.map((track) => track.playlist.duration));
  film.addEventListener("seeking", () => tracks.forEach((track) => { track.next = undefined; }));
  await fillAlways(tracks, source);
}

function offerSounds(sounds, first, choose) {
  if (sounds.length < 2) {
    return;
  }
  const select = document.getElementById("sound");
  sounds.forEach((it, at) => select.add(new Option(it.name, at, false, it === first)));
  select.addEventListener("change", () => {
    choose(sounds[select.value]).catch((error) => tell(error.message));
  });
  document.getElementById("sound-label").hidden = false;
}

function offerAddresses() {
  const urls = document.getElementById("urls");
  const of = (path) => new URL(path, location.href).href;
  const lines = [["HLS", of("index.m3u8")], ["DASH", of("../dash/manifest.mpd")],
    ["Download", location.href.replace(/\/hls\/[^/]*$/, "")]];
  for (const [name, url] of lines) {
    const line = document.createElement("li");
    const link = document.createElement("a");
    link.href = url;
    link.textContent = url;
    line.append(`${name}: `, link);
    urls.append(line);
  }
}

async function play() {
  const path = decodeURIComponent(location.pathname.replace(/\/hls\/[^/]*$/, ""));
  const name = path.slice(path.lastIndexOf("/") + 1);
  document.title = name;
  document.getElementById("name").textContent = name;
  offerAddresses();
  const speed = document.getElementById("speed");
  speed.addEventListener("change", () => { film.playbackRate = Number(speed.value); });
  film.addEventListener("error", () => tell(film.error?.message ?? "this film does not play"));
  const url = new URL("index.m3u8", location.href).href;
  const wishes = new URLSearchParams(location.search);
  const isNative = film.canPlayType(PLAYLIST) !== "" && wishes.get("by") !== "mse";
  if (isNative) {
    film.src = url;
    return;
  }
  if (!("MediaSource" in window)) {
    throw new Error("this browser plays neither HLS nor Media Source; download the film");
  }
  const main = multivariant(await text(url));
  if (main.variants.length === 0) {
    throw new Error("this browser does not play transport streams; download the film");
  }
  await playByMediaSource(main, url);
}

play().catch((error) => tell(error.message));
