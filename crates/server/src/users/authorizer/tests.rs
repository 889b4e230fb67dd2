//! Requests of all kinds against a file of users, keys and a hook.

use std::fs;
use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures_util::FutureExt;
use futures_util::future::join_all;
use onrush_wire::auth::{Carried, Grant, Rights, ha1};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use tempfile::TempDir;

use super::super::attempts::{WRONG_PASSWORD_TIME_MAX, WRONG_PASSWORDS_MAX};
use super::super::config::{HookConfig, JwtConfig, JwtKeys};
use super::super::file::{Secret, with_user};
use super::super::password::argon2;
use super::super::testing::{answer, serve};
use super::*;
use crate::testing::block_on;

const KEY: &str = "a key that nobody can guess";
const LOCAL: [u8; 4] = [127, 0, 0, 1];
const FAR: [u8; 4] = [192, 0, 2, 1];

const ASKED: Asked<'_> = Asked {
    protocol: Protocol::Rtsp,
    peer: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    is_encrypted: false,
    is_behind_proxy: false,
    is_of_page: false,
    action: Action::Play,
    path: "film.ts",
    method: "DESCRIBE",
    uri: "rtsp://host/film.ts",
    authorization: None,
};

/// One of anna (Digest, all films) and bert (Argon2, likewise); everybody may play trailers.
fn authorizer(change: impl FnOnce(&mut UsersConfig)) -> (Rules, TempDir) {
    let (config, folder) = settings(change);
    (Rules::open(&config, Arc::default()).unwrap(), folder)
}

fn settings(change: impl FnOnce(&mut UsersConfig)) -> (UsersConfig, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let rules =
        "realm films\ngroup viewers play,download /*.ts\ngroup everybody play /trailers/**\n";
    let anna = Secret::digest(&Algorithm::ALL, "anna", "films", "secret");
    let groups = ["viewers".to_owned()];
    let text = with_user(rules, "anna", &groups, &anna).unwrap();
    let bert = Secret::Argon2(argon2("hidden"));
    let text = with_user(&text, "bert", &groups, &bert).unwrap();
    let (file, keys) = (folder.path().join("users"), folder.path().join("keys"));
    fs::write(&file, text).unwrap();
    fs::write(&keys, KEY).unwrap();
    let mut config = UsersConfig {
        file: Some(file),
        url_keys: Some(keys),
        ..UsersConfig::default()
    };
    change(&mut config);
    (config, folder)
}

fn ask(authorizer: &Rules, asked: &Asked<'_>) -> Result<(), Refusal> {
    block_on(authorizer.authorize(asked))
}

