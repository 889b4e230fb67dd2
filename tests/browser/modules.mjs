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
const { addresses, fetching } = await load("addresses.js");
const { LiveChannel, LivePlayer, LiveTrack } = await load("live.js");
const { mediaPlaylist, multivariant, segmentAt } = await load("playlist.js");
const { Track } = await load("track.js");

test("a file is fetched from beside its page", () => {
  const command = "curl -O 'http://films.example/in/a%20b%3A.ts'";
  for (const [page, expected] of [
    ["http://films.example/in/", command],
    ["https://films.example/media/in/?x=/y#z",
      "curl -O 'https://films.example/media/in/a%20b%3A.ts'"],
  ]) {
    assert.equal(fetching(command, page), expected);
  }
});

test("no name ends the quotes of a command", () => {
  const page = "http://films.example/in/a';b;'.mp4/hls/index.html?token=c'd";
  for (const [name, text] of addresses(page, { hasManifest: true })) {
    const quotes = ["VLC", "ffplay"].includes(name) ? 2 : 0;
    assert.equal(text.split("'").length - 1, quotes, text);
    assert.ok(text.includes("/in/a%27;b;%27.mp4"), text);
  }
  assert.equal(fetching("curl -O 'http://films.example/in/b.ts'", "http://films.example/it's/"),
    "curl -O 'http://films.example/it%27s/b.ts'");
});

test("only addresses that there are are offered", () => {
  const names = (name, has) =>
    addresses(`http://h/in/${name}/hls/index.html?token=x`, has).map(([kind]) => kind).slice(3);
  assert.deepEqual(names("a.mp4", { hasManifest: true }), ["DASH", "Download"]);
  assert.deepEqual(names("a.ts", { hasManifest: false }), ["Download"]);
  assert.deepEqual(names("a%20b.film", { hasManifest: true }), ["DASH"]);
  assert.deepEqual(names("a.film.json", { hasManifest: true }), ["DASH"]);
  assert.deepEqual(names("live/cam", { isChannel: true, hasManifest: false }), []);
});

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
  const track = { start: () => 0, end: () => end };
  player.tracks = [track];
  let reach;
  player.source = { readyState: "open", setLiveSeekableRange: (...to) => { reach = to; } };
  player.madeAt = 0;
  for (end of [0, 0.5, 5.5]) {
    player.follow();
    assert.deepEqual([film.currentTime, told], [0, undefined], `at ${end}`);
  }
  track.hasCaughtUp = true;
  player.follow();
  assert.equal(film.currentTime, 4.5);
  assert.deepEqual(reach, [0, 5.5]);
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

// A channel that is opened and not yet played, and what its viewer does.
class Opened {
  constructor() {
    this.end = 10;
    const range = { length: 1, start: () => 0, end: () => this.end };
    const still = { paused: true, currentTime: 0, readyState: 4, defaultPlaybackRate: 1 };
    this.film = Object.assign(new EventTarget(), still, { buffered: range });
    this.channel = new LiveChannel(this.film, "", assert.fail, () => {});
    this.player = new LivePlayer(this.film, {}, "", assert.fail, () => {});
    this.player.tracks = [{ start: () => 0, end: () => this.end, hasCaughtUp: true }];
    this.player.source = {};
    this.channel.player = this.player;
    // As it does once it has a source.
    ["seeking", "play"].forEach((it) => this.film.addEventListener(it, this.player.places));
    this.player.follow();
  }

  goTo(time) {
    this.film.currentTime = time;
    this.film.dispatchEvent(new Event("seeking"));
  }

  // So many seconds come meanwhile; then it is played.
  playAfter(seconds) {
    this.end += seconds;
    this.player.follow();
    this.film.paused = false;
    this.film.dispatchEvent(new Event("play"));
    this.player.follow();
    return [this.film.currentTime, this.player.isFollowing];
  }

  pause() {
    this.film.paused = true;
    this.film.dispatchEvent(new Event("pause"));
  }
}

test("who plays a channel late is at its newest, and who paused is not", () => {
  const opened = new Opened();
  assert.equal(opened.film.currentTime, 9);
  assert.deepEqual(opened.playAfter(20), [29, true]);
  opened.pause();
  assert.deepEqual(opened.playAfter(20), [29, false]);
  // To go back before it plays is a choice, too.
  const gone = new Opened();
  gone.goTo(2);
  assert.deepEqual(gone.playAfter(20), [2, false]);
});

