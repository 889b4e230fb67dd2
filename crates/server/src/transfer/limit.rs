//! A rate that several transfers share.

use std::cell::RefCell;
use std::rc::Rc;

use onrush_wire::pace::schedule::{Bucket, Rate};

/// A rate that all who hold a clone of it keep together, each a slot in turn.
#[derive(Clone, Debug)]
pub struct Limit(Rc<RefCell<Bucket>>);

impl Limit {
    /// A rate that nobody has drawn from.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self(Rc::new(RefCell::new(Bucket::new(rate))))
    }

    /// Does something with the bucket; it is nobody else's meanwhile, because nothing waits in
    /// here.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Bucket) -> T) -> T {
        act(&mut self.0.borrow_mut())
    }
}
