// Playlists read by a parser that somebody else wrote (hls-parser), in its strict mode: it refuses what
// breaks a rule of RFC 8216 or of low latency. Those that a playlist names are read, too.
//
//   node validate.mjs URL...

import HLS from "hls-parser";

HLS.setOptions({ strictMode: true });

const read = new Set();
const pieces = { segments: 0, parts: 0 };

// It takes three segments for the three target durations from the end within which parts may be listed
// (RFC 8216bis, 4.4.4.9). Those before are left out here.
function withoutOlderParts(text) {
  const lines = text.split("\n");
  const ends = lines.flatMap((line, at) => (line !== "" && !line.startsWith("#") ? [at] : []));
  const from = ends.at(-3) ?? 0;
  return lines.filter((line, at) => at > from || !line.startsWith("#EXT-X-PART:")).join("\n");
}

async function validate(url) {
  if (read.has(url.href)) {
    return;
  }
  read.add(url.href);
  const answer = await fetch(url);
  const text = await answer.text();
  if (!answer.ok) {
    throw new Error(`${url}: ${answer.status} ${text}`);
  }
  let playlist;
  try {
    playlist = HLS.parse(withoutOlderParts(text));
  } catch (error) {
    throw new Error(`${url}: ${error.message}\n${text}`);
  }
  if (!playlist.isMasterPlaylist) {
    pieces.segments += playlist.segments.filter((it) => it.uri).length;
    pieces.parts += playlist.segments.flatMap((it) => it.parts).length;
    return;
  }
  for (const variant of playlist.variants) {
    const { audio, video, subtitles } = variant;
    for (const { uri } of [variant, ...audio, ...video, ...subtitles]) {
      if (uri) {
        await validate(new URL(uri, url));
      }
    }
  }
}

try {
  for (const url of process.argv.slice(2)) {
    await validate(new URL(url));
  }
  console.log(`passed: ${read.size} playlists, ${pieces.segments} segments, ${pieces.parts} parts`);
} catch (error) {
  console.log(`failed: ${error.message}`);
  process.exitCode = 1;
}
