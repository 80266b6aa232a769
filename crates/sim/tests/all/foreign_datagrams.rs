//! Datagrams from strangers are dropped and counted. They change nothing: no frame, no frame time and no byte that is
//! sent. Replayed and forged datagrams of peers do no harm either.

use crate::common::{SessionSetup, TestSession, at, ms, rtt_link, secs, site_id};
use coplay::codec::{MAX_DATAGRAM, VERSION};
use coplay::id::Addr;
use coplay::input::MissingRanges;
use coplay::session::Event;
use coplay::session::message::{CommandKind, Extra, Hello, ScheduledCommand, SenderIdentity, SessionMessage, Tick};
use coplay_links::random::Random;
use coplay_sim::network::CapturedDatagram;
use coplay_sim::session_network::SessionNetwork;

const SITES: usize = 3;

/// Returns a session of three sites after 8 s, two of which were cut off from each other for 1 s. All datagrams of the
/// session were captured.
fn captured_session_with_a_cut() -> TestSession {
    let mut game = SessionSetup::new(SITES, rtt_link(100)).start();
    game.network.start_capture(100_000);
    game.run_until(at(secs(4)));
    game.network.set_cut(0, 1, true);
    game.run_for(secs(1));
    game.network.set_cut(0, 1, false);
    game.run_until(at(secs(8)));
    game
}

fn total_rejected(game: &TestSession) -> u64 {
    (0..SITES).map(|site| game.stats(site).dropped_datagrams.total()).sum()
}

/// Returns, for each ordered pair of sites, the numbers of datagrams and bytes that the first site sent to the second
/// and received from it.
fn traffic(game: &TestSession) -> Vec<[u64; 4]> {
    let links =
        (0..SITES).flat_map(|site| (0..SITES).map(move |peer| (site, peer))).filter(|(site, peer)| site != peer);
    let stats = links.map(|(site, peer)| game.peer_stats(site, peer));
    stats.map(|stats| [stats.packets_out, stats.bytes_out, stats.packets_in, stats.bytes_in]).collect()
}

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..random.below(1_400)).map(|_| random.bits() as u8).collect();
    if let Some(first) = bytes.first_mut().filter(|_| random.chance(0.6)) {
        *first = *random.pick(&[VERSION, 0x80, 0xe0]);
    }
    bytes.truncate(if random.chance(0.5) { random.below(30) as usize } else { bytes.len() });
    bytes
}

/// Returns the datagram with another session id; `None` if it carries none.
fn with_other_session_id(bytes: &[u8], session_id: u64) -> Option<Vec<u8>> {
    let mut buf = vec![0; 2_000];
    let len = match SessionMessage::decode(bytes).ok()? {
        SessionMessage::Hello(hello) => Hello { session_id, ..*hello }.encode(&mut buf).ok()?,
        SessionMessage::Tick(tick) => {
            let identity = tick.identity.map(|identity| SenderIdentity { session_id, ..identity })?;
            Tick { identity: Some(identity), ..tick }.encode(&mut buf).ok()?
        }
    };
    buf.truncate(len);
    Some(buf)
}

/// Draws a datagram that a stranger might send, and the number of the site that receives it.
fn draw_garbage(random: &mut Random, captured: &[CapturedDatagram]) -> (usize, Vec<u8>) {
    let sample = random.pick(captured);
    let bytes = match random.below(4) {
        0 => random_bytes(random),
        1 => sample.bytes[..random.below(sample.bytes.len() as u64) as usize].to_vec(),
        2 => sample.bytes.clone(),
        _ => with_other_session_id(&sample.bytes, random.bits()).unwrap_or_else(|| random_bytes(random)),
    };
    (if random.chance(0.8) { sample.to } else { random.below(SITES as u64) as usize }, bytes)
}

/// Injects `per_ms` garbage datagrams in each of `millis` milliseconds. Returns their total number.
fn inject_garbage(game: &mut TestSession, captured: &[CapturedDatagram], millis: u32, per_ms: u32) -> u64 {
    let mut random = Random::stream(7, "garbage");
    for _ in 0..millis {
        for _ in 0..per_ms {
            let (to, bytes) = draw_garbage(&mut random, captured);
            game.network.inject(to, Addr(1_000_000 + random.below(5_000)), &bytes);
            // A host program that receives a datagram polls its session.
            game.network.wake(to);
        }
        game.run_for(ms(1));
    }
    u64::from(millis) * u64::from(per_ms)
}

