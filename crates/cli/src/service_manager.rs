//! What a service manager and a server tell each other, as systemd does (sd_notify(3),
//! sd_listen_fds(3)): sockets that listen already, that it is ready, that it is alive, that it
//! stops. Where there is none, nothing is told.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use onrush_server::server::{ListeningSockets, Pulse};
use sd_notify::NotifyState;

/// Sockets that listen already, with their names.
///
/// # Errors
///
/// When what the environment says of them is not true. Then something is set up wrongly, and to
/// listen elsewhere would hide it.
pub(crate) fn inherited() -> anyhow::Result<ListeningSockets> {
    let mut sockets = ListeningSockets::default();
    let given = sd_notify::listen_fds_with_names();
    for (fd, name) in given.context("the sockets that the service manager hands over")? {
        // SAFETY: the service manager has opened this descriptor for this process, as LISTEN_PID
        // says, and nobody else owns it: this is called once, before anything else is opened by
        // number.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        sockets.inherit(&name, socket).with_context(|| {
            format!(
                "socket {fd} ({name}) that the service manager hands over cannot be used: only \
                 ListenStream= with an IP address or a port can"
            )
        })?;
    }
    Ok(sockets)
}

/// Says that clients are served, and by `systemctl status` how.
pub(crate) fn tell_ready(how: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(how)]);
}

/// Says that another process has this one's place.
pub(crate) fn tell_successor(pid: u32) {
    tell(&[NotifyState::MainPid(pid)]);
}

/// Says that it stops.
pub(crate) fn tell_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Says that it stops once its clients have gone on to another server, in so long at the most.
pub(crate) fn tell_sending_on(time_max: Duration) {
    let goodbye = Duration::from_secs(20);
    let time_us = (time_max + goodbye).as_micros();
    // `NotifyState::ExtendTimeoutUsec` ends at 71 minutes.
    let extension = format!("EXTEND_TIMEOUT_USEC={time_us}");
    tell(&[NotifyState::Stopping, NotifyState::Custom(&extension)]);
}

/// A server that says that it is alive. Dropping it changes nothing: one that stops is alive, too.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    is_over: Arc<AtomicBool>,
}

impl KeepAlive {
    /// Says so no more: the watchdog does not tell whose word it hears, and is to notice the death
    /// of the server that has this one's place.
    pub(crate) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Says that it is alive as often as a watchdog wants to hear it, as long as the server's control
/// gets its turns. Where nobody wants to, nothing is started.
pub(crate) fn keep_alive(pulse: Pulse) -> KeepAlive {
    let is_over = Arc::new(AtomicBool::new(false));
    let alive = KeepAlive {
        is_over: Arc::clone(&is_over),
    };
    let Some(time_max) = sd_notify::watchdog_enabled() else {
        return alive;
    };
    let watch = move || {
        let mut told = None;
        while !is_over.load(Ordering::Relaxed) {
            let beats = pulse.beats();
            if told != Some(beats) {
                tell(&[NotifyState::Watchdog]);
            }
            told = Some(beats);
            // Twice would do; a turn that comes a little late is no failure.
            thread::sleep(time_max / 4);
        }
    };
    let thread = thread::Builder::new().name("onrush-watchdog".to_owned());
    if let Err(error) = thread.spawn(watch) {
        tracing::warn!(
            "the service manager's watchdog is not told that this server lives: {error}"
        );
    }
    alive
}

fn tell(what: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(what) {
        tracing::warn!("cannot tell the service manager {what:?}: {error}");
    }
}
