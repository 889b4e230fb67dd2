//! One stream as its worker sees it: its socket, its place in the media, its clock.

use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onrush_sys::path::{Segments, To};
use onrush_wire::media::Plan;
use onrush_wire::pace::MediaClock;
use onrush_wire::rtp::{Numbering, Position};

use super::super::admission::Demand;
use super::super::moving::PendingMove;
use super::super::numbering::jumped;
use super::super::reader::Reader;
use super::super::shared::{State, StreamShared};
use super::super::shared_clock::Side;
use super::super::srtp::StreamSrtp;
use super::super::trains::{
    OWN_HEADERS_PACKETS, OWN_HEADERS_PACKETS_LEAST, images_per_framed_send, images_per_train,
};
use super::super::{Framing, Play};
use super::signed;
use crate::store;
use crate::store::layout::Images;

/// So many packets of images that are encrypted once for all are skipped before one burst is sent:
/// a quarter of what a receiver may miss, so that two such bursts in a row may be lost on the way.
const SKIPPED_MAX: u32 = 1 << 13;

/// Where a stream's packets leave.
pub(super) enum StreamOutlet {
    /// As datagrams.
    Socket(OwnedFd),
    /// Likewise; the path keeps the socket.
    InstalledSocket,
    /// Nowhere any more: the path that kept the socket was given up, and no descriptor was to be
    /// had for it, as this errno says.
    Lost(i32),
    /// As frames of a connection; see [`Framing`].
    Interleaved { connection: u32, channel: u8 },
}

/// A stream as its worker sees it.
pub(super) struct StreamEntry {
    pub(super) shared: Arc<StreamShared>,
    pub(super) outlet: StreamOutlet,
    /// Trains that are queued or whose memory the kernel has not released.
    pub(super) trains: u32,
    /// Control has let go of it. It leaves with its last train: until then its number and its
    /// socket are taken, so that no train meets a successor's.
    pub(super) closing: bool,
    /// It goes to another engine, likewise with its last train.
    pub(super) leaving: Option<Box<PendingMove>>,
    /// Written by the [`StreamTable`](super::table::StreamTable) alone, which keeps account.
    pub(super) playing: bool,
    /// It plays, but is not sent: see [`shedding`](super::shedding). Written by the table, too.
    pub(super) is_shed: bool,
    /// Packets that were skipped since the last that was queued.
    skipped: u32,
    /// Until when it waited for its chunk or for the device: what was due before is not late
    /// because of this worker.
    pub(super) waited_until_ns: i64,
    /// What it asks for. Written by the table, too.
    pub(super) demand: Demand,
    /// How many were opened before it.
    pub(super) order: u64,
    /// All is queued; the end is told at the next tick, when it has left.
    pub(super) finishing: bool,
    /// It has waited for its file to grow: what was due meanwhile is due when it comes.
    waited_for_growth: bool,
    /// It has waited for its client to take what was sent before.
    pub(super) waited_for_client: bool,
    pub(super) reader: Reader,
    /// Of the movements of a clock that it shares, what is in its line.
    pub(super) moved_ns: i64,
    /// No burst leaves before.
    pub(super) hold_until_ns: i64,
    /// Since when the kernel has refused every train; 0 if the last was taken.
    pub(super) refused_since_ns: u64,
    /// How its packets are numbered.
    pub(super) numbering: Numbering,
    /// It was told to pause, and the kernel holds trains of it: until when that is waited for.
    pub(super) pausing_until_ns: Option<NonZeroU64>,
}

impl StreamEntry {
    pub(super) fn new(shared: Arc<StreamShared>, outlet: StreamOutlet, order: u64) -> Self {
        let (demand, numbering) = (shared.demand(), shared.numbering.get(Side::Worker));
        Self {
            shared,
            outlet,
            demand,
            numbering,
            pausing_until_ns: None,
            order,
            is_shed: false,
            skipped: 0,
            waited_until_ns: i64::MIN,
            trains: 0,
            closing: false,
            leaving: None,
            playing: false,
            finishing: false,
            waited_for_growth: false,
            waited_for_client: false,
            reader: Reader::default(),
            moved_ns: 0,
            hold_until_ns: i64::MIN,
            refused_since_ns: 0,
        }
    }

