//! Plans: what each promises of its packets, and that two of the same film agree.

use std::ops::Range;

use onrush_wire::media::{Burst, FilePiece, ImageError, Index, Medium, Plan, RtpOrigin, Scale};
use onrush_wire::rtp::{HEADER_BYTES, Header};

use crate::file::any_time;
use crate::random::Random;

/// How long a burst is.
pub(crate) const BURST_NS: u64 = 20_000_000;

/// Of a plan that has more packets the first, the last and some between are looked at.
const PACKETS_MAX: u64 = 256;

/// Near the ends of what counts modulo something.
const ORIGIN: RtpOrigin = RtpOrigin {
    sequence: 0xfff8,
    timestamp: 0xffff_f000,
    ssrc: 0x0102_0304,
};

/// How much earlier than it is due sound may leave, to be one train with what is due before it.
const SOUND_REACH_NS: u64 = 160_000_000;

/// Bytes behind the RTP headers of the packets that a session may ask for.
const PAYLOADS: [usize; 8] = [1460, 1459, 1400, 1340, 1000, 536, 188, 128];

/// Makes packets of a track in some of the ways in which it can be cut and played.
pub(crate) fn check(index: &Index, track: usize, film: &[u8], random: &mut Random) {
    let payload_bytes = *random.pick(&PAYLOADS);
    let Some(cut) = index.cut(track, payload_bytes) else {
        return;
    };
    assert!(cut.payload_bytes_max() <= payload_bytes);
    for grows in [false, true] {
        let plan = index.plan(track, cut, BURST_NS, grows);
        assert!(plan.image_bytes_max() <= HEADER_BYTES + cut.payload_bytes_max());
        check_plan(&plan, index, track, film, random);
    }
    let scale = *random.pick(&Scale::ALL);
    if let Some(plan) = index.trick(track, cut, BURST_NS, scale) {
        assert!(!scale.is_normal() && plan.timeline().scale() == scale);
        assert!(plan.rtp_packets() > 0);
        check_plan(&plan, index, track, film, random);
    }
}

fn check_plan(plan: &Plan, index: &Index, track: usize, film: &[u8], random: &mut Random) {
    let all = plan.rtp_packets();
    let is_sound = index.tracks()[track].medium == Medium::Audio;
    let reach_ns = if is_sound { SOUND_REACH_NS } else { 0 };
    assert_eq!((plan.payload_bytes(all), plan.image_bytes(all)), (0, 0));
    for _ in 0..3 {
        let time_ns = any_time(index, random);
        let packet = plan.rtp_packet_at(time_ns);
        assert!(packet <= all && (packet == all || plan.due_ns(packet) >= time_ns));
        assert!(packet == 0 || plan.due_ns(packet - 1) < time_ns);
        assert!(plan.rtp_packet_from(index.seek(time_ns)) <= all);
    }
    let payload_type = index.tracks()[track].payload_type;
    for part in parts(all, random) {
        check_times(plan, part.clone());
        check_bursts(plan, part.clone(), reach_ns);
        check_images(plan, part.clone(), payload_type, film, random);
    }
    let chunk_bytes = 1 << 20;
    let of_chunk = plan.packets_per_chunk(chunk_bytes, 24);
    assert!(of_chunk > 0 && of_chunk * plan.image_bytes_max() as u64 <= chunk_bytes as u64);
}

/// The packets that are looked at.
fn parts(all: u64, random: &mut Random) -> Vec<Range<u64>> {
    if all <= PACKETS_MAX {
        return std::iter::once(0..all).collect();
    }
    let third = PACKETS_MAX / 3;
    let within = random.below(all - third);
    vec![0..third, within..within + third, all - third..all]
}

