//! What nodes of a cluster read of each other: entries of the registry, parameters of URLs; and
//! what two of them do that want one channel.

use std::collections::HashSet;

use onrush_wire::route::channel::{
    CHANNEL_ENTRY_BYTES_MAX, CHANNEL_FORMAT, channel_key, channel_of, lease_of, of_standby,
    pull_url, standby_of,
};
use onrush_wire::route::entry::{ENTRY_BYTES_MAX, ENTRY_FILMS_MAX};
use onrush_wire::route::relay::{AVOIDED_MAX, sent_on_to, sent_on_url};
use onrush_wire::route::{
    Addresses, ChannelEntry, Claim, ClaimStep, Entry, FedNode, Key, LeaseTimes, PullAnswer, Puller,
    Registry, Scheme, Standing, Token, Trace, answer_pull, is_node_name, redirects_of,
    with_redirects, with_trace,
};

use crate::memory::bounded;
use crate::random::Random;

/// What reading an entry may hold beside some times its bytes.
const MEMORY_BYTES: usize = 64 << 10;
const MEMORY_TIMES: usize = 16;

/// How long leases last here.
const TIMES: LeaseTimes = LeaseTimes::lasting(10_000_000_000);

/// What the two do in a run, at the most.
const STEPS_MAX: usize = 200;

/// Reads an input as an entry (its key, and behind a newline what stands there), as a URL, and as
/// what happens to two who want one channel.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let mut random = Random::of(input);
    let mut parts = input.splitn(2, |&byte| byte == b'\n');
    let key = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let entry = parts.next().unwrap_or_default();
    node(&key, entry);
    channel(&key, entry, random.below(100));
    url(&key, &mut random);
    two_holders(input);
}

fn node(key: &str, bytes: &[u8]) {
    let memory_max = MEMORY_BYTES + MEMORY_TIMES * bytes.len();
    let Ok(entry) = bounded(memory_max, || Entry::parse(key, bytes)) else {
        return;
    };
    assert!(bytes.len() <= ENTRY_BYTES_MAX && is_node_name(key) && entry.node == key);
    assert!(entry.films.len() <= ENTRY_FILMS_MAX);
    let addresses: &Addresses = &entry.addresses;
    for scheme in [Scheme::Rtsp, Scheme::Http] {
        if let Some(address) = addresses.of(scheme) {
            assert!(!address.contains(['\r', '\n', '/', ' ']), "{address:?}");
        }
    }
    let told = entry.to_bytes();
    if told.len() <= ENTRY_BYTES_MAX {
        assert_eq!(Entry::parse(key, &told), Ok(entry.clone()));
    }
    let node = entry.node();
    assert!(node.capacity_bps > 0);
}

fn channel(key: &str, bytes: &[u8], revision: Token) {
    let memory_max = MEMORY_BYTES + MEMORY_TIMES * bytes.len();
    let entry = bounded(memory_max, || ChannelEntry::parse(key, revision, bytes));
    let Ok(entry) = entry else { return };
    assert!(bytes.len() <= CHANNEL_ENTRY_BYTES_MAX && entry.token <= revision);
    assert_eq!(channel_key(&entry.channel).as_deref(), Some(key));
    assert_eq!(channel_of(key), entry.channel);
    let told = ChannelEntry::parse(key, revision, &entry.to_bytes());
    assert_eq!(told, Ok(entry.clone()));
    let puller = Puller {
        node: entry.node.clone(),
        avoided: Vec::new(),
    };
    let url = pull_url(&entry, &entry.rtsp, &puller, Trace::new(revision));
    assert!(!url.contains(char::is_whitespace), "{url:?}");
    assert_eq!(lease_of(&url), Some(entry.token));
    assert_eq!(Puller::of(&url), Some(puller));
    assert_eq!(Trace::of(&url), Some(Trace::new(revision)));
    let url = sent_on_url(&entry.channel, &entry.node, &entry.rtsp);
    assert_eq!(sent_on_to(&url), Some((&*entry.node, &*entry.rtsp)));
    if of_standby(&entry.channel).is_none() {
        let standby = standby_of(&entry.channel);
        assert_eq!(of_standby(&standby), Some(&*entry.channel));
    }
}

/// Any text as the URL that a viewer or a node asks for.
fn url(uri: &str, random: &mut Random) {
    let _any = (lease_of(uri), sent_on_to(uri));
    let trace = Trace::of(uri);
    let number = Trace::new(random.number());
    let redirects = random.byte();
    let on = with_redirects(uri, redirects, number);
    assert_eq!(
        (redirects_of(&on), Trace::of(&on)),
        (redirects, Some(number))
    );
    let on = with_trace(uri, number);
    assert_eq!(
        (redirects_of(&on), Trace::of(&on)),
        (redirects_of(uri), Some(number))
    );
    if let Some(trace) = trace {
        assert_eq!(
            with_trace(&with_trace(uri, trace), trace),
            with_trace(uri, trace)
        );
    }
    let Some(mut puller) = Puller::of(uri) else {
        return;
    };
    assert!(is_node_name(&puller.node) && puller.avoided.len() <= AVOIDED_MAX);
    let fed: Vec<_> = (0..random.below(6))
        .map(|number| FedNode {
            node: Key::of(&format!("node-{number}")),
            is_open: random.is_one_in(2),
        })
        .collect();
    let pulls_max = random.index(8);
    match answer_pull(&puller, &fed, pulls_max) {
        PullAnswer::Feed => assert!(fed.len() < pulls_max),
        PullAnswer::SendOn(at) => {
            assert!(fed[at].is_open && fed[at].node != Key::of(&puller.node));
        }
        PullAnswer::Full => assert!(fed.len() >= pulls_max),
    }
    puller.avoid("node-0");
    assert!(puller.avoided.len() <= AVOIDED_MAX);
    assert_eq!(
        Puller::of(&format!("rtsp://a/b?{}", puller.query())),
        Some(puller)
    );
}

