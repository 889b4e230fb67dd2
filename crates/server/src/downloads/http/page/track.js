// One track of a film by Media Source: a playlist, and the buffer that its segments go to.
//
// One loop calls `fill`, and nobody else touches the buffer: who wants another playlist leaves it
// in `pending`.

import { mediaPlaylist, segmentAt } from "./playlist.js";

// Seconds that are held ahead of and behind what is shown.
const AHEAD = 30;
const BEHIND = 30;

// Bytes that are appended at once: a buffer takes as much of a segment as it has room for. If that
// is too little for anything to be shown, it is asked so many times more.
const PIECE_BYTES = 16 * 1024 * 1024;
const REFUSALS_MAX = 5;

// What did not come is asked for again after these times, and more of a film no sooner than this.
const AGAIN_MS = [500, 1000, 2000];
const MORE_MS = 3000;

export function pause(ms) {
  return new Promise((done) => setTimeout(done, ms));
}

export async function get(url, options) {
  const response = await fetch(url, options);
  if (!response.ok) {
    const { status, statusText, headers } = response;
    // Servers say why in plain text.
    const isTold = headers.get("Content-Type")?.startsWith("text/plain");
    const told = isTold ? await response.text().catch(() => "") : "";
    const reason = told.trim() || `${new URL(url).pathname}: ${status} ${statusText}`;
    throw Object.assign(new Error(reason), { status });
  }
  return response;
}

// Whether what has failed may come later: the network has failed, or the server has too much to do.
export function isPassing(error) {
  return error instanceof TypeError || error.status >= 500;
}

// Whether this is had from another server than the page.
export function isElsewhere(url) {
  return new URL(url).origin !== location.origin;
}

// What `ask` brings. Where the network fails, or the server has too much to do, it asks again.
async function patiently(ask) {
  for (const ms of AGAIN_MS) {
    try {
      return await ask();
    } catch (error) {
      if (error.status < 500 || error.name === "AbortError") {
        throw error;
      }
      await pause(ms);
    }
  }
  return ask();
}

function textAt(url) {
  return patiently(async () => (await get(url)).text());
}

function bytesAt(url, options) {
  return patiently(async () => (await get(url, options)).arrayBuffer());
}

export class Track {
  constructor(source, type) {
    this.buffer = source.addSourceBuffer(type);
    this.type = type;
    this.requests = 0;
    this.askedAt = -Infinity;
  }

  // Takes another playlist, from the next segment on. What is held from `clears` on goes.
  async load(url, type, clears = Infinity) {
    this.requests += 1;
    const { requests } = this;
    const playlist = mediaPlaylist(await textAt(url), url);
    const init = await bytesAt(playlist.init);
    // Meanwhile somebody may have wished for another.
    if (requests === this.requests) {
      this.pending = { playlist, init, type, clears };
    }
    return playlist;
  }

