// A folder: searching in it, and posters, which are films of one picture. A poster is asked for
// when it comes into sight, and few at once: the server may have to look into the film first.

import { offerCopy } from "./addresses.js";

const POSTERS_AT_ONCE = 3;

const search = document.getElementById("search");
const found = document.getElementById("found");
const items = [...document.querySelectorAll(".item")];

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

// Shows a film's poster, if it has one that this browser can decode.
function show(place) {
  const film = document.createElement("video");
  film.muted = true;
  film.playsInline = true;
  film.preload = "auto";
  film.disablePictureInPicture = true;
  film.tabIndex = -1;
  film.setAttribute("aria-hidden", "true");
  const page = place.closest("a").href;
  film.src = new URL("poster.mp4", page).href;
  place.append(film);
  return new Promise((done) => {
    film.addEventListener("loadeddata", () => {
      place.classList.add("shown");
      done();
    }, { once: true });
    film.addEventListener("error", () => {
      film.remove();
      done();
    }, { once: true });
  });
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

document.querySelectorAll(".poster[data-film]").forEach((place) => sight.observe(place));
document.querySelectorAll(".copied").forEach((code) => offerCopy(code));
document.getElementById("search-label").hidden = false;
search.addEventListener("input", filter);
filter();
