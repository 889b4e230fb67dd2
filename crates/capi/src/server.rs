//! A server in the program itself.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::net::SocketAddr;

use onrush_cli::embed::{config_of, flush_log, log_to_stderr};
use onrush_server::server::Server;
use onrush_server::watching::{SessionEvent, SessionHook};

use crate::arguments::{Out, text, write_text};
use crate::error::{Failure, ONRUSH_ERROR_BUSY, ONRUSH_ERROR_CONFIG, ONRUSH_ERROR_SYSTEM, guarded};
use crate::handle::{self, close, open, with};
use crate::signals::BlockedSignals;

/// RTSP.
pub const ONRUSH_SERVICE_RTSP: i32 = 0;
/// RTSP over TLS.
pub const ONRUSH_SERVICE_RTSPS: i32 = 1;
/// HTTP: downloads, HLS, DASH, and the page.
pub const ONRUSH_SERVICE_HTTP: i32 = 2;
/// HTTP over TLS.
pub const ONRUSH_SERVICE_HTTPS: i32 = 3;
/// FTP.
pub const ONRUSH_SERVICE_FTP: i32 = 4;
/// Metrics, status and the dashboard.
pub const ONRUSH_SERVICE_METRICS: i32 = 5;

/// A session has been set up.
pub const ONRUSH_SESSION_BEGAN: i32 = 0;
/// A session is over.
pub const ONRUSH_SESSION_ENDED: i32 = 1;

/// A server that runs. 0 is none.
pub type onrush_server_t = u64;

/// Is called with `context`, ONRUSH_SESSION_BEGAN or ONRUSH_SESSION_ENDED, and the session's id,
/// client and film as JSON, which stays for the call alone. It runs on the server's thread that
/// does all control, with signals blocked: write down what is told, and return. Functions of
/// servers answer ONRUSH_ERROR_BUSY there.
pub type onrush_session_hook_t =
    Option<unsafe extern "C" fn(context: *mut c_void, event: c_int, session: *const c_char)>;

/// A server, which `onrush_server_stop` ends.
pub(crate) struct Embedded(Server);

impl handle::Kind for Embedded {
    const NAME: &'static str = "server";
    const NUMBER: u64 = 6;
}

/// Has what servers log written to stderr, a line each, from `levels` on: "warn", or levels of
/// parts, as in "info,onrush_server::rtsp=debug". Without a call nothing is logged. Once in a
/// process: ONRUSH_ERROR_BUSY from the second time on. A thread of its own writes, with signals
/// blocked: whoever does not read the lines holds up no server, and misses some, which is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_log_to_stderr(levels: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let levels = unsafe { text(levels, "levels") }?;
        let is_ours = {
            let _blocked = BlockedSignals::here();
            log_to_stderr(levels)
        };
        match is_ours.map_err(|error| Failure::argument(format_args!("{error:#}")))? {
            true => Ok(()),
            false => Err(Failure::new(
                ONRUSH_ERROR_BUSY,
                "this process has a log already, which stays",
            )),
        }
    })
}

/// Starts a server with `config`, the text of a configuration file (TOML, docs/configuration.md),
/// which must name a folder: `[library]`, `folder = "FOLDER"`. It listens when this answers 0;
/// its threads are its own. No environment variable is looked at and no signal is handled: the
/// server's threads have all blocked but those of faults (SIGSEGV and the like), so that handlers
/// run on the program's threads alone and a client that goes raises no SIGPIPE. The limit of open
/// files is raised as far as the account may. What the command alone can do is
/// ONRUSH_ERROR_CONFIG: object stores, a cluster, `sandbox = "require"`, `status_at_exit`. By
/// `sandbox = "on"` nothing is given up, and the log is text whatever its `format`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_server_start(
    config: *const c_char,
    server: *mut onrush_server_t,
) -> i32 {
    // SAFETY: the same rules for pointers; a hook that is none needs no context.
    unsafe { onrush_server_start_with_hook(config, None, std::ptr::null_mut(), server) }
}

/// The same, with a hook that is told of sessions. `context` is passed to it as it is, by a thread
/// of the server's, until `onrush_server_stop` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_server_start_with_hook(
    config: *const c_char,
    hook: onrush_session_hook_t,
    context: *mut c_void,
    server: *mut onrush_server_t,
) -> i32 {
    guarded(|| {
        not_in_hook()?;
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(server, "server") }?;
        // SAFETY: as above.
        let config = unsafe { text(config, "config") }?;
        let mut config = config_of(config)
            .map_err(|error| Failure::new(ONRUSH_ERROR_CONFIG, format_args!("{error:#}")))?;
        config.session_hook = hook.map(|hook| {
            let context = Context(context);
            SessionHook::new(move |event, session| call(hook, &context, event, session))
        });
        let started = {
            let _blocked = BlockedSignals::here();
            Server::start(config)
        };
        let server = started.map_err(|error| {
            // A program that ends for that has told what led to it.
            flush_log();
            Failure::new(ONRUSH_ERROR_SYSTEM, error)
        })?;
        to.set(open(Embedded(server))?);
        Ok(())
    })
}

/// Writes the port of the first address at which the server listens for an ONRUSH_SERVICE_...
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_server_port(
    server: onrush_server_t,
    service: i32,
    port: *mut u16,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(port, "port") }?;
        let found = asked(server, |it| {
            let addresses = addresses(it, service)?;
            addresses.first().map(SocketAddr::port).ok_or_else(|| {
                Failure::argument(
                    "the server does not listen for that; name an address in the configuration",
                )
            })
        })?;
        to.set(found);
        Ok(())
    })
}