// A clock on which waits pass at once, for as long as `check` takes. `tick` does what is due now
// and then.
async function withClock(check) {
  const { setTimeout, setInterval, clearInterval } = globalThis;
  const timers = new Set();
  const tick = () => [...timers].filter((it) => it.at + it.ms <= clock.now).forEach((it) => {
    it.at = clock.now;
    it.done();
  });
  const clock = { now: 0, tick };
  globalThis.setTimeout = (done, ms) => {
    clock.now += ms;
    setImmediate(done);
  };
  globalThis.setInterval = (done, ms) => {
    const timer = { done, ms, at: clock.now };
    timers.add(timer);
    return timer;
  };
  globalThis.clearInterval = (timer) => timers.delete(timer);
  Object.defineProperty(performance, "now", { value: () => clock.now, configurable: true });
  try {
    await check(clock);
  } finally {
    Object.assign(globalThis, { setTimeout, setInterval, clearInterval });
    delete performance.now;
  }
}

// A buffer to which segments of so many seconds go. What it is given is the path of each.
class MediaBuffer {
  constructor(seconds) {
    Object.assign(this, { seconds, taken: [], removed: 0, begins: 0, held: 0, updating: false });
  }

  get buffered() {
    const [start, end] = [this.begins, this.begins + this.held];
    return { length: this.held > 0 ? 1 : 0, start: () => start, end: () => end };
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
    } else {
      const gone = Math.min(Math.max(end - this.begins, 0), this.held);
      [this.begins, this.held] = [this.begins + gone, this.held - gone];
    }
  }
}

