//! What a client asks of a playlist by its query (RFC 8216bis, section 6.2.5).

/// The directives of a request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reload {
    /// `_HLS_msn` and `_HLS_part`: the answer is to have this segment, or this part of it.
    pub until: Option<(u64, Option<u64>)>,
    /// `_HLS_skip`: what the client has already may be left out.
    pub skips: bool,
}

/// A request that is answered 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BadReload {
    /// A number is none.
    Number,
    /// `_HLS_part` without `_HLS_msn`.
    PartAlone,
    /// The segment is too far ahead.
    TooFar,
}

impl BadReload {
    /// What is wrong, for who asks.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::Number => "_HLS_msn and _HLS_part are decimal numbers",
            Self::PartAlone => "_HLS_part needs _HLS_msn",
            Self::TooFar => "that segment is further ahead than the next but one",
        }
    }
}

impl Reload {
    /// Reads them of what a target has behind its `?`. Others, whose names do not begin with
    /// `_HLS_`, are passed over, and so are those that nobody knows. A number beyond all is the
    /// largest.
    ///
    /// # Errors
    ///
    /// [`BadReload::Number`] and [`BadReload::PartAlone`].
    pub fn parse(query: Option<&str>) -> Result<Self, BadReload> {
        let (mut segment, mut part, mut skips) = (None, None, false);
        for each in query.unwrap_or_default().split('&') {
            let (name, value) = each.split_once('=').unwrap_or((each, ""));
            match name {
                "_HLS_msn" => segment = Some(number(value)?),
                "_HLS_part" => part = Some(number(value)?),
                "_HLS_skip" => skips = matches!(value, "YES" | "v2"),
                _ => {}
            }
        }
        let until = match (segment, part) {
            (None, Some(_)) => return Err(BadReload::PartAlone),
            (segment, part) => segment.map(|segment| (segment, part)),
        };
        Ok(Self { until, skips })
    }
}

fn number(digits: &str) -> Result<u64, BadReload> {
    let is_one = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    match is_one {
        true => Ok(digits.parse().unwrap_or(u64::MAX)),
        false => Err(BadReload::Number),
    }
}
