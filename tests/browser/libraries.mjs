// Several libraries: the first page leads to each of them, and a film is that of its own library
// also where another one has the same name.

import { accessible, assert, close, open, picture, run, seeks, until } from "./lib.mjs";

// The films of each, which have one name, and how long they last.
const SECONDS = { films: 30, archive: 20 };

const path = (page) => new URL(page.url()).pathname;

async function follow(page, what) {
  await Promise.all([page.waitForNavigation(), page.click(what)]);
}

async function ready(page, library) {
  await until(page, "it is ready", () => document.querySelector("#film").readyState >= 3);
  const lasts = await page.$eval("#film", (it) => it.duration);
  assert(Math.abs(lasts - SECONDS[library]) < 0.5, `${library}'s lasts ${lasts} s`);
}

async function leads(context) {
  const page = await open(context, "/");
  const names = await page.$$eval(".folders bdi", (all) => all.map((it) => it.textContent));
  assert(names.sort().join() === "archive/,films/", `${names} are listed`);
  await accessible(page);
  await picture(page, "libraries");
  for (const library of Object.keys(SECONDS)) {
    await follow(page, `.folders a[href="${library}/"]`);
    assert(path(page) === `/${library}/`, page.url());
    await until(page, "a poster is shown", () => document.querySelector(".poster.shown"));
    await follow(page, "a.play");
    assert(path(page) === `/${library}/counting.mp4/hls/index.html`, page.url());
    await ready(page, library);
    await page.$eval("#film", (it) => { it.muted = true; });
    await page.click("#play");
    await until(page, "it plays", () => document.querySelector("#film").currentTime > 0.5);
    await page.click("#play");
    await seeks(page, [SECONDS[library] - 4.5, 2.5, 9.5]);
    await follow(page, "header a");
    assert(path(page) === `/${library}/`, page.url());
    await follow(page, "nav a");
    assert(path(page) === "/", page.url());
  }
  await close(page);
}

// By Media Source, one after the other in one page.
async function by_media_source(context) {
  const page = await open(context, "/");
  for (const library of Object.keys(SECONDS)) {
    await page.goto(new URL(`/${library}/counting.mp4/hls/index.html?by=mse`, context.site).href);
    await ready(page, library);
    await seeks(page, [SECONDS[library] - 2.5, 5.5]);
  }
  await close(page);
}

await run({ leads, by_media_source });
