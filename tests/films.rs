//! The films of the end-to-end tests: for each codec that a container holds one, in pairs of pictures
//! and sound.

#![allow(
    unreachable_pub,
    reason = "a module of test binaries is reached by nobody else"
)]

/// A film in a container.
pub struct Film {
    pub name: String,
    pub video: Coding,
    pub sound: Coding,
    /// What `ffmpeg` is told of the container.
    pub container: &'static str,
}

/// How a track is coded.
#[derive(Clone, Copy)]
pub struct Coding {
    /// For names of films.
    pub name: &'static str,
    /// For `ffmpeg`.
    pub arguments: &'static str,
    /// In GStreamer, what makes of its RTP packets what can be counted: a depayloader alone where
    /// it has no decoder among the packages that tests ask for, and none if nothing here does.
    pub gstreamer: Option<&'static str>,
    /// Whether ffmpeg 5.1 takes its RTP packets. What nothing here takes `payloads.rs` does.
    pub is_received: bool,
}

const fn unpacked(
    name: &'static str,
    depayloader: &'static str,
    arguments: &'static str,
) -> Coding {
    Coding {
        name,
        arguments,
        gstreamer: Some(depayloader),
        is_received: true,
    }
}

const fn decoded(name: &'static str, arguments: &'static str) -> Coding {
    unpacked(name, "decodebin", arguments)
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
/// Its parser stands between, because GStreamer's decoder warns of the configuration otherwise.
pub const H265: Coding = unpacked(
    "h265",
    "rtph265depay ! video/x-h265,stream-format=byte-stream ! h265parse ! libde265dec",
    "-c:v libx265 -preset ultrafast -bf 2 -g 25 -pix_fmt yuv420p -x265-params \
     log-level=none:pools=1",
);
pub const AV1: Coding = unknown("av1", "-c:v libsvtav1 -preset 12 -g 25 -pix_fmt yuv420p");
pub const MPEG2: Coding = unpacked(
    "mpeg2",
    "rtpmpvdepay",
    "-c:v mpeg2video -bf 2 -g 25 -pix_fmt yuv420p -b:v 1M",
);
/// In closed groups of pictures: QuickTime has those that begin open ones in a table of their own.
pub const MPEG2_CLOSED: Coding = unpacked(
    "mpeg2",
    "rtpmpvdepay",
    "-c:v mpeg2video -bf 2 -g 25 -flags +cgop -sc_threshold 1000000000 -pix_fmt yuv420p -b:v 1M",
);
/// Interlaced.
pub const MPEG2_FIELDS: Coding = unpacked(
    "fields",
    "rtpmpvdepay",
    "-c:v mpeg2video -flags +ildct+ilme+cgop -sc_threshold 1000000000 -bf 2 -g 25 \
     -pix_fmt yuv420p -b:v 2M",
);
pub const MPEG4: Coding = unpacked(
    "mpeg4",
    "rtpmp4vdepay",
    "-c:v mpeg4 -bf 2 -g 25 -pix_fmt yuv420p -b:v 1M",
);
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
pub const MP2: Coding = unpacked("mp2", "rtpmpadepay", "-c:a mp2");
pub const AC3: Coding = unpacked("ac3", "rtpac3depay", "-c:a ac3");
pub const EAC3: Coding = unknown("eac3", "-c:a eac3");
pub const MU_LAW: Coding = decoded("mulaw", "-ac 1 -ar 8000 -c:a pcm_mulaw");
pub const A_LAW: Coding = decoded("alaw", "-ac 1 -ar 8000 -c:a pcm_alaw");
pub const G722: Coding = unpacked("g722", "rtpg722depay", "-ac 1 -ar 16000 -c:a g722");
pub const PCM_8: Coding = Coding {
    gstreamer: Some("rtpL8depay"),
    ..unknown("pcm8", "-c:a pcm_u8")
};
pub const PCM_16: Coding = decoded("pcm16", "-c:a pcm_s16be");
pub const PCM_24: Coding = decoded("pcm24", "-c:a pcm_s24be");

/// Codings of pictures and sound that films in one container have.
pub struct Container {
    /// What the names of films end in.
    pub ending: &'static str,
    /// For `ffmpeg`.
    pub arguments: &'static str,
    pub pairs: &'static [(Coding, Coding)],
}

pub const MP4: Container = Container {
    ending: "mp4",
    arguments: "",
    pairs: &[
        (H264, AAC),
        (SLICES, AC3),
        (H265, MP3),
        (MPEG2, EAC3),
        (MPEG4, AAC),
        (VP9, OPUS),
        (AV1, MP2),
        (MJPEG, AAC),
    ],
};
pub const FRAGMENTS: Container = Container {
    ending: "fragments.mp4",
    arguments: "-movflags frag_keyframe+empty_moov+default_base_moof+delay_moov",
    pairs: &[
        (H264, AAC),
        (SLICES, MP3),
        (H265, OPUS),
        (MPEG2, EAC3),
        (MPEG4, AAC),
        (VP9, AC3),
        (AV1, MP2),
        (MJPEG, OPUS),
    ],
};
pub const MOV: Container = Container {
    ending: "mov",
    arguments: "",
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
    ],
};
pub const MATROSKA: Container = Container {
    ending: "mkv",
    arguments: "",
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
    ],
};
pub const WEBM: Container = Container {
    ending: "webm",
    arguments: "",
    pairs: &[(VP8, OPUS), (VP9, OPUS), (AV1, OPUS)],
};
/// As tracks of their elementary streams.
pub const TS: Container = Container {
    ending: "ts",
    arguments: "",
    pairs: &[
        (H264, AAC),
        (SLICES, MP3),
        (H265, AC3),
        (MPEG2, EAC3),
        (MPEG2_FIELDS, MP2),
        (MPEG4, LATM),
        (H264, OPUS),
    ],
};
pub const M2TS: Container = Container {
    ending: "m2ts",
    arguments: "",
    pairs: &[(H264, AC3)],
};

impl Container {
    pub fn films(&self) -> Vec<Film> {
        let film = |&(video, sound): &(Coding, Coding)| Film {
            name: format!("{}-{}.{}", video.name, sound.name, self.ending),
            video,
            sound,
            container: self.arguments,
        };
        self.pairs.iter().map(film).collect()
    }
}

impl Film {
    /// For `ffmpeg`.
    pub fn arguments(&self) -> String {
        let Self {
            video,
            sound,
            container,
            ..
        } = self;
        format!("{} {} {container}", video.arguments, sound.arguments)
    }
}
