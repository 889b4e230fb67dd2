//! Receivers: what comes back of packets, by each payload format's RFC alone. They panic where
//! packets are not as it says.

use super::Packet;

/// The NAL units that packets carry, by RFC 6184 alone.
pub(in crate::media) fn h264(packets: &[Packet], payload_bytes_max: usize) -> Vec<Vec<u8>> {
    let (mut nals, mut open) = (Vec::new(), None::<Vec<u8>>);
    // How large a packet of whole NAL units would be with one more, until one follows.
    let mut room = None;
    for (number, packet) in packets.iter().enumerate() {
        assert_eq!(
            packet.marker,
            number + 1 == packets.len(),
            "the marker is on the last"
        );
        let payload = &packet.payload[..];
        let first = payload[0];
        match first & 0x1f {
            24 => {
                let (mut rest, mut f, mut nri, mut found) = (&payload[1..], 0, 0, Vec::new());
                while !rest.is_empty() {
                    let size = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
                    let nal = &rest[2..2 + size];
                    f |= nal[0] & 0x80;
                    nri = nri.max(nal[0] & 0x60);
                    found.push(nal.to_vec());
                    rest = &rest[2 + size..];
                }
                assert!(found.len() > 1, "one NAL unit is sent alone");
                assert_eq!(first, f | nri | 24);
                assert!(room.is_none_or(|room: usize| found[0].len() > room));
                room = Some((payload_bytes_max - payload.len()).saturating_sub(2));
                nals.append(&mut found);
            }
            28 => {
                room = None;
                let (start, end) = (payload[1] & 0x80 != 0, payload[1] & 0x40 != 0);
                assert!(!(start && end) && payload[1] & 0x20 == 0);
                assert_eq!(start, open.is_none());
                let header = first & 0xe0 | payload[1] & 0x1f;
                let nal = open.get_or_insert_with(|| vec![header]);
                assert_eq!(nal[0], header, "all fragments have the NAL unit's header");
                nal.extend(&payload[2..]);
                if end {
                    nals.extend(open.take());
                }
            }
            1..=23 => {
                assert!(room.is_none_or(|room| payload.len() > room));
                room = Some(payload_bytes_max.saturating_sub(payload.len() + 5));
                nals.push(payload.to_vec());
            }
            other => panic!("a packet of type {other}"),
        }
        assert!(
            open.is_none() || first & 0x1f == 28,
            "a NAL unit without its end"
        );
    }
    assert!(open.is_none(), "a NAL unit without its end");
    nals
}

/// The NAL units that packets carry, by RFC 7798 alone.
pub(in crate::media) fn h265(packets: &[Packet], payload_bytes_max: usize) -> Vec<Vec<u8>> {
    let (mut nals, mut open) = (Vec::new(), None::<Vec<u8>>);
    // How large a packet of whole NAL units would be with one more, until one follows.
    let mut room = None;
    for (number, packet) in packets.iter().enumerate() {
        assert_eq!(
            packet.marker,
            number + 1 == packets.len(),
            "the marker is on the last"
        );
        let payload = &packet.payload[..];
        let packet_type = payload[0] >> 1 & 0x3f;
        match packet_type {
            48 => {
                let (mut rest, mut found) = (&payload[2..], Vec::new());
                while !rest.is_empty() {
                    let size = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
                    found.push(rest[2..2 + size].to_vec());
                    rest = &rest[2 + size..];
                }
                assert!(found.len() > 1, "one NAL unit is sent alone");
                let layer = |nal: &[u8]| (nal[0] & 1) << 5 | nal[1] >> 3;
                let f = found.iter().fold(0, |f, nal| f | nal[0] & 0x80);
                assert_eq!(payload[0] & 0x80, f);
                assert_eq!(
                    Some(layer(payload)),
                    found.iter().map(|nal| layer(nal)).min()
                );
                let temporal = found.iter().map(|nal| nal[1] & 7).min();
                assert_eq!(Some(payload[1] & 7), temporal);
                assert!(room.is_none_or(|room: usize| found[0].len() > room));
                room = Some((payload_bytes_max - payload.len()).saturating_sub(2));
                nals.append(&mut found);
            }
            49 => {
                room = None;
                let (start, end) = (payload[2] & 0x80 != 0, payload[2] & 0x40 != 0);
                assert!(!(start && end), "a NAL unit in one fragment");
                assert_eq!(start, open.is_none());
                let header = [payload[0] & 0x81 | (payload[2] & 0x3f) << 1, payload[1]];
                let nal = open.get_or_insert_with(|| header.to_vec());
                assert_eq!(nal[..2], header, "all fragments have the NAL unit's header");
                nal.extend(&payload[3..]);
                if end {
                    nals.extend(open.take());
                }
            }
            50 => panic!("a packet of type 50"),
            _ => {
                assert!(room.is_none_or(|room| payload.len() > room));
                room = Some(payload_bytes_max.saturating_sub(payload.len() + 6));
                nals.push(payload.to_vec());
            }
        }
        assert!(
            open.is_none() || packet_type == 49,
            "a NAL unit without its end"
        );
    }
    assert!(open.is_none(), "a NAL unit without its end");
    nals
}

