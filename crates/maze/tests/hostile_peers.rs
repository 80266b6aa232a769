//! Tests of hostile peers: forged records, invented sites and forged updates neither exceed the bounds on a site's
//! memory nor suppress real scores.

use coplay::codec::MAX_DATAGRAM;
use coplay::hash::xxh64;
use coplay::peer_world::{DeadReckoning, EntityId, UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, MazeSettings, MazeSite, ScoreRecord, Shot};

const VICTIM: WorldSiteId = WorldSiteId(1);
const ATTACKER: WorldSiteId = WorldSiteId(2);
const TICK: TimeDelta = TimeDelta::from_millis(10);

fn maze_site(site: WorldSiteId) -> MazeSite {
    let settings = MazeSettings { cells_per_side: 5, ..MazeSettings::default() };
    MazeSite::new(Instant::ZERO, site, site == VICTIM, &settings, UpdatePolicy::default(), (Some("Ann"), 1)).unwrap()
}

/// First byte of a peer world datagram.
const FAMILY: u8 = 0x31;
/// Type of an update item.
const UPDATE: u8 = 1;
/// Type of a record item.
const RECORD: u8 = 10;

fn inject(game: &mut MazeSite, now: Instant, from: WorldSiteId, item: &[u8]) {
    game.handle_datagram(now, from, &[&[FAMILY][..], item].concat());
}

/// Encodes a number as a varint: seven bits per byte, lowest first.
fn varint(mut number: u32) -> Vec<u8> {
    let mut bytes = vec![];
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn record_of_version(of: WorldSiteId, version: u32, bytes: &[u8]) -> Vec<u8> {
    [&[RECORD][..], &of.0.to_le_bytes(), &varint(version), &varint(bytes.len() as u32), bytes].concat()
}

/// Encodes a record that has changed `changes` times, with the version number that an honest site would give it.
fn record(of: WorldSiteId, changes: u32, bytes: &[u8]) -> Vec<u8> {
    record_of_version(of, changes << 12 | xxh64(0, bytes) as u32 & 0xfff, bytes)
}

/// Encodes an update item: the state of the sender's avatar `index` at a tick.
fn update(index: u8, sequence: u16, tick: u32, state: &[u8]) -> Vec<u8> {
    let (sequence, tick) = (sequence.to_le_bytes(), (tick as u16).to_le_bytes());
    [&[UPDATE, index][..], &sequence, &tick, &varint(state.len() as u32), state].concat()
}

/// Encodes a score record with `times` hits by each of `sites` sites, whose ids begin at `first`.
fn forged_record(first: u32, sites: u32, times: u8) -> Vec<u8> {
    let total = sites * u32::from(times);
    let mut bytes = [&[0, 1, 0][..], &varint(total)].concat();
    for site in first..first + sites {
        bytes.extend_from_slice(&site.to_le_bytes());
        bytes.extend_from_slice(&[0, 0, times]);
    }
    assert!(ScoreRecord::from_bytes(&bytes).is_some_and(|record| record.total_falls() == total));
    bytes
}

fn memory_without_world(game: &MazeSite) -> usize {
    game.memory() - game.world().memory()
}

/// Returns the datagrams that a site wants to send now, to any destination.
fn drain_datagrams(game: &mut MazeSite, now: Instant) -> Vec<Vec<u8>> {
    let mut buf = [0; MAX_DATAGRAM];
    std::iter::from_fn(|| game.poll_transmit(now, &mut buf).map(|packet| buf[..packet.len].to_vec())).collect()
}

#[test]
fn forged_records_neither_fill_memory_nor_block_the_victim() {
    let (mut victim, mut other) = (maze_site(VICTIM), maze_site(WorldSiteId(3)));
    let mut now = Instant::ZERO;
    for round in 1..=127u8 {
        now += TICK;
        let forged = forged_record(1_000 * u32::from(round), 120, round);
        inject(&mut victim, now, ATTACKER, &record(VICTIM, 1_000 * u32::from(round), &forged));
        inject(&mut other, now, ATTACKER, &record(VICTIM, 1_000 * u32::from(round), &forged));
        victim.advance(now);
        assert!(memory_without_world(&victim) < 64 << 10, "round {round}: {} bytes", memory_without_world(&victim));
    }
    inject(&mut victim, now, ATTACKER, &record_of_version(VICTIM, u32::MAX, b""));
    victim.set_name("Eve");
    for _ in 0..300 {
        now += TICK;
        victim.advance(now);
        drain_datagrams(&mut victim, now).iter().for_each(|bytes| other.handle_datagram(now, VICTIM, bytes));
    }
    other.advance(now);
    let name = other.scores().display_name(EntityId { site: VICTIM, index: 0 });
    assert_eq!(name, "Eve", "the record of the victim does not get through");
    assert_eq!(other.scores().ranking(), victim.scores().ranking());
}

#[test]
fn invented_sites_do_not_displace_real_scores() {
    let mut game = maze_site(VICTIM);
    for site in 5_000..8_000 {
        inject(&mut game, Instant::ZERO, ATTACKER, &record(WorldSiteId(site), 1, &forged_record(9_000, 1, 1)));
    }
    let mut late_joiner = ScoreRecord::new("Cid");
    late_joiner.record_hit(0, EntityId { site: VICTIM, index: 0 });
    inject(&mut game, Instant::ZERO, WorldSiteId(4), &record(WorldSiteId(4), 1, &late_joiner.to_bytes()));
    game.advance(Instant::ZERO + TICK);
    assert_eq!(game.scores().display_name(EntityId { site: WorldSiteId(4), index: 0 }), "Cid");
    assert_eq!(game.scores().score(EntityId { site: VICTIM, index: 0 }).hits, 1);
}

/// Hashes a number to a pseudo-random one.
fn scramble(number: u32) -> u32 {
    let mixed = (number ^ number >> 16).wrapping_mul(0x45d9_f3b5).wrapping_add(0x9e37_79b9);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x2c1b_3c6d);
    mixed ^ mixed >> 14
}

#[test]
fn memory_is_bounded_under_hostile_traffic() {
    let mut game = maze_site(VICTIM);
    let mut avatar: Avatar = game.rules().spawn_avatar(&[], 9);
    let (mut most, mut state) = (0, [0; 100]);
    for round in 0..6_000u32 {
        let now = Instant::ZERO + TimeDelta::from_micros(i64::from(round) * 500);
        let (from, random) = (WorldSiteId(2 + scramble(round) % 63), scramble(round ^ 0xabcd));
        let tick = round / 20;
        avatar.shots.push(Shot { tick, origin: avatar.position, heading: random as u16, ..Shot::default() });
        avatar.shots.drop_before(tick);
        let len = game.rules().encode(&avatar, &mut state).expect("the buffer is large enough");
        let forged = forged_record(random >> 1, 100, 1 + (random % 100) as u8);
        let of = [VICTIM, from, WorldSiteId(random)][random as usize % 3];
        inject(&mut game, now, from, &record(of, 1 + random % 400_000, &forged));
        inject(&mut game, now, from, &update((random >> 8) as u8, random as u16, tick, &state[..len]));
        if round % 20 == 0 {
            game.advance(now);
            drain_datagrams(&mut game, now);
            most = most.max(memory_without_world(&game));
        }
    }
    assert!(most < 8 << 20, "{most} bytes");
    assert!(game.memory() < 64 << 20, "{} bytes", game.memory());
}