fn with<'a>(authorization: &'a str, peer: [u8; 4]) -> Asked<'a> {
    Asked {
        authorization: Some(authorization),
        peer: peer.into(),
        ..ASKED
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn challenges(refusal: Result<(), Refusal>) -> Vec<String> {
    match refusal {
        Err(Refusal::LogIn { challenges, .. }) => challenges,
        other => panic!("{other:?}"),
    }
}

fn is_stale(refusal: Result<(), Refusal>) -> bool {
    challenges(refusal)[0].contains("stale=true")
}

fn nonce(challenges: &[String]) -> String {
    challenges[0].split('"').nth(3).unwrap().to_owned()
}

/// What a client answers; without a count as RFC 2069 has it.
fn digest(algorithm: Algorithm, password: &str, nonce: &str, count: Option<u32>) -> String {
    let uri = ASKED.uri;
    // A hash of the parts, from what makes HA1: no other is public.
    let hash = |a: &str, b: &str, c: &str| ha1(algorithm, a, b, c);
    let secret = hash("anna", "films", password);
    let ha2 = {
        let (method, rest) = (ASKED.method, uri);
        let (scheme, rest) = rest.split_once(':').unwrap();
        hash(method, scheme, rest)
    };
    let name = algorithm.as_str();
    let begin =
        format!("Digest username=\"anna\", realm=\"films\", nonce=\"{nonce}\", uri=\"{uri}\"");
    match count {
        None => {
            let response = hash(&secret, nonce, &ha2);
            format!("{begin}, response=\"{response}\", algorithm={name}")
        }
        Some(count) => {
            let response = hash(&secret, nonce, &format!("{count:08x}:c:auth:{ha2}"));
            format!(
                "{begin}, response=\"{response}\", algorithm={name}, qop=auth, nc={count:08x}, \
                 cnonce=\"c\""
            )
        }
    }
}

#[test]
fn without_configuration_all_but_publishing_is_open() {
    let open = Rules::open(&UsersConfig::default(), Arc::default()).unwrap();
    for (action, peer, is_allowed) in [
        (Action::Play, FAR, true),
        (Action::Download, FAR, true),
        (Action::Publish, FAR, false),
        (Action::Admin, FAR, false),
        (Action::Publish, LOCAL, true),
    ] {
        let asked = Asked {
            action,
            peer: peer.into(),
            authorization: Some("noise"),
            ..ASKED
        };
        assert_eq!(
            ask(&open, &asked).is_ok(),
            is_allowed,
            "{action:?} {peer:?}"
        );
    }
    let of_proxy = Asked {
        action: Action::Publish,
        peer: LOCAL.into(),
        is_behind_proxy: true,
        ..ASKED
    };
    assert!(ask(&open, &of_proxy).is_err());
}

#[test]
fn digest_lets_a_user_in_by_either_function_and_form() {
    let (authorizer, _folder) = authorizer(|_| {});
    for algorithm in Algorithm::ALL {
        let nonce = nonce(&challenges(ask(&authorizer, &ASKED)));
        let answer = |count| digest(algorithm, "secret", &nonce, count);
        for count in [Some(1), Some(2), None, None] {
            assert_eq!(
                ask(&authorizer, &with(&answer(count), FAR)),
                Ok(()),
                "{algorithm:?}"
            );
        }
        // Once more is a repetition, from elsewhere somebody who heard it.
        assert!(is_stale(ask(&authorizer, &with(&answer(Some(2)), FAR))));
        assert!(is_stale(ask(
            &authorizer,
            &with(&answer(Some(3)), [192, 0, 2, 2])
        )));
        let wrong = digest(algorithm, "other", &nonce, Some(9));
        assert!(!is_stale(ask(&authorizer, &with(&wrong, FAR))));
        assert_eq!(
            ask(&authorizer, &with(&answer(Some(9)), FAR)),
            Ok(()),
            "it was not used"
        );
    }
    let stats = &authorizer.stats;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((read(&stats.allowed), read(&stats.challenged)), (10, 2));
    assert_eq!((read(&stats.stale), read(&stats.wrong)), (4, 2));
}

#[test]
fn credentials_are_for_their_path_and_rights_alone() {
    let (authorizer, _folder) = authorizer(|_| {});
    let nonce = nonce(&challenges(ask(&authorizer, &ASKED)));
    let mut count = 0;
    let mut may = |change: &dyn Fn(&mut Asked<'_>)| {
        count += 1;
        let answer = digest(Algorithm::Sha256, "secret", &nonce, Some(count));
        let mut asked = with(&answer, FAR);
        change(&mut asked);
        // The lifetime of the answer ends here, and so does what is asked.
        ask(&authorizer, &Asked { ..asked })
    };
    assert_eq!(may(&|_| {}), Ok(()));
    assert_eq!(
        may(&|asked| asked.uri = "/film.ts"),
        Ok(()),
        "the same in another form"
    );
    assert_eq!(
        may(&|asked| asked.uri = "rtsp://host/film.ts/track1"),
        Ok(())
    );
    assert_eq!(
        may(&|asked| asked.action = Action::Publish),
        Err(Refusal::Forbidden("this user may not do that here"))
    );
    assert_eq!(challenges(may(&|asked| asked.method = "SETUP")).len(), 2);
    assert_eq!(
        challenges(may(&|asked| (asked.path, asked.uri) = ("b.ts", "/b.ts"))).len(),
        2
    );
}

#[test]
fn everybody_has_rights_without_a_password() {
    let (authorizer, _folder) = authorizer(|_| {});
    let asked = Asked {
        path: "trailers/a.ts",
        authorization: Some("Basic noise"),
        ..ASKED
    };
    assert_eq!(ask(&authorizer, &asked), Ok(()));
    assert!(authorizer.knows_nobody(Action::Play) && !authorizer.knows_nobody(Action::Download));
}

#[test]
fn passwords_go_over_loopback_or_where_they_are_allowed() {
    let (authorizer, folder) = authorizer(|_| {});
    for (user, password, is_right) in [
        ("anna", "secret", true),
        ("bert", "hidden", true),
        ("anna", "hidden", false),
        ("bert", "secret", false),
        ("clara", "secret", false),
    ] {
        let answer = basic(user, password);
        let local = ask(&authorizer, &with(&answer, LOCAL));
        assert_eq!(local.is_ok(), is_right, "{user} {password}: {local:?}");
        if let Err(refusal) = local {
            let offered = challenges(Err(refusal));
            assert_eq!(
                offered.last().map(String::as_str),
                Some("Basic realm=\"films\"")
            );
        }
        let of_proxy = Asked {
            is_behind_proxy: true,
            ..with(&answer, LOCAL)
        };
        for far in [with(&answer, FAR), of_proxy] {
            let far = challenges(ask(&authorizer, &far));
            assert!(
                far.iter().all(|challenge| challenge.starts_with("Digest ")),
                "{far:?}"
            );
        }
        let encrypted = Asked {
            is_encrypted: true,
            ..with(&answer, FAR)
        };
        assert_eq!(ask(&authorizer, &encrypted).is_ok(), is_right);
    }
    let plain = UsersConfig {
        file: Some(folder.path().join("users")),
        takes_plain_passwords: true,
        ..UsersConfig::default()
    };
    let plain = Rules::open(&plain, Arc::default()).unwrap();
    assert_eq!(ask(&plain, &with(&basic("bert", "hidden"), FAR)), Ok(()));
}

#[test]
fn wrong_passwords_slow_their_address_alone() {
    let (authorizer, _folder) = authorizer(|_| {});
    let nonce_of = |peer: [u8; 4]| {
        let asked = Asked {
            peer: peer.into(),
            ..ASKED
        };
        nonce(&challenges(ask(&authorizer, &asked)))
    };
    let (far, other) = (nonce_of(FAR), nonce_of([192, 0, 2, 2]));
    let mut slowed = 0;
    for n in 1..=10_000 {
        let wrong = digest(Algorithm::Md5, "other", &far, Some(n));
        match ask(&authorizer, &with(&wrong, FAR)) {
            Err(Refusal::Slowed { retry_s }) => {
                slowed += 1;
                assert!((1..=WRONG_PASSWORD_TIME_MAX.as_secs() + 1).contains(&retry_s));
            }
            refusal => drop(challenges(refusal)),
        }
    }
    // The machine may be slow, and forgive some meanwhile.
    assert!(slowed > 9_000, "{slowed}");
    assert!(authorizer.stats.wrong.load(Ordering::Relaxed) >= u64::from(WRONG_PASSWORDS_MAX));
    let right = digest(Algorithm::Md5, "secret", &far, Some(1));
    let refusal = ask(&authorizer, &with(&right, FAR));
    assert!(
        matches!(refusal, Err(Refusal::Slowed { .. })),
        "{refusal:?}"
    );
    let right = digest(Algorithm::Md5, "secret", &other, Some(1));
    assert_eq!(ask(&authorizer, &with(&right, [192, 0, 2, 2])), Ok(()));
    // What needs no password still goes.
    let trailer = Asked {
        path: "trailers/a",
        ..ASKED
    };
    assert_eq!(ask(&authorizer, &trailer), Ok(()));
}

/// Hashes of Argon2 are made one at a time, and others wait for that, too.
#[test]
fn of_wrong_passwords_at_once_the_rest_is_slowed() {
    let (authorizer, _folder) = authorizer(|config| {
        let file = config.file.as_ref().unwrap();
        // Quick to make, and of no password.
        let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHRzb21l$MTIzNDU2Nzg5MDEyMzQ1Ng";
        let carla = Secret::Argon2(hash.to_owned());
        let text = fs::read_to_string(file).unwrap();
        let text = with_user(&text, "carla", &["viewers".to_owned()], &carla).unwrap();
        fs::write(file, text).unwrap();
    });
    let guess = basic("carla", "guess");
    let asked = with(&guess, LOCAL);
    let began = Instant::now();
    let all = block_on(join_all((0..100).map(|_| authorizer.authorize(&asked))));
    let is_slowed = |it: &&Result<(), Refusal>| matches!(it, Err(Refusal::Slowed { .. }));
    let slowed = u64::try_from(all.iter().filter(is_slowed).count()).unwrap();
    // The machine may be slow, and forgive some meanwhile.
    let forgiven = began.elapsed().as_secs() / WRONG_PASSWORD_TIME_MAX.as_secs() + 1;
    let looked_at = u64::from(WRONG_PASSWORDS_MAX) + forgiven;
    assert!(slowed + looked_at >= 100, "{slowed}, {forgiven}");
    assert!(authorizer.stats.wrong.load(Ordering::Relaxed) <= looked_at);
    // Who knows a password of those is charged for nothing.
    let right = basic("bert", "hidden");
    let other = with(&right, [127, 0, 0, 2]);
    assert_eq!(ask(&authorizer, &other), Ok(()));
    let now = authorizer.started.elapsed();
    for _ in 1..WRONG_PASSWORDS_MAX {
        authorizer.attempts.failed(other.peer, now);
    }
    assert_eq!(ask(&authorizer, &other), Ok(()));
}

/// The password of somebody else takes its time meanwhile.
#[test]
fn what_nobody_has_looked_at_is_not_wrong() {
    let (authorizer, _folder) = authorizer(|_| {});
    let right = basic("bert", "hidden");
    let asked = with(&right, LOCAL);
    block_on(async {
        tokio::time::pause();
        let turn = authorizer.passwords.turn().await.unwrap();
        for number in 0..=WRONG_PASSWORDS_MAX {
            let left = authorizer.authorize(&asked).now_or_never();
            assert_eq!(left, None, "{number} is looked at");
        }
        for _ in 0..=WRONG_PASSWORDS_MAX {
            let refused = authorizer.authorize(&asked).await;
            assert_eq!(refused, Err(Refusal::Unanswered));
        }
        drop(turn);
        assert_eq!(authorizer.authorize(&asked).await, Ok(()));
    });
}

/// A reload must not need an identity provider or a hook, nor every password to be hashed again.
#[test]
fn other_settings_know_what_those_before_knew() {
    let (address, came) = serve(None, |number| match number {
        0 => answer("204 No Content", ""),
        _ => answer("500 Oops", ""),
    });
    let (config, _folder) = settings(|config| {
        config.hook = Some(HookConfig::new(format!("http://{address}/")));
    });
    let before = Rules::open(&config, Arc::default()).unwrap();
    assert_eq!(ask(&before, &ASKED), Ok(()));
    let mut other = config.clone();
    other.url_keys = None;
    let after = Rules::after(&before, &other).unwrap();
    assert_eq!(ask(&after, &ASKED), Ok(()));
    assert_eq!(came.try_iter().count(), 1, "the hook is asked once");
    assert!(Arc::ptr_eq(&after.passwords, &before.passwords));
    // Whoever else may answer by then is asked anew.
    other.ca = Some("ca.pem".into());
    let anew = Rules::after(&before, &other).unwrap();
    assert_eq!(challenges(ask(&anew, &ASKED)).len(), 2);
    assert_eq!(came.try_iter().count(), 1);
}

#[test]
fn keys_of_tokens_outlive_a_reload() {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key());
    let set = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}]}}"#);
    let (address, came) = serve(None, move |number| match number {
        0 => answer("200 OK", &set),
        _ => answer("500 Oops", ""),
    });
    let (config, _folder) = settings(|config| {
        config.jwt = Some(JwtConfig {
            keys: JwtKeys::Url(format!("http://{address}/")),
            audience: None,
            issuer: None,
        });
    });
    let claims = r#"{"exp":4e9,"onrush_rights":["play"]}"#;
    let parts = [r#"{"alg":"EdDSA"}"#, claims].map(|it| URL_SAFE_NO_PAD.encode(it));
    let signed = parts.join(".");
    let signature = URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
    let header = format!("Bearer {signed}.{signature}");
    let before = Rules::open(&config, Arc::default()).unwrap();
    assert_eq!(ask(&before, &with(&header, FAR)), Ok(()));
    let after = Rules::after(&before, &config).unwrap();
    assert_eq!(ask(&after, &with(&header, FAR)), Ok(()));
    assert_eq!(came.try_iter().count(), 1);
}

