// Plays a live channel by Media Source, part by part: each track asks for what comes next, and the
// answer waits until it is there (RFC 8216bis, section 6.2.5).

import { livePlaylist } from "./playlist.js";
import { get } from "./track.js";

// Seconds that are kept behind what is shown, and how far behind the newest is too far.
const BEHIND = 60;
const LATE = 3;
const TOO_SOON_MS = 100;

// A track: its buffer, and the parts that go to it.
class LiveTrack {
  constructor(source, type, url) {
    this.buffer = source.addSourceBuffer(type);
    this.url = new URL(url);
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

  async load() {
    const url = new URL(this.url);
    if (this.next) {
      url.searchParams.set("_HLS_msn", this.next.segment);
      url.searchParams.set("_HLS_part", this.next.part);
    }
    // What was waited for may be kept by caches on the way, and is of no more use to this one.
    const text = await (await get(url, { cache: "no-store" })).text();
    return livePlaylist(text, this.url);
  }

  // Fetches until `isEnded` says so. Begins with the last part that a decoder can start in.
  async run(film, isEnded, began) {
    while (!isEnded()) {
      const { parts, targetS } = await this.load();
      this.targetS = targetS;
      let first = parts.findIndex((it) => this.next && (it.segment > this.next.segment
        || (it.segment === this.next.segment && it.part >= this.next.part)));
      if (!this.next) {
        first = parts.findLastIndex((it) => it.isIndependent && it.part === 0);
      }
      if (this.next && first < 0) {
        // A server that answers too soon is not asked again at once.
        await new Promise((next) => setTimeout(next, TOO_SOON_MS));
      }
      for (const part of first < 0 ? [] : parts.slice(first)) {
        if (part.init !== this.init) {
          await this.append(await (await get(part.init)).arrayBuffer());
          this.init = part.init;
        }
        await this.append(await (await get(part.url)).arrayBuffer());
        if (!this.next && this.buffer.buffered.length > 0) {
          began(part, this.buffer.buffered.start(0));
        }
        this.next = { segment: part.segment, part: part.part + 1 };
        if (isEnded()) {
          return;
        }
      }
      this.hasCaughtUp ||= this.next !== undefined;
      await this.forget(film.currentTime - BEHIND);
    }
  }

  async forget(end) {
    await this.idle();
    if (end > 0 && this.buffer.buffered.length > 0 && this.buffer.buffered.start(0) < end) {
      this.buffer.remove(0, end);
      await this.idle();
    }
  }

  end() {
    const { buffered } = this.buffer;
    return buffered.length > 0 ? buffered.end(buffered.length - 1) : 0;
  }
}

export class LivePlayer {
  // `variant` and `sound` are of the multivariant playlist at `url`; `fails` is told what ends it,
  // and `shows` how many seconds what is shown is old.
  constructor(film, { variant, sound }, url, fails, shows) {
    Object.assign(this, { film, variant, sound, url, fails, shows, isFollowing: true });
  }

  async start() {
    const { film, variant, sound, url } = this;
    const source = new MediaSource();
    film.src = URL.createObjectURL(source);
    await new Promise((done) => source.addEventListener("sourceopen", done, { once: true }));
    source.duration = Infinity;
    const [first, second] = variant.codecs.split(",");
    const kind = variant.resolution ? "video" : "audio";
    const of = (it) => new URL(it.uri, url).href;
    this.tracks = [new LiveTrack(source, `${kind}/mp4; codecs="${first}"`, of(variant))];
    if (sound && variant.resolution) {
      this.tracks.push(new LiveTrack(source, `audio/mp4; codecs="${second}"`, of(sound)));
    }
    const began = (part, at) => {
      // When what is at a time of the film was made.
      this.madeAt ??= part.madeMs - at * 1000;
    };
    const isEnded = () => this.isEnded;
    this.tracks.forEach((track) => track.run(film, isEnded, began).catch((error) => {
      this.isEnded = true;
      clearInterval(this.timer);
      this.fails(error);
    }));
    film.addEventListener("seeking", () => this.place());
    film.addEventListener("play", () => this.place());
    this.timer = setInterval(() => this.follow(), 250);
  }

  // The newest time that all tracks have.
  edge() {
    return Math.min(...this.tracks.map((track) => track.end()));
  }

  toEdge() {
    this.film.currentTime = Math.max(this.edge() - 1, 0);
  }

  // Somebody has chosen where to be: near the edge it is followed, farther back it is not. Whoever
  // is late for want of pictures has chosen nothing.
  place() {
    this.isFollowing = this.edge() - this.film.currentTime < LATE;
  }

  follow() {
    const { film } = this;
    const { buffered } = film;
    const edge = this.edge();
    if (edge === 0 || buffered.length === 0) {
      return;
    }
    // What came before the newest comes at once, part by part: who begins within it stays behind.
    if (!this.hasBegun && !this.tracks.every((track) => track.hasCaughtUp)) {
      return;
    }
    // To the edge at the beginning, and over what is missing.
    const last = buffered.start(buffered.length - 1);
    const isBefore = film.currentTime < last && film.readyState < 3;
    if (!this.hasBegun || isBefore) {
      film.currentTime = Math.max(edge - 1, last);
      this.hasBegun = true;
    }
    // A little faster until it has come up, and over what is too much, unless somebody has gone back
    // or has chosen a speed.
    const behind = edge - film.currentTime;
    const isNormal = film.defaultPlaybackRate === 1;
    this.isFollowing &&= isNormal || behind < LATE;
    const follows = this.isFollowing && isNormal && !film.paused;
    if (follows && behind >= LATE) {
      film.currentTime = Math.max(edge - 1, last);
    }
    film.playbackRate = follows && behind > 1.5 ? 1.05 : film.defaultPlaybackRate;
    this.shows((Date.now() - this.madeAt) / 1000 - film.currentTime);
  }
}
