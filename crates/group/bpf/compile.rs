//! Compiles eBPF programs with clang, for the build scripts of the crates that load them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the programs of these names in the package's folder `bpf`, with these options besides
/// what all have.
pub(crate) fn compile_all(names: &[&str], options: &[&str]) {
    let folder = Path::new("bpf");
    println!("cargo::rerun-if-changed={}", folder.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in names {
        let source = folder.join(format!("{name}.bpf.c"));
        if let Err(message) = compile(&source, &out.join(format!("{name}.o")), options) {
            println!(
                "cargo::error={message}; eBPF programs need clang, libbpf-dev and linux-libc-dev \
                 (on Debian: apt install clang libbpf-dev linux-libc-dev)"
            );
        }
    }
}

fn compile(source: &Path, object: &Path, options: &[&str]) -> Result<(), String> {
    // Debian keeps <asm/types.h> in a folder per architecture that clang's bpf target does not
    // search.
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let output = Command::new("clang")
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf"])
        .args(options)
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
