//! Motion of avatars, for the [motion engine](coplay::motion): the maze's side of Li, Li and Lau.
//!
//! A motion command sets the pressed buttons. Between two commands an avatar walks straight or on a circle, and walls
//! stop it, as the [rules](MazeRules) of the maze say; so a server and its clients compute the same path. The rules
//! know only whole ticks. The state carries the elapsed part of the next tick, so that motion is additive and a segment
//! may begin at any time. Everything else that happens to an avatar, such as another avatar in its way, a hit or a
//! respawn, the server decides; it then overrules the commands in flight.

use std::sync::Arc;

use coplay::motion::{MotionConfig, MotionPredictor, ObjectId, TimerRate};
use coplay::peer_world::{EntityId, WorldSiteId};
use coplay::time::TimeDelta;
use coplay_maze::angle::shortest_turn;
use coplay_maze::{AVATAR_RADIUS, Avatar, Controls, Life, MazeRules, Position, RecentShots, TURN_RATE, UNIT};

use crate::entity_update::Reader;
use crate::protocol::TICK_DURATION;

/// Length of the sliding window of D: long enough for several turns of an avatar, so that neither one good moment nor
/// one bad moment decides.
pub const CONSISTENCY_WINDOW: TimeDelta = TimeDelta::from_secs(2);
/// Tolerance ξ of D, in units times seconds. The paper leaves it to the game. If D is below this value, the displayed
/// position is on average no further off than the radius of an avatar, so a player who aims at the displayed avatar
/// aims at the real one.
pub const CONSISTENCY_TOLERANCE: f64 = AVATAR_RADIUS as f64 * 2.0;
/// Maximum speed at which corrections are displayed, in units per second: the walking speed.
const CORRECTION_SPEED: f64 = 1_200.0;
/// Speed of avatars relative to real time while they are ahead of the server or behind it.
const TIMER_RATE: TimerRate = TimerRate { slowest: 0.5, fastest: 4.0 };
/// Time constant of larger corrections, in seconds: each second corrects the distance divided by this time.
const CORRECTION_TIME: f64 = 0.03;
/// Maximum duration of a correction: an error above 400 units is corrected at once.
const SNAP_THRESHOLD: TimeDelta = TimeDelta::from_millis(500);
/// Time by which a player may end a segment later or earlier than the server sees it: the delay to the server, plus
/// that of a lost command until it is sent again.
const OWNER_TOLERANCE: TimeDelta = TimeDelta::from_millis(500);
/// Largest displayed turn per unit of a displayed correction, in headings: three times as fast as the avatar turns
/// itself.
const CORRECTION_TURN: f64 = 3.0 * TURN_RATE as f64 / 8.0;
/// Largest number of ticks that one prediction walks, about 17 minutes. Longer motion cannot be received in good faith.
const MAX_TICKS: i64 = 100_000;

/// Returns the settings of the motion engine in a world, for a server or client of this incarnation.
pub(crate) fn motion_config(incarnation: u32) -> MotionConfig {
    MotionConfig {
        correction_speed: Some(CORRECTION_SPEED),
        snap_threshold: SNAP_THRESHOLD,
        owner_tolerance: Some(OWNER_TOLERANCE),
        averaging_window: CONSISTENCY_WINDOW,
        tolerance: CONSISTENCY_TOLERANCE,
        timer_rate: TIMER_RATE,
        ..MotionConfig::clocks(incarnation)
    }
}

/// Returns a number that identifies an entity.
pub(crate) fn entity_number(entity: EntityId) -> u64 {
    u64::from(entity.site.0) << 8 | u64::from(entity.index)
}

/// Returns the object that is the avatar of an entity, on all servers and clients.
pub(crate) fn object_of(entity: EntityId) -> ObjectId {
    ObjectId(entity_number(entity))
}

/// Returns the entity whose avatar an object is; `None` if there is no such entity.
pub(crate) fn entity_of(object: ObjectId) -> Option<EntityId> {
    let site = WorldSiteId(u32::try_from(object.0 >> 8).ok()?);
    Some(EntityId { site, index: object.0 as u8 })
}

/// State of an avatar from which its motion continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AvatarState {
    pub(crate) position: Position,
    pub(crate) heading: u16,
    pub(crate) life: Life,
    pub(crate) spawn_count: u16,
    /// Elapsed part of the next tick.
    pub(crate) partial_tick: TimeDelta,
}

