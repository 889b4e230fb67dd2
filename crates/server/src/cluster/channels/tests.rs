//! Claims, and what comes of them.

use super::super::tests::member;
use super::*;

const LASTS: Duration = Duration::from_secs(10);

fn reached() -> Arc<ClusterMember> {
    let member = member();
    member.lease_registry(1, LASTS);
    member.reached(Ok(()));
    member
}

fn other(channel: &str, token: Token) -> ChannelEntry {
    ChannelEntry {
        format: CHANNEL_FORMAT,
        channel: channel.to_owned(),
        node: "a".to_owned(),
        instance: 1,
        rtsp: "a.example:8554".to_owned(),
        token,
    }
}

#[test]
fn a_claim_is_asked_for_answered_and_given_back() {
    let member = reached();
    assert_eq!(member.next_lease_request(), None);
    let claim = member.claim("live/cam").unwrap();
    assert!(claim.is_open());
    let request = member.next_lease_request().unwrap();
    let LeaseRequest::Create(entry) = &request else {
        panic!("{request:?}");
    };
    assert_eq!((&*entry.rtsp, entry.token), ("b.example:8554", 0));
    member.lease_answer(&request, Ok(7));
    assert_eq!(claim.standing(), Standing::Holds(7));
    assert!(member.has_lease("live/cam", 7) && !member.has_lease("live/cam", 6));
    assert_eq!(member.next_lease_request(), None, "it is new");
    // Two here claim the same: the last gives it back.
    let second = member.claim("live/cam").unwrap();
    drop(claim);
    assert_eq!(second.standing(), Standing::Holds(7));
    drop(second);
    let request = member.next_lease_request();
    assert!(matches!(request, Some(LeaseRequest::Release(_, 7))));
    assert_eq!(member.channel_rows().0.len(), 0);
}

#[test]
fn who_is_gone_when_the_answer_comes_gives_the_lease_back() {
    let member = reached();
    let claim = member.claim("live/cam").unwrap();
    let request = member.next_lease_request().unwrap();
    drop(claim);
    member.lease_answer(&request, Ok(7));
    let request = member.next_lease_request();
    assert!(matches!(request, Some(LeaseRequest::Release(_, 7))));
}

#[test]
fn what_was_not_answered_is_given_back_again() {
    let member = reached();
    let held = ["live/a", "live/b"].map(|channel| {
        let claim = member.claim(channel).unwrap();
        let request = member.next_lease_request().unwrap();
        member.lease_answer(&request, Ok(7));
        claim
    });
    drop(held);
    let first = member.next_lease_request().unwrap();
    member.reached(Err("no answer".to_owned()));
    member.lease_registry(1, LASTS);
    member.reached(Ok(()));
    assert_eq!(member.next_lease_request(), Some(first.clone()));
    member.lease_answer(&first, Ok(7));
    let second = member.next_lease_request().unwrap();
    assert!(matches!(second, LeaseRequest::Release(..)) && second != first);
    // Another registry knows nothing of these leases.
    member.lease_registry(2, LASTS);
    assert_eq!(member.next_lease_request(), None);
}

/// Its publisher fell silent while the renewal was on the way.
#[test]
fn a_lease_given_up_before_its_renewal_is_given_back() {
    let member = reached();
    let standby = other(&standby_of("live/cam"), 3);
    member.leases(vec![Arc::new(standby)], Vec::new());
    let claim = member.claim("live/cam").unwrap();
    let request = member.next_lease_request().unwrap();
    // As if an answer had been lost: what was found there is renewed at once.
    let found = (request.entry().clone(), 7);
    member.lease_answer(&request, Err(Some(found)));
    let renewal = member.next_lease_request().unwrap();
    assert!(matches!(renewal, LeaseRequest::Renew(_, 7)));
    assert!(claim.give_up_to_standby());
    member.lease_answer(&renewal, Ok(8));
    let request = member.next_lease_request();
    assert!(matches!(request, Some(LeaseRequest::Release(_, 8))));
}

