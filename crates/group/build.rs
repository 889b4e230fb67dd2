//! Compiles the eBPF programs that this crate loads, from `bpf/`.

#[path = "bpf/compile.rs"]
mod bpf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Atomic exchange: Linux 5.12, which is older than tcx.
    bpf::compile_all(&["group", "relay", "sendgrp"], &["-mcpu=v3"]);
}
