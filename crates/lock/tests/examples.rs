//! The examples do what they say.

use std::process::Command;

/// Cargo builds examples before it runs tests, beside them.
fn example(name: &str) -> Command {
    let mut path = std::env::current_exe().expect("a test is a program");
    path.pop();
    path.pop();
    Command::new(path.join("examples").join(name))
}

#[test]
fn one_receive_serves_two_processes() {
    let output = example("one_receive_serves_two").output();
    let output = output.expect("built with the tests; `cargo test -p onrush-lock` builds it");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("in 1 operation of A's"), "{said}");
    assert!(said.contains("B: read the same 61440 bytes"), "{said}");
}
