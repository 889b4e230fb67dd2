//! A registry for tests.

use std::process::Command;
use std::time::Duration;

use onrush_testkit::ports::free_tcp_port;
use onrush_testkit::process::Process;
use tempfile::TempDir;

/// A server of NATS, where it keeps what it has, and its address.
pub(crate) fn start_nats() -> (TempDir, Process, String) {
    let port = free_tcp_port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("nats-server");
    command.args(["-js", "-a", "127.0.0.1", "-p", &port, "-sd"]);
    let server = Process::start(command.arg(folder.path())).unwrap();
    let ready = server.wait_for_line("Server is ready", Duration::from_secs(30));
    assert!(ready.is_some(), "{}", server.log());
    (folder, server, format!("127.0.0.1:{port}"))
}
