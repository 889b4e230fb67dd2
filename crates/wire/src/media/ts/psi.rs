//! Program specific information: which programs and streams a transport stream carries.
//!
//! Sections are put together from packets, checked by their CRC and read; what a broken or hostile
//! one says is bounded by [`PROGRAMS_MAX`] and [`STREAMS_MAX`]. Tables that change in mid-file add
//! what is new; nothing once seen is forgotten, because the file as a whole carries it.

use std::borrow::Cow;

use mpeg2ts_reader::mpegts_crc;
use mpeg2ts_reader::psi::pat::{PatSection, ProgramDescriptor};
use mpeg2ts_reader::psi::pmt::PmtSection;
use serde::{Deserialize, Serialize};

pub use super::descriptor::Kind;
use super::descriptor::{Raw, codec, counted, descriptors, language, text};
use super::{SYNC_BYTE, TS_PACKET_BYTES};

/// Programs of one file at the most; further ones are served, but not told of.
pub const PROGRAMS_MAX: usize = 256;

/// Elementary streams of one file at the most, over all programs.
pub const STREAMS_MAX: usize = 1024;

/// Packets of one file's association table that are known to be those, at the most: half a day of
/// ten a second.
pub const ASSOCIATIONS_MAX: usize = 1 << 19;

/// Bytes of a section at the most (ISO/IEC 13818-1, section 2.4.4.11: 12 bits of length, at most
/// 4093).
const SECTION_BYTES_MAX: usize = 4096;

/// One program of a transport stream.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Program {
    /// Its number in the PAT; never 0, which stands for the network.
    pub number: u16,
    /// The service's name, if the stream tells one.
    pub name: Option<String>,
    /// Who provides the service, if the stream tells.
    pub provider: Option<String>,
    /// The pid of its program map table.
    pub pmt_pid: u16,
    /// The pid that carries its clock, once its map has been seen; 8191 says that none does.
    pub pcr_pid: Option<u16>,
    /// Its elementary streams in the map's order.
    pub streams: Vec<Stream>,
    /// Its first map, as the section is in the stream; empty until it has been seen.
    #[serde(skip)]
    pub(crate) map: Box<[u8]>,
}

/// One elementary stream.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Stream {
    /// The pid of its packets.
    pub pid: u16,
    /// What the map says it is (ISO/IEC 13818-1, table 2-34).
    pub stream_type: u8,
    /// What it is for.
    pub kind: Kind,
    /// The codec's usual name.
    pub codec: Cow<'static, str>,
    /// ISO 639 code of its language, if told.
    pub language: Option<String>,
    /// Packets on its pid. Filled in once the file has been read.
    pub packets: u64,
    /// Breaks of its continuity counter: packets lost before the file was written, or repeated
    /// wrongly.
    pub continuity_errors: u64,
}

/// What a section changed.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Change {
    /// Nothing, or nothing that others need to know.
    None,
    /// There are programs with new map pids.
    Programs,
    /// The program of this index has another map: the pids of its streams, in the map's order, and
    /// the pid that its clock had until then.
    Map(usize, Vec<u16>, Option<u16>),
}

/// All programs seen so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) programs: Vec<Program>,
    /// Counts the maps that were read: what is not the same again.
    pub(crate) maps: u64,
    /// The first program association table, as the section is in the stream.
    pub(crate) association: Box<[u8]>,
    /// Whether the newest one is that again.
    is_first_association: bool,
    /// Of each program whether the newest of these tables names it.
    listed: Vec<bool>,
    streams: usize,
    services: Vec<Service>,
}

#[derive(Clone, Debug)]
struct Service {
    number: u16,
    name: Option<String>,
    provider: Option<String>,
}

/// Puts the sections of one pid together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sections {
    buffer: Vec<u8>,
    /// CRC of the newest good section, so that a table that just repeats costs no parsing.
    newest: Option<[u8; 4]>,
}