#[test]
fn what_is_malformed_or_unknown_is_told_so() {
    let (authorizer, _folder) = authorizer(|_| {});
    for bad in [
        "Digest",
        "Basic !",
        "Digest username=u,realm=r,nonce=n,uri=/",
    ] {
        let refusal = ask(&authorizer, &with(bad, FAR));
        assert!(
            matches!(refusal, Err(Refusal::Malformed(_))),
            "{bad}: {refusal:?}"
        );
    }
    for unknown in ["Negotiate abc", "Bearer abc"] {
        assert_eq!(
            challenges(ask(&authorizer, &with(unknown, FAR))).len(),
            2,
            "{unknown}"
        );
    }
    let nobodys = digest(Algorithm::Md5, "secret", &"A".repeat(32), Some(1));
    assert!(is_stale(ask(&authorizer, &with(&nobodys, FAR))));
}

#[test]
fn a_signed_url_is_a_right_for_a_time() {
    let (authorizer, folder) = authorizer(|_| {});
    let year = 365 * 24 * 3600;
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let may = |path: &str, expires_s, action, key: &str| {
        let grant = Grant::sign(key.as_bytes(), "film.ts", Rights::READ, expires_s);
        let uri = format!("rtsp://h/{path}?{grant}");
        let asked = Asked {
            path,
            action,
            uri: &uri,
            ..ASKED
        };
        ask(&authorizer, &asked)
    };
    let (later, before) = (unix + year, unix - 1);
    assert_eq!(may("film.ts", later, Action::Play, KEY), Ok(()));
    assert_eq!(may("film.ts", later, Action::Download, KEY), Ok(()));
    for refused in [
        may("film.ts", before, Action::Play, KEY),
        may("other.ts", later, Action::Play, KEY),
        may("film.ts", later, Action::Play, "another key, as long"),
    ] {
        assert!(matches!(refused, Err(Refusal::Forbidden(_))), "{refused:?}");
    }
    // A right that it does not give is asked for as ever.
    assert_eq!(
        challenges(may("film.ts", later, Action::Publish, KEY)).len(),
        2
    );
    // Keys alone open nothing else.
    let keys = UsersConfig {
        url_keys: Some(folder.path().join("keys")),
        ..UsersConfig::default()
    };
    let keys = Rules::open(&keys, Arc::default()).unwrap();
    assert!(matches!(ask(&keys, &ASKED), Err(Refusal::Forbidden(_))));
}