/// The OBUs that a receiver has of the packets of a temporal unit, without size fields, and
/// whether it starts a coded video sequence.
pub(in crate::media) fn av1(packets: &[Packet]) -> (Vec<Vec<u8>>, bool) {
    let mut obus: Vec<Vec<u8>> = Vec::new();
    let mut goes_on = false;
    for (number, packet) in packets.iter().enumerate() {
        assert_eq!(packet.marker, number + 1 == packets.len());
        let (&header, mut rest) = packet.payload.split_first().expect("a descriptor");
        assert_eq!(header & 7, 0, "reserved bits");
        assert_eq!(header & 0x80 != 0, goes_on, "Z");
        assert!(number == 0 || header & 8 == 0, "N");
        let elements = header >> 4 & 3;
        let mut first_here = obus.len();
        for element in 0..elements {
            let bytes = match element + 1 == elements {
                true => rest.len(),
                false => told_length(&mut rest),
            };
            assert!(bytes > 0, "an empty element");
            let (piece, behind) = rest.split_at(bytes);
            rest = behind;
            if element == 0 && goes_on {
                first_here -= 1;
                let open = obus.last_mut().expect("one that goes on");
                open.extend_from_slice(piece);
            } else {
                obus.push(piece.to_vec());
                let is_whole = element + 1 < elements || header & 0x40 == 0;
                assert!(is_whole || bytes >= 2, "begins with all of its header");
            }
        }
        assert!(rest.is_empty(), "W");
        let extended = obus[first_here..].iter().filter(|obu| obu[0] & 4 != 0);
        // Spatial ones; all of a temporal unit are of one temporal layer.
        let mut layers: Vec<_> = extended.map(|obu| obu[1] >> 3 & 3).collect();
        layers.dedup();
        assert!(layers.len() <= 1, "layers {layers:?} in one packet");
        goes_on = header & 0x40 != 0;
    }
    assert!(!goes_on, "Y");
    (obus, packets[0].payload[0] & 8 != 0)
}

fn told_length(rest: &mut &[u8]) -> usize {
    let end = rest.iter().position(|byte| byte & 0x80 == 0);
    let end = end.expect("a length ends") + 1;
    let (told, behind) = rest.split_at(end);
    *rest = behind;
    let value = told.iter().rev();
    value.fold(0, |value, &byte| value << 7 | usize::from(byte & 0x7f))
}

/// The frame that a receiver has of these packets (RFC 7741, section 4.2).
pub(in crate::media) fn vp8(packets: &[Packet]) -> Vec<u8> {
    let mut frame = Vec::new();
    for (number, packet) in packets.iter().enumerate() {
        let (descriptor, rest) = packet.payload.split_first().expect("a descriptor");
        let starts = number == 0;
        assert_eq!(descriptor >> 4 & 1, u8::from(starts), "S");
        assert_eq!(descriptor & 0xef, 0, "X, R, N and the partition");
        assert_eq!(packet.marker, number + 1 == packets.len());
        frame.extend_from_slice(rest);
    }
    frame
}

