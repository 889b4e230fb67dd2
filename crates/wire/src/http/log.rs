//! The access log: a line for each request that was answered.

use std::net::IpAddr;
use std::time::Duration;

use crate::calendar::Utc;

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// The combined format that log analysers read.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

/// A request and what became of it.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// Who asked.
    pub peer: IpAddr,
    /// When, in ms since 1970.
    pub time_ms: u64,
    /// The request line.
    pub line: &'a str,
    /// The status it was answered; an FTP reply's code for FTP.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub body_bytes: u64,
    /// Whether that was all of it.
    pub is_whole: bool,
    /// How long it took.
    pub took: Duration,
    /// Referer, as sent.
    pub referer: &'a [u8],
    /// User-Agent, as sent.
    pub user_agent: &'a [u8],
}

impl Access<'_> {
    /// The line, with its end.
    #[must_use]
    pub fn to_line(&self, format: LogFormat) -> String {
        let seconds = i64::try_from(self.time_ms / 1000).unwrap_or(i64::MAX);
        let at = Utc::at(seconds);
        let Utc {
            year,
            month,
            day,
            hour,
            minute,
            second,
        } = at;
        match format {
            LogFormat::Combined => format!(
                "{} - - [{day:02}/{}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000] \"{}\" {} \
                 {} \"{}\" \"{}\"\n",
                self.peer,
                at.month_name(),
                escaped(self.line.as_bytes(), ""),
                self.status,
                self.body_bytes,
                escaped(self.referer, "-"),
                escaped(self.user_agent, "-"),
            ),
            LogFormat::Json => {
                let millisecond = self.time_ms % 1000;
                let time = format!(
                    "{year:04}-{month:02}-{day:02}T\
                     {hour:02}:{minute:02}:{second:02}.{millisecond:03}Z"
                );
                format!(
                    "{{\"time\":\"{time}\",\"peer\":\"{}\",\"request\":{},\"status\":{},\
                     \"bytes\":{},\"whole\":{},\"seconds\":{:.6},\"referer\":{},\
                     \"user_agent\":{}}}\n",
                    self.peer,
                    json(self.line.as_bytes()),
                    self.status,
                    self.body_bytes,
                    self.is_whole,
                    self.took.as_secs_f64(),
                    json(self.referer),
                    json(self.user_agent),
                )
            }
        }
    }
}

/// Nothing that a client sends ends a line or a field of the log, or steers a terminal.
fn escaped(bytes: &[u8], nothing: &str) -> String {
    if bytes.is_empty() {
        return nothing.to_owned();
    }
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text += &format!("\\x{byte:02X}"),
        }
    }
    text
}

/// A JSON string (RFC 8259, section 7).
fn json(bytes: &[u8]) -> String {
    let mut text = "\"".to_owned();
    for character in String::from_utf8_lossy(bytes).chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            control if control.is_control() => text += &format!("\\u{:04x}", u32::from(control)),
            other => text.push(other),
        }
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: Access<'_> = Access {
        peer: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
        time_ms: 784_111_777_042,
        line: "GET /a HTTP/1.1",
        status: 206,
        body_bytes: 99,
        is_whole: false,
        took: Duration::from_millis(1500),
        referer: b"",
        user_agent: b"a\"\\b\n\xff",
    };

    #[test]
    fn lines_are_those_that_analysers_read() {
        let expected = "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \"GET /a HTTP/1.1\" 206 99 \
                        \"-\" \"a\\\"\\\\b\\x0A\\xFF\"\n";
        assert_eq!(ACCESS.to_line(LogFormat::Combined), expected);
    }

    #[test]
    fn json_says_the_same_and_more() {
        let line = ACCESS.to_line(LogFormat::Json);
        let expected = "{\"time\":\"1994-11-06T08:49:37.042Z\",\"peer\":\"192.0.2.7\",\
            \"request\":\"GET /a HTTP/1.1\",\"status\":206,\"bytes\":99,\"whole\":false,\
            \"seconds\":1.500000,\"referer\":\"\",\"user_agent\":\"a\\\"\\\\b\\u000a\u{fffd}\"}\n";
        assert_eq!(line, expected);
    }
}
