//! Which names may be files that are served.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use onrush_wire::name::to_bytes;

/// Bytes of a name at the most: Linux's `PATH_MAX`.
pub const NAME_BYTES_MAX: usize = 4096;

/// The name, which is as [`onrush_wire::name`] has it, as a path, if it stays under the root by its
/// own words and names nothing hidden.
pub(crate) fn safe(name: &str) -> Option<PathBuf> {
    let bytes = to_bytes(name);
    if bytes.len() > NAME_BYTES_MAX || bytes.contains(&0) {
        return None;
    }
    if bytes.is_empty() {
        return Some(PathBuf::from("."));
    }
    let path = Path::new(OsStr::from_bytes(&bytes));
    let plain = path.components().all(|component| match component {
        Component::Normal(part) => !is_hidden(part),
        _ => false,
    });
    plain.then(|| path.to_owned())
}

pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}
