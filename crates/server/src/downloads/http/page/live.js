// Plays a live channel by Media Source, part by part: each track asks for what comes next, and the
// answer waits until it is there (RFC 8216bis, section 6.2.5).
//
// What fails is asked for again: servers wait for a publisher that is away. A track of which what
// follows has gone meanwhile, or that has no room, begins anew at the newest. Where a publisher
// comes back with other tracks, or sound pauses, all of it begins anew.

import { playable } from "./media_source.js";
import { livePlaylist, multivariant } from "./playlist.js";
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

// Sound has paused if it is so many seconds behind the pictures, and nothing of it has come for so
// long. How often it is looked whether it is back, or pictures are that had ceased.
const SOUND_LATE = 5;
const SOUND_MS = 3000;
const LOOK_MS = 30_000;

// What a browser gives up so soon after it has begun, it does not decode.
const SOON_MS = 10_000;

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
  // that is; `lacks` that there is no such thing.
  async run(film, isEnded, began, lacks) {
    let failsSince;
    while (!isEnded()) {
      try {
        await this.fetchNext(film, isEnded, began);
        failsSince = undefined;
      } catch (error) {
        if (isEnded()) {
          return;
        }
        failsSince ??= performance.now();
        if (film.error || performance.now() - failsSince > FAILING_MS_MAX) {
          throw error;
        }
        if (error.name === "QuotaExceededError") {
          await this.clear();
        }
        if (error.status === 404) {
          await lacks?.();
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
    const begun = parts.findLastIndex((it) => it.isIndependent && it.part === 0);
    // Where no segment begins with a picture that can be shown alone, in one there may be some.
    return begun >= 0 ? begun : parts.findLastIndex((it) => it.isIndependent);
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

  // Lets go of what was shown long ago. If that is all, what is shown is of another clock.
  async forget(end) {
    await this.idle();
    if (end > 0 && end < this.end() && this.start() < end) {
      this.buffer.remove(0, end);
      await this.idle();
    }
  }

  start() {
    const { buffered } = this.buffer;
    return buffered.length > 0 ? buffered.start(0) : 0;
  }

  end() {
    const { buffered } = this.buffer;
    return buffered.length > 0 ? buffered.end(buffered.length - 1) : 0;
  }

  // Seconds that are held ahead of what is shown, if anything of this is shown yet.
  ahead(film) {
    return this.end() - Math.max(film.currentTime, this.start());
  }
}

export class LivePlayer {
  // `variant` and `sound` are of the multivariant playlist at `url`; `fails` is told what ends it,
  // and `shows` how many seconds what is shown is old; `lacks` that a track is not there any more,
  // and `pauses` that sound has paused.
  constructor(film, { variant, sound }, url, fails, shows, { lacks, pauses } = {}) {
    Object.assign(this, { film, variant, sound, url, fails, shows, lacks, pauses });
    [this.isFollowing, this.isEnded] = [true, false];
    this.places = () => this.place();
  }

  async start() {
    const { film, variant, sound, url } = this;
    const source = new MediaSource();
    this.object = URL.createObjectURL(source);
    film.src = this.object;
    await new Promise((done) => source.addEventListener("sourceopen", done, { once: true }));
    if (this.isEnded) {
      return;
    }
    this.source = source;
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
    this.tracks.forEach((track) => track.run(film, isEnded, began, this.lacks).catch((error) => {
      if (!this.isEnded) {
        this.end();
        this.fails(error);
      }
    }));
    ["seeking", "play"].forEach((it) => film.addEventListener(it, this.places));
    this.timer = setInterval(() => this.follow(), 250);
  }

  end() {
    this.isEnded = true;
    clearInterval(this.timer);
    ["seeking", "play"].forEach((it) => this.film.removeEventListener(it, this.places));
    URL.revokeObjectURL(this.object);
  }

  // The newest time that all tracks have.
  edge() {
    return Math.min(...this.tracks.map((track) => track.end()));
  }

  toEdge() {
    if (this.tracks && !this.isEnded) {
      this.film.currentTime = Math.max(this.edge() - 1, 0);
    }
  }

  // Somebody has chosen where to be: near the edge it is followed, farther back it is not. Whoever
  // is late for want of pictures has chosen nothing.
  place() {
    this.isFollowing = this.edge() - this.film.currentTime < LATE;
  }

  // Whether nothing comes of sound though pictures come: a browser waits for it.
  hasLostSound() {
    const [pictures, sound] = this.tracks;
    if (!sound || !pictures.hasCaughtUp) {
      return false;
    }
    const [heard, shown, now] = [sound.end(), pictures.end(), performance.now()];
    if (heard !== this.last?.heard || shown - heard < SOUND_LATE) {
      this.last = { heard, shown, now };
    }
    return shown > this.last.shown && now - this.last.now > SOUND_MS;
  }

  // One can go to what all tracks have. What browsers take for that begins at 0.
  tellReach(edge) {
    const start = Math.max(...this.tracks.map((track) => track.start()));
    if (this.source.readyState === "open" && start < edge) {
      this.source.setLiveSeekableRange?.(start, edge);
    }
  }

  follow() {
    const { film } = this;
    if (this.hasLostSound()) {
      this.pauses();
      return;
    }
    const { buffered } = film;
    const edge = this.edge();
    if (edge === 0 || buffered.length === 0) {
      return;
    }
    this.tellReach(edge);
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

// Of a multivariant playlist, what is played of it.
function chosen(main) {
  const [variant] = playable(main);
  const sound = main.sounds.find((it) => it.group === variant?.group);
  return { variant, sound: variant?.resolution ? sound : undefined };
}

// What its buffers are made for.
function named({ variant, sound }) {
  const [first, second] = variant?.codecs.split(",") ?? [];
  return [variant?.uri, first, sound?.uri, sound && second].join(" ");
}

// A channel for as long as it goes on: where it does in another codec, without sound, or with it
// again, what plays it is made anew.
export class LiveChannel {
  // `url` is that of the multivariant playlist; `fails` is told what ends the channel, and `shows`
  // how many seconds what is shown is old.
  constructor(film, url, fails, shows) {
    Object.assign(this, { film, url, fails, shows, isPaused: film.paused });
    film.addEventListener("play", () => {
      // Who plays it for the first time has chosen nothing by having waited; to go back is a choice.
      if (!this.hasPlayed && this.player?.hasBegun && this.player.isFollowing) {
        this.toEdge();
      }
      [this.hasPlayed, this.isPaused] = [true, false];
    });
    // A browser that has lost what it plays may pause that by itself.
    film.addEventListener("pause", () => { this.isPaused ||= !film.error; });
  }

  async load() {
    const answer = await get(this.url, { cache: "no-store" });
    return multivariant(await answer.text());
  }

  // Begins with what a multivariant playlist names, or with the pictures of it alone.
  async begin(main, isSilent = false) {
    this.player?.end();
    const { variant, sound } = chosen(main);
    if (!variant) {
      this.end(new Error("this browser does not play this channel; take another player"));
      return;
    }
    this.of = { variant, sound: isSilent ? undefined : sound };
    this.begunAt = performance.now();
    clearInterval(this.timer);
    if (!this.of.sound) {
      this.timer = setInterval(() => this.look(), LOOK_MS);
    }
    const { film, of, url, shows } = this;
    const changes = { lacks: () => this.look(), pauses: () => this.begin(main, true) };
    const breaks = (error) => this.breaks(error);
    this.player = new LivePlayer(film, of, url, breaks, shows, changes);
    try {
      await this.player.start();
    } catch (error) {
      this.end(error);
      return;
    }
    if (!this.isPaused) {
      // A browser that does not let it waits for a click.
      film.play().catch(() => undefined);
    }
  }

  // Ends for good.
  end(error) {
    this.isEnded = true;
    clearInterval(this.timer);
    this.player?.end();
    this.fails(error);
  }

  // Looks what there is now, and begins anew if that is something else.
  async look() {
    if (this.isLooking || this.isEnded) {
      return;
    }
    this.isLooking = true;
    // What does not come is asked for again by who has missed it.
    const main = await this.load().catch(() => undefined);
    this.isLooking = false;
    if (main && !this.isEnded && named(chosen(main)) !== named(this.of)) {
      await this.begin(main);
    }
  }

  // What played it has ended. Where the browser has given it up, it may be another by now.
  async breaks(error) {
    const { film, begunAt } = this;
    if (!film.error) {
      this.end(error);
      return;
    }
    const reason = film.error.message ? new Error(film.error.message) : error;
    const since = performance.now();
    let main;
    while (!main && performance.now() - since < FAILING_MS_MAX) {
      main = await this.load().catch(() => pause(AGAIN_MS));
    }
    const isSame = main && named(chosen(main)) === named(this.of);
    if (!main || (isSame && since - begunAt < SOON_MS)) {
      this.end(reason);
    } else {
      await this.begin(main);
    }
  }

  // To the newest.
  toEdge() {
    this.player?.toEdge();
  }
}
