//! Live channels on the command line: the options that `onrush serve` and `onrush relay` share, and
//! what both print of them.

use std::fmt;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use onrush_group::Way;
use onrush_server::channels::config::DELAY_MAX;
use onrush_server::channels::config::PullConfig;
use onrush_server::channels::input::Input;
use onrush_server::channels::members::parse_member;
use onrush_server::channels::pull_url::{PullUrl, PullUrlError};
use onrush_server::channels::{Channel, ChannelsConfig, SourceConfig, new_token};
use onrush_wire::media::Track;
use onrush_wire::sdp::announced;

use crate::addresses::{PLAYER, reached_at};
use crate::units::{Time, within};
use crate::values::{DAY, Listen, Named, loopback_address, or_off};

/// The options of live channels.
#[derive(Args, Debug)]
pub(crate) struct ChannelOptions {
    /// Give a channel to this receiver; repeatable
    ///
    /// [NAME=]ADDRESS:PORT; NAME says of which channel, where there are several. It gets every
    /// datagram as it came.
    #[arg(long, value_name = "ADDR")]
    to: Vec<Named<Member>>,

    /// Give it to all in this file, which is watched
    ///
    /// [NAME=]FILE. A line holds ADDRESS:PORT; # begins a comment. A change is taken at once and in
    /// one step; a file with a wrong line is reported and changes nothing.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    members: Vec<Named<PathBuf>>,

    /// What a stream with a dynamic payload type is, for its players
    ///
    /// [NAME=]FILE. A session description (SDP, RFC 8866) of one track, as ffmpeg's -sdp_file
    /// writes it: players are told its payload type, encoding and parameters. Streams with a
    /// static payload type, as transport streams have, need none.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    sdp: Vec<Named<PathBuf>>,

    /// How long packets may wait for others to leave with
    ///
    /// 0ms to 1s. Without a delay every packet leaves at once, alone or with what came meanwhile.
    /// 20ms lets trains form, which costs much less for each packet.
    #[arg(long, value_name = "TIME", default_value = "0ms",
          value_parser = within(Time(Duration::ZERO), Time(DELAY_MAX)))]
    delay: Time,

    /// Take a unicast source from everybody who sends
    ///
    /// Without it the first who sends is the source, by address and port, until it has been silent
    /// for 3s; what others send meanwhile is dropped and counted (from_others in the API). A
    /// multicast source is taken from everybody, or from the SENDER that is named.
    #[arg(long)]
    from_anybody: bool,

    /// Replicate in the kernel, where packets arrive
    ///
    /// A tc-ingress program gives each packet to the members; this process is not entered for it.
    /// Takes RTP that comes from another machine (or namespace). Needs root. What it takes nobody
    /// else on this machine hears: with a multicast group no other program, bridge or router.
    #[arg(long)]
    in_kernel: bool,

    /// Control API
    ///
    /// ADDRESS:PORT, ADDRESS, or PORT on loopback; off for none, which is the default of `onrush
    /// serve`. HTTP and JSON: add, remove and list members, read the counters. Its clients need the
    /// token.
    #[arg(long, value_name = "ADDR", value_parser = api_address)]
    api: Option<Listen>,

    /// The API's token is this file's first line
    ///
    /// Without it a token is made up and printed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,

    /// How to replicate
    ///
    /// kernel, uring, sendmmsg or loop: this way or not at all. Without it the best that is
    /// available is taken, and said why.
    #[arg(long, value_name = "WAY", hide_short_help = true)]
    way: Option<Way>,

    /// Processor for the threads of channels [default: any]
    #[arg(long, value_name = "N", hide_short_help = true)]
    channel_core: Option<usize>,

    /// When a channel counts as silent
    #[arg(long, value_name = "TIME", default_value_t = Time(ChannelsConfig::default().silence),
          value_parser = within(Time(Duration::from_millis(10)), Time(DAY)),
          hide_short_help = true)]
    silence: Time,
}

/// A receiver.
#[derive(Clone, Copy, Debug)]
struct Member(SocketAddr);

impl ChannelOptions {
    /// The file of the API's token.
    pub(crate) const fn token_file(&self) -> Option<&PathBuf> {
        self.token_file.as_ref()
    }

    /// The files of what streams are.
    pub(crate) fn descriptions(&self) -> impl Iterator<Item = &PathBuf> {
        self.sdp.iter().map(|Named { value, .. }| value)
    }

