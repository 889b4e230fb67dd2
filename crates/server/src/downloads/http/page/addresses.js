// Addresses for other players, each with a button that copies it.

// A button behind `code` that copies its text.
export function offerCopy(code, what = code.textContent) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${what}`);
  button.addEventListener("click", async () => {
    await copy(code);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  code.after(button);
}

// Pages without encryption have no clipboard of the newer kind, except on the machine itself.
async function copy(code) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      return;
    } catch {
      // It may be forbidden; then by the older way.
    }
  }
  const range = document.createRange();
  range.selectNodeContents(code);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
  document.execCommand("copy");
}

// The command that fetches a file which lies beside the page at `page`. Behind a proxy the server,
// which wrote it, may know neither the scheme of that page nor its whole path.
export function fetching(command, page) {
  const url = (name) => quotable(new URL(name, page).href);
  return command.replace(/'.*\/([^/']+)'$/, (_, name) => `'${url(name)}'`);
}

// The same URL, without what would end a shell's quotes: a path may have it.
function quotable(url) {
  return url.replaceAll("'", "%27");
}

// Of the film whose page is at `page`: what each player is given. A channel is not downloaded, nor
// is a film of several files, which is a folder or a list of them.
export function addresses(page, { isChannel, hasManifest }) {
  const { search } = new URL(page);
  const of = (path) => quotable(`${new URL(path, page).href}${search}`);
  const hls = of("index.m3u8");
  const film = quotable(page).replace(/[?#].*$/, "").replace(/\/hls\/[^/]*$/, "");
  const isOneFile = !/\.film(\.json)?$/.test(film);
  return [["VLC", `vlc '${hls}'`], ["ffplay", `ffplay '${hls}'`], ["HLS", hls],
    ...(hasManifest ? [["DASH", of("../dash/manifest.mpd")]] : []),
    ...(isOneFile && !isChannel ? [["Download", `${film}${search}`]] : [])];
}

export function offerAddresses(list, page, has) {
  for (const [name, text] of addresses(page, has)) {
    const line = document.createElement("li");
    const label = document.createElement("span");
    label.textContent = name;
    const code = document.createElement("code");
    code.textContent = text;
    line.append(label, code);
    if (name === "Download") {
      const link = document.createElement("a");
      link.href = text;
      link.download = "";
      code.replaceChildren(link);
      link.textContent = text;
    }
    list.append(line);
    offerCopy(code, `the address for ${name}`);
  }
}
