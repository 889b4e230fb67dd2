//! Which type a file's ending stands for.

/// The Content-Type for a file of this name.
#[must_use]
pub fn media_type(name: &str) -> &'static str {
    let ending = name.rsplit('/').next().unwrap_or(name).rsplit_once('.');
    let ending = ending.map_or("", |(_, ending)| ending);
    let known = TYPES
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(ending));
    known.map_or("application/octet-stream", |(_, media_type)| media_type)
}

/// Whether a browser that opens what is of this type runs the scripts in it: HTML, and whatever is
/// XML (the MIME Sniffing standard, section 4.6).
#[must_use]
pub fn runs_scripts(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim_end();
    essence == "text/html" || essence.ends_with("/xml") || essence.ends_with("+xml")
}

const STREAM: &str = "video/mp2t";

const TYPES: [(&str, &str); 49] = [
    ("ts", STREAM),
    ("m2ts", STREAM),
    ("mts", STREAM),
    ("m2t", STREAM),
    ("mpegts", STREAM),
    ("tp", STREAM),
    ("trp", STREAM),
    ("mp4", "video/mp4"),
    ("m4v", "video/mp4"),
    ("mov", "video/quicktime"),
    ("qt", "video/quicktime"),
    ("3gp", "video/3gpp"),
    ("mkv", "video/x-matroska"),
    ("mk3d", "video/x-matroska"),
    ("mka", "audio/x-matroska"),
    ("webm", "video/webm"),
    ("avi", "video/x-msvideo"),
    ("mpg", "video/mpeg"),
    ("mpeg", "video/mpeg"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("mpd", "application/dash+xml"),
    ("mp3", "audio/mpeg"),
    ("m4a", "audio/mp4"),
    ("aac", "audio/aac"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/ogg"),
    ("flac", "audio/flac"),
    ("wav", "audio/wav"),
    ("srt", "application/x-subrip"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("htm", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("csv", "text/csv; charset=utf-8"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("png", "image/png"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml"),
    ("webp", "image/webp"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("iso", "application/x-iso9660-image"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_xml_run_scripts() {
        let all = TYPES.iter().filter(|(_, it)| runs_scripts(it));
        let endings: Vec<_> = all.map(|(ending, _)| *ending).collect();
        assert_eq!(endings, ["mpd", "html", "htm", "xml", "svg"]);
    }

    #[test]
    fn endings_stand_for_types() {
        for (name, expected) in [
            ("a/b.TS", "video/mp2t"),
            ("film.mp4", "video/mp4"),
            ("a.ts.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            ("a.ts/README", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(media_type(name), expected, "{name}");
        }
    }
}
