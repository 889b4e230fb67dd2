//! Commands: lines with a verb and, behind a space, the rest.

use super::Reply;
use crate::name::from_bytes;

/// Bytes of a command line, without its end.
pub const COMMAND_BYTES_MAX: usize = 4096 + 64;

/// Cuts what arrives into lines, without the Telnet signals that some clients put before ABOR.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    telnet: Telnet,
    is_long: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Telnet {
    #[default]
    Text,
    /// After IAC.
    Signal,
    /// After WILL, WONT, DO or DONT: one more byte belongs to it.
    Option,
}

/// A command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Command {
    /// In capitals.
    pub verb: String,
    /// All behind the first space; a name may begin or end in spaces. As [`from_bytes`] has names.
    pub argument: String,
}

impl Lines {
    /// Takes bytes from the front of `bytes` up to the end of a line: how many, and the line, if
    /// there was an end.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, Option<Result<Command, Reply>>) {
        for (at, &byte) in bytes.iter().enumerate() {
            match (self.telnet, byte) {
                (Telnet::Signal, 251..=254) => self.telnet = Telnet::Option,
                (Telnet::Text, 255) => self.telnet = Telnet::Signal,
                // No command begins with one. A proxy that does not know of urgent data loses the
                // IAC that was sent as such.
                (Telnet::Text, 240..=254) if self.line.is_empty() => {}
                // Doubled, it is a byte of text (RFC 854).
                (Telnet::Text, _) | (Telnet::Signal, 255) => {
                    self.telnet = Telnet::Text;
                    if byte == b'\n' {
                        return (at + 1, Some(self.end()));
                    }
                    self.is_long |= self.line.len() > COMMAND_BYTES_MAX;
                    if !self.is_long {
                        self.line.push(byte);
                    }
                }
                (Telnet::Signal | Telnet::Option, _) => self.telnet = Telnet::Text,
            }
        }
        (bytes.len(), None)
    }

    /// Whether a line has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        !self.line.is_empty()
    }

    fn end(&mut self) -> Result<Command, Reply> {
        let mut line = std::mem::take(&mut self.line);
        let is_long = std::mem::take(&mut self.is_long);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if is_long || line.len() > COMMAND_BYTES_MAX {
            return Err(Reply::new(500, "the line is too long"));
        }
        let text = from_bytes(&line);
        // RFC 959, section 5.3.1; CR NUL is how RFC 2640 has a CR in a name. No file here has one.
        if text.contains(['\r', '\0']) {
            return Err(Reply::new(501, "CR and NUL stand in no command"));
        }
        let (verb, argument) = text.split_once(' ').unwrap_or((&text, ""));
        Ok(Command {
            verb: verb.to_ascii_uppercase(),
            argument: argument.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn commands(bytes: &[u8], cut: usize) -> Vec<Result<(String, String), u16>> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for mut piece in bytes.chunks(cut) {
            while !piece.is_empty() {
                let (taken, line) = lines.take(piece);
                let show = |line: Result<Command, Reply>| {
                    line.map(|command| (command.verb, command.argument))
                        .map_err(|reply| reply.code)
                };
                found.extend(line.map(show));
                piece = &piece[taken..];
            }
        }
        found
    }

    fn one(bytes: &[u8]) -> Result<(String, String), u16> {
        let mut found = commands(bytes, usize::MAX);
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    #[test]
    fn lines_are_commands() {
        let is = |verb: &str, argument: &str| Ok((verb.to_owned(), argument.to_owned()));
        assert_eq!(one(b"retr  a b \r\n"), is("RETR", " a b "));
        assert_eq!(one(b"noop\n"), is("NOOP", ""));
        assert_eq!(one("CWD \u{fc}\r\n".as_bytes()), is("CWD", "ü"));
        assert_eq!(
            one(b"CWD \xfc\xff\xff\r\n"),
            is("CWD", "\u{10fffc}\u{10ffff}")
        );
        assert_eq!(one(b"RETR a\rb\r\n"), Err(501));
        assert_eq!(one(b"RETR a\0b\r\n"), Err(501));
        // Interrupt process and data mark, as clients send before ABOR; and an offer.
        assert_eq!(one(b"\xff\xf4\xff\xf2ABOR\r\n"), is("ABOR", ""));
        assert_eq!(one(b"\xff\xfb\x01NOOP\r\n"), is("NOOP", ""));
        // The same from a proxy that has lost what was urgent, the first byte or the third.
        assert_eq!(one(b"\xf4\xff\xf2ABOR\r\n"), is("ABOR", ""));
        assert_eq!(one(b"\xff\xf4\xf2ABOR\r\n"), is("ABOR", ""));
    }

    #[test]
    fn lines_have_their_bound_and_the_next_one_counts_again() {
        let line = |bytes: usize| format!("RETR {}\r\nNOOP\r\n", "x".repeat(bytes - 5));
        let taken = commands(line(COMMAND_BYTES_MAX).as_bytes(), 1000);
        assert!(taken[0].is_ok() && taken.len() == 2);
        let refused = commands(line(COMMAND_BYTES_MAX + 1).as_bytes(), 1000);
        assert_eq!(refused[0], Err(500));
        assert_eq!(refused[1], Ok(("NOOP".to_owned(), String::new())));
        let flood = [&vec![b'x'; 100_000][..], b"\r\n"].concat();
        assert_eq!(commands(&flood, 777), [Err(500)]);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(bytes in prop::collection::vec(any::<u8>(), 0..200),
            cut in 1_usize..9) {
            prop_assert_eq!(commands(&bytes, 1000), commands(&bytes, cut));
        }
    }
}
