//! What holds of every playlist and manifest, of films and of live channels.

/// What URLs end in.
pub(crate) const QUERY: &str = "?a=1";

/// A manifest can be read: how many representations it has.
///
/// # Panics
///
/// If it cannot.
pub(crate) fn assert_manifest(text: &str) -> usize {
    let document = roxmltree::Document::parse(text);
    let document = document.unwrap_or_else(|error| panic!("{error}: {text}"));
    let is_one = |it: &roxmltree::Node<'_, '_>| it.tag_name().name() == "Representation";
    document.descendants().filter(is_one).count()
}

/// What holds of every playlist (RFC 8216bis, sections 4.1 to 4.4.4.9): how long it lasts, in us.
///
/// # Panics
///
/// If it is none.
pub(crate) fn assert_playlist(text: &str) -> u64 {
    assert!(text.starts_with("#EXTM3U\n") && text.ends_with('\n'));
    let (mut target_s, mut lasts_us, mut is_url_next) = (0, 0, false);
    let mut part_target_us = 0;
    for line in text.lines() {
        assert!(
            !line.is_empty() && !line.chars().any(char::is_control),
            "{line:?}"
        );
        assert!(line.matches('"').count().is_multiple_of(2), "{line}");
        let is_url = !line.starts_with('#');
        assert!(!is_url || is_url_next && line.ends_with(QUERY), "{line}");
        let value = |name: &str| line.strip_prefix(name);
        if let Some(seconds) = value("#EXT-X-TARGETDURATION:") {
            target_s = seconds.parse().expect("whole seconds");
        } else if let Some(seconds) = value("#EXT-X-PART-INF:PART-TARGET=") {
            part_target_us = us(seconds);
        } else if let Some(part) = value("#EXT-X-PART:DURATION=") {
            let us = us(part.split(',').next().unwrap_or_default());
            assert!((1..=part_target_us).contains(&us), "{line}: {text}");
        } else if let Some(seconds) = value("#EXTINF:") {
            let us = us(seconds.strip_suffix(',').expect("no title"));
            assert!(us > 0, "{line}");
            assert!(
                (us + 500_000) / 1_000_000 <= target_s,
                "{line} is beyond {target_s} s: {text}"
            );
            lasts_us += us;
        }
        let is_more = value("#EXT-X-BYTERANGE").is_some();
        let begins = value("#EXTINF").is_some() || value("#EXT-X-STREAM-INF").is_some();
        is_url_next = begins || is_more && is_url_next;
    }
    assert!(!is_url_next, "what is told last has no URL");
    lasts_us
}

/// Seconds with a fraction, in us.
fn us(text: &str) -> u64 {
    let (whole, fraction) = text.split_once('.').expect("a fraction");
    let digits = u32::try_from(fraction.len()).expect("few digits");
    let number = |digits: &str| digits.parse::<u64>().expect("digits");
    number(whole) * 1_000_000 + number(fraction) * 10_u64.pow(6 - digits)
}
