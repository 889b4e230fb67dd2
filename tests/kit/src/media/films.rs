//! Films in containers of tracks, as `ffmpeg` encodes them from its test sources.

use std::process::{Command, Stdio};

use std::path::Path;
use std::time::Duration;

use super::{MakeError, PathBuf, SECONDS, Write, counting_film, keep, keep_written, place};
use crate::process::Process;

/// A film that plays for [`SECONDS`] seconds: 320 x 180 at 25 pictures a second, no two of which
/// are alike, and stereo sound at 48 kHz whose pitch rises. `arguments` say how `ffmpeg` codes it,
/// and the ending of `name` in which container it is. It is made once.
///
/// # Errors
///
/// If `ffmpeg` is not there or fails.
pub fn film(name: &str, arguments: &str) -> Result<PathBuf, MakeError> {
    let picture = "testsrc2=size=320x180:rate=25";
    let sound = "aevalsrc=0.3*sin(440*PI*t*(1+t))|0.3*sin(330*PI*t*(1+t)):s=48000";
    let key = (picture, sound, arguments, SECONDS);
    let path = place(name, &key);
    if path.exists() {
        return Ok(path);
    }
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error"]);
    command.args(["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", sound]);
    command.args(["-t", &SECONDS.to_string(), "-threads", "1"]);
    command.args(arguments.split_whitespace());
    let bytes = encode(name, &mut command)?;
    keep(name, &key, |file| file.write_all(&bytes))
}

/// The [`counting_film`] as MP4, with pictures that stand on later ones, and AAC.
///
/// # Errors
///
/// If `ffmpeg` is not there or fails.
pub fn counting_mp4(seconds: u64) -> Result<PathBuf, MakeError> {
    let arguments = "-c:v libx264 -preset veryfast -pix_fmt yuv420p -g 25 -keyint_min 25 \
        -sc_threshold 0 -bf 2 -b:v 100k -c:a aac -b:a 64k -movflags +faststart";
    let (name, key) = ("counting.mp4", (arguments, seconds));
    let path = place(name, &key);
    if path.exists() {
        return Ok(path);
    }
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]);
    command.arg(counting_film(seconds)?);
    command.args(arguments.split_whitespace());
    let bytes = encode(name, &mut command)?;
    keep(name, &key, |file| file.write_all(&bytes))
}

/// The pictures and the sound of a file, of MP4 or Matroska, in a container that GStreamer writes.
/// `parsers` are the elements that each goes through, and `muxer` is the one that writes; the
/// ending of `name` is of its container. It is made once.
///
/// # Errors
///
/// If `gst-launch-1.0` is not there or fails.
pub fn muxed(
    name: &str,
    source: &Path,
    parsers: [&str; 2],
    muxer: &str,
) -> Result<PathBuf, MakeError> {
    let key = (source, parsers, muxer);
    let path = place(name, &key);
    if path.exists() {
        return Ok(path);
    }
    let [video, sound] = parsers;
    let demuxer = match source.extension() {
        Some(ending) if ending == "mp4" => "qtdemux",
        _ => "matroskademux",
    };
    keep_written(&path, |path| {
        let pipeline = format!(
            "filesrc location={} ! {demuxer} name=film film.video_0 ! queue ! {video} ! {muxer} \
             name=all ! filesink location={} film.audio_0 ! queue ! {sound} ! all.",
            source.display(),
            path.display()
        );
        let mut command = Command::new("gst-launch-1.0");
        command.arg("-q").args(pipeline.split_whitespace());
        let ran = Process::run(&mut command, MUXING_MAX);
        let (status, said) = ran.map_err(|source| MakeError::Write {
            path: path.to_owned(),
            source,
        })?;
        if status.success() {
            return Ok(());
        }
        let file = name.to_owned();
        Err(MakeError::Encode { file, stderr: said })
    })?;
    Ok(path)
}

/// Far longer than it takes for seconds of a film.
const MUXING_MAX: Duration = Duration::from_secs(100);

/// What a command of `ffmpeg` makes. It goes by a file: most containers need one in which one can
/// go back.
fn encode(name: &str, command: &mut Command) -> Result<Vec<u8>, MakeError> {
    let failed = |source| MakeError::Write {
        path: name.into(),
        source,
    };
    let folder = tempfile::tempdir().map_err(failed)?;
    let made = folder.path().join(name);
    command
        .args(["-map_metadata", "-1", "-bitexact"])
        .arg(&made);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| MakeError::Missing { source })?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let file = name.to_owned();
        return Err(MakeError::Encode { file, stderr });
    }
    std::fs::read(&made).map_err(failed)
}
