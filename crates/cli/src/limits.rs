//! `onrush doctor --limits`: the bounds on everything that can grow.

use std::io::Write;
use std::process::ExitCode;

use onrush_group as group;
use onrush_lock as lock;
use onrush_server::channels::{self as channel, config, members, published};
use onrush_server::config::Limits;
use onrush_server::downloads::{self, DownloadLimits};
use onrush_server::engine::{interleaved, stream_end};
use onrush_server::hls_live::{self, LiveHlsConfig};
use onrush_server::multicast::{self, MulticastConfig};
use onrush_server::tls::{self, TlsLimits};
use onrush_server::{
    admin::{self, cache, hour, log_tail},
    channel_api, devices,
    downloads::ftp as session,
    engine, library, peer_log, refusals, rtsp as control, store, transfer, tunnelling,
    users::{self, file},
    watching,
};
use onrush_sys::path::cue::{chain, mapped};
use onrush_sys::{path, pool, probe, receive};
use onrush_wire::hls::live as window;
use onrush_wire::media::ts::{self, clock, psi};
use onrush_wire::media::{self, live as cutting, segments, text};
use onrush_wire::pace::adaptive;
use onrush_wire::{auth, ftp, http, live, rtsp, sdp, srtp, tls as records};
use serde::Serialize;

use crate::doctor::Doctor;

mod units;

use units::{bytes, count, microseconds, nanoseconds, pcr_ticks, rate, time};

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    limits: Vec<Limit>,
}

/// One bound: its name in the code, the option that sets it (none: it is fixed), its default, and
/// what it bounds.
#[derive(Serialize)]
struct Limit {
    name: &'static str,
    option: Option<String>,
    default: String,
    bounds: &'static str,
}

