//! Sockets that go deaf, at which a stream arrives: where their interface was removed and made anew
//! nothing comes any more, and nothing says so.

use std::net::UdpSocket;

use tracing::{debug, info, warn};

use super::input::Input;

/// Looks after the socket of a stream that is not heard.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    /// On which interface its group is joined, if that is known.
    joined: u32,
    looked_ns: u64,
    /// It could not be seen to, last time.
    is_in_vain: bool,
}

impl Renewal {
    /// It is heard, or another process's: there is nothing to see to for a while.
    pub(super) const fn rest(&mut self, now_ns: u64) {
        self.looked_ns = now_ns;
    }

    /// Sees to it that `socket` hears what is sent to it, once in a while.
    pub(super) fn look(&mut self, name: &str, (input, socket): (&Input, &UdpSocket), now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns) < LOOK_EVERY_NS {
            return;
        }
        self.looked_ns = now_ns;
        let renewed = input.renew(socket, &mut self.joined);
        let was_in_vain = std::mem::replace(&mut self.is_in_vain, renewed.is_err());
        match renewed {
            Ok(true) => info!("source {name}: {input} is heard anew, at another interface"),
            Ok(false) => {}
            Err(error) if was_in_vain => debug!("source {name} cannot be heard: {error}"),
            Err(error) => warn!("source {name} cannot be heard at {input}: {error}"),
        }
    }
}

/// So often, as long as nothing comes.
const LOOK_EVERY_NS: u64 = 5_000_000_000;
