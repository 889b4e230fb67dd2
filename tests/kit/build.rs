//! Compiles the eBPF programs that this crate loads, from `bpf/`.

#[path = "../../crates/group/bpf/compile.rs"]
mod bpf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    bpf::compile_all(&["sink", "slice", "tcp_sink"], &[]);
}
