//! Each fault, planted once.

use super::*;

const FILE_PACKETS: u64 = 100;
/// Ticks between two transport packets of the file.
const TICKS: u64 = 90;

/// Transport packets that differ, every tenth with a PCR, `pcr_first` at the first.
fn file(pcr_first: u64) -> Arc<[u8]> {
    let mut file = Vec::new();
    for packet in 0..FILE_PACKETS {
        let mut ts = [u8::try_from(packet).unwrap(); TS_BYTES];
        ts[..4].copy_from_slice(&[0x47, 0x01, 0x00, 0x10]);
        if packet % 10 == 0 {
            let pcr = (pcr_first + packet * TICKS) & 0x1_ffff_ffff;
            ts[3] = 0x30;
            ts[4] = 7;
            ts[5] = 0x10;
            ts[6..10].copy_from_slice(&u32::try_from(pcr >> 1).unwrap().to_be_bytes());
            ts[10] = u8::try_from(pcr & 1).unwrap() << 7;
        }
        file.extend(ts);
    }
    file.into()
}

fn expected(ts: &Arc<[u8]>) -> Expected {
    Expected {
        ts: Arc::clone(ts),
        start: Start::Found,
        end: Some(FILE_PACKETS),
        ts_packets_per_rtp: 7,
        sequence: Some(65_530),
        timestamp: Some(0xffff_fff0),
        lateness_ns_max: Some(20_000_000),
    }
}

/// What a faultless server sends of the file from transport packet `start`: when, and what.
fn stream(file: &[u8], start: u64) -> Vec<Datagram> {
    let from = usize::try_from(start).unwrap() * TS_BYTES;
    let mut sent = Vec::new();
    for (i, payload) in (0..).zip(file[from..].chunks(7 * TS_BYTES)) {
        let ticks = u64::from(i) * 7 * TICKS;
        let header = Header {
            marker: false,
            payload_type: PAYLOAD_TYPE_MP2T,
            sequence: 65_530_u16.wrapping_add(i),
            timestamp: 0xffff_fff0_u32.wrapping_add(u32::try_from(ticks).unwrap()),
            ssrc: 0xfeed,
        };
        let bytes = [&header.to_bytes(), payload].concat();
        sent.push(Datagram {
            arrival_ns: 1_000 + ticks * 100_000 / 9,
            bytes,
        });
    }
    sent
}

fn faults(plant: impl FnOnce(&mut Vec<Datagram>)) -> Vec<Fault> {
    let file = file(1 << 32);
    let mut sent = stream(&file, 0);
    plant(&mut sent);
    let report = judge(expected(&file), &sent);
    assert_eq!(report.faults.len() as u64, report.faults_total);
    report.faults
}

#[test]
fn a_faultless_stream_is_clean_across_all_three_wraps() {
    for start in [0, 3, 50, 99] {
        // The PCR wraps in the middle of the file.
        let file = file((1 << 33) - 50 * TICKS);
        let report = judge(expected(&file), &stream(&file, start));
        report.assert_clean("faultless");
        assert_eq!(
            (report.start, report.ts_packets),
            (Some(start), FILE_PACKETS - start)
        );
        assert_eq!(report.packets, (FILE_PACKETS - start).div_ceil(7));
    }
    let file = file(0);
    let report = judge(expected(&file), &stream(&file, 0));
    assert_eq!((report.pcrs, report.lateness_ns_max), (10, 0));
    assert_eq!(report.span_ticks, 14 * 7 * 90);
}

#[test]
fn a_dropped_packet_is_caught() {
    let caught = faults(|sent| drop(sent.remove(8)));
    assert_eq!(
        caught,
        [Fault::Missing {
            packet: 8,
            got: 3,
            missing: 1
        }]
    );
    let said = caught[0].to_string();
    assert_eq!(said, "packet 8: sequence number 3 after 1: 1 missing");
    let caught = faults(|sent| drop(sent.pop()));
    assert_eq!(
        caught,
        [Fault::EndedEarly {
            ts_packet: 98,
            end: 100
        }]
    );
    assert_eq!(faults(Vec::clear)[0], Fault::Nothing);
}

#[test]
fn a_repeated_sequence_number_is_caught() {
    let again = Fault::Repeated {
        packet: 9,
        got: 2,
        expected: 3,
    };
    assert_eq!(faults(|sent| sent.insert(9, sent[8].clone())), [again]);
    // The number again, on the next packet's bytes: then the number after is jumped over.
    let caught = faults(|sent| sent[9].bytes[2..4].copy_from_slice(&2_u16.to_be_bytes()));
    assert_eq!(caught.len(), 2);
    assert!(matches!(
        caught[0],
        Fault::Repeated {
            packet: 9,
            got: 2,
            expected: 3
        }
    ));
    assert!(matches!(
        caught[1],
        Fault::Missing {
            packet: 10,
            got: 4,
            missing: 1
        }
    ));
    let caught = faults(|sent| sent.swap(3, 4));
    assert!(matches!(caught[0], Fault::Missing { packet: 3, .. }));
    assert!(matches!(caught[1], Fault::Repeated { packet: 4, .. }));
}

#[test]
fn one_wrong_byte_is_caught_and_placed() {
    let caught = faults(|sent| sent[2].bytes[HEADER_BYTES + 3 * TS_BYTES + 187] ^= 1);
    let wrong = Fault::WrongByte {
        packet: 2,
        ts_packet: 17,
        byte: 187,
        expected: 17,
        got: 16,
    };
    assert_eq!(caught, [wrong]);
}