impl Tables {
    /// Reads one section that [`Sections`] let through, of pid `pid`.
    pub(crate) fn read(&mut self, pid: u16, section: &[u8]) -> Change {
        // Header of 8 bytes, CRC of 4; `Sections` has checked the length.
        let body = &section[8..section.len() - 4];
        let id = u16::from_be_bytes([section[3], section[4]]);
        match (pid, section[0]) {
            (PAT_PID, 0x00) => {
                if self.association.is_empty() {
                    self.association = section.into();
                }
                self.is_first_association = *self.association == *section;
                // The table may go on in sections behind its first.
                if section[6] == 0 {
                    self.listed.fill(false);
                }
                self.read_pat(body)
            }
            (SDT_PID, 0x42) => self.read_sdt(body),
            (_, 0x02) => {
                let change = self.read_pmt(pid, id, body);
                self.keep_map(pid, id, section);
                change
            }
            _ => Change::None,
        }
    }

    /// Whether the newest program association table names the program of this index.
    pub(crate) fn is_listed(&self, program: usize) -> bool {
        self.listed.get(program) == Some(&true)
    }

    /// Whether a packet of the association table that comes now is one of the first table again, as
    /// far as that can be told, and that names more than one program.
    pub(crate) fn is_shared_again(&self) -> bool {
        let is_first = self.association.is_empty() || self.is_first_association;
        is_first && !names_one(&self.association)
    }

    /// Keeps the first map of a program.
    fn keep_map(&mut self, pid: u16, number: u16, section: &[u8]) {
        let mut programs = self.programs.iter_mut();
        let of = programs.find(|it| (it.number, it.pmt_pid) == (number, pid));
        if let Some(program) = of.filter(|it| it.map.is_empty() && it.pcr_pid.is_some()) {
            program.map = section.into();
        }
    }

    /// The programs with their services' names.
    pub(crate) fn finish(mut self) -> Vec<Program> {
        for service in self.services {
            if let Some(program) = self
                .programs
                .iter_mut()
                .find(|p| p.number == service.number)
            {
                program.name = service.name;
                program.provider = service.provider;
            }
        }
        self.programs
    }

    fn read_pat(&mut self, body: &[u8]) -> Change {
        let mut change = Change::None;
        for entry in PatSection::new(body).programs() {
            let ProgramDescriptor::Program {
                program_number: number,
                pid,
            } = entry
            else {
                continue;
            };
            let pmt_pid = u16::from(pid);
            let known = self
                .programs
                .iter()
                .position(|p| (p.number, p.pmt_pid) == (number, pmt_pid));
            if let Some(known) = known {
                self.listed[known] = true;
                continue;
            }
            if self.programs.len() == PROGRAMS_MAX {
                continue;
            }
            self.listed.push(true);
            let (name, provider, pcr_pid) = (None, None, None);
            let streams = Vec::new();
            self.programs.push(Program {
                number,
                name,
                provider,
                pmt_pid,
                pcr_pid,
                streams,
                map: Box::default(),
            });
            change = Change::Programs;
        }
        change
    }

    fn read_pmt(&mut self, pid: u16, number: u16, body: &[u8]) -> Change {
        let Ok(map) = PmtSection::from_bytes(body) else {
            return Change::None;
        };
        let found = self
            .programs
            .iter()
            .position(|p| (p.number, p.pmt_pid) == (number, pid));
        let Some(i) = found else { return Change::None };
        self.maps += 1;
        let program = &mut self.programs[i];
        let clock_before = program.pcr_pid.replace(u16::from(map.pcr_pid()));
        let of_program: Vec<Raw<'_>> = map.descriptors().flatten().collect();
        let mut pids = Vec::new();
        for info in map.streams() {
            let pid = u16::from(info.elementary_pid());
            pids.push(pid);
            let descriptors: Vec<Raw<'_>> = info.descriptors().flatten().collect();
            let stream_type = u8::from(info.stream_type());
            let (kind, codec) = codec(stream_type, &descriptors, &of_program);
            if let Some(known) = program.streams.iter_mut().find(|s| s.pid == pid) {
                (known.stream_type, known.kind, known.codec) = (stream_type, kind, codec);
                continue;
            }
            if self.streams == STREAMS_MAX {
                break;
            }
            self.streams += 1;
            let language = language(&descriptors);
            let (packets, continuity_errors) = (0, 0);
            program.streams.push(Stream {
                pid,
                stream_type,
                kind,
                codec,
                language,
                packets,
                continuity_errors,
            });
        }
        Change::Map(i, pids, clock_before)
    }

