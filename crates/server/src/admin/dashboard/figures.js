// What is told of numbers: rates between two statuses, quantiles, and how they are written.
// Nothing here knows a browser.

const sum = (all) => all.reduce((a, b) => a + b, 0);

export function bits(bps) {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
  return scaled(bps, 1000, units);
}

export function bytes(count) {
  return scaled(count, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

function scaled(number, by, units) {
  let [value, at] = [number, 0];
  while (value >= by * 0.9995 && at < units.length - 1) {
    [value, at] = [value / by, at + 1];
  }
  return `${at === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export function milliseconds(ns) {
  if (ns === undefined) {
    return "-";
  }
  return ns === Infinity ? "more" : `${(ns / 1e6).toFixed(1)} ms`;
}

export function percent(part) {
  return `${(part * 100).toFixed(part < 0.1 && part > 0 ? 1 : 0)} %`;
}

// Buckets are pairs of end and count; the last has no end. The end of the bucket that has this part of all.
export function quantile(buckets, part) {
  const all = sum(buckets.map(([, count]) => count));
  let seen = 0;
  for (const [end, count] of buckets) {
    seen += count;
    if (all > 0 && seen >= all * part) {
      return end ?? Infinity;
    }
  }
  return undefined;
}

// What of a histogram happened between two.
export function between(before, now) {
  const known = new Map(before);
  const counts = now.map(([end, count]) => [end, count - (known.get(end) ?? 0)]);
  return counts.filter(([, count]) => count > 0);
}

// What happens in a second, by two statuses.
export function rates(before, now) {
  const seconds = Math.max((now.at_ns - before.at_ns) / 1e9, 0.001);
  const grown = (of) => Math.max(of(now) - of(before), 0) / seconds;
  const engines = (of) => (it) => sum(it.engines.map(of));
  const lateness = now.engines.map((engine, at) =>
    between(before.engines[at]?.lateness.buckets ?? [], engine.lateness.buckets));
  const joined = new Map();
  lateness.flat().forEach(([end, count]) => joined.set(end, (joined.get(end) ?? 0) + count));
  return {
    seconds,
    lateness,
    late_ns: quantile([...joined].sort(([a], [b]) => (a ?? Infinity) - (b ?? Infinity)), 0.999),
    rtp_bps: 8 * grown(engines((it) => it.bytes)),
    http_bps: 8 * grown((it) => (it.downloads?.bytes ?? 0) + (it.hls?.sent_bytes ?? 0)),
    channels_bps: 8 * grown((it) => sum(it.channels.map((of) => of.sent.bytes))),
    grown,
  };
}

export const load = (status) => Math.max(0, ...status.engines.map((it) => it.admission.load_measured));