    /// The settings of channels with these sources.
    pub(crate) fn settings(&self, sources: Vec<SourceConfig>) -> anyhow::Result<ChannelsConfig> {
        if let (None, Some(file)) = (self.api, &self.token_file) {
            let file = file.display();
            bail!("--token-file {file}: there is no control API; add --api {API_PORT}");
        }
        Ok(ChannelsConfig {
            sources: self.with_descriptions(self.with_members(sources)?)?,
            delay: self.delay.0,
            silence: self.silence.0,
            from_anybody: self.from_anybody,
            api_address: self.api.and_then(Listen::address),
            token: match &self.token_file {
                Some(file) => read_token(file)?,
                None => new_token(),
            },
            core: self.channel_core,
            way: self.way,
            in_kernel: self.in_kernel,
            ..ChannelsConfig::default()
        })
    }

    /// The settings of these channels, of which those that are pulled may be so on demand.
    pub(crate) fn with_pulls(
        &self,
        channels: &[ChannelArg],
        is_on_demand: bool,
    ) -> anyhow::Result<ChannelsConfig> {
        let (mut sources, mut pulls) = (Vec::new(), Vec::new());
        for channel in channels {
            match channel {
                ChannelArg::Input(source) => sources.push(source.clone()),
                ChannelArg::Pull(name, url) => pulls.push(PullConfig {
                    name: name.clone(),
                    url: url.clone(),
                    is_on_demand,
                }),
            }
        }
        Ok(ChannelsConfig {
            pulls,
            ..self.settings(sources)?
        })
    }

    fn with_members(&self, mut sources: Vec<SourceConfig>) -> anyhow::Result<Vec<SourceConfig>> {
        for Named { name, value } in &self.to {
            let source = named(&mut sources, name.as_deref(), value)?;
            source.members.push(value.0);
        }
        for Named { name, value } in &self.members {
            let source = named(&mut sources, name.as_deref(), &value.display())?;
            if source.members_file.replace(value.clone()).is_some() {
                bail!("{}: a channel has one file of members", value.display());
            }
        }
        Ok(sources)
    }

    fn with_descriptions(
        &self,
        mut sources: Vec<SourceConfig>,
    ) -> anyhow::Result<Vec<SourceConfig>> {
        for Named { name, value } in &self.sdp {
            let source = named(&mut sources, name.as_deref(), &value.display())?;
            let described = source.described.replace(described(value)?);
            if described.is_some() {
                bail!("{}: a channel has one description", value.display());
            }
        }
        Ok(sources)
    }

    /// How packets leave, in words.
    pub(crate) fn how(&self) -> String {
        match self.in_kernel {
            true => "in the kernel".to_owned(),
            false => format!("with a delay of {} at the most", self.delay),
        }
    }
}

/// A channel without members.
pub(crate) const fn source(name: String, input: Input) -> SourceConfig {
    SourceConfig {
        name,
        input,
        members: Vec::new(),
        members_file: None,
        described: None,
    }
}

/// A channel, by where it comes from.
#[derive(Clone, Debug)]
pub(crate) enum ChannelArg {
    /// What is sent to us.
    Input(SourceConfig),
    /// What we ask for.
    Pull(String, PullUrl),
}

/// Reads NAME=INPUT, or NAME=rtsp://...
pub(crate) fn channel_or_pull(text: &str) -> Result<ChannelArg, String> {
    match text.split_once('=') {
        Some((name, url)) if url.starts_with("rtsp://") => {
            let url = url
                .parse()
                .map_err(|error: PullUrlError| error.to_string())?;
            Ok(ChannelArg::Pull(name.to_owned(), url))
        }
        Some((_, url)) if url.starts_with("udp://") || url.starts_with("rtp://") => Err(
            "what comes by UDP is written without a scheme: ADDRESS:PORT, or PORT for any address"
                .to_owned(),
        ),
        Some((_, url)) if url.contains("://") => {
            let scheme = url.split("://").next().unwrap_or_default();
            Err(format!(
                "{scheme}:// cannot be pulled; write NAME=rtsp://..."
            ))
        }
        _ => channel(text).map(ChannelArg::Input),
    }
}

/// Reads NAME=INPUT.
pub(crate) fn channel(text: &str) -> Result<SourceConfig, String> {
    let Named { name, value } = text.parse()?;
    let name = name.ok_or_else(|| format!("a channel has a name; write NAME={text}"))?;
    Ok(source(name, value))
}

