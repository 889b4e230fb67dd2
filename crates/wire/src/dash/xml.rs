//! How XML and XML Schema write what manifests say.

use crate::media::VideoRange;

/// As XML Schema writes durations.
pub(crate) fn duration(ns: u64) -> String {
    let ms = ns.div_ceil(1_000_000);
    format!("PT{}.{:03}S", ms / 1000, ms % 1000)
}

/// As XML wants it in text and between quotes.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars().filter(|it| !it.is_control()) {
        match letter {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            letter => out.push(letter),
        }
    }
    out
}

/// What an adaptation set says of pictures of a high dynamic range (ISO/IEC 23009-1, section
/// 5.8.5.10: schemes of ISO/IEC 23091); nothing of others. Players that do not know it play on.
pub(crate) fn transfer(range: Option<VideoRange>) -> String {
    let transfer = range.and_then(VideoRange::transfer);
    transfer.map_or_else(String::new, |code| {
        let scheme = "urn:mpeg:mpegB:cicp:TransferCharacteristics";
        format!("<SupplementalProperty schemeIdUri=\"{scheme}\" value=\"{code}\"/>\n")
    })
}
