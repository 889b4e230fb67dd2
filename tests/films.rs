//! The films of the end-to-end tests: for each codec that a container holds one, in pairs of
//! pictures and sound.

#![allow(
    unreachable_pub,
    reason = "a module of test binaries is reached by nobody else"
)]

use std::path::PathBuf;

use onrush_testkit::media::{film, muxed};

/// A film in a container.
pub struct Film {
    pub name: String,
    pub video: Coding,
    pub sound: Coding,
    pub container: Container,
}

/// How a track is coded.
#[derive(Clone, Copy)]
pub struct Coding {
    /// For names of films.
    pub name: &'static str,
    /// For `ffmpeg`.
    pub arguments: &'static str,
    /// In GStreamer, what makes of its RTP packets what can be counted; none if nothing here does.
    pub gstreamer: Option<&'static str>,
    /// Whether ffmpeg 5.1 takes its RTP packets. What nothing here takes `payloads.rs` does.
    pub is_received: bool,
}

const fn decoded(name: &'static str, arguments: &'static str) -> Coding {
    Coding {
        name,
        arguments,
        gstreamer: Some("decodebin"),
        is_received: true,
    }
}

const fn unknown(name: &'static str, arguments: &'static str) -> Coding {
    Coding {
        name,
        arguments,
        gstreamer: None,
        is_received: false,
    }
}

pub const H264: Coding = decoded(
    "h264",
    "-c:v libx264 -preset veryfast -bf 2 -g 25 -pix_fmt yuv420p",
);
pub const SLICES: Coding = decoded(
    "slices",
    "-c:v libx264 -preset veryfast -bf 2 -g 25 -pix_fmt yuv420p -x264-params slices=4",
);
pub const H265: Coding = decoded(
    "h265",
    "-c:v libx265 -preset ultrafast -bf 2 -g 25 -pix_fmt yuv420p -x265-params \
     log-level=none:pools=1",
);
pub const AV1: Coding = unknown("av1", "-c:v libsvtav1 -preset 12 -g 25 -pix_fmt yuv420p");
pub const MPEG1: Coding = decoded(
    "mpeg1",
    "-c:v mpeg1video -bf 2 -g 25 -flags +cgop -sc_threshold 1000000000 -pix_fmt yuv420p -b:v 1M",
);
pub const MPEG2: Coding = decoded(
    "mpeg2",
    "-c:v mpeg2video -bf 2 -g 25 -pix_fmt yuv420p -b:v 1M",
);
/// In closed groups of pictures: QuickTime has those that begin open ones in a table of their own.
pub const MPEG2_CLOSED: Coding = decoded(
    "mpeg2",
    "-c:v mpeg2video -bf 2 -g 25 -flags +cgop -sc_threshold 1000000000 -pix_fmt yuv420p -b:v 1M",
);
/// Interlaced.
pub const MPEG2_FIELDS: Coding = decoded(
    "fields",
    "-c:v mpeg2video -flags +ildct+ilme+cgop -sc_threshold 1000000000 -bf 2 -g 25 \
     -pix_fmt yuv420p -b:v 2M",
);
pub const MPEG4: Coding = decoded("mpeg4", "-c:v mpeg4 -bf 2 -g 25 -pix_fmt yuv420p -b:v 1M");
pub const VP8: Coding = decoded(
    "vp8",
    "-c:v libvpx -deadline realtime -cpu-used 8 -g 25 -b:v 500k -pix_fmt yuv420p",
);
pub const VP9: Coding = decoded(
    "vp9",
    "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 25 -b:v 500k -pix_fmt yuv420p",
);
/// RFC 2435 counts in blocks of eight pixels.
pub const MJPEG: Coding = decoded(
    "mjpeg",
    "-vf crop=320:176 -c:v mjpeg -huffman default -pix_fmt yuvj420p -q:v 5",
);

/// Without noise, which a decoder makes up and begins anew elsewhere.
pub const AAC: Coding = decoded("aac", "-c:a aac -aac_pns 0");
/// AAC in transport streams.
pub const LATM: Coding = decoded("latm", "-mpegts_flags latm -c:a aac -aac_pns 0");
pub const OPUS: Coding = decoded("opus", "-c:a libopus");
pub const MP3: Coding = decoded("mp3", "-c:a libmp3lame");
pub const MP2: Coding = decoded("mp2", "-c:a mp2");
pub const AC3: Coding = decoded("ac3", "-c:a ac3");
pub const EAC3: Coding = unknown("eac3", "-c:a eac3");
pub const MU_LAW: Coding = decoded("mulaw", "-ac 1 -ar 8000 -c:a pcm_mulaw");
pub const A_LAW: Coding = decoded("alaw", "-ac 1 -ar 8000 -c:a pcm_alaw");
pub const G722: Coding = decoded("g722", "-ac 1 -ar 16000 -c:a g722");
pub const PCM_8: Coding = Coding {
    gstreamer: Some("rtpL8depay"),
    ..unknown("pcm8", "-c:a pcm_u8")
};
pub const PCM_16: Coding = decoded("pcm16", "-c:a pcm_s16be");
pub const PCM_24: Coding = decoded("pcm24", "-c:a pcm_s24be");

