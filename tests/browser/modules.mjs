// The modules of the player that know no browser, function by function.

import { readFileSync } from "node:fs";
import { test } from "node:test";
import assert from "node:assert/strict";

const folder = new URL("../../crates/server/src/downloads/http/page/", import.meta.url);

// As a module, whatever its folder says, with those that it imports.
function source(name) {
  const text = readFileSync(new URL(name, folder), "utf8");
  const whole = text.replace(/from "\.\/(.*?)"/g, (_, of) => `from "${source(of)}"`);
  return `data:text/javascript,${encodeURIComponent(whole)}`;
}

function load(name) {
  return import(source(name));
}

const { Throughput, choose, first } = await load("adapt.js");
const { LivePlayer, LiveTrack } = await load("live.js");
const { mediaPlaylist, multivariant, segmentAt } = await load("playlist.js");
const { Track } = await load("track.js");

const RATES = [4_000_000, 1_000_000, 2_000_000];

test("what is fetched fits what comes, and changes not to and fro", () => {
  for (const [now, bps, held, expected] of [
    // Nothing measured yet, or nothing to choose.
    [0, undefined, 20, 0],
    // Faster than needed: higher once enough is held.
    [1, 9e6, 20, 0],
    [1, 9e6, 5, 1],
    [1, 3e6, 20, 2],
    // Slower: lower once little is held.
    [0, 1.5e6, 20, 0],
    [0, 1.5e6, 5, 1],
    [0, 3e6, 5, 2],
    // Slower than all: the least.
    [0, 1e5, 5, 1],
    [2, 2.8e6, 20, 2],
  ]) {
    assert.equal(choose(RATES, now, bps, held), expected, `${now} ${bps} ${held}`);
  }
  assert.equal(choose([5], 0, 1, 0), 0);
});

test("it begins with what most lines carry", () => {
  assert.equal(first(RATES), 2);
  assert.equal(first([9e6, 8e6]), 1);
  assert.equal(first([100]), 0);
});

test("throughput is a mean that forgets", () => {
  const throughput = new Throughput();
  throughput.add(100, 1);
  assert.equal(throughput.bps, undefined, "what is small says nothing");
  throughput.add(125_000, 1);
  assert.equal(throughput.bps, 1e6);
  for (let at = 0; at < 20; at += 1) {
    throughput.add(250_000, 1);
  }
  assert.ok(Math.abs(throughput.bps - 2e6) < 1000);
  throughput.add(250_000, 0);
  assert.ok(Number.isFinite(throughput.bps));
});

const MAIN = `#EXTM3U
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="x, y=\\"z",LANGUAGE="en",DEFAULT=YES,URI="a.m3u8"
#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="s",NAME="English",URI="s.m3u8"
#EXT-X-MEDIA:TYPE=CLOSED-CAPTIONS,GROUP-ID="c",NAME="no"
#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS="avc1.4d,mp4a.40.2",RESOLUTION=2x1,AUDIO="a"
v.m3u8?x=y
`.replace('\\"', "'");

test("multivariant playlists are read", () => {
  for (const text of [MAIN, MAIN.replaceAll("\n", "\r\n")]) {
    const { variants, sounds, subtitles } = multivariant(text);
    assert.deepEqual(variants, [{
      uri: "v.m3u8?x=y", codecs: "avc1.4d,mp4a.40.2", resolution: "2x1", group: "a", rate: 5,
    }]);
    assert.equal(sounds[0].name, "x, y='z");
    assert.equal(sounds[0].isDefault, true);
    assert.equal(subtitles[0].uri, "s.m3u8");
  }
  assert.equal(multivariant("#EXTM3U\n#EXTINF:1,\na.ts\n").variants.length, 0);
});