#[test]
fn a_node_has_a_key_and_a_viewer_has_none() {
    let (authorizer, _folder) = authorizer(|_| {});
    let (asked, lasts) = (("live/cam", "media-2"), Duration::from_secs(600));
    let grant = authorizer.sign_to_play(asked.0, lasts).unwrap();
    let proof = authorizer.sign_as_node(asked, lasts).unwrap();
    let is_of_node = |signed: &str, asked| {
        let uri = format!("rtsp://host/live/cam?lease=7&puller=media-2&{signed}");
        authorizer.is_of_node(&uri, asked)
    };
    assert!(is_of_node(&format!("{grant}&{proof}"), asked));
    assert!(!is_of_node(&grant.to_string(), asked));
    let other = (asked.0, "media-1");
    assert!(!is_of_node(&format!("{grant}&{proof}"), other));
    let over = authorizer.sign_as_node(asked, Duration::ZERO).unwrap();
    assert!(!is_of_node(&format!("{grant}&{over}"), asked));
    // Without keys nobody can tell.
    let keyless = Rules::open(&UsersConfig::default(), Arc::default()).unwrap();
    let uri = "rtsp://host/live/cam?puller=media-2";
    assert!(keyless.is_of_node(uri, asked));
    assert_eq!(keyless.sign_as_node(asked, lasts), None);
}

