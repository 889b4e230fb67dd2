//! The word that was meant: of some, the one most like another.

/// Less alike than that, none was meant.
const LIKENESS_MIN: f64 = 0.75;

/// The candidate most like `word`, if one is like it at all.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let likeness = |candidate: &&'a str| strsim::jaro(word, candidate);
    let alike = candidates.into_iter().map(|it| (likeness(&it), it));
    let best = alike
        .filter(|(likeness, _)| *likeness > LIKENESS_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alike_is_meant_and_nothing_else() {
        let keys = ["burst", "cache", "cores", "rtp_headers"];
        assert_eq!(nearest("burts", keys), Some("burst"));
        assert_eq!(nearest("core", keys), Some("cores"));
        assert_eq!(nearest("rtpheader", keys), Some("rtp_headers"));
        assert_eq!(nearest("xyz", keys), None);
        assert_eq!(nearest("", keys), None);
    }
}
