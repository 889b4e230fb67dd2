//! Names of files as text, and back without a loss.
//!
//! A name is bytes to Linux, and mostly UTF-8. As text it is that, and each byte which is part of
//! no character is one of 128 characters at the end of Unicode's private use (U+10FF80 to
//! U+10FFFF). A name that has one of these itself has its bytes in their place, so that no two
//! names are one text and every text that was made of a name leads back to it. No other text
//! changes its meaning: what is below 0x80 always stands for itself, so that no `/`, `.` or zero
//! byte can come out that was not seen before.

use std::borrow::Cow;

/// U+10FF00, to which a byte from 0x80 up is added.
const BASE: u32 = 0x0010_ff00;

/// The name `bytes` as text.
#[must_use]
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match byte_of(character) {
                None => text.push(character),
                Some(_) => {
                    let mut bytes = [0; 4];
                    text.extend(character.encode_utf8(&mut bytes).bytes().map(stand_in));
                }
            }
        }
        text.extend(chunk.invalid().iter().copied().map(stand_in));
    }
    text
}

/// The name that `text` was made of.
#[must_use]
pub fn to_bytes(text: &str) -> Cow<'_, [u8]> {
    if is_utf8(text) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    for character in text.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(character.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Cow::Owned(bytes)
}

/// The name for people: what is no character is shown as U+FFFD.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    if is_utf8(text) {
        return Cow::Borrowed(text);
    }
    let shown = |character| byte_of(character).map_or(character, |_| char::REPLACEMENT_CHARACTER);
    Cow::Owned(text.chars().map(shown).collect())
}

fn is_utf8(text: &str) -> bool {
    // All of them begin with this byte in UTF-8, and few other characters do.
    !text.as_bytes().contains(&0xf4) || text.chars().all(|c| byte_of(c).is_none())
}

/// What stands for `byte`, which is 0x80 at least: what is below is a character always.
fn stand_in(byte: u8) -> char {
    char::from_u32(BASE + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn byte_of(character: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(character).checked_sub(BASE)?).ok()?;
    (byte >= 0x80).then_some(byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_text_and_their_bytes_again() {
        for (bytes, text, people) in [
            (&b"a b.ts"[..], "a b.ts", "a b.ts"),
            (
                "\u{fc}\u{1f600}.ts".as_bytes(),
                "\u{fc}\u{1f600}.ts",
                "\u{fc}\u{1f600}.ts",
            ),
            (b"\xfc.ts", "\u{10fffc}.ts", "\u{fffd}.ts"),
            (b"\xc3\xa9\xc3", "\u{e9}\u{10ffc3}", "\u{e9}\u{fffd}"),
            // What stands for the byte 0x80, in a name; and its neighbour, which stands for
            // nothing.
            (
                b"\xf4\x8f\xbe\x80",
                "\u{10fff4}\u{10ff8f}\u{10ffbe}\u{10ff80}",
                "\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            ),
            (b"\xf4\x8f\xbd\xbf", "\u{10ff7f}", "\u{10ff7f}"),
        ] {
            assert_eq!(from_bytes(bytes), text);
            assert_eq!(*to_bytes(text), *bytes);
            assert_eq!(shown(text), people);
        }
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), Just(0xf4), Just(0x8f), 0xbd_u8..0xc0],
                0..40,
            ),
        ) {
            let text = from_bytes(&bytes);
            prop_assert_eq!(&*to_bytes(&text), &*bytes);
        }

        #[test]
        fn ascii_stands_for_itself(text in "[\u{10ff00}-\u{10ffff}a/.\\PC]{0,20}") {
            let name = to_bytes(&text);
            let ascii = name.iter().filter(|byte| byte.is_ascii());
            prop_assert!(ascii.eq(text.as_bytes().iter().filter(|byte| byte.is_ascii())));
        }
    }
}