test("sounds are offered that are decoded, in whichever group", async () => {
  globalThis.window = globalThis;
  const { Player, playable } = await load("media_source.js");
  const media = (group, name, rest = "") =>
    `#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="${group}",NAME="${name}",URI="${name}"${rest}\n`;
  const variant = (group, codec) =>
    `#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS="avc1,${codec}",AUDIO="${group}"\nv\n`;
  const main = multivariant(`#EXTM3U\n${media("a", "en", ",DEFAULT=YES") + media("a", "de")
    + media("b", "de", ",DEFAULT=YES") + media("b", "fr") + variant("a", "ac-3") + variant("b", "mp4a")}`);
  const offered = (lacks) => {
    globalThis.MediaSource = { isTypeSupported: (type) => !type.includes(lacks) };
    const player = new Player({}, main, "http://h/index.m3u8", () => {});
    assert.equal(player.variants.length, 1);
    assert.equal(player.sound, player.sounds[0]);
    return player.sounds.map((it) => `${it.name} ${player.soundType(it)}`);
  };
  const [ac3, mp4a] = ["ac-3", "mp4a"].map((it) => `audio/mp4; codecs="${it}"`);
  assert.deepEqual(offered("flac"), [`en ${ac3}`, `de ${ac3}`, `fr ${mp4a}`]);
  assert.deepEqual(offered("ac-3"), [`de ${mp4a}`, `fr ${mp4a}`]);
  assert.deepEqual(offered("mp4a"), [`en ${ac3}`, `de ${ac3}`]);
  globalThis.MediaSource = { isTypeSupported: () => false };
  assert.equal(playable(main).length, 0);
});

test("media playlists are read, and times found in them", () => {
  const text = '#EXTM3U\n#EXT-X-MAP:URI="i.mp4"\n#EXTINF:6.5,\n1.m4s\n#EXTINF:2,\n../2.m4s\n';
  const playlist = mediaPlaylist(text, "http://h/a/b/p.m3u8");
  assert.equal(playlist.init, "http://h/a/b/i.mp4");
  assert.deepEqual(playlist.segments.map((it) => [it.url, it.start]),
    [["http://h/a/b/1.m4s", 0], ["http://h/a/2.m4s", 6.5]]);
  assert.equal(playlist.duration, 8.5);
  assert.equal(playlist.isComplete, false);
  assert.equal(mediaPlaylist(`${text}#EXT-X-ENDLIST\n`, "http://h/a/b/p.m3u8").isComplete, true);
  for (const [time, number] of [[-1, 0], [0, 0], [6.4, 0], [6.5, 1], [99, 1]]) {
    assert.equal(segmentAt(playlist, time), number, `${time}`);
  }
  assert.equal(segmentAt({ segments: [] }, 3), 0);
});

// Segments that began before the page came are fetched at once, so that the end of what is there
// runs ahead for a moment.
test("a channel begins at its newest picture, not at the first that comes", () => {
  let [end, told] = [0, undefined];
  const range = { length: 1, start: () => 0, end: () => end };
  const film = { buffered: range, currentTime: 0, readyState: 4, defaultPlaybackRate: 1 };
  const player = new LivePlayer(film, {}, "", () => {}, (seconds) => { told = seconds; });
  const track = { end: () => end };
  player.tracks = [track];
  player.madeAt = 0;
  for (end of [0, 0.5, 5.5]) {
    player.follow();
    assert.deepEqual([film.currentTime, told], [0, undefined], `at ${end}`);
  }
  track.hasCaughtUp = true;
  player.follow();
  assert.equal(film.currentTime, 4.5);
  assert.ok(told > 0);
  // From then on nobody is moved who plays a little behind.
  end = 6.5;
  player.follow();
  assert.deepEqual([film.currentTime, film.playbackRate], [4.5, 1.05]);
  // Too late for want of pictures, it comes up; paused, at a speed or gone back by choice it does not.
  end = 20;
  film.paused = true;
  player.follow();
  assert.equal(film.currentTime, 4.5);
  film.paused = false;
  player.follow();
  assert.equal(film.currentTime, 19);
  film.currentTime = 10;
  player.place();
  player.follow();
  assert.deepEqual([film.currentTime, film.playbackRate], [10, 1]);
  player.toEdge();
  player.place();
  film.defaultPlaybackRate = 0.5;
  for (const [at, rate] of [[30, 0.5], [30, 1]]) {
    [end, film.defaultPlaybackRate] = [at, rate];
    player.follow();
    assert.deepEqual([film.currentTime, film.playbackRate], [19, rate], `at ${rate}`);
  }
});

