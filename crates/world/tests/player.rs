//! Tests of a player's client. Most tests connect it to its server over a link with delay; some also lose datagrams or
//! cut the link. They cover response to controls, convergence of both sides, restart and reconnection, server changes,
//! measured consistency, and the scoreboard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coplay::mirror::SourceId;
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{CELL_SIZE, Controls, MazeSettings, Position, Score, UNIT};
use coplay_world::{
    CONSISTENCY_TOLERANCE, CONSISTENCY_WINDOW, Client, ClientInput, Directory, PROTOCOL_VERSION, Pong, ServerSelector,
    ServerWorld, player_entity,
};

const KEY: [u8; 32] = [7; 32];
const MILLI: TimeDelta = TimeDelta::from_millis(1);

/// One player on one server.
struct ClientServerPair {
    now: Instant,
    delay: TimeDelta,
    /// Of the datagrams in both directions together, one in this many is lost; none for 0. All are lost while the link
    /// is cut.
    loss_interval: usize,
    is_cut: bool,
    sent_count: usize,
    client: Client,
    world: ServerWorld,
    to_server: VecDeque<(Instant, Vec<u8>)>,
    to_client: VecDeque<(Instant, Vec<u8>)>,
}

impl ClientServerPair {
    fn new(delay_ms: i64, loss_interval: usize) -> Self {
        Self::with_ninjas(0, delay_ms, loss_interval)
    }

    /// Creates a pair whose server also simulates this many ninjas.
    fn with_ninjas(ninjas: u8, delay_ms: i64, loss_interval: usize) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        Self {
            now,
            delay: TimeDelta::from_millis(delay_ms),
            loss_interval,
            is_cut: false,
            sent_count: 0,
            client: Client::new(now, "Ada", 1),
            world: ServerWorld::new(SourceId(1), MazeSettings { cells_per_side: 8, ..MazeSettings::default() }, ninjas),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.sent_count += 1;
        self.is_cut || self.loss_interval > 0 && self.sent_count.is_multiple_of(self.loss_interval)
    }

    /// Returns the time on the server's clock, which differs from the client's.
    fn server_time(&self) -> Instant {
        self.now + TimeDelta::from_secs(1_000)
    }

    fn step(&mut self) {
        let now = self.now + MILLI;
        self.client.advance(now);
        if let Some(bytes) = self.client.poll_input(now)
            && !self.is_lost()
        {
            self.to_server.push_back((now + self.delay, bytes));
        }
        self.step_server();
    }

    /// Runs the server for 1 ms and delivers the datagrams in flight, without new input of the client.
    fn step_server(&mut self) {
        self.now += MILLI;
        let (now, server_time, entity) = (self.now, self.server_time(), player_entity(&KEY));
        self.world.advance(server_time, (now.as_nanos() / 10_000_000) as u32);
        self.world.reclaim_orphans(&BTreeSet::from([SourceId(1)]));
        while self.to_server.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.to_server.pop_front().unwrap();
            assert!(self.world.on_input(server_time, entity, &ClientInput::from_bytes(&bytes).unwrap()));
        }
        for (_, bytes) in self.world.poll_player_messages(server_time, |_| &[]) {
            if !self.is_lost() {
                self.to_client.push_back((now + self.delay, bytes));
            }
        }
        while self.to_client.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.to_client.pop_front().unwrap();
            self.client.handle_datagram(now, &bytes);
        }
    }

    fn run(&mut self, millis: i64) {
        (0..millis).for_each(|_| self.step());
    }

    /// Returns the distance between the player's and the server's view of the player's avatar, in units.
    fn own_distance(&self) -> u32 {
        let (ours, theirs) = (self.client.avatar().unwrap(), self.world.avatars().get(player_entity(&KEY)).unwrap());
        ours.position.distance(theirs.position)
    }

    fn set_controls(&mut self, controls: Controls) {
        self.client.set_controls(self.now, controls);
    }
}

const FORWARD: Controls = Controls { forward: true, backward: false, left: false, right: false, fire: false };
const LEFT: Controls = Controls { left: true, ..FORWARD };
const STAND: Controls = Controls { forward: false, ..FORWARD };

#[test]
fn local_avatar_responds_at_once_and_converges_with_the_server() {
    let mut pair = ClientServerPair::new(80, 0);
    pair.run(2_000);
    assert_eq!(pair.own_distance(), 0, "the views differ at rest");
    pair.set_controls(FORWARD);
    let before = pair.client.avatar().unwrap().position;
    pair.run(60);
    assert!(pair.client.avatar().unwrap().position.distance(before) >= 16, "the avatar does not obey at once");
    let mut worst = 0;
    for _ in 0..450 {
        pair.step();
        worst = worst.max(pair.own_distance());
    }
    assert!(worst <= 16 * 8 / 2 + 16, "{worst} units apart: more than about half a round trip of 16 ticks");
    assert!(pair.client.lead_time().abs() <= TimeDelta::from_millis(10), "{:?} ahead", pair.client.lead_time());
    for turn in 0..6 {
        pair.set_controls(if turn % 2 == 0 { LEFT } else { FORWARD });
        pair.run(300);
    }
    pair.set_controls(STAND);
    pair.run(1_500);
    assert!(pair.own_distance() <= 4, "the paths of both sides differ: they are {} units apart", pair.own_distance());
}

