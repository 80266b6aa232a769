//! A player and its server, with a way between them: the avatar obeys at once, both come into step, nothing is lost for good.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coplay::mirror::SourceId;
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{CELL_SIZE, Controls, MazeSettings, Position, Score, UNIT};
use coplay_world::{
    CONSISTENCY_TOLERANCE, CONSISTENCY_WINDOW, Client, ClientInput, Directory, Pong, ServerSelector, WorldState,
    player_entity,
};

const KEY: [u8; 32] = [7; 32];
const MILLI: TimeDelta = TimeDelta::from_millis(1);

/// One player on one server.
struct ClientServerPair {
    now: Instant,
    delay: TimeDelta,
    /// Every so manieth datagram is lost, each way; and all while the way is cut.
    loss_interval: usize,
    is_cut: bool,
    sent_count: usize,
    client: Client,
    world: WorldState,
    to_server: VecDeque<(Instant, Vec<u8>)>,
    to_client: VecDeque<(Instant, Vec<u8>)>,
}

impl ClientServerPair {
    fn new(delay_ms: i64, lose: usize) -> Self {
        Self::with_ninjas(0, delay_ms, lose)
    }

    /// With so many ninjas of the server's around.
    fn with_ninjas(ninjas: u8, delay_ms: i64, lose: usize) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        Self {
            now,
            delay: TimeDelta::from_millis(delay_ms),
            loss_interval: lose,
            is_cut: false,
            sent_count: 0,
            client: Client::new(now, "Ada", 1),
            world: WorldState::new(SourceId(1), MazeSettings { cells_per_side: 8, ..MazeSettings::default() }, ninjas),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.sent_count += 1;
        self.is_cut || self.loss_interval > 0 && self.sent_count.is_multiple_of(self.loss_interval)
    }

    /// The server's clock shows something else.
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

