//! One stream, as all but its sending thread see it.
//!
//! Control never touches what the thread sends with: it leaves commands and wakes the thread. The
//! thread publishes its counters after each round, or after the next if somebody reads them just
//! then.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onrush_sys::wake::Waker;
use onrush_wire::live::Heard;
use onrush_wire::media::Track;
use onrush_wire::rtp::{PAYLOAD_TYPE_MP2T, StaticPayload, ticks_of};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::cycles::Deliveries;
use super::input::Input;
use super::members::{Change, MemberError, Members, Origin};
use super::srtp::ChannelKeysInUse;
use super::tap::Tap;
use super::viewing::{Given, LiveChannel, Played, ViewerCommand};

/// Changes of more members than this replace the list; fewer are made one by one.
pub const CHANGES_MAX: usize = 16;

/// Changes that wait to be made; more are made as one. Players, who are bounded, come on top.
pub const CHANGES_WAITING_MAX: usize = 1024;

/// A stream under a name.
#[derive(Debug)]
pub struct Channel {
    name: String,
    input: Input,
    /// Of all streams, and which of them this is.
    deliveries: Arc<Deliveries>,
    number: usize,
    members: Mutex<Members>,
    /// Of those that the socket counts, the processes' before this one.
    overflows_before: AtomicU64,
    /// From whom they took, last.
    sender_before: Mutex<Option<SocketAddr>>,
    /// Whether the API's list is another process's now. Written with the members locked.
    is_handed_over: AtomicBool,
    commands: Mutex<Commands>,
    waker: Waker,
    stats: Mutex<Stats>,
    /// To the group of its players.
    pub(super) given: Arc<Given>,
    shared_keys: ChannelKeysInUse,
    /// Its packets never enter this process.
    is_in_kernel: bool,
    /// What a payload type of its own means.
    described: Option<Track>,
}

/// What waits for the sending thread.
#[derive(Debug, Default)]
struct Commands {
    all: Vec<Command>,
    /// The thread has ended: nobody would do more.
    is_ended: bool,
}

/// What the sending thread is asked to do between two rounds.
pub(super) enum Command {
    /// From now on these are the members.
    SetMembers(Vec<SocketAddr>),
    /// These too.
    AddMembers(Vec<SocketAddr>),
    /// These no longer.
    RemoveMembers(Vec<SocketAddr>),
    /// Something for players.
    Viewer(ViewerCommand),
    /// What comes goes there, too.
    Tap(Arc<Tap>),
    /// Count what each member was sent.
    CountMembers(oneshot::Sender<Vec<MemberCounts>>),
    /// Say when all that was asked for before is done.
    Settle(oneshot::Sender<()>),
    /// Take what arrives, which was another process's until now.
    Receive,
    /// End.
    Stop,
}

/// What one member was sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct MemberCounts {
    /// Who.
    pub address: SocketAddr,
    /// Packets that the kernel took for it.
    pub packets: u64,
    /// Packets that the kernel refused: no route, no room.
    pub refused: u64,
}

/// The sending thread's counters and state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Everything that came.
    pub heard: Heard,
    /// Whether something came lately.
    pub is_heard: bool,
    /// From whom the last datagram came.
    pub from: Option<SocketAddr>,
    /// What players get, once it is known.
    pub playable: Option<Playable>,
    /// Datagrams that found no room in the socket's buffer.
    pub overflows: u64,
    /// Datagrams that were too long to be passed on.
    pub too_long: u64,
    /// Trains that left: each a send to all members or to all players of one address.
    pub trains: u64,
    /// Packets that left, each counted once for each receiver.
    pub packets: u64,
    /// Their bytes, without UDP's and lower headers.
    pub bytes: u64,
    /// Packets that the kernel refused, each counted once for each receiver.
    pub refused: u64,
    /// Entries into the kernel to send.
    pub crossings: u64,
    /// Packets given to players (once, however many they are), and the bytes of their payload.
    pub played: Played,
    /// From a packet's arrival until all had it, at the longest, in ns.
    pub passing_ns_max: u64,
    /// The same of all trains, added up.
    pub passing_ns: u64,
    /// Members now.
    pub members: usize,
    /// Players now.
    pub players: usize,
    /// How unevenly packets arrive (RFC 3550, section 6.4.1): of the worst track of a published
    /// channel.
    pub jitter_ns: u64,
    /// By how much later packets come, by their timestamps, than the most punctual ones of the last
    /// minutes: of the worst track of a published channel.
    pub lag_ns: u64,
    /// Packets of a publisher that are not of the payload type that it has announced.
    pub unannounced: u64,
    /// Packets and reports of a publisher that have another SSRC than the one that is taken.
    pub foreign: u64,
    /// Frames of a publisher on channels that it has not set up, and bytes between frames that are
    /// none.
    pub strays: u64,
    /// Packets that were dropped for players who were slow.
    pub dropped: u64,
    /// Players who took nothing for too long.
    pub stalled_out: u64,
    /// Packets that were encrypted (SRTP): each once for all players who share a key, and once for
    /// each player who shares none.
    pub encrypted: u64,
    /// Packets that were not encrypted, because their numbers had been used with that key.
    pub unencrypted: u64,
}