/// Motion command of an avatar: the buttons that its player or ninja presses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steering {
    pub(crate) controls: Controls,
    /// Whether another avatar is in the way, so that this one stands until the next command.
    pub(crate) is_blocked: bool,
}

/// Predictor of the motion of avatars in one maze.
#[derive(Clone, Debug)]
pub(crate) struct AvatarPredictor {
    pub(crate) rules: Arc<MazeRules>,
}

impl AvatarState {
    pub(crate) fn of(avatar: &Avatar) -> Self {
        let Avatar { position, heading, life, spawn_count, .. } = *avatar;
        Self { position, heading, life, spawn_count, partial_tick: TimeDelta::ZERO }
    }

    /// Returns the whole avatar, with the motion that `steering` sets.
    pub(crate) fn avatar(&self, steering: Steering, shots: RecentShots) -> Avatar {
        let Self { position, heading, life, spawn_count, .. } = *self;
        let (speed, turn_rate) = if life == Life::Alive { steering.motion() } else { (0, 0) };
        Avatar { position, heading, speed, turn_rate, life, spawn_count, shots, predicted_fall: None }
    }

    /// Returns whether two states belong to the same life, and are both alive, or both dead since the same tick.
    pub(crate) fn is_same_life(&self, other: &Self) -> bool {
        self.spawn_count == other.spawn_count && self.life == other.life
    }
}

impl Steering {
    /// Returns the command that makes an avatar move on as it does now.
    pub(crate) fn of(avatar: &Avatar) -> Self {
        Self { controls: Controls::from_motion(avatar.speed, avatar.turn_rate), is_blocked: false }
    }

    /// Returns speed and turn rate.
    pub(crate) fn motion(self) -> (i16, i16) {
        (if self.is_blocked { 0 } else { self.controls.speed() }, self.controls.turn_rate())
    }

    fn to_bits(self) -> u8 {
        let Controls { forward, backward, left, right, fire } = self.controls;
        let bits = [forward, backward, left, right, fire, self.is_blocked];
        bits.iter().enumerate().map(|(bit, is_set)| u8::from(*is_set) << bit).sum()
    }

    fn from_bits(bits: u8) -> Option<Self> {
        let bit = |bit: u8| bits >> bit & 1 == 1;
        let controls = Controls { forward: bit(0), backward: bit(1), left: bit(2), right: bit(3), fire: bit(4) };
        (bits < 64).then_some(Self { controls, is_blocked: bit(5) })
    }
}

impl MotionPredictor for AvatarPredictor {
    type State = AvatarState;
    type Vector = Steering;
    const IS_ADDITIVE: bool = true;

    fn advance(&self, state: &AvatarState, steering: &Steering, by: TimeDelta) -> AvatarState {
        let elapsed = (state.partial_tick + by.max(TimeDelta::ZERO)).as_nanos();
        let tick = TICK_DURATION.as_nanos();
        let partial_tick = TimeDelta::from_nanos(elapsed % tick);
        let mut next = AvatarState { partial_tick, ..state.clone() };
        let (speed, turn_rate) = steering.motion();
        if next.life != Life::Alive || (speed, turn_rate) == (0, 0) {
            return next;
        }
        for _ in 0..(elapsed / tick).min(MAX_TICKS) {
            let walked = self.rules.walked((next.position, next.heading), speed, turn_rate);
            if walked == (next.position, next.heading) {
                // A wall is in the way, and will be in the next ticks.
                break;
            }
            (next.position, next.heading) = walked;
        }
        next
    }

    /// Combines the buttons of both: a button that was pressed only for a moment still counts, until the interval in
    /// which commands are combined ends.
    fn combine(&self, earlier: &Steering, later: &Steering) -> Steering {
        let (one, other) = (earlier.controls, later.controls);
        let controls = Controls {
            forward: one.forward | other.forward,
            backward: one.backward | other.backward,
            left: one.left | other.left,
            right: one.right | other.right,
            fire: one.fire | other.fire,
        };
        Steering { controls, is_blocked: later.is_blocked }
    }

    /// Returns the distance in units; 0 between different lives, whose positions cannot be compared.
    fn distance(&self, one: &AvatarState, other: &AvatarState) -> f64 {
        if one.is_same_life(other) { exact_distance(one.position, other.position) } else { 0.0 }
    }

