//! What leaves on a connection, and when.

use std::net::{TcpListener, TcpStream};
use std::thread;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;
use crate::tls::record::tests::almost_worn;

const LIMITS: Limits = Limits {
    unacknowledged_bytes_max: 1000,
    stall_ns_max: 50,
};
const MANY: usize = 1000;
const FREE: Free = Free {
    slots: MANY,
    trains: MANY,
};

/// A connection of number 0, and its client.
fn connections() -> (Connections, Arc<ConnectionShared>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let mut connections = Connections::new(LIMITS);
    let shared = Arc::<ConnectionShared>::default();
    connections.insert(0, Arc::clone(&shared), (Arc::new(socket.into()), None), 0);
    (connections, shared, client)
}

/// As if the kernel had said that it refers, to an account that may widen buffers.
fn refer(connections: &mut Connections) {
    connections.get_mut(0).unwrap().referring = Referring::Works;
}

fn packets(bytes: u32) -> FramedPackets {
    FramedPackets {
        offset: 0,
        bytes,
        stride: 1000,
        heads_offset: 0,
        head_bytes: 16,
        replaced_bytes: 12,
    }
}

/// As if all that is queued were handed over.
fn hand_over(connections: &mut Connections) -> Vec<u32> {
    let queued = std::mem::take(&mut connections.queued);
    for _ in &queued {
        connections.get_mut(0).unwrap().queued -= 1;
    }
    queued.iter().map(|queued| queued.send.token).collect()
}

#[test]
fn as_much_is_under_way_as_the_limit_says() {
    let (mut connections, ..) = connections();
    refer(&mut connections);
    // Alone it goes, however long it is.
    assert_eq!(connections.gate(0, 5000, FREE, 0), Gate::Open);
    connections.queue(0, packets(400), 1, 0);
    // In the same turn more may follow.
    assert_eq!(connections.gate(0, 600, FREE, 0), Gate::Open);
    assert_eq!(connections.gate(0, 601, FREE, 0), Gate::Shut);
    hand_over(&mut connections);
    assert_eq!(connections.gate(0, 1, FREE, 0), Gate::Shut, "unanswered");
    connections.answered(0, 10);
    assert_eq!(connections.gate(0, 600, FREE, 10), Gate::Open);
    assert_eq!(connections.gate(0, 601, FREE, 10), Gate::Shut);
    assert!(!connections.released(0, 400, 20));
    assert_eq!(connections.gate(0, 5000, FREE, 20), Gate::Open);
}

#[test]
fn half_of_it_is_for_the_socket_while_the_kernel_copies() {
    let (mut connections, ..) = connections();
    connections.queue(0, packets(400), 1, 0);
    assert_eq!(connections.gate(0, 100, FREE, 0), Gate::Open);
    assert_eq!(connections.gate(0, 101, FREE, 0), Gate::Shut);
    refer(&mut connections);
    assert_eq!(connections.gate(0, 101, FREE, 0), Gate::Open);
    connections.referred(0, false);
    assert_eq!(connections.gate(0, 101, FREE, 0), Gate::Shut);
}

#[test]
fn packets_are_referred_to_when_that_works() {
    let (mut connections, ..) = connections();
    // As of a client that is elsewhere.
    connections.get_mut(0).unwrap().referring = Referring::default();
    let mut copied = |sends: u32| {
        for token in 0..sends {
            connections.queue(0, packets(2000), token, 0);
        }
        let queued = connections.queued.drain(..);
        let copied: Vec<_> = queued.map(|queued| queued.send.is_copied).collect();
        connections.get_mut(0).unwrap().queued -= sends;
        (0..sends).for_each(|_| connections.answered(0, 0));
        match sends {
            18 => refer(&mut connections),
            _ => connections.referred(0, false),
        }
        copied
    };
    let first = copied(18);
    assert_eq!(first.iter().filter(|&&is| !is).count(), 1, "one is tried");
    assert!(!first[16]);
    assert_eq!(copied(3), [false; 3]);
    assert_eq!(copied(3), [true; 3], "its route was another's");
}