    /// Service descriptions (EN 300 468, section 5.2.3).
    fn read_sdt(&mut self, body: &[u8]) -> Change {
        let mut rest = body.get(3..).unwrap_or(&[]);
        while let [n0, n1, _, l0, l1, after @ ..] = rest {
            let bytes = usize::from(u16::from_be_bytes([*l0 & 0x0f, *l1]));
            let Some((loop_bytes, next)) = after.split_at_checked(bytes) else {
                break;
            };
            let number = u16::from_be_bytes([*n0, *n1]);
            rest = next;
            if self.services.len() == PROGRAMS_MAX
                || self.services.iter().any(|service| service.number == number)
            {
                continue;
            }
            let service = descriptors(loop_bytes)
                .find(|d| d.tag == 0x48)
                .and_then(|d| {
                    let (provider, rest) = counted(d.bytes.get(1..)?)?;
                    let (name, _) = counted(rest)?;
                    Some(Service {
                        number,
                        name: text(name),
                        provider: text(provider),
                    })
                });
            self.services.extend(service);
        }
        Change::None
    }
}

impl Sections {
    /// Takes a packet's payload and hands on each section that it completes, if that is new and
    /// whole.
    pub(crate) fn push(&mut self, payload: &[u8], unit_start: bool, mut each: impl FnMut(&[u8])) {
        if !unit_start {
            if !self.buffer.is_empty() {
                self.buffer.extend_from_slice(payload);
                self.take(&mut each);
            }
            return;
        }
        let Some((end, start)) = payload
            .split_first()
            .and_then(|(pointer, rest)| rest.split_at_checked(usize::from(*pointer)))
        else {
            self.buffer.clear();
            return;
        };
        if !self.buffer.is_empty() {
            self.buffer.extend_from_slice(end);
            self.take(&mut each);
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(start);
        self.take(&mut each);
    }

    /// Forgets a section begun: a packet was lost.
    pub(crate) fn reset(&mut self) {
        self.buffer.clear();
    }

    fn take(&mut self, each: &mut impl FnMut(&[u8])) {
        let mut taken = 0;
        while let [table, l0, l1, ..] = self.buffer[taken..] {
            let bytes = 3 + usize::from(u16::from_be_bytes([l0 & 0x0f, l1]));
            // 0xff is stuffing to the end of the packet.
            if table == 0xff || bytes > SECTION_BYTES_MAX {
                taken = self.buffer.len();
                break;
            }
            let Some(section) = self.buffer.get(taken..taken + bytes) else {
                break;
            };
            taken += bytes;
            let Some(crc) = good(section) else { continue };
            if self.newest != Some(crc) {
                self.newest = Some(crc);
                each(section);
            }
        }
        self.buffer.drain(..taken);
    }
}

/// The CRC of a section in the long form that is in force now and has arrived whole.
fn good(section: &[u8]) -> Option<[u8; 4]> {
    let long = section.len() >= 12 && section[1] & 0x80 != 0 && section[5] & 1 != 0;
    let crc = *section.last_chunk()?;
    (long && mpegts_crc::sum32(section) == 0).then_some(crc)
}

/// The pid of the program association table.
pub(crate) const PAT_PID: u16 = 0;

/// The pid of the service description table.
pub(crate) const SDT_PID: u16 = 0x11;

/// Whether an association table that is whole names one program, and nothing beside it.
pub(in crate::media) fn names_one(association: &[u8]) -> bool {
    // A head of 8 bytes, one entry, and the CRC.
    association.len() == 8 + 4 + 4
}

/// The same association table with one program alone: segments have to have one (RFC 8216, section
/// 3.2), and many of their players read no further than the first entry, or refuse a table of more.
pub(in crate::media) fn association_of_one(
    association: &[u8],
    number: u16,
    pmt_pid: u16,
) -> Vec<u8> {
    let told = association.get(3..).and_then(|it| it.first_chunk());
    let [high, low, version] = told.copied().unwrap_or([0, 0, 0xc1]);
    let mut section = vec![0x00, 0xb0, 0x0d, high, low, version, 0, 0];
    section.extend(number.to_be_bytes());
    section.extend((0xe000 | pmt_pid).to_be_bytes());
    section.extend(mpegts_crc::sum32(&section).to_be_bytes());
    section
}

/// A section in packets of its own (ISO/IEC 13818-1, section 2.4.4).
pub(in crate::media) fn in_packets(pid: u16, section: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 4;
    const STARTS: u8 = 0x40;
    const HAS_PAYLOAD: u8 = 0x10;
    // It begins at once behind the pointer.
    let payload = [&[0], section].concat();
    let mut out = Vec::new();
    for (number, part) in (0_u8..).zip(payload.chunks(TS_PACKET_BYTES - HEADER_BYTES)) {
        let [high, low] = pid.to_be_bytes();
        let starts = if number == 0 { STARTS } else { 0 };
        out.extend([SYNC_BYTE, starts | high, low, HAS_PAYLOAD | number & 0xf]);
        out.extend_from_slice(part);
        out.resize(out.len().next_multiple_of(TS_PACKET_BYTES), 0xff);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::TS_PACKET_BYTES;
    use crate::media::ts::synth::{MapEntry, Writer};

    /// The programs in the tables that `write` writes.
    fn programs(write: impl FnOnce(&mut Writer)) -> Vec<Program> {
        let mut writer = Writer::new();
        write(&mut writer);
        read(&writer.finish())
    }

    /// Reads all sections of all pids.
    fn read(stream: &[u8]) -> Vec<Program> {
        let mut tables = Tables::default();
        let mut sections = std::collections::BTreeMap::<u16, Sections>::new();
        for packet in stream.chunks_exact(TS_PACKET_BYTES) {
            let pid = u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
            let starts = packet[1] & 0x40 != 0;
            sections
                .entry(pid)
                .or_default()
                .push(&packet[4..], starts, |section| {
                    tables.read(pid, section);
                });
        }
        tables.finish()
    }

    fn entry(pid: u16, stream_type: u8, descriptors: &[u8]) -> MapEntry<'_> {
        MapEntry {
            pid,
            stream_type,
            descriptors,
        }
    }

    #[test]
    fn sections_may_span_packets_and_share_them() {
        let mut sections = Sections::default();
        let mut writer = Writer::new();
        writer.section(7, 0x02, 1, &[1; 300]);
        writer.section(7, 0x02, 2, &[2; 10]);
        let stream = writer.finish();
        let mut whole: Vec<Vec<u8>> = Vec::new();
        // Repacked: first the end of nothing, then both sections without a gap, then stuffing.
        let mut bytes = stream[5..188].to_vec();
        bytes.extend(&stream[188 + 4..188 + 4 + 312 - 183]);
        bytes.extend(&stream[2 * 188 + 5..2 * 188 + 5 + 22]);
        bytes.extend([0xff; 100]);
        let (first, rest) = bytes.split_at(90);
        sections.push(&[&[3, 9, 9, 9], first].concat(), true, |section| {
            whole.push(section.into())
        });
        let (middle, last) = rest.split_at(222);
        sections.push(&middle[..100], false, |section| whole.push(section.into()));
        // Here the second section starts: the pointer counts what is left of the first.
        let last = [&[122], &middle[100..], last].concat();
        sections.push(&last, true, |section| whole.push(section.into()));
        let lengths: Vec<usize> = whole.iter().map(Vec::len).collect();
        assert_eq!(lengths, [312, 22]);
        assert_eq!((whole[0][4], whole[1][4]), (1, 2));
    }

    #[test]
    fn damaged_sections_say_nothing() {
        let mut writer = Writer::new();
        writer.pat(&[(1, 100)]);
        let stream = writer.finish();
        assert_eq!(read(&stream).len(), 1);
        // Header, pointer and section: 5 + 16 bytes. The rest is stuffing.
        for at in 5..21 {
            for bit in 0..8 {
                let mut damaged = stream.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(read(&damaged).len(), 0, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn programs_and_services_are_joined_by_number() {
        let programs = programs(|writer| {
            // The name comes first here, and the network is no program.
            writer.sdt(2, b"\x15Anbieter", "\u{15}Übung \u{1b}[31m1".as_bytes());
            writer.pat(&[(0, 16), (1, 100), (2, 200)]);
            writer.pmt(
                100,
                1,
                101,
                &[entry(101, 0x02, &[]), entry(102, 0x03, b"\x0a\x04deu\0")],
            );
            // A map on the wrong pid.
            writer.pmt(100, 2, 999, &[entry(999, 0x02, &[])]);
            writer.pmt(200, 2, 201, &[entry(201, 0x24, &[])]);
            // The first map changes: one stream stays, one comes.
            writer.pmt(100, 1, 103, &[entry(102, 0x03, &[]), entry(103, 0x1b, &[])]);
        });
        let [one, two] = programs.as_slice() else {
            panic!("{programs:?}")
        };
        assert_eq!((one.number, one.pmt_pid, one.pcr_pid), (1, 100, Some(103)));
        let pids: Vec<u16> = one.streams.iter().map(|stream| stream.pid).collect();
        assert_eq!(pids, [101, 102, 103]);
        assert_eq!(one.streams[1].language.as_deref(), Some("deu"));
        assert_eq!((two.number, two.streams.len()), (2, 1));
        // Control characters would reach a terminal.
        assert_eq!(two.name.as_deref(), Some("Übung [31m1"));
        assert_eq!(two.provider.as_deref(), Some("Anbieter"));
        assert_eq!(one.name, None);
    }

    #[test]
    fn codecs_are_named_by_type_descriptor_and_registration() {
        let table: [(u8, &[u8], Kind, &str); 16] = [
            (0x02, b"", Kind::Video, "MPEG-2 video"),
            (0x03, b"", Kind::Audio, "MPEG-1 audio"),
            (0x0f, b"", Kind::Audio, "AAC (ADTS)"),
            (0x11, b"", Kind::Audio, "AAC (LATM)"),
            (0x1b, b"", Kind::Video, "H.264"),
            (0x24, b"", Kind::Video, "HEVC"),
            (0x81, b"\x05\x04AC-3", Kind::Audio, "AC-3"),
            (0x06, b"\x6a\x01\x00", Kind::Audio, "AC-3"),
            (0x06, b"\x0a\x04fra\x00\x7a\x01\x00", Kind::Audio, "E-AC-3"),
            (
                0x06,
                b"\x59\x08eng\x10\0\x01\0\x01",
                Kind::Subtitles,
                "DVB subtitles",
            ),
            (0x06, b"\x56\x05eng\x08\x88", Kind::Subtitles, "teletext"),
            (0x06, b"\x05\x04Opus", Kind::Audio, "Opus"),
            (0x06, b"\x05\x04QQQQ", Kind::Data, "private (QQQQ)"),
            (0x06, b"\x05\x04\x1b[2J", Kind::Data, "private data"),
            (0x86, b"", Kind::Data, "SCTE-35"),
            (0x7d, b"", Kind::Data, "type 0x7d"),
        ];
        for (stream_type, descriptors, kind, codec) in table {
            let programs = programs(|writer| {
                writer.pat(&[(1, 100)]);
                writer.pmt(100, 1, 101, &[entry(101, stream_type, descriptors)]);
            });
            let stream = &programs[0].streams[0];
            assert_eq!(
                (stream.kind, &*stream.codec),
                (kind, codec),
                "{stream_type:#x}"
            );
        }
    }

    #[test]
    fn programs_end_at_their_limit() {
        let programs = programs(|writer| {
            for number in 1..=u16::try_from(PROGRAMS_MAX).unwrap() + 1 {
                writer.sdt(number, b"", format!("service {number}").as_bytes());
                writer.pat(&[(number, 1000 + number)]);
            }
        });
        assert_eq!(programs.len(), PROGRAMS_MAX);
        let last = programs.last().unwrap();
        assert_eq!(last.name, Some(format!("service {PROGRAMS_MAX}")));
    }

    #[test]
    fn streams_end_at_their_limit() {
        let programs = programs(|writer| {
            writer.pat(&[(1, 100), (2, 200)]);
            let streams = |first: usize, count: usize| -> Vec<MapEntry<'static>> {
                (first..first + count)
                    .map(|i| entry(u16::try_from(i).unwrap(), 0x1b, &[]))
                    .collect()
            };
            for first in (0..STREAMS_MAX).step_by(128) {
                writer.pmt(100, 1, 101, &streams(1000 + first, 128));
            }
            writer.pmt(200, 2, 201, &streams(5000, 1));
        });
        let counts: Vec<usize> = programs.iter().map(|p| p.streams.len()).collect();
        assert_eq!(counts, [STREAMS_MAX, 0]);
    }
}
