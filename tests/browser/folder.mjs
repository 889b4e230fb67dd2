// The page of a folder: posters, search, links, both schemes, two widths.

import { accessible, assert, close, open, picture, run, until } from "./lib.mjs";

const visible = () => [...document.querySelectorAll(".item:not([hidden]) bdi")]
  .map((it) => it.textContent);

// Within the page: the films of whose posters nothing is drawn. What is drawn may be black, as the first
// picture of these films is; what is not is transparent.
function notDrawn() {
  const one = document.createElement("canvas");
  [one.width, one.height] = [16, 1];
  const context = one.getContext("2d", { willReadFrequently: true });
  const isDrawn = (poster) => {
    context.clearRect(0, 0, 16, 1);
    context.drawImage(poster.querySelector("video, canvas"), 0, 0, 16, 1);
    const { data } = context.getImageData(0, 0, 16, 1);
    return data.every((it, at) => at % 4 !== 3 || it === 255);
  };
  return [...document.querySelectorAll(".poster.shown")].filter((it) => !isDrawn(it))
    .map((it) => it.closest("li").textContent);
}

async function looks(context) {
  for (const scheme of ["light", "dark"]) {
    for (const [width, height] of [[1280, 800], [390, 844]]) {
      const page = await open(context, "/", { width, height, scheme });
      await until(page, "posters are shown", () => {
        // They are asked for when they come into sight.
        const isAtEnd = scrollY + innerHeight >= document.documentElement.scrollHeight;
        scrollTo(0, isAtEnd ? 0 : scrollY + innerHeight / 2);
        // Of a transport stream, too: this browser plays it. Not of what has no pictures, which
        // is no error either.
        const all = [...document.querySelectorAll(".poster")];
        const isWithout = (it) => /sound.mp4|broken.mp4/.test(it.closest("li").textContent);
        return all.length > 5 && all.filter(isWithout).length === 2
          && all.every((it) => it.classList.contains("shown") !== isWithout(it));
      });
      await until(page, "posters that cannot be are taken back", () =>
        document.querySelectorAll(".poster:not(.shown) video").length === 0);
      await page.evaluate(() => scrollTo(0, 0));
      const dark = await page.evaluate(notDrawn);
      assert(dark.length === 0, `nothing is drawn of ${dark}`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= width, `the page is ${wide} wide at ${width}`);
      await accessible(page);
      await picture(page, `folder-${scheme}-${width}`);
      await close(page);
    }
  }
}

async function searches(context) {
  const page = await open(context, "/");
  const all = await page.evaluate(visible);
  await page.type("#search", "MP4 count");
  assert((await page.evaluate(visible)).join() === "counting.mp4", "one film is found");
  assert(await page.evaluate(() => document.getElementById("films").closest("section").hidden)
    === false, "its section is there");
  assert(await page.evaluate(() => document.getElementById("folders").closest("section").hidden),
    "that of folders is not");
  const found = await page.$eval("#found", (it) => it.textContent);
  assert(found === `1 of ${all.length}`, found);
  await page.$eval("#search", (it) => {
    it.value = "";
    it.dispatchEvent(new Event("input"));
  });
  assert((await page.evaluate(visible)).length === all.length, "all are back");
  await close(page);
}

async function leads(context) {
  const page = await open(context, "/");
  await Promise.all([page.waitForNavigation(), page.click(".folders a")]);
  assert(new URL(page.url()).pathname === "/in%20a%20folder/", page.url());
  const film = await page.$eval("a.play bdi", (it) => it.textContent);
  const file = await page.$eval(".films p a[download]", (it) => it.getAttribute("aria-label"));
  assert(file === `Download ${film}`, file);
  await Promise.all([page.waitForNavigation(), page.click("a.play")]);
  assert(page.url().endsWith("/hls/index.html"), page.url());
  await until(page, "the film is there", () => document.querySelector("#film").readyState >= 2);
  await Promise.all([page.waitForNavigation(), page.click("header a")]);
  await Promise.all([page.waitForNavigation(), page.click("nav a")]);
  assert(new URL(page.url()).pathname === "/", page.url());
  await close(page);
}

await run({ looks, searches, leads });
