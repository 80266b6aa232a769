//! A player lies about the membership of the session. The messages of one player that is no quorum by itself evict no
//! reachable player, take over no seat, and schedule no command that only the coordinator may schedule. A liar that
//! falls silent or stalls the game is dropped.

use crate::common::{SessionSetup, TestSession, at, ms, rtt_link, secs, site_id, site_set};
use coplay::codec::MAX_DATAGRAM;
use coplay::frame::Frame;
use coplay::id::{Addr, SiteSet};
use coplay::session::message::{
    CommandKind, Extra, Hello, MembershipDecision, Refusal, ScheduledCommand, SessionMessage, Tick, Vote,
};
use coplay::session::{Event, SessionEnd, State};
use coplay::time::Instant;
use coplay_sim::session_network::SessionNetwork;

/// Returns a running session whose datagrams are captured.
fn start_captured(sites: usize) -> TestSession {
    let mut game = SessionSetup::new(sites, rtt_link(60)).start();
    game.network.start_capture(2_000);
    game.run_until(at(secs(5)));
    game
}

/// Returns every ordered pair of different sites.
fn pairs(sites: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..sites).flat_map(move |one| (0..sites).map(move |other| (one, other))).filter(|(one, other)| one != other)
}

/// Returns the newest tick from one site to another, with `extra` in place of its extras.
fn tick_with(game: &TestSession, from: usize, to: usize, extra: &Extra<'_>) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let len = extra.encode(&mut buf).expect("room for the entry");
    let carrier = [&[0x84, 0, 0, 0][..], &(len as u16).to_le_bytes(), &buf[..len], &[0]].concat();
    let Ok(SessionMessage::Tick(carrier)) = SessionMessage::decode(&carrier) else { panic!("not a tick") };
    let is_tick = |bytes: &[u8]| matches!(SessionMessage::decode(bytes), Ok(SessionMessage::Tick(_)));
    let sent =
        game.network.captured().filter(|packet| (packet.from, packet.to) == (from, to) && is_tick(&packet.bytes));
    let bytes = &sent.last().expect("a tick").bytes;
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(bytes) else { unreachable!("it was decoded before") };
    let len = Tick { extras: carrier.extras, ..tick }.encode(&mut buf).expect("room for a tick");
    buf[..len].to_vec()
}

/// Injects `extra` at the given sites, inside a tick of the liar.
fn send_forged_extra(game: &mut TestSession, liar: usize, to: impl IntoIterator<Item = usize>, extra: &Extra<'_>) {
    for to in to.into_iter().filter(|to| *to != liar) {
        let bytes = tick_with(game, liar, to, extra);
        game.network.inject(to, SessionNetwork::address(liar, 0), &bytes);
        game.network.wake(to);
    }
}

/// Returns a forged hello that claims to come from site `claimed`.
fn forged_hello(game: &TestSession, claimed: usize, to: usize, refusal: Option<Refusal>) -> Vec<u8> {
    let config = &game.configs[claimed];
    let hello = Hello {
        session_id: config.session_id,
        site: site_id(claimed),
        incarnation: config.incarnation,
        your_incarnation: game.configs[to].incarnation,
        agreed_sites: SiteSet::first(game.configs.len()),
        is_leaving: false,
        join_readiness: None,
        refusal,
        stamp_us: game.local_time(claimed).as_micros() as u64 + 5_000_000,
        echo: None,
        start_ns: None,
        settings: config.settings.clone(),
    };
    let mut buf = [0; MAX_DATAGRAM];
    let len = hello.encode(&mut buf).expect("room for a hello");
    buf[..len].to_vec()
}

/// Asserts that no site was dropped, left, moved or ended, and that every site plays at full speed.
#[track_caller]
fn assert_all_play(game: &TestSession, since: Instant, case: &str) {
    for site in 0..game.configs.len() {
        assert_eq!(game.state(site), State::Running, "{case}: site {site}");
        let gone =
            |event: &Event| matches!(event, Event::Dropped { .. } | Event::Left { .. } | Event::AddressChanged { .. });
        let reported = game.events_of(site).find(|reported| gone(&reported.event));
        assert!(reported.is_none(), "{case}: site {site} reports {reported:?}");
        let fps = game.fps(site, since, game.now());
        assert!(fps > 58.0, "{case}: site {site} plays at {fps:.1} fps");
    }
    game.assert_consistent();
}