// A clock on which waits pass at once, for as long as `check` takes.
async function withClock(check) {
  const { setTimeout } = globalThis;
  const clock = { now: 0 };
  globalThis.setTimeout = (done, ms) => {
    clock.now += ms;
    setImmediate(done);
  };
  Object.defineProperty(performance, "now", { value: () => clock.now, configurable: true });
  try {
    await check(clock);
  } finally {
    globalThis.setTimeout = setTimeout;
    delete performance.now;
  }
}

// A buffer to which segments of so many seconds go. What it is given is the path of each.
class MediaBuffer {
  constructor(seconds) {
    Object.assign(this, { seconds, taken: [], removed: 0, held: 0, updating: false });
  }

  get buffered() {
    return { length: this.held > 0 ? 1 : 0, start: () => 0, end: () => this.held };
  }

  appendBuffer(bytes) {
    const path = new TextDecoder().decode(bytes);
    if (this.held >= this.room) {
      throw Object.assign(new Error("no room"), { name: "QuotaExceededError" });
    }
    this.taken.push(path);
    this.held += path.includes("init") ? 0 : this.seconds;
  }

  remove(start, end) {
    if (end === Infinity) {
      [this.held, this.removed] = [0, this.removed + 1];
    }
  }
}

// From now on what is fetched is what `answer` says of its path: a text, bytes, a status, or an
// error.
function serve(answer) {
  globalThis.fetch = async (url) => {
    const { pathname } = new URL(url);
    const told = answer(pathname);
    if (told instanceof Error) {
      throw told;
    }
    const isNumber = typeof told === "number";
    const status = isNumber ? told : 200;
    const bytes = typeof told === "string" ? new TextEncoder().encode(told).buffer : told;
    return {
      ok: !isNumber, status, statusText: "", text: async () => told, arrayBuffer: async () => bytes,
    };
  };
}

// A channel whose newest segment, of two parts, is another each time that its playlist is asked for.
class Channel {
  constructor() {
    Object.assign(this, { newest: 100, asked: 0, independent: ",INDEPENDENT=YES" });
    this.buffer = new MediaBuffer(1);
    this.track = new LiveTrack({ addSourceBuffer: () => this.buffer }, "", "http://h/index.m3u8");
    this.film = { paused: false, currentTime: 0 };
    this.begun = [];
    serve((path) => this.refuses?.(path) ?? (path === "/index.m3u8" ? this.playlist() : path));
  }

  playlist() {
    this.asked += 1;
    this.newest += 1;
    const of = (it) => `#EXT-X-PART:DURATION=1,URI="${it}.0.m4s"${this.independent}\n`
      + `#EXT-X-PART:DURATION=1,URI="${it}.1.m4s"\n#EXTINF:2,\n${it}.m4s\n`;
    const first = this.newest - 2;
    return `#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:${first}\n#EXT-X-MAP:URI="init.mp4"\n`
      + [first, first + 1, first + 2].map(of).join("");
  }

  run(isEnded) {
    const began = (part) => this.begun.push(part.segment);
    return this.track.run(this.film, () => isEnded() || this.asked > 200, began);
  }
}

