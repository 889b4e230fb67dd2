//! One elementary stream: from its packets to a table of samples.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::bytes::StreamBytes;
use super::carried::Form;
use super::pes::Reader;
use super::sound::{self, Frames};
use super::start_codes::{self, LENGTH_BYTES, Pictures, nals};
use super::times::{Clock, Place, STAMPS_HZ, STEP_BACK_TICKS_MAX, rescaled};
use super::waiting::{Unit, Waiting};
use crate::media::codec::config::CodecConfig;
use crate::media::codec::nal::NalRole;
use crate::media::codec::{h264, h265, mpeg_video, mpeg4_visual};
use crate::media::packetizer::{Codec, CodecError, PARTS_MAX, Packetizer, Parts, SAMPLE_BYTES_MAX};
use crate::media::samples::{SPREAD_BYTES_MAX, Sample, SampleError, Samples};
use crate::media::ts::index::TS_PACKET_BYTES;

/// Bytes of parameter sets that are kept while not all are there.
const PARAMETER_SETS_BYTES_MAX: usize = 8192;

/// First frames of sound that do not say what the stream is, before none is looked for any more.
const UNTOLD_FRAMES_MAX: u32 = 100;

/// Problems of a stream that are told.
const PROBLEMS_MAX: usize = 8;

/// How a stream is coded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Coding {
    Pictures(start_codes::Coding),
    Sound(sound::Coding),
}

/// An elementary stream, as it is read.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    reader: Reader,
    bytes: StreamBytes,
    framing: Framing,
    place: Place,
    codec: Option<(Arc<CodecConfig>, Codec)>,
    /// How many frames of sound did not say how it is coded, and what is missing.
    untold: Option<(u32, String)>,
    samples: Samples,
    problems: Problems,
    /// Why no more of it is read.
    ended: Option<String>,
    /// How much longer the last picture that was decoded was shown, and how long one lasts.
    composition_ticks: i64,
    step_ticks: i64,
    /// What waits for the next stamp: pictures without one, and what is far ahead.
    waiting: Waiting,
    /// When the next frame of sound is, if those in front of it are known.
    next_ticks: Option<i64>,
}

#[derive(Clone, Debug)]
enum Framing {
    Pictures {
        coding: start_codes::Coding,
        pictures: Pictures,
        /// Parameter sets, while there is no codec.
        sets: Vec<Box<[u8]>>,
    },
    Sound(Frames),
}

/// What is found in a stream's bytes.
enum Found {
    Picture(Range<usize>),
    Sound(sound::Frame),
}

/// What is wrong with a stream, and how often.
#[derive(Clone, Debug, Default)]
struct Problems {
    /// Packets were missing.
    gaps: u64,
    others: Vec<String>,
}

impl Stream {
    pub(super) fn new(pid: u16, coding: Coding) -> Self {
        Self {
            reader: Reader::new(pid),
            bytes: StreamBytes::default(),
            framing: match coding {
                Coding::Pictures(coding) => Framing::Pictures {
                    coding,
                    pictures: Pictures::new(coding),
                    sets: Vec::new(),
                },
                Coding::Sound(coding) => Framing::Sound(Frames::new(coding)),
            },
            place: Place::default(),
            codec: None,
            untold: None,
            samples: Samples::default(),
            problems: Problems::default(),
            ended: None,
            composition_ticks: 0,
            step_ticks: i64::from(STAMPS_HZ / 25),
            waiting: Waiting::default(),
            next_ticks: None,
        }
    }

    pub(super) fn samples(&self) -> &Samples {
        &self.samples
    }

    /// How it is coded, and what that is made of, once it is known.
    pub(super) fn codec(&self) -> Option<&(Arc<CodecConfig>, Codec)> {
        self.codec.as_ref()
    }

    fn configure(&mut self, config: Result<CodecConfig, CodecError>) -> Result<(), String> {
        let made = config.and_then(|config| Ok((config.codec()?, config)));
        let (codec, config) = made.map_err(|error| error.to_string())?;
        self.codec = Some((Arc::new(config), codec));
        Ok(())
    }

    /// Ticks a second of its samples' times.
    pub(super) fn timescale(&self) -> u32 {
        match &self.framing {
            Framing::Pictures { .. } => STAMPS_HZ,
            Framing::Sound(frames) => frames.rate_hz().unwrap_or(STAMPS_HZ),
        }
    }