fn check_times(plan: &Plan, packets: Range<u64>) {
    for packet in packets {
        let due_ns = plan.due_ns(packet);
        assert!(due_ns <= plan.due_ns(packet + 1), "times run backwards");
        let first = plan.rtp_packet_at(due_ns);
        assert!(first <= packet && plan.due_ns(first) == due_ns);
        let position = plan.position(packet, ORIGIN);
        assert_eq!(position.sequence, ORIGIN.sequence_of(packet));
        let bytes = plan.image_bytes(packet);
        assert!(bytes > HEADER_BYTES && bytes <= plan.image_bytes_max());
        let part = plan.file_range(packet..packet + 1);
        let pieces = plan.file_pieces(packet);
        let is_within = |piece: &Range<u64>| part.start <= piece.start && piece.end <= part.end;
        assert!(pieces.iter().all(is_within), "{pieces:?} of {part:?}");
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let made = plan.rtp_packets_in(piece.clone());
            assert!(made.contains(&packet), "{packet} of {made:?}");
        }
    }
}

/// Bursts have each packet once, in order, and say where its image lies. Packets of one are due
/// together, or less than `reach_ns` apart.
fn check_bursts(plan: &Plan, packets: Range<u64>, reach_ns: u64) {
    let mut bursts: Vec<Burst> = Vec::new();
    plan.bursts(packets.clone(), &mut bursts);
    let (mut next, mut offset) = (packets.start, 0);
    let mut due_ns = 0;
    for burst in &bursts {
        assert_eq!((burst.first, burst.offset), (next, offset));
        assert!(burst.packets > 0 && burst.due_ns >= due_ns);
        let last = burst.first + u64::from(burst.packets) - 1;
        for packet in burst.first..=last {
            let packet_due_ns = plan.due_ns(packet);
            assert!(burst.due_ns <= packet_due_ns);
            // Sound leaves up to so much earlier, if one send takes it.
            let is_together = packet_due_ns / BURST_NS == burst.due_ns / BURST_NS;
            assert!(is_together || packet_due_ns < burst.due_ns + reach_ns);
            let (bytes, segment) = (plan.image_bytes(packet), usize::from(burst.segment_bytes));
            assert!(bytes == segment || packet == last && bytes <= segment);
        }
        assert_eq!(burst.bytes, plan.images_bytes(burst.first..last + 1));
        (next, offset, due_ns) = (last + 1, offset + burst.bytes, burst.due_ns);
    }
    assert_eq!(next, packets.end.max(packets.start));
    assert_eq!(offset, plan.images_bytes(packets));
}

/// Images are as long as is told of them, and are the same however they are asked for.
fn check_images(
    plan: &Plan,
    packets: Range<u64>,
    payload_type: u8,
    film: &[u8],
    random: &mut Random,
) {
    let Ok(images) = write(plan, packets.clone(), film) else {
        // Of a film that was cut off.
        let cut_off = |packet| {
            plan.file_pieces(packet)
                .iter()
                .any(|it| it.end > film.len() as u64)
        };
        assert!(packets.clone().any(cut_off), "no images of {packets:?}");
        return;
    };
    let mut rest = &images[..];
    for packet in packets.clone() {
        let image;
        (image, rest) = rest.split_at(plan.image_bytes(packet));
        let header = Header::read(image).expect("an image begins with its header");
        let position = plan.position(packet, ORIGIN);
        assert_eq!(header.payload_type, payload_type);
        assert_eq!(
            (header.sequence, header.ssrc),
            (position.sequence, ORIGIN.ssrc)
        );
        assert_eq!(header.timestamp, position.timestamp);
    }
    assert!(rest.is_empty());
    if packets.is_empty() {
        return;
    }
    let (length, at) = (
        packets.end - packets.start,
        random.below(packets.end - packets.start),
    );
    let some = packets.start + at..packets.start + at + 1 + random.below((length - at).min(9));
    let start = usize::try_from(plan.images_bytes(packets.start..some.start)).unwrap_or(0);
    let alone = write_pieces(plan, some.clone(), film).expect("all of them could be written");
    assert_eq!(alone, images[start..start + alone.len()], "{some:?} alone");
    let mut short = vec![0; alone.len() - 1];
    let whole = FilePiece {
        offset: 0,
        bytes: film,
    };
    let refused = plan.write_images(some, &[whole], ORIGIN, &mut short);
    assert!(
        matches!(refused, Err(ImageError::Room { .. })),
        "{refused:?}"
    );
}

