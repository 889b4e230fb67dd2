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
    assert_groups(text);
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

/// A rendition of a group: what is the same of it in every group of its type.
type Member<'a> = [Option<&'a str>; 6];

/// What holds of groups of renditions (section 4.4.6.1.1): of a type, what has one name in several
/// is alike; in one no two have the same name and no two are the default; what languages are called
/// is what tags of BCP 47 are; and what variants name is there.
///
/// # Panics
///
/// If it does not hold.
fn assert_groups(text: &str) {
    let mut groups: Vec<((&str, &str), Vec<Member<'_>>)> = Vec::new();
    for line in text.lines().filter(|it| it.starts_with("#EXT-X-MEDIA:")) {
        let [kind, id, name] = ["TYPE", "GROUP-ID", "NAME"].map(|name| attribute(line, name));
        let (kind, id) = (kind.expect("a type"), id.expect("a group"));
        let told = [
            "LANGUAGE",
            "DEFAULT",
            "AUTOSELECT",
            "FORCED",
            "CHARACTERISTICS",
        ];
        let [language, default, autoselect, forced, more] = told.map(|it| attribute(line, it));
        assert!(name.is_some_and(|it| it.len() > 2), "{line}");
        assert!(language.is_none_or(is_tag), "{line}");
        assert!(default != Some("YES") || autoselect != Some("NO"), "{line}");
        let member = [name, language, default, autoselect, forced, more];
        match groups.iter_mut().find(|it| it.0 == (kind, id)) {
            Some((_, members)) => members.push(member),
            None => groups.push(((kind, id), vec![member])),
        }
    }
    for ((kind, _), members) in &groups {
        let of_kind = groups.iter().filter(|it| it.0.0 == *kind);
        for of in of_kind.flat_map(|it| &it.1) {
            // Another may be the default where that one is not.
            let is_alike = |it: &Member<'_>| (0..it.len()).all(|at| at == 2 || of[at] == it[at]);
            let same = members.iter().filter(|it| it[0] == of[0]);
            assert!({ same }.all(is_alike), "{text}");
        }
        let names: std::collections::HashSet<_> = members.iter().map(|it| it[0]).collect();
        let defaults = members.iter().filter(|it| it[2] == Some("YES")).count();
        assert!(names.len() == members.len() && defaults <= 1, "{text}");
    }
    for line in text
        .lines()
        .filter(|it| it.starts_with("#EXT-X-STREAM-INF:"))
    {
        for kind in ["AUDIO", "SUBTITLES"] {
            let id = attribute(line, kind);
            let is_there = |id| groups.iter().any(|it| it.0 == (kind, id));
            assert!(id.is_none_or(is_there), "{line}: {text}");
        }
    }
}

/// Whether a quoted string has a tag of BCP 47 (RFC 5646, section 2.1), as far as letters tell.
fn is_tag(quoted: &str) -> bool {
    let tag = quoted.trim_matches('"');
    let is_part =
        |it: &str| (1..=8).contains(&it.len()) && it.bytes().all(|it| it.is_ascii_alphanumeric());
    tag.split('-').all(is_part)
}

/// What an attribute of a tag is, with its quotes if it has any (section 4.2).
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, mut rest) = line.split_once(':')?;
    while let Some((found, after)) = rest.split_once('=') {
        let end = match after.strip_prefix('"') {
            Some(inside) => inside.find('"').map(|at| at + 2),
            None => after.find(','),
        };
        let (value, more) = after.split_at(end.unwrap_or(after.len()));
        if found == name {
            return Some(value);
        }
        rest = more.strip_prefix(',').unwrap_or(more);
    }
    None
}

/// Seconds with a fraction, in us.
fn us(text: &str) -> u64 {
    let (whole, fraction) = text.split_once('.').expect("a fraction");
    let digits = u32::try_from(fraction.len()).expect("few digits");
    let number = |digits: &str| digits.parse::<u64>().expect("digits");
    number(whole) * 1_000_000 + number(fraction) * 10_u64.pow(6 - digits)
}