    /// Moments of sound a second, and channels, or 0 where the codec says how many.
    pub(super) fn rate_and_channels(&self) -> Option<(u32, u32)> {
        match &self.framing {
            Framing::Pictures { .. } => None,
            Framing::Sound(frames) => {
                Some((frames.rate_hz()?, frames.channels().unwrap_or(0).into()))
            }
        }
    }

    /// What its samples are of its bytes.
    pub(super) fn form(&self) -> Form {
        match &self.framing {
            Framing::Pictures { coding, .. } if coding.has_nals() => Form::Nals,
            Framing::Sound(frames) if frames.coding() == sound::Coding::Latm => Form::Latm,
            Framing::Pictures { .. } | Framing::Sound(_) => Form::Plain,
        }
    }

    /// Whether it has ended for a reason: no more of it is read.
    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Why none of it can be played, where none of it can.
    pub(super) fn reason(&self) -> String {
        let scrambled = self.reader.scrambled();
        match (&self.ended, scrambled) {
            (Some(reason), _) => reason.clone(),
            (None, 1..) => "it is scrambled".to_owned(),
            (None, 0) => "nothing was found in it that can be played".to_owned(),
        }
    }

    /// What is not as it should be, in words.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut told = Vec::new();
        if self.problems.gaps > 0 {
            told.push(format!("{} times packets are missing", self.problems.gaps));
        }
        let scrambled = self.reader.scrambled();
        if scrambled > 0 {
            told.push(format!("{scrambled} packets are scrambled and left out"));
        }
        if let Framing::Sound(frames) = &self.framing
            && frames.losses > 0
        {
            told.push(format!(
                "{} times something else stands where a frame should begin",
                frames.losses
            ));
        }
        told.extend(self.problems.others.iter().cloned());
        told.extend(self.ended.clone());
        told
    }

    /// Ends it at what was read of it.
    pub(super) fn end(&mut self, reason: String, clock: &mut Clock) {
        if self.ended.is_none() {
            self.finish(clock);
            self.stop(reason);
        }
    }

    fn stop(&mut self, reason: String) {
        self.ended = Some(reason);
        self.bytes = StreamBytes::default();
        self.waiting = Waiting::default();
    }

    /// Takes a transport packet, which begins at `offset` of the file.
    pub(super) fn packet(
        &mut self,
        offset: u64,
        packet: &[u8; TS_PACKET_BYTES],
        clock: &mut Clock,
    ) {
        if self.ended.is_some() {
            return;
        }
        let Some(brought) = self.reader.packet(packet) else {
            return;
        };
        if brought.lost {
            self.problems.gaps += 1;
            if let Framing::Sound(frames) = &mut self.framing {
                // The frame that is open is not whole, and when the next one is nobody knows.
                frames.lose();
                self.bytes.clear();
                self.next_ticks = None;
            }
        }
        let at = offset + brought.start as u64;
        let new = &packet[brought.start.min(TS_PACKET_BYTES)..];
        self.bytes.push(new, at, brought.stamps);
        self.take(false, clock);
        if self.bytes.data().len() > SAMPLE_BYTES_MAX as usize {
            self.note(format!(
                "a sample of more than {SAMPLE_BYTES_MAX} bytes is left out"
            ));
            self.bytes.clear();
            if let Framing::Pictures {
                coding, pictures, ..
            } = &mut self.framing
            {
                *pictures = Pictures::new(*coding);
            }
        }
    }

    /// Takes what is left at the end of the file.
    pub(super) fn finish(&mut self, clock: &mut Clock) {
        if self.ended.is_none() {
            self.take(true, clock);
            self.settle(None);
            if self.codec.is_none()
                && let Some((_, reason)) = self.untold.take()
            {
                self.stop(reason);
            }
        }
    }

    /// Makes samples of the bytes that have come.
    fn take(&mut self, at_end: bool, clock: &mut Clock) {
        while self.ended.is_none() {
            let data = self.bytes.data();
            let found = match &mut self.framing {
                Framing::Pictures { pictures, .. } => match pictures.next(data, at_end) {
                    Some(unit) => Ok(Found::Picture(unit)),
                    None => Err(pictures.pass()),
                },
                Framing::Sound(frames) => frames.next(data, at_end).map(Found::Sound),
            };
            if let Framing::Sound(frames) = &mut self.framing
                && mem::take(&mut frames.has_changed)
            {
                self.note_change();
            }
            let (end, taken) = match found {
                Ok(Found::Picture(unit)) => (unit.end, self.picture(unit, clock)),
                Ok(Found::Sound(frame)) => (frame.end, self.sound(&frame, clock)),
                Err(passed) => return self.bytes.drop_front(passed),
            };
            match taken {
                Ok(()) => self.bytes.drop_front(end),
                Err(reason) => self.stop(reason),
            }
        }
    }

    /// Takes an access unit of pictures.
    fn picture(&mut self, unit: Range<usize>, clock: &mut Clock) -> Result<(), String> {
        // A start code is of the PES packet in which what it begins is.
        let stamps = self.bytes.take_stamps(unit.start + 3);
        let data = &self.bytes.data()[unit.clone()];
        let Framing::Pictures { coding, sets, .. } = &mut self.framing else {
            return Ok(());
        };
        let coding = *coding;
        if self.codec.is_none() {
            let Some(config) = config(coding, sets, data) else {
                return Ok(());
            };
            self.configure(Ok(config))?;
        }
        let Some((_, codec)) = &self.codec else {
            return Ok(());
        };
        let data = &self.bytes.data()[unit.clone()];
        let packetizer = &*codec.packetizer;
        let of_unit = match coding {
            start_codes::Coding::H264 | start_codes::Coding::H265 => {
                parts_of_nals(packetizer, data)
            }
            start_codes::Coding::Mpeg | start_codes::Coding::Mpeg4 => parts_of(packetizer, data),
        };
        let (bytes, parts) = match of_unit {
            Ok(of_unit) => of_unit,
            Err(error) => {
                self.note(format!("a picture is left out: {error}"));
                return Ok(());
            }
        };
        let mut unit = Unit {
            part: self.bytes.file_part(unit),
            bytes,
            parts,
            is_sync: is_sync(coding, data),
            ..Unit::default()
        };
        let Some(stamps) = stamps else {
            // What comes in front of the first stamp has no time.
            if self.samples.len() > 0 || !self.waiting.is_empty() {
                self.wait(unit);
            }
            return self.state();
        };
        let untimed = i64::try_from(self.waiting.untimed()).unwrap_or(0);
        let step = self.step_ticks * (untimed + 1);
        let (ticks, composition) = clock.take(&mut self.place, stamps, step);
        unit.composition_ticks = Some(composition);
        self.judge(ticks);
        self.add(unit, ticks);
        self.state()
    }

    /// Takes a unit that is decoded at `ticks`. If that is far ahead, it waits: the next stamp
    /// tells whether its own is right.
    fn add(&mut self, mut unit: Unit, ticks: i64) {
        let far = rescaled(STEP_BACK_TICKS_MAX, STAMPS_HZ, self.timescale());
        if self.samples.len() > 0 && ticks - self.samples.last_decode_ticks() > far {
            unit.ticks = Some(ticks);
            return self.wait(unit);
        }
        self.settle(Some(ticks));
        let lasts = unit.lasts.unwrap_or(self.step_ticks);
        self.push(&unit, ticks, lasts);
    }

    fn wait(&mut self, unit: Unit) {
        self.waiting.push(unit);
        if self.waiting.is_full() {
            self.settle(None);
        }
    }

    /// Settles what is far ahead, by the next stamp.
    fn judge(&mut self, next: i64) {
        let settled = self.waiting.judge(next);
        self.append(settled, None);
    }

    /// Gives the units that wait their times, in front of that one.
    fn settle(&mut self, next: Option<i64>) {
        let waiting = mem::take(&mut self.waiting);
        self.append(waiting, next);
    }

    fn append(&mut self, units: Waiting, next: Option<i64>) {
        let last = self.samples.last_decode_ticks();
        for (unit, ticks, lasts) in units.timed(last, next, self.step_ticks) {
            self.push(&unit, ticks, lasts);
        }
    }

    /// Takes a frame of sound.
    fn sound(&mut self, frame: &sound::Frame, clock: &mut Clock) -> Result<(), String> {
        let stamps = self.bytes.take_stamps(frame.start);
        let Framing::Sound(frames) = &self.framing else {
            return Ok(());
        };
        let rate_hz = frames.rate_hz().unwrap_or(STAMPS_HZ);
        if self.codec.is_none()
            && let Err(reason) = self.configure(frame.config())
        {
            return self.pass_over(reason);
        }
        let lasts = i64::from(frame.ticks);
        if let Some(stamps) = stamps {
            let step = lasts * i64::from(STAMPS_HZ) / i64::from(rate_hz);
            let (ticks, later) = clock.take(&mut self.place, stamps, step);
            let ticks = rescaled(ticks + later, STAMPS_HZ, rate_hz);
            self.judge(ticks);
            // Stamps are rounded, and some muxers stamp by another clock: frames lie one behind the
            // other as long as that is about right.
            let follows = |next: &i64| (ticks - next).abs() <= lasts / 2;
            self.next_ticks = self.next_ticks.filter(follows).or(Some(ticks));
        }
        let Some(ticks) = self.next_ticks else {
            return Ok(());
        };
        let bytes = frame.sample_bytes;
        let packetizer = self.codec.as_ref().map(|(_, codec)| &codec.packetizer);
        if let Some(Err(error)) = packetizer.map(|it| it.check_sample(bytes)) {
            self.note(format!("a frame is left out: {error}"));
        } else {
            let unit = Unit {
                part: self.bytes.file_part(frame.bytes.clone()),
                bytes,
                is_sync: true,
                lasts: Some(lasts),
                ..Unit::default()
            };
            self.add(unit, ticks);
        }
        self.next_ticks = Some(ticks + lasts);
        self.state()
    }

    /// Passes over a first frame that does not say how the stream is coded: it may be the last of
    /// what was sent before.
    fn pass_over(&mut self, reason: String) -> Result<(), String> {
        let (count, _) = self.untold.get_or_insert_with(|| (0, reason.clone()));
        if *count == UNTOLD_FRAMES_MAX {
            return Err(reason);
        }
        *count += 1;
        if let Framing::Sound(frames) = &mut self.framing {
            frames.begin_anew();
        }
        Ok(())
    }

    /// Tells that other frames than the first have begun: how the stream is coded is said once.
    fn note_change(&mut self) {
        let ticks = self.samples.end_ticks() - self.samples.decode_ticks(0);
        let seconds = ticks / i64::from(self.timescale());
        self.note(format!(
            "from {seconds} s on its channels or its rate change, which its description cannot \
             say: such frames are left out"
        ));
    }

    /// Appends a sample. Times that run backwards stand still.
    fn push(&mut self, unit: &Unit, ticks: i64, lasts: i64) {
        self.composition_ticks = unit.composition_ticks.unwrap_or(self.composition_ticks);
        let last = self.samples.last_decode_ticks();
        let ticks = match self.samples.len() {
            0 => ticks,
            _ => ticks.max(last),
        };
        if self.samples.len() > 0 && ticks > last {
            self.step_ticks = ticks - last;
        }
        let file_bytes = unit.part.end - unit.part.start;
        let file_bytes = u32::try_from(file_bytes).unwrap_or(u32::MAX);
        if file_bytes > SPREAD_BYTES_MAX {
            let most = SPREAD_BYTES_MAX;
            let what = format!("a sample that lies over more than {most} bytes is left out");
            return self.note(what);
        }
        if let Err(error) = self.samples.check_parts(unit.parts.len()) {
            return self.stop(error.to_string());
        }
        let sample = Sample {
            offset: unit.part.start,
            bytes: unit.bytes,
            decode_ticks: ticks,
            composition_ticks: self.composition_ticks,
            is_sync: unit.is_sync,
            entry: 0,
        };
        let lasts = u32::try_from(lasts.max(0)).unwrap_or(0);
        match self.samples.push_spread(sample, lasts, file_bytes) {
            Ok(()) => {}
            Err(error @ SampleError::Codec { .. }) => return self.note(error.to_string()),
            Err(error) => return self.stop(error.to_string()),
        }
        let packetizer = self.codec.as_ref().map(|(_, codec)| &codec.packetizer);
        if let Some(packetizer) = packetizer.filter(|it| it.parts() != Parts::None) {
            let is_usual = unit.parts.len() == 1
                && packetizer.only_part(unit.bytes) == unit.parts.first().copied();
            self.samples
                .push_parts(if is_usual { &[] } else { &unit.parts });
        }
    }

    fn state(&self) -> Result<(), String> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn note(&mut self, problem: String) {
        let others = &mut self.problems.others;
        if others.len() < PROBLEMS_MAX && !others.contains(&problem) {
            others.push(problem);
        }
    }
}

