// The controls of a film, by mouse, finger and keyboard. They know the video element alone.

const STEP = 5;
const LEAP = 10;
const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];

const of = (id) => document.getElementById(id);

// 1:02:03
export function clock(seconds) {
  const whole = Number.isFinite(seconds) ? Math.max(Math.floor(seconds), 0) : 0;
  const two = (number) => String(number).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

export function bindControls(film, tell) {
  const [play, seek, time, mute, volume] = ["play", "seek", "time", "mute", "volume"].map(of);
  const [speed, pip, fullscreen, stage] = ["speed", "pip", "fullscreen", "stage"].map(of);

  const toggle = () => {
    if (film.paused) {
      film.play().catch((error) => {
        if (error.name !== "AbortError") {
          tell(error.message);
        }
      });
    } else {
      film.pause();
    }
  };
  // From when to when one can go: of a channel, what is held of it.
  const reach = () => {
    const { seekable } = film;
    return seekable.length > 0 ? [seekable.start(0), seekable.end(seekable.length - 1)] : undefined;
  };
  const goTo = (to) => {
    const [start, end] = reach() ?? [];
    if (film.readyState > 0 && start !== undefined) {
      film.currentTime = Math.min(Math.max(to, start), end);
    }
  };
  const goToTenth = (number) => {
    const [start, end] = reach() ?? [0, 0];
    goTo(start + ((end - start) * number) / 10);
  };
  const setVolume = (to) => {
    film.volume = Math.min(Math.max(to, 0), 1);
    film.muted = film.volume === 0;
  };
  const setSpeed = (to) => {
    film.defaultPlaybackRate = to;
    film.playbackRate = to;
    speed.value = String(to);
  };
  const step = (by) => {
    // What is played now may be a little faster, where a channel comes up.
    const at = SPEEDS.indexOf(film.defaultPlaybackRate) + by;
    setSpeed(SPEEDS[Math.min(Math.max(at, 0), SPEEDS.length - 1)]);
  };
  const togglePip = async () => {
    if (document.pictureInPictureElement) {
      await document.exitPictureInPicture();
    } else {
      await film.requestPictureInPicture();
    }
  };
  // iPhones fill the screen with a film alone, by a method of their own.
  const hasFullscreen = document.fullscreenEnabled
    || typeof film.webkitEnterFullscreen === "function";
  const toggleFullscreen = async () => {
    if (!document.fullscreenEnabled) {
      film.webkitEnterFullscreen?.();
    } else if (document.fullscreenElement) {
      await document.exitFullscreen();
    } else {
      await stage.requestFullscreen();
    }
  };
  const toggleSubtitles = () => {
    const choice = of("subtitles");
    if (choice.options.length > 1) {
      choice.selectedIndex = choice.selectedIndex === 0 ? 1 : 0;
      choice.dispatchEvent(new Event("change"));
    }
  };

  const isPlaying = () => {
    play.textContent = film.paused ? "Play" : "Pause";
  };
  const isAt = () => {
    const held = film.duration === Infinity ? reach() : undefined;
    const isEndless = held !== undefined;
    const [start, all] = held ?? [0, film.duration];
    const now = film.currentTime;
    seek.min = start;
    seek.max = Number.isFinite(all) ? all : 0;
    seek.value = now;
    time.textContent = isEndless ? clock(now) : `${clock(now)} / ${clock(all)}`;
    seek.setAttribute("aria-valuetext", `${clock(now)} of ${clock(all)}`);
  };
  const isLoud = () => {
    mute.setAttribute("aria-pressed", String(film.muted));
    volume.value = film.muted ? 0 : film.volume;
  };

  play.addEventListener("click", toggle);
  film.addEventListener("click", toggle);
  seek.addEventListener("input", () => goTo(Number(seek.value)));
  mute.addEventListener("click", () => { film.muted = !film.muted; });
  volume.addEventListener("input", () => setVolume(Number(volume.value)));
  speed.addEventListener("change", () => setSpeed(Number(speed.value)));
  pip.hidden = !document.pictureInPictureEnabled;
  fullscreen.hidden = !hasFullscreen;
  const told = (act) => () => act().catch((error) => tell(error.message));
  pip.addEventListener("click", told(togglePip));
  fullscreen.addEventListener("click", told(toggleFullscreen));
  ["play", "pause", "ended"].forEach((it) => film.addEventListener(it, isPlaying));
  ["timeupdate", "durationchange", "seeking"].forEach((it) => film.addEventListener(it, isAt));
  film.addEventListener("volumechange", isLoud);
  film.addEventListener("waiting", () => tell("Loading"));
  ["playing", "seeked"].forEach((it) => film.addEventListener(it, () => tell("")));
  film.addEventListener("enterpictureinpicture", () => pip.setAttribute("aria-pressed", "true"));
  film.addEventListener("leavepictureinpicture", () => pip.setAttribute("aria-pressed", "false"));

  const keys = {
    " ": toggle,
    k: toggle,
    ArrowLeft: () => goTo(film.currentTime - STEP),
    ArrowRight: () => goTo(film.currentTime + STEP),
    j: () => goTo(film.currentTime - LEAP),
    l: () => goTo(film.currentTime + LEAP),
    ArrowUp: () => setVolume(film.volume + 0.1),
    ArrowDown: () => setVolume(film.volume - 0.1),
    Home: () => goTo(0),
    End: () => goTo(Infinity),
    m: () => { film.muted = !film.muted; },
    f: told(toggleFullscreen),
    p: told(togglePip),
    c: toggleSubtitles,
    "<": () => step(-1),
    ">": () => step(1),
  };
  // Letters count only where the player has the focus (WCAG 2.1.4), and no key is taken from a
  // control that has a use for it.
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) {
      return;
    }
    const { tagName } = event.target;
    const isTyped = tagName === "SELECT" || tagName === "INPUT";
    const isPressed = tagName === "BUTTON" && event.key === " ";
    const digit = /^[0-9]$/.test(event.key) ? Number(event.key) : undefined;
    const act = digit === undefined ? keys[event.key] : () => goToTenth(digit);
    if (act && !isPressed && !isTyped) {
      event.preventDefault();
      act();
    }
  });
  isPlaying();
  isAt();
  isLoud();
}