#[test]
fn a_hook_that_cannot_be_asked_lets_nobody_in() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (authorizer, _folder) = authorizer(|config| {
        config.hook = Some(HookConfig::new(format!("http://{port}/")));
    });
    // Who has said nothing may yet turn out to be a user of the file.
    assert_eq!(challenges(ask(&authorizer, &ASKED)).len(), 2);
    assert_eq!(authorizer.stats.unanswered.load(Ordering::Relaxed), 1);
    let answer = basic("clara", "x");
    assert_eq!(
        ask(&authorizer, &with(&answer, LOCAL)),
        Err(Refusal::Unanswered)
    );
    // Who is known here needs it not.
    assert_eq!(
        ask(&authorizer, &with(&basic("anna", "secret"), LOCAL)),
        Ok(())
    );
}

#[test]
fn what_is_not_asked_for_is_not_counted() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (of_file, _folder) = authorizer(|_| {});
    let (of_hook, _folder) = authorizer(|config| {
        config.hook = Some(HookConfig::new(format!("http://{port}/")));
    });
    let anna = Login::User("anna".to_owned());
    for (rules, path, told) in [
        (&of_file, "film.ts", Some(true)),
        (&of_file, "film.mp4", Some(false)),
        (&of_hook, "film.ts", Some(true)),
        (&of_hook, "film.mp4", None),
    ] {
        let asked = Asked {
            protocol: Protocol::Ftp,
            path,
            ..ASKED
        };
        assert_eq!(block_on(rules.could(&anna, &asked)), told, "{path}");
        let stats = &rules.stats;
        let all = [&stats.allowed, &stats.forbidden, &stats.unanswered];
        let counted = all.map(|it| it.load(Ordering::Relaxed));
        assert_eq!(counted, [0; 3], "{path}");
    }
}

