//! How XML and XML Schema write what manifests say.

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
