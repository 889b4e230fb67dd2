//! What a connection was sent and has not acknowledged, by message.

/// Messages of which sends were taken and not acknowledged, and how many sends: one that is sent
/// bit by bit is one message.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged(Vec<(u32, usize)>);

impl Unacknowledged {
    /// Messages; of those that lie in the queue, of which `first` is the first, none.
    pub(super) fn messages_behind(&self, first: Option<u32>) -> usize {
        let messages = self.0.iter();
        messages.filter(|(it, _)| Some(*it) != first).count()
    }

    /// A send of that message was taken.
    pub(super) fn sent(&mut self, message: u32) {
        match self.0.iter_mut().find(|(it, _)| *it == message) {
            Some((_, sends)) => *sends += 1,
            None => self.0.push((message, 1)),
        }
    }

    /// A send of that message was acknowledged.
    pub(super) fn acknowledged(&mut self, message: u32) {
        self.0.retain_mut(|(it, sends)| {
            *sends -= usize::from(*it == message);
            *sends > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_sent_bit_by_bit_is_one() {
        let mut unacknowledged = Unacknowledged::default();
        for message in [7, 3, 3, 3] {
            unacknowledged.sent(message);
        }
        assert_eq!(unacknowledged.messages_behind(Some(3)), 1);
        assert_eq!(unacknowledged.messages_behind(None), 2);
        for left in [2, 2, 1] {
            unacknowledged.acknowledged(3);
            assert_eq!(unacknowledged.messages_behind(Some(4)), left);
        }
        unacknowledged.acknowledged(7);
        assert_eq!(unacknowledged.messages_behind(None), 0);
    }
}