/// The frame that a receiver has of these packets (RFC 9628, section 4.2), and whether it is
/// told to be predicted from others.
pub(in crate::media) fn vp9(packets: &[Packet]) -> (Vec<u8>, bool) {
    let mut frame = Vec::new();
    let predicted = packets[0].payload[0] & 0x40;
    for (number, packet) in packets.iter().enumerate() {
        let (descriptor, rest) = packet.payload.split_first().expect("a descriptor");
        let (is_first, is_last) = (number == 0, number + 1 == packets.len());
        assert_eq!(descriptor & 0xb3, 0, "I, L, F, V and Z");
        assert_eq!(descriptor & 0x40, predicted, "P");
        assert_eq!(descriptor >> 3 & 1, u8::from(is_first), "B");
        assert_eq!(descriptor >> 2 & 1, u8::from(is_last), "E");
        assert_eq!(packet.marker, is_last);
        frame.extend_from_slice(rest);
    }
    (frame, predicted != 0)
}

/// A picture as a receiver of JPEG has it.
#[derive(Debug, Eq, PartialEq)]
pub(in crate::media) struct Received {
    /// Type, quality, columns and lines in blocks.
    pub(in crate::media) header: [u8; 4],
    /// The restart interval, if its type has one.
    pub(in crate::media) restarts: Option<u16>,
    /// Quantisation tables.
    pub(in crate::media) tables: Vec<u8>,
    /// The scan.
    pub(in crate::media) scan: Vec<u8>,
}

/// What a receiver has of these packets (RFC 2435, section 3.1).
pub(in crate::media) fn jpeg(packets: &[Packet]) -> Received {
    let header = packets[0].payload[4..].first_chunk().copied();
    let header: [u8; 4] = header.expect("a main header");
    let mut received = Received {
        header,
        restarts: None,
        tables: Vec::new(),
        scan: Vec::new(),
    };
    for (number, packet) in packets.iter().enumerate() {
        assert_eq!(packet.marker, number + 1 == packets.len());
        let (main, mut rest) = packet.payload.split_at(8);
        assert_eq!(main[4..8], header);
        let offset = u32::from_be_bytes([main[0], main[1], main[2], main[3]]);
        assert_eq!(
            offset as usize,
            received.scan.len(),
            "type-specific is 0, and the offset"
        );
        if header[0] >= 64 {
            assert_eq!(rest[2..4], [0xff, 0xff]);
            received.restarts = Some(u16::from_be_bytes([rest[0], rest[1]]));
            rest = &rest[4..];
        }
        if offset == 0 {
            let (head, tables) = rest.split_at(4);
            assert_eq!(head, [0, 0, 0, 128]);
            received.tables = tables[..128].to_vec();
            rest = &tables[128..];
        }
        received.scan.extend_from_slice(rest);
    }
    received
}

/// Takes the access units out again (RFC 3640, sections 3.2 and 3.3.6).
pub(in crate::media) fn aac(packets: &[Packet]) -> Vec<Vec<u8>> {
    let (mut units, mut open) = (Vec::new(), Vec::new());
    for packet in packets {
        let parts = packet.payload.split_first_chunk::<2>();
        let (length, rest) = parts.expect("a length of headers");
        let headers_bits = usize::from(u16::from_be_bytes(*length));
        assert!(headers_bits > 0 && headers_bits.is_multiple_of(16));
        let (headers, mut rest) = rest.split_at(headers_bits / 8);
        let headers = headers
            .chunks(2)
            .map(|it| u16::from_be_bytes([it[0], it[1]]));
        let sizes: Vec<_> = headers
            .map(|header| {
                assert_eq!(header & 7, 0, "an index where nothing is interleaved");
                usize::from(header >> 3)
            })
            .collect();
        if let [size] = sizes[..]
            && (size > rest.len() || !open.is_empty())
        {
            open.extend_from_slice(rest);
            assert!(
                open.len() <= size,
                "more fragments than their access unit has"
            );
            assert_eq!(packet.marker, open.len() == size);
            if packet.marker {
                units.push(std::mem::take(&mut open));
            }
            continue;
        }
        assert!(packet.marker && open.is_empty());
        for size in sizes {
            let (unit, behind) = rest.split_at(size);
            units.push(unit.to_vec());
            rest = behind;
        }
        assert!(rest.is_empty());
    }
    assert!(open.is_empty(), "the last access unit is not ended");
    units
}