#[test]
fn lost_input_is_retransmitted() {
    let mut pair = ClientServerPair::new(50, 3);
    pair.run(3_000);
    for turn in 0..20 {
        pair.set_controls([FORWARD, LEFT, STAND][turn % 3]);
        pair.run(130);
    }
    pair.set_controls(STAND);
    pair.run(3_000);
    assert!(pair.own_distance() <= 4, "{} units apart", pair.own_distance());
}

/// Asserts that the controls take effect on the server, and that both sides agree on the result.
fn assert_controls_take_effect(pair: &mut ClientServerPair) {
    let avatar =
        |pair: &ClientServerPair| pair.world.avatars().get(player_entity(&KEY)).expect("the player has an avatar");
    pair.set_controls(STAND);
    pair.run(500);
    let before = avatar(pair);
    pair.set_controls(LEFT);
    pair.run(700);
    pair.set_controls(STAND);
    pair.run(1_500);
    assert_ne!(avatar(pair).heading, before.heading, "the server's avatar did not turn");
    assert!(pair.own_distance() <= 4, "{} units apart", pair.own_distance());
}

#[test]
fn restarted_client_controls_its_avatar() {
    for pause in [0, 30, 400, 3_000] {
        let mut pair = ClientServerPair::new(60, 0);
        pair.run(1_000);
        for turn in 0..20 {
            pair.set_controls([FORWARD, LEFT, STAND][turn % 3]);
            pair.run(100);
        }
        let before = pair.world.avatars().get(player_entity(&KEY)).expect("the player has an avatar").spawn_count;
        // Datagrams in flight in both directions still arrive.
        pair.client = Client::new(pair.now + MILLI * pause, "Bob", 2);
        (0..pause).for_each(|_| pair.step_server());
        pair.run(1_000);
        assert_controls_take_effect(&mut pair);
        assert_eq!(
            pair.world.avatars().get(player_entity(&KEY)).map(|avatar| avatar.spawn_count),
            Some(before),
            "the restarted client has another avatar"
        );
        assert_eq!(pair.world.entities().get(player_entity(&KEY)).map(|record| record.name()), Some("Bob"));
    }
}

/// A server that has timed out its player gives it another avatar when its input arrives again, and both agree on it.
#[test]
fn client_and_server_agree_after_a_long_disconnect() {
    for changes_controls in [false, true] {
        let mut pair = ClientServerPair::new(60, 0);
        pair.run(1_000);
        pair.set_controls(LEFT);
        pair.run(1_000);
        let before = pair.world.avatars().get(player_entity(&KEY)).expect("the player has an avatar").spawn_count;
        pair.is_cut = true;
        pair.run(3_000);
        if changes_controls {
            pair.set_controls(FORWARD);
        }
        pair.run(3_000);
        assert_eq!(pair.world.players().count(), 0);
        pair.is_cut = false;
        pair.run(1_000);
        let avatar = pair.world.avatars().get(player_entity(&KEY)).expect("the player has an avatar");
        assert_ne!(avatar.spawn_count, before, "the player has the old avatar");
        assert_eq!(avatar.turn_rate == 0, changes_controls, "the server does not know the held controls");
        assert!(pair.own_distance() <= 16 * 8, "{} units apart", pair.own_distance());
        assert_controls_take_effect(&mut pair);
    }
}

#[test]
fn controls_may_be_held_for_long() {
    let mut pair = ClientServerPair::new(20, 0);
    pair.run(1_000);
    pair.set_controls(LEFT);
    pair.run(680_000);
    assert!(pair.client.lead_time().abs() <= TimeDelta::from_millis(10), "{:?} ahead", pair.client.lead_time());
    pair.set_controls(STAND);
    pair.run(1_500);
    assert!(pair.own_distance() <= 4, "{} units apart", pair.own_distance());
}

