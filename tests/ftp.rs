//! FTP, command by command, over a socket: the rows of the table in docs/downloads.md.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use onrush_server::downloads::FOLDER_ENTRIES_MAX;
use onrush_testkit::require_programs;

use download_site::{FILM_BYTES, LONG, Raw, Site, bytes, run, wait_for_log};

mod download_site;

fn log_in(site: &Site) -> Raw {
    log_in_at(site.ftp)
}

fn log_in_at(ftp: SocketAddr) -> Raw {
    let mut raw = Raw::connect(ftp);
    assert_eq!(raw.reply().0, 220);
    assert_eq!(
        (raw.command("USER anonymous"), raw.command("PASS a@b")),
        (331, 230)
    );
    raw
}

/// Where EPSV or PASV says to connect to.
fn passive(raw: &mut Raw, command: &str) -> SocketAddr {
    raw.send(format!("{command}\r\n"));
    let (code, text) = raw.reply();
    let numbers: Vec<u16> = text[4..]
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    let port = match (code, &numbers[..]) {
        (229, [port]) => *port,
        (227, [127, 0, 0, 1, high, low]) => high * 256 + low,
        _ => panic!("{text}"),
    };
    ([127, 0, 0, 1], port).into()
}

/// What comes on a data connection, to its end; the control connection's last reply.
fn fetch(raw: &mut Raw, command: &str) -> (Vec<u8>, u16) {
    let mut data = Raw::connect(passive(raw, "EPSV"));
    assert_eq!(raw.command(command), 150, "{command}");
    while data.receive() > 0 {}
    (data.received.clone(), raw.reply().0)
}

/// Also to one that has sent half a command.
// SPECIFICATION.md: 39
#[test]
fn a_stop_is_told_to_idle_sessions() {
    let mut site = Site::plain(&[]);
    let mut idle = log_in(&site);
    let mut half = log_in(&site);
    half.send("NO");
    let status = site.server.interrupt(LONG).unwrap();
    assert_eq!(status.code(), Some(0), "{}", site.server.log_tail());
    for session in [&mut idle, &mut half] {
        let (code, text) = session.reply();
        assert!(code == 421 && text.contains("stops"), "{text}");
        assert_eq!(session.receive(), 0);
    }
}

#[test]
fn commands_have_their_replies() {
    let site = Site::plain(&[]);
    let mut raw = Raw::connect(site.ftp);
    assert_eq!(raw.reply().0, 220);
    for (line, code) in [
        ("RETR film.ts", 530),
        ("PASV", 530),
        ("SYST", 215),
        ("FEAT", 211),
        ("USER root", 331),
        ("PASS x", 530),
        ("USER anonymous", 331),
        ("PASS x", 230),
        ("PWD", 257),
        ("TYPE I", 200),
        ("TYPE A", 200),
        ("TYPE E", 504),
        ("MODE S", 200),
        ("MODE C", 504),
        ("STRU F", 200),
        ("STRU P", 504),
        ("OPTS UTF8 ON", 200),
        ("OPTS MLST Size;", 200),
        ("HELP", 214),
        ("NOOP", 200),
        ("STAT", 211),
        ("ABOR", 226),
        ("REST 5", 350),
        ("SIZE film.ts", 213),
        ("MDTM film.ts", 213),
        ("SIZE folder", 550),
        ("MDTM none", 550),
        ("MLST film.ts", 250),
        ("MLST folder", 250),
        ("MLST none", 550),
        ("CWD none", 550),
        ("CWD film.ts", 550),
        ("CWD folder", 250),
        ("CDUP", 250),
        ("CDUP", 250),
        ("STOR x", 550),
        ("DELE film.ts", 550),
        ("MKD x", 550),
        ("SITE x", 550),
        ("AUTH TLS", 502),
        ("WHAT", 500),
        ("RETR film.ts", 425),
        ("LIST", 425),
        ("RETR none", 550),
        ("EPSV 2", 522),
        ("QUIT", 221),
    ] {
        assert_eq!(raw.command(line), code, "{line}");
    }
    assert!(raw.is_closed());
    assert_eq!(fs::read(site.path("film.ts")).unwrap(), bytes(FILM_BYTES));
}

