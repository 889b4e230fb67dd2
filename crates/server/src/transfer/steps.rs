//! Steps that are not made.

use onrush_sys::path::cue::{Step, StepEnd};

/// A step that was not made.
pub(super) const NOTHING: Step = Step {
    sent_bytes: 0,
    end: StepEnd::Done,
};

/// A step that was not made, because nothing can be sent now.
pub(super) const FULL: Step = Step {
    sent_bytes: 0,
    end: StepEnd::Full,
};
