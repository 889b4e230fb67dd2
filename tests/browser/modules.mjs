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
const { LivePlayer } = await load("live.js");
const { mediaPlaylist, multivariant, segmentAt } = await load("playlist.js");

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