/// The images of `packets`, from one piece of the film.
fn write(plan: &Plan, packets: Range<u64>, film: &[u8]) -> Result<Vec<u8>, ImageError> {
    let part = plan.file_range(packets.clone());
    let within = |offset: u64| {
        usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(film.len())
    };
    let bytes = &film[within(part.start)..within(part.end)];
    write_from(
        plan,
        packets,
        &[FilePiece {
            offset: part.start,
            bytes,
        }],
    )
}

/// The same, from a piece each of what they are made of.
fn write_pieces(plan: &Plan, packets: Range<u64>, film: &[u8]) -> Result<Vec<u8>, ImageError> {
    let within = |offset: u64| {
        usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(film.len())
    };
    let pieces = packets.clone().flat_map(|packet| plan.file_pieces(packet));
    let pieces: Vec<_> = pieces
        .map(|part| FilePiece {
            offset: part.start,
            bytes: &film[within(part.start)..within(part.end)],
        })
        .collect();
    write_from(plan, packets, &pieces)
}

fn write_from(
    plan: &Plan,
    packets: Range<u64>,
    pieces: &[FilePiece<'_>],
) -> Result<Vec<u8>, ImageError> {
    const BEHIND: [u8; 3] = [0xa5; 3];
    let bytes = usize::try_from(plan.images_bytes(packets.clone())).unwrap_or(usize::MAX);
    let mut out = vec![0; bytes];
    out.extend(BEHIND);
    plan.write_images(packets, pieces, ORIGIN, &mut out)?;
    assert_eq!(out[bytes..], BEHIND, "more is written than images have");
    out.truncate(bytes);
    Ok(out)
}

/// Asserts that two indexes of a film tell of the same packets.
pub(crate) fn assert_same(one: &Index, other: &Index, film: &[u8]) {
    assert_eq!(one.tracks(), other.tracks());
    let times = |index: &Index| (index.duration_ns(), index.known_ns(), index.doubt());
    assert_eq!(times(one), times(other));
    for track in 0..one.tracks().len() {
        let plan = |index: &Index| {
            let cut = index.cut(track, 1400)?;
            Some(index.plan(track, cut, BURST_NS, false))
        };
        match (plan(one), plan(other)) {
            (Some(one), Some(other)) => {
                assert_eq!(one.rtp_packets(), other.rtp_packets());
                assert_starts_with(&other, &one, (film, film));
            }
            (None, None) => {}
            _ => panic!("only one of them can be cut"),
        }
    }
}

/// Asserts that an index of more of a film has the packets of the one before. With each comes the
/// film as it was.
pub(crate) fn assert_continued(old: (&Index, &[u8]), new: (&Index, &[u8]), grows: bool) {
    assert_eq!(old.0.tracks(), new.0.tracks());
    for track in 0..old.0.tracks().len() {
        let plan = |index: &Index, grows| {
            let cut = index.cut(track, 1400)?;
            Some(index.plan(track, cut, BURST_NS, grows))
        };
        if let (Some(before), Some(now)) = (plan(old.0, true), plan(new.0, grows)) {
            assert_starts_with(&now, &before, (old.1, new.1));
        }
    }
}

/// Asserts that a plan has the packets of one before, made from these films.
fn assert_starts_with(now: &Plan, before: &Plan, films: (&[u8], &[u8])) {
    let all = before.rtp_packets();
    assert!(now.rtp_packets() >= all);
    let last = all.saturating_sub(PACKETS_MAX / 2);
    for packet in (0..all.min(PACKETS_MAX / 2)).chain(last.max(PACKETS_MAX / 2)..all) {
        if before.is_partial(packet) && now.rtp_packets() > 0 {
            assert_eq!(packet + 1, all, "only the last is not whole");
            continue;
        }
        let told = |plan: &Plan| {
            let bytes = plan.payload_bytes(packet);
            (plan.due_ns(packet), plan.position(packet, ORIGIN), bytes)
        };
        assert_eq!(told(before), told(now), "packet {packet}");
        if let Ok(image) = write(before, packet..packet + 1, films.0) {
            let same = write(now, packet..packet + 1, films.1);
            assert!(
                same.is_ok_and(|same| same == image),
                "the image of packet {packet}"
            );
        }
    }
}