#[test]
fn foreign_datagrams_change_nothing() {
    let (mut game, mut reference) = (captured_session_with_a_cut(), captured_session_with_a_cut());
    let mut captured: Vec<CapturedDatagram> = game.network.captured().cloned().collect();
    // Datagrams that name their sender are few and the most dangerous ones, so they are drawn more often.
    let naming_sender = |packet: &&CapturedDatagram| match SessionMessage::decode(&packet.bytes) {
        Ok(SessionMessage::Tick(tick)) => tick.identity.is_some(),
        Ok(SessionMessage::Hello(_)) => true,
        Err(error) => panic!("a site sent a malformed message: {error:?}"),
    };
    let naming_sender: Vec<CapturedDatagram> = captured.iter().filter(naming_sender).cloned().collect();
    assert!(naming_sender.len() > 100, "only {} datagrams name their sender", naming_sender.len());
    for _ in 0..captured.len() / naming_sender.len() {
        captured.extend(naming_sender.iter().cloned());
    }
    let before = total_rejected(&game);
    let injected = inject_garbage(&mut game, &captured, 20_000, 5);
    assert_eq!(injected, 100_000);
    reference.run_for(secs(20));
    game.assert_consistent();
    assert_eq!(game.step_times, reference.step_times, "frames are stepped at different times");
    assert_eq!(game.checker.trace_hash, reference.checker.trace_hash);
    assert_eq!(game.events, reference.events, "an event was reported");
    assert_eq!(traffic(&game), traffic(&reference), "a garbage datagram was answered or attributed to a peer");
    assert_eq!(total_rejected(&game) - before, injected, "each datagram is counted once");
}

#[test]
fn foreign_datagrams_do_not_delay_the_lobby() {
    let captured: Vec<CapturedDatagram> = captured_session_with_a_cut().network.captured().cloned().collect();
    let setup = SessionSetup { seed: 99, ..SessionSetup::new(SITES, rtt_link(100)) };
    let (mut game, mut reference) = (setup.start(), setup.start());
    // The captured datagrams belong to an earlier session.
    inject_garbage(&mut game, &captured, 3_000, 5);
    reference.run_for(secs(3));
    assert!(!reference.step_times[0].is_empty(), "the game has started");
    assert_eq!(game.step_times, reference.step_times);
    assert_eq!(game.events, reference.events);
}

/// A datagram that names another session is rejected even if it comes from the address of a peer.
#[test]
fn datagram_of_another_session_from_a_peer_address_is_rejected() {
    let mut game = captured_session_with_a_cut();
    let captured: Vec<CapturedDatagram> = game.network.captured().cloned().collect();
    let mut injected = 0;
    let (before, received) = (total_rejected(&game), traffic(&game));
    for packet in &captured {
        if let Some(bytes) = with_other_session_id(&packet.bytes, 99) {
            game.network.inject(packet.to, SessionNetwork::address(packet.from, 0), &bytes);
            injected += 1;
        }
    }
    assert!(injected > 100);
    assert_eq!(traffic(&game), received, "a datagram was attributed to a peer");
    assert_eq!(total_rejected(&game) - before, injected);
}

/// Genuine datagrams of a peer are replayed, whole or truncated, at least 1 s late. Their inputs are already known, and
/// the game continues undisturbed.
#[test]
fn replayed_and_truncated_peer_datagrams_are_harmless() {
    let mut game = captured_session_with_a_cut();
    let mut random = Random::stream(7, "late");
    let from = game.now();
    for _ in 0..400 {
        game.run_for(ms(50));
        let (now, count) = (game.now(), game.network.captured().len());
        let old =
            game.network.captured().nth(random.below(count as u64) as usize).cloned().expect("a captured datagram");
        if now - old.at < secs(1) {
            continue;
        }
        let len = if random.chance(0.5) { old.bytes.len() } else { random.below(old.bytes.len() as u64) as usize };
        game.network.inject(old.to, SessionNetwork::address(old.from, 0), &old.bytes[..len]);
        game.network.wake(old.to);
    }
    game.assert_consistent();
    for site in 0..SITES {
        let fps = game.fps(site, from, game.now());
        assert!(fps > 59.5, "site {site} at {fps:.2} fps");
        let events: Vec<_> = game.events_of(site).filter(|reported| reported.at > from).collect();
        assert!(events.is_empty(), "site {site} reported {events:?}");
    }
}