/// Returns the vote of a liar that leads ballot 80 plus its site number to drop no site, and claims to have accepted
/// `decision` in it.
fn forged_accepting_vote(liar: usize, decision: MembershipDecision) -> Vote {
    let ballot = 80 + liar as u32;
    Vote {
        epoch: 0,
        ballot,
        drop: SiteSet::EMPTY,
        input_ends: [Frame::ZERO; 8],
        left_sites: SiteSet::EMPTY,
        to_evict: SiteSet::EMPTY,
        command: None,
        accepted: Some((ballot, decision)),
    }
}

fn forged_drop_decision(victim: usize, last: Frame) -> MembershipDecision {
    MembershipDecision { input_ends: [last; 8], ..MembershipDecision::dropping(site_set([victim])) }
}

#[test]
fn decision_sent_by_one_player_evicts_nobody() {
    for sites in 2..=4 {
        // The lowest of two sites is a quorum by itself.
        for (liar, victim) in pairs(sites).filter(|pair| sites > 2 || *pair == (1, 0)) {
            let mut game = start_captured(sites);
            let since = game.now();
            let last = game.stats(victim).frame;
            send_forged_extra(
                &mut game,
                liar,
                0..sites,
                &Extra::DecisionReport(0, forged_drop_decision(victim, last), 0),
            );
            game.run_for(secs(3));
            assert_all_play(&game, since, &format!("{sites} sites, {liar} drops {victim}"));
        }
    }
}

#[test]
fn refusal_sent_by_one_player_evicts_nobody() {
    for sites in 2..=4 {
        for (liar, victim) in pairs(sites).filter(|pair| sites > 2 || *pair == (1, 0)) {
            let mut game = start_captured(sites);
            let since = game.now();
            let bytes = forged_hello(&game, liar, victim, Some(Refusal::Dropped));
            game.network.inject(victim, SessionNetwork::address(liar, 0), &bytes);
            game.network.wake(victim);
            game.run_for(secs(3));
            assert_all_play(&game, since, &format!("{sites} sites, {liar} refuses {victim}"));
        }
    }
}

/// A site that is silent for a moment because its packets are lost has not left just because one player reports its
/// leave.
#[test]
fn leave_reported_by_one_player_is_not_believed() {
    for sites in 3..=4 {
        for (liar, victim) in pairs(sites) {
            let mut game = start_captured(sites);
            let receivers: Vec<usize> = (0..sites).filter(|site| *site != liar && *site != victim).collect();
            receivers.iter().for_each(|to| game.network.set_cut(victim, *to, true));
            game.run_for(ms(300));
            let last = game.stats(victim).frame + game.stats(victim).input_delay + 8;
            send_forged_extra(&mut game, liar, receivers.iter().copied(), &Extra::LeaveReport(site_id(victim), last));
            receivers.iter().for_each(|to| game.network.set_cut(victim, *to, false));
            game.run_for(secs(1));
            let since = game.now();
            game.run_for(secs(3));
            assert_all_play(&game, since, &format!("{sites} sites, {liar} reports that {victim} left"));
        }
    }
}

#[test]
fn only_the_coordinator_schedules_commands() {
    for liar in 1..3 {
        let mut game = start_captured(3);
        let (since, input_delay) = (game.now(), game.stats(0).input_delay);
        let kind = CommandKind::SetDelay {
            input_delay: input_delay + 1,
            prediction_window: 0,
            input_age: 9,
            site: site_id(2),
        };
        let command = ScheduledCommand { issuer: site_id(liar), frame: game.stats(0).frame + 30, kind };
        send_forged_extra(&mut game, liar, 0..3, &Extra::Command(command));
        game.run_for(secs(3));
        for site in 0..3 {
            assert_eq!(game.stats(site).input_delay, input_delay, "site {site} follows site {liar}");
        }
        assert_all_play(&game, since, &format!("a command of site {liar}"));
    }
}

/// Returns the vote in the newest tick that one site sent to another.
fn newest_vote(game: &TestSession, from: usize, to: usize) -> Option<Vote> {
    let sent = game.network.captured().filter(|packet| (packet.from, packet.to) == (from, to)).last()?;
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&sent.bytes) else { return None };
    tick.extras.iter().find_map(|extra| if let Extra::Vote(vote) = extra { Some(vote) } else { None })
}

