//! The limits of films of object stores.

#[cfg(feature = "objects")]
use onrush_objects as objects;

use super::Limit;
#[cfg(feature = "objects")]
use super::{count, time};

/// Those of object stores, where they are built in.
#[cfg(feature = "objects")]
pub(super) fn of_objects() -> Vec<Limit> {
    fixed! {
        objects::REQUESTS_MAX as count, "requests to an object store at once";
        objects::HEDGES_MAX as count, "of them asked twice because slow";
        objects::LISTS_MAX as count, "lists of a bucket's folders at once";
        objects::AHEAD_MAX as count, "blocks of a film asked for ahead";
        objects::RETRY_TIME_MAX as time, "asking again for a block";
        objects::REQUEST_TIME_MAX as time, "one request to an object store";
        objects::OPEN_TIME_MAX as time, "looking for a film; more: 503";
        objects::NAMES_MAX as count, "films of an object store known at once";
        objects::LISTED_MAX as count, "objects looked at for a list";
    }
}

#[cfg(not(feature = "objects"))]
pub(super) fn of_objects() -> Vec<Limit> {
    Vec::new()
}
