// Which of several variants is fetched next, by how fast segments came and by how much is held.
// Nothing here knows a browser.

// Of what segments brought, this part is counted on.
const USED = 0.75;

// With fewer seconds than these at hand a variant is left for a lower one, and only with more than
// these for a higher one: in between it stays, so that it does not change to and fro.
const LOW = 8;
const HIGH = 12;

// How fast the last segments came: a mean that forgets.
export class Throughput {
  constructor() {
    this.bps = undefined;
  }

  // Takes a segment: its bytes, and how long it took. What comes out of a cache at once says
  // little.
  add(bytes, seconds) {
    if (bytes < 1024) {
      return;
    }
    const bps = (bytes * 8) / Math.max(seconds, 0.001);
    this.bps = this.bps === undefined ? bps : 0.6 * this.bps + 0.4 * bps;
  }
}

// The number of the variant for the next segment. `rates` are those of the variants in bits a
// second, `now` the one that plays, `held` how many seconds are at hand. With nothing measured yet,
// what plays.
export function choose(rates, now, bps, held) {
  if (bps === undefined || rates.length < 2) {
    return now;
  }
  const order = rates.map((_, at) => at).sort((a, b) => rates[a] - rates[b]);
  const fitting = order.filter((at) => rates[at] <= bps * USED);
  const best = fitting.length > 0 ? fitting[fitting.length - 1] : order[0];
  const isHigher = rates[best] > rates[now];
  if (best === now || (isHigher && held < HIGH) || (!isHigher && held > LOW)) {
    return now;
  }
  return best;
}

// The variant to begin with: the best below what most lines carry, or the least.
export function first(rates, bps = 3_000_000) {
  const order = rates.map((_, at) => at).sort((a, b) => rates[a] - rates[b]);
  const fitting = order.filter((at) => rates[at] <= bps);
  return fitting.length > 0 ? fitting[fitting.length - 1] : order[0];
}