    /// The player says nothing.
    fn step_server(&mut self) {
        self.now += MILLI;
        let (now, there, entity) = (self.now, self.server_time(), player_entity(&KEY));
        self.world.advance(there, (now.as_nanos() / 10_000_000) as u32);
        self.world.reclaim_orphans(&BTreeSet::from([SourceId(1)]));
        while self.to_server.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = self.to_server.pop_front().unwrap();
            assert!(self.world.on_input(there, entity, &ClientInput::from_bytes(&bytes).unwrap()));
        }
        for (_, bytes) in self.world.poll_player_messages(there, |_| &[]) {
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

    /// How far apart the player's own view of its avatar and the server's are, in units.
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
    assert_eq!(pair.own_distance(), 0, "both stand");
    pair.set_controls(FORWARD);
    let before = pair.client.avatar().unwrap().position;
    pair.run(60);
    assert!(pair.client.avatar().unwrap().position.distance(before) >= 16, "it obeys at once");
    let mut worst = 0;
    for _ in 0..450 {
        pair.step();
        worst = worst.max(pair.own_distance());
    }
    assert!(worst <= 16 * 8 / 2 + 16, "{worst} units: about half of a round trip of 16 ticks");
    assert!(pair.client.lead_time().abs() <= TimeDelta::from_millis(10), "{:?} ahead", pair.client.lead_time());
    for turn in 0..6 {
        pair.set_controls(if turn % 2 == 0 { LEFT } else { FORWARD });
        pair.run(300);
    }
    pair.set_controls(STAND);
    pair.run(1_500);
    assert!(
        pair.own_distance() <= 4,
        "the same way was walked on both sides, but they are {} units apart",
        pair.own_distance()
    );
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

/// Obeys, and both agree on where that leads.
fn assert_controls_take_effect(pair: &mut ClientServerPair) {
    let place = |pair: &ClientServerPair| pair.world.avatars().get(player_entity(&KEY)).expect("it is in").clone();
    pair.set_controls(STAND);
    pair.run(500);
    let before = place(pair);
    pair.set_controls(LEFT);
    pair.run(700);
    pair.set_controls(STAND);
    pair.run(1_500);
    assert_ne!(place(pair).heading, before.heading, "the server's avatar turned");
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
        let before = pair.world.avatars().get(player_entity(&KEY)).expect("it is in").spawn_count;
        // What was under way in both directions still comes.
        pair.client = Client::new(pair.now + MILLI * pause, "Bob", 2);
        (0..pause).for_each(|_| pair.step_server());
        pair.run(1_000);
        assert_controls_take_effect(&mut pair);
        assert_eq!(
            pair.world.avatars().get(player_entity(&KEY)).map(|avatar| avatar.spawn_count),
            Some(before),
            "it is the same"
        );
        assert_eq!(pair.world.entities().get(player_entity(&KEY)).map(|being| being.name()), Some("Bob"));
    }
}

/// The only server thought that it had left, and gave it another avatar when it was heard again.
#[test]
fn client_and_server_agree_after_a_long_disconnect() {
    for presses in [false, true] {
        let mut pair = ClientServerPair::new(60, 0);
        pair.run(1_000);
        pair.set_controls(LEFT);
        pair.run(1_000);
        let before = pair.world.avatars().get(player_entity(&KEY)).expect("it is in").spawn_count;
        pair.is_cut = true;
        pair.run(3_000);
        if presses {
            pair.set_controls(FORWARD);
        }
        pair.run(3_000);
        assert_eq!(pair.world.players().count(), 0);
        pair.is_cut = false;
        pair.run(1_000);
        let there = pair.world.avatars().get(player_entity(&KEY)).expect("it is in");
        assert_ne!(there.spawn_count, before, "it is another one");
        assert_eq!(there.turn_rate == 0, presses, "the server knows what is pressed");
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
        let place = pair.client.avatar().unwrap().position;
        // Two ticks of walking at up to twice the speed, and what is made up for.
        assert!(place.distance(last) <= 40, "{} units in one frame", place.distance(last));
        last = place;
    }
    pair.set_controls(STAND);
    pair.run(2_000);
    assert!(pair.own_distance() <= 4, "{} units apart", pair.own_distance());
}

#[test]
fn late_polling_does_not_lower_the_input_rate() {
    let began = Instant::from_nanos(5_000_000_000);
    let mut client = Client::new(began, "Ada", 1);
    let (mut wanted, mut pressed) = (0, 0);
    // It looks every three milliseconds, and wants something else 25 times a second.
    for millis in (0..10_000).step_by(3) {
        let now = began + MILLI * millis;
        if millis >= 40 * wanted {
            wanted += 1;
            client.set_controls(now, if wanted % 2 == 0 { LEFT } else { FORWARD });
        }
        if let Some(wish) = client.poll_input(now) {
            let wish = ClientInput::from_bytes(&wish).expect("a server understands it");
            pressed = wish.changes.last().map_or(pressed, |press| press.number);
        }
    }
    assert_eq!(wanted, 250);
    assert!((248..=250).contains(&pressed), "{pressed} of {wanted}");
}

/// How far apart what the player sees of each avatar and the server's are now, in units, where both live and the server tells of it: four
/// cells each way.
fn current_distances(pair: &ClientServerPair) -> BTreeMap<EntityId, f64> {
    let me = pair.client.own_entity().zip(pair.client.avatar());
    let shown = me.into_iter().chain(pair.client.others()).filter(|(_, shown)| shown.is_alive());
    let place = pair.world.avatars().get(player_entity(&KEY)).expect("it is in").position;
    let is_far = |one: i32, other: i32| (one - other).abs() >= 4 * CELL_SIZE * UNIT;
    let is_told = |other: Position| !is_far(place.x, other.x) && !is_far(place.y, other.y);
    let there =
        |entity| pair.world.avatars().get(entity).filter(|avatar| avatar.is_alive() && is_told(avatar.position));
    shown
        .filter_map(|(entity, shown)| Some((entity, f64::from(shown.position.distance(there(entity)?.position)))))
        .collect()
}

/// What D of each avatar was in the last window, in units times seconds; of those only that lived all the time.
fn true_discrepancies(pair: &mut ClientServerPair) -> BTreeMap<EntityId, f64> {
    let steps = CONSISTENCY_WINDOW.as_micros() / 1_000;
    let mut areas: BTreeMap<EntityId, (f64, i64)> = BTreeMap::new();
    for step in 0..steps {
        if step % 250 == 0 {
            pair.set_controls([FORWARD, LEFT][(step / 250 % 2) as usize]);
        }
        pair.step();
        for (entity, apart) in current_distances(pair) {
            let area = areas.entry(entity).or_default();
            *area = (area.0 + apart / 1e3, area.1 + 1);
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
        for _ in 0..4 {
            for (entity, area) in true_discrepancies(&mut pair) {
                let told = pair.client.consistency(entity).expect("it was seen all the time");
                // A tick is walked in 8 units, and what happened last has not been told yet.
                let most = area * 0.35 + 8.0 * CONSISTENCY_WINDOW.as_secs_f64();
                assert!((told.discrepancy - area).abs() <= most, "{entity:?}: {told:?}, and it was {area}");
                assert_eq!(told.is_tolerated(), told.discrepancy < CONSISTENCY_TOLERANCE);
                worst = worst.max(told.discrepancy);
                compared += 1;
            }
        }
        let me = pair.client.own_entity().unwrap();
        let own = pair.client.consistencies().find(|(entity, _)| *entity == me).map(|(_, own)| own);
        assert_eq!(own, pair.client.consistency(me));
    }
    assert!(compared > 12 && worst > 10.0, "{compared} were compared, the worst was {worst}");
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

/// Servers that answer, but show nothing, are no company, however often one goes from one to the other.
#[test]
fn server_moves_do_not_count_as_received() {
    let mut pair = ClientServerPair::new(20, 0);
    pair.run(2_000);
    let (began, mut voyage) = (pair.now, ServerSelector::new(pair.now));
    [1, 2].into_iter().for_each(|server| voyage.add_server(server));
    for millis in (0..31_000).step_by(10) {
        let now = began + MILLI * millis;
        for server in [1, 2] {
            voyage.on_pong(
                now,
                server,
                &Pong { stamp: now - MILLI * 10, is_draining: false, is_full: false, player_count: 0 },
            );
        }
        if voyage.select(now, pair.client.last_received(), false).is_some() {
            pair.client.on_server_change(now);
        }
    }
    assert!(voyage.moves() > 2);
    assert!(pair.client.last_received() <= began, "nothing was shown since");
}

#[test]
fn departed_players_leave_the_scoreboard() {
    let began = Instant::from_nanos(5_000_000_000);
    let mut client = Client::new(began, "Ada", 1);
    let line = |index| (EntityId { site: WorldSiteId(9), index }, format!("player {index}"), Score::default());
    let mut page = |millis: i64, players: u8| {
        let page = Directory {
            settings: MazeSettings::default(),
            mirrors: vec![],
            score_rows: (0..players).map(line).collect(),
        };
        assert!(client.handle_datagram(began + MILLI * millis, &page.to_bytes()));
        client.scoreboard().count()
    };
    assert_eq!(page(0, 3), 3);
    assert_eq!(page(500, 2), 3, "it may have been on another page");
    assert_eq!((2..20).map(|at| page(500 * at, 2)).last(), Some(2));
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
    let ([before, after], part) = pair.client.last_step().expect("it is in");
    assert_eq!(after, pair.client.avatar().map(|own| (own.position, own.heading)).unwrap());
    assert!((0.0..1.0).contains(&part), "{part}");
    assert!((1..=16).contains(&before.0.distance(after.0)), "{} units in a tick", before.0.distance(after.0));
}
