// A folder: links to pages that play, searching in it, and posters, which are films of one picture.
// A poster is asked for when it comes into sight, and few at once: the server may have to look into
// the film first.

import { fetching, offerCopy } from "./addresses.js";

const POSTERS_AT_ONCE = 3;
const FRAME_WAIT_MS = 2000;

const search = document.getElementById("search");
const found = document.getElementById("found");
const items = [...document.querySelectorAll(".item")];

// Programs that read the HTML find the file alone. Here its name becomes a link to the page that
// plays it, with the file beside it.
function makePlayable(item) {
  const [poster, name] = [item.querySelector(".poster"), item.querySelector("bdi")];
  const shown = name.textContent.replace(/\/$/, "");
  const play = document.createElement("a");
  play.className = "play";
  play.setAttribute("href", item.dataset.play);
  const file = name.querySelector("a");
  if (file === null) {
    play.setAttribute("aria-label", `Watch ${shown}`);
  } else {
    const isFolder = file.getAttribute("href").endsWith("/");
    file.toggleAttribute("download", !isFolder);
    file.setAttribute("aria-label", isFolder ? `Files of ${shown}` : `Download ${shown}`);
    file.textContent = isFolder ? "Files" : "Download";
    item.querySelector("p").append(" ", file);
    name.textContent = shown;
  }
  play.append(poster, name);
  item.prepend(play);
}

function name(item) {
  return item.querySelector("bdi").textContent.toLowerCase();
}

function filter() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const item of items) {
    item.hidden = !words.every((word) => name(item).includes(word));
    count += item.hidden ? 0 : 1;
  }
  for (const section of document.querySelectorAll("main > section")) {
    const own = [...section.querySelectorAll(".item")];
    section.hidden = own.length > 0 && own.every((item) => item.hidden);
  }
  found.textContent = words.length > 0 ? `${count} of ${items.length}` : "";
}

const waiting = [];
let loading = 0;

function next() {
  while (loading < POSTERS_AT_ONCE && waiting.length > 0) {
    const place = waiting.shift();
    loading += 1;
    show(place).finally(() => {
      loading -= 1;
      next();
    });
  }
}

// What a playlist brings after its first picture is not wanted: a still takes its place.
async function still(film, place) {
  if (film.requestVideoFrameCallback) {
    await new Promise((done) => {
      film.requestVideoFrameCallback(done);
      setTimeout(done, FRAME_WAIT_MS);
    });
  }
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [film.videoWidth, film.videoHeight];
  picture.getContext("2d").drawImage(film, 0, 0);
  picture.setAttribute("aria-hidden", "true");
  film.removeAttribute("src");
  film.load();
  film.remove();
  place.append(picture);
}

// Shows a film's poster, if it has one that this browser can decode.
async function show(place) {
  const name = place.dataset.film;
  const isPlaylist = name.endsWith(".m3u8");
  const film = document.createElement("video");
  film.muted = true;
  film.playsInline = true;
  film.preload = "auto";
  film.disablePictureInPicture = true;
  film.tabIndex = -1;
  film.setAttribute("aria-hidden", "true");
  const page = place.closest("a").href;
  if (isPlaylist && film.canPlayType("application/vnd.apple.mpegurl") === "") {
    return;
  }
  film.src = new URL(name, page).href;
  place.append(film);
  const isLoaded = await new Promise((done) => {
    film.addEventListener("loadeddata", () => done(film.videoWidth > 0), { once: true });
    film.addEventListener("error", () => done(false), { once: true });
  });
  if (!isLoaded) {
    film.removeAttribute("src");
    film.remove();
    return;
  }
  if (isPlaylist) {
    await still(film, place);
  }
  place.classList.add("shown");
}

const sight = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    if (isIntersecting) {
      sight.unobserve(target);
      waiting.push(target);
    }
  }
  next();
}, { rootMargin: "200px" });

document.querySelectorAll("[data-play]").forEach((item) => makePlayable(item));
document.querySelectorAll(".poster[data-film]").forEach((place) => sight.observe(place));
document.querySelectorAll(".copied").forEach((code) => offerCopy(code));
const command = document.querySelector("#terminal + pre code");
if (command !== null) {
  command.textContent = fetching(command.textContent, location.href);
}
document.getElementById("search-label").hidden = false;
search.addEventListener("input", filter);
filter();