    /// Goes to where `play` says, and takes its clock.
    pub(super) fn start(&mut self, play: &Play, renumbers: bool) {
        let is_plain = self.shared.source.film_key().is_none();
        if renumbers && is_plain || self.srtp().is_some() {
            self.renumber(play);
        }
        self.pausing_until_ns = None;
        self.finishing = false;
        self.waited_for_client = false;
        self.refused_since_ns = 0;
        // A burst that a seek cuts was due before the first of its packets that is sent.
        self.hold_until_ns = signed(play.start_ns);
        self.moved_ns = play.moved_ns;
        let shared = &self.shared;
        shared.lines.set(Side::Worker, play.line);
        shared.next_packet.store(play.from, Ordering::Relaxed);
        shared.take_play();
    }

    /// Before it plays from packet `from`: its numbers go on where they were.
    fn renumber(&mut self, play: &Play) {
        let shared = &self.shared;
        if shared.has_been_taken() {
            let (source, from) = (&shared.source, play.from);
            let end = shared.next_packet.load(Ordering::Relaxed);
            self.numbering = match source.try_plan() {
                Some(plan) => jumped(self.numbering, source, &plan, end, from),
                // A longer one is being published. What was foretold is the same, but for a stream
                // that was not paused before.
                None => play.numbering,
            };
            shared.numbering.set(Side::Worker, self.numbering);
        }
    }

    /// Has another source from now on, and is seen by `shared`. What the kernel still holds of the
    /// one before is pinned for itself.
    pub(super) fn change_source(&mut self, shared: Arc<StreamShared>) {
        // Those that control has copied may have gone on.
        shared.count_on_from(&self.shared);
        self.numbering = shared.numbering.get(Side::Worker);
        (self.finishing, self.waited_for_growth) = (false, false);
        self.shared = shared;
    }

    /// Says that it is paused, if it was told to pause and has not said so.
    pub(super) fn tell_paused(&mut self) {
        if self.pausing_until_ns.take().is_some() {
            self.shared.set_state(State::Paused);
        }
    }

    pub(super) fn set_errno(&self, errno: i32) {
        let errno = errno.unsigned_abs();
        self.shared.errno.store(errno, Ordering::Relaxed);
    }

    /// There is no more of its file yet.
    pub(super) fn wait_for_growth(&mut self, now_ns: i64) {
        self.finishing = false;
        self.waited_for_growth = true;
        self.waited_until_ns = now_ns;
    }

    /// There is a burst of it that is due at that media time. What was due while it waited for its
    /// file to grow is due now, and all else after it; and where a track beside it has moved their
    /// clock, later by as much.
    pub(super) fn set_clock(&mut self, media_ns: u64, now_ns: i64) {
        self.follow_clock();
        self.finishing = false;
        let late_ns = now_ns.saturating_sub(self.line().due_ns(media_ns));
        if std::mem::take(&mut self.waited_for_growth) && late_ns > 0 {
            self.move_clock(late_ns);
        }
    }

    /// All is due so much later: of this track and of those beside it.
    pub(super) fn move_clock(&mut self, by_ns: i64) {
        match self.shared.clock.get() {
            Some(clock) => {
                clock.move_to(self.moved_ns.saturating_add(by_ns));
                self.follow_clock();
            }
            None => self.add_to_clock(by_ns),
        }
    }

    /// Takes over by how much a track beside it has moved their clock.
    fn follow_clock(&mut self) {
        if let Some(clock) = self.shared.clock.get() {
            let moved_ns = clock.moved_ns();
            let by_ns = moved_ns - std::mem::replace(&mut self.moved_ns, moved_ns);
            if by_ns != 0 {
                self.add_to_clock(by_ns);
            }
        }
    }

    fn add_to_clock(&mut self, by_ns: i64) {
        self.shared
            .lines
            .set(Side::Worker, self.line().later(by_ns));
    }

    /// When media is due.
    pub(super) fn line(&self) -> MediaClock {
        self.shared.lines.get(Side::Worker)
    }

    /// When what is due at that media time is to leave.
    pub(super) fn due_ns(&self, media_ns: u64) -> i64 {
        self.line().due_ns(media_ns).max(self.hold_until_ns)
    }

    /// When what it was asked to play is over: when the packet before which it stops would be due,
    /// or all of the media is.
    pub(super) fn end_ns(&self) -> i64 {
        let plan = self.shared.source.try_plan();
        // While a longer one is being published, for a moment, the end is that of the last packet.
        let media_ns = plan.map_or(0, |plan| plan.due_ns(self.reader.stop_before()));
        self.line().due_ns(media_ns)
    }

