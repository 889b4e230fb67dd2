//! A folder as a page: plain HTML that reads well on a screen, on a phone, by voice and in a
//! terminal.
//!
//! Programs read it, too: Kodi takes those links for files whose text is what they lead to, and
//! lftp and wget make a folder of what a link has in front of a slash. So links lead to what is in
//! the folder and no further, with its name alone as their text. Those to pages that play are made
//! by the script.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::media_type::media_type;
use crate::calendar::Utc;
use crate::hls::is_of_several;
use crate::media::has_media_ending;
use crate::name::{shown, to_bytes};

/// A file or folder in a folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its name, without the folder's; as [`from_bytes`](crate::name::from_bytes) has it.
    pub name: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// A file's length.
    pub file_bytes: u64,
    /// When it last changed, in seconds since 1970.
    pub modified_s: i64,
}

/// A folder.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// Its name below the served directory; empty for that itself.
    pub folder: &'a str,
    /// What is in it, in the order of [`Entry::sort`].
    pub entries: &'a [Entry],
    /// Whether there is more in it than is listed.
    pub is_cut: bool,
    /// What the client calls this server: `host[:port]`; empty if it does not.
    pub http_host: &'a str,
    /// Whether the client has asked over TLS, and so is to fetch over it.
    pub is_encrypted: bool,
    /// Where RTSP plays what is listed here: `host[:port]`; empty if nowhere.
    pub rtsp_host: &'a str,
    /// Live channels that are shown beside.
    pub channels: &'a [ListedChannel],
}

/// A live channel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListedChannel {
    /// Its name as a path.
    pub path: String,
    /// Whether there is a picture of it that can be shown alone.
    pub has_poster: bool,
}

/// Of more folders above only the nearest are links: each has a way up for every one behind it.
const ABOVE_MAX: usize = 32;

/// What says of a place for a poster that there is one, beside the page.
const POSTER: &str = " data-film=\"poster.mp4\"";

/// The path of what pages load: no file can have it, because hidden ones are not served.
pub const ASSETS: &str = ".onrush/";

/// [`ASSETS`] as a link of a page at `folder/` has it; empty for the served directory itself.
#[must_use]
pub fn assets_from(folder: &str) -> String {
    let parts = folder.split('/').filter(|it| !it.is_empty()).count();
    format!("{}{ASSETS}", "../".repeat(parts))
}

/// A name as it stands in a URL: its slashes stay, what is not UTF-8 is the bytes that it is, and
/// no colon makes a scheme of what is before it.
#[must_use]
pub fn in_url(name: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    percent_encode(&to_bytes(name), ESCAPED).to_string()
}

impl Entry {
    /// Folders first, then by name, as people count: capitals do not matter.
    pub fn sort(entries: &mut [Self]) {
        entries.sort_by_cached_key(|entry| {
            (
                !entry.is_folder,
                entry.name.to_lowercase(),
                entry.name.clone(),
            )
        });
    }
}