    fn move_toward(&self, from: &AvatarState, to: &AvatarState, most: f64) -> AvatarState {
        if !from.is_same_life(to) {
            return to.clone();
        }
        let distance = exact_distance(from.position, to.position);
        let most = most.max(distance * most / (CORRECTION_SPEED * CORRECTION_TIME));
        let most_turn = (most * CORRECTION_TURN).clamp(0.0, f64::from(i16::MAX)) as i16;
        let turn = shortest_turn(from.heading, to.heading).clamp(-most_turn, most_turn);
        let part = most / distance.max(most).max(f64::MIN_POSITIVE);
        let moved = |from: i32, to: i32| from + (f64::from(to - from) * part) as i32;
        let position = if part >= 1.0 {
            to.position
        } else {
            Position { x: moved(from.position.x, to.position.x), y: moved(from.position.y, to.position.y) }
        };
        AvatarState { position, heading: from.heading.wrapping_add_signed(turn), ..to.clone() }
    }

    fn encode_state(&self, state: &AvatarState, buf: &mut [u8]) -> Option<usize> {
        let mut bytes = Vec::with_capacity(20);
        let Position { x, y } = state.position;
        for coordinate in [x, y, state.partial_tick.as_nanos() as i32] {
            bytes.extend_from_slice(coordinate.to_le_bytes().get(..3).filter(|_| coordinate >> 24 == 0)?);
        }
        bytes.extend_from_slice(&state.heading.to_le_bytes());
        bytes.extend_from_slice(&state.spawn_count.to_le_bytes());
        if let Life::Dead { since } = state.life {
            bytes.extend_from_slice(&since.to_le_bytes());
        }
        buf.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(bytes.len())
    }

    fn decode_state(&self, bytes: &[u8]) -> Option<AvatarState> {
        let mut reader = Reader(bytes);
        let mut three_bytes = || reader.take().map(|[low, middle, high]| i32::from_le_bytes([low, middle, high, 0]));
        let position = Position { x: three_bytes()?, y: three_bytes()? };
        let partial_tick = TimeDelta::from_nanos(three_bytes()?.into());
        let (heading, spawn_count) = (u16::from_le_bytes(reader.take()?), u16::from_le_bytes(reader.take()?));
        let life = if reader.rest().is_empty() { Life::Alive } else { Life::Dead { since: reader.u32()? } };
        let is_valid = reader.rest().is_empty()
            && partial_tick < TICK_DURATION
            && self.rules.maze.is_free(position, AVATAR_RADIUS);
        is_valid.then_some(AvatarState { position, heading, life, spawn_count, partial_tick })
    }

    fn encode_vector(&self, steering: &Steering, buf: &mut [u8]) -> Option<usize> {
        *buf.first_mut()? = steering.to_bits();
        Some(1)
    }

    fn decode_vector(&self, bytes: &[u8]) -> Option<Steering> {
        let [bits] = bytes else { return None };
        Steering::from_bits(*bits)
    }
}