#[test]
fn a_late_burst_is_caught() {
    let caught = faults(|sent| {
        sent[5..8]
            .iter_mut()
            .for_each(|late| late.arrival_ns += 20_000_002)
    });
    assert_eq!(caught.len(), 3);
    assert!(matches!(
        caught[0],
        Fault::Late {
            packet: 5,
            lateness_ns: 20_000_002,
            ..
        }
    ));
    // Exactly as late as allowed; a rounded tick more is not hidden in this tolerance.
    assert_eq!(faults(|sent| sent[9].arrival_ns += 20_000_000), []);
}

#[test]
fn wrong_headers_are_caught() {
    let caught = faults(|sent| sent[4].bytes[0] = 0x90);
    assert_eq!(
        caught[0],
        Fault::NotRtp {
            packet: 4,
            bytes: 1328
        }
    );
    assert!(matches!(
        faults(|sent| sent[4].bytes[1] = 34)[0],
        Fault::NotRtp { packet: 4, .. }
    ));
    assert!(matches!(
        faults(|sent| sent[4].bytes[11] = 0)[0],
        Fault::Ssrc { packet: 4, .. }
    ));
    let caught = faults(|sent| sent[4].bytes.truncate(1327));
    assert_eq!(
        caught[0],
        Fault::NotRtp {
            packet: 4,
            bytes: 1327
        }
    );
    let caught = faults(|sent| drop(sent.remove(0)));
    assert_eq!(
        caught[0],
        Fault::FirstSequence {
            expected: 65_530,
            got: 65_531
        }
    );
    assert!(matches!(caught[1], Fault::FirstTimestamp { .. }));
}

#[test]
fn short_and_surplus_packets_are_caught() {
    let caught = faults(|sent| sent[4].bytes.truncate(HEADER_BYTES + 6 * TS_BYTES));
    assert_eq!(
        caught[0],
        Fault::Size {
            packet: 4,
            ts_packets: 6,
            expected: 7
        }
    );
    let caught = faults(|sent| {
        let ts = sent[0].bytes[HEADER_BYTES..HEADER_BYTES + TS_BYTES].to_vec();
        sent.last_mut().unwrap().bytes.extend(ts);
    });
    assert_eq!(
        caught,
        [Fault::Surplus {
            packet: 14,
            ts_packet: 100,
            end: 100
        }]
    );
    let caught = faults(|sent| {
        let next = sent.remove(1).bytes;
        sent[0].bytes.extend(&next[HEADER_BYTES..]);
    });
    let size = Fault::Size {
        packet: 0,
        ts_packets: 14,
        expected: 7,
    };
    assert_eq!(caught[0], size);
}

#[test]
fn timestamps_that_leave_the_files_clock_are_caught() {
    let shift = |sent: &mut Vec<Datagram>, from: usize, ticks: u32| {
        for Datagram { bytes, .. } in &mut sent[from..] {
            let timestamp = Header::read(bytes).unwrap().timestamp.wrapping_add(ticks);
            bytes[4..8].copy_from_slice(&timestamp.to_be_bytes());
        }
    };
    // The PCRs' places in their packets leave 92 ticks of doubt, over the wrap of the PCR too.
    for pcr_first in [0, (1 << 33) - 50 * TICKS] {
        let file = file(pcr_first);
        let mut sent = stream(&file, 0);
        shift(&mut sent, 7, 92);
        judge(expected(&file), &sent).assert_clean("within the doubt");
        shift(&mut sent, 7, 1);
        let caught = judge(expected(&file), &sent).faults;
        assert_eq!(
            caught,
            [Fault::TimestampOffPcr {
                packet: 10,
                ticks: 1
            }]
        );
    }
    let caught = faults(|sent| shift(sent, 7, 0_u32.wrapping_sub(7 * 90 + 1)));
    assert!(
        matches!(caught[0], Fault::TimestampBackwards { packet: 7, .. }),
        "{caught:?}"
    );
}

#[test]
fn padding_does_not_mislead_about_the_start() {
    let mut file = file(0).to_vec();
    // Stuffing but for a few packets, as in a stream of constant rate.
    for (packet, ts) in file.chunks_exact_mut(TS_BYTES).enumerate() {
        if packet % 9 != 8 {
            ts.fill(0xff);
            ts[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
        }
    }
    let file = Arc::from(file);
    for start in 0..FILE_PACKETS - 7 {
        let report = judge(expected(&file), &stream(&file, start));
        report.assert_clean("padded");
        assert_eq!(report.start, Some(start));
    }
}

#[test]
fn a_payload_from_elsewhere_is_not_found() {
    let file = file(0);
    let other = vec![0x47; 20 * TS_BYTES];
    let report = judge(expected(&file), &stream(&other, 0));
    assert_eq!(report.faults[0], Fault::NotFound);
}

#[test]
fn faults_are_kept_up_to_the_limit_and_counted_beyond() {
    let file = file(0);
    let runts = |count: usize| {
        vec![
            Datagram {
                arrival_ns: 0,
                bytes: vec![0x80]
            };
            count
        ]
    };
    let report = judge(
        Expected {
            end: None,
            start: Start::At(0),
            ..expected(&file)
        },
        &runts(FAULTS_MAX),
    );
    assert_eq!(
        (report.faults.len(), report.faults_total),
        (FAULTS_MAX, FAULTS_MAX as u64)
    );
    let report = judge(
        Expected {
            end: None,
            start: Start::At(0),
            ..expected(&file)
        },
        &runts(FAULTS_MAX + 1),
    );
    assert_eq!(
        (report.faults.len(), report.faults_total),
        (FAULTS_MAX, FAULTS_MAX as u64 + 1)
    );
}
