//! Accept-Encoding (RFC 9110, section 12.5.3): which compressed neighbour of a file may be sent for
//! it.

/// A coding that a file may lie ready in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Coding {
    /// Brotli, in a neighbour whose name ends in `.br`.
    Brotli,
    /// Zstandard, in a neighbour whose name ends in `.zst`.
    Zstd,
    /// Gzip, in a neighbour whose name ends in `.gz`.
    Gzip,
}

/// The codings that a client takes, each with its weight in thousandths; 0 is not at all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Codings {
    brotli: Option<u16>,
    zstd: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    others: Option<u16>,
}

impl Coding {
    /// As in Content-Encoding.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// What a neighbour's name ends in.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }
}

impl Codings {
    /// Takes one Accept-Encoding line. What is no weight counts as refusal: sending bytes that a
    /// client cannot read is worse than sending more of them.
    pub(super) fn take(&mut self, value: &str) {
        for element in value.split(',') {
            let (name, parameters) = element.split_once(';').unwrap_or((element, ""));
            let weight = match parameters.trim() {
                "" => 1000,
                parameters => weight(parameters).unwrap_or(0),
            };
            let name = name.trim();
            let field = if name.eq_ignore_ascii_case("br") {
                &mut self.brotli
            } else if name.eq_ignore_ascii_case("zstd") {
                &mut self.zstd
            } else if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
                &mut self.gzip
            } else if name.eq_ignore_ascii_case("identity") {
                &mut self.identity
            } else if name == "*" {
                &mut self.others
            } else {
                continue;
            };
            *field = Some(weight);
        }
    }

    /// The codings to look for, best first: those the client likes at least as much as the plain
    /// file.
    pub fn wanted(self) -> impl Iterator<Item = Coding> {
        let of = |weight: Option<u16>| weight.or(self.others).unwrap_or(0);
        // Not named, the plain file is taken, but liked less than what was named.
        let plain = self.identity.unwrap_or(0);
        let mut wanted = [
            (Coding::Brotli, of(self.brotli)),
            (Coding::Zstd, of(self.zstd)),
            (Coding::Gzip, of(self.gzip)),
        ];
        // Stable: of equals what is smaller goes first.
        wanted.sort_by_key(|&(_, weight)| std::cmp::Reverse(weight));
        let liked = wanted
            .into_iter()
            .filter(move |&(_, weight)| weight > 0 && weight >= plain);
        liked.map(|(coding, _)| coding)
    }
}

/// `q=0.123` in thousandths.
fn weight(parameters: &str) -> Option<u16> {
    let value = parameters
        .strip_prefix("q=")
        .or_else(|| parameters.strip_prefix("Q="))?;
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    if part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let thousandths: u16 = format!("{part:0<3}").parse().ok()?;
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(value: &str) -> Vec<&'static str> {
        let mut codings = Codings::default();
        codings.take(value);
        codings.wanted().map(Coding::name).collect()
    }

    #[test]
    fn weights_choose() {
        for (value, expected) in [
            ("", &[][..]),
            ("gzip", &["gzip"]),
            ("gzip, deflate, br, zstd", &["br", "zstd", "gzip"]),
            ("gzip, zstd;q=0", &["gzip"]),
            ("ZSTD;q=0.3, gzip;q=0.2", &["zstd", "gzip"]),
            ("br;q=0.5, gzip;q=0.9", &["gzip", "br"]),
            ("br;q=0, gzip", &["gzip"]),
            ("*", &["br", "zstd", "gzip"]),
            ("*;q=0.5, br;q=0", &["zstd", "gzip"]),
            ("gzip;q=0.5, identity", &[]),
            ("gzip;q=0.5, identity;q=0.5", &["gzip"]),
            ("identity;q=0, gzip;q=0.001", &["gzip"]),
            ("x-gzip", &["gzip"]),
            ("GZIP ; q=1.000", &["gzip"]),
            ("gzip;q=1.001", &[]),
            ("gzip;q=0.1234", &[]),
            ("gzip;q=", &[]),
            ("gzip;q=x, br;x=y", &[]),
        ] {
            assert_eq!(wanted(value), expected, "{value}");
        }
    }
}
