//! Tests of hostile players, on a server with an honest one: impossible motion, commands for another avatar, and
//! damaged datagrams in both directions.

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::SourceId;
use coplay::motion::message::{MotionDatagramWriter, MotionHeader, MotionItem, MotionItems};
use coplay::motion::{CommandNumber, ObjectId};
use coplay::peer_world::EntityId;
use coplay::time::{Instant, TimeDelta};
use coplay_links::random::Random;
use coplay_maze::{Avatar, Controls, MazeSettings};
use coplay_world::{Client, ClientInput, ServerWorld, TICK_DURATION, player_entity};

const HONEST: [u8; 32] = [1; 32];
const HOSTILE: [u8; 32] = [2; 32];
const SETTINGS: MazeSettings = MazeSettings { seed: 7, cells_per_side: 8, bucket_ticks: 4, playout_delay_ticks: 15 };
const CIRCLE: Controls = Controls { forward: true, backward: false, left: true, right: false, fire: false };
const STRAIGHT: Controls = Controls { left: false, ..CIRCLE };

/// A server with an honest and a hostile player, without delay.
struct HostileWorld {
    tick: u32,
    world: ServerWorld,
    clients: [Client; 2],
}

impl HostileWorld {
    fn new() -> Self {
        let client = |name: &str, run| Client::new(at(1_000), name, run);
        let world = ServerWorld::new(SourceId(1), SETTINGS, 0);
        let mut hostile = Self { tick: 1_000, world, clients: [client("Ada", 1), client("Eve", 2)] };
        hostile.run(100, |_, _| {});
        hostile
    }

    /// Runs the world for some ticks. `forge` may change what the hostile player sends in a tick.
    fn run(&mut self, ticks: u32, mut forge: impl FnMut(&ServerWorld, &mut Vec<u8>)) {
        for _ in 0..ticks {
            self.tick += 1;
            let now = at(self.tick);
            self.world.advance(now, self.tick);
            for (client, key) in self.clients.iter_mut().zip([HONEST, HOSTILE]) {
                client.advance(now);
                let Some(bytes) = client.poll_input(now) else { continue };
                let mut input = ClientInput::from_bytes(&bytes).expect("the client's input is valid");
                if key == HOSTILE {
                    forge(&self.world, &mut input.motion);
                }
                self.world.on_input(now, player_entity(&key), &input);
            }
            for (entity, bytes) in self.world.poll_player_messages(now, |_| &[]) {
                let index = usize::from(entity == player_entity(&HOSTILE));
                self.clients[index].handle_datagram(now, &bytes);
            }
        }
    }

    fn set_controls(&mut self, index: usize, controls: Controls) {
        self.clients[index].set_controls(at(self.tick), controls);
    }

    fn avatar(&self, key: [u8; 32]) -> Avatar {
        self.world.avatars().get(player_entity(&key)).expect("the player has an avatar")
    }

    /// Asserts that the honest player's avatar obeys its player, and that both sides agree on it.
    fn assert_honest_player_plays(&mut self) {
        self.set_controls(0, Controls::default());
        self.run(100, |_, _| {});
        let before = self.avatar(HONEST).heading;
        self.set_controls(0, CIRCLE);
        self.run(60, |_, _| {});
        assert_ne!(self.avatar(HONEST).heading, before);
        self.set_controls(0, Controls::default());
        self.run(150, |_, _| {});
        let shown = self.clients[0].avatar().expect("the player has an avatar");
        assert!(shown.position.distance(self.avatar(HONEST).position) <= 4);
    }
}

fn at(tick: u32) -> Instant {
    Instant::ZERO + TICK_DURATION * i64::from(tick)
}

fn object_of(entity: EntityId) -> ObjectId {
    ObjectId(u64::from(entity.site.0) << 8 | u64::from(entity.index))
}

/// Encodes the items of a datagram again, changed by `change`, which drops an item by returning `None`.
fn rewritten(bytes: &[u8], change: impl for<'a> Fn(MotionItem<'a>) -> Option<MotionItem<'a>>) -> Vec<u8> {
    let Ok(items) = MotionItems::new(bytes) else { return bytes.into() };
    let mut buf = [0; MAX_DATAGRAM];
    let mut datagram = MotionDatagramWriter::new(&mut buf, items.header()).expect("a header fits");
    for item in items {
        let changed = change(item.expect("the client's items are valid"));
        changed.into_iter().for_each(|item| datagram.put(item).expect("the items fit"));
    }
    let len = datagram.len();
    buf[..len].into()
}

#[test]
fn player_cannot_walk_faster_than_its_avatar() {
    for (seconds, keeps_start) in [(3, true), (3, false), (1_000_000, true), (1_000_000, false)] {
        let mut hostile = HostileWorld::new();
        let mut last = hostile.avatar(HOSTILE).position;
        let mut walked = 0;
        for turn in 0..200 {
            hostile.set_controls(1, if turn % 2 == 0 { STRAIGHT } else { CIRCLE });
            hostile.run(10, |_, motion| {
                *motion = rewritten(motion, |item| match item {
                    MotionItem::StartState { .. } if !keeps_start => None,
                    MotionItem::Command { object, number, vector, .. } => {
                        let previous_segment = TimeDelta::from_secs(seconds);
                        Some(MotionItem::Command { object, number, previous_segment, vector })
                    }
                    MotionItem::Timer { object, number, command_age, catch_up, timer_at_command, .. } => {
                        let timer = TimeDelta::from_secs(seconds);
                        Some(MotionItem::Timer { object, number, timer, catch_up, command_age, timer_at_command })
                    }
                    item => Some(item),
                });
            });
            let position = hostile.avatar(HOSTILE).position;
            walked += position.distance(last);
            last = position;
        }
        // 8 units in a tick, and once the tolerance of 500 ms.
        assert!(walked <= 2_000 * 8 + 50 * 8, "walked {walked} units in 20 s");
        hostile.assert_honest_player_plays();
    }
}

