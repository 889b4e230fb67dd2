// The nodes of the cluster that the server is one of, what each has to do, and which node receives
// which channel.

import { bits, percent } from "./figures.js";

// More rows than these nobody reads; the nodes that are used most are shown.
const ROWS = 200;

// How much of what it can play a node plays.
function used(node) {
  return node.load_bps / Math.max(node.capacity_bps, 1);
}

function stateOf(node) {
  const notes = [node.is_this ? "this one" : "", node.accepts ? "" : "drains"];
  return notes.filter(Boolean).join(", ") || "takes viewers";
}

// What there is to tell of all nodes, in words.
function summary(said, nodes) {
  const bps = nodes.reduce((all, it) => all + it.load_bps, 0);
  const sessions = nodes.reduce((all, it) => all + it.sessions, 0);
  const parts = nodes.filter((it) => it.accepts).map(used);
  const mean = parts.reduce((all, it) => all + it, 0) / Math.max(parts.length, 1);
  const most = Math.max(0, ...parts);
  const spread = mean > 0.01 ? `, the busiest at ${(most / mean).toFixed(2)} of the mean` : "";
  const registry = said.is_registered ? "" :
    ` The registry is not reached, and what is shown gets old: ${said.error ?? "no reason"}.`;
  const hidden = nodes.length > ROWS ? ` The ${ROWS} that are used most are shown.` : "";
  return `Cluster ${said.cluster}: ${nodes.length} nodes, ${sessions} sessions, ${bits(bps)}` +
    `${spread}.${registry}${hidden}`;
}

// `rows` fills a table; `of` finds an element.
export function tellNodes(said, rows, of) {
  const nodes = said.nodes.length > ROWS ?
    [...said.nodes].sort((a, b) => used(b) - used(a)) : said.nodes;
  of("cluster").hidden = false;
  of("cluster-note").textContent = summary(said, nodes);
  rows(of("node-rows"), nodes.slice(0, ROWS).map((it) => [
    it.node, stateOf(it), String(it.sessions), percent(used(it)), bits(it.load_bps),
    bits(it.capacity_bps), it.rtsp ?? it.rtsps ?? "-", it.http ?? it.https ?? "-", it.version,
  ]));
  rows(of("cluster-channel-rows"), said.channels.slice(0, ROWS).map((it) => [
    it.channel, it.is_this ? `${it.node}, this one` : it.node,
    it.lease === null ? "none: for this node's viewers alone" : String(it.lease),
    it.standby ?? "-",
  ]));
  of("cluster-channels").hidden = said.channels.length === 0;
  const ignored = said.ignored.slice(0, ROWS).map((it) => `${it.key}: ${it.reason}`);
  of("cluster-ignored").textContent = ignored.length > 0 ?
    `The registry holds what is ignored: ${ignored.join("; ")}` : "";
}
