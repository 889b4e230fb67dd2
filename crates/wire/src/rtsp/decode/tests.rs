//! What the decoder makes of bytes, however they were cut.

use proptest::prelude::*;
use rtsp_types::Method;

use super::*;

#[test]
fn a_tunnel_begins_with_a_head_of_http() {
    let mut decoder = Decoder::new(LIMITS);
    decoder.push(b"POST /a HTTP/1.0\r\nx-sessioncookie: c\r\n\r\nT1BU");
    let Some(Ok(Event::Tunnel(side))) = decoder.next_event() else {
        panic!("it has come whole");
    };
    assert!(side.is_post);
    // What follows is another's to understand.
    assert_eq!(decoder.next_event(), None);
    assert_eq!(decoder.into_rest(), b"T1BU");
}

const LIMITS: Limits = Limits {
    head_bytes_max: 256,
    headers_max: 4,
    body_bytes_max: 16,
    frame_bytes_max: 12,
};

/// Everything that `bytes` yield, fed in pieces of these sizes, over and over.
fn decode(bytes: &[u8], pieces: &[usize]) -> Vec<Result<Event, Refused>> {
    let mut decoder = Decoder::new(LIMITS);
    let mut out = Vec::new();
    let mut rest = bytes;
    for &piece in pieces.iter().cycle() {
        let (now, later) = rest.split_at(piece.clamp(1, rest.len().max(1)).min(rest.len()));
        decoder.push(now);
        while let Some(event) = decoder.next_event() {
            out.push(event);
        }
        let held_max = LIMITS.head_bytes_max + LIMITS.body_bytes_max;
        assert!(decoder.input.len() <= held_max);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    out
}

fn one(bytes: &[u8]) -> Result<Request, Refused> {
    let mut events = decode(bytes, &[1]);
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0).map(|event| match event {
        Event::Request(request) => request,
        other => panic!("{other:?}"),
    })
}

/// What is in a frame, or the number of a request.
fn seen(event: Result<Event, Refused>) -> (Option<(u8, Vec<u8>)>, Option<u32>) {
    match event.unwrap() {
        Event::Request(request) => (None, request.cseq()),
        Event::Frame(Frame { channel, packet }) => (Some((channel, packet)), None),
        other => panic!("{other:?}"),
    }
}

fn malformed(bytes: &[u8]) -> Malformed {
    one(bytes).unwrap_err().malformed
}

#[test]
fn a_request_is_read() {
    let request = one(
        b"SETUP rtsp://h/a/track1 RTSP/1.0\r\ncseq:  7 \r\nTransport: a,\r\n b\r\n\
        Content-Length: 3\r\n\r\nxyz",
    )
    .unwrap();
    assert_eq!(request.method, Method::Setup);
    assert_eq!(request.uri, "rtsp://h/a/track1");
    assert_eq!(request.version, (1, 0));
    assert_eq!(request.cseq(), Some(7));
    assert_eq!(request.header("TRANSPORT"), Some("a, b"));
    assert_eq!(request.body, b"xyz");
}

