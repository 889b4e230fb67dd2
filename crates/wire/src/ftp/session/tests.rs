//! Tests of [`super`].

use proptest::prelude::*;

use super::*;
use crate::ftp::names_before;

struct Client(Session);

impl Client {
    fn new(ip: &str) -> Self {
        let mut client = Self(Session::new(ip.parse().unwrap(), false));
        assert_eq!(client.code("USER anonymous"), 331);
        assert_eq!(client.code("PASS x@y"), 230);
        client
    }

    fn act(&mut self, line: &str) -> Act {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        self.0.decide(&Command {
            verb: verb.to_owned(),
            argument: argument.to_owned(),
        })
    }

    fn code(&mut self, line: &str) -> u16 {
        match self.act(line) {
            Act::Reply(reply) | Act::Quit(reply) => reply.code,
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn nobody_gets_anything_before_logging_in() {
    let mut client = Client(Session::new("192.0.2.1".parse().unwrap(), false));
    for line in [
        "RETR a",
        "LIST",
        "PASV",
        "PORT 192,0,2,1,9,9",
        "CWD /",
        "STOR x",
        "NONE",
        "ABOR",
    ] {
        assert_eq!(client.code(line), 530, "{line}");
    }
    for (line, code) in [
        ("SYST", 215),
        ("FEAT", 211),
        ("HELP", 214),
        ("NOOP", 200),
        ("QUIT", 221),
    ] {
        assert_eq!(client.code(line), code, "{line}");
    }
    assert_eq!(client.code("PASS x"), 503);
    assert_eq!(
        (client.code("USER root"), client.code("PASS x")),
        (331, 530)
    );
    assert_eq!(client.code("LIST"), 530);
    assert_eq!((client.code("USER FTP"), client.code("PASS")), (331, 230));
}

#[test]
fn commands_get_their_replies() {
    let mut client = Client::new("192.0.2.1");
    for (line, code) in [
        ("TYPE I", 200),
        ("TYPE a n", 200),
        ("TYPE E", 504),
        ("MODE S", 200),
        ("MODE B", 504),
        ("STRU F", 200),
        ("STRU R", 504),
        ("PWD", 257),
        ("OPTS UTF8 ON", 200),
        ("OPTS X", 501),
        ("REST x", 501),
        ("REST -1", 501),
        ("REST +1", 501),
        ("REST", 501),
        ("STOR a", 550),
        ("DELE a", 550),
        ("AUTH TLS", 502),
        ("PROT P", 502),
        ("CCC", 502),
        ("NONE", 500),
        ("RETR", 501),
        ("SIZE", 501),
        ("CWD", 501),
        ("EPSV 3", 501),
        ("EPSV 2", 522),
        ("PORT 1,2", 501),
        ("EPRT x", 501),
        ("EPRT |3|x|1|", 522),
        ("STAT a", 504),
    ] {
        assert_eq!(client.code(line), code, "{line}");
    }
    assert_eq!(
        (client.act("ABOR"), client.act("STAT")),
        (Act::Abort, Act::Status)
    );
    assert_eq!(client.act("EPSV 1"), Act::Listen { is_extended: true });
    assert_eq!(client.act("PASV"), Act::Listen { is_extended: false });
    assert_eq!(client.code("EPSV ALL"), 200);
    assert_eq!(
        (client.code("PASV"), client.code("PORT 192,0,2,1,9,9")),
        (501, 501)
    );
    assert_eq!(client.act("EPSV"), Act::Listen { is_extended: true });
}

#[test]
fn a_session_is_encrypted_where_there_is_tls() {
    let mut client = Client(Session::new("192.0.2.1".parse().unwrap(), true).offering_tls(true));
    let features = client.0.features().to_bytes();
    let features = String::from_utf8(features).unwrap();
    assert!(
        features.contains("\r\n AUTH TLS\r\n PBSZ\r\n PROT\r\n"),
        "{features}"
    );
    for (line, code) in [
        ("PBSZ 0", 503),
        ("PROT P", 503),
        ("CCC", 503),
        ("AUTH", 504),
        ("AUTH GSSAPI", 504),
        ("USER ulla", 331),
    ] {
        assert_eq!(client.code(line), code, "{line}");
    }
    let Act::Encrypt { reply, has_data } = client.act("AUTH tls") else {
        panic!("it is there");
    };
    assert_eq!((reply.code, has_data), (234, false));
    client.0.encrypted(has_data);
    // Whose name it was that came in the clear, nobody knows.
    for (line, code) in [
        ("PASS secret", 503),
        ("AUTH TLS", 503),
        ("PROT P", 503),
        ("PBSZ", 501),
        ("PBSZ -1", 501),
        ("PBSZ 0", 200),
        ("PROT S", 536),
        ("PROT e", 536),
        ("PROT X", 504),
        ("CCC", 533),
    ] {
        assert_eq!(client.code(line), code, "{line}");
        assert!(!client.0.encrypts_data(), "{line}");
    }
    assert!(client.code("PROT P") == 200 && client.0.encrypts_data());
    assert!(client.code("PROT C") == 200 && !client.0.encrypts_data());
    client.0.logged_in();
    client.0.enter("a".to_owned());
    client.0.encrypted(true);
    assert!(client.0.encrypts_data());
    assert_eq!((client.code("PWD"), client.code("PROT C")), (530, 200));
    let old = Client::new("192.0.2.1").0.offering_tls(true);
    let act = Client(old).act("AUTH SSL");
    assert!(matches!(act, Act::Encrypt { has_data: true, .. }));
}

#[test]
fn files_are_changed_where_that_is_switched_on() {
    let mut client = Client::new("192.0.2.1");
    client.0 = client.0.clone().taking_uploads(true);
    client.0.enter("a".to_owned());
    let store = |how, announced_bytes| Act::Store {
        name: "a/b c".to_owned(),
        how,
        announced_bytes,
    };
    assert_eq!(client.act("STOR b c"), store(Store::From(0), None));
    assert_eq!(client.code("ALLO 7"), 200);
    assert_eq!(client.code("REST 5"), 350);
    assert_eq!(client.act("STOR b c"), store(Store::From(5), Some(7)));
    assert_eq!(client.act("APPE b c"), store(Store::Append, None));
    let change = |name: &str, change| Act::Change {
        name: name.to_owned(),
        change,
    };
    assert_eq!(client.act("DELE /b"), change("b", Change::Remove));
    assert_eq!(client.act("MKD b"), change("a/b", Change::MakeFolder));
    assert_eq!(client.act("RMD b"), change("a/b", Change::RemoveFolder));
    assert_eq!(client.code("RNTO b"), 503);
    assert_eq!(client.act("RNFR b"), change("a/b", Change::Rename));
    assert_eq!(client.0.may_rename("a/b".to_owned()).code, 350);
    let renamed = change("a/b", Change::RenameTo("a/c".to_owned()));
    assert_eq!(client.act("RNTO c"), renamed);
    assert_eq!(client.code("RNTO c"), 503, "once");
    let touched = change("a/b c", Change::SetModified(784_111_777));
    assert_eq!(client.act("MFMT 19941106084937.5 b c"), touched);
    for (line, code) in [
        ("MFMT 19941306084937 b", 501),
        ("MFMT 19941106084937", 501),
        ("ALLO x", 501),
        ("STOR", 501),
        ("RNTO", 501),
        ("STOU", 502),
        ("SITE CHMOD 644 b", 502),
    ] {
        assert_eq!(client.code(line), code, "{line}");
    }
}

#[test]
fn where_there_are_users_passwords_are_asked_about() {
    let mut client = Client(Session::new("192.0.2.1".parse().unwrap(), true));
    assert_eq!(client.code("PASS x"), 503);
    assert_eq!(client.code("USER Ann A"), 331);
    let log_in = |user: Option<&str>, password: &str| Act::LogIn {
        user: user.map(str::to_owned),
        password: password.to_owned().into(),
    };
    assert_eq!(client.act("PASS  a b"), log_in(Some("Ann A"), " a b"));
    assert_eq!(client.code("PWD"), 530, "nobody has said yes");
    assert_eq!(client.code("PASS again"), 503, "USER comes first each time");
    assert_eq!(client.code("USER Anonymous"), 331);
    assert_eq!(client.act("PASS a@b"), log_in(None, "a@b"));
    assert_eq!(client.0.logged_in().code, 230);
    assert_eq!(client.code("PWD"), 257);
    assert_eq!(client.code("PASS x"), 230);
    assert_eq!(client.code("USER other"), 331);
    assert_eq!(client.code("PWD"), 530, "who names another is out");
}

#[test]
fn data_goes_to_the_client_itself_and_nowhere_else() {
    let mut client = Client::new("::ffff:192.0.2.1");
    let own = Act::Connect("192.0.2.1:2313".parse().unwrap());
    assert_eq!(client.act("PORT 192,0,2,1,9,9"), own);
    assert_eq!(client.act("EPRT |1|192.0.2.1|2313|"), own);
    for line in [
        "PORT 192,0,2,2,9,9",
        "PORT 127,0,0,1,9,9",
        "EPRT |1|192.0.2.2|2313|",
        "EPRT |2|::1|2313|",
        "PORT 192,0,2,1,0,25",
        "EPRT |1|192.0.2.1|1023|",
        "PORT 192,0,2,1,9,256",
        "EPRT |1|192.0.2.1|65536|",
        "EPRT |1|192.0.2.1|+2313|",
    ] {
        assert_eq!(client.code(line), 501, "{line}");
    }
    let mut client = Client::new("2001:db8::1");
    assert_eq!(
        client.act("EPRT !2!2001:db8::1!1024!"),
        Act::Connect("[2001:db8::1]:1024".parse().unwrap())
    );
    assert_eq!(client.code("EPSV 1"), 522);
}

#[test]
fn names_are_resolved_against_the_folder() {
    let mut client = Client::new("192.0.2.1");
    let retrieve = |name: &str, start_bytes| Act::Retrieve {
        name: name.to_owned(),
        start_bytes,
    };
    assert_eq!(
        client.act("CWD a b"),
        Act::ChangeFolder {
            name: "a b".to_owned()
        }
    );
    assert_eq!(client.0.enter("a b".to_owned()).text, "now in \"/a b\"");
    assert_eq!(client.act("RETR c"), retrieve("a b/c", 0));
    assert_eq!(client.act("RETR /c"), retrieve("c", 0));
    assert_eq!(
        client.act("RETR ../../../etc/passwd"),
        retrieve("etc/passwd", 0)
    );
    assert_eq!(
        client.act("CDUP"),
        Act::ChangeFolder {
            name: String::new()
        }
    );
    assert_eq!(client.code("REST 5000000000"), 350);
    assert_eq!(client.act("RETR c"), retrieve("a b/c", 5_000_000_000));
    assert_eq!(client.act("RETR c"), retrieve("a b/c", 0));
    let list = |name: &str, argument: &str, style| Act::List {
        name: name.to_owned(),
        argument: argument.to_owned(),
        style,
    };
    assert_eq!(client.act("LIST -la"), list("a b", "", Style::Long));
    assert_eq!(client.act("LIST -l /x y"), list("x y", "/x y", Style::Long));
    assert_eq!(client.act("NLST"), list("a b", "", Style::Names));
    assert_eq!(client.code("OPTS MLST size;"), 200);
    assert!(
        matches!(client.act("MLSD"), Act::List { style: Style::Machine(f),
            .. } if f.names() == "Size;")
    );
}

proptest! {
    #[test]
    fn names_never_climb(path in "(/|\\.|\\.\\.|a|-| ){0,12}", verb in "RETR|CWD|LIST|MLST") {
        let mut client = Client::new("192.0.2.1");
        client.0.enter("x/y".to_owned());
        if let Act::Retrieve { name, .. } | Act::ChangeFolder { name } | Act::List { name, .. }
            | Act::Facts { name }
            = client.act(&format!("{verb} {path}")) {
            prop_assert!(name.is_empty() || name.split('/').all(|p| !["", ".",
                ".."].contains(&p)), "{name}");
        }
    }

    #[test]
    fn listed_names_are_arguments(path in "(/|\\.|\\.\\.|a|-| ){0,12}", more in 0..100_usize) {
        let mut client = Client::new("192.0.2.1");
        client.0.enter("x/y".to_owned());
        let line = format!("NLST {}{path}", "./".repeat(more));
        let Act::List { name, argument, .. } = client.act(&line) else {
            panic!("{line}");
        };
        let listed = names_before(&name, &argument, true) + "film";
        let below = format!("{name}/film");
        prop_assert!(listed.len() < below.len() + 100);
        let retrieve = Act::Retrieve {
            name: below.trim_start_matches('/').to_owned(),
            start_bytes: 0,
        };
        prop_assert_eq!(client.act(&format!("RETR {listed}")), retrieve);
    }

    #[test]
    fn noise_never_panics(verb in "[A-Z]{3,4}|EPRT|PORT|REST|OPTS", argument in "\\PC{0,40}") {
        let _any = Client::new("192.0.2.1").0.decide(&Command { verb, argument });
    }
}