/// What the stream is, once it has said so up to this access unit.
pub(super) fn config(
    coding: start_codes::Coding,
    sets: &mut Vec<Box<[u8]>>,
    unit: &[u8],
) -> Option<CodecConfig> {
    match coding {
        start_codes::Coding::Mpeg => {
            let sequence = mpeg_video::sequence_of(unit)?;
            return Some(CodecConfig::of_each(CodecConfig::MpegVideo, &[sequence]));
        }
        start_codes::Coding::Mpeg4 => {
            let headers = mpeg4_visual::configuration_of(unit)?;
            return Some(CodecConfig::of_each(CodecConfig::Mpeg4Visual, &[headers]));
        }
        start_codes::Coding::H264 | start_codes::Coding::H265 => {}
    }
    for nal in nals(unit) {
        let nal = &unit[nal];
        let bytes = sets.iter().map(|set| set.len()).sum::<usize>() + nal.len();
        let is_set = matches!(role(coding, nal), NalRole::ParameterSet { .. });
        if is_set && bytes <= PARAMETER_SETS_BYTES_MAX && !sets.iter().any(|set| **set == *nal) {
            sets.push(nal.into());
        }
    }
    match coding {
        start_codes::Coding::H265 => {
            let is_all = h265::has_parameter_sets(sets);
            is_all.then(|| CodecConfig::H265Sets(sets.clone()))
        }
        _ => {
            let is_all = h264::has_parameter_sets(sets);
            is_all.then(|| CodecConfig::H264Sets(sets.clone()))
        }
    }
}

