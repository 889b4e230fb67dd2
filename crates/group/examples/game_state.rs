//! A game server tells every player the state of the world, thirty times a second: one send,
//! however many they are.
//!
//! `cargo run --example game_state -- 0.0.0.0:4000`; a player joins by any datagram, and leaves by
//! the word leave.

#![allow(clippy::print_stdout, reason = "an example tells what it does")]

use std::error::Error;
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::Duration;

use onrush_group::{Group, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let door = std::env::args().nth(1);
    let door = UdpSocket::bind(door.as_deref().unwrap_or("127.0.0.1:4000"))?;
    door.set_nonblocking(true)?;
    let speaker = UdpSocket::bind((door.local_addr()?.ip(), 0))?;
    let mut players = Group::open(speaker, &Options::default())?;
    println!("players join at {}", door.local_addr()?);
    println!("sending by {}: {}", players.way(), players.reason());
    for tick in 0_u64.. {
        let mut message = [0; 16];
        while let Ok((bytes, player)) = door.recv_from(&mut message) {
            let is_changed = match &message[..bytes] {
                b"leave" => players.remove(player),
                _ => players.add(player).unwrap_or(false), // full, or of no use to this socket
            };
            println!("{player} {is_changed}: {} players", players.len());
        }
        let mut state = [0; 100];
        state[..8].copy_from_slice(&tick.to_be_bytes()); // the world moves
        players.send(&state)?;
        sleep(Duration::from_millis(33));
    }
    Ok(())
}