/// Even one packet would fill its socket, while it does not read.
#[test]
fn a_receiver_on_this_machine_is_always_copied_to() {
    let (mut connections, ..) = connections();
    for token in 0..40 {
        connections.queue(0, packets(2000), token, 0);
    }
    assert!(connections.queued.iter().all(|it| it.send.is_copied));
}

/// Whether the kernel is asked to refer once it has said that it can.
fn is_referred_to() -> bool {
    let (mut connections, ..) = connections();
    connections.get_mut(0).unwrap().referring = Referring::Tried;
    connections.referred(0, true);
    connections.queue(0, packets(2000), 1, 0);
    !connections.queued[0].send.is_copied
}

/// What it refers to counts as whole pages, of which a buffer of the usual size holds few.
#[test]
fn packets_are_copied_without_the_right_to_a_buffer() {
    // The right is a thread's.
    let without = thread::spawn(|| {
        let mut mine = capabilities(None).unwrap();
        mine.effective -= CapabilitySet::NET_ADMIN;
        set_capabilities(None, mine).unwrap();
        is_referred_to()
    });
    assert!(!without.join().unwrap());
    onrush_testkit::require_root!();
    assert!(is_referred_to());
}

#[test]
fn a_client_that_takes_nothing_for_too_long_is_stalled() {
    let (mut connections, ..) = connections();
    // It is not waited for before there is something to take.
    connections.queue(0, packets(900), 1, 1000);
    hand_over(&mut connections);
    assert_eq!(connections.gate(0, 900, FREE, 1050), Gate::Shut);
    assert_eq!(connections.gate(0, 900, FREE, 1051), Gate::Stalled);
    connections.answered(0, 1051);
    assert_eq!(connections.gate(0, 900, FREE, 1101), Gate::Shut);
    assert_eq!(connections.gate(0, 900, FREE, 1102), Gate::Stalled);
}

#[test]
fn the_fewer_slots_are_free_the_fewer_has_a_connection() {
    let (mut connections, ..) = connections();
    let slots = |slots| Free { slots, ..FREE };
    for token in 0..3 {
        assert_eq!(connections.gate(0, 1, slots(8 * 3), 0), Gate::Open);
        connections.queue(0, packets(1), token, 0);
    }
    assert_eq!(connections.gate(0, 1, slots(8 * 3), 0), Gate::Shut);
    assert_eq!(connections.gate(0, 1, slots(8 * 4), 0), Gate::Open);
}

#[test]
fn the_fewer_trains_are_free_the_fewer_has_a_connection() {
    let (mut connections, ..) = connections();
    let trains = |trains| Free { trains, ..FREE };
    for token in 0..3 {
        assert_eq!(connections.gate(0, 1, trains(8 * 3), 0), Gate::Open);
        connections.queue(0, packets(1), token, 0);
    }
    assert_eq!(connections.gate(0, 1, trains(8 * 3), 0), Gate::Shut);
    assert_eq!(connections.gate(0, 1, trains(8 * 4), 0), Gate::Open);
}

/// It is no client's doing, so none is ended for it.
#[test]
fn a_connection_that_finds_nothing_free_is_not_stalled() {
    let (mut connections, ..) = connections();
    let trains = |trains| Free { trains, ..FREE };
    assert_eq!(connections.gate(0, 1, trains(1), 1000), Gate::Open);
    assert_eq!(connections.gate(0, 1, trains(0), 1000), Gate::Full);
    connections.message(0, Message::Bytes((*b"has found no room").into()));
    assert_eq!(connections.gate(0, 1, FREE, 1000), Gate::Full);
}

