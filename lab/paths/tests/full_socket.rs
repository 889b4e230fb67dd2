//! Sockets that are really full: a link that is slower than the sender, and a small send buffer.

use std::io::Write;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use onrush_paths::{Mover, Name, Plan, Source};
use onrush_testkit::require_root;
use onrush_testkit::testbed::{Options, RCV_IPV4, SND_DEVICE, SND_IPV4, Testbed};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const PAYLOAD_BYTES: usize = 1316;
const HEADER_BYTES: usize = 12;
/// Far slower than any path, on a machine that is busy.
const SHAPER: &str = "rate 100mbit burst 128kb limit 64mb";

/// Nothing may be lost, repeated or out of order, and each path has to have waited for room.
#[test]
fn a_full_send_buffer_is_waited_for_on_every_path() {
    require_root!();
    let testbed = Testbed::new(Options::default()).unwrap();
    // What the shaper held back is sent by whichever processor its time comes on.
    testbed.receive_on_one_processor().unwrap();
    let shaper = format!("qdisc add dev {SND_DEVICE} root tbf {SHAPER}");
    testbed.snd.tool("tc", shaper.split(' ')).unwrap();
    for name in Name::ALL.into_iter().filter(|name| name.takes_udp()) {
        // The engine's paths take as wide a buffer as they may have: more is sent then than that
        // holds.
        let is_wide = name.engine().is_some();
        let packets = if is_wide { 9000 } else { 1000 };
        let source = source(packets, name.takes_headers(true));
        let receiver = testbed.rcv.run(|| UdpSocket::bind((RCV_IPV4, 0))).unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let buffer = testbed.rcv.run(|| room_for_all(&receiver));
        assert!(buffer > 32 << 20, "{buffer}");
        let sender = testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0))).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        sender.set_nonblocking(true).unwrap();
        socket2::SockRef::from(&sender)
            .set_send_buffer_size(16 << 10)
            .unwrap();
        // On a thread of its own, without the right to widen a buffer beyond net.core.wmem_max.
        let waits = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut rights = capabilities(None).unwrap();
                rights.effective.remove(CapabilitySet::NET_ADMIN);
                set_capabilities(None, rights).unwrap();
                let mut mover = Mover::open(name, &source, 16 << 20).unwrap();
                let sent = mover.send(&sender, 0..packets);
                sent.map(|()| mover.counters().waits)
            });
            for number in 0..packets {
                let mut packet = [0; 2048];
                let bytes = receiver.recv(&mut packet);
                let bytes =
                    bytes.unwrap_or_else(|error| panic!("{name}: packet {number}: {error}"));
                assert!(
                    packet[..bytes] == image(&source.plan, number),
                    "{name}: packet {number}, {bytes} bytes"
                );
            }
            sending.join().unwrap()
        });
        assert!(waits.unwrap() > 0, "{name}: the socket was never full");
    }
}

/// Sizes the buffer so that nothing is dropped however seldom it is read; the kernel's figure.
fn room_for_all(receiver: &UdpSocket) -> usize {
    rustix::net::sockopt::set_socket_recv_buffer_size_force(receiver, 32 << 20).unwrap();
    rustix::net::sockopt::socket_recv_buffer_size(receiver).unwrap()
}

fn byte(offset: usize) -> u8 {
    // A prime, so that no packet is like another near it.
    u8::try_from(offset % 251).unwrap()
}

fn source(packets: usize, has_headers: bool) -> Arc<Source> {
    let content: Vec<u8> = (0..packets * PAYLOAD_BYTES).map(byte).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    let payload_bytes = u32::try_from(PAYLOAD_BYTES).unwrap();
    let plan = Plan::regular(content.len() as u64, payload_bytes).unwrap();
    let plan = if has_headers {
        let headers = (0..packets).flat_map(header).collect();
        plan.with_headers(HEADER_BYTES, headers).unwrap()
    } else {
        plan
    };
    Arc::new(Source { file, plan })
}

fn header(number: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0x80; HEADER_BYTES];
    header[..8].copy_from_slice(&(number as u64).to_be_bytes());
    header
}

/// What packet `number` has to be.
fn image(plan: &Plan, number: usize) -> Vec<u8> {
    let mut image = plan.packet(number).header.to_vec();
    let first = number * PAYLOAD_BYTES;
    image.extend((first..first + PAYLOAD_BYTES).map(byte));
    image
}
