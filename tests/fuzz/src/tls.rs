//! What comes on a connection with TLS behind its handshake, cut anyhow, as records: as if a cipher
//! had found in each what stands there.

use onrush_wire::tls::{
    Meaning, RECORD_BYTES_MAX, RECORD_HEADER_BYTES, RecordError, RecordReader,
    TLS_IDLE_RECORDS_MAX, alert, is_record, record_bytes, record_type,
};

use crate::random::Random;

/// Takes records apart and says what they mean, in both versions.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let mut random = Random::of(input);
    for is_tls13 in [true, false] {
        let pieces = taken(input, is_tls13, |left| random.piece(left));
        let bytes = taken(input, is_tls13, |_| 1);
        assert_eq!(pieces, bytes, "how bytes come together makes a difference");
        check_taken(&bytes, is_tls13);
    }
}

/// Records with what they mean, and why nothing follows them, if so.
type Taken = (Vec<(u8, Vec<u8>, Meaning)>, Option<RecordError>);

fn taken(input: &[u8], is_tls13: bool, mut piece: impl FnMut(usize) -> usize) -> Taken {
    let (mut received, mut found, mut left) = (Vec::new(), Vec::new(), input);
    let mut reader = RecordReader::default();
    while !left.is_empty() {
        let some;
        (some, left) = left.split_at(piece(left.len()));
        received.extend_from_slice(some);
        loop {
            let bytes = match record_bytes(&received) {
                Ok(bytes) => bytes.filter(|&bytes| bytes <= received.len()),
                Err(error) => return (found, Some(error)),
            };
            let Some(bytes) = bytes else {
                break;
            };
            assert!((RECORD_HEADER_BYTES..=RECORD_BYTES_MAX).contains(&bytes));
            let record: Vec<_> = received.drain(..bytes).collect();
            let _any = is_record(&record);
            let (kind, payload) = (record[0], record[RECORD_HEADER_BYTES..].to_vec());
            match reader.take((kind, &payload), is_tls13) {
                Ok(meaning) => found.push((kind, payload, meaning)),
                Err(error) => return (found, Some(error)),
            }
        }
        // One that is not whole, and no more.
        assert!(received.len() < RECORD_BYTES_MAX);
    }
    (found, None)
}

fn check_taken((found, error): &Taken, is_tls13: bool) {
    let mut idle = 0;
    for (kind, payload, meaning) in found {
        let is_data = *kind == record_type::APPLICATION_DATA && !payload.is_empty();
        assert_eq!(*meaning == Meaning::Data, is_data);
        idle = if is_data { 0 } else { idle + 1 };
        assert!(idle <= TLS_IDLE_RECORDS_MAX, "a peer keeps us busy");
        match meaning {
            Meaning::KeyUpdate { .. } => {
                assert!(is_tls13 && *kind == record_type::HANDSHAKE && payload.len() == 5);
            }
            Meaning::End => {
                assert_eq!(*kind, record_type::ALERT);
                assert_eq!(payload[1..], [alert::CLOSE_NOTIFY]);
            }
            Meaning::Data | Meaning::Nothing => {}
        }
    }
    if let Some(RecordError::Broken { what, .. }) = error {
        assert!(!what.is_empty());
    }
}