    /// `burst` and the one after it, and when that is due, if the two are to leave in one train:
    /// before `before_ns`, and before `media_end_ns` of the media. What is something else in the
    /// file by now is not to leave at all.
    pub(super) fn joined(
        &self,
        burst: &Images,
        store: &store::Shared,
        before_ns: i64,
        media_end_ns: u64,
    ) -> Option<(Images, i64)> {
        let next = self.reader.following(store)?;
        let joined = burst.joined(next)?;
        let next_packet = self.reader.next_packet() + u64::from(burst.count);
        if self.shared.source.is_changed(next_packet) {
            return None;
        }
        let due_ns = self.due_ns(next.due_ns);
        let fits = joined.count <= self.train_images_most(&joined);
        (fits && due_ns < before_ns && next.due_ns < media_end_ns).then_some((joined, due_ns))
    }

    /// Whether these images are the last of their burst: it may be in several runs of images.
    pub(super) fn ends_its_burst(&self, images: &Images, store: &store::Shared) -> bool {
        let next = self.reader.following(store);
        next.is_none_or(|next| next.due_ns != images.due_ns)
    }

    /// These images are queued: what comes after them is next.
    pub(super) fn advance(&mut self, images: &Images) {
        self.reader.advance(images.end());
        self.skipped = 0;
        let next_packet = &self.shared.next_packet;
        next_packet.store(self.reader.next_packet(), Ordering::Relaxed);
    }

    /// Goes on from packet `next`, if it does not stop before, and sends nothing up to there; how
    /// many packets that leaves out.
    ///
    /// What only its client can read is numbered on as if nothing were missing: whoever misses
    /// 32,768 packets or more takes a wrong count of how often numbers have wrapped, and can
    /// decrypt nothing from then on (RFC 3711, section 3.3.1). What is encrypted once for all has
    /// its numbers; see [`Self::is_to_be_heard`].
    pub(super) fn skip_to(&mut self, next: u64, store: &store::Shared) -> u64 {
        let before = self.reader.next_packet();
        self.reader.skip_to(next, store);
        let next = self.reader.next_packet();
        let skipped = u32::try_from(next - before).unwrap_or(u32::MAX);
        self.skipped = self.skipped.saturating_add(skipped);
        if self.srtp().is_some() {
            let origin = self.shared.source.origin();
            let number = |packet| Position {
                sequence: origin.sequence_of(packet),
                timestamp: 0,
            };
            self.numbering = self.numbering.continued(number(before), number(next));
            self.shared.numbering.set(Side::Worker, self.numbering);
        }
        self.shared.next_packet.store(next, Ordering::Relaxed);
        next - before
    }

    /// Whether a burst of it is to be sent although it is left out, because its client would miss
    /// too much of what is encrypted once for all.
    pub(super) fn is_to_be_heard(&self) -> bool {
        self.shared.source.film_key().is_some() && self.skipped >= SKIPPED_MAX
    }

    /// The media time from which on it [is to be heard](Self::is_to_be_heard), if it is skipped up
    /// to there.
    pub(super) fn heard_from_ns(&self, plan: &Plan) -> u64 {
        let left = SKIPPED_MAX.saturating_sub(self.skipped);
        let packet = self.reader.next_packet() + u64::from(left);
        match self.shared.source.film_key().is_some() && packet < plan.rtp_packets() {
            true => plan.due_ns(packet),
            false => u64::MAX,
        }
    }

    /// What its packets are encrypted with, if they leave as datagrams that only its client reads.
    pub(super) fn srtp(&self) -> Option<&StreamSrtp> {
        self.shared.srtp.as_deref()
    }

    /// Whether the way to its client takes no trains, so that each of its packets is one.
    pub(super) fn sends_singly(&self) -> bool {
        self.shared.sends_singly.load(Ordering::Relaxed)
    }

    /// Whether its trains are of headers of its own and of images.
    pub(super) fn has_vectored_trains(&self) -> bool {
        self.framing().is_none() && self.srtp().is_none() && !self.numbering.is_shared()
    }

    /// Who says how long these images are: its socket, if they are of the size that it was readied
    /// for.
    pub(super) fn segments(&self, images: &Images) -> Segments {
        let tag_bytes = self.srtp().map_or(0, StreamSrtp::tag_bytes);
        match images.segment_bytes + tag_bytes == self.shared.segment_bytes {
            true => Segments::OfSocket,
            false => Segments::OfSend,
        }
    }

