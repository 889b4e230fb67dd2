//! Tells the program which commit it was built from, where git knows.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    // HEAD changes when a branch is checked out, the branch's file with every commit on it.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in [
        "HEAD".to_owned(),
        branch.unwrap_or_default(),
        "packed-refs".to_owned(),
    ] {
        let Some(path) = git(&["rev-parse", "--git-path", &name]) else {
            continue;
        };
        if !name.is_empty() && std::fs::exists(&path).unwrap_or(false) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let known = commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo:rustc-env=ONRUSH_VERSION={known}");
}

/// What git prints, or `None` without git, without a repository, or without an answer.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
