// Plays a live channel by Media Source, part by part: each track asks for what comes next, and the
// answer waits until it is there (RFC 8216bis, section 6.2.5).
//
// What fails is asked for again: servers wait for a publisher that is away. A track of which what
// follows has gone meanwhile, or that has no room, begins anew at the newest.

import { livePlaylist } from "./playlist.js";
import { get, pause } from "./track.js";

// Seconds that are kept behind what is shown and, while it is paused, ahead of it; and how far
// behind the newest is too far.
const BEHIND = 60;
const AHEAD = 30;
const LATE = 3;
const TOO_SOON_MS = 100;
const PAUSED_MS = 250;

// When what fails is asked for again, and after how long it is told instead. A server waits a
// minute for a publisher.
const AGAIN_MS = 1000;
const FAILING_MS_MAX = 60_000;

// A track: its buffer, and the parts that go to it.
export class LiveTrack {
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

  // Fetches until `isEnded` says so. `began` is told the part that it begins with, and at which time
  // that is.
  async run(film, isEnded, began) {
    let failsSince;
    while (!isEnded()) {
      try {
        await this.fetchNext(film, isEnded, began);
        failsSince = undefined;
      } catch (error) {
        failsSince ??= performance.now();
        if (film.error || performance.now() - failsSince > FAILING_MS_MAX) {
          throw error;
        }
        if (error.name === "QuotaExceededError") {
          await this.clear();
        }
        await pause(AGAIN_MS);
      }
    }
  }

  async fetchNext(film, isEnded, began) {
    if (film.paused && this.ahead(film) > AHEAD) {
      await pause(PAUSED_MS);
      return;
    }
    const { parts } = await this.load();
    const first = await this.first(parts);
    if (first < 0) {
      // A server that answers too soon is not asked again at once.
      await pause(TOO_SOON_MS);
      return;
    }
    for (const part of parts.slice(first)) {
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
    this.hasCaughtUp = true;
    await this.forget(film.currentTime - BEHIND);
  }

  // The number of the part to go on with, or of the last that a decoder can start in; below 0 if it
  // is not there yet.
  async first(parts) {
    const { next } = this;
    if (next) {
      const first = parts.findIndex((it) => it.segment > next.segment
        || (it.segment === next.segment && it.part >= next.part));
      const it = parts[first];
      const follows = !it || (it.segment === next.segment && it.part === next.part)
        || (it.segment === next.segment + 1 && it.part === 0);
      if (follows) {
        return first;
      }
      await this.clear();
    }
    return parts.findLastIndex((it) => it.isIndependent && it.part === 0);
  }

  // Begins anew.
  async clear() {
    [this.next, this.hasCaughtUp] = [undefined, false];
    await this.idle();
    if (this.buffer.buffered.length > 0) {
      this.buffer.remove(0, Infinity);
      await this.idle();
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

  // Seconds that are held ahead of what is shown, if anything of this is shown yet.
  ahead(film) {
    const { buffered } = this.buffer;
    const start = buffered.length > 0 ? buffered.start(0) : 0;
    return this.end() - Math.max(film.currentTime, start);
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
      this.madeAt = part.madeMs - at * 1000;
      [this.hasBegun, this.isFollowing] = [false, true];
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