/// The channel that an option is about.
fn named<'a>(
    sources: &'a mut [SourceConfig],
    name: Option<&str>,
    value: &impl fmt::Display,
) -> anyhow::Result<&'a mut SourceConfig> {
    let found = match name {
        Some(name) => sources.iter().position(|source| source.name == name),
        None => (sources.len() == 1).then_some(0),
    };
    if let Some(found) = found {
        return Ok(&mut sources[found]);
    }
    let names: Vec<_> = sources.iter().map(|source| &*source.name).collect();
    let names = names.join(", ");
    match name {
        Some(name) => bail!("{name}={value}: no channel has this name; there are: {names}"),
        None => bail!("{value}: say of which channel, as in NAME={value}; there are: {names}"),
    }
}

/// The track that a session description has.
fn described(path: &Path) -> anyhow::Result<Track> {
    let file = path.display();
    let length = fs::metadata(path).with_context(|| file.to_string())?.len();
    if length > SDP_BYTES_MAX as u64 {
        bail!("{file}: a session description has {SDP_BYTES_MAX} bytes at the most");
    }
    let text = fs::read(path).with_context(|| file.to_string())?;
    let tracks = announced(&text).with_context(|| file.to_string())?;
    match <[_; 1]>::try_from(tracks) {
        Ok([only]) => Ok(only.track),
        Err(tracks) => bail!(
            "{file}: it has {} tracks; a channel of an input has one, others are published by RTSP",
            tracks.len()
        ),
    }
}

fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let token = text.lines().next().unwrap_or("").trim();
    if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|b| b.is_ascii_graphic()) {
        bail!(
            "{}: its first line is to be a token of {TOKEN_BYTES_MIN} letters or more",
            path.display()
        );
    }
    Ok(token.to_owned())
}

/// Prints for each channel who gets it, and how to feed and to play it.
pub(crate) fn welcome(
    channels: &[Arc<Channel>],
    rtsp: &[SocketAddr],
    host: &[IpAddr],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    for channel in channels {
        let (name, input) = (channel.name(), channel.input());
        let members = channel.members().len();
        writeln!(out, "channel    {name} from {input}, {members} members")?;
        let to = reached_at(input.address, host);
        let to = to.first().unwrap_or(&input.address);
        writeln!(out, "feed       {FEEDER} 'rtp://{to}?pkt_size=1328'")?;
        for address in rtsp {
            writeln!(out, "play       {PLAYER} 'rtsp://{address}/live/{name}'")?;
        }
    }
    Ok(())
}

/// Prints how to use the control API, if there is one.
pub(crate) fn control_line(
    api: Option<SocketAddr>,
    token: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if let Some(api) = api {
        let header = format!("Authorization: Bearer {token}");
        writeln!(out, "control    curl -H '{header}' http://{api}/sources")?;
    }
    Ok(())
}

impl FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let member = parse_member(text).map_err(|error| error.to_string())?;
        Ok(Self(member))
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn api_address(text: &str) -> Result<Listen, String> {
    or_off(text, |text| loopback_address(text, API_PORT))
}

/// Where the control API of `onrush relay` listens by default.
pub(crate) const API_ADDRESS: &str = "127.0.0.1:8555";
const API_PORT: u16 = 8555;

/// Bytes of a file of --sdp, at most.
const SDP_BYTES_MAX: usize = 64 << 10;

/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