/// What ffmpeg is told, which knows LATM in transport streams alone.
const LATM_FLAGS: &str = "-mpegts_flags latm";

/// Codings of pictures and sound that films in one container have.
#[derive(Clone, Copy)]
pub struct Container {
    /// What the names of films end in.
    pub ending: &'static str,
    muxer: Muxer,
    /// How they are played.
    pub form: Form,
    pub pairs: &'static [(Coding, Coding)],
}

/// What writes a container.
#[derive(Clone, Copy)]
enum Muxer {
    /// `ffmpeg`, with these arguments.
    Ffmpeg(&'static str),
    /// This element of GStreamer.
    GStreamer(&'static str),
}

/// In what form a film is played.
#[derive(Clone, Copy, Eq, PartialEq)]
pub enum Form {
    /// Each track as a stream of its own.
    Tracks,
    /// A transport stream as its elementary streams, each a stream of its own.
    ElementaryStreams,
    /// A transport stream as one stream.
    Whole,
}

pub const MP4: Container = Container {
    ending: "mp4",
    muxer: Muxer::Ffmpeg(""),
    form: Form::Tracks,
    pairs: &[
        (H264, AAC),
        (SLICES, AC3),
        (H265, MP3),
        (MPEG2, EAC3),
        (MPEG4, AAC),
        (VP9, OPUS),
        (AV1, MP2),
        (MJPEG, AAC),
        (MPEG1, OPUS),
    ],
};
pub const FRAGMENTS: Container = Container {
    ending: "fragments.mp4",
    muxer: Muxer::Ffmpeg("-movflags frag_keyframe+empty_moov+default_base_moof+delay_moov"),
    form: Form::Tracks,
    pairs: &[
        (H264, AAC),
        (SLICES, MP3),
        (H265, OPUS),
        (MPEG2, EAC3),
        (MPEG4, AAC),
        (VP9, AC3),
        (AV1, MP2),
        (MJPEG, OPUS),
        (MPEG1, AAC),
    ],
};
pub const MOV: Container = Container {
    ending: "mov",
    muxer: Muxer::Ffmpeg(""),
    form: Form::Tracks,
    pairs: &[
        (H264, AAC),
        (SLICES, AC3),
        (H265, MP3),
        (MPEG2_CLOSED, EAC3),
        (MPEG4, PCM_16),
        (MJPEG, MU_LAW),
        (H264, A_LAW),
        (H264, PCM_24),
        (MJPEG, PCM_8),
        (MPEG4, MP2),
        (MPEG1, G722),
    ],
};
pub const MATROSKA: Container = Container {
    ending: "mkv",
    muxer: Muxer::Ffmpeg(""),
    form: Form::Tracks,
    pairs: &[
        (H264, AAC),
        (SLICES, AC3),
        (H265, MP3),
        (MPEG2, EAC3),
        (MPEG4, PCM_16),
        (MJPEG, MU_LAW),
        (VP8, A_LAW),
        (VP9, OPUS),
        (AV1, MP2),
        (H264, G722),
        (MPEG2, PCM_24),
        (MPEG1, PCM_8),
    ],
};
pub const WEBM: Container = Container {
    ending: "webm",
    muxer: Muxer::Ffmpeg(""),
    form: Form::Tracks,
    pairs: &[(VP8, OPUS), (VP9, OPUS), (AV1, OPUS)],
};
/// As tracks of their elementary streams.
pub const TS: Container = Container {
    ending: "ts",
    muxer: Muxer::Ffmpeg(""),
    form: Form::ElementaryStreams,
    pairs: &[
        (H264, AAC),
        (SLICES, MP3),
        (H265, AC3),
        (MPEG2, EAC3),
        (MPEG2_FIELDS, MP2),
        (MPEG4, LATM),
        (H264, OPUS),
        (MPEG1, AC3),
    ],
};
pub const M2TS: Container = Container {
    ending: "m2ts",
    muxer: Muxer::Ffmpeg(""),
    form: Form::ElementaryStreams,
    pairs: &[(H264, AC3)],
};

/// Of telephones, by the rules of MP4.
pub const MOBILE: Container = Container {
    ending: "3gp",
    muxer: Muxer::Ffmpeg(""),
    form: Form::Tracks,
    pairs: &[(H264, AAC), (MPEG4, AAC)],
};
/// Transport streams as they are, as one stream.
pub const WHOLE_TS: Container = Container {
    ending: "whole.ts",
    muxer: Muxer::Ffmpeg(""),
    form: Form::Whole,
    pairs: &[
        (H264, AAC),
        (SLICES, MP3),
        (H265, AC3),
        (MPEG2, EAC3),
        (MPEG2_FIELDS, MP2),
        (MPEG4, LATM),
        (H264, OPUS),
        (MPEG1, AC3),
    ],
};
/// In fragments of a second.
pub const GSTREAMER_MP4: Container = Container {
    ending: "gstreamer.mp4",
    muxer: Muxer::GStreamer("mp4mux fragment-duration=1000"),
    form: Form::Tracks,
    pairs: &[(H264, AAC), (VP9, OPUS)],
};
/// What ffmpeg does not write into such files.
pub const GSTREAMER_MOV: Container = Container {
    ending: "gstreamer.mov",
    muxer: Muxer::GStreamer("qtmux"),
    form: Form::Tracks,
    pairs: &[(VP8, OPUS)],
};
/// Without sizes and cues.
pub const GSTREAMER_MATROSKA: Container = Container {
    ending: "gstreamer.mkv",
    muxer: Muxer::GStreamer("matroskamux streamable=true"),
    form: Form::Tracks,
    pairs: &[(H264, AAC), (H265, AC3)],
};
/// Likewise.
pub const GSTREAMER_WEBM: Container = Container {
    ending: "gstreamer.webm",
    muxer: Muxer::GStreamer("webmmux streamable=true"),
    form: Form::Tracks,
    pairs: &[(VP8, OPUS)],
};
pub const GSTREAMER_TS: Container = Container {
    ending: "gstreamer.ts",
    muxer: Muxer::GStreamer("mpegtsmux"),
    form: Form::ElementaryStreams,
    pairs: &[(H264, AAC), (H265, AC3), (MPEG2, MP2), (H264, OPUS)],
};

impl Container {
    pub fn films(&self) -> Vec<Film> {
        let film = |&(video, sound): &(Coding, Coding)| Film {
            name: format!("{}-{}.{}", video.name, sound.name, self.ending),
            video,
            sound,
            container: *self,
        };
        self.pairs.iter().map(film).collect()
    }
}

impl Film {
    /// The file, which is made once.
    pub fn make(&self) -> PathBuf {
        match self.container.muxer {
            Muxer::Ffmpeg(arguments) => self.coded(&self.name, arguments),
            Muxer::GStreamer(muxer) => {
                // Of Matroska its muxers would have to guess when pictures are decoded.
                let ending = if self.video.name == "vp8" {
                    "mkv"
                } else {
                    "mp4"
                };
                let source = format!("{}-{}.{ending}", self.video.name, self.sound.name);
                let source = self.coded(&source, "");
                let parsers = [&self.video, &self.sound].map(Coding::parser);
                muxed(&self.name, &source, parsers, muxer).unwrap()
            }
        }
    }

    /// The same pictures and sound in a file of that name, of another container perhaps.
    pub fn coded(&self, name: &str, container: &str) -> PathBuf {
        let Self { video, sound, .. } = self;
        let mut arguments = format!("{} {} {container}", video.arguments, sound.arguments);
        if !name.ends_with("ts") {
            arguments = arguments.replace(LATM_FLAGS, "");
        }
        film(name, &arguments).unwrap()
    }

    /// What makes of its RTP packets, in GStreamer, what can be counted.
    pub fn gstreamer(&self, coding: Coding) -> Option<&'static str> {
        // It takes more out of a transport stream than out of RTP packets.
        let of_stream = self.is_whole().then_some("decodebin");
        of_stream.or(coding.gstreamer)
    }

    pub fn is_whole(&self) -> bool {
        self.container.form == Form::Whole
    }
}

impl Coding {
    /// What GStreamer needs between a demultiplexer and a multiplexer.
    fn parser(&self) -> &'static str {
        match self.name {
            "h264" => "h264parse",
            "h265" => "h265parse",
            // Of frames that are not shown, as other encoders write them, its own muxers make
            // nothing good.
            "vp8" => "vp8dec ! vp8enc deadline=1 keyframe-max-dist=25",
            "vp9" => "vp9dec ! vp9enc deadline=1 cpu-used=8 keyframe-max-dist=25 ! vp9parse",
            "mpeg2" => "mpegvideoparse",
            "aac" => "aacparse",
            "ac3" => "ac3parse",
            "mp2" => "mpegaudioparse",
            "opus" => "opusparse",
            other => panic!("{other} is not muxed by GStreamer here"),
        }
    }
}