// From now on what is fetched is what `answer` says of its path, at once or later: a text, bytes, a
// status, one with a reason, or an error.
function serve(answer) {
  globalThis.fetch = async (url, { signal } = {}) => {
    const { pathname } = new URL(url);
    const aborted = new Promise((_, fails) => {
      signal?.addEventListener("abort", () => fails(signal.reason));
    });
    const told = await Promise.race([answer(pathname), aborted]);
    if (told instanceof Error) {
      throw told;
    }
    const status = typeof told === "number" ? told : told.status ?? 200;
    const headers = new Headers(told.reason ? { "Content-Type": "text/plain; charset=utf-8" } : {});
    const text = async () => told.reason ?? told;
    const bytes = typeof told === "string" ? new TextEncoder().encode(told).buffer : told;
    const ok = status === 200;
    return { ok, status, statusText: "", headers, text, arrayBuffer: async () => bytes, url };
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

test("a channel that begins anew is played at its own times", () =>
  withClock(async () => {
    const channel = new Channel();
    const { buffer, track, film } = channel;
    // It was watched for minutes, and counts from ten seconds on again.
    [film.currentTime, film.readyState, film.defaultPlaybackRate, buffer.begins] = [300, 2, 1, 10];
    await channel.run(() => channel.asked > 3);
    assert.deepEqual([buffer.begins, buffer.held > 4], [10, true]);
    film.buffered = buffer.buffered;
    const player = new LivePlayer(film, {}, "", () => {}, () => {});
    [player.tracks, player.source] = [[track], {}];
    player.follow();
    assert.equal(film.currentTime, track.end() - 1);
    // What was shown long ago goes all the same.
    [film.currentTime, buffer.begins, buffer.held] = [200, 100, 120];
    await channel.run(() => channel.asked > 5);
    assert.equal(buffer.begins, 140);
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

test("a channel whose segments begin with no picture alone begins within one", () =>
  withClock(async () => {
    const channel = new Channel();
    channel.independent = "";
    const before = channel.playlist.bind(channel);
    channel.playlist = () => before().replaceAll('.1.m4s"', '.1.m4s",INDEPENDENT=YES');
    await channel.run(() => channel.asked > 2);
    const [init, ...taken] = channel.buffer.taken;
    assert.deepEqual([init, taken[0]], ["/init.mp4", "/101.1.m4s"]);
    assert.deepEqual(channel.begun, [101]);
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
    Object.assign(this, { source, type, kind: type.split("/")[0], spans: [], updating: false });
  }

  get buffered() {
    const { spans } = this;
    return { length: spans.length, start: (at) => spans[at][0], end: (at) => spans[at][1] };
  }

  appendBuffer(bytes) {
    const text = new TextDecoder().decode(bytes);
    const [, from, to] = text.match(/(\d+)-(\d+)/) ?? [];
    const [, codec] = text.match(/init\.(\w+)\./) ?? [];
    if (this.source.error || (codec && !this.type.includes(codec))) {
      this.source.error = { message: `cannot decode ${codec}` };
      throw new Error("the element has an error");
    }
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
    Object.assign(this, { readyState: "open", buffers: [], reach: [] });
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

  setLiveSeekableRange(...reach) {
    this.reach = reach;
  }
}

// A film that plays as browsers do: only where each of its buffers has something, or the stream has
// ended.
class FakeFilm extends EventTarget {
  constructor() {
    super();
    Object.assign(this, { paused: true, defaultPlaybackRate: 1 });
  }

  set src(source) {
    Object.assign(this, { source, now: 0, readyState: 0, paused: true });
    queueMicrotask(() => source.dispatchEvent(new Event("sourceopen")));
  }

  get error() {
    return this.source.error;
  }

  async play() {
    this.paused = false;
    this.dispatchEvent(new Event("play"));
  }

  // What all of its buffers have.
  get buffered() {
    const spans = this.source.buffers.map((it) => it.spans).reduce((all, others) =>
      all.flatMap(([start, end]) => others
        .map(([from, to]) => [Math.max(start, from), Math.min(end, to)])
        .filter(([from, to]) => from < to)));
    return { length: spans.length, start: (at) => spans[at][0], end: (at) => spans[at][1] };
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

// What modules ask of a browser.
function beBrowser() {
  Object.assign(globalThis, { window: globalThis, MediaSource: FakeSource });
  globalThis.location = new URL("http://h/film.mp4/hls/index.html");
  [URL.createObjectURL, URL.revokeObjectURL] = [(it) => it, () => {}];
}

// Turns until something holds, in each of which so much of a film is played.
async function until(film, holds, seconds = 0.2) {
  for (let turn = 0; turn < 5000; turn += 1) {
    await new Promise(setImmediate);
    if (film.source) {
      film.tick(seconds);
    }
    if (holds()) {
      return;
    }
  }
  assert.fail(`not within 5000 turns: ${holds}; at ${film.currentTime}`);
}

// Lets happen what does without a wait.
async function rest() {
  for (let turn = 0; turn < 99; turn += 1) {
    await new Promise(setImmediate);
  }
  return "waits";
}

// What is played of a film with such pictures and sound from its beginning, and then from a second on
// to which somebody goes: which tracks from when on.
async function played(pictures, sound, then) {
  beBrowser();
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

const SOUNDLESS = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS=\"avc1\",RESOLUTION=2x1\n/video\n";

test("a film waits for a network that has failed, and plays what it holds", (context) =>
  withClock(async (clock) => {
    beBrowser();
    const { Player } = await load("media_source.js");
    const [failed, told, film] = [[], [], new FakeFilm()];
    let [until_ms, failure] = [0, new TypeError("network")];
    serve((path) => (path === "/video" ? span("video", [0, 120]) :
      (clock.now < until_ms ? failure : path)));
    const tell = (text) => told.push([text, film.readyState < 3]);
    const player = new Player(film, multivariant(SOUNDLESS), "http://h/index.m3u8",
      (error) => failed.push(error.message), () => {}, tell);
    context.after(() => player.end());
    await player.start();
    await until(film, () => film.currentTime > 5);
    until_ms = clock.now + 600_000;
    await until(film, () => clock.now > until_ms && film.currentTime > 60);
    const waits = ["the network does not answer; trying again", true];
    assert.ok(told.length > 1, "it is told");
    assert.deepEqual(told.slice(0, -1).filter((it) => `${it}` !== `${waits}`), []);
    assert.equal(told.at(-1)[0], "");
    // A server that has too much to do, likewise.
    [until_ms, failure] = [clock.now + 600_000, { status: 503, reason: "503: busy\n" }];
    await until(film, () => clock.now > until_ms && film.currentTime > 110);
    assert.equal(told.at(-2)[0], "503: busy; trying again");
    assert.deepEqual(failed, []);
    // No track is filled twice at once.
    let [come, isFilled] = [undefined, false];
    const comes = new Promise((done) => { come = done; });
    const tracks = [{ fill: async () => { throw new TypeError("network"); } }, { fill: () => comes }];
    const other = Object.assign(Object.create(Player.prototype), { ...player, tracks });
    const filled = other.fill().then(() => { isFilled = true; });
    await rest();
    assert.ok(!isFilled);
    come();
    await filled;
  }));

test("who goes elsewhere does not wait for what is under way", async () => {
  const asked = [];
  let come;
  const lines = [1, 2, 3, 4].map((it) => `#EXTINF:20,\n${it}.m4s\n`).join("");
  serve((path) => {
    if (!path.endsWith(".m4s")) {
      return `#EXTM3U\n#EXT-X-MAP:URI="init.mp4"\n${lines}#EXT-X-ENDLIST\n`;
    }
    asked.push(path);
    return new Promise((done) => { come = () => done(path); });
  });
  const track = new Track({ addSourceBuffer: () => new MediaBuffer(20) }, "");
  await track.load("http://h/index.m3u8", "");
  const film = { currentTime: 0 };
  const filled = (fill) => Promise.race([fill, rest()]);
  const first = track.fill(film);
  assert.equal(await filled(first), "waits");
  // Within what is fetched already nobody has gone elsewhere.
  film.currentTime = 7;
  track.seek(7);
  assert.equal(await filled(first), "waits");
  film.currentTime = 45;
  track.seek(45);
  assert.equal(await filled(first), undefined);
  const third = track.fill(film);
  await rest();
  track.seek(59);
  come();
  assert.equal((await filled(third)).bytes, "/3.m4s".length);
  assert.deepEqual([asked, track.next], [["/1.m4s", "/3.m4s"], 3]);
});

test("a variant that does not come is not believed to play", () => withClock(async () => {
  const { Player } = await load("media_source.js");
  let fails = [];
  serve((path) => (path === "/b" && fails.shift()) || (path.length > 2 ? path : WRITTEN));
  const track = new Track({ addSourceBuffer: () => new MediaBuffer(6) }, "");
  const failed = [];
  const player = Object.assign(Object.create(Player.prototype), {
    variants: ["/a", "/b"].map((uri, at) => ({ uri, codecs: "avc1", rate: 1e6 * (3 - 2 * at) })),
    url: "http://h/index.m3u8", film: { currentTime: 0 }, pictures: track, now: 0, loaded: 0,
    isAutomatic: true, throughput: { bps: 2e6 }, fails: (error) => failed.push(error.message),
  });
  const network = new TypeError("network");
  fails = [network, 503, network, 503];
  await assert.rejects(player.change(1), /503/);
  assert.equal(player.now, 0);
  // What is chosen for want of a faster network ends nothing where that has gone.
  fails = [network, 503, network, 503];
  player.adapt();
  await rest();
  assert.deepEqual([player.now, failed, fails], [0, [], []]);
  fails = [network, 503];
  await player.change(1);
  assert.deepEqual([player.now, player.loaded, track.pending.playlist.url], [1, 1, "http://h/b"]);
}));

test("of several sounds without pictures the one that is chosen is heard", (context) =>
  withClock(async () => {
    beBrowser();
    const { Player } = await load("media_source.js");
    const film = new FakeFilm();
    const asked = new Set();
    serve((path) => {
      asked.add(path.match(/^\/(en|de)\//)?.[1]);
      return path === "/en" || path === "/de" ? span(path.slice(1), [0, 60]) : path;
    });
    const sound = (name) =>
      `#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="${name}",URI="/${name}"\n`;
    const main = multivariant(`#EXTM3U\n${sound("en")}${sound("de")}`
      + "#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS=\"mp4a\",AUDIO=\"a\"\n/en\n");
    const player = new Player(film, main, "http://h/index.m3u8", assert.fail);
    context.after(() => player.end());
    await player.start();
    await until(film, () => film.currentTime > 2);
    assert.deepEqual(film.source.buffers.map((it) => it.type), ['audio/mp4; codecs="mp4a"']);
    assert.ok(asked.has("en") && !asked.has("de"));
    await player.setSound(player.sounds[1]);
    await until(film, () => asked.has("de") && film.currentTime > 4);
  }));

// What a page has of elements.
class FakeElement extends EventTarget {
  constructor() {
    super();
    Object.assign(this, { textContent: "", options: [] });
  }

  append() {}

  after() {}

  replaceChildren() {}

  setAttribute() {}

  press(key) {
    this.dispatchEvent(Object.assign(new Event("keydown"), { key }));
  }
}

// A document that has whatever is asked for, and this film.
function beDocument(film) {
  const elements = new Map([["film", film]]);
  const of = (id) => elements.get(id) ?? elements.set(id, new FakeElement()).get(id);
  globalThis.document = { getElementById: of, createElement: () => new FakeElement() };
  globalThis.Option = FakeElement;
  return of;
}

let pages = 0;

// The page of a film, by Media Source where the browser plays no playlist itself.
async function openPage(film, canPlayType = () => "") {
  beBrowser();
  Object.assign(film, { canPlayType, append: () => {}, seekable: { length: 0 } });
  const of = beDocument(film);
  pages += 1;
  await import(`${source("player.js")}#${pages}`);
  return of("state");
}

test("a film whose segments have other names goes on under these", () =>
  withClock(async (clock) => {
    const film = new FakeFilm();
    let [version, there] = ["v1", "v1"];
    serve((path) => {
      if (path.endsWith("/index.m3u8")) {
        const subtitles = '#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="s",NAME="English",URI="/none"\n';
        return SOUNDLESS.replace("#EXT-X-STREAM", `${subtitles}#EXT-X-STREAM`);
      }
      if (path === "/video") {
        return span(version, [0, 120]);
      }
      const isGone = path === "/none" || (path.startsWith("/v") && !path.startsWith(`/${there}`));
      return isGone ? { status: 404, reason: "404 Not Found: it has changed\n" } : path;
    });
    // Subtitles that are not there keep nobody waiting.
    const state = await openPage(film);
    await until(film, () => film.currentTime > 5);
    await film.play();
    [version, there] = ["v2", "v2"];
    await until(film, () => film.currentTime > 70);
    assert.deepEqual([state.textContent, film.paused], ["", false]);
    // What is not there under its new name either is told, and stays so.
    clock.now += 20_000;
    there = "v3";
    await until(film, () => state.textContent !== "");
    ["waiting", "playing", "seeked"].forEach((it) => film.dispatchEvent(new Event(it)));
    assert.equal(state.textContent, "404 Not Found: it has changed");
    assert.ok(film.currentTime > 70 && film.currentTime < 119, `${film.currentTime}`);
  }));

test("what a browser does not decode by its own HLS is told by its codecs", () =>
  withClock(async () => {
    for (const [codec, told] of [
      ["hvc1", "this browser does not decode hvc1; download the film"],
      ["avc1", "DEMUXER_ERROR"],
    ]) {
      const film = new FakeFilm();
      Object.defineProperties(film, {
        src: { value: "", writable: true }, error: { value: { message: "DEMUXER_ERROR" } },
      });
      serve((path) => (path.endsWith("/index.m3u8") ? SOUNDLESS.replace("avc1", codec) :
        span("video", [0, 12])));
      const state = await openPage(film, (type) => (/mpegurl|avc1/.test(type) ? "maybe" : ""));
      await until(film, () => film.src !== "");
      film.dispatchEvent(new Event("error"));
      assert.equal(state.textContent, told);
    }
  }));

test("of a channel one goes to what is held of it, at its speed", async () => {
  const { bindControls } = await load("controls.js");
  const film = Object.assign(new FakeFilm(), {
    duration: Infinity, readyState: 4, playbackRate: 1.05, source: new FakeSource(),
    seekable: { length: 1, start: () => 240, end: () => 300 },
  });
  const of = beDocument(film);
  bindControls(film, assert.fail);
  for (const [key, time] of [["End", 300], ["Home", 240], ["5", 270], ["l", 280], ["0", 240],
    ["j", 240]]) {
    of("stage").press(key);
    assert.equal(film.currentTime, time, key);
  }
  film.dispatchEvent(new Event("timeupdate"));
  const { min, max, value } = of("seek");
  assert.deepEqual([min, max, value], [240, 300, 240]);
  of("stage").press(">");
  assert.deepEqual([film.defaultPlaybackRate, film.playbackRate], [1.25, 1.25]);
  // Before anything is known of it, nobody goes anywhere.
  film.seekable = { length: 0 };
  of("stage").press("5");
  assert.equal(film.currentTime, 240);
});

// A channel of which another second is there each time that its pictures are asked for. Its sound
// is there until `heard`, if there is any.
class Broadcast {
  constructor(clock) {
    Object.assign(this, { clock, now: 20, first: 100, codec: "avc1" });
    Object.assign(this, { heard: Infinity, hasSound: true });
    serve((path) => this.answer(path));
  }

  async answer(path) {
    await new Promise(setImmediate);
    if (path === "/index.m3u8") {
      return this.main();
    }
    if (path === "/video") {
      [this.now, this.clock.now] = [this.now + 1, this.clock.now + 1000];
      return this.playlist(path, this.codec, this.now);
    }
    if (path === "/audio") {
      return this.hasSound ? this.playlist(path, "mp4a", Math.min(this.now, this.heard)) : 404;
    }
    return path;
  }

  main() {
    const [sound, codec, group] = !this.hasSound || this.heard < this.now - 12 ? ["", "", ""] :
      ['#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="a",NAME="x",URI="/audio"\n', ",mp4a", ',AUDIO="a"'];
    return `#EXTM3U\n${sound}#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS="${this.codec}${codec}",`
      + `RESOLUTION=2x1${group}\n/video\n`;
  }

  playlist(path, codec, end) {
    const of = (at) => `#EXT-X-PART:DURATION=1,URI="${path}/${at}-${at + 1}.m4s",INDEPENDENT=YES\n`
      + "#EXTINF:1,\nsegment.m4s\n";
    return `#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:${this.first + end - 3}\n`
      + `#EXT-X-MAP:URI="/init.${codec}.mp4"\n${[end - 3, end - 2, end - 1].map(of).join("")}`;
  }
}

test("a channel goes on without sound, and in another codec", () => withClock(async (clock) => {
  beBrowser();
  const { LiveChannel } = await load("live.js");
  const [film, cast, failed] = [new FakeFilm(), new Broadcast(clock), []];
  const fails = (error) => failed.push(error.message);
  const channel = new LiveChannel(film, "http://h/index.m3u8", fails, () => {});
  const begin = channel.begin(multivariant(cast.main()));
  // Until it plays with such buffers, as it did before.
  const plays = async (...types) => {
    const isNear = () => cast.now - film.currentTime < 4 && film.currentTime < cast.now;
    await until(film, () => {
      clock.tick();
      const now = film.source.buffers.map((it) => it.type.match(/"(.*)"/)[1]);
      return `${now}` === `${types}` && isNear() && film.readyState === 4 && !film.paused;
    }, 0.25);
    assert.deepEqual(failed, []);
  };
  await begin;
  await film.play();
  await plays("avc1", "mp4a");
  const [start, end] = film.source.reach;
  assert.ok(start >= 18 && end > start && end <= cast.now + 1, `${start} ${end}`);
  // Sound pauses, and comes back.
  cast.heard = cast.now;
  const before = clock.now;
  await plays("avc1");
  assert.ok(clock.now - before < 15_000, `${clock.now - before}`);
  const { source } = film;
  await until(film, () => {
    clock.tick();
    return clock.now - before > 120_000;
  }, 0.25);
  assert.equal(film.source, source, "nothing begins anew meanwhile");
  cast.heard = Infinity;
  await plays("avc1", "mp4a");
  // A publisher comes back without sound, and another in another codec.
  [cast.first, cast.now, cast.hasSound] = [2000, 10, false];
  await plays("avc1");
  [cast.first, cast.now, cast.hasSound, cast.codec] = [4000, 10, true, "hvc1"];
  await plays("hvc1", "mp4a");
  // What is not decoded though it is what is told ends it.
  cast.codec = "av01";
  cast.main = () => SOUNDLESS.replace("avc1", "hvc1");
  await until(film, () => {
    clock.tick();
    return failed.length > 0;
  });
  assert.deepEqual(failed, ["cannot decode av01"]);
}));

test("a channel that begins with sound alone has pictures when they come", () =>
  withClock(async (clock) => {
    beBrowser();
    const { LiveChannel } = await load("live.js");
    const [film, cast] = [new FakeFilm(), new Broadcast(clock)];
    const whole = cast.main();
    cast.main = () => '#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS="mp4a"\n/audio\n';
    const fails = (error) => assert.equal(error.message, "it is over");
    const channel = new LiveChannel(film, "http://h/index.m3u8", fails, () => {});
    await channel.begin(multivariant(cast.main()));
    const has = (...types) => until(film, () => {
      clock.tick();
      const now = film.source.buffers.map((it) => it.type);
      return `${now}` === `${types}`;
    }, 0.25);
    await has('audio/mp4; codecs="mp4a"');
    cast.main = () => whole;
    await has('video/mp4; codecs="avc1"', 'audio/mp4; codecs="mp4a"');
    channel.end(new Error("it is over"));
  }));