#[test]
fn messages_leave_before_packets_that_are_queued_later() {
    let (mut connections, ..) = connections();
    connections.queue(0, packets(10), 7, 0);
    assert_eq!(hand_over(&mut connections), [7]);
    for message in [&b"one"[..], b"two"] {
        connections.message(0, Message::Bytes(message.into()));
    }
    let mut tokens = 20..;
    let mut token = |_: u32, _: usize| tokens.next().unwrap();
    assert!(!connections.queue_messages((MANY, MANY), 0, &mut token));
    assert_eq!(connections.queued(), 0, "the chain before is not answered");
    connections.answered(0, 0);
    assert_eq!(connections.gate(0, 1, FREE, 0), Gate::Shut, "they go first");
    assert!(connections.queue_messages((1, MANY), 0, &mut token));
    assert_eq!(connections.gate(0, 1, FREE, 0), Gate::Shut, "one is left");
    assert!(!connections.queue_messages((MANY, MANY), 0, &mut token));
    assert_eq!(connections.gate(0, 1, FREE, 0), Gate::Open);
    connections.queue(0, packets(1), 8, 0);
    assert_eq!(hand_over(&mut connections), [20, 21, 8]);
}

/// As of packets: a client that is slow would hold a chain of all that waits for it.
#[test]
fn the_fewer_trains_are_free_the_fewer_messages_are_linked() {
    let (mut connections, ..) = connections();
    for _ in 0..100 {
        connections.message(0, Message::Bytes((*b"a frame").into()));
    }
    let mut tokens = 0..;
    // Whether some are left that may leave, and how many leave.
    let mut queue = |connections: &mut Connections, room: usize, trains: usize| {
        let token = |_: u32, _: usize| tokens.next().unwrap();
        let are_left = connections.queue_messages((room, trains), 0, token);
        let queued = hand_over(connections).len();
        (are_left, queued)
    };
    let answer = |connections: &mut Connections, sends: usize| {
        (0..sends).for_each(|_| connections.answered(0, 0));
    };
    assert_eq!(queue(&mut connections, 80, MANY), (true, 10));
    let unanswered = queue(&mut connections, MANY, MANY);
    assert_eq!(unanswered, (false, 0), "they go when those are answered");
    answer(&mut connections, 10);
    assert_eq!(queue(&mut connections, MANY, 80), (true, 10));
    answer(&mut connections, 10);
    // An answer of control's may be among them.
    assert_eq!(queue(&mut connections, MANY, 0), (true, 1));
    answer(&mut connections, 1);
    let without_room = queue(&mut connections, 0, MANY);
    assert_eq!(without_room, (false, 0), "a crossing more is of no use");
    assert_eq!(queue(&mut connections, MANY, MANY), (false, 79));
}

#[test]
fn a_worn_key_of_tls_1_2_ends_its_connection() {
    let (mut connections, shared, _client) = connections();
    connections.get_mut(0).unwrap().sealer = Some(Box::new(almost_worn(1)));
    assert!(connections.seal(0, &[b"the last one"]).is_some());
    assert_eq!(connections.gate(0, 1, FREE, 0), Gate::Open);
    assert!(connections.seal(0, &[b"one more"]).is_none());
    assert_eq!(connections.gate(0, 1, FREE, 0), Gate::Failed);
    let error = shared.failure().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::EKEYEXPIRED));
}

#[test]
fn what_fails_fails_once_and_goes_with_its_last_send() {
    let (mut connections, _shared, _client) = connections();
    connections.queue(0, packets(10), 1, 0);
    connections.message(0, Message::Bytes((*b"never").into()));
    for stream in [7, 8, 9] {
        connections.add_stream(0, stream);
    }
    connections.remove_stream(0, 8);
    assert_eq!(connections.fail(0, libc::EPIPE), Some(vec![7, 9]));
    assert_eq!(connections.fail(0, libc::EIO), None);
    assert_eq!(connections.gate(0, 1, FREE, 0), Gate::Failed);
    assert!(!connections.close(0), "a send is in flight");
    hand_over(&mut connections);
    connections.answered(0, 0);
    assert!(connections.released(0, 10, 0));
    assert_eq!(connections.gate(0, 1, FREE, 0), Gate::Failed);
}