const FEEDER: &str = "ffmpeg -re -i FILE -c copy -f rtp_mpegts";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn channels(command: &str, options: &str) -> Result<ChannelsConfig, String> {
        let words = ["onrush", command]
            .into_iter()
            .chain(options.split_whitespace());
        let parsed = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        let channels = match parsed.command {
            Command::Serve(serve) => serve.config("media".into()).map(|it| it.channels),
            Command::Relay(relay) => relay.config().map(|it| it.channels),
            other => panic!("{other:?}"),
        };
        channels.map_err(|error| error.to_string())
    }

    fn serve(options: &str) -> Result<ChannelsConfig, String> {
        channels("serve", options)
    }

    #[test]
    fn channels_have_the_options_of_a_relay() {
        let options = "--channel a=5004 --channel b=10.0.0.1:5006 --to a=10.0.0.7:1 --to b=[::1]:2 \
            --members b=list.txt --delay 20ms --silence 3s --from-anybody --in-kernel --api 8555 \
            --way sendmmsg --channel-core 1";
        let ours = serve(options).unwrap();
        let options = "a=5004 b=10.0.0.1:5006 --to a=10.0.0.7:1 --to b=[::1]:2 \
            --members b=list.txt --delay 20ms --silence 3s --from-anybody --in-kernel \
            --way sendmmsg --core 1";
        let relay = channels("relay", options).unwrap();
        let channel = |text, member: &str, members_file| SourceConfig {
            members: vec![member.parse().unwrap()],
            members_file,
            ..channel(text).unwrap()
        };
        let expected = |token: &str| ChannelsConfig {
            sources: vec![
                channel("a=5004", "10.0.0.7:1", None),
                channel("b=10.0.0.1:5006", "[::1]:2", Some("list.txt".into())),
            ],
            delay: Duration::from_millis(20),
            silence: Duration::from_secs(3),
            from_anybody: true,
            api_address: Some(API_ADDRESS.parse().unwrap()),
            token: token.to_owned(),
            core: Some(1),
            way: Some("sendmmsg".parse().unwrap()),
            in_kernel: true,
            ..ChannelsConfig::default()
        };
        for found in [ours, relay] {
            assert_eq!(found.token.len(), 32);
            assert_eq!(
                format!("{found:?}"),
                format!("{:?}", expected(&found.token))
            );
        }
    }

    #[test]
    fn a_server_has_no_control_api_by_itself() {
        let api = |options: &str| {
            let ours = serve(&format!("--channel=a=5004 {options}"));
            ours.map(|ours| ours.api_address)
        };
        let address = |text: &str| Ok(Some(text.parse().unwrap()));
        assert_eq!(api(""), Ok(None));
        assert_eq!(api("--api=off"), Ok(None));
        assert_eq!(api("--api=99"), address("127.0.0.1:99"));
        assert_eq!(api("--api=192.0.2.7"), address("192.0.2.7:8555"));
        assert_eq!(api("--api=[::]:99"), address("[::]:99"));
        let error = api("--token-file=token").unwrap_err();
        assert!(
            error.contains("token: there is no control API; add --api 8555"),
            "{error}"
        );
    }

    /// Each with what to do.
    #[test]
    fn options_of_channels_want_a_channel() {
        for option in [
            "--to=10.0.0.7:1",
            "--members=list.txt",
            "--sdp=stream.sdp",
            "--delay=20ms",
            "--silence=2s",
            "--from-anybody",
            "--in-kernel",
            "--api=8555",
            "--token-file=token",
            "--way=loop",
            "--channel-core=1",
        ] {
            let error = serve(option).unwrap_err();
            assert!(error.contains("--channel <CHANNEL>"), "{option}: {error}");
        }
        for (options, said) in [
            ("--channel 5004", "write NAME=5004"),
            ("--channel a=b=5004", "ADDRESS:PORT"),
            (
                "--channel a=rtsps://h/b",
                "rtsps:// cannot be pulled; write NAME=rtsp://",
            ),
            ("--channel a=udp://127.0.0.1:1", "without a scheme"),
            ("--channel a=5004 --to b=10.0.0.7:1", "there are: a"),
            (
                "--channel a=5004 --channel b=5006 --to 10.0.0.7:1",
                "as in NAME=10.0.0.7:1",
            ),
            ("--channel a=5004 --to 239.0.0.1:1", "multicast"),
            (
                "--channel a=5004 --members x --members a=y",
                "one file of members",
            ),
            ("--channel a=5004 --api 1 --token-file /dev/null", "16"),
            ("--channel a=5004 --sdp /no/such", "/no/such"),
            ("--channel a=5004 --sdp /dev/null", "/dev/null"),
            ("--channel a=5004 --sdp b=/dev/null", "there are: a"),
        ] {
            let error = serve(options).unwrap_err();
            assert!(error.contains(said), "{options}: {error}");
        }
    }

    #[test]
    fn a_channel_is_described_by_one_track() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stream.sdp");
        let options = format!("--channel a=5004 --sdp {}", file.display());
        let head = "v=0\no=- 1 1 IN IP4 127.0.0.1\ns=-\nt=0 0\n";
        let video = "m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\na=control:v\n";
        let audio = "m=audio 5006 RTP/AVP 97\na=rtpmap:97 opus/48000/2\na=control:a\n";
        fs::write(&file, [head, audio].concat()).unwrap();
        let track = serve(&options).unwrap().sources[0].described.clone();
        let track = track.expect("it is described");
        assert_eq!((track.payload_type, track.clock_hz), (97, 48_000));
        let twice = serve(&format!("{options} --sdp {}", file.display())).unwrap_err();
        assert!(twice.contains("one description"), "{twice}");
        fs::write(&file, [head, video, audio].concat()).unwrap();
        let error = serve(&options).unwrap_err();
        assert!(error.contains("it has 2 tracks"), "{error}");
        fs::write(&file, vec![b'a'; SDP_BYTES_MAX + 1]).unwrap();
        let error = serve(&options).unwrap_err();
        assert!(error.contains("65536 bytes at the most"), "{error}");
    }
}