/// A token by the key of [`with_tokens`].
fn token(claims: &str) -> String {
    let [header, claims] = [r#"{"alg":"HS256"}"#, claims].map(|it| URL_SAFE_NO_PAD.encode(it));
    let signed = format!("{header}.{claims}");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[7; 32]);
    let tag = ring::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
}

/// Users, and a key by which tokens are signed.
fn with_tokens(change: impl FnOnce(&mut UsersConfig)) -> (Rules, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let k = URL_SAFE_NO_PAD.encode([7; 32]);
    fs::write(&path, format!(r#"{{"keys":[{{"kty":"oct","k":"{k}"}}]}}"#)).unwrap();
    let (authorizer, _folder) = authorizer(|config| {
        config.jwt = Some(JwtConfig {
            keys: JwtKeys::File(path),
            audience: None,
            issuer: None,
        });
        change(config);
    });
    (authorizer, folder)
}

#[test]
fn a_token_is_a_right_in_a_header_and_in_a_url() {
    let (authorizer, _folder) = with_tokens(|_| {});
    let good = token(r#"{"exp":4e9,"onrush_rights":["play /film.ts"]}"#);
    let header = format!("Bearer {good}");
    assert_eq!(ask(&authorizer, &with(&header, FAR)), Ok(()));
    let uri = format!("rtsp://host/film.ts?token={good}");
    let by_url = Asked { uri: &uri, ..ASKED };
    assert_eq!(ask(&authorizer, &by_url), Ok(()));
    let other = Asked {
        path: "other.ts",
        ..by_url
    };
    let refused = ask(&authorizer, &other);
    assert!(matches!(refused, Err(Refusal::Forbidden(_))), "{refused:?}");
    let trailer = Asked {
        path: "trailers/a",
        ..other
    };
    assert_eq!(ask(&authorizer, &trailer), Ok(()), "it is everybody's");
    // Passwords go on, and are asked for beside tokens.
    assert_eq!(
        ask(&authorizer, &with(&basic("anna", "secret"), LOCAL)),
        Ok(())
    );
    let asked_for = challenges(ask(&authorizer, &with("Negotiate x", LOCAL)));
    assert_eq!(asked_for[0], "Bearer realm=\"films\"");
    assert_eq!(asked_for.last().unwrap(), "Basic realm=\"films\"");
}

#[test]
fn guessed_tokens_slow_their_address_and_old_ones_do_not() {
    let (authorizer, _folder) = with_tokens(|_| {});
    let old = format!("Bearer {}", token(r#"{"exp":1,"onrush_rights":["play"]}"#));
    for _ in 0..2 * WRONG_PASSWORDS_MAX {
        let asked_for = challenges(ask(&authorizer, &with(&old, FAR)));
        assert_eq!(
            asked_for[0],
            "Bearer realm=\"films\", error=\"invalid_token\""
        );
    }
    let good = token(r#"{"exp":4e9,"onrush_rights":["play"]}"#);
    let (before, after) = good.split_at(good.len() - 9);
    let other = if after.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("Bearer {before}{other}{}", &after[1..]);
    let mut slowed = 0;
    for _ in 0..10_000 {
        match ask(&authorizer, &with(&forged, FAR)) {
            Err(Refusal::Slowed { .. }) => slowed += 1,
            refusal => drop(challenges(refusal)),
        }
    }
    // The machine may be slow, and forgive some meanwhile.
    assert!(slowed > 9_000, "{slowed}");
    let uri = format!("rtsp://host/film.ts?token={good}");
    let asked = |peer: [u8; 4]| Asked {
        uri: &uri,
        peer: peer.into(),
        ..ASKED
    };
    let refused = ask(&authorizer, &asked(FAR));
    assert!(
        matches!(refused, Err(Refusal::Slowed { .. })),
        "{refused:?}"
    );
    assert_eq!(ask(&authorizer, &asked(LOCAL)), Ok(()));
}

/// Any page can have a browser send tokens, and a player goes on with one of an old key.
#[test]
fn tokens_lock_no_password_out() {
    let (authorizer, _folder) = with_tokens(|_| {});
    let bearer = |token: &str| format!("Bearer {token}");
    let claims = r#"{"exp":4e9,"onrush_rights":["play"]}"#;
    let (known, other) = (
        bearer(&token(claims)),
        bearer(&token(&claims.replace('4', "5"))),
    );
    assert_eq!(ask(&authorizer, &with(&known, LOCAL)), Ok(()));
    // There is no key that these may be signed by.
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"old"}"#);
    for nobodys in ["a.b.c".to_owned(), format!("{header}.e30.AAAA")] {
        for _ in 0..2 * WRONG_PASSWORDS_MAX {
            let refused = ask(&authorizer, &with(&bearer(&nobodys), LOCAL));
            assert_eq!(
                challenges(refused)[0],
                "Bearer realm=\"films\", error=\"invalid_token\""
            );
        }
    }
    assert_eq!(ask(&authorizer, &with(&other, LOCAL)), Ok(()));
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let forged = bearer(&format!("{header}.e30.AAAA"));
    let is_slowed = |it: &str| {
        let refused = ask(&authorizer, &with(it, LOCAL));
        matches!(refused, Err(Refusal::Slowed { .. }))
    };
    // The machine may be slow, and forgive some meanwhile.
    let slowed = (0..1000).filter(|_| is_slowed(&forged)).count();
    assert!(slowed > 900, "{slowed}");
    for right in [known, other, basic("anna", "secret")] {
        assert_eq!(ask(&authorizer, &with(&right, LOCAL)), Ok(()));
    }
    // And no password a token.
    let peer = [127, 0, 1, 1];
    let now = authorizer.started.elapsed();
    for _ in 0..2 * WRONG_PASSWORDS_MAX {
        authorizer.attempts.failed(peer.into(), now);
    }
    let refused = ask(&authorizer, &with(&basic("anna", "secret"), peer));
    assert!(
        matches!(refused, Err(Refusal::Slowed { .. })),
        "{refused:?}"
    );
    let new = bearer(&token(&claims.replace('4', "6")));
    assert_eq!(ask(&authorizer, &with(&new, peer)), Ok(()));
}

/// Any page can have a browser send these, too: what it asks before is answered whoever asks.
#[test]
fn passwords_of_pages_lock_no_others_out() {
    let (address, _came) = serve(None, |_| answer("401 Unauthorized", ""));
    let (of_file, _folder) = authorizer(|_| {});
    let (of_hook, _folder) = authorizer(|config| {
        config.hook = Some(HookConfig::new(format!("http://{address}/")));
    });
    for (rules, user, is_of_page) in [
        (&of_file, "bert", true),
        (&of_hook, "x", true),
        (&of_hook, "y", false),
    ] {
        // Each from an address of its own.
        let peer = [127, 0, 0, user.as_bytes()[0]];
        let (wrong, right) = (basic(user, "wrong"), basic("anna", "secret"));
        let come = |header: &str, is_of_page| {
            let asked = Asked {
                is_of_page,
                ..with(header, peer)
            };
            ask(rules, &asked)
        };
        // The machine may be slow, and forgive some meanwhile.
        let is_slowed = (0..4 * WRONG_PASSWORDS_MAX)
            .any(|_| matches!(come(&wrong, is_of_page), Err(Refusal::Slowed { .. })));
        assert!(is_slowed, "{user}");
        assert_eq!(come(&right, !is_of_page), Ok(()), "{user}");
    }
}

/// As FTP has them, for as long as a client stays connected.
#[test]
fn a_login_ends_with_what_proved_it() {
    let (rules, folder) = with_tokens(|_| {});
    let asked = Asked {
        protocol: Protocol::Ftp,
        peer: LOCAL.into(),
        ..ASKED
    };
    let stands = |rules: &Rules, login: &Login, secret: &Option<Secret>| {
        block_on(rules.stands(login, secret.as_ref()))
    };
    let secret = rules.secret("anna");
    let anna = block_on(rules.log_in(&asked, "anna", "secret")).unwrap();
    let claims = r#"{"exp":4e9,"onrush_rights":["play"]}"#;
    let by_token = block_on(rules.log_in(&asked, "token", &token(claims))).unwrap();
    assert!(stands(&rules, &anna, &secret) && stands(&rules, &by_token, &None));
    assert!(!stands(&rules, &anna, &rules.secret("bert")));
    assert!(!stands(&rules, &anna, &None));
    let Login::Token { claims: known, .. } = by_token.clone() else {
        panic!("{by_token:?}");
    };
    let expired = Login::Token {
        token: token(&claims.replace("4e9", "1")),
        claims: known,
    };
    assert!(!stands(&rules, &expired, &None));
    // Without its keys, and without its user.
    let keys = folder.path().join("url-keys");
    fs::write(&keys, KEY).unwrap();
    let other = UsersConfig {
        url_keys: Some(keys),
        ..UsersConfig::default()
    };
    let after = Rules::after(&rules, &other).unwrap();
    assert!(!stands(&after, &by_token, &None));
    assert!(!stands(&after, &anna, &secret));
    assert!(stands(&after, &Login::Nobody, &None));
}

#[test]
fn a_hook_may_know_tokens_that_no_key_signed() {
    let (address, came) = serve(None, |_| answer("204 No Content", ""));
    let (authorizer, _folder) = with_tokens(|config| {
        config.hook = Some(HookConfig::new(format!("http://{address}/")));
    });
    let signed = token(r#"{"exp":4e9,"onrush_rights":["play"]}"#);
    let header = format!("Bearer {signed}");
    assert_eq!(ask(&authorizer, &with(&header, FAR)), Ok(()));
    assert!(came.try_recv().is_err(), "it needs not be asked");
    assert_eq!(ask(&authorizer, &with("Bearer opaque", FAR)), Ok(()));
    assert!(came.recv().unwrap().contains(r#""token":"opaque""#));
}

/// A player of low latency asks three times a second, for as long as it plays.
#[test]
fn a_hook_is_asked_once_about_reloads_of_a_playlist() {
    let (address, came) = serve(None, |_| answer("204 No Content", ""));
    let (authorizer, _folder) = authorizer(|config| {
        config.hook = Some(HookConfig::new(format!("http://{address}/")));
    });
    let about = |uri: &str| {
        let asked = Asked {
            protocol: Protocol::Http,
            method: "GET",
            uri,
            ..ASKED
        };
        assert_eq!(ask(&authorizer, &asked), Ok(()), "{uri}");
    };
    for part in 0..9 {
        about(&format!(
            "/film.ts/hls/index.m3u8?key=a&_HLS_msn=7&_HLS_part={part}"
        ));
    }
    about("/film.ts/hls/index.m3u8?key=a&trace=0123456789abcdef&redirects=1");
    assert!(came.recv().unwrap().contains(r#""query":"key=a""#));
    assert!(came.try_recv().is_err(), "it is asked again");
    about("/film.ts/hls/index.m3u8?key=b");
    assert!(came.try_recv().is_ok(), "another key is another question");
}

/// What stands behind each URL of a playlist, as often as it has some.
#[test]
fn nothing_is_carried_on_that_gives_no_right() {
    let open = Rules::open(&UsersConfig::default(), Arc::default()).unwrap();
    let (of_keys, _folder) = authorizer(|_| {});
    let (of_users, _folder) = authorizer(|config| config.url_keys = None);
    let (of_tokens, _folder) = with_tokens(|config| config.url_keys = None);
    let (of_hook, _folder) = authorizer(|config| {
        config.url_keys = None;
        config.hook = Some(HookConfig::new("http://127.0.0.1:9/"));
    });
    for (rules, path, grants, tokens) in [
        (&open, "film.ts", false, false),
        (&of_users, "film.ts", false, false),
        (&of_keys, "film.ts", true, false),
        (&of_keys, "trailers/film.ts", false, false),
        (&of_tokens, "film.ts", false, true),
        (&of_tokens, "trailers/film.ts", false, false),
        (&of_hook, "film.ts", true, true),
    ] {
        let carried = Carried { grants, tokens };
        assert_eq!(rules.carries(path), carried, "{path}");
    }
}
