//! The examples do what they say.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Cargo builds examples before it runs tests, beside them.
fn example(name: &str) -> Command {
    let mut path = std::env::current_exe().expect("a test is a program");
    path.pop();
    path.pop();
    Command::new(path.join("examples").join(name))
}

#[test]
fn a_game_server_tells_all_players_the_same() {
    let mut command = example("game_state");
    let mut server = command
        .arg("127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn()
        .expect("built with the tests; `cargo test -p onrush-group` builds it");
    let mut said = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let first = said.next().expect("a line").expect("text");
    let door: SocketAddr = first
        .strip_prefix("players join at ")
        .and_then(|door| door.parse().ok())
        .expect("an address");
    let players = [0; 3].map(|_| UdpSocket::bind("127.0.0.1:0").expect("loopback"));
    for player in &players {
        let limit = Some(Duration::from_secs(20));
        player.set_read_timeout(limit).expect("a time-out");
        player.send_to(b"join", door).expect("loopback");
    }
    let state = |player: &UdpSocket| {
        let mut state = [0; 200];
        assert_eq!(player.recv(&mut state).expect("a state"), 100);
        u64::from_be_bytes(state[..8].try_into().expect("eight bytes"))
    };
    let heard: Vec<_> = players.iter().map(state).collect();
    let last = heard.iter().max().expect("three");
    for (player, &first) in players.iter().zip(&heard) {
        // Each from when it joined on, and none left out.
        (first + 1..last + 4).for_each(|tick| assert_eq!(state(player), tick));
    }
    players[0].send_to(b"leave", door).expect("loopback");
    assert!(said.any(|line| line.expect("text").ends_with("true: 2 players")));
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

/// What docs/group.md shows is the program that runs above.
#[test]
fn the_document_shows_the_example() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).expect("in the tree");
    let example = read("crates/group/examples/game_state.rs");
    let shown = example.find("use std::error").expect("its imports");
    assert!(read("docs/group.md").contains(&format!("```rust\n{}```", &example[shown..])));
}

/// so_setsendgrp(7) has every option of the header with its number, and every error the program
/// answers.
#[test]
fn the_manual_page_has_options_and_errors() {
    let read = |path: &str| {
        let root = env!("CARGO_MANIFEST_DIR");
        std::fs::read_to_string(format!("{root}/{path}")).expect("in the tree")
    };
    let (manual, header) = (
        read("man/so_setsendgrp.7"),
        read("include/onrush_sendgrp.h"),
    );
    let options = header.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("#define ")?.split_once(' ')?;
        name.starts_with("SO_").then_some((name, number))
    });
    let options: Vec<_> = options.collect();
    assert_eq!(options.len(), 5);
    for (name, number) in options {
        assert!(
            manual.contains(&format!(".BR {name} \" ({number})\"\n")),
            "{name}"
        );
    }
    let program = read("bpf/sendgrp.bpf.c");
    let errors = program.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("#define ")?.split_once("_ ")?;
        name.starts_with('E').then_some(name)
    });
    let errors: Vec<_> = errors.collect();
    assert_eq!(errors.len(), 10);
    for error in errors {
        assert!(manual.contains(&format!(".TP\n.B {error}\n")), "{error}");
    }
}
