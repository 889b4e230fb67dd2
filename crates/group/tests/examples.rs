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
