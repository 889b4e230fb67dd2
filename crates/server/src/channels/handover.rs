//! How streams go from a server to the one that takes its place, without a datagram that is lost,
//! passed on twice, or overtaken by a later one.
//!
//! Both processes have the sockets at which streams arrive. The successor's threads leave them
//! alone until those of its predecessor have ended: what arrives meanwhile waits in the sockets.
//! Where the kernel replicates at tc ingress, the successor's programs stand behind the
//! predecessor's, which take all until they are detached.
//!
//! Over a socket the two say:
//!
//! | predecessor | successor |
//! |---|---|
//! | the bytes of what follows, a `u64` | |
//! | by channel, the members that the API has added and the sender that is kept, in JSON | |
//! | | a byte: they are members here, too |
//! | closes it: nobody receives there any more | |
//! | | begins to receive |
//!
//! The API's members are told because nobody else knows them; the successor's API answers when it
//! has them. A predecessor that ends in the midst of this has closed the socket; one whose
//! successor does not answer has waited long enough after [`HANDOVER_ANSWER_TIME_MAX`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::channel::{Channel, Command};
use super::config::SOURCES_MAX;
use super::members::{MEMBERS_MAX, Origin};

/// So long a predecessor waits until its successor has read the lists, and until it has answered.
pub const HANDOVER_ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// So long a server that is to be replaced waits for what it takes over itself: for longer than its
/// own predecessor waits for it.
pub const HANDOVER_TIME_MAX: Duration = Duration::from_secs(30);

/// What is told of all channels together at the most.
pub const HANDOVER_BYTES_MAX: usize = SOURCES_MAX * MEMBERS_MAX * MEMBER_BYTES_MAX;

/// Bytes of an address with its port and quotes in JSON at the most, rounded up.
const MEMBER_BYTES_MAX: usize = 64;

/// Between two looks at whether a thread has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What is told of a channel.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Told {
    /// The API's list.
    members: Vec<SocketAddr>,
    /// Who sends.
    sender: Option<SocketAddr>,
    /// Datagrams that the socket had no room for, since it was opened.
    overflows: u64,
}

type ToldByName = BTreeMap<String, Told>;

/// Tells the successor what only this process knows, and waits until that has effect there. The
/// API can change members here no more.
///
/// # Errors
///
/// When it is gone, or does not answer in time.
pub(super) fn tell(mut successor: &UnixStream, channels: &[Arc<Channel>]) -> io::Result<()> {
    successor.set_write_timeout(Some(HANDOVER_ANSWER_TIME_MAX))?;
    successor.set_read_timeout(Some(HANDOVER_ANSWER_TIME_MAX))?;
    let told = channels.iter().map(|channel| {
        let (name, members) = (channel.name().to_owned(), channel.hand_over_members());
        let told = Told {
            members,
            sender: sender(channel),
            overflows: channel.overflows_before() + channel.stats().overflows,
        };
        (name, told)
    });
    let told = serde_json::to_vec(&told.collect::<ToldByName>()).map_err(io::Error::other)?;
    successor.write_all(&(told.len() as u64).to_ne_bytes())?;
    successor.write_all(&told)?;
    successor.read_exact(&mut [0])
}

/// Who sends the stream just now. Before anything has come here that is who sent it before.
fn sender(channel: &Channel) -> Option<SocketAddr> {
    let stats = channel.stats();
    if stats.heard.datagrams == 0 {
        return channel.sender_before();
    }
    let is_stream = stats.heard.rtp + stats.heard.transport_streams > 0;
    stats.from.filter(|_| is_stream && stats.is_heard)
}