impl Listing<'_> {
    /// About as many bytes as a page of so many entries needs while it is made.
    #[must_use]
    pub const fn room_bytes(entries: usize) -> usize {
        2048 + 700 * entries
    }

    /// The page. Its style and its script are at [`ASSETS`] of the same host: without them it is
    /// a plain page of links.
    #[must_use]
    pub fn to_html(&self) -> String {
        let title = match self.folder {
            "" => "Onrush".to_owned(),
            folder => escaped(folder.rsplit('/').next().unwrap_or(folder)),
        };
        let assets = assets_from(self.folder);
        let mut html = String::with_capacity(Self::room_bytes(self.entries.len()));
        html += "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
        html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
        html += "<meta name=\"color-scheme\" content=\"light dark\">\n";
        html += &format!("<title>{title}</title>\n");
        // lftp passes over a link with a query, and takes others for a folder beside the entries.
        html += &format!("<link rel=\"stylesheet\" href=\"{assets}page.css?\">\n");
        html += &format!("<link rel=\"icon\" href=\"{assets}icon.svg?\">\n");
        html += &format!("<script type=\"module\" src=\"{assets}folder.js?\"></script>\n");
        html += "</head>\n<body>\n<header>\n";
        self.path(&mut html);
        // The script shows it: without that it would find nothing.
        html += "<label id=\"search-label\" hidden>Search <input id=\"search\" type=\"search\" \
            autocomplete=\"off\" spellcheck=\"false\"></label>\n</header>\n<main>\n";
        html += &format!("<h1><bdi>{title}</bdi></h1>\n<p id=\"found\" role=\"status\"></p>\n");
        if self.entries.is_empty() && self.channels.is_empty() {
            html += "<p>There is nothing here.</p>\n";
        }
        self.folders(&mut html);
        self.live(&mut html);
        self.films(&mut html);
        self.others(&mut html);
        if self.is_cut {
            html += "<p>There is more in this folder than this page lists.</p>\n";
        }
        self.commands(&mut html);
        html += "</main>\n</body>\n</html>\n";
        // Nobody may fetch it for long, and its room may have grown to twice what it is.
        html.shrink_to_fit();
        html
    }

    /// The folders above, each a link.
    fn path(&self, html: &mut String) {
        *html += "<nav aria-label=\"Folders above\"><ol>";
        let parts: Vec<_> = self.folder.split('/').filter(|it| !it.is_empty()).collect();
        let left_out = 1..parts.len().saturating_sub(ABOVE_MAX);
        for (at, part) in [""].iter().chain(&parts).enumerate() {
            if left_out.contains(&at) {
                if at == 1 {
                    *html += "<li>…</li>";
                }
                continue;
            }
            let name = if at == 0 {
                "Home".to_owned()
            } else {
                escaped(part)
            };
            *html += &match parts.len() - at {
                0 => format!("<li aria-current=\"page\"><bdi>{name}</bdi></li>"),
                up => format!(
                    "<li><a href=\"{}\"><bdi>{name}</bdi></a></li>",
                    "../".repeat(up)
                ),
            };
        }
        *html += "</ol></nav>\n";
    }

    fn folders(&self, html: &mut String) {
        let mut folders = self
            .entries
            .iter()
            .filter(|it| it.is_folder && !is_film(it))
            .peekable();
        if folders.peek().is_none() {
            return;
        }
        *html += "<section aria-labelledby=\"folders\">\n<h2 id=\"folders\">Folders</h2>\n\
            <ul class=\"folders\">\n";
        for folder in folders {
            let (link, name) = (in_url(&folder.name), escaped(&folder.name));
            let line =
                format!("<li class=\"item\"><bdi><a href=\"{link}/\">{name}/</a></bdi></li>\n");
            *html += &line;
        }
        *html += "</ul>\n</section>\n";
    }

    /// Live channels: a page that plays each, and what other players are given.
    fn live(&self, html: &mut String) {
        if self.channels.is_empty() {
            return;
        }
        *html += "<section aria-labelledby=\"channels\">\n<h2 id=\"channels\">Channels</h2>\n\
            <ul class=\"films channels\">\n";
        for channel in self.channels {
            let path = in_url(&channel.path);
            let short = channel.path.strip_prefix("live/");
            let short = escaped(short.unwrap_or(&channel.path));
            let poster = match channel.has_poster {
                true => POSTER,
                false => "",
            };
            *html += &format!(
                "<li class=\"item\" data-play=\"{path}/hls/index.html\">\
                 <span class=\"poster\"{poster}></span><bdi>{short}</bdi>"
            );
            if !self.rtsp_host.is_empty() {
                let url = format!("rtsp://{}/{path}", self.rtsp_host);
                let url = escaped(&url);
                *html += &format!("<p><code class=\"copied\">{url}</code></p>");
            }
            *html += "</li>\n";
        }
        *html += "</ul>\n</section>\n";
    }

    fn films(&self, html: &mut String) {
        let mut films = self.entries.iter().filter(|it| is_film(it)).peekable();
        if films.peek().is_none() {
            return;
        }
        *html += "<section aria-labelledby=\"films\">\n<h2 id=\"films\">Films</h2>\n\
            <ul class=\"films\">\n";
        for film in films {
            let (link, name) = (in_url(&film.name), escaped(&film.name));
            let time = time(film.modified_s);
            // Of a transport stream it is not known where a picture ends: browsers that play it
            // show its first one.
            let poster = match media_type(&film.name) {
                "video/mp2t" => " data-film=\"index.m3u8\"",
                _ => POSTER,
            };
            // A folder of renditions is one film, and can be looked into.
            let (slash, size) = match film.is_folder {
                true => ("/", String::new()),
                false => ("", readable(film.file_bytes)),
            };
            *html += &format!(
                "<li class=\"item\" data-play=\"{link}/hls/index.html\">\
                 <span class=\"poster\"{poster}></span>\
                 <bdi><a href=\"{link}{slash}\">{name}{slash}</a></bdi>\
                 <p>{size} <span class=\"date\">{time}</span></p></li>\n"
            );
        }
        *html += "</ul>\n</section>\n";
    }

    /// What is no film.
    fn others(&self, html: &mut String) {
        let is_other = |it: &&Entry| !it.is_folder && !is_film(it);
        let mut others = self.entries.iter().filter(is_other).peekable();
        if others.peek().is_none() {
            return;
        }
        *html += "<section aria-labelledby=\"files\">\n<h2 id=\"files\">Other files</h2>\n<table>\n\
            <thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Size</th>\
            <th scope=\"col\">Changed (UTC)</th></tr></thead>\n<tbody>\n";
        for entry in others {
            let (link, name) = (in_url(&entry.name), escaped(&entry.name));
            let (size, time) = (readable(entry.file_bytes), time(entry.modified_s));
            *html += &format!(
                "<tr class=\"item\"><td><bdi><a href=\"{link}\">{name}</a></bdi></td>\
                 <td>{size}</td><td>{time}</td></tr>\n"
            );
        }
        *html += "</tbody>\n</table>\n</section>\n";
    }

    /// How to fetch and to play the first file that can be, from a terminal.
    fn commands(&self, html: &mut String) {
        let file = self.entries.iter().find(|entry| !entry.is_folder);
        let stream = self
            .entries
            .iter()
            .find(|entry| self.play_url(entry).is_some());
        let Some(file) = stream.or(file).filter(|_| !self.http_host.is_empty()) else {
            return;
        };
        *html += "<section aria-labelledby=\"terminal\">\n\
            <h2 id=\"terminal\">From a terminal</h2>\n";
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let name = in_url(&self.name_of(file));
        let url = format!("{scheme}://{}/{name}", self.http_host);
        *html += &format!("<pre><code>curl -O '{}'</code></pre>\n", escaped(&url));
        if let Some(url) = self.play_url(file) {
            *html += &format!("<pre><code>ffplay -rtsp_transport udp '{url}'</code></pre>\n");
        }
        *html += "</section>\n";
    }

    /// Where RTSP plays it, escaped for HTML.
    fn play_url(&self, entry: &Entry) -> Option<String> {
        let is_one = !entry.is_folder && has_media_ending(&entry.name);
        let plays = is_one && !self.rtsp_host.is_empty();
        let name = plays.then(|| self.name_of(entry))?;
        Some(escaped(&format!(
            "rtsp://{}/{}",
            self.rtsp_host,
            in_url(&name)
        )))
    }

    fn name_of(&self, entry: &Entry) -> String {
        match self.folder {
            "" => entry.name.clone(),
            folder => format!("{folder}/{}", entry.name),
        }
    }
}

