//! FTP: what comes on a control connection, cut anyhow, as commands; what each gets.

use std::net::{IpAddr, Ipv4Addr};

use onrush_wire::ftp::{Act, COMMAND_BYTES_MAX, Change, Command, Lines, Reply, Rights, Session};
use onrush_wire::http::Entry;
use onrush_wire::name::{from_bytes, to_bytes};

use crate::memory::bounded;
use crate::random::Random;
use crate::rtsp::assert_path;

/// What a line and its answer may hold.
const MEMORY_BYTES: usize = 256 << 10;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Serves a session.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let mut random = Random::of(input);
    let pieces = lines(input, |left| random.piece(left));
    let bytes = lines(input, |_| 1);
    assert_eq!(pieces, bytes, "how bytes come together makes a difference");
    let has_users = input.first().is_some_and(|&byte| byte % 2 == 1);
    let has_tls = input.first().is_some_and(|&byte| byte & 2 == 2);
    let mut session = Session::new(PEER, has_users).offering_tls(has_tls);
    for line in bytes {
        match line {
            Ok(command) => {
                let name = &command.argument;
                assert_eq!(from_bytes(&to_bytes(name)), *name);
                let act = bounded(MEMORY_BYTES, || session.decide(&command));
                check_act(&mut session, act);
            }
            Err(reply) => check_reply(&reply),
        }
    }
}

fn lines(input: &[u8], mut piece: impl FnMut(usize) -> usize) -> Vec<Result<Command, Reply>> {
    let (mut found, mut left) = (Vec::new(), input);
    let mut lines = Lines::default();
    while !left.is_empty() {
        let mut some;
        (some, left) = left.split_at(piece(left.len()));
        while !some.is_empty() {
            let (taken, line) = bounded(MEMORY_BYTES, || lines.take(some));
            assert!(taken > 0 && (taken == some.len() || line.is_some()));
            some = &some[taken..];
            found.extend(line);
        }
    }
    found
}

fn command(verb: &str) -> Command {
    Command {
        verb: verb.to_owned(),
        argument: "TLS".to_owned(),
    }
}

fn check_act(session: &mut Session, act: Act) {
    let entry = Entry {
        name: "film.mp4".to_owned(),
        is_folder: false,
        file_bytes: 9,
        modified_s: 1,
    };
    match act {
        Act::Reply(reply) | Act::Quit(reply) => check_reply(&reply),
        Act::Encrypt { reply, has_data } => {
            check_reply(&reply);
            session.encrypted(has_data);
            assert_eq!(session.encrypts_data(), has_data);
            let before = session.decide(&command("PWD"));
            assert!(matches!(before, Act::Reply(reply) if reply.code == 530));
            let again = session.decide(&command("AUTH"));
            assert!(matches!(again, Act::Reply(reply) if reply.code == 503));
        }
        Act::LogIn { password, .. } => {
            let is_right = password.len() % 2 == 0;
            check_reply(&match is_right {
                true => session.logged_in(),
                false => Session::refused("wrong".to_owned()),
            });
        }
        Act::Connect(address) => assert_eq!(address.ip(), PEER, "only to whoever asks"),
        Act::Retrieve { name, .. } | Act::Store { name, .. } => assert_name(&name),
        Act::Change { name, change } => {
            assert_name(&name);
            if let Change::RenameTo(to) = &change {
                assert_name(to);
            }
            if !name.contains(['\r', '\n']) {
                check_reply(&change.done(&name));
            }
        }
        Act::List { name, style, .. } => {
            assert_name(&name);
            let listed = style.write(&[entry], 0, Rights::Change);
            assert!(listed.ends_with("\r\n") && listed.lines().count() == 1);
        }
        Act::ChangeFolder { name } => {
            assert_name(&name);
            if !name.contains(['\r', '\n']) {
                check_reply(&session.enter(name));
            }
        }
        Act::Size { name } => {
            assert_name(&name);
            check_reply(&Session::size(&entry));
        }
        Act::Modified { name } => {
            assert_name(&name);
            check_reply(&Session::modified(&entry));
        }
        Act::Facts { name } => {
            assert_name(&name);
            check_reply(&session.facts(&name, &entry, Rights::Read));
        }
        Act::Listen { .. } | Act::Abort | Act::Status => {}
    }
}

fn assert_name(name: &str) {
    assert_path(name);
    assert!(name.len() <= 8 * COMMAND_BYTES_MAX * 8);
}

/// A reply is one: a code in front of its first and last line, and a space in front of the others.
fn check_reply(reply: &Reply) {
    let bytes = reply.to_bytes();
    assert!((100..600).contains(&reply.code) && bytes.ends_with(b"\r\n"));
    let body = &bytes[..bytes.len() - 2];
    let lines: Vec<_> = body.split(|&byte| byte == b'\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let code = reply.code.to_string();
        let start = match at {
            _ if at + 1 == lines.len() => format!("{code} "),
            0 => format!("{code}-"),
            _ => " ".to_owned(),
        };
        assert!(line.starts_with(start.as_bytes()), "{reply:?}");
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(!line.contains(&b'\r'), "{reply:?}");
    }
}
