// Plays a film by Media Source. Segments are CMAF, so that nothing is taken apart here: they are
// fetched in the order of play and appended. What is not needed any more is removed, and what is
// far ahead is not fetched yet. Of several variants the one is fetched that the network carries.

import { Throughput, choose, first } from "./adapt.js";
import { Track, isElsewhere, isPassing, pause } from "./track.js";

const CHANGE_AT = 2;

// After so long it looks again whether there is something to fetch, or whether what failed comes.
const IDLE_MS = 200;
const FAILED_MS = 2000;

// A track may begin so much later than what is shown without anybody waiting for it.
const LATE = 0.2;

// Who waits at the end of a track stands no farther from it.
const ENDING = 1;

const ALWAYS = { begins: 0, ends: Infinity };

// The variants of a multivariant playlist that this browser decodes.
export function playable(main) {
  const decodes = (it) => "MediaSource" in window &&
    MediaSource.isTypeSupported(`video/mp4; codecs="${it.codecs}"`);
  return main.variants.filter(decodes);
}

export class Player {
  // `url` is that of the playlist `main`; `fails` is told what ends it, and `again` when it is to
  // be made anew, because from now on a film has pictures and sound or lacks one of them: it is
  // told the span of each. `tell` is told what viewers wait for, and when that is over.
  constructor(film, main, url, fails, again, tell) {
    Object.assign(this, { film, url, fails, again, tell });
    const all = playable(main);
    // Variants differ in pictures or in how sound is coded; of the latter one is enough.
    const [{ group }] = all;
    this.variants = all.filter((it) => it.group === group);
    // Behind that of the pictures, if there are any.
    this.codecs = new Map(all.map((it) => [it.group, it.codecs.split(",").at(-1)]));
    // What has one name in several groups is the same.
    const sounds = main.sounds.filter((it) => this.codecs.has(it.group))
      .sort((one, other) => (other.group === group) - (one.group === group));
    this.sounds = sounds.filter((it, at) =>
      sounds.findIndex((other) => other.name === it.name) === at);
    this.sound = this.sounds.find((it) => it.isDefault) ?? this.sounds[0];
    this.isAutomatic = true;
    this.now = first(this.variants.map((it) => it.rate));
    this.throughput = new Throughput();
    this.tracks = [];
    this.isEnded = false;
  }

  // Begins at `time`, with `wanted` instead of what would be chosen.
  // Where `spans` says that there is no sound, or that pictures are over, it is without: browsers
  // wait where a track has nothing.
  async start(time = 0, { variant, sound, spans } = {}) {
    this.spans = spans ?? { pictures: ALWAYS, sound: ALWAYS };
    const { begins, ends } = this.spans.sound;
    this.isSilent = time < begins - LATE || time > ends - ENDING;
    this.isDark = !this.isSilent && time > this.spans.pictures.ends - ENDING;
    if (variant !== undefined) {
      [this.now, this.isAutomatic] = [variant, false];
    }
    this.loaded = this.now;
    this.sound = sound ?? this.sound;
    const { film } = this;
    const source = new MediaSource();
    this.object = URL.createObjectURL(source);
    film.src = this.object;
    await new Promise((done) => source.addEventListener("sourceopen", done, { once: true }));
    this.seeks = () => this.tracks.forEach((track) => track.seek(film.currentTime));
    film.addEventListener("seeking", this.seeks);
    const loads = this.begin(source);
    const playlists = await Promise.all(loads).catch((error) => {
      if (!this.isEnded) {
        throw error;
      }
    });
    // Meanwhile another may have taken its place.
    if (this.isEnded) {
      return;
    }
    this.duration = Math.max(...playlists.map((it) => it.duration));
    source.duration = this.duration;
    film.currentTime = time;
    this.run(source).catch((error) => {
      if (!this.isEnded) {
        this.fails(error);
      }
    });
  }

  begin(source) {
    const variant = this.variants[this.now];
    const loads = [];
    const add = (it, type) => {
      const track = new Track(source, type);
      this.tracks.push(track);
      loads.push(track.load(this.of(it), type));
      return track;
    };
    // Of sound alone the one that is chosen stands for pictures.
    const alone = variant.resolution ? undefined : this.sound;
    if (!this.isDark) {
      this.pictures = add(alone ?? variant, alone ? this.soundType(alone) : this.type(variant));
    }
    if (this.sound && !alone && !this.isSilent) {
      this.soundTrack = add(this.sound, this.soundType(this.sound));
    }
    return loads;
  }

  of(it) {
    return new URL(it.uri, this.url).href;
  }

  type(variant) {
    const kind = variant.resolution ? "video" : "audio";
    return `${kind}/mp4; codecs="${variant.codecs.split(",")[0]}"`;
  }

  soundType(sound) {
    return `audio/mp4; codecs="${this.codecs.get(sound.group)}"`;
  }