/// Returns the distance in units, with fractions.
fn exact_distance(one: Position, other: Position) -> f64 {
    (one.distance_squared(other) as f64).sqrt() / f64::from(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay_links::random::Random;
    use coplay_maze::Maze;

    fn predictor() -> AvatarPredictor {
        AvatarPredictor { rules: Arc::new(MazeRules::new(Maze::new(7, 8))) }
    }

    fn random_steering(rng: &mut Random) -> Steering {
        Steering::from_bits(rng.below(64) as u8).expect("six bits are valid")
    }

    #[test]
    fn motion_is_additive_and_follows_the_rules() {
        let (predictor, mut rng) = (predictor(), Random::new(3));
        let mut avatar = predictor.rules.spawn_avatar(&[], 1);
        for round in 0..2_000 {
            let steering = Steering { is_blocked: false, ..random_steering(&mut rng) };
            let start = AvatarState::of(&avatar);
            let parts: Vec<TimeDelta> = (0..4).map(|_| TimeDelta::from_nanos(rng.below(400_000_000) as i64)).collect();
            let whole = parts.iter().fold(TimeDelta::ZERO, |sum, part| sum + *part);
            let in_parts = parts.iter().fold(start.clone(), |state, part| predictor.advance(&state, &steering, *part));
            let at_once = predictor.advance(&start, &steering, whole);
            assert_eq!(in_parts, at_once, "{round}: {steering:?}");
            for _ in 0..whole.as_nanos() / TICK_DURATION.as_nanos() {
                predictor.rules.step(1, &mut avatar, Controls { fire: false, ..steering.controls }, &[], 1);
            }
            assert_eq!((at_once.position, at_once.heading), (avatar.position, avatar.heading), "{round}");
        }
    }

    #[test]
    fn states_and_commands_round_trip_and_others_are_rejected() {
        let (predictor, mut rng, mut buf) = (predictor(), Random::new(4), [0; 64]);
        let mut avatar = predictor.rules.spawn_avatar(&[], 1);
        for tick in 0..400 {
            let steering = random_steering(&mut rng);
            let elapsed = TimeDelta::from_nanos(rng.below(300_000_000) as i64);
            let state = predictor.advance(&AvatarState::of(&avatar), &steering, elapsed);
            let len = predictor.encode_state(&state, &mut buf).expect("the state fits");
            assert_eq!(predictor.decode_state(&buf[..len]), Some(state.clone()));
            assert!((0..len).all(|cut| predictor.decode_state(&buf[..cut]) != Some(state.clone())));
            assert_eq!(predictor.decode_state(&buf[..=len]), None);
            let len = predictor.encode_vector(&steering, &mut buf).expect("the command fits");
            assert_eq!(predictor.decode_vector(&buf[..len]), Some(steering));
            avatar = state.avatar(steering, RecentShots::default());
            if tick % 50 == 0 {
                predictor.rules.kill(tick, &mut avatar);
            } else if !avatar.is_alive() {
                predictor.rules.respawn(&mut avatar, &[], 1);
            }
        }
        assert_eq!((predictor.decode_vector(&[64]), predictor.decode_vector(&[])), (None, None));
        assert_eq!(predictor.decode_state(&[0; 13]), None, "a position inside a wall");
        assert_eq!(predictor.encode_state(&AvatarState::of(&avatar), &mut [0; 5]), None);
    }

    #[test]
    fn displayed_correction_does_not_overshoot() {
        let predictor = predictor();
        let to = AvatarState::of(&predictor.rules.spawn_avatar(&[], 1));
        let Position { x, y } = to.position;
        let from = AvatarState { position: Position { x: x + 15 * UNIT, y: y - 20 * UNIT }, heading: 9, ..to.clone() };
        assert_eq!(predictor.distance(&from, &to), 25.0);
        let near = predictor.move_toward(&from, &to, 5.0);
        assert_eq!(near.position, Position { x: x + 12 * UNIT, y: y - 16 * UNIT });
        // A large error is corrected faster.
        let far = AvatarState { position: Position { x: x + 300 * UNIT, y }, ..from.clone() };
        let most = CORRECTION_SPEED * CORRECTION_TIME / 10.0;
        let corrected = 300.0 - predictor.distance(&predictor.move_toward(&far, &to, most), &to);
        assert!((corrected - 30.0).abs() < 0.1, "{corrected}");
        assert_eq!(predictor.move_toward(&near, &to, 500.0), to);
        assert_eq!(predictor.move_toward(&to, &to, 0.0), to);
        let other_life = AvatarState { spawn_count: 9, ..from };
        assert_eq!((predictor.distance(&other_life, &to), predictor.move_toward(&other_life, &to, 1.0)), (0.0, to));
    }

    #[test]
    fn hostile_durations_end_soon() {
        let predictor = predictor();
        let start = AvatarState::of(&predictor.rules.spawn_avatar(&[], 1));
        for bits in 0..64 {
            let steering = Steering::from_bits(bits).expect("six bits are valid");
            predictor.advance(&start, &steering, TimeDelta::MAX);
            assert_eq!(predictor.advance(&start, &steering, TimeDelta::from_secs(-9)), start);
        }
    }

    #[test]
    fn entities_and_objects_correspond() {
        for (site, index) in [(0, 0), (u32::MAX, u8::MAX), (0x0102_0304, 5)] {
            let entity = EntityId { site: WorldSiteId(site), index };
            assert_eq!(entity_of(object_of(entity)), Some(entity));
        }
        assert_eq!(entity_of(ObjectId(u64::MAX)), None);
    }
}