#[test]
fn files_and_folders_are_sent() {
    let site = Site::plain(&[]);
    let film = bytes(FILM_BYTES);
    let mut raw = log_in(&site);
    assert!(fetch(&mut raw, "RETR film.ts") == (film.clone(), 226));
    assert_eq!(raw.command("REST 99990"), 350);
    assert!(fetch(&mut raw, "RETR film.ts") == (film[99_990..].to_vec(), 226));
    assert!(fetch(&mut raw, "RETR /folder/../film.ts").0 == film);
    assert_eq!(fetch(&mut raw, "RETR empty"), (Vec::new(), 226));
    assert_eq!(raw.command("CWD folder"), 250);
    assert!(fetch(&mut raw, "RETR a b#%ü.ts").0 == bytes(1000));
    let text = |(bytes, code): (Vec<u8>, u16)| {
        assert_eq!(code, 226);
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(text(fetch(&mut raw, "NLST")), "a b#%ü.ts\r\n");
    assert_eq!(text(fetch(&mut raw, "NLST /film.ts")), "/film.ts\r\n");
    // Linux takes any bytes for a name; 255 is doubled, because it is Telnet's escape.
    let name = b"\xfc\xff.ts";
    fs::write(site.path("folder").join(OsStr::from_bytes(name)), "old").unwrap();
    let listed = fetch(&mut raw, "NLST").0;
    assert!(listed.windows(name.len()).any(|bytes| bytes == name));
    let mut data = Raw::connect(passive(&mut raw, "EPSV"));
    raw.send(b"RETR \xfc\xff\xff.ts\r\n");
    assert_eq!(raw.reply().0, 150);
    while data.receive() > 0 {}
    assert_eq!((&*data.received, raw.reply().0), (&b"old"[..], 226));
    let long = text(fetch(&mut raw, "LIST -a /"));
    assert!(
        long.contains("-r--r--r-- 1 ftp ftp        100000 Nov 06  1994 film.ts\r\n"),
        "{long}"
    );
    let machine = text(fetch(&mut raw, "MLSD /"));
    assert!(
        machine.contains("Type=file;Size=100000;Modify=19941106084937;Perm=r; film.ts\r\n"),
        "{machine}"
    );
    raw.send("MDTM /film.ts\r\nSIZE /film.ts\r\nPWD\r\n");
    assert_eq!(raw.reply().1, "213 19941106084937\r\n");
    assert_eq!(raw.reply().1, "213 100000\r\n");
    assert_eq!(raw.reply().1, "257 \"/folder\"\r\n");
    assert_eq!(raw.command("REST 100001"), 350);
    assert_eq!(raw.command("RETR /film.ts"), 554);
}

/// What clients ask for by `mget`: they retrieve what is listed, name by name.
#[test]
fn listed_names_are_those_of_files_to_retrieve() {
    let site = Site::new(&[], |root| {
        fs::create_dir_all(root.join("in/odd")).unwrap();
        for name in [
            "a.ts",
            "b.ts",
            "c.mp4",
            "in/d.ts",
            "in/odd/*.txt",
            "in/odd/e.txt",
        ] {
            fs::write(root.join(name), name).unwrap();
        }
    });
    let mut raw = log_in(&site);
    for (argument, expected) in [
        ("*.ts", &["a.ts", "b.ts"][..]),
        ("in/?.ts", &["in/d.ts"]),
        ("/in/*.ts", &["/in/d.ts"]),
        ("in/odd/*.t?t", &["in/odd/*.txt", "in/odd/e.txt"]),
        // That one is there.
        ("in/odd/*.txt", &["in/odd/*.txt"]),
        ("in/odd", &["in/odd/*.txt", "in/odd/e.txt"]),
        ("./in/odd/", &["./in/odd/*.txt", "./in/odd/e.txt"]),
        ("c.mp4", &["c.mp4"]),
    ] {
        let (listed, code) = fetch(&mut raw, &format!("NLST {argument}"));
        let listed = String::from_utf8(listed).unwrap();
        let names: Vec<_> = listed.lines().collect();
        assert_eq!((&names[..], code), (expected, 226), "{argument}");
        for name in names {
            assert_eq!(fetch(&mut raw, &format!("RETR {name}")).1, 226, "{name}");
        }
    }
    let (long, code) = fetch(&mut raw, "LIST -l *.ts");
    let long = String::from_utf8(long).unwrap();
    assert_eq!((long.lines().count(), code), (2, 226), "{long}");
    for (line, code) in [
        ("NLST *.avi", 550),
        ("LIST none/*", 550),
        ("LIST *.ts/*", 550),
        ("MLSD *.ts", 501),
    ] {
        assert_eq!(raw.command(line), code, "{line}");
    }
}

#[test]
fn ftp_gets_many_by_a_pattern() {
    require_programs!("ftp");
    let site = Site::new(&[], |root| {
        fs::create_dir(root.join("in")).unwrap();
        for name in ["in/a.ts", "in/b.ts", "in/c.mp4"] {
            fs::write(root.join(name), name).unwrap();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let port = site.ftp.port();
    let words = "user anonymous x\nbinary\ncd in\nmget *.ts\nquit\n";
    let script = format!("printf '{words}' | ftp -i -n -p 127.0.0.1 {port}");
    run(folder.path(), "sh", &["-c", &script]);
    for name in ["a.ts", "b.ts"] {
        let got = fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(got, format!("in/{name}"));
    }
    assert!(!folder.path().join("c.mp4").exists());
}

/// A client that mirrors a folder removes what it is not told of.
#[test]
fn a_listing_that_is_cut_does_not_end_well() {
    let site = Site::new(&[], |root| {
        fs::create_dir(root.join("in")).unwrap();
        for number in 0..=FOLDER_ENTRIES_MAX {
            fs::write(root.join(format!("in/{number}")), []).unwrap();
        }
    });
    let mut raw = log_in(&site);
    let mut ends_by = |code: u16| {
        for command in ["MLSD in", "LIST in", "NLST in/*"] {
            let (listed, found) = fetch(&mut raw, command);
            let lines = String::from_utf8(listed).unwrap().lines().count();
            assert_eq!((lines, found), (FOLDER_ENTRIES_MAX, code), "{command}");
        }
    };
    ends_by(451);
    fs::remove_file(site.path("in/0")).unwrap();
    ends_by(226);
}

#[test]
fn data_goes_to_the_client_and_comes_from_nobody_else() {
    let site = Site::plain(&[]);
    let mut raw = log_in(&site);
    for line in [
        "PORT 192,0,2,1,200,0",
        "PORT 127,0,0,2,200,0",
        "EPRT |1|192.0.2.1|51200|",
        "EPRT |2|::1|51200|",
        "PORT 127,0,0,1,0,25",
    ] {
        assert_eq!(raw.command(line), 501, "{line}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for line in [
        format!("PORT 127,0,0,1,{},{}", port / 256, port % 256),
        format!("EPRT |1|127.0.0.1|{port}|"),
    ] {
        assert_eq!(raw.command(&line), 200);
        assert_eq!(raw.command("RETR film.ts"), 150);
        let mut got = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
        assert!(got == bytes(FILM_BYTES));
        assert_eq!(raw.reply().0, 226);
    }
    // Somebody else is quicker, and gets nothing.
    let at = passive(&mut raw, "PASV");
    let stranger =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    stranger
        .bind(&SocketAddr::from(([127, 0, 0, 9], 0)).into())
        .unwrap();
    stranger.connect(&at.into()).unwrap();
    let mut own = Raw::connect(at);
    assert_eq!(raw.command("RETR film.ts"), 150);
    while own.receive() > 0 {}
    assert!(own.received == bytes(FILM_BYTES));
    assert_eq!(raw.reply().0, 226);
    let mut got = Vec::new();
    let read = (&stranger).read_to_end(&mut got);
    assert!(got.is_empty(), "{read:?}");
    assert_eq!(raw.command("EPSV ALL"), 200);
    assert_eq!(raw.command("PASV"), 501);
}

#[test]
fn active_data_comes_from_where_the_client_went() {
    let site = Site::plain(&["--ftp=127.0.0.2:0"]);
    let line = site
        .server
        .wait_for_line("listening  ftp://127.0.0.2:", LONG);
    let line = line.unwrap();
    let address = line.rsplit("//").next().unwrap().trim_end_matches('/');
    let mut raw = log_in_at(address.parse().unwrap());
    let own = raw.stream.local_addr().unwrap().ip();
    let listener = TcpListener::bind((own, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(raw.command(&format!("EPRT |1|{own}|{port}|")), 200);
    assert_eq!(raw.command("RETR film.ts"), 150);
    let (mut data, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "127.0.0.2");
    let mut got = Vec::new();
    data.read_to_end(&mut got).unwrap();
    assert!(got == bytes(FILM_BYTES));
    assert_eq!(raw.reply().0, 226);
}

#[test]
fn passive_ports_are_those_of_the_option() {
    // It has never listened: whoever else has a copy of it for a moment, a command that another
    // test starts, is in nobody's way.
    let free = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    free.set_reuse_address(true).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    free.bind(&any.into()).unwrap();
    let free = free.local_addr().unwrap().as_socket().unwrap().port();
    let site = Site::plain(&[&format!("--ftp-ports={free}-{free}")]);
    let mut raw = log_in(&site);
    assert_eq!(passive(&mut raw, "EPSV").port(), free);
    let mut other = log_in(&site);
    assert_eq!(other.command("EPSV"), 425);
}

#[test]
fn transfers_are_aborted_and_answered_beside() {
    let site = Site::new(&[], |root| {
        fs::write(root.join("large.ts"), bytes(64 << 20)).unwrap()
    });
    for abort in [&b"ABOR\r\n"[..], b"\xff\xf4\xff\xf2ABOR\r\n"] {
        let mut raw = log_in(&site);
        let mut data = Raw::connect(passive(&mut raw, "EPSV"));
        assert_eq!(raw.command("RETR large.ts"), 150);
        assert!(data.receive() > 0);
        raw.send("STAT\r\n");
        assert!(raw.reply().1.contains("moving a file; "));
        assert_eq!(raw.command("NOOP"), 200);
        raw.send(abort);
        assert_eq!((raw.reply().0, raw.reply().0), (426, 226));
        while data.receive() > 0 {}
        assert!(data.received.len() < 64 << 20);
        // And the session goes on.
        assert_eq!(raw.command("REST 67108854"), 350);
        assert!(fetch(&mut raw, "RETR large.ts").0 == bytes(64 << 20)[67_108_854..]);
        // A command that is sent early is carried out afterwards.
        let mut data = Raw::connect(passive(&mut raw, "EPSV"));
        raw.send("RETR large.ts\r\nPWD\r\nNOOP\r\n");
        while data.receive() > 0 {}
        let codes: Vec<_> = (0..4).map(|_| raw.reply().0).collect();
        assert_eq!(codes, [150, 226, 257, 200]);
    }
}

#[test]
fn transfers_that_end_early_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let site = Site::new(&[&format!("--access-log={}", log.display())], |root| {
        fs::write(root.join("large.ts"), bytes(64 << 20)).unwrap()
    });
    for (count, is_aborted) in [(1, true), (2, false)] {
        let mut raw = log_in(&site);
        let mut data = Raw::connect(passive(&mut raw, "EPSV"));
        assert_eq!(raw.command("RETR large.ts"), 150);
        assert!(data.receive() > 0);
        if is_aborted {
            raw.send("ABOR\r\n");
            assert_eq!((raw.reply().0, raw.reply().0), (426, 226));
        }
        // The data connection is there until it is logged.
        drop(raw);
        wait_for_log(&log, "\"RETR /large.ts FTP\" 426 ", count);
    }
}

/// Python's ftplib sends all of it as urgent, lftp the first byte, and BSD's ftp the third.
#[test]
fn urgent_bytes_of_an_abort_are_read() {
    let site = Site::new(&[], |root| {
        fs::write(root.join("large.ts"), bytes(64 << 20)).unwrap()
    });
    for (before, urgent, after) in [
        (&b""[..], &b"ABOR\r\n"[..], &b""[..]),
        (b"", b"\xff", b"\xf4\xff\xf2ABOR\r\n"),
        (b"\xff\xf4", b"\xff", b"\xf2ABOR\r\n"),
    ] {
        let mut raw = log_in(&site);
        let mut data = Raw::connect(passive(&mut raw, "EPSV"));
        assert_eq!(raw.command("RETR large.ts"), 150);
        assert!(data.receive() > 0);
        raw.send(before);
        let socket = socket2::SockRef::from(&raw.stream);
        assert_eq!(socket.send_out_of_band(urgent).unwrap(), urgent.len());
        raw.send(after);
        assert_eq!((raw.reply().0, raw.reply().0), (426, 226));
        while data.receive() > 0 {}
        assert_eq!(raw.command("NOOP"), 200);
    }
}

#[test]
fn a_command_in_two_pieces_waits_for_a_transfer() {
    let site = Site::new(&[], |root| {
        fs::write(root.join("large.ts"), bytes(64 << 20)).unwrap()
    });
    let mut raw = log_in(&site);
    let mut data = Raw::connect(passive(&mut raw, "EPSV"));
    assert_eq!(raw.command("RETR large.ts"), 150);
    assert!(data.receive() > 0);
    raw.send("STAT\r\nPW");
    assert_eq!(raw.reply().0, 211, "it reads what came");
    raw.send("D\r\n");
    thread::sleep(Duration::from_millis(50));
    while data.receive() > 0 {}
    assert_eq!((raw.reply().0, raw.reply().0), (226, 257));
}

/// An end of the data connection is the end of the file, so a file that is cut must not just end.
#[test]
fn a_file_that_is_cut_is_not_taken_for_a_whole_one() {
    let site = Site::new(&[], |root| {
        fs::write(root.join("victim.ts"), bytes(64 << 20)).unwrap()
    });
    let mut raw = log_in(&site);
    let mut data = Raw::connect(passive(&mut raw, "EPSV"));
    assert_eq!(raw.command("RETR victim.ts"), 150);
    assert!(data.receive() > 0);
    File::options()
        .write(true)
        .open(site.path("victim.ts"))
        .unwrap()
        .set_len(40 << 20)
        .unwrap();
    let mut buffer = vec![0; 1 << 16];
    let end = loop {
        match data.stream.read(&mut buffer) {
            Ok(0) => break "an end",
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
                break "a reset";
            }
        }
    };
    assert_eq!((end, raw.reply().0), ("a reset", 451));
    assert_eq!(raw.command("NOOP"), 200);
}

// SPECIFICATION.md: 41
#[test]
fn nothing_outside_is_ever_reached() {
    let site = Site::plain(&[]);
    fs::write(site.media.path().join("secret"), "secret").unwrap();
    symlink("../secret", site.path("link")).unwrap();
    symlink("..", site.path("up")).unwrap();
    fs::write(site.path(".hidden"), "secret").unwrap();
    drop(UnixListener::bind(site.path("socket")).unwrap());
    let fifo = Command::new("mkfifo").arg(site.path("fifo")).status();
    assert!(fifo.unwrap().success());
    let mut raw = log_in(&site);
    for name in [
        "../secret",
        "/../secret",
        "link",
        "up/secret",
        "socket",
        "fifo",
        ".hidden",
        "/etc/passwd",
        "folder/../../secret",
    ] {
        assert_eq!(raw.command(&format!("RETR {name}")), 550, "{name}");
        assert_eq!(raw.command(&format!("SIZE {name}")), 550, "{name}");
    }
    assert_eq!(
        (raw.command("CWD up"), raw.command("CWD ../..")),
        (550, 250)
    );
    let (names, _) = fetch(&mut raw, "NLST");
    assert_eq!(
        String::from_utf8(names).unwrap(),
        "folder\r\nempty\r\nfilm.ts\r\n"
    );
}

#[test]
fn sessions_have_their_bounds() {
    let site = Site::plain(&["--download-connections-max=1"]);
    let raw = log_in(&site);
    let mut second = Raw::connect(site.ftp);
    assert_eq!(second.reply().0, 421);
    assert!(second.is_closed());
    drop(raw);
    let site = Site::plain(&["--download-idle-time-max=4s", "--download-head-time-max=4s"]);
    let [mut silent, mut begun] = [(); 2].map(|()| log_in(&site));
    begun.send("NO");
    assert_eq!(silent.reply().0, 421);
    assert!(silent.is_closed());
    assert_eq!(begun.reply().0, 421);
    let mut long = log_in(&site);
    assert_eq!(long.command(&format!("RETR {}", "x".repeat(5000))), 500);
    assert_eq!(long.command("NOOP"), 200);
    // Who hangs up while it is sent something ends only that.
    drop(log_in(&site));
    thread::sleep(Duration::from_millis(10));
    assert_eq!(log_in(&site).command("QUIT"), 221);
}