fn role(coding: start_codes::Coding, nal: &[u8]) -> NalRole {
    match coding {
        start_codes::Coding::H265 => h265::role(nal),
        _ => h264::role(nal),
    }
}

fn is_sync(coding: start_codes::Coding, unit: &[u8]) -> bool {
    match coding {
        start_codes::Coding::Mpeg => return mpeg_video::is_intra(unit),
        start_codes::Coding::Mpeg4 => return mpeg4_visual::is_intra(unit),
        start_codes::Coding::H264 | start_codes::Coding::H265 => {}
    }
    let mut roles = nals(unit).map(|nal| role(coding, &unit[nal]));
    roles.any(|role| match role {
        NalRole::ParameterSet { is_sync }
        | NalRole::Picture { is_sync }
        | NalRole::Other { is_sync } => is_sync,
    })
}

/// Bytes and parts of an access unit of NAL units, with their lengths in front.
fn parts_of_nals(packetizer: &dyn Packetizer, unit: &[u8]) -> Result<(u32, Vec<u32>), CodecError> {
    let (mut bytes, mut parts) = (0, Vec::new());
    for nal in nals(unit) {
        if parts.len() >= PARTS_MAX {
            return Err(CodecError::Parts);
        }
        let length = u32::try_from(nal.len()).unwrap_or(u32::MAX);
        let mut head = [0; LENGTH_BYTES + 1];
        head[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        head[LENGTH_BYTES] = unit[nal.start];
        let with_length = nal.len() + LENGTH_BYTES;
        let left = u32::try_from(with_length).unwrap_or(u32::MAX);
        parts.push(packetizer.part(&head, left)?.number);
        bytes += with_length;
    }
    Ok((u32::try_from(bytes).unwrap_or(u32::MAX), parts))
}

/// The same of one that is sent as it is.
fn parts_of(packetizer: &dyn Packetizer, unit: &[u8]) -> Result<(u32, Vec<u32>), CodecError> {
    let (mut rest, mut parts) = (unit, Vec::new());
    while !rest.is_empty() {
        if parts.len() >= PARTS_MAX {
            return Err(CodecError::Parts);
        }
        let left = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let part = packetizer.part(rest, left)?;
        parts.push(part.number);
        rest = &rest[part.bytes.clamp(1, left) as usize..];
    }
    Ok((u32::try_from(unit.len()).unwrap_or(u32::MAX), parts))
}