pub(crate) fn print(arguments: &Doctor, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let limits: Vec<_> = of_clients()
        .into_iter()
        .chain(settings())
        .chain(over_tcp())
        .chain(of_downloads())
        .chain(uploads::of_uploads())
        .chain(of_live_hls())
        .chain(of_tls())
        .chain(of_multicast())
        .chain(fixed())
        .collect();
    if arguments.json {
        let document = Document {
            schema_version: 1,
            limits,
        };
        writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (set, fixed): (Vec<_>, Vec<_>) = limits.iter().partition(|limit| limit.option.is_some());
    writeln!(out, "Options of `onrush serve`, with their defaults:\n")?;
    for limit in set {
        let option = limit.option.as_deref().unwrap_or_default();
        let (default, bounds) = (&limit.default, limit.bounds);
        writeln!(out, "  {option:<29} {default:>8}  {bounds}")?;
    }
    writeln!(out, "\nFixed, by their names in the code:\n")?;
    for Limit {
        name,
        default,
        bounds,
        ..
    } in fixed
    {
        writeln!(out, "  {name:<24} {default:>8}  {bounds}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The bounds on who comes.
fn of_clients() -> [Limit; 4] {
    let Limits {
        sessions_max,
        sessions_per_address_max,
        connections_max,
        connections_per_address_max,
        ..
    } = Limits::default();
    [
        limit(
            "sessions_max",
            count(sessions_max),
            "sessions at once; one more: 453",
        ),
        limit(
            "sessions_per_address_max",
            count(sessions_per_address_max),
            "of one address (IPv6: /64)",
        ),
        limit(
            "connections_max",
            count(connections_max),
            "connections; one more: 503",
        ),
        limit(
            "connections_per_address_max",
            count(connections_per_address_max),
            "of one address (IPv6: /64)",
        ),
    ]
}

/// The other bounds that are settings, in the order of their fields.
fn settings() -> [Limit; 9] {
    // Taken apart, so that a new limit does not compile until it is listed.
    let Limits {
        // Above.
        sessions_max: _,
        sessions_per_address_max: _,
        connections_max: _,
        connections_per_address_max: _,
        request_head_bytes_max,
        request_headers_max,
        request_body_bytes_max,
        request_time_max,
        idle_time_max,
        session_timeout,
        files_max,
        growth_time_max,
        state_bytes_max,
        // Below.
        unacknowledged_bytes_max: _,
        stall_time_max: _,
    } = Limits::default();
    [
        limit(
            "request_head_bytes_max",
            bytes(request_head_bytes_max),
            "a request's head",
        ),
        limit(
            "request_headers_max",
            count(request_headers_max),
            "its header lines",
        ),
        limit(
            "request_body_bytes_max",
            bytes(request_body_bytes_max),
            "its body",
        ),
        limit("request_time_max", time(request_time_max), "its arrival"),
        limit(
            "idle_time_max",
            time(idle_time_max),
            "silence without a session",
        ),
        limit(
            "session_timeout",
            time(session_timeout),
            "silence with a session",
        ),
        limit("files_max", count(files_max), "files open at once"),
        limit(
            "growth_time_max",
            time(growth_time_max),
            "a recording's rest before its end",
        ),
        limit("state_bytes_max", bytes(state_bytes_max), "saved indexes"),
    ]
}

/// Those of them that are about packets in RTSP connections.
fn over_tcp() -> [Limit; 2] {
    let Limits {
        unacknowledged_bytes_max,
        stall_time_max,
        ..
    } = Limits::default();
    [
        limit(
            "unacknowledged_bytes_max",
            bytes(unacknowledged_bytes_max),
            "under way to a client on TCP",
        ),
        limit(
            "stall_time_max",
            time(stall_time_max),
            "a client on TCP that takes nothing",
        ),
    ]
}

/// Those of downloads.
fn of_downloads() -> [Limit; 9] {
    let DownloadLimits {
        download_connections_max,
        download_connections_per_address_max,
        download_files_max,
        download_segments_bytes_max,
        download_requests_max,
        download_streams_max,
        download_head_time_max,
        download_idle_time_max,
        download_stall_time_max,
    } = DownloadLimits::default();
    [
        limit(
            "download_connections_max",
            count(download_connections_max),
            "HTTP and FTP; one more: 503, 421",
        ),
        limit(
            "download_connections_per_address_max",
            count(download_connections_per_address_max),
            "of one address (IPv6: /64)",
        ),
        limit(
            "download_files_max",
            count(download_files_max),
            "names remembered for a moment",
        ),
        limit(
            "download_segments_bytes_max",
            bytes(download_segments_bytes_max),
            "computed segments in memory",
        ),
        limit(
            "download_requests_max",
            count(download_requests_max),
            "requests on one connection",
        ),
        limit(
            "download_streams_max",
            count(download_streams_max as usize),
            "of them at once by HTTP/2",
        ),
        limit(
            "download_head_time_max",
            time(download_head_time_max),
            "a head's or command's arrival",
        ),
        limit(
            "download_idle_time_max",
            time(download_idle_time_max),
            "silence between requests",
        ),
        limit(
            "download_stall_time_max",
            time(download_stall_time_max),
            "a client that takes nothing",
        ),
    ]
}

/// Those of live channels by HLS.
fn of_live_hls() -> [Limit; 4] {
    let LiveHlsConfig {
        hls_bytes_max,
        hls_stored_max,
        hls_idle_time_max,
        hls_waiting_max,
        // No limits.
        hls_window: _,
        hls_store: _,
        is_always: _,
    } = LiveHlsConfig::default();
    [
        limit(
            "hls_bytes_max",
            bytes(hls_bytes_max),
            "segments kept of a channel",
        ),
        limit(
            "hls_stored_max",
            bytes(hls_stored_max),
            "those of them on a disk",
        ),
        limit(
            "hls_idle_time_max",
            time(hls_idle_time_max),
            "cutting what nobody asks for",
        ),
        limit(
            "hls_waiting_max",
            count(hls_waiting_max),
            "reloads that wait; one more: 503",
        ),
    ]
}

/// Those of TLS.
fn of_tls() -> [Limit; 3] {
    let TlsLimits {
        tls_handshakes_max,
        tls_handshakes_per_address_max,
        tls_handshake_time_max,
    } = TlsLimits::default();
    [
        limit(
            "tls_handshakes_max",
            count(tls_handshakes_max),
            "TLS handshakes at once; more: closed",
        ),
        limit(
            "tls_handshakes_per_address_max",
            count(tls_handshakes_per_address_max),
            "of one address (IPv6: /64)",
        ),
        limit(
            "tls_handshake_time_max",
            time(tls_handshake_time_max),
            "one of them",
        ),
    ]
}

/// That of multicast.
fn of_multicast() -> [Limit; 1] {
    let groups_max = MulticastConfig::default().groups_max;
    let bounds = "groups at once; one more: 453";
    [limit("multicast_groups_max", count(groups_max), bounds)]
}

/// The option is named after the field; its value carries the unit.
fn limit(name: &'static str, default: String, bounds: &'static str) -> Limit {
    let option = format!("--{}", name.replace("_bytes", "").replace('_', "-"));
    Limit {
        name,
        option: Some(option),
        default,
        bounds,
    }
}

/// The bounds that are constants: which, in what unit, and what it bounds.
macro_rules! fixed {
    ($($module:ident::$name:ident as $unit:ident, $bounds:literal;)*) => {
        vec![$(Limit {
            name: stringify!($name),
            option: None,
            default: $unit($module::$name),
            bounds: $bounds,
        }),*]
    };
}

// Behind the macro that it uses.
mod clusters;
mod stores;
mod uploads;

/// All of them.
fn fixed() -> Vec<Limit> {
    let mut limits = to_the_wire();
    limits.extend(of_channels());
    limits.extend(beside());
    limits.extend(of_users());
    limits.extend(clusters::of_clusters());
    limits.extend(stores::of_objects());
    limits
}

/// From the file to the wire.
fn to_the_wire() -> Vec<Limit> {
    fixed! {
        library::LIBRARIES_MAX as count, "libraries of a server";
        library::NAME_BYTES_MAX as bytes, "a file's name";
        library::DEPTH_MAX as count, "folders in folders listed";
        library::ENTRIES_MAX as count, "files of a library looked at for a list";
        library::LOOKUPS_MAX as count, "names looked up on a library's disk";
        library::INDEXING_MAX as count, "files of a disk indexed at once";
        devices::DEVICES_MAX as count, "disks with such bounds of their own";
        library::REFRESH_BYTES_MAX as bytes, "read of it at a look";
        library::SAVED_INDEX_BYTES_MAX as bytes, "a saved index";
        library::SAVING_MAX as count, "indexes waiting to be saved";
        library::TRICKS_MAX as count, "plans of one file for other scales";
        ts::LEADING_BYTES_MAX as bytes, "garbage before the stream";
        ts::SYNC_RUNS_MAX as count, "runs between losses of sync";
        psi::PROGRAMS_MAX as count, "programs told of";
        psi::STREAMS_MAX as count, "elementary streams told of";
        psi::ASSOCIATIONS_MAX as count, "packets of tables that segments lack";
        clock::RATE_MAX as rate, "a stream's rate";
        clock::CLOCK_POINTS_MAX as count, "points of a file's clock";
        clock::GROWN_POINTS_MAX as count, "points of a recording's clock";
        clock::BREAKS_MAX as count, "changes of a film's time base told";
        clock::CLOCK_RATIO_MAX as count, "a clock differs from its streams by";
        clock::PCR_JUMP_TICKS_MAX as pcr_ticks, "a step of one clock";
        clock::PCR_INTERVAL_TICKS_MAX as pcr_ticks, "a step forgiven";
        media::TRACKS_MAX as count, "tracks of a file";
        media::CUTS_MAX as count, "packet sizes of a track";
        media::JOINED_NS_MAX as nanoseconds, "apart, bursts that are joined";
        segments::SEGMENTS_MAX as count, "segments of a track, about";
        segments::SEGMENT_SAMPLES_MAX as count, "samples of a segment";
        ts::TS_PACKETS_PER_RTP_MAX as count, "transport packets in one of RTP";
        group::MEMBERS_MAX as count, "members of a group";
        group::STREAMS_MAX as count, "TCP connections of a group";
        group::GROUPS_MAX as count, "groups of a device's program";
        group::SOCKET_MEMBERS_MAX as count, "members of another program's socket";
        group::TARGETS_MAX as count, "addresses whose next hops an agent knows";
        group::LANES_MAX as count, "devices times source addresses of a group";
        receive::BATCH_MAX as count, "messages taken in one crossing";
        store::CHUNKS_MAX as count, "chunks of a file";
        store::DEVICE_BUILDERS_MAX as count, "chunks of a disk built at once";
        store::REQUESTS_MAX as count, "chunks waiting to be built, of a disk too";
        store::PARTS_MAX as count, "parts of an object that a chunk is made of";
        pool::PINS_MAX as count, "readers of a chunk";
        pool::SLOTS_MAX as count, "trains with own headers in the kernel";
        engine::STREAM_RATE_MAX as rate, "what one client is sent";
        engine::PAUSE_TIME_MAX as time, "a train delays the answer to PAUSE";
        engine::COMMANDS_MAX as count, "commands waiting for an engine";
        rtsp::SETUP_URL_BYTES_MAX as count, "bytes of a track's URL; more: 414";
        rtsp::TUNNEL_COOKIE_BYTES_MAX as count, "bytes of a tunnel's cookie";
        tunnelling::TUNNELS_WAITING_MAX as count, "tunnels on their way from HTTP to RTSP";
        control::TUNNEL_POSTS_WAITING_MAX as count, "POSTs of a tunnel that wait";
        control::GROUP_REPORT_SESSIONS_MAX as count, "sessions told of a report to a group";
        multicast::GROUPS_MAX as count, "groups of a range";
        control::CLIENTS_PER_PAIR_MAX as count, "clients of files at one pair of UDP ports";
        control::LIVE_ADDRESSES_MAX as count, "own addresses that channels are sent from";
        stream_end::ENDS_WAITING_MAX as count, "ends of streams waiting for control";
        interleaved::MESSAGES_WAITING_BYTES_MAX as bytes, "reports waiting for a client on TCP";
        path::TRAIN_PACKETS_MAX as count, "packets of a train";
        path::OWN_HEADERS_PACKETS_MAX as count, "packets of one with own headers";
        path::TRAIN_BYTES_MAX as count, "bytes of a train";
        path::BATCH_TRAINS_MAX as count, "trains in one crossing";
        path::IN_FLIGHT_TRAINS_MAX as count, "trains in the kernel";
        path::STREAM_PACKETS_MAX as count, "packets of one over TCP";
    }
}

/// Live channels, and who watches the server.
fn of_channels() -> Vec<Limit> {
    fixed! {
        channel_api::API_BODY_BYTES_MAX as bytes, "a request to the control API";
        channel_api::API_CONNECTIONS_MAX as count, "connections to it at once";
        admin::METRICS_CONNECTIONS_MAX as count, "scrapes of metrics at once";
        log_tail::LOG_LINES_MAX as count, "log lines that the dashboard shows";
        log_tail::LOG_LINE_BYTES_MAX as bytes, "a line of those";
        hour::HOUR_SAMPLES_MAX as count, "moments of the last hour that it shows";
        refusals::REFUSALS_MAX as count, "clients refused lately that it shows";
        refusals::REFUSAL_BYTES_MAX as bytes, "what one asked, and why it was refused";
        watching::WISHES_MAX as count, "questions of dashboards that wait";
        watching::SESSIONS_SHOWN_MAX as count, "sessions on one page of a dashboard";
        cache::CACHED_FILMS_SHOWN_MAX as count, "films that its map of the cache names";
        channel::CHANGES_MAX as count, "changes of members made one by one";
        channel::CHANGES_WAITING_MAX as count, "changes of members that wait";
        channel::MEMBERS_FILE_BYTES_MAX as bytes, "a file of members";
        channel::HANDOVER_ANSWER_TIME_MAX as time, "a successor may take to take channels over";
        channel::HANDOVER_TIME_MAX as time, "its own successor waits for that";
        channel::HANDOVER_BYTES_MAX as bytes, "what it is told of channels";
        config::DELAY_MAX as time, "a delay of channels";
        config::SOURCES_MAX as count, "channels of a process";
        config::SOURCE_NAME_BYTES_MAX as bytes, "a channel's name";
        members::MEMBERS_MAX as count, "members of a channel";
        published::PUBLISHED_MAX as count, "channels that are published";
        published::FRAMES_WAITING_BYTES_MAX as bytes, "frames of a publisher that wait";
        published::RECENT_BYTES_MAX as bytes, "packets of a track since a sync sample";
        published::RECENT_PACKETS_MAX as count, "the same, counted";
        published::PUBLISHER_SILENCE_MAX as time, "a publisher may send nothing";
        published::PUBLISHER_AWAITED_MAX as time, "viewers wait for a publisher";
        published::SYNC_AWAITED_MAX as time, "a viewer waits for a sync sample";
        live::INGESTS_MAX as count, "publishers of a channel, with its standby";
        published::LEAD_MAX as time, "viewers get a standby later than it came";
        published::CATCHING_UP_BYTES_MAX as bytes, "what a channel goes on with of a standby";
        published::PULL_PAUSE_MAX as time, "between two attempts to pull a channel";
        published::UNWATCHED_TIME_MAX as time, "a channel on demand that nobody watches";
        rtsp::RESPONSE_BYTES_MAX as bytes, "an answer of what is pulled, and its head";
        rtsp::RESPONSE_HEADERS_MAX as count, "its header lines";
        sdp::FORMAT_PARAMETERS_BYTES_MAX as bytes, "a format of a published track";
        window::SEGMENTS_PER_SECOND_MAX as count, "live segments kept of a second";
        members::LINE_ERRORS_MAX as count, "wrong lines told of";
    }
}

/// Memory and downloads.
fn beside() -> Vec<Limit> {
    fixed! {
        lock::AREAS_MAX as count, "areas locked at a time";
        lock::TABLES_MAX as count, "tables of pinned buffers and caches";
        lock::SLOTS_MAX as count, "buffers in a table";
        lock::BUFFER_BYTES_MAX as bytes, "a pinned buffer";
        lock::SEALED_MAX as count, "pieces of sealed memory";
        lock::EVENTS_MAX as count, "events a cache may lag behind";
        lock::DISCARD_MAX as time, "a discard of cached memory";
        adaptive::LEFT_TO_OTHERS_MAX as count, "of a processor left to others";
        transfer::STEP_BYTES_MAX as bytes, "a download's step";
        transfer::TLS_SEALED_BYTES_MAX as bytes, "of it sealed at once for TLS";
        transfer::STREAM_BYTES_MAX as bytes, "of it read at once for HTTP/2";
        transfer::STREAMS_BYTES_MAX as bytes, "of all streams of an HTTP/2 connection";
        tls::PEM_BYTES_MAX as bytes, "a file of certificates";
        tls::TLS_CERTIFICATES_MAX as count, "certificates with their keys";
        tls::TLS_RECKONED_MAX as count, "handshakes reckoned at one time";
        records::RECORD_BYTES_MAX as bytes, "a record of TLS";
        records::FRAGMENT_BYTES_MAX as bytes, "of it data";
        records::TLS_IDLE_RECORDS_MAX as count, "records without data in a row";
        peer_log::PEER_LOG_LINES_MAX as count, "lines a minute of a kind that peers cause";
        peer_log::TRACE_LOG_LINES_MAX as count, "the same of viewers that are sent on";
        peer_log::PEER_NAME_CHARS_MAX as count, "characters of a name in them";
        transfer::READS_MAX as count, "reads of a disk at once";
        chain::CHAIN_SETS_MAX as count, "sets of one chain of the ring";
        probe::TRIAL_BYTES_MAX as bytes, "memory that doctor tries";
        http::HEAD_BYTES_MAX as bytes, "an HTTP request's head";
        http::HEADERS_MAX as count, "its header lines";
        http::TARGET_BYTES_MAX as bytes, "its target";
        http::HOST_BYTES_MAX as count, "bytes of what it calls the server";
        http::RANGES_MAX as count, "its ranges; more: the whole file";
        http::CHUNK_LINE_BYTES_MAX as count, "bytes of a chunk's size line";
        downloads::HTTP2_RESETS_MAX as count, "requests of HTTP/2 taken back unread";
        downloads::HTTP2_ERRORS_MAX as count, "its streams with errors of one client";
        downloads::HTTP2_CONTROL_BYTES_MAX as bytes, "frames that ask for nothing";
        downloads::OPEN_TIME_MAX as time, "age of a name looked up";
        downloads::FOLDER_ENTRIES_MAX as count, "entries of a folder listed, or renamed";
        downloads::FOLDER_NAMES_MAX as count, "names of one looked at for subtitles";
        downloads::INDEX_WAIT_MAX as time, "a playlist waits for its film's index";
        downloads::ANSWER_WAIT_MAX as time, "a manifest does; a playlist for segments";
        downloads::FIRST_SEGMENT_WAIT_MAX as time, "one of a channel for a segment";
        downloads::SEGMENT_CACHE_BYTES_MAX as bytes, "computed segments that are kept";
        downloads::MADE_BYTES_MAX as bytes, "memory of answers that wait to be taken";
        downloads::CONNECTION_MADE_BYTES_MAX as bytes, "of it one connection's; then 503";
        downloads::KEPT_SEGMENTS_MAX as count, "of them in memory whole";
        downloads::GATHERED_AT_ONCE_MAX as count, "of those put there at once";
        downloads::LIVE_FILES_MAX as count, "live parts in memory as files";
        hls_live::LIVE_TEXTS_MAX as count, "playlists of a channel that are kept";
        transfer::MAPPED_BYTES_MAX as bytes, "mapped of files with short pieces";
        mapped::MAPPED_PIECES_MAX as count, "such pieces sent by one call";
        channel::CHANNEL_KEYS_MAX as count, "keys of a channel that viewers share";
        channel::TAP_BYTES_MAX as bytes, "packets that wait to be cut for HLS";
        cutting::SEGMENT_BYTES_MAX as bytes, "a live segment";
        cutting::PART_BYTES_MAX as bytes, "a part of one";
        srtp::KEY_MGMT_BYTES_MAX as count, "bytes of a KeyMgmt header";
        srtp::SESSIONS_MAX as count, "streams in a message of MIKEY";
        store::FILM_KEY_USES_MAX as count, "uses of a film's shared key";
        cutting::SEGMENT_US_MAX as microseconds, "a live segment without a sync sample";
        downloads::RENDITION_FILES_MAX as count, "files of one film";
        downloads::RENDITIONS_BYTES_MAX as bytes, "a list of such files";
        media::TEXTS_MAX as count, "subtitles of one film";
        text::TEXT_BYTES_MAX as bytes, "subtitles in one language";
        text::CUES_MAX as count, "cues of one language";
        text::CUE_BYTES_MAX as bytes, "a cue";
        ftp::COMMAND_BYTES_MAX as count, "bytes of an FTP command";
        session::DATA_TIME_MAX as time, "making a data connection";
    }
}

/// Users, and who says that it is one.
fn of_users() -> Vec<Limit> {
    fixed! {
        file::USERS_FILE_BYTES_MAX as bytes, "a file of users";
        file::USERS_MAX as count, "users in it";
        file::GROUP_RULES_MAX as count, "lines of groups in it";
        file::USER_NAME_BYTES_MAX as count, "bytes of a name in it";
        auth::PATTERN_BYTES_MAX as bytes, "a pattern of paths";
        auth::AUTH_PARAMS_MAX as count, "parameters of credentials";
        users::ARGON2_MEMORY_BYTES_MAX as bytes, "memory of a slow hash";
        users::ARGON2_PASSES_MAX as count, "its passes";
        users::PASSWORD_TIME_MAX as time, "a password waits for others";
        users::PASSWORDS_MAX as count, "passwords remembered to be right";
        users::NONCE_TIME_MAX as time, "age of a nonce";
        users::NONCES_MAX as count, "used nonces remembered";
        users::WRONG_PASSWORDS_MAX as count, "wrong passwords of an address at once";
        users::WRONG_PASSWORD_TIME_MAX as time, "until one of them is forgiven";
        users::WRONG_ADDRESSES_MAX as count, "addresses that sent some";
        users::HOOK_CALLS_MAX as count, "questions to the hook at once";
        users::HOOK_WAITING_MAX as count, "questions that wait";
        users::HOOK_ADDRESS_MAX as count, "of both about one address (IPv6: /64)";
        users::HOOK_ANSWERS_MAX as count, "answers of it that are kept";
        users::URL_KEYS_BYTES_MAX as bytes, "a file of keys for URLs";
        users::URL_KEYS_MAX as count, "keys in it";
        auth::JWT_BYTES_MAX as count, "bytes of a token";
        auth::JWT_RIGHTS_MAX as count, "rights in it";
        auth::CARRIED_BYTES_MAX as count, "bytes of one that is in a playlist's URLs";
        auth::JWK_KEYS_MAX as count, "keys for tokens";
        users::JWKS_BYTES_MAX as bytes, "a set of them";
        users::JWKS_TIME_MAX as time, "asking a URL for them";
        users::JWKS_AGE_MAX as time, "until it is asked again for all";
    }
}

#[cfg(test)]
mod tests;