/// A stream that players can be offered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Playable {
    /// Its synchronisation source.
    pub ssrc: u32,
    /// Its RTP payload type.
    pub payload_type: u8,
    /// Ticks a second of its timestamps.
    pub clock_hz: u32,
    /// The last packet's timestamp.
    pub timestamp: u32,
    /// When that packet arrived, in ns of the monotonic clock.
    pub arrived_ns: u64,
}

impl Playable {
    /// The timestamp that a packet would have that arrived at `now_ns`.
    #[must_use]
    pub fn timestamp_at(&self, now_ns: u64) -> u32 {
        let since_ns = now_ns.saturating_sub(self.arrived_ns);
        self.timestamp
            .wrapping_add(ticks_of(since_ns, self.clock_hz.into()))
    }
}

/// What a stream does at the moment, in a word.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelState {
    /// Nothing has come yet.
    #[default]
    Waiting,
    /// It comes.
    Live,
    /// It came, and does not now.
    Silent,
    /// Its source is asked for, and has not answered.
    Connecting,
}

impl Stats {
    /// What the stream does at the moment.
    #[must_use]
    pub const fn state(&self) -> ChannelState {
        match self.heard.datagrams {
            _ if self.is_heard => ChannelState::Live,
            0 => ChannelState::Waiting,
            _ => ChannelState::Silent,
        }
    }
}

impl ChannelState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Live, Self::Silent, Self::Connecting];

    /// Its word, as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Live => "live",
            Self::Silent => "silent",
            Self::Connecting => "connecting",
        }
    }
}

impl Channel {
    pub(super) fn new(
        name: String,
        input: Input,
        (deliveries, number): (Arc<Deliveries>, usize),
        is_in_kernel: bool,
        described: Option<Track>,
    ) -> io::Result<Self> {
        Ok(Self {
            name,
            input,
            deliveries,
            number,
            members: Mutex::default(),
            overflows_before: AtomicU64::new(0),
            sender_before: Mutex::default(),
            is_handed_over: AtomicBool::new(false),
            commands: Mutex::default(),
            waker: Waker::new()?,
            stats: Mutex::default(),
            given: Arc::default(),
            shared_keys: ChannelKeysInUse::default(),
            is_in_kernel,
            described,
        })
    }

    /// What packets of this payload type hold, or the type if nobody has said.
    pub(crate) fn track(&self, payload_type: u8) -> Result<Track, u8> {
        let described = self.described.as_ref();
        match described.filter(|track| track.payload_type == payload_type) {
            Some(track) => Ok(track.clone()),
            None => StaticPayload::of(payload_type)
                .map(Track::from)
                .ok_or(payload_type),
        }
    }

    /// Whether packets of this payload type hold a transport stream, as far as anybody has said.
    pub(super) fn is_transport(&self, payload_type: u8) -> bool {
        let described = self.described.as_ref();
        match described.filter(|track| track.payload_type == payload_type) {
            Some(track) => track.encoding.eq_ignore_ascii_case("MP2T"),
            None => payload_type == PAYLOAD_TYPE_MP2T,
        }
    }

    /// Why no segments are made of what has come last, or is said to come.
    pub(crate) fn is_not_cut(&self) -> Option<String> {
        let heard = self.stats().playable.map(|playable| playable.payload_type);
        let described = self.described.as_ref().map(|track| track.payload_type);
        let payload_type = heard.or(described)?;
        let of = match self.track(payload_type) {
            _ if self.is_transport(payload_type) => return None,
            Ok(track) => track.encoding.into_owned(),
            Err(_) => format!("payload type {payload_type}, which nothing describes,"),
        };
        Some(format!("{of} is not made into segments"))
    }