test("a channel that does not come is waited for, and told after a minute", () =>
  withClock(async (clock) => {
    const channel = new Channel();
    let [until, failed] = [0, 0];
    channel.refuses = () => {
      failed += clock.now < until ? 1 : 0;
      return clock.now < until ? [503, new TypeError("network")][failed % 2] : undefined;
    };
    await channel.run(() => channel.asked > 5);
    until = clock.now + 50_000;
    await channel.run(() => channel.asked > 10);
    assert.equal(channel.asked, 11);
    assert.ok(clock.now >= 50_000, `${clock.now}`);
    const inOrder = [101, 102, 103].flatMap((it) => [`/${it}.0.m4s`, `/${it}.1.m4s`]);
    assert.deepEqual(channel.buffer.taken.slice(0, 7), ["/init.mp4", ...inOrder]);
    assert.deepEqual([channel.begun, channel.buffer.removed], [[101], 0]);
    until = Infinity;
    const since = clock.now;
    await assert.rejects(channel.run(() => false), /503|network/);
    assert.ok(clock.now - since > 60_000 && clock.now - since < 65_000, `${clock.now - since}`);
  }));

test("a channel begins anew where what follows has gone, or no room is", () =>
  withClock(async (clock) => {
    const channel = new Channel();
    await channel.run(() => channel.asked > 3);
    const before = clock.now;
    channel.newest += 1000;
    await channel.run(() => channel.asked > 6);
    assert.deepEqual([channel.begun, channel.buffer.removed], [[101, 1105], 1]);
    assert.equal(clock.now, before, "nobody waits");
    channel.buffer.room = channel.buffer.held + 4;
    await channel.run(() => channel.asked > 12);
    assert.equal(channel.buffer.removed, 2);
    assert.equal(channel.begun.length, 3);
    assert.ok(channel.asked < 20 && clock.now > before, "it goes on");
  }));

test("a channel that is paused holds no more than it needs", () =>
  withClock(async (clock) => {
    const channel = new Channel();
    // What came long after the channel began is shown nowhere yet.
    channel.film = { paused: true, currentTime: 0 };
    await channel.run(() => clock.now > 20_000);
    assert.ok(clock.now > 20_000 && channel.buffer.held < 35, `${channel.buffer.held}`);
    channel.film.paused = false;
    const { asked } = channel;
    await channel.run(() => channel.asked > asked + 10);
    assert.ok(channel.buffer.held > 45, "it goes on");
  }));

test("a channel without a picture to begin with is not asked at once again", () =>
  withClock(async (clock) => {
    const channel = new Channel();
    channel.independent = "";
    await channel.run(() => clock.now > 2000);
    assert.ok(channel.asked < 25, `${channel.asked}`);
  }));

const WRITTEN = `#EXTM3U
#EXT-X-PLAYLIST-TYPE:EVENT
#EXT-X-MAP:URI="init.mp4"
#EXTINF:6,
1.m4s
`;

test("a film that is written still is asked for more until its end", () =>
  withClock(async (clock) => {
    let [text, asked] = [WRITTEN, 0];
    serve((path) => {
      asked += path === "/index.m3u8" ? 1 : 0;
      return path === "/index.m3u8" ? text : path;
    });
    const buffer = new MediaBuffer(6);
    const track = new Track({ addSourceBuffer: () => buffer }, "");
    await track.load("http://h/index.m3u8", "");
    const film = { currentTime: 0 };
    const fill = async (times) => {
      for (let time = 0; time < times; time += 1) {
        await track.fill(film);
      }
      return [asked, buffer.held, Boolean(track.isWhole())];
    };
    assert.deepEqual(await fill(5), [2, 6, false]);
    clock.now += 3000;
    text += "#EXTINF:6,\n2.m4s\n";
    assert.deepEqual(await fill(5), [3, 12, false]);
    clock.now += 3000;
    text += "#EXTINF:6,\n3.m4s\n#EXT-X-ENDLIST\n";
    assert.deepEqual(await fill(5), [4, 18, true]);
    assert.deepEqual(buffer.taken, ["/init.mp4", "/1.m4s", "/2.m4s", "/3.m4s"]);

    const { Player } = await load("media_source.js");
    const player = Object.assign(Object.create(Player.prototype), { tracks: [track], duration: 6 });
    const source = { readyState: "open", duration: 18.02 };
    player.grow(source);
    assert.deepEqual([player.duration, source.duration], [18, 18.02]);
  }));

