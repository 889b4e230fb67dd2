//! Mistakes, each planted in a file: where each is found, and what is said to do about it.

use std::fs;

use super::MISTAKES_MAX;
use super::keys::Keys;
use super::merge;
use super::read::{Mistake, position};

/// The mistakes of a file alone.
fn mistakes(keys: &Keys, text: &str) -> Vec<Mistake> {
    super::mistakes(keys, text, |_| None)
}

/// Text, where its mistake is, and what is said of it, in order.
type Planted = (&'static str, (usize, usize), &'static [&'static str]);

const OF_KEYS: &[Planted] = &[
    (
        "[server]\nburts = \"5ms\"",
        (2, 1),
        &["server.burts", "did you mean burst?"],
    ),
    (
        "[server]\nrtp-headers = \"own\"",
        (2, 1),
        &["write rtp_headers"],
    ),
    ("[server]\nBurst = \"5ms\"", (2, 1), &["write burst"]),
    (
        "[server]\nsessions_max = 5",
        (2, 1),
        &["write [limits], and sessions_max below it"],
    ),
    (
        "[tls]\ntls_key = \"a\"",
        (2, 1),
        &["in this section it is called key"],
    ),
    (
        "[downloads]\nhls_window = \"1min\"",
        (2, 1),
        &["write [hls], and window below it"],
    ),
    (
        "[hls]\nqqqq = 1",
        (2, 1),
        &["there is no such key; write window"],
    ),
    (
        "[lsiten]\nrtsp = 1",
        (1, 2),
        &["lsiten", "did you mean [listen]?"],
    ),
    (
        "[zzz]",
        (1, 2),
        &[
            "no such section; write [library]",
            "[[library]]",
            "[[channel]]",
        ],
    ),
    ("[chanel]", (1, 2), &["did you mean [[channel]]?"]),
    (
        "burst = \"5ms\"",
        (1, 1),
        &["write [server], and burst below it"],
    ),
    (
        "listen = 8554",
        (1, 1),
        &["write [listen], and its keys below it"],
    ),
    ("[[listen]]\nrtsp = 1", (1, 3), &["write [listen], once"]),
    ("[channel]\nname = \"tv\"", (1, 2), &["write [[channel]]"]),
    (
        "[listen]\nrtsp = 1\n[listen]\nhttp = 2",
        (3, 2),
        &["not TOML", "duplicate key"],
    ),
    ("[server]\nburst = 20ms", (2, 9), &["not TOML"]),
    ("[server\nburst = 1", (1, 8), &["not TOML", "`]`"]),
    ("[server]\nburst \"5ms\"", (2, 7), &["not TOML", "`=`"]),
];

const OF_VALUES: &[Planted] = &[
    (
        "[server]\nburst = \"2s\"",
        (2, 9),
        &["server.burst", "allowed is 1ms to 1s"],
    ),
    ("[server]\nburst = \"20\"", (2, 9), &["as in 20ms"]),
    (
        "[server]\nburst = 20",
        (2, 9),
        &["with a unit: burst = \"20ms\""],
    ),
    ("[server]\ncache = \"8\"", (2, 9), &["as in 512MiB"]),
    (
        "[server]\ncache = 8",
        (2, 9),
        &["with a unit: cache = \"512MiB\""],
    ),
    (
        "[server]\ncache = \"1EiB\"",
        (2, 9),
        &["B, KiB, MiB, GiB, TiB"],
    ),
    (
        "[server]\nload_max = 101",
        (2, 12),
        &["allowed is 0 to 100"],
    ),
    (
        "[server]\nload_max = \"90\"",
        (2, 12),
        &["write load_max = 90, without quotes"],
    ),
    (
        "[server]\ncores = 1",
        (2, 9),
        &["write a string: cores = \"1\""],
    ),
    ("[server]\ncores = \"3-1\"", (2, 9), &["as in 0,2-3"]),
    (
        "[server]\npath = \"sendfile\"",
        (2, 8),
        &["sendfile", "uring_registered_zc"],
    ),
    (
        "[server]\nfallback_bitrate = \"4\"",
        (2, 20),
        &["as in 4Mbit/s"],
    ),
    (
        "[server]\nrtp_headers = \"mine\"",
        (2, 15),
        &["auto", "shared", "own"],
    ),
    (
        "[listen]\nrtsp = \"nowhere\"",
        (2, 8),
        &["as in 127.0.0.1:8554"],
    ),
    (
        "[listen]\nrtsp = [554, 70000]",
        (2, 14),
        &["listen.rtsp[1]", "as in 127.0.0.1:8554"],
    ),
    (
        "[listen]\nrtsp = true",
        (2, 8),
        &["write a port, as in 8554"],
    ),
    (
        "[listen]\nmetrics = [9554]",
        (2, 11),
        &["leave the brackets out"],
    ),
    (
        "[listen]\nrtp_ports = \"20001-20002\"",
        (2, 13),
        &["FIRST even"],
    ),
    (
        "[limits]\nsessions_max = 0",
        (2, 16),
        &["from 1 to 1000000"],
    ),
    (
        "[limits]\nsessions_max = \"5\"",
        (2, 16),
        &["sessions_max = 5, without quotes"],
    ),
    ("[limits]\nsessions_max = 0x10", (2, 16), &["in decimal"]),
    (
        "[channels]\non_demand = \"yes\"",
        (2, 13),
        &["write true or false"],
    ),
    ("[log]\nformat = \"xml\"", (2, 10), &["write text or json"]),
    (
        "[multicast]\ngroups = \"192.0.2.0/24\"",
        (2, 10),
        &["multicast.groups"],
    ),
    ("[multicast]\nttl = 256", (2, 7), &["255"]),
    (
        "[downloads]\nschedule = \"fast\"",
        (2, 12),
        &["write fair, adaptive"],
    ),
    ("[tls]\nmode = \"yes\"", (2, 8), &["write self-signed"]),
    (
        "[[channel]]\nname = \"a b\"\ninput = 5004",
        (2, 8),
        &["as in \"tv\""],
    ),
    (
        "[[channel]]\ninput = 5004",
        (1, 1),
        &["write name = \"tv\""],
    ),
    (
        "[[channel]]\nname = \"tv\"",
        (1, 1),
        &["write input = 5004"],
    ),
    (
        "[[channel]]\nname = \"tv\"\ninput = 0",
        (3, 9),
        &["channel[0].input", "needs a port"],
    ),
    (
        "[[channel]]\nname = \"tv\"\ninput = \"rtsp://\"",
        (3, 9),
        &["write rtsp://[USER:PASSWORD@]HOST"],
    ),
    (
        "[[channel]]\nname = \"tv\"\ninput = 5004\nto = \"239.0.0.1:1\"",
        (4, 6),
        &["channel[0].to", "multicast"],
    ),
];

const BETWEEN_KEYS: &[Planted] = &[
    (
        "[tls]\ncertificate = \"a.pem\"",
        (2, 15),
        &["write tls.key, too"],
    ),
    (
        "[tls]\nkey = \"a.pem\"",
        (2, 7),
        &["write tls.certificate, too"],
    ),
    (
        "[listen]\nrtsps = 8322",
        (2, 9),
        &["write tls.mode or tls.certificate, too"],
    ),
    (
        "[tls]\nudp = true",
        (2, 7),
        &["write tls.mode or tls.certificate, too"],
    ),
    (
        "[channels]\ndelay = \"20ms\"",
        (2, 9),
        &["write channel.input, too"],
    ),
    (
        "[users]\njwt_audience = \"me\"",
        (2, 16),
        &["write users.jwt_keys, too"],
    ),
    (
        "[multicast]\ngroups = \"239.1.2.0/24\"\nalways = \"live/tv\"",
        (3, 10),
        &["multicast.always", "write multicast.from, too"],
    ),
    (
        "[tls]\nmode = \"self-signed\"\ncertificate = \"a\"\nkey = \"b\"",
        (3, 15),
        &["not beside tls.mode: leave one of them out"],
    ),
    (
        "[tls]\ncertificate = [\"a\", \"b\"]\nkey = [\"c\"]",
        (2, 21),
        &["2 certificates and 1 keys", "give each certificate its key"],
    ),
    (
        "[listen]\nrtsp = 8554\nhttp = 8554",
        (3, 8),
        &["port 8554 is taken by listen.rtsp"],
    ),
    (
        "[listen]\nrtsp = [554, \"127.0.0.1:554\"]",
        (2, 14),
        &[
            "listen.rtsp[1]",
            "taken by listen.rtsp already: write another",
        ],
    ),
    (
        "[listen]\nhttp = 8554",
        (2, 8),
        &["taken by rtsp, which is there by default,"],
    ),
    (
        "[[channel]]\nname = \"a\"\ninput = 1\n[[channel]]\nname = \"a\"\ninput = 2",
        (6, 9),
        &["channel[0] is named a, too: give this one another name"],
    ),
    (
        "[[channel]]\nname = \"a\"\ninput = 1\n[[channel]]\nname = \"b\"\ninput = 1",
        (6, 9),
        &["port 1 is taken by channel[0].input"],
    ),
    (
        "[[channel]]\nname = \"a\"\ninput = 1\n[channels]\ntoken_file = \"/no\"",
        (5, 14),
        &["there is no control API; add listen.api 8555"],
    ),
];

const OF_THE_MACHINE: &[Planted] = &[
    (
        "[library]\nfolder = \"/no/such\"",
        (2, 10),
        &["/no/such", "check the name"],
    ),
    (
        "[library]\nfolder = \"/dev/null\"",
        (2, 10),
        &["name the directory"],
    ),
    (
        "[library]\nstate = \"/dev/null\"",
        (2, 9),
        &["not a directory; name another"],
    ),
    (
        "[users]\nfile = \"/no/such\"",
        (2, 8),
        &["users.file", "/no/such"],
    ),
    (
        "[users]\nurl_keys = \"/no/such\"",
        (2, 12),
        &["users.url_keys", "/no/such"],
    ),
    (
        "[users]\njwt_keys = \"/no/such\"",
        (2, 12),
        &["users.jwt_keys", "/no/such"],
    ),
    (
        "[users]\nauth_hook = \"ftp://x\"",
        (2, 13),
        &["users.auth_hook"],
    ),
    (
        "[tls]\ncertificate = \"/no/a\"\nkey = \"/no/b\"",
        (2, 15),
        &["/no/a", "name a file in PEM"],
    ),
    (
        "[log]\naccess = \"/no/such/access.log\"",
        (2, 10),
        &["there is no directory /no/such"],
    ),
    (
        "[server]\ncores = \"1023\"",
        (2, 9),
        &["processor 1023 is none of those that there are"],
    ),
    (
        "[[channel]]\nname = \"a\"\ninput = 1\nmembers = \"/no/such\"",
        (4, 11),
        &["channel[0].members", "/no/such", "check the name"],
    ),
];

#[test]
fn planted_mistakes_are_told_with_place_and_remedy() {
    let keys = Keys::new();
    let all = [OF_KEYS, OF_VALUES, BETWEEN_KEYS, OF_THE_MACHINE];
    let all: Vec<_> = all.into_iter().flatten().collect();
    assert!(all.len() >= 50, "{}", all.len());
    let mut wrong = Vec::new();
    for (text, place, said) in all {
        let found = mistakes(&keys, text);
        let told: Vec<_> = found
            .iter()
            .map(|it| (position(text, it.at), format!("{}: {}", it.path, it.reason)))
            .collect();
        let is_told = |(at, line): &&((usize, usize), String)| {
            at == place && said.iter().all(|word| line.contains(word))
        };
        if told.iter().filter(is_told).count() != 1 || told.len() != 1 {
            wrong.push(format!(
                "{text:?}\n  wanted {place:?} {said:?}\n  told {told:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn mistakes_of_all_kinds_are_told_at_once() {
    let keys = Keys::new();
    let text = "[listen]\nrtsp = 80\nhttp = 80\n[server]\nburts = 1\ncache = \"1\"\n";
    let lines: Vec<_> = mistakes(&keys, text)
        .iter()
        .map(|it| position(text, it.at).0)
        .collect();
    assert_eq!(lines, [3, 5, 6]);
}

#[test]
fn a_file_of_users_that_is_none_is_told_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    fs::write(&path, "no such line\n").unwrap();
    let text = format!("[users]\nfile = \"{}\"", path.display());
    let found = mistakes(&Keys::new(), &text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].reason.contains("line 1"), "{found:?}");
}

/// Also where some are of what is written, and some of how it stands to the rest.
#[test]
fn so_many_mistakes_are_told_and_no_more() {
    let (names, ports) = (MISTAKES_MAX - 20, 20);
    for (beside, told) in [(0, ""), (1, "; 1 more mistake, "), (9, "; 9 more")] {
        let sections = (0..names + beside).map(|n| format!("[x{n}]\n"));
        let channels = (0..=ports).map(|n| format!("[[channel]]\nname = \"c{n}\"\ninput = 5004\n"));
        let found = mistakes(&Keys::new(), &channels.chain(sections).collect::<String>());
        assert_eq!(found.len(), MISTAKES_MAX);
        let reason = &found.last().unwrap().reason;
        assert_eq!(reason.contains("more"), beside > 0, "{reason}");
        assert!(reason.contains(told), "{reason}");
    }
}

/// What is right is right: all of it together, with nothing said of it.
#[test]
fn a_file_that_says_much_has_no_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[library]\nfolder = {:?}\nstate = \"off\"\n\
         [listen]\nrtsp = [554, \"127.0.0.1:8554\"]\nhttp = 80\nmetrics = \"off\"\napi = 8555\n\
         [server]\nburst = \"5ms\"\nload_max = 80.5\n\
         [[channel]]\nname = \"tv\"\ninput = 5004\nto = [\"127.0.0.1:6000\"]\n\
         [[channel]]\nname = \"door\"\ninput = \"rtsp://camera.example/1\"\n\
         [channels]\ndelay = \"20ms\"\non_demand = true\n\
         [tls]\nmode = \"self-signed\"\nudp = true\n\
         [multicast]\ngroups = \"239.1.2.0/24\"\nfrom = \"127.0.0.1\"\nalways = [\"live/tv\"]\n\
         [limits]\nsessions_max = 5\n",
        folder.path()
    );
    assert_eq!(mistakes(&Keys::new(), &text), []);
}

/// What is told of a file in an environment, as it is printed.
fn told_with(variables: &[(&str, &str)], text: &str) -> Vec<String> {
    let variable = |name: &str| {
        let found = variables.iter().find(|(of, _)| *of == name);
        found.map(|(_, value)| value.into())
    };
    let found = super::mistakes(&Keys::new(), text, variable);
    let line = |it| merge::line("f".as_ref(), text, it);
    found.iter().map(line).collect()
}

/// As `onrush serve` would find it: what stands beside the file can be wrong, or make the file so.
#[test]
fn variables_are_judged_with_the_file() {
    let text = "[listen]\nrtsp = 80\nhttp = 81\n";
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (
            &[("ONRUSH_BURST", "2s")],
            text,
            &["ONRUSH_BURST: is \"2s\": ", "allowed is 1ms to 1s"],
        ),
        (
            &[("ONRUSH_TLS_UDP", "yes")],
            text,
            &["ONRUSH_TLS_UDP: is \"yes\": write true or false"],
        ),
        (
            &[("ONRUSH_METRICS", "80")],
            text,
            &["f:2:8: listen.rtsp: port 80 is taken by ONRUSH_METRICS already"],
        ),
        (
            &[("ONRUSH_TLS_CERTIFICATE", "/no/such")],
            text,
            &["ONRUSH_TLS_CERTIFICATE: of no use alone: write tls.key, too"],
        ),
        (
            &[("ONRUSH_TO", "tw=10.0.0.7:1")],
            "[[channel]]\nname = \"tv\"\ninput = 5004\n",
            &["ONRUSH_TO: ", "there are: tv"],
        ),
        (
            &[("ONRUSH_USERS", "/no/such")],
            text,
            &["ONRUSH_USERS: ", "/no/such"],
        ),
    ];
    for (variables, text, said) in cases {
        let told = told_with(variables, text);
        let is_told = said.iter().all(|it| told.concat().contains(it));
        assert!(told.len() == 1 && is_told, "{variables:?}: {told:#?}");
    }
}

/// In a section that has a name no value begins with one.
#[test]
fn keys_of_what_has_a_name_say_so() {
    let keys = Keys::new();
    let all = keys.sections().iter().flat_map(|section| &section.keys);
    for key in all.filter(|key| key.repeated.is_some()) {
        assert!(!key.help().contains("NAME="), "{}", key.path());
    }
    let to = told_with(&[], "[channels]\nto = [\"10.0.0.7:1\"]\n");
    assert!(
        to[0].contains("write [[channel]], and to below it"),
        "{to:?}"
    );
}

/// What serve would not take from the file is not judged; what it takes from nowhere else is.
#[test]
fn variables_stand_in_place_of_what_the_file_says() {
    let same_port = "[listen]\nrtsp = 80\nhttp = 80\n";
    assert_eq!(told_with(&[], same_port).len(), 1);
    assert_eq!(told_with(&[("ONRUSH_HTTP", "")], same_port).len(), 1);
    assert_eq!(told_with(&[("ONRUSH_HTTP", "81, 82")], same_port), [""; 0]);
    let members = "[[channel]]\nname = \"tv\"\ninput = 5004\nmembers = \"/no/such\"\n";
    assert_eq!(told_with(&[], members).len(), 1);
    assert_eq!(told_with(&[("ONRUSH_CHANNEL", "a=5004")], members), [""; 0]);
    let alone = "[tls]\nudp = true\n";
    assert_eq!(told_with(&[], alone).len(), 1);
    assert_eq!(told_with(&[("ONRUSH_TLS_UDP", "false")], alone), [""; 0]);
    assert_eq!(told_with(&[("ONRUSH_TLS", "self-signed")], alone), [""; 0]);
    // The server does not start with a value of the file that is none, whatever stands beside it.
    let wrong = "[server]\nburst = \"2s\"\n";
    assert_eq!(told_with(&[("ONRUSH_BURST", "5ms")], wrong).len(), 1);
}
