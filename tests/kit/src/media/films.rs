//! Films in containers of tracks, as `ffmpeg` encodes them from its test sources.

use std::process::{Command, Stdio};

use super::{MakeError, PathBuf, SECONDS, Write, counting_film, keep, place};

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