test("a segment that does not come is asked for again, and one that is gone is not", () =>
  withClock(async (clock) => {
    let fails = [];
    serve((path) => {
      const failed = path === "/1.m4s" ? fails.shift() : undefined;
      return failed ?? (path === "/index.m3u8" ? `${WRITTEN}#EXT-X-ENDLIST\n` : path);
    });
    const fill = async (...all) => {
      fails = all;
      const track = new Track({ addSourceBuffer: () => new MediaBuffer(6) }, "");
      await track.load("http://h/index.m3u8", "");
      await track.fill({ currentTime: 0 });
      return track.isWhole();
    };
    assert.ok(await fill(new TypeError("network"), 503, 502));
    assert.ok(clock.now >= 3500, `${clock.now}`);
    await assert.rejects(fill(503, 503, 503, 503), /503/);
    const before = clock.now;
    await assert.rejects(fill(404), /404/);
    assert.equal(clock.now, before);
  }));

const MIB = 1024 * 1024;

// A buffer that has room for so many MiB of a film of which each lasts a second, in segments of 20.
// Of what is shown it lets go itself, as browsers do.
class SmallBuffer {
  constructor(film, room) {
    Object.assign(this, { film, room, start: 0, end: 0, largest: 0, aborted: 0, updating: false });
  }

  get buffered() {
    return { length: this.end > this.start ? 1 : 0, start: () => this.start, end: () => this.end };
  }

  appendBuffer(bytes) {
    if (bytes.byteLength < MIB) {
      return;
    }
    // The first byte of a segment is its number.
    const [number] = ArrayBuffer.isView(bytes) ? bytes : new Uint8Array(bytes);
    const from = number > 0 ? (number - 1) * 20 : this.end;
    if (this.film.currentTime < this.end) {
      this.start = Math.max(this.start, Math.floor(this.film.currentTime));
    }
    const held = this.end - this.start;
    const more = bytes.byteLength / MIB;
    if (held + more > this.room) {
      throw Object.assign(new Error("no room"), { name: "QuotaExceededError" });
    }
    assert.ok(held === 0 || from === this.end, `${from} behind ${this.end}`);
    [this.start, this.end] = [held === 0 ? from : this.start, from + more];
    this.largest = Math.max(this.largest, more);
  }

  remove(start, end) {
    if (start <= this.start) {
      this.start = Math.min(Math.max(this.start, end), this.end);
    } else {
      this.end = Math.max(Math.min(this.end, start), this.start);
    }
  }

  abort() {
    this.aborted += 1;
  }
}

// A film of four such segments, and how many of them were fetched.
async function large(room) {
  const film = { currentTime: 0 };
  const buffer = new SmallBuffer(film, room);
  const of = { film, buffer, fetched: 0 };
  const lines = [1, 2, 3, 4].map((it) => `#EXTINF:20,\n${it}.m4s\n`).join("");
  serve((path) => {
    const [, number] = path.match(/(\d)\.m4s/) ?? [];
    if (!number) {
      return `#EXTM3U\n#EXT-X-MAP:URI="init.mp4"\n${lines}#EXT-X-ENDLIST\n`;
    }
    of.fetched += 1;
    const bytes = new ArrayBuffer(20 * MIB);
    new Uint8Array(bytes)[0] = number;
    return bytes;
  });
  const track = new Track({ addSourceBuffer: () => buffer }, "");
  await track.load("http://h/index.m3u8", "");
  of.track = track;
  of.fill = async (times = 9) => {
    for (let time = 0; time < times; time += 1) {
      await track.fill(film);
    }
    return [buffer.start, buffer.end, of.fetched];
  };
  return of;
}