    /// How many images a train of these has at the most.
    pub(super) fn train_images_most(&self, images: &Images) -> u32 {
        match (self.framing(), self.srtp()) {
            _ if self.sends_singly() => 1,
            (Some(_), _) => images_per_framed_send(images.segment_bytes),
            (None, Some(srtp)) => srtp.images_per_train(images.segment_bytes),
            (None, None) if self.numbering.is_shared() => images_per_train(images.segment_bytes),
            (None, None) => OWN_HEADERS_PACKETS,
        }
    }

    /// How many images a train of these has room for in any case.
    pub(super) fn train_images_least(&self, images: &Images) -> u32 {
        match self.has_vectored_trains() && !self.sends_singly() {
            true => OWN_HEADERS_PACKETS_LEAST,
            false => self.train_images_most(images),
        }
    }

    /// Whether what stands before its payloads is written for it.
    pub(super) fn has_own_headers(&self) -> bool {
        self.framing().is_some() || self.has_vectored_trains()
    }

    /// The connection that it leaves on, and its channel there, if it does.
    pub(super) fn framing(&self) -> Option<Framing> {
        match self.outlet {
            StreamOutlet::Interleaved {
                connection,
                channel,
            } => Some(Framing {
                connection,
                channel,
            }),
            StreamOutlet::Socket(_) | StreamOutlet::InstalledSocket | StreamOutlet::Lost(_) => None,
        }
    }

    /// Why it has no socket any more, if it has lost it.
    pub(super) fn lost(&self) -> Option<i32> {
        match self.outlet {
            StreamOutlet::Lost(errno) => Some(errno),
            _ => None,
        }
    }

    /// Where the datagrams of stream `number`, which this is, go.
    ///
    /// # Panics
    /// If it sends none.
    pub(super) fn to(&self, number: u32) -> To {
        match &self.outlet {
            StreamOutlet::Socket(socket) => To::Descriptor(socket.as_raw_fd()),
            StreamOutlet::InstalledSocket => To::RegisteredFile(number),
            StreamOutlet::Interleaved { .. } => unreachable!("frames leave on connections"),
            StreamOutlet::Lost(_) => unreachable!("what has no socket does not play"),
        }
    }
}

#[cfg(test)]
mod tests {
    use onrush_wire::rtp::HEADER_BYTES;
    use onrush_wire::srtp::{RtpReceiver, Suite};

    use super::super::super::numbering::SharedNumbering;
    use super::*;
    use crate::experiments::Faults;
    use crate::store::FilmKey;
    use crate::testing::{CHUNK_BYTES, TestSource, store_of};

    /// Receivers know by the last number whether those behind it have wrapped.
    #[test]
    fn who_misses_many_encrypted_packets_reads_what_follows() {
        let (test, key) = (TestSource::lasting(100), FilmKey::new(Suite::default()));
        let (store, origin) = (
            store_of(CHUNK_BYTES, 8, Faults::default()),
            test.source.origin(),
        );
        let srtp = Arc::new(StreamSrtp::new(key.master(), 7));
        let mut shared = StreamShared::of_test(&test);
        shared.srtp = Some(Arc::clone(&srtp));
        shared.numbering = SharedNumbering::new(srtp.numbering(origin.sequence_of(0)));
        let shared = Arc::new(shared);
        let mut stream = StreamEntry::new(Arc::clone(&shared), StreamOutlet::InstalledSocket, 0);
        stream.numbering = srtp.numbering(origin.sequence_of(0));
        stream
            .reader
            .start(&shared, store.shared(), 0, u64::MAX, None);
        let mut receiver = RtpReceiver::new(key.master());
        let mut is_read = |stream: &StreamEntry, packet| {
            let mut header = [0; HEADER_BYTES];
            header[0] = 0x80;
            header[2..4].copy_from_slice(&origin.sequence_of(packet).to_be_bytes());
            let header = stream.numbering.header(&header);
            let tag = vec![0; srtp.tag_bytes().into()];
            let mut bytes = [&header[..], b"payload", &tag].concat();
            srtp.protect_each(&mut [(0, &mut bytes)]);
            receiver.unprotect(&mut bytes).is_ok()
        };
        let mut from = 0;
        for skipped in [40_000, 32_768, 65_536, 1, 200_000] {
            for packet in from..from + 10 {
                assert!(is_read(&stream, packet), "{packet}");
            }
            stream.reader.skip_to(from + 10, store.shared());
            assert_eq!(stream.skip_to(from + 10 + skipped, store.shared()), skipped);
            from += 10 + skipped;
            assert_eq!(shared.next_packet.load(Ordering::Relaxed), from);
            assert_eq!(shared.numbering.get(Side::Worker), stream.numbering);
        }
        assert!(is_read(&stream, from));
    }
}
