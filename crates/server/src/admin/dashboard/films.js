// What the cache holds by film: a row of each, with a bar as long as its part of the cache.

import { bytes, percent } from "./figures.js";

const SVG = "http://www.w3.org/2000/svg";

// A bar of all that a film has, and in it of what is in use.
function bar(cell, parts) {
  let svg = cell.firstElementChild;
  if (!svg) {
    svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 100 10");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    for (const name of ["held", "used"]) {
      const rect = document.createElementNS(SVG, "rect");
      rect.setAttribute("class", name);
      rect.setAttribute("height", "10");
      svg.append(rect);
    }
    cell.replaceChildren(svg);
  }
  parts.forEach((part, at) => svg.children[at].setAttribute("width", String(100 * part)));
}

// Changed in place, so that nobody who reads is thrown out.
export function tellFilms(body, map) {
  const all = Math.max(map.bytes, 1);
  const rest = map.others_count > 0 ? [{ ...map.others, film: `${map.others_count} other films` }] : [];
  const closed = map.closed_bytes > 0 ? [{ film: "files that are closed or have changed",
    bytes: map.closed_bytes, in_use_bytes: 0, sessions: undefined }] : [];
  const films = [...map.films, ...rest, ...closed];
  // Bars are told apart only where the longest is all of the width.
  const most = Math.max(1, ...films.map((it) => it.bytes));
  films.forEach((it, at) => {
    const row = body.rows[at] ?? body.insertRow();
    const cell = (column) => row.cells[column] ?? row.insertCell();
    const cells = [it.film, undefined, percent(it.bytes / all), bytes(it.bytes),
      bytes(it.in_use_bytes), it.sessions === undefined ? "-" : String(it.sessions)];
    cells.forEach((text, column) => {
      const place = cell(column);
      if (text === undefined) {
        bar(place, [it.bytes / most, it.in_use_bytes / most]);
      } else if (place.textContent !== text) {
        place.textContent = text;
      }
    });
  });
  while (body.rows.length > films.length) {
    body.deleteRow(-1);
  }
  return films.length;
}