#[test]
fn a_url_may_have_spaces_in_it() {
    for (line, uri) in [
        (
            "DESCRIBE rtsp://h/My Film.mp4 RTSP/1.0",
            "rtsp://h/My%20Film.mp4",
        ),
        (
            "DESCRIBE  rtsp://h/a  b RTSP/1.0.mp4  RTSP/1.0 ",
            "rtsp://h/a%20%20b%20RTSP/1.0.mp4",
        ),
        (" DESCRIBE   *   RTSP/1.0", "*"),
    ] {
        let request = one(format!("{line}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!((request.method, &*request.uri), (Method::Describe, uri));
        assert_eq!(request.version, (1, 0), "{line}");
    }
}

#[test]
fn requests_and_frames_are_found_between_each_other() {
    let bytes = b"\r\n\nOPTIONS * RTSP/1.0\nCSeq: 1\n\n$\x01\x00\x05$A\r\n\0\
        PLAY /a RTSP/1.0\r\nCSeq: 2\r\n\r\n$\xff\x00\x00PAUSE /a RTSP/1.0\r\nCSeq: 3\r\n\r\n";
    for pieces in [1, 2, 3, 7, 1000] {
        let events = decode(bytes, &[pieces]).into_iter().map(seen);
        let expected = [
            (None, Some(1)),
            (Some((1, b"$A\r\n\0".to_vec())), None),
            (None, Some(2)),
            (Some((255, Vec::new())), None),
            (None, Some(3)),
        ];
        assert_eq!(events.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn answers_of_clients_stand_between_requests_too() {
    let bytes = b"RTSP/1.0 501 Not Implemented\r\nCSeq: 7\r\n\r\n\
        $\x01\x00\x01xRTSP/1.0 200 OK\r\nContent-Length: 16\r\n\r\n0123456789abcdef\
        OPTIONS * RTSP/1.0\r\nCSeq: 3\r\n\r\nRTSP/1.0 200\n\n";
    for pieces in [1, 2, 3, 7, 1000] {
        let events = decode(bytes, &[pieces]);
        let answers = events.iter().filter_map(|event| match event {
            Ok(Event::Answer(answer)) => Some((answer.status, answer.cseq)),
            _ => None,
        });
        let answers: Vec<_> = answers.collect();
        assert_eq!(answers, [(501, Some(7)), (200, None), (200, None)]);
        assert_eq!(events.len(), 5, "a frame and a request beside them");
    }
    let long = b"RTSP/1.0 200 OK\r\nContent-Length: 17\r\n\r\n";
    assert_eq!(
        malformed(long),
        Malformed::BodyTooLong { body_bytes_max: 16 }
    );
    // Nobody is mid-request behind one.
    let mut decoder = Decoder::new(LIMITS);
    decoder.push(b"RTSP/1.0 200 OK\r\n\r\n");
    assert!(decoder.next_event().unwrap().is_ok());
    assert_eq!(decoder.next_event(), None);
    assert!(!decoder.is_mid_request());
}

#[test]
fn frames_are_kept_to_their_limit_and_passed_over_beyond() {
    let request = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
    let frame = |packet_bytes: u16| {
        let mut frame = vec![b'$', 0];
        frame.extend(packet_bytes.to_be_bytes());
        frame.resize(4 + usize::from(packet_bytes), b'$');
        frame
    };
    for (packet_bytes, is_kept) in [(12, true), (13, false), (u16::MAX, false)] {
        let bytes = [frame(packet_bytes).as_slice(), request].concat();
        for pieces in [1, 11, 4096, 70_000] {
            let events: Vec<_> = decode(&bytes, &[pieces]).into_iter().map(seen).collect();
            assert_eq!(events.len(), 1 + usize::from(is_kept), "{packet_bytes}");
            assert_eq!(events.last(), Some(&(None, Some(1))));
        }
    }
    // However long it is, half of one is half of something.
    let mut decoder = Decoder::new(LIMITS);
    decoder.push(&frame(u16::MAX)[..60_000]);
    assert_eq!(decoder.next_event(), None);
    assert!(decoder.is_mid_request() && decoder.input.is_empty());
}

#[test]
fn half_a_request_is_known_as_such() {
    let mut decoder = Decoder::new(LIMITS);
    assert!(!decoder.is_mid_request());
    for bytes in [
        &b"\r\nOPT"[..],
        b"IONS * RTSP/1.0\r\nContent-Length: 2\r\n\r\n",
        b"x",
    ] {
        decoder.push(bytes);
        assert_eq!(decoder.next_event(), None);
        assert!(decoder.is_mid_request());
    }
    decoder.push(b"y\r\n");
    assert!(decoder.next_event().unwrap().is_ok());
    assert_eq!(decoder.next_event(), None);
    assert!(!decoder.is_mid_request());
}

#[test]
fn the_head_may_be_as_long_as_its_limit_and_no_longer() {
    let head = |bytes: usize| {
        let frame = "OPTIONS * RTSP/1.0\r\nCSeq: 5\r\nX: \r\n\r\n".len();
        format!(
            "OPTIONS * RTSP/1.0\r\nCSeq: 5\r\nX: {}\r\n\r\n",
            "x".repeat(bytes - frame)
        )
    };
    assert!(one(head(LIMITS.head_bytes_max).as_bytes()).is_ok());
    let refused = one(head(LIMITS.head_bytes_max + 1).as_bytes()).unwrap_err();
    assert_eq!(
        refused.malformed,
        Malformed::HeadTooLong {
            head_bytes_max: 256
        }
    );
    assert_eq!(refused.cseq, Some(5));
    assert_eq!(refused.reply().status(), 400);
    let long = one(&[b'x'; 257]).unwrap_err();
    assert_eq!(
        long.malformed,
        Malformed::LineTooLong {
            head_bytes_max: 256
        }
    );
    assert_eq!(long.reply().status(), 414);
    assert_eq!(decode(&[b'x'; 256], &[1]), []);
}

#[test]
fn headers_are_counted_to_their_limit() {
    let head = |headers| format!("OPTIONS * RTSP/1.0\r\n{}\r\n", "A: b\r\n".repeat(headers));
    assert_eq!(
        one(head(LIMITS.headers_max).as_bytes())
            .unwrap()
            .headers
            .len(),
        4
    );
    let too_many = malformed(head(LIMITS.headers_max + 1).as_bytes());
    assert_eq!(too_many, Malformed::TooManyHeaders { headers_max: 4 });
}

#[test]
fn bodies_are_taken_to_their_limit() {
    let with = |length: &str, body: usize| {
        let head = format!("OPTIONS * RTSP/1.0\r\nCSeq: 9\r\nContent-Length: {length}\r\n\r\n");
        [head.into_bytes(), vec![b'b'; body]].concat()
    };
    assert_eq!(one(&with("16", 16)).unwrap().body.len(), 16);
    let refused = one(&with("17", 0)).unwrap_err();
    assert_eq!((refused.reply().status(), refused.cseq), (413, Some(9)));
    let huge = malformed(&with("99999999999999999999999999", 0));
    assert_eq!(huge, Malformed::BodyTooLong { body_bytes_max: 16 });
    for bad in ["-1", "+1", "1x", "", "0x1", "1, 1"] {
        assert_eq!(malformed(&with(bad, 0)), Malformed::ContentLength, "{bad}");
    }
    let two = b"OPTIONS * RTSP/1.0\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(malformed(two), Malformed::ContentLength);
}

#[test]
fn what_is_no_request_is_refused() {
    for line in [
        "OPTIONS *",
        "OPTIONS RTSP/1.0",
        "OPTIONS  RTSP/1.0",
        "OPTIONS * RTSP/1.0 x",
        "OPTIONS a\tb RTSP/1.0",
        "OPTIONS * HTTP/1.1",
        "OPTIONS * RTSP/1",
        "OPTIONS * RTSP/1.x",
        "OPTIONS * RTSP/+1.0",
        "RTSP/1.0 20 OK",
        "RTSP/1.0 600 OK",
        "RTSP/1. 200 OK",
        "O(S * RTSP/1.0",
    ] {
        assert_eq!(
            malformed(format!("{line}\r\n\r\n").as_bytes()),
            Malformed::RequestLine
        );
    }
    for header in [
        "no colon",
        ": no name",
        "sp ace: x",
        "X : y",
        " first line goes on",
    ] {
        let head = format!("OPTIONS * RTSP/1.0\r\n{header}\r\n\r\n");
        assert_eq!(malformed(head.as_bytes()), Malformed::Header, "{header}");
    }
    assert_eq!(
        malformed(b"\x16\x03\x01"),
        Malformed::Control { byte: 0x16 }
    );
    assert_eq!(malformed(b"OPTIONS\r*"), Malformed::Control { byte: b'\r' });
    assert_eq!(
        malformed(b"OPTIONS /\xff RTSP/1.0\r\n\r\n"),
        Malformed::NotUtf8
    );
}

#[test]
fn nothing_follows_a_refusal() {
    let mut decoder = Decoder::new(LIMITS);
    decoder.push(b"\0OPTIONS * RTSP/1.0\r\n\r\n");
    assert!(decoder.next_event().unwrap().is_err());
    decoder.push(b"OPTIONS * RTSP/1.0\r\n\r\n");
    assert_eq!(decoder.next_event(), None);
    assert!(!decoder.is_mid_request());
}

/// Bytes that come near to requests more often than noise would.
fn nearly_requests() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => Just(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n".to_vec()),
        1 => Just(b"PLAY /a RTSP/1.0\nContent-Length: 4\n\nbody".to_vec()),
        1 => Just(b"$\x00\x00\x03abc".to_vec()),
        1 => Just(b"$\x07\x00\x0d0123456789abc".to_vec()),
        1 => Just(b"$\x01\x01".to_vec()),
        1 => Just(b"RTSP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab".to_vec()),
        1 => Just(b"\r\n".to_vec()),
        1 => Just(b"A: b\r\n".to_vec()),
        1 => Just(b"Content-Length: 40\r\n".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn splits_do_not_matter(
        bytes in nearly_requests(),
        pieces in prop::collection::vec(1_usize..60, 1..20),
    ) {
        prop_assume!(bytes.len() <= 256);
        prop_assert_eq!(decode(&bytes, &[1]), decode(&bytes, &pieces));
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        decode(&bytes, &[1]);
    }
}
