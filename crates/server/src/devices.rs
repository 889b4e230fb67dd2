//! What files of one disk share and those of others do not: permits to wait for it. A disk that
//! does not answer keeps those that it has given, and nobody waits for it who reads from another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// Devices that have permits of their own at a time; those beyond share some.
pub const DEVICES_MAX: usize = 64;

/// So many permits for each device, by its number.
#[derive(Debug)]
pub(crate) struct DevicePermits {
    each: usize,
    own: Mutex<HashMap<u64, Arc<Semaphore>>>,
    /// Of devices beyond [`DEVICES_MAX`].
    others: Arc<Semaphore>,
}

impl DevicePermits {
    pub(crate) fn new(each: usize) -> Self {
        Self {
            each,
            own: Mutex::default(),
            others: Arc::new(Semaphore::new(each)),
        }
    }

    /// Those of this device. Permits are to be owned: they keep the semaphore that they are of.
    pub(crate) fn of(&self, device: u64) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(permits) = own.get(&device) {
            return Arc::clone(permits);
        }
        if own.len() >= DEVICES_MAX {
            own.retain(|_, permits| Arc::strong_count(permits) > 1);
        }
        if own.len() >= DEVICES_MAX {
            return Arc::clone(&self.others);
        }
        let permits = Arc::new(Semaphore::new(self.each));
        own.insert(device, Arc::clone(&permits));
        permits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_takes_no_permits_of_another() {
        let permits = DevicePermits::new(1);
        let taken = permits.of(1).try_acquire_owned().unwrap();
        assert!(permits.of(1).try_acquire_owned().is_err());
        assert!(permits.of(2).try_acquire_owned().is_ok());
        drop(taken);
        assert!(permits.of(1).try_acquire_owned().is_ok());
    }

    #[test]
    fn devices_beyond_the_limit_share_what_is_left() {
        let permits = DevicePermits::new(1);
        let take = |device| permits.of(device).try_acquire_owned();
        let most = DEVICES_MAX as u64;
        let mut taken: Vec<_> = (0..most).map(|device| take(device).unwrap()).collect();
        let beyond = take(most).unwrap();
        assert!(take(most + 1).is_err(), "two share one permit");
        drop(beyond);
        assert!(take(most + 1).is_ok());
        // What nobody waits for is forgotten, and its place taken by another.
        taken.pop();
        let own = [take(most), take(most + 1)];
        assert!(own.iter().all(Result::is_ok), "{own:?}");
        assert!(take(0).is_err(), "it is still taken");
        assert_eq!(permits.own.lock().unwrap().len(), DEVICES_MAX);
    }
}