/// Writes the addresses at which the server listens for an ONRUSH_SERVICE_..., as a JSON array of
/// texts, and its length. With too little room it writes the length alone and answers
/// ONRUSH_ERROR_ROOM; so do the following.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_server_addresses(
    server: onrush_server_t,
    service: i32,
    text: *mut c_char,
    room: usize,
    length: *mut usize,
) -> i32 {
    guarded(|| {
        let told = asked(server, |it| {
            let addresses = addresses(it, service)?;
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            json(&addresses)
        })?;
        // SAFETY: of the library's rules for pointers.
        unsafe { write_text(&told, (text, room), length) }
    })
}

/// Writes what the server has done and does, as JSON: what `/status` answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_server_status(
    server: onrush_server_t,
    text: *mut c_char,
    room: usize,
    length: *mut usize,
) -> i32 {
    guarded(|| {
        let told = asked(server, |it| json(&it.status()))?;
        // SAFETY: of the library's rules for pointers.
        unsafe { write_text(&told, (text, room), length) }
    })
}

/// Writes how many sessions there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_server_sessions(server: onrush_server_t, count: *mut usize) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let to = unsafe { Out::new(count, "count") }?;
        to.set(asked(server, |it| Ok(it.sessions()))?);
        Ok(())
    })
}

/// Writes up to 200 sessions as JSON, from number `first` on, of those whose client or film has
/// `find` in it (NULL: all): how many there are (`all`), how many were meant (`found`), and each
/// one's id, client, film, transport, state, position and losses (`sessions`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_server_session_list(
    server: onrush_server_t,
    find: *const c_char,
    first: usize,
    text: *mut c_char,
    room: usize,
    length: *mut usize,
) -> i32 {
    guarded(|| {
        let find = match find.is_null() {
            true => "",
            // SAFETY: of the library's rules for pointers.
            false => unsafe { crate::arguments::text(find, "find") }?,
        };
        let told = asked(server, |it| it.session_list(find, first).ok_or_else(busy))?;
        // SAFETY: as above.
        unsafe { write_text(&told, (text, room), length) }
    })
}

/// Ends the session of this id, which lists and hooks tell. Its client is told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onrush_server_session_end(
    server: onrush_server_t,
    id: *const c_char,
) -> i32 {
    guarded(|| {
        // SAFETY: of the library's rules for pointers.
        let id = unsafe { text(id, "id") }?;
        let none = || Failure::argument(format_args!("there is no session {id:?}; it has ended?"));
        let number = u64::from_str_radix(id, 16).map_err(|_| none())?;
        match asked(server, |it| it.end_session(number).ok_or_else(busy))? {
            true => Ok(()),
            false => Err(none()),
        }
    })
}

/// Stops a server: says goodbye to every player, and returns when all its threads have ended and
/// its log is written, for which it waits a second at the most.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_server_stop(server: onrush_server_t) -> i32 {
    guarded(|| {
        not_in_hook()?;
        let Embedded(server) = close(server, |_| Ok(()))?;
        drop(server.shutdown());
        flush_log();
        Ok(())
    })
}

fn asked<R>(
    server: onrush_server_t,
    ask: impl FnOnce(&Server) -> Result<R, Failure>,
) -> Result<R, Failure> {
    not_in_hook()?;
    with::<Embedded, _>(server, |it| ask(&it.0))
}

fn addresses(server: &Server, service: i32) -> Result<Vec<SocketAddr>, Failure> {
    Ok(match service {
        ONRUSH_SERVICE_RTSP => server.addresses().to_vec(),
        ONRUSH_SERVICE_RTSPS => server.rtsps_addresses().to_vec(),
        ONRUSH_SERVICE_HTTP => server.http_addresses().to_vec(),
        ONRUSH_SERVICE_HTTPS => server.https_addresses().to_vec(),
        ONRUSH_SERVICE_FTP => server.ftp_addresses().to_vec(),
        ONRUSH_SERVICE_METRICS => server.metrics_address().into_iter().collect(),
        other => {
            return Err(Failure::argument(format_args!(
                "{other} is no service; use one of ONRUSH_SERVICE_..."
            )));
        }
    })
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::new(ONRUSH_ERROR_SYSTEM, error))
}

fn busy() -> Failure {
    Failure::new(
        ONRUSH_ERROR_BUSY,
        "the server has not answered in time; ask again",
    )
}

thread_local! {
    /// Whether this thread is in a hook: it must not wait for the thread that it is.
    static IN_HOOK: Cell<bool> = const { Cell::new(false) };
}

fn not_in_hook() -> Result<(), Failure> {
    if IN_HOOK.get() {
        return Err(Failure::new(
            ONRUSH_ERROR_BUSY,
            "a hook runs on the server's own thread; return from it, and ask from another thread",
        ));
    }
    Ok(())
}

/// What the program wants to have back in its hook.
struct Context(*mut c_void);

// SAFETY: the pointer is passed on and never followed; whoever gave it was told that threads of the
// server's pass it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

fn call(
    hook: unsafe extern "C" fn(*mut c_void, c_int, *const c_char),
    context: &Context,
    event: SessionEvent,
    session: &str,
) {
    let event = match event {
        SessionEvent::Began => ONRUSH_SESSION_BEGAN,
        SessionEvent::Ended => ONRUSH_SESSION_ENDED,
    };
    let Ok(session) = CString::new(session) else {
        return;
    };
    IN_HOOK.set(true);
    // SAFETY: the program has given a function of this type; the text lives for the call.
    unsafe { hook(context.0, event, session.as_ptr()) };
    IN_HOOK.set(false);
}