#[test]
fn displayed_avatar_never_jumps() {
    let mut pair = ClientServerPair::new(100, 4);
    pair.run(3_000);
    let mut last = pair.client.avatar().unwrap().position;
    for turn in 0..2_000usize {
        if turn.is_multiple_of(90) {
            pair.set_controls([FORWARD, LEFT][turn / 90 % 2]);
        }
        pair.run(10);
        let position = pair.client.avatar().unwrap().position;
        // Two ticks of walking at up to twice the speed, plus the correction.
        assert!(position.distance(last) <= 40, "{} units in one frame", position.distance(last));
        last = position;
    }
    pair.set_controls(STAND);
    pair.run(2_000);
    assert!(pair.own_distance() <= 4, "{} units apart", pair.own_distance());
}

/// Every change reaches the server if the changes are further apart than the interval in which they are combined.
#[test]
fn late_polling_does_not_lower_the_command_rate() {
    let mut pair = ClientServerPair::new(20, 0);
    pair.run(1_000);
    let (mut requested, started, before) = (0, pair.now, pair.world.commands());
    // The client is polled every 3 ms, and the controls change every 60 ms.
    for millis in 0..6_000 {
        if millis % 3 == 0 && millis >= 60 * requested {
            requested += 1;
            pair.set_controls(if requested % 2 == 0 { LEFT } else { FORWARD });
        }
        if millis % 3 == 0 { pair.step() } else { pair.step_server() }
    }
    let commands = pair.world.commands() - before;
    assert_eq!((requested, pair.now - started), (100, MILLI * 6_000));
    assert!((98..=100).contains(&commands), "the server got {commands} of {requested} changes");
}

/// Commands within 50 ms are combined, and a button that was pressed only for a moment still counts.
#[test]
fn commands_within_50_ms_are_combined() {
    let mut pair = ClientServerPair::new(20, 0);
    pair.run(1_000);
    let before = pair.world.commands();
    for controls in [LEFT, STAND, Controls { fire: true, ..STAND }, STAND] {
        pair.set_controls(controls);
        pair.run(10);
    }
    assert_eq!(pair.world.commands(), before);
    pair.run(35);
    assert_eq!(pair.world.commands(), before + 1);
    pair.run(30);
    let avatar = pair.world.avatars().get(player_entity(&KEY)).expect("the player has an avatar");
    assert!(avatar.turn_rate != 0 && avatar.shots.iter().len() == 1, "{avatar:?}");
    pair.run(500);
    assert_eq!(pair.world.commands(), before + 2);
    let avatar = pair.world.avatars().get(player_entity(&KEY)).expect("the player has an avatar");
    assert!(avatar.turn_rate == 0 && avatar.shots.iter().len() == 1, "{avatar:?}");
}

/// Returns the present distance between the client's and the server's position of each avatar, in units, where both are
/// alive and within the server's view range of four cells.
fn current_distances(pair: &ClientServerPair) -> BTreeMap<EntityId, f64> {
    let me = pair.client.own_entity().zip(pair.client.avatar());
    let shown = me.into_iter().chain(pair.client.others()).filter(|(_, shown)| shown.is_alive());
    let own = pair.world.avatars().get(player_entity(&KEY)).expect("the player has an avatar").position;
    let is_far = |one: i32, other: i32| (one - other).abs() >= 4 * CELL_SIZE * UNIT;
    let is_in_view = |other: Position| !is_far(own.x, other.x) && !is_far(own.y, other.y);
    let on_server =
        |entity| pair.world.avatars().get(entity).filter(|avatar| avatar.is_alive() && is_in_view(avatar.position));
    shown
        .filter_map(|(entity, shown)| Some((entity, f64::from(shown.position.distance(on_server(entity)?.position)))))
        .collect()
}

/// Returns the true D of each avatar over one window, in units times seconds, for avatars that were comparable all the
/// time.
fn true_discrepancies(pair: &mut ClientServerPair) -> BTreeMap<EntityId, f64> {
    let steps = CONSISTENCY_WINDOW.as_micros() / 1_000;
    let mut areas: BTreeMap<EntityId, (f64, i64)> = BTreeMap::new();
    for step in 0..steps {
        if step % 250 == 0 {
            pair.set_controls([FORWARD, LEFT][(step / 250 % 2) as usize]);
        }
        pair.step();
        for (entity, distance) in current_distances(pair) {
            let area = areas.entry(entity).or_default();
            *area = (area.0 + distance / 1e3, area.1 + 1);
        }
    }
    areas.into_iter().filter(|(_, (_, count))| *count == steps).map(|(entity, (area, _))| (entity, area)).collect()
}

