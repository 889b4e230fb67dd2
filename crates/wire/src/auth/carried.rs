//! Credentials in the query of a URL, which a playlist's own URLs carry on.

use super::grant::Grant;
use super::jwt::token_of_query;

/// What URLs in a playlist end in, so that what opened the playlist opens what it names: a `?` and
/// the signature or the token of `query`, which is what the playlist's own URL has behind its `?`.
/// Empty if that has neither. Nothing else of the query is carried on.
#[must_use]
pub fn carried_query(query: Option<&str>) -> String {
    let grant = query.and_then(Grant::of_query).and_then(Result::ok);
    match (grant, query.and_then(token_of_query)) {
        (Some(grant), _) => format!("?{grant}"),
        (None, Some(token)) => format!("?token={token}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_credentials_are_carried_on() {
        let carried = |query: &str| carried_query(Some(query));
        assert_eq!(carried_query(None), "");
        assert_eq!(carried("_HLS_msn=7&_HLS_skip=YES"), "");
        assert_eq!(carried("_HLS_msn=7&token=a.b-c_d"), "?token=a.b-c_d");
        assert_eq!(carried("token=a\"b"), "", "not the letters of a token");
        let signed = "rights=play&expires=9&signature=AAAA";
        assert_eq!(carried(&format!("x=y&{signed}")), format!("?{signed}"));
        assert_eq!(carried("rights=play&signature=AAAA"), "", "half of one");
    }
}