test("a buffer that is full takes the rest once something was shown", async () => {
  const { film, buffer, track, fill } = await large(36);
  // 16 of the second segment are taken, the rest waits, and nothing more is fetched.
  assert.deepEqual(await fill(100), [0, 36, 2]);
  film.currentTime = 3;
  assert.deepEqual(await fill(100), [3, 36, 2]);
  film.currentTime = 7;
  assert.deepEqual(await fill(100), [7, 40, 2]);
  film.currentTime = 20;
  assert.deepEqual(await fill(100), [20, 56, 3]);
  assert.deepEqual([buffer.largest, buffer.aborted], [16, 0]);
  // Whoever stays where the rest is wanted gets that; whoever does not gets another segment whole.
  track.seek();
  film.currentTime = 39;
  assert.deepEqual(await fill(1), [39, 60, 3]);
  assert.deepEqual(await fill(), [39, 60, 4]);
  film.currentTime = 45;
  assert.deepEqual(await fill(), [45, 80, 4]);
  track.seek();
  film.currentTime = 0;
  assert.deepEqual([await fill(), buffer.aborted], [[0, 36, 6], 0]);
  track.seek();
  film.currentTime = 62;
  assert.deepEqual([await fill(), buffer.aborted], [[62, 80, 7], 1]);
  assert.ok(track.isWhole());
});

test("a buffer that is too small for anything to be shown is an error", async () => {
  const { fill, buffer } = await large(10);
  await assert.rejects(fill(100), /no room/);
  assert.equal(buffer.end, 0);
});

// What a buffer of pictures removes reaches to the next of them that is decoded alone.
test("segments go as a whole, and never the one that is shown", async () => {
  const { film, buffer, fill } = await large(1000);
  const ends = [];
  buffer.remove = (_, end) => ends.push(end);
  for (film.currentTime of [0, 25, 53]) {
    await fill();
  }
  assert.deepEqual([buffer.end, ends], [80, [19.95]]);
});

// A buffer to which segments go whose paths say from when to when they are.
class SpanBuffer {
  constructor(source, type) {
    Object.assign(this, { source, kind: type.split("/")[0], spans: [], updating: false });
  }

  get buffered() {
    const { spans } = this;
    return { length: spans.length, start: (at) => spans[at][0], end: (at) => spans[at][1] };
  }

  appendBuffer(bytes) {
    const [, from, to] = new TextDecoder().decode(bytes).match(/(\d+)-(\d+)/) ?? [];
    this.source.readyState = "open";
    if (from === undefined) {
      return;
    }
    const all = [...this.spans, [Number(from), Number(to)]].sort(([one], [other]) => one - other);
    this.spans = [all[0]];
    for (const [start, end] of all.slice(1)) {
      const last = this.spans.at(-1);
      if (start > last[1]) {
        this.spans.push([start, end]);
      } else {
        last[1] = Math.max(last[1], end);
      }
    }
  }

  remove(start, end) {
    assert.equal(start, 0);
    this.spans = this.spans.filter((it) => it[1] > end)
      .map(([from, to]) => [Math.max(from, end), to]);
  }
}

class FakeSource extends EventTarget {
  constructor() {
    super();
    Object.assign(this, { readyState: "open", buffers: [] });
  }

  static isTypeSupported() {
    return true;
  }

  addSourceBuffer(type) {
    this.buffers.push(new SpanBuffer(this, type));
    return this.buffers.at(-1);
  }

  endOfStream() {
    this.readyState = "ended";
  }
}

// A film that plays as browsers do: only where each of its buffers has something, or the stream has
// ended.
class FakeFilm extends EventTarget {
  set src(source) {
    Object.assign(this, { source, now: 0, readyState: 0 });
    queueMicrotask(() => source.dispatchEvent(new Event("sourceopen")));
  }

  get currentTime() {
    return this.now;
  }

  set currentTime(to) {
    [this.now, this.readyState] = [to, 1];
    queueMicrotask(() => this.dispatchEvent(new Event("seeking")));
  }

