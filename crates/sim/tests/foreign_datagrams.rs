//! Whatever strangers send is dropped and counted, and changes nothing: not a frame, not its time, not a byte that is sent.

mod common;

use common::{SessionSetup, TestSession, at, ms, rtt_link, secs, site_id};
use coplay::id::Addr;
use coplay::session::Event;
use coplay::wire::{
    CommandKind, Extra, Hello, MAX_DATAGRAM, MissingRanges, ScheduledCommand, SenderIdentity, SessionMessage, Tick,
    VERSION,
};
use coplay_sim::random::Random;
use coplay_sim::session_network::{CapturedDatagram, SessionNetwork};

const SITES: usize = 3;

/// Three sites after eight seconds, in which two of them lost each other for a while; all they said was overheard.
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

/// Datagrams and bytes sent and received over all links.
fn traffic(game: &TestSession) -> Vec<[u64; 4]> {
    let links =
        (0..SITES).flat_map(|site| (0..SITES).map(move |peer| (site, peer))).filter(|(site, peer)| site != peer);
    let stats = links.map(|(site, peer)| game.peer_stats(site, peer));
    stats.map(|stats| [stats.packets_out, stats.bytes_out, stats.packets_in, stats.bytes_in]).collect()
}

fn random_bytes(luck: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..luck.below(1_400)).map(|_| luck.bits() as u8).collect();
    if let Some(first) = bytes.first_mut().filter(|_| luck.chance(0.6)) {
        *first = *luck.pick(&[VERSION, 0x80, 0xe0]);
    }
    bytes.truncate(if luck.chance(0.5) { luck.below(30) as usize } else { bytes.len() });
    bytes
}

/// The same datagram of another session, if it says which session it is of.
fn with_other_session_id(bytes: &[u8], number: u64) -> Option<Vec<u8>> {
    let mut buf = vec![0; 2_000];
    let len = match SessionMessage::decode(bytes).ok()? {
        SessionMessage::Hello(hello) => Hello { session_id: number, ..*hello }.encode(&mut buf).ok()?,
        SessionMessage::Tick(tick) => {
            let identity = tick.identity.map(|identity| SenderIdentity { session_id: number, ..identity })?;
            Tick { identity: Some(identity), ..tick }.encode(&mut buf).ok()?
        }
    };
    buf.truncate(len);
    Some(buf)
}

/// What a stranger might send to a site, from an address that is nobody's.
fn draw_garbage(luck: &mut Random, real: &[CapturedDatagram]) -> (usize, Vec<u8>) {
    let overheard = luck.pick(real);
    let bytes = match luck.below(4) {
        0 => random_bytes(luck),
        1 => overheard.bytes[..luck.below(overheard.bytes.len() as u64) as usize].to_vec(),
        2 => overheard.bytes.clone(),
        _ => with_other_session_id(&overheard.bytes, luck.bits()).unwrap_or_else(|| random_bytes(luck)),
    };
    (if luck.chance(0.8) { overheard.to } else { luck.below(SITES as u64) as usize }, bytes)
}

/// Throws garbage for so many milliseconds, some in each; gives how many.
fn inject_garbage(game: &mut TestSession, real: &[CapturedDatagram], millis: u32, in_each: u32) -> u64 {
    let mut luck = Random::stream(7, "garbage");
    for _ in 0..millis {
        for _ in 0..in_each {
            let (to, bytes) = draw_garbage(&mut luck, real);
            game.network.inject(to, Addr(1_000_000 + luck.below(5_000)), &bytes);
            // A host program that hears something looks what there is to do.
            game.network.wake(to);
        }
        game.run_for(ms(1));
    }
    u64::from(millis) * u64::from(in_each)
}

#[test]
fn foreign_datagrams_change_nothing() {
    let (mut game, mut quiet) = (captured_session_with_a_cut(), captured_session_with_a_cut());
    let mut real: Vec<CapturedDatagram> = game.network.captured().cloned().collect();
    // Those that say who sends them are few, and the most dangerous ones: let there be more of them.
    let named = |packet: &&CapturedDatagram| match SessionMessage::decode(&packet.bytes) {
        Ok(SessionMessage::Tick(tick)) => tick.identity.is_some(),
        Ok(SessionMessage::Hello(_)) => true,
        Err(error) => panic!("a site sent what is no message: {error:?}"),
    };
    let named: Vec<CapturedDatagram> = real.iter().filter(named).cloned().collect();
    assert!(named.len() > 100, "only {} say who sends them", named.len());
    for _ in 0..real.len() / named.len() {
        real.extend(named.iter().cloned());
    }
    let before = total_rejected(&game);
    let thrown = inject_garbage(&mut game, &real, 20_000, 5);
    assert_eq!(thrown, 100_000);
    quiet.run_for(secs(20));
    game.assert_consistent();
    assert_eq!(game.step_times, quiet.step_times, "frames are stepped at other times");
    assert_eq!(game.checker.trace_hash, quiet.checker.trace_hash);
    assert_eq!(game.events, quiet.events, "something was told");
    assert_eq!(traffic(&game), traffic(&quiet), "something was answered, or taken for a peer's");
    assert_eq!(total_rejected(&game) - before, thrown, "each is counted once");
}

#[test]
fn foreign_datagrams_do_not_delay_the_lobby() {
    let real: Vec<CapturedDatagram> = captured_session_with_a_cut().network.captured().cloned().collect();
    let setup = SessionSetup { seed: 99, ..SessionSetup::new(SITES, rtt_link(100)) };
    let (mut game, mut quiet) = (setup.start(), setup.start());
    // What was overheard is of the session before.
    inject_garbage(&mut game, &real, 3_000, 5);
    quiet.run_for(secs(3));
    assert!(!quiet.step_times[0].is_empty(), "the game has started");
    assert_eq!(game.step_times, quiet.step_times);
    assert_eq!(game.events, quiet.events);
}

