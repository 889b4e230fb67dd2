// Plays a film by Media Source. Segments are CMAF, so that nothing is taken apart here: they are
// fetched in the order of play and appended. What is not needed any more is removed, and what is
// far ahead is not fetched yet. Of several variants the one is fetched that the network carries.

import { Throughput, choose, first } from "./adapt.js";
import { Track } from "./track.js";

const CHANGE_AT = 2;

// Sound may begin so much later than what is shown without anybody waiting for it.
const LATE = 0.2;

// The variants of a multivariant playlist that this browser decodes.
export function playable(main) {
  const decodes = (it) => "MediaSource" in window &&
    MediaSource.isTypeSupported(`video/mp4; codecs="${it.codecs}"`);
  return main.variants.filter(decodes);
}

export class Player {
  // `url` is that of the playlist `main`; `fails` is told what ends it, and `again` when it is to be
  // made anew, because from now on a film has sound or has none.
  constructor(film, main, url, fails, again) {
    Object.assign(this, { film, url, fails, again });
    const all = playable(main);
    // Variants differ in pictures or in how sound is coded; of the latter one is enough.
    const [{ group }] = all;
    this.variants = all.filter((it) => it.group === group);
    this.codecs = new Map(all.map((it) => [it.group, it.codecs.split(",")[1]]));
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
  // Before `soundBegins` it is without sound: browsers wait where a track has nothing.
  async start(time = 0, { variant, sound, soundBegins = 0 } = {}) {
    this.soundBegins = soundBegins;
    this.isSilent = time < soundBegins - LATE;
    if (variant !== undefined) {
      [this.now, this.isAutomatic] = [variant, false];
    }
    this.sound = sound ?? this.sound;
    const { film } = this;
    const source = new MediaSource();
    this.object = URL.createObjectURL(source);
    film.src = this.object;
    await new Promise((done) => source.addEventListener("sourceopen", done, { once: true }));
    this.seeks = () => this.tracks.forEach((track) => track.seek());
    film.addEventListener("seeking", this.seeks);
    const loads = this.begin(source);
    const playlists = await Promise.all(loads);
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
    const isVideo = Boolean(variant.resolution);
    const type = this.type(variant);
    this.pictures = new Track(source, type);
    this.tracks = [this.pictures];
    const loads = [this.pictures.load(this.of(variant), type)];
    if (this.sound && isVideo && !this.isSilent) {
      const soundType = this.soundType(this.sound);
      this.soundTrack = new Track(source, soundType);
      this.tracks.push(this.soundTrack);
      loads.push(this.soundTrack.load(this.of(this.sound), soundType));
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
      const filled = await Promise.all(this.tracks.map((track) => track.fill(this.film)));
      if (this.hasChanged()) {
        this.again(this.soundTrack?.begins ?? this.soundBegins);
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
        await new Promise((done) => setTimeout(done, 200));
      }
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

  // Whether sound begins here, or there is none where there was.
  hasChanged() {
    const { currentTime } = this.film;
    return this.isSilent ? currentTime >= this.soundBegins :
      currentTime < (this.soundTrack?.begins ?? 0) - LATE;
  }

  adapt() {
    if (!this.isAutomatic) {
      return;
    }
    const { currentTime } = this.film;
    const held = this.pictures.bufferedTo(currentTime) - currentTime;
    const rates = this.variants.map((it) => it.rate);
    const best = choose(rates, this.now, this.throughput.bps, held);
    if (best !== this.now) {
      this.change(best).catch(this.fails);
    }
  }

  async change(to, clears) {
    this.now = to;
    const variant = this.variants[to];
    await this.pictures.load(this.of(variant), this.type(variant), clears);
  }

  // The variant of that number, or what is best if there is none.
  async setQuality(number) {
    this.isAutomatic = number === undefined;
    if (number !== undefined && number !== this.now) {
      await this.change(number, this.film.currentTime + CHANGE_AT);
    }
  }

  async setSound(sound) {
    this.sound = sound;
    await this.soundTrack?.load(this.of(sound), this.soundType(sound), 0);
  }

  end() {
    this.isEnded = true;
    this.film.removeEventListener("seeking", this.seeks);
    URL.revokeObjectURL(this.object);
  }
}
