// The page over HTTPS: it plays, seeks and shows subtitles, by HTTP/2.

import { assert, close, open, picture, run, seeks, until } from "./lib.mjs";

async function plays(context) {
  for (const by of ["", "?by=mse"]) {
    const page = await open(context, `counting.mp4/hls/index.html${by}`);
    await until(page, "it is ready", () => document.querySelector("#film").readyState >= 2);
    await page.evaluate(() => document.querySelector("#film").play());
    await until(page, "it plays", () => document.querySelector("#film").currentTime > 0.3);
    await page.evaluate(() => document.querySelector("#film").pause());
    await seeks(page, [17.5, 4.5]);
    await until(page, "subtitles are offered", () =>
      !document.querySelector("#subtitles-label").hidden);
    await page.select("#subtitles", "0");
    await until(page, "a subtitle is shown", () =>
      [...document.querySelectorAll("track")].some(({ track }) =>
        track.mode === "showing" && track.activeCues?.[0]?.text === "four <i>and</i> more"));
    const protocols = await page.evaluate(() => performance.getEntriesByType("resource")
      .filter((it) => it.name.startsWith("https:") && it.transferSize > 0)
      .map((it) => it.nextHopProtocol));
    const others = protocols.filter((it) => it !== "h2");
    assert(protocols.length > 3 && others.length === 0, `by ${protocols}`);
    await picture(page, "page");
    await close(page);
  }
}

await run({ plays });
