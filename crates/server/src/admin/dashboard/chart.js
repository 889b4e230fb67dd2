// Lines over the last hour: the samples that the server tells, and behind them what is now. Drawn as
// the most of each few.

const SAMPLES = 720;
const POINTS = 300;
const SVG = "http://www.w3.org/2000/svg";

export class Chart {
  constructor(place, title, write) {
    this.samples = [];
    this.write = write;
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    this.now = document.createElement("b");
    this.most = document.createElement("span");
    caption.append(title, this.most, this.now);
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${POINTS} 100`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    this.svg = svg;
    this.title = title;
    this.line = document.createElementNS(SVG, "path");
    svg.append(this.line);
    figure.append(caption, svg);
    place.append(figure);
  }

  // Takes samples that the server has made since.
  add(values) {
    this.samples.push(...values.map((it) => it ?? 0));
    this.samples.splice(0, this.samples.length - SAMPLES);
  }

  forget() {
    this.samples = [];
  }

  draw(now) {
    const samples = [...this.samples, now];
    const each = Math.max(Math.ceil(samples.length / POINTS), 1);
    const points = [];
    for (let at = 0; at < samples.length; at += each) {
      // What is early is negative lateness: not late.
      points.push(Math.max(0, ...samples.slice(at, at + each)));
    }
    const most = Math.max(...points);
    const step = POINTS / Math.max(points.length - 1, 1);
    const places = points.map((value, at) =>
      `${(at * step).toFixed(1)} ${(97 - (94 * value) / Math.max(most, Number.MIN_VALUE)).toFixed(1)}`);
    this.line.setAttribute("d", `M${places.join("L")}`);
    const last = this.write(samples[samples.length - 1]);
    const top = `most ${this.write(most)}`;
    this.now.textContent = last;
    this.most.textContent = top;
    this.svg.setAttribute("aria-label", `${this.title}: now ${last}, ${top}`);
  }
}