/// A datagram that names another session is a stranger's, also when it comes from where a peer is.
#[test]
fn datagram_of_another_session_from_a_peer_address_is_rejected() {
    let mut game = captured_session_with_a_cut();
    let real: Vec<CapturedDatagram> = game.network.captured().cloned().collect();
    let mut thrown = 0;
    let (before, heard) = (total_rejected(&game), traffic(&game));
    for packet in &real {
        if let Some(bytes) = with_other_session_id(&packet.bytes, 99) {
            game.network.inject(packet.to, SessionNetwork::address(packet.from, 0), &bytes);
            thrown += 1;
        }
    }
    assert!(thrown > 100);
    assert_eq!(traffic(&game), heard, "taken for a peer's");
    assert_eq!(total_rejected(&game) - before, thrown);
}

/// What a peer really said, but cut short or whole once more, a second late: the inputs in it are long known.
#[test]
fn replayed_and_truncated_peer_datagrams_are_harmless() {
    let mut game = captured_session_with_a_cut();
    let mut luck = Random::stream(7, "late");
    let from = game.now();
    for _ in 0..400 {
        game.run_for(ms(50));
        let (now, count) = (game.now(), game.network.captured().len());
        let old = game.network.captured().nth(luck.below(count as u64) as usize).cloned().expect("it was overheard");
        if now - old.at < secs(1) {
            continue;
        }
        let len = if luck.chance(0.5) { old.bytes.len() } else { luck.below(old.bytes.len() as u64) as usize };
        game.network.inject(old.to, SessionNetwork::address(old.from, 0), &old.bytes[..len]);
        game.network.wake(old.to);
    }
    game.assert_consistent();
    for site in 0..SITES {
        let fps = game.fps(site, from, game.now());
        assert!(fps > 59.5, "site {site} at {fps:.2} fps");
        let told: Vec<_> = game.events_of(site).filter(|told| told.at > from).collect();
        assert!(told.is_empty(), "site {site} told {told:?}");
    }
}

/// Who claims to be a peer that has moved must know the session's number and be newer than all that the peer has said.
#[test]
fn replayed_or_forged_datagrams_do_not_change_a_peer_address() {
    let mut game = captured_session_with_a_cut();
    let named = |packet: &&CapturedDatagram| match SessionMessage::decode(&packet.bytes) {
        Ok(SessionMessage::Tick(tick)) => tick.identity.is_some(),
        _ => false,
    };
    let old = game.network.captured().filter(named).last().cloned().expect("a packet that says who sends it");
    let elsewhere = Addr(777);
    game.network.inject(old.to, elsewhere, &old.bytes);
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&old.bytes) else {
        unreachable!("it was decoded before")
    };
    let probe = tick.probe.map(|probe| coplay::wire::ClockProbe { stamp_us: probe.stamp_us + 60_000_000, ..probe });
    let identity = Some(SenderIdentity { session_id: 1, site: site_id(old.from).number() });
    let guess = Tick { probe, identity, missing: MissingRanges::default(), ..tick };
    let mut buf = [0; 1_200];
    let len = guess.encode(&mut buf).expect("room");
    game.network.inject(old.to, elsewhere, &buf[..len]);
    let seen = game.events.len();
    let from = game.now();
    game.run_for(secs(5));
    assert_eq!(game.events.len(), seen, "{:?}", game.events.last());
    assert!(game.fps(old.to, from, game.now()) > 59.5);
}

/// The newest tick between two sites, with an order of the sender's in it.
fn tick_with_scheduled_command(game: &TestSession, from: usize, to: usize, order: ScheduledCommand) -> Vec<u8> {
    let mut buf = [0; MAX_DATAGRAM];
    let len = Extra::Command(order).encode(&mut buf).expect("room for an order");
    let carrier = [&[0x84, 0, 0, 0][..], &(len as u16).to_le_bytes(), &buf[..len], &[0]].concat();
    let Ok(SessionMessage::Tick(carrier)) = SessionMessage::decode(&carrier) else { panic!("not a tick") };
    let sent = game.network.captured().filter(|packet| (packet.from, packet.to) == (from, to));
    let Ok(SessionMessage::Tick(tick)) = SessionMessage::decode(&sent.last().expect("a packet").bytes) else {
        panic!("not a tick")
    };
    let len = Tick { extras: carrier.extras, ..tick }.encode(&mut buf).expect("room for a tick");
    buf[..len].to_vec()
}

/// Nobody is asked for a hundred inputs at once, whoever orders it.
#[test]
fn delay_change_of_more_than_one_frame_is_ignored() {
    let mut game = captured_session_with_a_cut();
    let before = game.stats(1).input_delay;
    for (lag, followed) in
        [(before + 100, false), (before + 2, false), (before.saturating_sub(2), false), (before + 1, true)]
    {
        let what = CommandKind::SetDelay { input_delay: lag, prediction_window: 0, input_age: 9, site: site_id(2) };
        let order = ScheduledCommand { issuer: site_id(0), frame: game.stats(1).frame + 30, kind: what };
        let bytes = tick_with_scheduled_command(&game, 0, 1, order);
        game.network.inject(1, SessionNetwork::address(0, 0), &bytes);
        game.network.wake(1);
        game.run_for(secs(2));
        let turned = |event: &Event| matches!(event, Event::DelayChanged { .. });
        assert_eq!(game.events_of(1).any(|told| turned(&told.event)), followed, "to a lag of {lag}");
        assert_eq!(game.stats(1).input_delay, if followed { lag } else { before });
    }
}