  tick(seconds) {
    const { buffers, readyState } = this.source;
    const ends = buffers.map(({ spans }) =>
      spans.find(([start, end]) => start <= this.now && this.now < end)?.[1] ?? this.now);
    const end = readyState === "ended" ? Math.max(...ends) : Math.min(...ends);
    this.readyState = end > this.now ? 4 : Math.min(this.readyState, 2);
    this.now = Math.min(this.now + seconds, end);
  }
}

// The playlist of a track that is from one time to another. The first segment counts from 0 on.
function span(kind, [from, to]) {
  let text = `#EXTM3U\n#EXT-X-MAP:URI="/init.mp4"\n`;
  for (let [start, at] = [0, from]; at < to;) {
    const end = Math.min(at - (at % 6) + 6, to);
    text += `#EXTINF:${end - start},\n/${kind}/${at}-${end}.m4s\n`;
    [start, at] = [end, end];
  }
  return `${text}#EXT-X-ENDLIST\n`;
}

// What is played of a film with such pictures and sound from its beginning, and then from a second on
// to which somebody goes: which tracks from when on.
async function played(pictures, sound, then) {
  globalThis.window = globalThis;
  globalThis.MediaSource = FakeSource;
  [URL.createObjectURL, URL.revokeObjectURL] = [(it) => it, () => {}];
  const { Player } = await load("media_source.js");
  serve((path) => ({ "/video": span("video", pictures), "/audio": span("audio", sound) })[path] ?? path);
  const main = multivariant(`#EXTM3U
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="x",DEFAULT=YES,URI="/audio"
#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS="avc1,mp4a",RESOLUTION=2x1,AUDIO="a"
/video
`);
  const film = new FakeFilm();
  const [starts, wanted] = [[], {}];
  let [player, isDone] = [undefined, false];
  const begin = async (time) => {
    player?.end();
    if (isDone) {
      return;
    }
    const fails = (error) => starts.push(error);
    player = new Player(film, main, "http://h/index.m3u8", fails, (spans) => {
      wanted.spans = spans;
      begin(film.currentTime);
    });
    await player.start(time, wanted);
    starts.push(`${Math.round(time)} ${film.source.buffers.map((it) => it.kind).join("+")}`);
  };
  const play = async () => {
    for (let turn = 0; turn < 1000 && film.currentTime < 60; turn += 1) {
      await new Promise(setImmediate);
      film.tick(0.2);
    }
    return [...starts.splice(0), Math.round(film.currentTime)];
  };
  await begin(0);
  const all = [await play()];
  film.currentTime = then;
  all.push(await play());
  isDone = true;
  player.end();
  return all;
}

test("a film plays on where it has no pictures, or no sound", () => withClock(async () => {
  const whole = [0, 60];
  for (const [pictures, sound, expected] of [
    [whole, whole, [["0 video+audio", 60], [60]]],
    [whole, [8, 60], [["0 video+audio", "0 video", "8 video+audio", 60],
      ["3 video", "8 video+audio", 60]]],
    [whole, [0, 10], [["0 video+audio", "10 video", 60], ["3 video+audio", "10 video", 60]]],
    [whole, [8, 20], [["0 video+audio", "0 video", "8 video+audio", "20 video", 60],
      ["8 video+audio", "20 video", 60]]],
    [[0, 10], whole, [["0 video+audio", "10 audio", 60], ["3 video+audio", "10 audio", 60]]],
    [[8, 60], whole, [["0 video+audio", 60], [60]]],
    [[8, 60], [8, 60], [["0 video+audio", 60], [60]]],
    [[20, 60], [0, 10], [["0 video+audio", "20 video", 60], [60]]],
    // What little is left is fetched ahead, and then the stream ends.
    [whole, [0, 40], [["0 video+audio", 60], [60]]],
  ]) {
    assert.deepEqual(await played(pictures, sound, 3), expected, `${pictures} ${sound}`);
  }
}));
