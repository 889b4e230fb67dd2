//! A node among others that were told to it.

use super::*;

pub(super) fn member() -> Arc<ClusterMember> {
    let member = ClusterMember::new(ClusterConfig {
        name: "c".to_owned(),
        node: "b".to_owned(),
        host: "b.example".to_owned(),
        capacity_bps: Some(1_000_000),
        pulls_max: 1,
    });
    let load = || Load {
        accepts: true,
        ..Load::default()
    };
    member.begin([Some(8554), None, Some(8080), None], 1, Box::new(load));
    member
}

pub(super) fn other(node: &str) -> Arc<Entry> {
    let address = |port: u16| Some(format!("{node}.example:{port}"));
    Arc::new(Entry {
        format: ENTRY_FORMAT,
        node: node.to_owned(),
        accepts: true,
        capacity_bps: 1_000_000,
        addresses: Addresses {
            rtsp: address(8554),
            http: address(8080),
            ..Addresses::default()
        },
        ..Entry::default()
    })
}

fn asked(film: &str) -> Request<'_> {
    Request {
        film,
        scheme: Scheme::Rtsp,
        peer: IpAddr::from([192, 0, 2, 1]),
        user_agent: b"",
        redirects: 0,
        trace: None,
    }
}

#[test]
fn alone_everything_is_served_here() {
    let member = member();
    assert_eq!(member.elsewhere(asked("a.mp4")), None);
    member.told(Vec::new(), Vec::new());
    assert!(!member.has_others());
    assert_eq!(member.elsewhere(asked("a.mp4")), None);
}

#[test]
fn each_film_has_one_home_and_its_address_is_told() {
    let member = member();
    member.told(vec![other("a"), other("c")], Vec::new());
    assert!(member.has_others());
    let mut at = HashMap::<_, u32>::new();
    for i in 0..300 {
        let film = format!("film-{i}.mp4");
        let there = member.elsewhere(asked(&film)).map(|it| it.address);
        let is_home = there.is_none();
        *at.entry(there).or_default() += 1;
        // By HTTP it is the same node; over TLS nobody else serves.
        let http = Request {
            scheme: Scheme::Http,
            ..asked(&film)
        };
        assert_eq!(member.elsewhere(http).is_none(), is_home);
        let https = Request {
            scheme: Scheme::Https,
            ..asked(&film)
        };
        assert_eq!(member.elsewhere(https), None);
    }
    assert_eq!(at.len(), 3, "{at:?}");
    assert!(
        at.contains_key(&Some("a.example:8554".to_owned())),
        "{at:?}"
    );
    assert!(at.values().all(|films| *films > 50), "{at:?}");
}

#[test]
fn nobody_is_sent_on_a_third_time_nor_in_vain() {
    let member = member();
    member.told(vec![other("a"), other("c")], Vec::new());
    let films = (0..50).map(|i| format!("film-{i}.mp4"));
    let away: Vec<_> = films
        .filter(|it| member.elsewhere(asked(it)).is_some())
        .collect();
    assert!(away.len() > 10);
    for film in &away {
        assert_eq!(member.elsewhere(asked(film)), None, "it came again");
        let peer = IpAddr::from([192, 0, 2, 2]);
        let twice = Request {
            redirects: 2,
            peer,
            ..asked(film)
        };
        assert_eq!(member.elsewhere(twice), None);
        let once = Request {
            redirects: 1,
            ..twice
        };
        let trace = Trace::new(7);
        let traced = Request {
            trace: Some(trace),
            ..once
        };
        let there = member.elsewhere(traced);
        assert_eq!(there.map(|it| it.trace), Some(trace), "the first is kept");
    }
    let stats = &member.stats;
    let in_vain = stats.not_following.load(Ordering::Relaxed);
    assert_eq!(in_vain, away.len() as u64);
    let sent_on = stats.rtsp_sent_on.load(Ordering::Relaxed);
    assert_eq!(sent_on, 2 * away.len() as u64);
}

#[test]
fn a_films_page_may_have_it_from_where_viewers_are_sent() {
    let member = member();
    let others = |count: usize| (0..count).map(|i| other(&format!("o{i:02}"))).collect();
    member.told(others(ORIGIN_NODES_MAX), Vec::new());
    assert_eq!(member.origins("a.mp4").len(), ORIGIN_NODES_MAX);
    member.told(others(ORIGIN_NODES_MAX + 1), Vec::new());
    for i in 0..50 {
        let film = format!("film-{i}.mp4");
        let origins = member.origins(&film);
        assert_eq!(origins.len(), ORIGIN_NODES_MAX);
        let http = Request {
            scheme: Scheme::Http,
            ..asked(&film)
        };
        if let Some(Elsewhere { address: there, .. }) = member.elsewhere(http) {
            assert!(origins.contains(&format!("http://{there}")), "{origins:?}");
        }
    }
}

#[test]
fn a_node_tells_what_it_plays_most() {
    let member = member();
    let film = |i: u64, demand_bps| Film {
        key: Key::from_bits(i),
        demand_bps,
    };
    let mut films: Vec<_> = (0..300).map(|i| film(i, 1)).collect();
    films.push(film(900, 10_000));
    films.push(film(901, 300));
    member.plays(films);
    let told = member.entry().films;
    let keys: Vec<_> = told.iter().map(|film| film.key).collect();
    assert_eq!(keys, [900, 901], "a hundredth of all, or more");
    member.plays((0..100).map(|i| film(i, 5)).collect());
    assert_eq!(member.entry().films.len(), ENTRY_FILMS_MAX);
    let entry = member.entry();
    assert_eq!(Entry::parse("b", &entry.to_bytes()), Ok(entry));
}

#[test]
fn what_is_sent_counts_where_processors_have_little_to_do() {
    let load = |permille, sent_bps| Load {
        permille,
        sent_bps,
        ..Load::default()
    };
    assert_eq!(used_bps(load(250, 1), 1000), 250);
    assert_eq!(used_bps(load(250, 600), 1000), 600);
    assert_eq!(used_bps(load(u64::MAX, 0), u64::MAX), u64::MAX);
}
