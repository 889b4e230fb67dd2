//! A real UDP receiver of one RTP session, which keeps what arrived.
//!
//! It binds an even port and the odd one above it, as SETUP asks for, and collects both on threads
//! of its own until it is finished. Judging is the [`checker`](crate::checker)'s part.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::checker::{Datagram, Expected, Report, judge};
use crate::netns::Netns;
use crate::rtsp_client::{Ports, rtcp_types};

/// The two sockets of a session, listening.
#[derive(Debug)]
pub struct Receiver {
    rtp_port: u16,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What arrived.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// At the RTP port, in order of arrival, in ns since the receiver was bound.
    pub rtp: Vec<Datagram>,
    /// At the RTCP port, in order of arrival.
    pub rtcp: Vec<Datagram>,
    bytes: usize,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    epoch: Instant,
}

#[derive(Debug, Default)]
struct State {
    capture: Capture,
    end: Option<(End, Instant)>,
}

/// When collecting ends.
#[derive(Clone, Copy, Debug)]
enum End {
    AtOnce,
    /// When nothing more is there.
    Drained,
}

impl Receiver {
    /// Binds a pair of ports on `address` in `netns` and listens. Needs root for its large buffer.
    pub fn bind(netns: &Netns, address: IpAddr) -> io::Result<Self> {
        let Ports { rtp, rtcp } = netns.run(|| Ports::bind(address))?;
        let rtp_port = rtp.local_addr()?.port();
        set_socket_recv_buffer_size_force(&rtp, RECEIVE_BUFFER_BYTES)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            arrived: Condvar::new(),
            epoch: Instant::now(),
        });
        let mut threads = Vec::new();
        for (socket, is_rtp) in [(rtp, true), (rtcp, false)] {
            // So that a finished receiver ends though nothing arrives.
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || shared.collect(&socket, is_rtp)));
        }
        Ok(Self {
            rtp_port,
            shared,
            threads,
        })
    }

    /// Waits until `enough` says so of what has arrived, or `timeout` is over; whether it did.
    pub fn wait_until(&self, timeout: Duration, enough: impl Fn(&Capture) -> bool) -> bool {
        let state = self.shared.lock();
        let waited = self
            .shared
            .arrived
            .wait_timeout_while(state, timeout, |s| !enough(&s.capture));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Takes what has arrived so far; what comes after is collected anew.
    #[must_use]
    pub fn take(&self) -> Capture {
        std::mem::take(&mut self.shared.lock().capture)
    }

    /// Stops listening and hands over what has arrived, that too which nobody has come to collect
    /// yet.
    #[must_use]
    pub fn finish(mut self) -> Capture {
        self.stop(End::Drained);
        self.take()
    }

    fn stop(&mut self, end: End) {
        self.shared.lock().end = Some((end, Instant::now()));
        for thread in self.threads.drain(..) {
            // A collector's panic is lost in a panic of the test's, and shows as missing packets
            // else.
            drop(thread.join());
        }
    }

    /// The even port; RTCP is the next.
    #[must_use]
    pub fn rtp_port(&self) -> u16 {
        self.rtp_port
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop(End::AtOnce);
    }
}

impl Capture {
    /// Judges the RTP packets.
    #[must_use]
    pub fn check(&self, expected: Expected) -> Report {
        judge(expected, &self.rtp)
    }

    /// Whether an RTCP BYE has arrived (RFC 3550, section 6.6).
    #[must_use]
    pub fn has_bye(&self) -> bool {
        let types = |datagram: &Datagram| rtcp_types(&datagram.bytes);
        self.rtcp
            .iter()
            .flat_map(types)
            .any(|packet_type| packet_type == 203)
    }
}

impl Shared {
    fn collect(&self, socket: &UdpSocket, is_rtp: bool) {
        let mut buffer = vec![0; 65_536];
        loop {
            let received = socket.recv(&mut buffer);
            let arrival_ns = self.epoch.elapsed().as_nanos();
            let mut state = self.lock();
            match state.end {
                Some((End::AtOnce, _)) => return,
                // Whoever goes on sending is not waited for.
                Some((_, since)) if received.is_err() || since.elapsed() > DRAIN_MAX => return,
                _ => {}
            }
            // A time-out, or the ICMP echo of a report that we sent to a port closed since.
            let Ok(bytes) = received else { continue };
            state.capture.bytes += bytes;
            assert!(
                state.capture.bytes <= CAPTURE_BYTES_MAX,
                "a test received over 1 GiB"
            );
            let arrival_ns = u64::try_from(arrival_ns).expect("a test takes less than 500 years");
            let datagram = Datagram {
                arrival_ns,
                bytes: buffer[..bytes].to_vec(),
            };
            let list = if is_rtp {
                &mut state.capture.rtp
            } else {
                &mut state.capture.rtcp
            };
            list.push(datagram);
            drop(state);
            self.arrived.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// What one receiver holds at the most.
const CAPTURE_BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::{Options, RCV_IPV4, SND_IPV4, Testbed, stay_on_one_processor};

    #[test]
    fn both_ports_are_collected_in_order() {
        crate::require_root!();
        let testbed = Testbed::new(Options::default()).unwrap();
        let receiver = Receiver::bind(&testbed.rcv, RCV_IPV4.into()).unwrap();
        let port = receiver.rtp_port();
        assert_eq!(port % 2, 0);
        let sender = testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0))).unwrap();
        stay_on_one_processor();
        for i in 0..100_u8 {
            sender.send_to(&[i; 1328], (RCV_IPV4, port)).unwrap();
        }
        // A sender report, and a BYE behind it in the same datagram.
        let compound = [
            &[0x80, 200, 0, 1, 0, 0, 0, 0][..],
            &[0x81, 203, 0, 1, 0, 0, 0, 0],
        ]
        .concat();
        sender.send_to(&compound, (RCV_IPV4, port + 1)).unwrap();
        let long = Duration::from_secs(60);
        assert!(receiver.wait_until(long, |c| c.rtp.len() == 100 && c.has_bye()));
        assert!(!receiver.wait_until(Duration::from_millis(1), |c| c.rtp.len() == 101));
        let capture = receiver.finish();
        assert!(
            (0..100_u8)
                .zip(&capture.rtp)
                .all(|(i, got)| got.bytes == [i; 1328])
        );
        assert!(capture.rtp.is_sorted_by_key(|datagram| datagram.arrival_ns));
        assert_eq!(rtcp_types(&capture.rtcp[0].bytes), [200, 203]);
    }
}