#[test]
fn consistency_matches_the_true_discrepancy() {
    let mut worst = 0.0f64;
    let mut compared = 0;
    for delay_ms in [10, 40, 120] {
        let mut pair = ClientServerPair::with_ninjas(6, delay_ms, 0);
        pair.run(3_000);
        for _ in 0..6 {
            for (entity, area) in true_discrepancies(&mut pair) {
                let measured = pair.client.consistency(entity).expect("the avatar was displayed all the time");
                // An avatar walks 8 units in a tick, and the last states have not arrived yet.
                let tolerance = area * 0.35 + 8.0 * CONSISTENCY_WINDOW.as_secs_f64();
                assert!(
                    (measured.discrepancy - area).abs() <= tolerance,
                    "{entity:?}: measured {measured:?}, but it was {area}"
                );
                assert_eq!(measured.is_tolerated(), measured.discrepancy < CONSISTENCY_TOLERANCE);
                worst = worst.max(measured.discrepancy);
                compared += 1;
            }
        }
        let me = pair.client.own_entity().unwrap();
        let own = pair.client.consistencies().find(|(entity, _)| *entity == me).map(|(_, own)| own);
        assert_eq!(own, pair.client.consistency(me));
    }
    assert!(compared > 12 && worst > 10.0, "only {compared} comparisons, the worst {worst}");
}

#[test]
fn discrepancy_grows_with_latency_and_is_zero_at_rest() {
    let own = |delay_ms: i64, turns: bool| {
        let mut pair = ClientServerPair::new(delay_ms, 0);
        pair.run(2_000);
        for turn in 0..10 {
            pair.set_controls(if turns { [FORWARD, LEFT][turn % 2] } else { STAND });
            pair.run(300);
        }
        pair.client.consistency(pair.client.own_entity().unwrap()).unwrap().discrepancy
    };
    assert_eq!(own(120, false), 0.0);
    let (near, far) = (own(5, true), own(120, true));
    assert!(far > near * 2.0, "{near} and {far}");
}

#[test]
fn consistency_survives_a_server_change() {
    let mut pair = ClientServerPair::new(20, 0);
    pair.run(2_000);
    pair.client.on_server_change(pair.now);
    pair.set_controls(FORWARD);
    pair.run(2_500);
    let own = pair.client.consistency(pair.client.own_entity().unwrap()).unwrap();
    assert!(own.is_tolerated(), "{own:?}");
}

/// Moves between servers that answer pings but send no views do not advance `Client::last_received`.
#[test]
fn server_moves_do_not_count_as_received() {
    let mut pair = ClientServerPair::new(20, 0);
    pair.run(2_000);
    let (started, mut selector) = (pair.now, ServerSelector::new(pair.now));
    [1, 2].into_iter().for_each(|server| selector.add_server(server));
    for millis in (0..31_000).step_by(10) {
        let now = started + MILLI * millis;
        for server in [1, 2] {
            selector.on_pong(
                now,
                server,
                &Pong {
                    stamp: now - MILLI * 10,
                    is_draining: false,
                    is_full: false,
                    player_count: 0,
                    protocol_version: PROTOCOL_VERSION,
                },
            );
        }
        if selector.select(now, pair.client.last_received(), false).is_some() {
            pair.client.on_server_change(now);
        }
    }
    assert!(selector.moves() > 2);
    assert!(pair.client.last_received() <= started, "a server move counts as received");
}

#[test]
fn departed_players_leave_the_scoreboard() {
    let started = Instant::from_nanos(5_000_000_000);
    let mut client = Client::new(started, "Ada", 1);
    let row = |index| (EntityId { site: WorldSiteId(9), index }, format!("player {index}"), Score::default());
    let mut rows_after = |millis: i64, players: u8| {
        let directory = Directory {
            settings: MazeSettings::default(),
            mirrors: vec![],
            score_rows: (0..players).map(row).collect(),
        };
        assert!(client.handle_datagram(started + MILLI * millis, &directory.to_bytes()));
        client.scoreboard().count()
    };
    assert_eq!(rows_after(0, 3), 3);
    assert_eq!(rows_after(500, 2), 3, "a row missing once is dropped, though it may be in another message");
    assert_eq!((2..20).map(|at| rows_after(500 * at, 2)).last(), Some(2));
}

#[test]
fn last_step_interpolates_between_ticks() {
    let mut pair = ClientServerPair::new(20, 0);
    (0..1_000).for_each(|_| pair.step());
    // There may be a wall in one direction, but not in all of them.
    let moved = (0..8).any(|_| {
        pair.client.set_controls(pair.now, LEFT);
        (0..150).for_each(|_| pair.step());
        pair.client.set_controls(pair.now, FORWARD);
        (0..100).for_each(|_| pair.step());
        pair.client.last_step().is_some_and(|([before, after], _)| before.0 != after.0)
    });
    assert!(moved);
    let ([before, after], part) = pair.client.last_step().expect("the player has an avatar");
    assert_eq!(before, pair.client.avatar().map(|own| (own.position, own.heading)).unwrap());
    assert!((0.0..1.0).contains(&part), "{part}");
    assert!((1..=16).contains(&before.0.distance(after.0)), "{} units in a tick", before.0.distance(after.0));
}
