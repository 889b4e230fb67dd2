//! What a request asks for (RFC 9110, section 9).

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// PUT: allowed where files are taken.
    Put,
    /// DELETE: allowed where files are taken.
    Delete,
    /// OPTIONS.
    Options,
    /// CONNECT: known, because its target has a form of its own; allowed nowhere.
    Connect,
    /// Another that the RFC defines; allowed nowhere.
    NotAllowed,
    /// None that the RFC defines.
    Unknown,
}

impl Method {
    pub(super) fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "CONNECT" => Self::Connect,
            "POST" | "TRACE" | "PATCH" => Self::NotAllowed,
            _ => Self::Unknown,
        }
    }
}
