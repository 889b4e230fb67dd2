//! Replies: three digits and what they mean here.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use crate::name::to_bytes;

/// What a command gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// The code of RFC 959, section 4.2.
    pub code: u16,
    /// The text beside it; its lines are those of the reply.
    pub text: Cow<'static, str>,
}

impl Reply {
    /// A reply.
    #[must_use]
    pub fn new(code: u16, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }

    /// As it is sent. The lines between the first and the last begin with a space, so that none of
    /// them looks like the last (RFC 959, section 4.2).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let lines: Vec<_> = self.text.lines().collect();
        let (code, last) = (self.code, lines.len().saturating_sub(1));
        let mut bytes = Vec::with_capacity(self.text.len() + 16);
        for (i, line) in lines.into_iter().enumerate() {
            let start = match i {
                _ if i == last => format!("{code} "),
                0 => format!("{code}-"),
                _ => " ".to_owned(),
            };
            bytes.extend(start.bytes());
            for &byte in &*to_bytes(line) {
                bytes.push(byte);
                // Telnet's escape is doubled, where it is a byte of text (RFC 854).
                bytes.extend((byte == 255).then_some(byte));
            }
            bytes.extend(b"\r\n");
        }
        bytes
    }
}

/// The reply that says where to connect to for data; `is_extended` for EPSV. PASV cannot name an
/// IPv6 address: `None`.
#[must_use]
pub fn passive(address: SocketAddr, is_extended: bool) -> Option<Reply> {
    let port = address.port();
    if is_extended {
        let text = format!("entering extended passive mode (|||{port}|)");
        return Some(Reply::new(229, text));
    }
    let IpAddr::V4(ip) = address.ip().to_canonical() else {
        return None;
    };
    let ([a, b, c, d], [high, low]) = (ip.octets(), port.to_be_bytes());
    let text = format!("entering passive mode ({a},{b},{c},{d},{high},{low})");
    Some(Reply::new(227, text))
}

/// A name between quotes, its own doubled (RFC 959, appendix II).
#[must_use]
pub fn quoted(name: &str) -> String {
    format!("\"/{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sent_as_the_bytes_they_are() {
        let reply = Reply::new(257, quoted(&crate::name::from_bytes(b"\xfc\xff")));
        assert_eq!(reply.to_bytes(), b"257 \"/\xfc\xff\xff\"\r\n");
    }

    fn sent(reply: &Reply) -> String {
        String::from_utf8(reply.to_bytes()).unwrap()
    }

    #[test]
    fn replies_of_one_line_and_of_several() {
        assert_eq!(sent(&Reply::new(200, "yes")), "200 yes\r\n");
        let several = Reply::new(211, "begin\n211 x\nMDTM\nend");
        assert_eq!(
            sent(&several),
            "211-begin\r\n 211 x\r\n MDTM\r\n211 end\r\n"
        );
    }

    #[test]
    fn passive_replies_tell_address_and_port() {
        let address_in = |address: &str, is_extended| {
            let reply = passive(address.parse().unwrap(), is_extended);
            reply.map(|reply| reply.text.into_owned())
        };
        let old = "entering passive mode (192,0,2,7,78,33)";
        assert_eq!(address_in("192.0.2.7:20001", false).as_deref(), Some(old));
        assert_eq!(
            address_in("[::ffff:192.0.2.7]:20001", false).as_deref(),
            Some(old)
        );
        assert_eq!(address_in("[::1]:20001", false), None);
        let new = "entering extended passive mode (|||20001|)";
        assert_eq!(address_in("[::1]:20001", true).as_deref(), Some(new));
    }

    #[test]
    fn quotes_in_names_are_doubled() {
        assert_eq!(quoted("a \"b\""), "\"/a \"\"b\"\"\"");
        assert_eq!(quoted(""), "\"/\"");
    }
}
