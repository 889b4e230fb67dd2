//! Texts of live channels as they are sent: each is written once for all who ask for it.
//!
//! Where those who ask have credentials in their URLs, which the URLs of a text carry on, it is
//! written once with a mark in their places. What remains to be done for each of them is to put its
//! own there, and to compress that.

use std::io;
use std::sync::Arc;

use onrush_wire::http::{Coding, Codings, Status};

use super::super::film::crowded;
use super::super::made::{
    COMPRESSED_BYTES_MIN, COMPRESSED_HERE_BYTES_MAX, compressed, compressed_for_one, of_texts,
    tag_of, tagged,
};
use super::{By, Refusal};
use crate::downloads::memory::Reserved;
use crate::hls_live::{LiveStream, SentText};
use crate::library::blocking;

/// Stands in a text for what its URLs end in. Nothing else in it is but ASCII, and XML may have it.
const MARK: char = '\u{e000}';

/// A text as it is sent: compressed so, and its room in memory until it is counted.
pub(super) type Written = (SentText, Option<Coding>, Option<Reserved>);

/// A text as it is sent, of which each URL ends in `end`. `write` makes it with whatever is to
/// stand there.
pub(super) async fn written(
    stream: &LiveStream,
    (name, skips): (&str, bool),
    end: &str,
    by: By<'_>,
    write: impl FnOnce(&str) -> Result<Vec<u8>, Refusal>,
) -> Result<Written, Refusal> {
    // Known before anything is written: what is compressed is of the same changes.
    let changes = stream.change_count();
    if !end.is_empty() {
        let marked_name = format!("{name}{MARK}");
        let marked = async { write(&MARK.to_string()).map(tagged) };
        let marked = stream.text(changes, (&marked_name, skips, None), marked);
        return for_one(&marked.await?, end, by).await;
    }
    // What is for all is kept anyway.
    let plain = async { write("").map(tagged) };
    let plain = stream.text(changes, (name, skips, None), plain).await?;
    let Some(coding) = coding_of(&plain, by.codings) else {
        return Ok((plain, None, None));
    };
    let shorter = shorter(Arc::clone(&plain.bytes), coding, compressed);
    let shorter = stream.text(changes, (name, skips, Some(coding)), shorter);
    Ok((shorter.await?, Some(coding), None))
}

/// A text with that in the places of the marks.
async fn for_one(marked: &SentText, end: &str, by: By<'_>) -> Result<Written, Refusal> {
    let text = String::from_utf8_lossy(&marked.bytes);
    let more_bytes = text.matches(MARK).count() * end.len();
    let reserved = by.memory.reserve(text.len() + more_bytes);
    let reserved = reserved.ok_or_else(crowded)?;
    let own = SentText {
        bytes: text.replace(MARK, end).into_bytes().into(),
        // Of what all of it is made from, which is shorter.
        etag: tag_of(&[marked.etag.as_bytes(), end.as_bytes()].concat()).into(),
    };
    let Some(coding) = coding_of(&own, by.codings) else {
        return Ok((own, None, Some(reserved)));
    };
    let shorter = shorter(own.bytes, coding, compressed_for_one).await?;
    Ok((shorter, Some(coding), Some(reserved)))
}

/// What a text is compressed by, if it is.
fn coding_of(text: &SentText, codings: Codings) -> Option<Coding> {
    of_texts(codings).filter(|_| text.bytes.len() >= COMPRESSED_BYTES_MIN)
}

/// A text compressed, on another thread if it is long.
async fn shorter(
    text: Arc<[u8]>,
    coding: Coding,
    compress: fn(&[u8], Coding) -> io::Result<Vec<u8>>,
) -> Result<SentText, Refusal> {
    let shorter = match text.len() > COMPRESSED_HERE_BYTES_MAX {
        true => blocking(move || compress(&text, coding)).await,
        false => compress(&text, coding),
    };
    let note = "the server is short of something";
    let shorter = shorter.map_err(|_| (Status::ServiceUnavailable, note.to_owned()));
    shorter.map(tagged)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::downloads::admission::Share;
    use crate::downloads::memory::{MADE_BYTES_MAX, MadeBytes};

    const URLS: usize = 100;

    /// A text of so many URLs that end in that.
    fn text(end: &str) -> Vec<u8> {
        let lines = (0..URLS).map(|number| format!("{number}.m4s{end}\n"));
        lines.collect::<String>().into_bytes()
    }

    /// The same as it is sent; `times` is how often it was written.
    async fn ask(stream: &LiveStream, end: &str, times: &Cell<u32>) -> SentText {
        let all = MadeBytes::new(MADE_BYTES_MAX, &Arc::default());
        let memory = all.of_connection(&Share::default().made_bytes);
        let by = By {
            query: None,
            codings: Codings::default(),
            memory: &memory,
        };
        let write = |end: &str| {
            times.set(times.get() + 1);
            Ok(text(end))
        };
        let sent = written(stream, ("video", false), end, by, write).await;
        sent.unwrap().0
    }

    #[tokio::test]
    async fn a_text_is_written_once_also_for_those_with_tokens() {
        let (stream, times) = (LiveStream::with_segment(), Cell::new(0));
        let mut etags = Vec::new();
        for end in ["?token=a.b", "?token=a.c", "?rights=play&expires=9", ""] {
            let sent = ask(&stream, end, &times).await;
            assert!(*sent.bytes == *text(end), "{end}");
            let again = ask(&stream, end, &times).await;
            assert_eq!(again.etag, sent.etag);
            etags.push(sent.etag);
        }
        // Once with marks, and once without.
        assert_eq!((times.get(), stream.texts_kept()), (2, 2));
        etags.sort();
        etags.dedup();
        assert_eq!(etags.len(), 4, "other bytes have other tags");
        // When the channel has gone on, once more.
        stream.has_changed();
        for end in ["?token=a.b", "?token=a.c"] {
            ask(&stream, end, &times).await;
        }
        assert_eq!(times.get(), 3);
    }

    #[tokio::test]
    async fn what_is_compressed_for_one_is_the_same_text() {
        let plain: Arc<[u8]> = text("?token=a.b").into();
        let shorter = shorter(Arc::clone(&plain), Coding::Zstd, compressed_for_one).await;
        let shorter = shorter.unwrap().bytes;
        assert!(shorter.len() < plain.len() / 2, "{}", shorter.len());
        let again = zstd::bulk::decompress(&shorter, plain.len()).unwrap();
        assert!(*again == *plain);
    }
}