/// Waits for the server before this one to let its streams go. Dropping it gives up.
#[derive(Debug)]
pub(super) struct TakingOver {
    predecessor: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl TakingOver {
    /// Has `channels` receive when the predecessor has told what it knows and closed its end. The
    /// other is dropped when its members are members here, or will not be.
    ///
    /// # Errors
    ///
    /// When there is no descriptor or thread left.
    pub(super) fn start(
        predecessor: UnixStream,
        channels: Vec<Arc<Channel>>,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let mut heard = predecessor.try_clone()?;
        let (tell, told) = oneshot::channel();
        let run = move || {
            if let Err(error) = take_over(&mut heard, &channels, tell) {
                warn!("the server before this one has not told what it knows of channels: {error}");
            }
            for channel in channels {
                channel.send(Command::Receive);
            }
        };
        let name = "onrush-takeover".to_owned();
        let thread = Some(thread::Builder::new().name(name).spawn(run)?);
        let taking_over = Self {
            predecessor,
            thread,
        };
        Ok((taking_over, told))
    }

    /// Waits for its end, but no longer than [`HANDOVER_TIME_MAX`].
    pub(super) fn wait(&self) {
        let give_up = Instant::now() + HANDOVER_TIME_MAX;
        while self.thread.as_ref().is_some_and(|it| !it.is_finished()) {
            if Instant::now() > give_up {
                return warn!("the server before this one still receives, and is not waited for");
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for TakingOver {
    fn drop(&mut self) {
        // The thread sees the end of what it reads. It may have seen it before.
        self.predecessor
            .shutdown(Shutdown::Both)
            .unwrap_or_default();
        let ended = self.thread.take().map(JoinHandle::join);
        if let (Some(Err(panic)), false) = (ended, thread::panicking()) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Returns when the predecessor receives no more.
fn take_over(
    predecessor: &mut UnixStream,
    channels: &[Arc<Channel>],
    tell: oneshot::Sender<()>,
) -> io::Result<()> {
    let mut told = read_told(predecessor)?;
    for channel in channels {
        let Some(told) = told.remove(channel.name()) else {
            continue;
        };
        let Told {
            members,
            sender,
            overflows,
        } = told;
        channel.set_before(sender, overflows);
        if let (false, Err(error)) = (members.is_empty(), channel.replace(Origin::Api, &members)) {
            warn!("source {}: members of the API: {error}", channel.name());
        }
    }
    for (name, Told { members, .. }) in told {
        warn!(
            "source {name} is none of this server; {} members of its API are dropped",
            members.len()
        );
    }
    // Whoever ends gives no answer, and needs no members.
    let settled = channels.iter().map(|channel| {
        let (settle, settled) = oneshot::channel();
        channel.send(Command::Settle(settle));
        settled
    });
    for settled in settled.collect::<Vec<_>>() {
        settled.blocking_recv().unwrap_or_default();
    }
    drop(tell);
    predecessor.write_all(&[1])?;
    // Until it is closed; nothing more comes.
    io::copy(predecessor, &mut io::sink())?;
    info!("{} sources are received here from now on", channels.len());
    Ok(())
}

fn read_told(predecessor: &mut UnixStream) -> io::Result<ToldByName> {
    let mut bytes = [0; size_of::<u64>()];
    predecessor.read_exact(&mut bytes)?;
    let bytes = u64::from_ne_bytes(bytes);
    if bytes > HANDOVER_BYTES_MAX as u64 {
        return Err(io::Error::other(format!("{bytes} bytes are too many")));
    }
    let mut told = Vec::new();
    if predecessor.take(bytes).read_to_end(&mut told)? as u64 != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&told).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::super::channel::Stats;
    use super::super::members::MemberError;
    use super::*;

    fn member() -> SocketAddr {
        "10.0.0.7:5004".parse().unwrap()
    }

    /// A channel's thread, which does nothing but answer.
    struct Worker {
        channel: Arc<Channel>,
        thread: JoinHandle<Vec<String>>,
    }

    impl Worker {
        fn of(channel: Arc<Channel>) -> Self {
            let of_thread = Arc::clone(&channel);
            let thread = thread::spawn(move || run(&of_thread));
            Self { channel, thread }
        }

        /// What it was asked to do.
        fn stop(self) -> Vec<String> {
            self.channel.send(Command::Stop);
            self.thread.join().unwrap()
        }
    }

    fn run(channel: &Channel) -> Vec<String> {
        let mut asked = Vec::new();
        loop {
            for command in channel.commands() {
                asked.push(format!("{command:?}"));
                match command {
                    Command::Settle(answer) => answer.send(()).unwrap(),
                    Command::Stop => {
                        channel.publish_last(&Stats::default());
                        return asked;
                    }
                    _ => {}
                }
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// A successor's end of a predecessor's socket, and its channel with a thread.
    fn successor() -> (UnixStream, TakingOver, Worker) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let worker = Worker::of(Channel::of_tests());
        let channels = vec![Arc::clone(&worker.channel)];
        let (taking_over, _) = TakingOver::start(theirs, channels).unwrap();
        (ours, taking_over, worker)
    }

    #[test]
    fn members_are_there_before_anything_is_received() {
        let before = Channel::of_tests();
        before.add(&[member()]).unwrap();
        let (ours, taking_over, worker) = successor();
        tell(&ours, &[Arc::clone(&before)]).unwrap();
        assert_eq!(worker.channel.members().origins(&member()), [Origin::Api]);
        let thread = taking_over.thread.as_ref().unwrap();
        assert!(!thread.is_finished(), "the predecessor receives");
        let refused = before.add(&[member()]).unwrap_err();
        assert_eq!(refused, MemberError::HandedOver);
        drop(ours);
        taking_over.wait();
        let asked = worker.stop();
        assert_eq!(asked, ["AddMembers", "Settle", "Receive", "Stop"]);
    }

    #[test]
    fn a_predecessor_that_ends_in_the_middle_has_let_go() {
        for told in [
            &b""[..],
            &[1, 2, 3],
            &9_u64.to_ne_bytes(),
            b"\x02\0\0\0\0\0\0\0{}",
        ] {
            let (mut ours, taking_over, worker) = successor();
            ours.write_all(told).unwrap();
            drop(ours);
            taking_over.wait();
            let asked = worker.stop();
            let asked: Vec<_> = asked.iter().filter(|it| *it != "Settle").collect();
            assert_eq!(asked, ["Receive", "Stop"], "{told:?}");
        }
    }

    #[test]
    fn what_is_told_has_a_bound() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut read = |bytes: usize| {
            ours.write_all(&(bytes as u64).to_ne_bytes()).unwrap();
            theirs.set_nonblocking(true).unwrap();
            read_told(&mut theirs.try_clone().unwrap()).unwrap_err()
        };
        let waits = read(HANDOVER_BYTES_MAX);
        assert_eq!(waits.kind(), io::ErrorKind::WouldBlock, "for what follows");
        let refused = read(HANDOVER_BYTES_MAX + 1);
        assert!(refused.to_string().contains("too many"), "{refused}");
    }

    #[test]
    fn whoever_gives_up_does_not_wait() {
        let (mut ours, taking_over, worker) = successor();
        drop(taking_over);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "and it has closed its end");
        let error = tell(&ours, &[Channel::of_tests()]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        worker.stop();
        // Nor for a thread that has ended before it was asked.
        let (ours, taking_over, worker) = successor();
        let channel = Arc::clone(&worker.channel);
        worker.stop();
        tell(&ours, &[channel]).unwrap();
        drop(taking_over);
    }
}
