// Watches the page of a film in a frame, as a viewer would, and says what it saw by asking for a
// file whose name tells it: the server's access log has it then.
//
// The film's pictures say in which second they are: eight bars, the lowest bit to the left.

const BITS = 8;
const WAIT_MS = 30000;
const frame = document.querySelector("iframe");
const seen = [];

async function until(what, holds) {
  const end = performance.now() + WAIT_MS;
  while (!holds()) {
    if (performance.now() > end) {
      throw new Error(`not within ${WAIT_MS} ms: ${what}`);
    }
    await new Promise((done) => setTimeout(done, 20));
  }
}

function secondShown(film) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [film.videoWidth, film.videoHeight];
  const context = canvas.getContext("2d");
  context.drawImage(film, 0, 0);
  const line = context.getImageData(0, canvas.height >> 1, canvas.width, 1).data;
  const bar = Math.floor(canvas.width / BITS);
  let second = 0;
  for (let bit = 0; bit < BITS; bit += 1) {
    const middle = 4 * (bit * bar + (bar >> 1));
    second |= (line[middle] > 128 ? 1 : 0) << bit;
  }
  return second;
}

async function open(url) {
  const loaded = new Promise((done) => frame.addEventListener("load", done, { once: true }));
  frame.src = url;
  await loaded;
  const page = frame.contentDocument;
  page.addEventListener("securitypolicyviolation", (event) => seen.push(event.violatedDirective));
  frame.contentWindow.addEventListener("error", (event) => seen.push(event.message));
  const film = page.getElementById("film");
  film.muted = true;
  await until(`${url} has pictures`, () =>
    film.readyState >= 3 || page.getElementById("state").textContent !== "");
  return { page, film };
}

async function watch(url, isNative) {
  const { page, film } = await open(url);
  const told = page.getElementById("state").textContent;
  if (told !== "") {
    throw new Error(told);
  }
  if (film.currentSrc.startsWith("blob:") === isNative) {
    throw new Error(`${url}: plays ${film.currentSrc}`);
  }
  await film.play();
  await until("it plays", () => film.currentTime > 1);
  film.pause();
  for (const time of [15.5, 3.5, 24.5, 0.5, 12.5]) {
    film.currentTime = time;
    await until(`it seeks to ${time}`, () => !film.seeking && film.readyState >= 2);
    await until(`second ${Math.floor(time)} is shown`, () =>
      secondShown(film) === Math.floor(time));
  }
  const from = film.duration - 2;
  film.currentTime = from;
  film.playbackRate = 2;
  await film.play();
  await until("it ends", () => film.ended);
  if (Math.abs(film.duration - 30) > 0.5 || seen.length > 0) {
    throw new Error(`lasts ${film.duration}; ${seen.join("; ")}`);
  }
}

async function all() {
  await watch("counting.mp4/hls/index.html", true);
  await watch("counting.ts/hls/index.html", true);
  await watch("counting.mp4/hls/index.html?by=mse", false);
  // What does not play says why.
  const { page } = await open("counting.ts/hls/index.html?by=mse");
  return page.getElementById("state").textContent;
}

all().then(
  (told) => fetch(`said-well-${encodeURIComponent(told)}`),
  (error) => fetch(`said-badly-${encodeURIComponent(`${error.message}; ${seen.join("; ")}`)}`),
);
