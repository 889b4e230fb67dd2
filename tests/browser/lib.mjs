// What the tests of pages share: a browser, pages that may make no error, and what films show.

import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

export const here = fileURLToPath(new URL(".", import.meta.url));

// Bounds every wait for something that takes moments; never a measure.
export const WAIT_MS = 60_000;

export function assert(holds, text) {
  if (!holds) {
    throw new Error(text);
  }
}

// Runs named checks one after the other in one browser; the first that fails ends all.
export async function run(checks) {
  const [site, kind = "chromium"] = process.argv.slice(2);
  const folder = mkdtempSync(join(tmpdir(), "onrush-browser-"));
  const browser = await launch(kind, folder);
  try {
    for (const [name, check] of Object.entries(checks)) {
      await check({ browser, site, kind });
      console.log(`passed: ${name}`);
    }
  } catch (error) {
    console.log(`failed: ${error.stack}`);
    process.exitCode = 1;
  } finally {
    await browser.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

export function launch(kind, userDataDir) {
  // Certificates of tests are signed by nobody.
  const common = { headless: true, acceptInsecureCerts: true, userDataDir, protocolTimeout: 3 * WAIT_MS };
  if (kind === "firefox") {
    return puppeteer.launch({
      ...common, browser: "firefox", executablePath: "/usr/bin/firefox-esr",
      extraPrefsFirefox: { "media.autoplay.default": 0 },
    });
  }
  return puppeteer.launch({
    ...common,
    executablePath: "/usr/bin/chromium-headless-shell",
    args: ["--no-sandbox", "--disable-gpu", "--mute-audio",
      "--autoplay-policy=no-user-gesture-required"],
  });
}

// A page that writes down what must not happen on it.
export async function open({ browser, site }, url, { width = 1280, height = 800, scheme, network } = {}) {
  const page = await browser.newPage();
  page.setDefaultTimeout(WAIT_MS);
  page.wrong = [];
  page.on("console", (message) => {
    if (["error", "warn", "warning"].includes(message.type())) {
      page.wrong.push(`console: ${message.text()} ${message.location()?.url ?? ""}`);
    }
  });
  page.on("pageerror", (error) => page.wrong.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const to = request.url();
    if (!to.startsWith(site) && !/^(blob|data|about):/.test(to)) {
      page.wrong.push(`asks another host: ${to}`);
    }
  });
  await page.setViewport({ width, height });
  if (scheme) {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  }
  if (network) {
    // What a test before has fetched would come at once.
    await page.setCacheEnabled(false);
    await page.emulateNetworkConditions(network);
  }
  await page.goto(new URL(url, site).href);
  return page;
}

// What nobody may find at the end, either.
export async function close(page) {
  assert(page.wrong.length === 0, `${page.url()}: ${page.wrong.join("\n")}`);
  await page.close();
}

// axe-core finds nothing.
export async function accessible(page) {
  await page.evaluate(readFileSync(join(here, "node_modules/axe-core/axe.min.js"), "utf8"));
  const found = await page.evaluate(async () => {
    const { violations } = await window.axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    });
    return violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).join(" ")}`);
  });
  assert(found.length === 0, `${page.url()}: ${found.join("\n")}`);
}

// A picture of the page, for whoever wants to look at it.
export async function picture(page, name) {
  const folder = process.env.ONRUSH_SCREENSHOTS;
  if (folder) {
    mkdirSync(folder, { recursive: true });
    await page.screenshot({ path: join(folder, `${name}.png`) });
  }
}

export async function until(page, what, holds, ...args) {
  try {
    await page.waitForFunction(holds, { timeout: WAIT_MS, polling: 50 }, ...args);
  } catch (error) {
    const state = await page.evaluate(() => {
      const film = document.querySelector("video#film");
      return `${document.getElementById("state")?.textContent}; at ${film?.currentTime}, ready ` +
        `${film?.readyState}, ${film?.error?.message}`;
    });
    throw new Error(`not within ${WAIT_MS} ms: ${what} (${state}; ${page.wrong.join("; ")})`);
  }
}

// Within the page: the second of the film that is shown. Its pictures say it: eight bars, the
// lowest bit to the left.
export function secondShown() {
  const film = document.querySelector("video#film");
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [film.videoWidth, film.videoHeight];
  const context = canvas.getContext("2d");
  context.drawImage(film, 0, 0);
  const line = context.getImageData(0, canvas.height >> 1, canvas.width, 1).data;
  const bar = Math.floor(canvas.width / 8);
  let second = 0;
  for (let bit = 0; bit < 8; bit += 1) {
    second |= (line[4 * (bit * bar + (bar >> 1))] > 128 ? 1 : 0) << bit;
  }
  return second;
}

// Seeks to each of these times and sees the right picture there.
export async function seeks(page, times) {
  await page.evaluate(`window.secondShown = ${secondShown}`);
  for (const time of times) {
    await page.evaluate((to) => { document.querySelector("#film").currentTime = to; }, time);
    await until(page, `second ${Math.floor(time)} is shown`, (second) => {
      const film = document.querySelector("#film");
      return !film.seeking && film.readyState >= 2 && window.secondShown() === second;
    }, Math.floor(time));
  }
}
