//! What a camera, or another server, sends a client of ours: responses and packets, cut anyhow.

use onrush_wire::rtsp::{
    Channels, Incoming, Looked, NoResponse, RESPONSE_BYTES_MAX, RESPONSE_HEADERS_MAX, Response,
    take_incoming,
};

use crate::memory::bounded;
use crate::random::Random;

/// What may be held beside some times a message.
const MEMORY_BYTES: usize = 64 << 10;

/// Of a track that is set up.
const CHANNELS: &[Channels] = &[Channels { rtp: 0, rtcp: 1 }];

/// Takes what comes apart, before a track is set up and behind that.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    check_with(input, &[]);
    check_with(input, CHANNELS);
}

fn check_with(input: &[u8], channels: &[Channels]) {
    let mut random = Random::of(input);
    let pieces = taken(input, channels, |left| random.piece(left));
    let bytes = taken(input, channels, |_| 1);
    assert_eq!(pieces, bytes, "how bytes come together makes a difference");
    let (found, _) = bytes;
    for incoming in &found {
        match incoming {
            Incoming::Response(response) => check_response(response),
            Incoming::Frame(frame) => assert!(frame.packet.len() <= usize::from(u16::MAX)),
            Incoming::Request(_) => {}
            Incoming::Stray(bytes) => assert!((1..RESPONSE_BYTES_MAX).contains(bytes)),
        }
    }
}

fn check_response(response: &Response) {
    assert!(response.headers.len() <= RESPONSE_HEADERS_MAX);
    assert!(response.body.len() <= RESPONSE_BYTES_MAX);
    assert!(!response.reason.chars().any(char::is_control));
    let lines = |text: &str| text.contains('\n');
    let has_lines = |(name, value): &(String, String)| lines(name) || lines(value);
    assert!(!response.headers.iter().any(has_lines));
}

/// What came, and why nothing follows it, if so.
type Taken = (Vec<Incoming>, Option<NoResponse>);

fn taken(input: &[u8], channels: &[Channels], mut piece: impl FnMut(usize) -> usize) -> Taken {
    let (mut received, mut found, mut left) = (Vec::new(), Vec::new(), input);
    let mut looked = Looked::default();
    while !left.is_empty() {
        let some;
        (some, left) = left.split_at(piece(left.len()));
        received.extend_from_slice(some);
        let memory_max = MEMORY_BYTES + 8 * received.len();
        loop {
            match bounded(memory_max, || {
                take_incoming(&mut received, channels, &mut looked)
            }) {
                Ok(Some(incoming)) => found.push(incoming),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
        // A head and a body, or a frame, and what came last.
        assert!(received.len() <= 2 * RESPONSE_BYTES_MAX + some.len());
    }
    (found, None)
}