    /// What players get of a stream whose last RTP packet says this.
    pub(super) fn playable(
        &self,
        (payload_type, ssrc, timestamp): (u8, u32, u32),
        arrived_ns: u64,
    ) -> Playable {
        Playable {
            ssrc,
            payload_type,
            clock_hz: match &self.described {
                Some(track) if track.payload_type == payload_type => track.clock_hz,
                _ => StaticPayload::of(payload_type).map_or(CLOCK_HZ, |it| it.clock_hz),
            },
            timestamp,
            arrived_ns,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it arrives.
    #[must_use]
    pub const fn input(&self) -> &Input {
        &self.input
    }

    /// What its thread published last.
    #[must_use]
    pub fn stats(&self) -> Stats {
        *lock(&self.stats)
    }

    /// What it does at the moment.
    #[must_use]
    pub fn state(&self) -> ChannelState {
        self.stats().state()
    }

    /// Its members, each with the lists it stands in.
    #[must_use]
    pub fn members(&self) -> Members {
        lock(&self.members).clone()
    }

    /// Makes the list of `origin` consist of `members`. Says how the members have changed.
    ///
    /// # Errors
    ///
    /// See [`Members::replace`]; and [`MemberError::Cycle`].
    pub fn replace(&self, origin: Origin, members: &[SocketAddr]) -> Result<Change, MemberError> {
        self.change(|list| {
            match origin {
                Origin::Api => self.check_own()?,
                Origin::CommandLine | Origin::File => {}
            }
            list.replace(origin, members)
        })
    }

    /// Adds members to the API's list.
    ///
    /// # Errors
    ///
    /// See [`Members::add`]; and [`MemberError::Cycle`].
    pub fn add(&self, members: &[SocketAddr]) -> Result<Change, MemberError> {
        self.change(|list| {
            self.check_own()?;
            list.add(members)
        })
    }

    /// Removes members from the API's list.
    ///
    /// # Errors
    ///
    /// See [`Members::remove`].
    pub fn remove(&self, members: &[SocketAddr]) -> Result<Change, MemberError> {
        self.change(|list| {
            self.check_own()?;
            list.remove(members)
        })
    }

    /// Datagrams that the socket had no room for before this process received at it.
    pub(super) fn overflows_before(&self) -> u64 {
        self.overflows_before.load(Ordering::Relaxed)
    }

    /// From whom another process took until then, if it kept to somebody.
    pub(super) fn sender_before(&self) -> Option<SocketAddr> {
        *lock(&self.sender_before)
    }

    /// Sets both; [`Command::Receive`] is still to come.
    pub(super) fn set_before(&self, sender: Option<SocketAddr>, overflows: u64) {
        *lock(&self.sender_before) = sender;
        self.overflows_before.store(overflows, Ordering::Relaxed);
    }

    /// The API's list, which is another process's from now on and changes here no more.
    pub(super) fn hand_over_members(&self) -> Vec<SocketAddr> {
        let members = lock(&self.members);
        self.is_handed_over.store(true, Ordering::Relaxed);
        let is_added = |member: &SocketAddr| members.origins(member).contains(&Origin::Api);
        members.iter().filter(is_added).collect()
    }

    /// Called with the members locked.
    fn check_own(&self) -> Result<(), MemberError> {
        match self.is_handed_over.load(Ordering::Relaxed) {
            true => Err(MemberError::HandedOver),
            false => Ok(()),
        }
    }

    fn change(
        &self,
        make: impl FnOnce(&mut Members) -> Result<Change, MemberError>,
    ) -> Result<Change, MemberError> {
        // Before the members, everywhere: whoever changes members anywhere is alone in it.
        let mut changing = self.deliveries.changing();
        // Held until the commands are left, so that they are left in the order of the changes.
        let mut members = lock(&self.members);
        let mut next = members.clone();
        let change = make(&mut next)?;
        changing.apply(self.number, &change)?;
        *members = next;
        let changes = change.added.len() + change.removed.len();
        if changes > CHANGES_MAX || lock(&self.commands).all.len() > CHANGES_WAITING_MAX {
            // What was asked for before is in it.
            let mut commands = lock(&self.commands);
            commands.all.retain(|command| !command.is_of_members());
            drop(commands);
            self.send(Command::SetMembers(members.iter().collect()));
            return Ok(change);
        }
        if !change.removed.is_empty() {
            self.send(Command::RemoveMembers(change.removed.clone()));
        }
        if !change.added.is_empty() {
            self.send(Command::AddMembers(change.added.clone()));
        }
        Ok(change)
    }

    /// What each member was sent since it came, or since more than [`CHANGES_MAX`] came or went at
    /// once. `None` if the thread is gone.
    pub async fn count_members(&self) -> Option<Vec<MemberCounts>> {
        let (answer, counts) = oneshot::channel();
        self.send(Command::CountMembers(answer));
        counts.await.ok()
    }

    /// The channel of this process that takes in what is sent to `address`, if there is one: no
    /// player can be there.
    pub(crate) fn taken_by(&self, address: SocketAddr) -> Option<&str> {
        self.deliveries.taken_by(address)
    }

    pub(super) fn send(&self, command: Command) {
        let mut commands = lock(&self.commands);
        if !commands.is_ended {
            commands.all.push(command);
        }
        drop(commands);
        self.waker.wake();
    }

    /// For the thread: what it waits for beside its socket.
    pub(super) const fn waker(&self) -> &Waker {
        &self.waker
    }

    /// What comes goes to `tap`, too, until that is closed.
    pub(crate) fn tap(&self, tap: Arc<Tap>) {
        self.send(Command::Tap(tap));
    }

    /// For the thread: what it has been asked to do. Nothing while somebody adds a command: the
    /// thread is woken after that.
    pub(super) fn commands(&self) -> Vec<Command> {
        self.waker.clear();
        match self.commands.try_lock() {
            Ok(mut commands) => std::mem::take(&mut commands.all),
            Err(_) => Vec::new(),
        }
    }

    /// For the thread: publishes its counters, unless somebody reads them just now.
    pub(super) fn publish(&self, now: &Stats) {
        if let Ok(mut stats) = self.stats.try_lock() {
            *stats = *now;
        }
    }

    /// For the thread, which ends: publishes its counters, and waits for who reads them just now.
    /// Who waits for an answer to a command gets none.
    pub(super) fn publish_last(&self, now: &Stats) {
        *lock(&self.stats) = *now;
        let mut commands = lock(&self.commands);
        commands.is_ended = true;
        let left = std::mem::take(&mut commands.all);
        drop(commands);
        drop(left);
    }
}

impl LiveChannel for Channel {
    fn live_path(&self) -> String {
        self.name.clone()
    }

    fn command(&self, command: ViewerCommand) {
        self.send(Command::Viewer(command));
    }

    fn count_viewer(&self, _is_there: bool) {}

    fn clock_hz(&self, _track: usize) -> u32 {
        let playable = self.stats().playable;
        playable.map_or(CLOCK_HZ, |playable| playable.clock_hz)
    }

    fn ssrc_now(&self, _track: usize) -> Option<u32> {
        self.stats().playable.map(|playable| playable.ssrc)
    }

    fn timestamp_at(&self, _track: usize, now_ns: u64) -> Option<u32> {
        let playable = self.stats().playable;
        playable.map(|playable| playable.timestamp_at(now_ns))
    }

    fn given(&self, _track: usize) -> &Given {
        &self.given
    }

    fn end(&self) -> Option<String> {
        None
    }

    fn has_frames(&self) -> bool {
        !self.is_in_kernel
    }

    fn shared_keys(&self) -> &ChannelKeysInUse {
        &self.shared_keys
    }

    fn is_permanent(&self) -> bool {
        true
    }
}

impl Command {
    const fn is_of_members(&self) -> bool {
        matches!(
            self,
            Self::SetMembers(_) | Self::AddMembers(_) | Self::RemoveMembers(_)
        )
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetMembers(_) => "SetMembers",
            Self::AddMembers(_) => "AddMembers",
            Self::RemoveMembers(_) => "RemoveMembers",
            Self::Viewer(_) => "Viewer",
            Self::Tap(_) => "Tap",
            Self::CountMembers(_) => "CountMembers",
            Self::Settle(_) => "Settle",
            Self::Receive => "Receive",
            Self::Stop => "Stop",
        })
    }
}

/// Ticks a second of what is not known, as of nearly all pictures (RFC 3551, section 5).
pub(super) const CLOCK_HZ: u32 = 90_000;

/// Nothing that is locked here is ever left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Channel {
    /// A stream without a thread.
    pub(super) fn of_tests() -> Arc<Self> {
        let input: Input = "127.0.0.1:5004".parse().unwrap();
        let inputs = vec![("tv".to_owned(), input.clone())];
        let deliveries = Arc::new(Deliveries::new(inputs, || Ok(Vec::new())));
        Arc::new(Self::new("tv".to_owned(), input, (deliveries, 0), false, None).unwrap())
    }
}