/// Whether there is a page that plays it, as far as its name tells.
fn is_film(entry: &Entry) -> bool {
    let is_file = !entry.is_folder && has_media_ending(&entry.name);
    let is_list = entry.name.ends_with(".json");
    is_file || is_of_several(&entry.name) && entry.is_folder != is_list
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + 8);
    for character in shown(text).chars() {
        match character {
            '&' => html += "&amp;",
            '<' => html += "&lt;",
            '>' => html += "&gt;",
            '"' => html += "&quot;",
            '\'' => html += "&#39;",
            // No name turns the rest of a line around or hides in it.
            control if control.is_control() => html.push('\u{fffd}'),
            other => html.push(other),
        }
    }
    html
}

fn time(modified_s: i64) -> String {
    let Utc {
        year,
        month,
        day,
        hour,
        minute,
        second,
    } = Utc::at(modified_s);
    let date = format!("{year:04}-{month:02}-{day:02}");
    format!(
        "<time datetime=\"{date}T{hour:02}:{minute:02}:{second:02}Z\">{date} \
         {hour:02}:{minute:02}</time>"
    )
}

/// A size for people: three digits are enough to choose by.
fn readable(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value >= 1023.5 {
        match units.next() {
            Some(next) => (value, unit) = (value / 1024.0, next),
            None => break,
        }
    }
    let digits = usize::from(unit != "B" && value < 99.95);
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;

    use super::*;

    fn entry(name: &str, is_folder: bool, file_bytes: u64) -> Entry {
        Entry {
            name: name.to_owned(),
            is_folder,
            file_bytes,
            modified_s: 784_111_777,
        }
    }

    fn page(folder: &str, entries: &[Entry]) -> String {
        let listing = Listing {
            folder,
            entries,
            is_cut: false,
            http_host: "h:80",
            is_encrypted: false,
            rtsp_host: "h:554",
            channels: &[],
        };
        listing.to_html()
    }

    #[test]
    fn of_many_folders_above_the_nearest_are_links() {
        let links = |folder: &str| page(folder, &[]).matches("<li><a href=\"../").count();
        assert_eq!(links(&["a"; 34].join("/")), 33);
        assert_eq!(links(&["a"; 2000].join("/")), 33);
        let html = page(&["a"; 2000].join("/"), &[]);
        assert!(html.contains("<bdi>Home</bdi></a></li><li>…</li><li><a href=\"../"));
        assert!(!page(&["a"; 33].join("/"), &[]).contains('…'));
    }

    #[test]
    fn what_came_over_tls_is_fetched_over_tls() {
        for (is_encrypted, scheme) in [(false, "http"), (true, "https")] {
            let listing = Listing {
                folder: "",
                entries: &[entry("a.ts", false, 1)],
                is_cut: false,
                http_host: "h:8443",
                is_encrypted,
                rtsp_host: "",
                channels: &[],
            };
            let command = format!("curl -O '{scheme}://h:8443/a.ts'");
            assert!(listing.to_html().contains(&command), "{command}");
        }
    }

    #[test]
    fn files_have_their_links_sizes_and_dates() {
        let html = page(
            "a b",
            &[
                entry("ä#%.ts", false, 1 << 20),
                entry("in", true, 0),
                entry("a.txt", false, 3),
            ],
        );
        for expected in [
            "<bdi><a href=\"%C3%A4%23%25.ts\">ä#%.ts</a></bdi><p>1.0 MiB <span",
            "<td><bdi><a href=\"a.txt\">a.txt</a></bdi></td><td>3 B</td>",
            "<time datetime=\"1994-11-06T08:49:37Z\">1994-11-06 08:49</time>",
            "<li class=\"item\" data-play=\"%C3%A4%23%25.ts/hls/index.html\">",
            "<link rel=\"stylesheet\" href=\"../.onrush/page.css?\">",
            "<bdi><a href=\"in/\">in/</a></bdi></li>",
            "<code>curl -O &#39;http://h:80/a%20b/",
            "<code>ffplay -rtsp_transport udp 'rtsp://h:554/a%20b/",
            "<a href=\"../\">",
            "<html lang=\"en\">",
        ] {
            let expected = expected.replace("&#39;http", "'http");
            assert!(html.contains(&expected), "{expected}\n{html}");
        }
        assert!(!page("", &[]).contains("../"));
    }

    #[test]
    fn channels_have_a_page_an_address_and_if_they_can_a_poster() {
        let channel = |path: &str, has_poster| ListedChannel {
            path: path.to_owned(),
            has_poster,
        };
        let listing = Listing {
            folder: "",
            entries: &[],
            is_cut: false,
            http_host: "h:80",
            is_encrypted: true,
            rtsp_host: "h:554",
            channels: &[channel("live/a b", false), channel("cam&", true)],
        };
        let html = listing.to_html();
        for expected in [
            "data-play=\"live/a%20b/hls/index.html\">\
             <span class=\"poster\"></span><bdi>a b</bdi>",
            "<code class=\"copied\">rtsp://h:554/live/a%20b</code>",
            "data-play=\"cam%26/hls/index.html\">\
             <span class=\"poster\" data-film=\"poster.mp4\"></span><bdi>cam&amp;</bdi>",
        ] {
            assert!(html.contains(expected), "{expected}\n{html}");
        }
        assert!(links(&html).is_empty(), "{html}");
    }

    /// The links of a page, and the text in them.
    fn links(html: &str) -> Vec<(&str, String)> {
        let parts = html.split("<a href=\"").skip(1);
        let links = parts.map(|rest| {
            let (link, rest) = rest.split_once('"').unwrap();
            let (text, _) = rest.split_once("</a>").unwrap();
            let (_, text) = text.split_once('>').unwrap();
            (link, text.replace("&#39;", "'").replace("&amp;", "&"))
        });
        links.collect()
    }

    /// The rule is Kodi's (`CHTTPDirectory::GetDirectory`); lftp and wget take what a slash is
    /// within for a folder.
    #[test]
    fn links_are_the_names_that_are_in_them() {
        let names = [
            ("in & out", true),
            ("x.film", true),
            ("a:b.mp4", false),
            ("ä#%25+;&'.ts", false),
            ("y.film.json", false),
            ("z.txt", false),
        ];
        let entries = names.map(|(name, is_folder)| entry(name, is_folder, 1));
        let html = page("", &entries);
        let found = links(&html).into_iter().map(|(link, text)| {
            let link = percent_decode_str(link).decode_utf8().unwrap();
            assert_eq!(link, text);
            link.into_owned()
        });
        let expected = names.map(|(name, is_folder)| match is_folder {
            true => format!("{name}/"),
            false => name.to_owned(),
        });
        assert!(found.eq(expected), "{html}");
        // What the page loads has a query.
        let all = html.matches("href=\"").count() + html.matches("src=\"").count();
        assert_eq!(html.matches("?\"").count(), all - names.len());
    }

    #[test]
    fn what_is_not_utf8_is_linked_as_it_is_and_shown_as_it_can_be() {
        let name = crate::name::from_bytes(b"\xfcbung \xc3\xa9.ts");
        let html = page(&crate::name::from_bytes(b"\xff"), &[entry(&name, false, 1)]);
        for expected in [
            "<h1><bdi>\u{fffd}</bdi></h1>",
            "<a href=\"%FCbung%20%C3%A9.ts\">\u{fffd}bung \u{e9}.ts</a>",
            "'http://h:80/%FF/%FCbung%20%C3%A9.ts'",
        ] {
            assert!(html.contains(expected), "{expected}\n{html}");
        }
    }

    #[test]
    fn names_stay_names() {
        let html = page(
            "<b>",
            &[entry("<script>alert('x')</script>&\"\u{1b}.ts", false, 1)],
        );
        assert!(
            !html.contains("<script>alert") && !html.contains("<b>") && !html.contains('\u{1b}'),
            "{html}"
        );
        assert!(
            html.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;"),
            "{html}"
        );
    }

    #[test]
    fn folders_come_first_and_capitals_do_not_matter() {
        let names = [
            ("b", false),
            ("A", false),
            ("z", true),
            ("a", false),
            ("Ü", true),
        ];
        let mut entries = names.map(|(name, is_folder)| entry(name, is_folder, 0));
        Entry::sort(&mut entries);
        let sorted: Vec<_> = entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(sorted, ["z", "Ü", "A", "a", "b"]);
    }

    #[test]
    fn sizes_are_told_in_three_digits() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (150 << 20, "150 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(readable(bytes), expected);
        }
    }
}
