// Takes the picture of the page that the README shows; docs/page.sh calls it.

import { run, open, close, until } from "./lib.mjs";

async function taken(context) {
  const page = await open(context, "demo.mp4/hls/index.html", { width: 960, height: 760 });
  await until(page, "it is ready", () => document.querySelector("#film").readyState >= 2);
  await page.evaluate(() => { document.querySelector("#film").currentTime = 3; });
  await until(page, "it is there", () => !document.querySelector("#film").seeking &&
    document.querySelector("#film").readyState >= 2);
  await page.screenshot({ path: process.env.PICTURE });
  await close(page);
}

await run({ taken });