/// A datagram that claims a new address for a peer must carry the session id and be newer than every datagram of that
/// peer.
#[test]
fn replayed_or_forged_datagrams_do_not_change_a_peer_address() {
    let mut game = captured_session_with_a_cut();
    let naming_sender = |packet: &&CapturedDatagram| match SessionMessage::decode(&packet.bytes) {
        Ok(SessionMessage::Tick(tick)) => tick.identity.is_some(),
        _ => false,
    };
    let old = game.network.captured().filter(naming_sender).last().cloned().expect("a packet that names its sender");
    let other_addr = Addr(777);
    game.network.inject(old.to, other_addr, &old.bytes);
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&old.bytes) else {
        unreachable!("it was decoded before")
    };
    let probe =
        tick.probe.map(|probe| coplay::session::message::ClockProbe { stamp_us: probe.stamp_us + 60_000_000, ..probe });
    let identity = Some(SenderIdentity { session_id: 1, site: site_id(old.from).number() });
    let forged = Tick { probe, identity, missing: MissingRanges::default(), ..tick };
    let mut buf = [0; 1_200];
    let len = forged.encode(&mut buf).expect("room");
    game.network.inject(old.to, other_addr, &buf[..len]);
    let seen = game.events.len();
    let from = game.now();
    game.run_for(secs(5));
    assert_eq!(game.events.len(), seen, "{:?}", game.events.last());
    assert!(game.fps(old.to, from, game.now()) > 59.5);
}

/// Returns the newest tick from one site to another, with `command` in place of its extras.
fn tick_with_scheduled_command(game: &TestSession, from: usize, to: usize, command: ScheduledCommand) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let len = Extra::Command(command).encode(&mut buf).expect("room for a command");
    let carrier = [&[0x84, 0, 0, 0][..], &(len as u16).to_le_bytes(), &buf[..len], &[0]].concat();
    let Ok(SessionMessage::Tick(carrier)) = SessionMessage::decode(&carrier) else { panic!("not a tick") };
    let sent = game.network.captured().filter(|packet| (packet.from, packet.to) == (from, to));
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&sent.last().expect("a packet").bytes) else {
        panic!("not a tick")
    };
    let len = Tick { extras: carrier.extras, ..tick }.encode(&mut buf).expect("room for a tick");
    buf[..len].to_vec()
}

/// A site ignores a delay change of more than one frame, even from the coordinator. A large increase would request a
/// hundred inputs at once.
#[test]
fn delay_change_of_more_than_one_frame_is_ignored() {
    let mut game = captured_session_with_a_cut();
    let before = game.stats(1).input_delay;
    for (input_delay, accepted) in
        [(before + 100, false), (before + 2, false), (before.saturating_sub(2), false), (before + 1, true)]
    {
        let kind = CommandKind::SetDelay { input_delay, prediction_window: 0, input_age: 9, site: site_id(2) };
        let command = ScheduledCommand { issuer: site_id(0), frame: game.stats(1).frame + 30, kind };
        let bytes = tick_with_scheduled_command(&game, 0, 1, command);
        game.network.inject(1, SessionNetwork::address(0, 0), &bytes);
        game.network.wake(1);
        game.run_for(secs(2));
        let delay_changed = |event: &Event| matches!(event, Event::DelayChanged { .. });
        assert_eq!(
            game.events_of(1).any(|reported| delay_changed(&reported.event)),
            accepted,
            "to an input delay of {input_delay}"
        );
        assert_eq!(game.stats(1).input_delay, if accepted { input_delay } else { before });
    }
}