  async take({ playlist, init, type, clears }) {
    this.pending = undefined;
    await this.dropRest();
    if (type !== this.type) {
      this.buffer.changeType(type);
      this.type = type;
    }
    await this.append(init);
    await this.remove(clears, Infinity);
    this.playlist = playlist;
    [this.next, this.begins] = [undefined, undefined];
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
      this.buffer.remove(Math.max(start, 0), end);
      await this.idle();
    }
  }

  // Removes the segments before the one that has `time`. Buffers remove up to the next picture that
  // is decoded alone: from within a segment on, that may be what is shown, too.
  async forget(time) {
    const { start } = this.playlist.segments[segmentAt(this.playlist, time)];
    await this.remove(0, start - 0.05);
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

  // The segment to be fetched for whoever is at `time`.
  nextAt(time) {
    return segmentAt(this.playlist, this.bufferedTo(time) + 0.05);
  }

  // What was at hand may be another place, and what is under way of no use at `time`.
  seek(time) {
    if (!this.fetching || this.fetching.number !== this.nextAt(time)) {
      this.next = undefined;
      this.fetching?.controller.abort();
    }
  }

  // Fetches what is needed next; what it took, or nothing if there is nothing to do.
  async fill(film) {
    if (this.pending) {
      await this.take(this.pending);
    }
    const { playlist } = this;
    const time = film.currentTime;
    if (!playlist) {
      return undefined;
    }
    this.next ??= this.nextAt(time);
    const { next } = this;
    if (this.rest && this.rest.next !== next) {
      await this.dropRest();
    }
    if (this.rest) {
      await this.appendRest(film);
      return undefined;
    }
    const segment = playlist.segments[next];
    if (!segment && !playlist.isComplete) {
      await this.loadMore();
    }
    if (!segment || segment.start > time + AHEAD) {
      return undefined;
    }
    const began = performance.now();
    const bytes = await this.bytesOf(next, segment.url);
    if (!bytes) {
      return undefined;
    }
    const took = { bytes: bytes.byteLength, seconds: (performance.now() - began) / 1000 };
    // Meanwhile somebody may have gone elsewhere.
    if (!this.pending && next === this.next) {
      this.rest = { next, bytes, offset: 0, refusals: 0 };
      await this.appendRest(film);
    }
    return took;
  }

  // A segment; nothing of one that nobody wants any more.
  async bytesOf(number, url) {
    const controller = new AbortController();
    this.fetching = { number, controller };
    try {
      return await bytesAt(url, { signal: controller.signal });
    } catch (error) {
      if (error.name !== "AbortError") {
        throw error;
      }
      return undefined;
    } finally {
      this.fetching = undefined;
    }
  }

  // Appends what there is room for of a segment that was fetched.
  async appendRest(film) {
    const { rest } = this;
    const { next, bytes } = rest;
    while (rest.offset < bytes.byteLength) {
      if (this.pending || next !== this.next) {
        return;
      }
      const length = Math.min(bytes.byteLength - rest.offset, PIECE_BYTES);
      try {
        await this.append(new Uint8Array(bytes, rest.offset, length));
      } catch (error) {
        await this.makeRoom(film.currentTime, error);
        return;
      }
      rest.offset += length;
    }
    this.rest = undefined;
    if (next === 0 && this.buffer.buffered.length > 0) {
      // The first segment counts from 0 on, whenever what is in it begins.
      this.begins = this.buffer.buffered.start(0);
    }
    await this.forget(film.currentTime - BEHIND);
    if (next === this.next) {
      this.next = next + 1;
    }
  }

  // What a full buffer refuses waits until some of what it holds was shown.
  async makeRoom(time, error) {
    const { rest } = this;
    const isShown = this.bufferedTo(time) > time;
    rest.refusals = isShown ? 0 : rest.refusals + 1;
    if (error.name !== "QuotaExceededError" || rest.refusals > REFUSALS_MAX) {
      throw error;
    }
    if (!isShown && rest.offset === 0) {
      // It is full of what was at hand elsewhere.
      await this.remove(time + 1, Infinity);
    }
    await this.forget(time);
  }

  // Whoever has gone elsewhere has no use for the rest of a segment.
  async dropRest() {
    if (this.rest?.offset > 0) {
      await this.idle();
      // What comes next would count as its rest.
      this.buffer.abort();
    }
    this.rest = undefined;
  }

  // Asks what follows of a film that is not read to its end yet, or is written still.
  async loadMore() {
    const { url, init } = this.playlist;
    if (performance.now() - this.askedAt < MORE_MS) {
      return;
    }
    this.askedAt = performance.now();
    const more = mediaPlaylist(await textAt(url), url);
    // At its end all of it gets other names.
    if (more.init !== init) {
      await this.append(await bytesAt(more.init));
    }
    this.playlist = more;
  }

  isWhole() {
    const { playlist } = this;
    return !this.pending && Boolean(playlist?.isComplete) && this.next >= playlist.segments.length;
  }

  // When it is over, once all of it has been fetched.
  get ends() {
    const { buffered } = this.buffer;
    return this.isWhole() && buffered.length > 0 ? buffered.end(buffered.length - 1) : undefined;
  }
}
