//! Compiles the eBPF programs that this crate loads, from `bpf/`, with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// By their names in `bpf/`.
const PROGRAMS: [&str; 2] = ["group", "relay"];

fn main() {
    let folder = Path::new("../../bpf");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", folder.join("fan.h").display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in PROGRAMS {
        let source = folder.join(format!("{name}.bpf.c"));
        println!("cargo::rerun-if-changed={}", source.display());
        if let Err(message) = compile(&source, &out.join(format!("{name}.o"))) {
            println!(
                "cargo::error={message}; eBPF programs need clang, libbpf-dev and linux-libc-dev \
                 (on Debian: apt install clang libbpf-dev linux-libc-dev)"
            );
        }
    }
}

fn compile(source: &Path, object: &Path) -> Result<(), String> {
    // Debian keeps <asm/types.h> in a folder per architecture that clang's bpf target does not search.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let output = Command::new("clang")
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf"])
        // Atomic exchange: Linux 5.12, which is older than tcx.
        .arg("-mcpu=v3")
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .output()
        .map_err(|error| format!("clang could not be run ({error})"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr)
        .trim()
        .replace('\n', " | ");
    Err(format!(
        "clang could not compile {}: {said}",
        source.display()
    ))
}