#[test]
fn another_nodes_lease_refuses_and_lets_go() {
    let member = reached();
    let claim = member.claim("live/cam").unwrap();
    let request = member.next_lease_request().unwrap();
    member.lease_answer(&request, Ok(7));
    member.lease_news(LeaseNews::Put(other("live/cam", 5), 8));
    assert_eq!(claim.refused(), None, "that one is older");
    member.lease_news(LeaseNews::Put(other("live/cam", 9), 9));
    assert_eq!(claim.refused(), Some(other("live/cam", 9)));
    assert_eq!(member.stats.stepped_down.load(Ordering::Relaxed), 1);
    member.leases(vec![Arc::new(other("live/cam", 9))], Vec::new());
    let held = member.holder_of("live/cam");
    assert_eq!(held.as_deref(), Some(&other("live/cam", 9)));
    let rows = member.channel_rows().0;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(!rows[0].is_this);
    // It goes on at once when that one is gone.
    member.lease_news(LeaseNews::Gone("live/cam".to_owned(), 10));
    let request = member.next_lease_request();
    assert!(matches!(request, Some(LeaseRequest::Create(_))));
}

#[test]
fn a_registry_made_anew_is_waited_for_by_who_held_nothing() {
    let member = reached();
    let held = member.claim("live/held").unwrap();
    let request = member.next_lease_request().unwrap();
    member.lease_answer(&request, Ok(7));
    member.reached(Err("gone".to_owned()));
    assert!(!held.is_open());
    member.lease_registry(2, LASTS);
    member.reached(Ok(()));
    let request = member.next_lease_request().unwrap();
    assert_eq!(request.entry().channel, "live/held");
    member.lease_answer(&request, Ok(1));
    let open = member.claim("live/open").unwrap();
    assert_eq!(member.next_lease_request(), None);
    assert!(!open.is_open(), "nobody waits for that");
    assert_eq!(open.standing(), Standing::Open);
    assert_eq!(held.standing(), Standing::Holds(1));
}

#[test]
fn claims_are_as_many_as_may_be() {
    let member = member();
    let claim = |n: usize| member.claim(&format!("live/{n}"));
    let claims: Vec<_> = (0..CLAIMS_MAX).map(|n| claim(n).unwrap()).collect();
    assert!(claim(CLAIMS_MAX).is_none());
    assert!(claim(0).is_some(), "one more of the same");
    drop(claims);
    assert!(claim(CLAIMS_MAX).is_some());
    assert!(member.claim("no channel").is_none());
}

/// The first of them is due again each time.
#[test]
fn leases_are_renewed_in_turn() {
    let member = member();
    member.lease_registry(1, Duration::from_millis(300));
    member.reached(Ok(()));
    let _claims = ["live/a", "live/b", "live/c"].map(|channel| {
        let claim = member.claim(channel).unwrap();
        let request = member.next_lease_request().unwrap();
        assert_eq!(request.entry().channel, channel);
        member.lease_answer(&request, Ok(7));
        claim
    });
    let asked = (8..12).map(|revision| {
        std::thread::sleep(Duration::from_millis(100));
        let request = member.next_lease_request().unwrap();
        assert!(matches!(request, LeaseRequest::Renew(..)), "{request:?}");
        member.lease_answer(&request, Ok(revision));
        request.entry().channel.clone()
    });
    let asked: Vec<_> = asked.collect();
    assert_eq!(asked, ["live/a", "live/b", "live/c", "live/a"]);
}

#[test]
fn who_leaves_gives_all_leases_back() {
    let member = reached();
    assert!(member.keep_claimed("live/cam"));
    let request = member.next_lease_request().unwrap();
    member.lease_answer(&request, Ok(7));
    member.leave_channels();
    let request = member.next_lease_request();
    assert!(matches!(request, Some(LeaseRequest::Release(_, 7))));
    assert_eq!(member.next_lease_request(), None);
}
