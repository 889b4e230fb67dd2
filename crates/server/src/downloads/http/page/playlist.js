// Reading playlists (RFC 8216bis). Nothing here knows a browser.

// The attributes of a tag, without their quotes.
export function attributes(line) {
  const found = {};
  const list = line.slice(line.indexOf(":") + 1);
  for (const [, name, quoted, plain] of list.matchAll(/([A-Z0-9-]+)=(?:"([^"]*)"|([^,]*))/g)) {
    found[name] = quoted ?? plain;
  }
  return found;
}

// The variants, sounds and subtitles that a multivariant playlist names; none of another playlist.
export function multivariant(text) {
  const variants = [];
  const media = { AUDIO: [], SUBTITLES: [] };
  let open;
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("#EXT-X-STREAM-INF:")) {
      open = attributes(line);
    } else if (line.startsWith("#EXT-X-MEDIA:")) {
      const it = attributes(line);
      media[it.TYPE]?.push({
        group: it["GROUP-ID"], name: it.NAME, uri: it.URI, isDefault: it.DEFAULT === "YES",
        language: it.LANGUAGE,
      });
    } else if (open && line && !line.startsWith("#")) {
      variants.push({
        uri: line, codecs: open.CODECS, resolution: open.RESOLUTION, group: open.AUDIO,
        rate: Number(open.BANDWIDTH),
      });
      open = undefined;
    }
  }
  return { variants, sounds: media.AUDIO, subtitles: media.SUBTITLES };
}

// The segments of a media playlist at `url`, with when each begins, and whether more may follow.
export function mediaPlaylist(text, url) {
  const segments = [];
  let start = 0;
  let duration = 0;
  let init;
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("#EXT-X-MAP:")) {
      init = new URL(attributes(line).URI, url).href;
    } else if (line.startsWith("#EXTINF:")) {
      duration = Number.parseFloat(line.slice("#EXTINF:".length));
    } else if (line && !line.startsWith("#")) {
      segments.push({ url: new URL(line, url).href, start, duration });
      start += duration;
    }
  }
  return { url, init, segments, duration: start, isComplete: text.includes("#EXT-X-ENDLIST") };
}

// Whether a media playlist is that of a live channel: more follows, and what was goes.
export function isLive(text) {
  return text.includes("#EXT-X-TARGETDURATION:") && !text.includes("#EXT-X-ENDLIST")
    && !text.includes("#EXT-X-PLAYLIST-TYPE:");
}

// The parts of a live playlist at `url`, each with its number, that of its segment, what describes
// it and, of the first of a segment, when it was made.
export function livePlaylist(text, url) {
  const parts = [];
  let [segment, part, targetS] = [0, 0, 1];
  let init;
  let madeMs;
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("#EXT-X-MEDIA-SEQUENCE:")) {
      segment = Number(line.slice("#EXT-X-MEDIA-SEQUENCE:".length));
    } else if (line.startsWith("#EXT-X-TARGETDURATION:")) {
      targetS = Number(line.slice("#EXT-X-TARGETDURATION:".length));
    } else if (line.startsWith("#EXT-X-MAP:")) {
      init = new URL(attributes(line).URI, url).href;
    } else if (line.startsWith("#EXT-X-PROGRAM-DATE-TIME:")) {
      madeMs = Date.parse(line.slice("#EXT-X-PROGRAM-DATE-TIME:".length));
    } else if (line.startsWith("#EXT-X-PART:")) {
      const { URI, INDEPENDENT } = attributes(line);
      const isIndependent = INDEPENDENT === "YES";
      parts.push({ url: new URL(URI, url).href, segment, part, init, madeMs, isIndependent });
      part += 1;
    } else if (line && !line.startsWith("#")) {
      [segment, part] = [segment + 1, 0];
    }
  }
  return { parts, targetS };
}

// The number of the segment that has a time: the last that begins by then.
export function segmentAt(playlist, time) {
  const { segments } = playlist;
  let low = 0;
  let high = segments.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (segments[middle].start <= time) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return Math.max(low - 1, 0);
}