/// During a ballot about a crashed site, one player forges its vote: it claims that it accepted a decision to drop
/// another player in an earlier ballot. No other site drops that player.
#[test]
fn forged_accepted_decision_in_a_ballot_evicts_no_reachable_player() {
    for (liar, victim) in [(1, 2), (2, 1), (1, 0), (2, 0)] {
        let mut game = SessionSetup::new(4, rtt_link(60)).start_with(|_, config| config.drop_timeout = Some(ms(1_000)));
        game.network.start_capture(2_000);
        game.run_until(at(secs(5)));
        game.crash(3);
        let accepted = Some((4, forged_drop_decision(victim, game.stats(victim).frame)));
        let mut lies = 0;
        for _ in 0..500 {
            game.run_for(ms(5));
            if let Some(vote) = newest_vote(&game, 0, liar) {
                send_forged_extra(&mut game, liar, 0..3, &Extra::Vote(Vote { accepted, ..vote }));
                lies += 1;
            }
        }
        assert!(lies > 0, "there was no ballot");
        game.run_for(secs(3));
        let evicted = |event: &Event| matches!(event, Event::Dropped { site, .. } if *site == site_id(victim));
        for site in (0..3).filter(|site| *site != liar) {
            let reported = game.events_of(site).find(|reported| evicted(&reported.event));
            assert!(reported.is_none(), "{liar} evicts {victim}: site {site} reports {reported:?}");
            assert_ne!(game.state(site), State::Ended(SessionEnd::Dropped), "{liar} evicts {victim}");
        }
    }
}

/// A hello from a new address, in the name of a silent peer, changes the peer's address unless the transport is
/// authenticated.
#[test]
fn authenticated_peer_never_changes_address() {
    for authenticated in [false, true] {
        let mut game = SessionSetup::new(3, rtt_link(60))
            .start_with(|_, config| config.is_transport_authenticated = authenticated);
        game.run_until(at(secs(5)));
        game.set_isolated(1, true);
        game.run_for(ms(1_200));
        let bytes = forged_hello(&game, 1, 2, None);
        game.network.inject(2, Addr(777), &bytes);
        game.network.wake(2);
        game.run_for(ms(100));
        let moved = game.events_of(2).any(|reported| matches!(reported.event, Event::AddressChanged { .. }));
        assert_eq!(moved, !authenticated);
    }
}

/// A hello from the address of one player claims the site number of another, which keeps its seat.
#[test]
fn hello_cannot_take_over_the_seat_of_another_site() {
    for (liar, victim) in pairs(3) {
        let to = 3 - liar - victim;
        for in_the_lobby in [true, false] {
            let mut game = SessionSetup::new(3, rtt_link(60)).start();
            game.network.start_capture(2_000);
            game.run_until(if in_the_lobby { at(ms(80)) } else { at(secs(5)) });
            if !in_the_lobby {
                // While a player is silent, sites accept a new address for it.
                game.set_isolated(victim, true);
                game.run_for(ms(1_200));
            }
            let bytes = forged_hello(&game, victim, to, None);
            game.network.inject(to, SessionNetwork::address(liar, 0), &bytes);
            game.network.wake(to);
            game.set_isolated(victim, false);
            game.run_for(secs(4));
            let since = game.now();
            game.run_for(secs(3));
            assert_all_play(&game, since, &format!("{liar} takes the seat of {victim} at {to}"));
        }
    }
}

/// A player leads a ballot to drop no site and claims to have accepted the outcome that another player is dropped. The
/// victim, whose vote would count for that outcome, does not accept it.
#[test]
fn player_does_not_vote_for_its_own_eviction_after_one_forged_vote() {
    for sites in 2..=4 {
        for (liar, victim) in pairs(sites).filter(|pair| sites > 2 || *pair == (1, 0)) {
            let mut game = start_captured(sites);
            let (since, last) = (game.now(), game.stats(victim).frame);
            let vote = forged_accepting_vote(liar, forged_drop_decision(victim, last));
            send_forged_extra(&mut game, liar, 0..sites, &Extra::Vote(vote));
            game.run_for(secs(3));
            assert_all_play(&game, since, &format!("{sites} sites, {liar} drops {victim}"));
        }
    }
}