/// The registry as it is: one entry, which ends when nobody writes it for as long as it may stand.
#[derive(Debug)]
struct Model {
    id: u64,
    revision: Token,
    entry: Option<(ChannelEntry, Token, u64)>,
}

impl Model {
    fn found(&mut self, now_ns: u64) -> Option<(ChannelEntry, Token)> {
        self.entry
            .take_if(|(_, _, written_ns)| now_ns >= *written_ns + TIMES.lasts_ns);
        let (entry, revision, _) = self.entry.as_ref()?;
        Some((entry.clone(), *revision))
    }

    fn write(&mut self, mut entry: ChannelEntry, now_ns: u64) -> Token {
        self.revision += 1;
        if entry.token == 0 {
            entry.token = self.revision;
        }
        self.entry = Some((entry, self.revision, now_ns));
        self.revision
    }
}

/// Two nodes that want a channel.
struct Race {
    model: Model,
    claims: [Claim; 2],
    /// Which registry each knows, and from when on leases can be taken there.
    known: [(u64, u64); 2],
    now_ns: u64,
    tokens: HashSet<(u64, Token)>,
}

/// Two nodes that want a channel never both hold it, and tokens grow: whatever is asked when, late,
/// unanswered, given up, or lost with the registry.
fn two_holders(input: &[u8]) {
    let mut race = Race {
        model: Model {
            id: 1,
            revision: 0,
            entry: None,
        },
        claims: [Claim::new(TIMES), Claim::new(TIMES)],
        known: [(1, 0); 2],
        now_ns: TIMES.lasts_ns,
        tokens: HashSet::new(),
    };
    for event in input.chunks_exact(2).take(STEPS_MAX) {
        let (what, much) = (event[0], u64::from(event[1]));
        let node = usize::from(what & 1);
        match what >> 1 & 7 {
            0 => race.now_ns += much * 50_000_000,
            1 if much == 0 => {
                race.model = Model {
                    id: race.model.id + 1,
                    revision: 0,
                    entry: None,
                };
            }
            2 if much < 16 => race.give_up(node),
            3 => race.hear(node),
            _ => race.ask(node, much & 1 == 0, (much >> 1) * 5_000_000),
        }
        let hold = |claim: &Claim| matches!(claim.standing(race.now_ns), Standing::Holds(_));
        let (claims, model) = (&race.claims, &race.model);
        assert!(
            !claims.iter().all(hold),
            "both hold the channel: {claims:?} in {model:?}"
        );
    }
}

impl Race {
    fn registry(&mut self, node: usize) -> Registry {
        settled(&self.model, &mut self.known[node], self.now_ns)
    }

    fn give_up(&mut self, node: usize) {
        let registry = self.registry(node);
        if let Some(revision) = self.claims[node].give_up(registry, self.now_ns) {
            let entry = &mut self.model.entry;
            let removed = entry.take_if(|(_, found, _)| *found == revision);
            assert!(removed.is_none_or(|(entry, ..)| entry.instance == node as u64));
        }
    }

    fn hear(&mut self, node: usize) {
        let (registry, now_ns) = (self.registry(node), self.now_ns);
        let claim = &mut self.claims[node];
        match self.model.found(now_ns) {
            Some((entry, _)) if entry.instance != node as u64 => {
                claim.heard(registry, &entry, now_ns);
            }
            Some(_) => {}
            None => claim.heard_gone(now_ns),
        }
    }

    /// Asks what its claim says, which takes as long to come as the answer does.
    fn ask(&mut self, node: usize, is_answered: bool, late_ns: u64) {
        let asked_ns = self.now_ns;
        let registry = self.registry(node);
        let step = self.claims[node].step(registry, asked_ns);
        self.now_ns += late_ns;
        let own = entry_of(node, 0);
        let found = self.model.found(self.now_ns);
        let done = match (&step, &found) {
            (ClaimStep::Create, None) => Some(self.model.write(own.clone(), self.now_ns)),
            (ClaimStep::Renew { token, revision }, Some((_, there))) if there == revision => {
                Some(self.model.write(entry_of(node, *token), self.now_ns))
            }
            _ => None,
        };
        self.now_ns += late_ns;
        let claim = &mut self.claims[node];
        match (step, done) {
            (ClaimStep::Wait, _) => {}
            _ if !is_answered => {}
            (ClaimStep::Create, Some(revision)) => {
                let is_new = self.tokens.insert((self.model.id, revision));
                assert!(is_new, "a token is given twice");
                claim.created(registry, revision, asked_ns);
            }
            (ClaimStep::Renew { .. }, Some(revision)) => claim.renewed(revision, asked_ns),
            (_, None) => {
                claim.conflicted(registry, (found, &own), self.now_ns);
            }
        }
    }
}

/// The registry as a node finds it: one that it has not seen before lets leases be taken only when
/// those of another are over.
fn settled(model: &Model, known: &mut (u64, u64), now_ns: u64) -> Registry {
    if known.0 != model.id {
        *known = (model.id, now_ns + TIMES.lasts_ns);
    }
    Registry {
        id: model.id,
        is_settled: now_ns >= known.1,
    }
}

fn entry_of(node: usize, token: Token) -> ChannelEntry {
    ChannelEntry {
        format: CHANNEL_FORMAT,
        channel: "live/cam".to_owned(),
        node: format!("node-{node}"),
        instance: node as u64,
        rtsp: format!("192.0.2.{node}:8554"),
        token,
    }
}