/// Takes the bytes of all frames out again (RFC 4184, section 4.1).
pub(in crate::media) fn ac3(packets: &[Packet]) -> Vec<(usize, Vec<u8>)> {
    let (mut found, mut rest) = (Vec::new(), packets);
    while let Some(packet) = rest.first() {
        let count = usize::from(packet.payload[1]);
        let of_one = match packet.payload[0] {
            0 => {
                assert!(packet.marker && count > 0);
                found.push((count, packet.payload[2..].to_vec()));
                1
            }
            first @ 1..=2 => {
                let bytes = |it: &Packet| it.payload[2..].to_vec();
                let frame: Vec<_> = rest[..count].iter().flat_map(bytes).collect();
                let has_most = (packet.payload.len() - 2) * 8 >= frame.len() * 5;
                assert_eq!(first == 1, has_most);
                for (at, each) in rest[..count].iter().enumerate() {
                    assert_eq!(each.marker, at + 1 == count);
                    let frame_type = if at == 0 { first } else { 3 };
                    assert_eq!(each.payload[..2], [frame_type, packet.payload[1]]);
                }
                found.push((1, frame));
                count
            }
            other => panic!("frame type {other} where a frame begins"),
        };
        rest = &rest[of_one..];
    }
    found
}

/// Takes the bytes out again (RFC 4598, section 4.1), and how many frames each packet is said
/// to have, or its last fragment ends.
pub(in crate::media) fn eac3(packets: &[Packet]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut counts, mut rest) = (Vec::new(), Vec::new(), packets);
    while let Some(packet) = rest.first() {
        let count = usize::from(packet.payload[1]);
        let packets = match packet.payload[0] {
            0 => {
                counts.push(count);
                1
            }
            1 => {
                counts.push(1);
                count
            }
            other => panic!("{other} where seven bits are 0"),
        };
        for (at, each) in rest[..packets].iter().enumerate() {
            assert_eq!(each.payload[..2], packet.payload[..2]);
            assert_eq!(each.marker, at + 1 == packets);
            bytes.extend_from_slice(&each.payload[2..]);
        }
        rest = &rest[packets..];
    }
    (bytes, counts)
}

/// Takes the bytes of all frames out again, which are of these lengths.
pub(in crate::media) fn mpeg_audio(packets: &[Packet], lengths: &[usize]) -> Vec<Vec<u8>> {
    let (mut frames, mut lengths) = (Vec::new(), lengths.iter());
    let mut open = Vec::new();
    for packet in packets {
        let parts = packet.payload.split_first_chunk::<4>();
        let (header, mut rest) = parts.expect("a header");
        assert_eq!(header[..2], [0, 0]);
        assert!(!packet.marker);
        assert_eq!(
            usize::from(u16::from_be_bytes([header[2], header[3]])),
            open.len()
        );
        if open.is_empty() {
            while let Some(&length) = lengths.as_slice().first()
                && length <= rest.len()
            {
                let (frame, behind) = rest.split_at(length);
                frames.push(frame.to_vec());
                lengths.next();
                rest = behind;
            }
        }
        open.extend_from_slice(rest);
        if lengths.as_slice().first() == Some(&open.len()) {
            frames.push(std::mem::take(&mut open));
            lengths.next();
        }
    }
    assert!(open.is_empty());
    frames
}