/// A player sends another player a forged admission, so that the victim would consider itself a joiner, which any
/// player can refuse, and then refuses it. The victim plays on.
#[test]
fn running_player_cannot_be_rejoined_and_refused_by_one_peer() {
    for (liar, victim) in pairs(3) {
        for decided in [false, true] {
            let mut game = start_captured(3);
            // Without the liar's inputs the victim's game is frozen, and the victim believes unconfirmed reports.
            game.network.set_cut(liar, victim, true);
            game.run_for(ms(1_500));
            let frame = game.stats(victim).frame + 40;
            let kind = CommandKind::Join {
                site: site_id(victim),
                incarnation: 1,
                members: site_set([liar]),
                epoch: 0,
                input_delay: 0,
                prediction_window: 0,
            };
            let command = ScheduledCommand { issuer: site_id(liar), frame, kind };
            let lie = match decided {
                true => Extra::DecisionReport(
                    0,
                    MembershipDecision { command: Some(command), ..MembershipDecision::dropping(SiteSet::EMPTY) },
                    0,
                ),
                false => Extra::Command(command),
            };
            send_forged_extra(&mut game, liar, [victim], &lie);
            let bytes = forged_hello(&game, liar, victim, Some(Refusal::Dropped));
            game.network.inject(victim, SessionNetwork::address(liar, 0), &bytes);
            game.network.wake(victim);
            game.network.set_cut(liar, victim, false);
            game.run_for(secs(3));
            let since = game.now();
            game.run_for(secs(3));
            assert_all_play(&game, since, &format!("{liar} admits {victim}, decided: {decided}"));
        }
    }
}

/// During a ballot about a crashed site, one player reports that the crashed site was dropped with fewer inputs than
/// the others have of it. All others still agree on its inputs.
#[test]
fn last_inputs_of_a_dropped_site_are_not_truncated_by_one_player() {
    for (liar, victim) in pairs(4).filter(|(liar, victim)| *liar < 4 && *victim < 4) {
        for after in (1_000..1_300).step_by(20) {
            let mut game =
                SessionSetup::new(5, rtt_link(60)).start_with(|_, config| config.drop_timeout = Some(ms(1_000)));
            game.network.start_capture(2_000);
            game.run_until(at(secs(5)));
            let last = Frame::new(game.stats(4).frame.number() - 20);
            game.crash(4);
            game.run_for(ms(after));
            send_forged_extra(&mut game, liar, [victim], &Extra::DecisionReport(0, forged_drop_decision(4, last), 0));
            game.run_for(secs(4));
            for site in 0..4 {
                let fps = game.fps(site, game.now() - secs(1), game.now());
                assert!(fps > 58.0, "{liar} lies to {victim} after {after} ms: site {site} plays at {fps:.1} fps");
            }
            game.assert_consistent();
        }
    }
}

/// A player sends every other player a vote that accepts a decision to drop all of them, and falls silent. The other
/// players drop it, and do not wait to learn whether that decision has taken effect.
#[test]
fn silent_player_that_voted_to_drop_all_others_is_dropped() {
    for (sites, liar) in [(3, 0), (3, 2), (4, 0), (4, 3)] {
        let mut game =
            SessionSetup::new(sites, rtt_link(60)).start_with(|_, config| config.drop_timeout = Some(ms(800)));
        game.network.start_capture(2_000);
        game.run_until(at(secs(5)));
        let others: Vec<usize> = (0..sites).filter(|site| *site != liar).collect();
        let decision = MembershipDecision::dropping(others.iter().map(|site| site_id(*site)).collect());
        let vote = forged_accepting_vote(liar, decision);
        send_forged_extra(&mut game, liar, 0..sites, &Extra::Vote(vote));
        game.crash(liar);
        game.run_for(secs(12));
        let since = game.now();
        game.run_for(secs(2));
        for site in others {
            let fps = game.fps(site, since, game.now());
            assert!(
                fps > 58.0,
                "{sites} sites, {liar} lies: site {site} plays at {fps:.1} fps, {:?}",
                game.state(site)
            );
        }
    }
}

/// A player announces that it leaves after inputs that it never sends, and goes on sending ticks. It is evicted like
/// any other player that stalls the game.
#[test]
fn leaver_that_withholds_its_last_inputs_is_evicted() {
    let mut game = SessionSetup::new(3, rtt_link(60)).start_with(|_, config| config.stall_limit = Some(secs(1)));
    game.network.start_capture(2_000);
    game.run_until(at(secs(5)));
    let last = game.network.nodes[2].session.stats().frame + 100;
    game.crash(2);
    for _ in 0..100 {
        send_forged_extra(&mut game, 2, 0..3, &Extra::Leave(last));
        game.run_for(ms(100));
    }
    assert_all_play_but(&game, 2);
}

/// Checks that all sites but one played at full speed in the last second.
fn assert_all_play_but(game: &TestSession, liar: usize) {
    for site in (0..game.network.nodes.len()).filter(|site| *site != liar) {
        let fps = game.fps(site, game.now() - secs(1), game.now());
        assert!(fps > 58.0, "site {site} plays at {fps:.1} fps, {:?}", game.state(site));
    }
}