  // Fetches in turn, for as long as the page is there.
  async run(source) {
    while (!this.isEnded) {
      const filled = await this.fill();
      if (this.isEnded) {
        return;
      }
      this.skip();
      if (this.hasChanged()) {
        this.again(this.known());
        return;
      }
      const [pictures] = filled;
      if (pictures) {
        this.throughput.add(pictures.bytes, pictures.seconds);
        this.adapt();
      }
      this.grow(source);
      const isWhole = this.tracks.every((track) => track.isWhole());
      // Whatever is appended later opens it again.
      if (isWhole && source.readyState === "open") {
        source.endOfStream();
      }
      if (!filled.some(Boolean)) {
        await pause(IDLE_MS);
      }
    }
  }

  // What each track took; nothing while the network fails, or the server has too much to do: then
  // what is held is played. Where that server is elsewhere, another may have the film.
  async fill() {
    const fills = this.tracks.map((track) => track.fill(this.film));
    try {
      const filled = await Promise.all(fills);
      this.tellOf("");
      return filled;
    } catch (error) {
      if (!isPassing(error) || isElsewhere(this.url)) {
        throw error;
      }
      // None is filled twice at once.
      await Promise.allSettled(fills);
      if (this.film.readyState < 3) {
        const what = error.status ? error.message : "the network does not answer";
        this.tellOf(`${what}; trying again`);
      }
      await pause(FAILED_MS);
      return [];
    }
  }

  tellOf(text) {
    if (!this.isEnded && (text !== "" || this.isTold)) {
      this.isTold = text !== "";
      this.tell(text);
    }
  }

  // A film that is written still becomes longer. No buffer is at work meanwhile.
  grow(source) {
    const duration = Math.max(...this.tracks.map((track) => track.playlist?.duration ?? 0));
    if (duration > this.duration && source.readyState === "open") {
      this.duration = duration;
      // What is in a buffer already counts, too.
      source.duration = Math.max(duration, source.duration);
    }
  }

  // Nothing is played before the first picture: browsers wait for that.
  skip() {
    const begins = this.pictures?.begins ?? 0;
    if (begins > this.film.currentTime + LATE) {
      this.film.currentTime = begins;
    }
  }

  // From when to when there are pictures, and sound, as far as is known.
  known() {
    const of = (track, span) =>
      ({ begins: track?.begins ?? span.begins, ends: track?.ends ?? span.ends });
    const { pictures, sound } = this.spans;
    return { pictures: of(this.pictures, pictures), sound: of(this.soundTrack, sound) };
  }

  // Whether sound or pictures begin here, or end.
  hasChanged() {
    const { currentTime } = this.film;
    const { pictures, sound } = this.known();
    if (this.isSilent || this.isDark) {
      const { begins, ends } = this.isSilent ? sound : pictures;
      return currentTime >= begins && currentTime <= ends - ENDING;
    }
    return currentTime < sound.begins - LATE || this.isOver(this.soundTrack, this.pictures)
      || this.isOver(this.pictures, this.soundTrack);
  }

  // Whether the browser waits at the end of a track though the other goes on for longer than is
  // fetched ahead. Where that is fetched to its end, the stream ends, and nobody waits.
  isOver(one, other) {
    const { currentTime, readyState } = this.film;
    return currentTime > one?.ends - ENDING && readyState < 3 && other?.isWhole() === false;
  }

  adapt() {
    if (!this.isAutomatic || this.isDark) {
      return;
    }
    const { currentTime } = this.film;
    const held = this.pictures.bufferedTo(currentTime) - currentTime;
    const rates = this.variants.map((it) => it.rate);
    const best = choose(rates, this.now, this.throughput.bps, held);
    if (best !== this.now) {
      this.change(best).catch((error) => {
        // What comes later is chosen again.
        if (!this.isEnded && !isPassing(error)) {
          this.fails(error);
        }
      });
    }
  }

  async change(to, clears) {
    this.now = to;
    const variant = this.variants[to];
    try {
      await this.pictures?.load(this.of(variant), this.type(variant), clears);
    } catch (error) {
      // Unless another was chosen meanwhile, what was loaded last plays on.
      if (this.now === to) {
        this.now = this.loaded;
      }
      throw error;
    }
    if (this.now === to) {
      this.loaded = to;
    }
  }

  // The variant of that number, or what is best if there is none.
  async setQuality(number) {
    this.isAutomatic = number === undefined;
    if (number !== undefined && number !== this.now) {
      await this.change(number, this.film.currentTime + CHANGE_AT);
    }
  }

  async setSound(sound) {
    // Of this one it is not known yet from when to when it is.
    [this.sound, this.spans] = [sound, { ...this.spans, sound: ALWAYS }];
    if (this.isSilent) {
      this.again(this.spans);
      return;
    }
    const isAlone = !this.variants[this.now].resolution;
    const track = isAlone ? this.pictures : this.soundTrack;
    await track?.load(this.of(sound), this.soundType(sound), 0);
  }

  end() {
    this.isEnded = true;
    this.film.removeEventListener("seeking", this.seeks);
    URL.revokeObjectURL(this.object);
  }
}