#[test]
fn player_cannot_return_to_where_its_segment_began() {
    let mut hostile = HostileWorld::new();
    let newest = std::cell::Cell::new(None);
    hostile.set_controls(1, CIRCLE);
    // The timer that belongs to the command is held back while the avatar walks half a circle ...
    hostile.run(100, |_, motion| {
        *motion = rewritten(motion, |item| match item {
            MotionItem::Command { number, .. } => {
                newest.set(Some(number));
                Some(item)
            }
            MotionItem::Timer { .. } => None,
            item => Some(item),
        });
    });
    let before = hostile.avatar(HOSTILE).position;
    let number = newest.get().expect("the player has sent a command");
    // ... and sent then.
    hostile.run(8, |_, motion| {
        let header = MotionHeader { sender_incarnation: 1, receiver_incarnation: 1, sent_at: at(1_500) };
        let mut buf = [0; MAX_DATAGRAM];
        let mut datagram = MotionDatagramWriter::new(&mut buf, header).expect("a header fits");
        let object = object_of(player_entity(&HOSTILE));
        let (zero, timer) = (TimeDelta::ZERO, TimeDelta::ZERO);
        let late =
            MotionItem::Timer { object, number, timer, catch_up: zero, command_age: zero, timer_at_command: zero };
        datagram.put(late).expect("the item fits");
        let len = datagram.len();
        *motion = buf[..len].into();
    });
    let jump = hostile.avatar(HOSTILE).position.distance(before);
    assert!(jump <= 8 * 8, "the avatar jumped by {jump} units");
    hostile.assert_honest_player_plays();
}

/// Commands to press and to release fire arrive together, because the datagrams in between were lost.
#[test]
fn a_short_press_of_fire_counts_although_its_datagrams_were_lost() {
    let mut lossy = HostileWorld::new();
    let shots = |world: &HostileWorld| world.avatar(HOSTILE).shots.last_number();
    let before = shots(&lossy);
    lossy.set_controls(1, Controls { fire: true, ..Controls::default() });
    lossy.run(6, |_, motion| motion.clear());
    lossy.set_controls(1, Controls::default());
    lossy.run(9, |_, motion| motion.clear());
    assert_eq!(shots(&lossy), before);
    lossy.run(100, |_, _| {});
    assert_eq!(shots(&lossy), before.wrapping_add(1));
}

#[test]
fn player_cannot_command_the_avatar_of_another() {
    let mut hostile = HostileWorld::new();
    let (victim, before) = (object_of(player_entity(&HONEST)), hostile.avatar(HONEST));
    for epoch in 0..20 {
        hostile.run(1, |_, motion| {
            let header = MotionHeader { sender_incarnation: 1, receiver_incarnation: 1, sent_at: at(2_000 + epoch) };
            let mut buf = [0; MAX_DATAGRAM];
            let mut datagram = MotionDatagramWriter::new(&mut buf, header).expect("a header fits");
            for count in 0..20 {
                let (number, previous_segment) = (CommandNumber { epoch, count }, TimeDelta::ZERO);
                let command = MotionItem::Command { object: victim, number, previous_segment, vector: &[1] };
                datagram.put(command).expect("the commands fit");
            }
            let len = datagram.len();
            *motion = buf[..len].into();
        });
    }
    assert_eq!(hostile.avatar(HONEST), before);
    hostile.assert_honest_player_plays();
}

#[test]
fn damaged_datagrams_harm_nobody() {
    let mut rng = Random::new(9);
    let mut hostile = HostileWorld::new();
    for turn in 0..300 {
        hostile.set_controls(1, if turn % 2 == 0 { STRAIGHT } else { CIRCLE });
        hostile.run(10, |_, motion| {
            for _ in 0..rng.below(4) {
                let at = rng.below(motion.len().max(1) as u64) as usize;
                motion.get_mut(at).into_iter().for_each(|byte| *byte ^= rng.bits() as u8);
            }
            motion.truncate(motion.len() - rng.below(2) as usize * motion.len().min(3));
        });
    }
    hostile.assert_honest_player_plays();
}

#[test]
fn damaged_messages_do_not_stop_a_client() {
    let mut rng = Random::new(10);
    let mut hostile = HostileWorld::new();
    for _ in 0..2_000 {
        hostile.tick += 1;
        let now = at(hostile.tick);
        hostile.world.advance(now, hostile.tick);
        hostile.clients[0].advance(now);
        if let Some(bytes) = hostile.clients[0].poll_input(now) {
            let input = ClientInput::from_bytes(&bytes).expect("the client's input is valid");
            hostile.world.on_input(now, player_entity(&HONEST), &input);
        }
        for (_, mut bytes) in hostile.world.poll_player_messages(now, |_| &[]) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= rng.bits() as u8;
            hostile.clients[0].handle_datagram(now, &bytes);
        }
    }
    assert!(hostile.clients[0].others().count() <= 4_096);
}
