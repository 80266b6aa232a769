//! Encoding of avatars: 13 bytes for an avatar that walks and has no recent shots.
//!
//! ```text
//! field     bytes   contents
//! flags         1   from the lowest bit: dead, 1 bit; speed, 2 bits (0 stands, 1 walks, 2 walks backwards,
//!                   3 explicit); turn rate, 2 bits (0 none, 1 right, 2 left, 3 explicit); number of shots, 3 bits
//! x, y          3+3
//! heading       2
//! speed         2   only if explicit
//! turn rate     2   only if explicit
//! spawn count   2
//! dead since    4   only if dead
//! last shot     2   the number of the newest shot; the others have the numbers before it
//! shots             newest first: tick 4, x 2, y 2 (whole units), heading 2; in place of the tick, each older shot has
//!                   1 byte with the number of ticks until the next newer shot
//! predicted     5   only if a fall is predicted: ticks left 1, tick of the fall 4
//! fall
//! ```
//!
//! Numbers are little-endian. A state has exactly one encoding, and the decoder rejects all other bytes.

use crate::avatar::{Avatar, Life, PredictedFall};
use crate::avatar::{BACKWARD_SPEED, TURN_RATE, WALK_SPEED};
use crate::position::GRID_SIZE;
use crate::position::{Position, UNIT};
use crate::projectiles::MAX_FALL_PREDICTION_TICKS;
use crate::rules::FIRE_INTERVAL;
use crate::shot::{MAX_SHOTS, RecentShots, SHOT_RETENTION, Shot};

/// Speeds with a two-bit code of their own. Any other speed is encoded as [`EXPLICIT_VALUE`] and the value itself.
const COMMON_SPEEDS: [i16; 3] = [0, WALK_SPEED, BACKWARD_SPEED];
const COMMON_TURN_RATES: [i16; 3] = [0, TURN_RATE, -TURN_RATE];
const EXPLICIT_VALUE: u8 = 3;

pub(crate) fn encode(avatar: &Avatar, buf: &mut [u8]) -> Option<usize> {
    let mut out = AvatarWriter { buf, len: 0 };
    let speed = common_value_code(&COMMON_SPEEDS, avatar.speed);
    let turn = common_value_code(&COMMON_TURN_RATES, avatar.turn_rate);
    out.put(&[u8::from(!avatar.is_alive()) | speed << 1 | turn << 3 | (avatar.shots.iter().len() as u8) << 5])?;
    out.put_position(avatar.position)?;
    out.put(&avatar.heading.to_le_bytes())?;
    if speed == EXPLICIT_VALUE {
        out.put(&avatar.speed.to_le_bytes())?;
    }
    if turn == EXPLICIT_VALUE {
        out.put(&avatar.turn_rate.to_le_bytes())?;
    }
    out.put(&avatar.spawn_count.to_le_bytes())?;
    if let Life::Dead { since } = avatar.life {
        out.put(&since.to_le_bytes())?;
    }
    out.put_shots(&avatar.shots)?;
    if let Some(PredictedFall { tick, ticks_left }) = avatar.predicted_fall {
        out.put(&[ticks_left])?;
        out.put(&tick.to_le_bytes())?;
    }
    Some(out.len)
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Avatar> {
    let mut reader = AvatarReader { bytes };
    let [flags] = reader.take()?;
    let (is_dead, speed, turn, shots) = (flags & 1 == 1, flags >> 1 & 3, flags >> 3 & 3, flags >> 5);
    let position = reader.position()?;
    let heading = reader.u16()?;
    let speed = reader.common_or_explicit(&COMMON_SPEEDS, speed, WALK_SPEED)?;
    let turn_rate = reader.common_or_explicit(&COMMON_TURN_RATES, turn, TURN_RATE)?;
    let spawn_count = reader.u16()?;
    let life = if is_dead { Life::Dead { since: reader.u32()? } } else { Life::Alive };
    let shots = reader.shots(shots.into())?;
    let predicted_fall = reader.predicted_fall()?;
    let is_consistent = !is_dead || (speed, turn_rate, predicted_fall) == (0, 0, None);
    let avatar = Avatar { position, heading, speed, turn_rate, life, spawn_count, shots, predicted_fall };
    is_consistent.then_some(avatar)
}

impl RecentShots {
    /// Encodes the shots as in the state of an avatar, after a byte with their number. Returns the length; `None` if
    /// `buf` is too small.
    pub fn encode(&self, buf: &mut [u8]) -> Option<usize> {
        let mut out = AvatarWriter { buf, len: 0 };
        out.put(&[self.iter().len() as u8])?;
        out.put_shots(self)?;
        Some(out.len)
    }

    /// Decodes shots that take up all of `bytes`; `None` if `bytes` is not a valid encoding.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = AvatarReader { bytes };
        let [count] = reader.take()?;
        let shots = reader.shots(count.into())?;
        reader.bytes.is_empty().then_some(shots)
    }
}

/// Returns the index of `value` in `values`, or [`EXPLICIT_VALUE`] if it is not among them.
fn common_value_code(values: &[i16; 3], value: i16) -> u8 {
    values.iter().position(|common| *common == value).map_or(EXPLICIT_VALUE, |at| at as u8)
}

struct AvatarWriter<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl AvatarWriter<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.buf.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    fn put_position(&mut self, position: Position) -> Option<()> {
        for at in [position.x, position.y] {
            let inside = (0..GRID_SIZE * UNIT).contains(&at);
            self.put(at.to_le_bytes().get(..3).filter(|_| inside)?)?;
        }
        Some(())
    }

    fn put_shots(&mut self, shots: &RecentShots) -> Option<()> {
        self.put(&shots.last_number().to_le_bytes())?;
        let mut newer: Option<u32> = None;
        for shot in shots.iter().rev() {
            match newer {
                None => self.put(&shot.tick.to_le_bytes())?,
                Some(newer) => self.put(&[u8::try_from(newer.checked_sub(shot.tick)?).ok()?])?,
            }
            newer = Some(shot.tick);
            for at in [shot.origin.x, shot.origin.y] {
                self.put(&u16::try_from(at / UNIT).ok()?.to_le_bytes())?;
            }
            self.put(&shot.heading.to_le_bytes())?;
        }
        Some(())
    }
}

struct AvatarReader<'a> {
    bytes: &'a [u8],
}

impl AvatarReader<'_> {
    fn take<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let (taken, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads a position: three bytes per coordinate. Every three-byte number is on the grid.
    fn position(&mut self) -> Option<Position> {
        let mut coordinate = || self.take().map(|[low, middle, high]| i32::from_le_bytes([low, middle, high, 0]));
        Some(Position { x: coordinate()?, y: coordinate()? })
    }

    /// Reads a speed or turn rate: a common value by its code, or an explicit one of at most `fastest` in either
    /// direction. Rejects a common value that is encoded explicitly.
    fn common_or_explicit(&mut self, values: &[i16; 3], code: u8, fastest: i16) -> Option<i16> {
        if let Some(value) = values.get(usize::from(code)) {
            return Some(*value);
        }
        let value = self.take().map(i16::from_le_bytes)?;
        let is_valid =
            value.unsigned_abs() <= fastest.unsigned_abs() && common_value_code(values, value) == EXPLICIT_VALUE;
        is_valid.then_some(value)
    }

    fn shots(&mut self, count: usize) -> Option<RecentShots> {
        let last_number = self.u16()?;
        let mut newest_first = [Shot::default(); MAX_SHOTS];
        for at in 0..count {
            let newer = at.checked_sub(1).map(|newer| newest_first[newer].tick);
            let tick = self.shot_tick(newer)?;
            let origin = Position::from_units(self.u16()?.into(), self.u16()?.into());
            *newest_first.get_mut(at)? = Shot { number: 0, tick, origin, heading: self.u16()? };
        }
        let kept = newest_first.get(..count)?;
        if let [newest, .., oldest] = kept
            && newest.tick - oldest.tick > SHOT_RETENTION
        {
            return None;
        }
        let mut shots = RecentShots::starting_after(last_number.wrapping_sub(count as u16));
        kept.iter().rev().for_each(|shot| shots.push(*shot));
        Some(shots)
    }

    /// Reads the remaining bytes, which must be nothing or a predicted fall.
    fn predicted_fall(&mut self) -> Option<Option<PredictedFall>> {
        if self.bytes.is_empty() {
            return Some(None);
        }
        let ([ticks_left], tick) = (self.take()?, self.u32()?);
        (self.bytes.is_empty() && (1..=MAX_FALL_PREDICTION_TICKS).contains(&ticks_left))
            .then_some(Some(PredictedFall { tick, ticks_left }))
    }

    /// Reads the tick of a shot, given the tick of the next newer one. Rejects a shot fired less than [`FIRE_INTERVAL`]
    /// ticks before the newer one.
    fn shot_tick(&mut self, newer: Option<u32>) -> Option<u32> {
        let Some(newer) = newer else { return self.u32() };
        let [before] = self.take()?;
        let before = u32::from(before);
        newer.checked_sub(before).filter(|_| before >= FIRE_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avatar::Controls;
    use crate::maze::Maze;
    use crate::rng::Rng;
    use crate::rules::MazeRules;
    use coplay::peer_world::{DeadReckoning, MAX_STATE_SIZE};

    fn rules() -> MazeRules {
        MazeRules::new(Maze::new(7, 8))
    }

    /// Simulates an avatar that walks, shoots, dies and respawns, and passes its state in every tick to `visit`.
    fn simulate_life(rules: &MazeRules, ticks: u32, mut visit: impl FnMut(&Avatar)) {
        let mut rng = Rng::new(3);
        let mut avatar = rules.spawn_avatar(&[], 1);
        let mut controls = Controls::default();
        for tick in 0..ticks {
            if rng.one_in(15) {
                let [forward, backward, left, right, fire] = [2, 8, 4, 4, 2].map(|many| rng.one_in(many));
                controls = Controls { forward, backward, left, right, fire };
            }
            if rng.one_in(700) {
                rules.kill(tick, &mut avatar);
            }
            rules.step(tick, &mut avatar, controls, &[], 1);
            let ticks_left = 1 + rng.below(MAX_FALL_PREDICTION_TICKS.into()) as u8;
            let will_fall = avatar.is_alive() && rng.one_in(10);
            avatar.predicted_fall =
                will_fall.then_some(PredictedFall { tick: tick + u32::from(ticks_left), ticks_left });
            visit(&avatar);
        }
    }

    #[test]
    fn avatar_states_round_trip() {
        let rules = rules();
        let mut seen = [0; MAX_SHOTS + 1];
        let mut dead = 0;
        simulate_life(&rules, 60_000, |avatar| {
            let mut buf = [0; MAX_STATE_SIZE];
            let len = rules.encode(avatar, &mut buf).expect("the buffer is large enough");
            assert_eq!(rules.decode(&buf[..len]).as_ref(), Some(avatar));
            assert_eq!(rules.encode(avatar, &mut buf[..len - 1]), None, "encoded into too small a buffer");
            assert_eq!(rules.decode(&buf[..len - 1]), None, "decoded truncated bytes");
            assert_eq!(rules.decode(&buf[..len + 1]), None, "decoded bytes with a trailing one");
            let shots = avatar.shots.iter().len();
            let optional = if avatar.is_alive() { 0 } else { 4 } + if avatar.predicted_fall.is_some() { 5 } else { 0 };
            assert_eq!(len, 13 + if shots == 0 { 0 } else { 3 + 7 * shots } + optional);
            seen[shots] += 1;
            dead += u32::from(!avatar.is_alive());
        });
        assert!(seen.iter().all(|count| *count > 100) && dead > 1_000, "{seen:?}, {dead}");
    }

    #[test]
    fn explicit_speeds_round_trip_up_to_the_maximum() {
        let rules = rules();
        let mut avatar = rules.spawn_avatar(&[], 1);
        let mut buf = [0; MAX_STATE_SIZE];
        let mut round_trips = |speed, turn_rate| {
            (avatar.speed, avatar.turn_rate) = (speed, turn_rate);
            let len = rules.encode(&avatar, &mut buf).expect("the buffer is large enough");
            rules.decode(&buf[..len]).as_ref() == Some(&avatar)
        };
        assert!(round_trips(1, -1) && round_trips(-WALK_SPEED, TURN_RATE - 1) && round_trips(WALK_SPEED - 1, 0));
        assert!(
            !round_trips(WALK_SPEED + 1, 0)
                && !round_trips(0, TURN_RATE + 1)
                && !round_trips(i16::MIN, 5)
                && !round_trips(5, i16::MIN)
        );
    }

    #[test]
    fn every_state_has_one_encoding() {
        let rules = rules();
        let mut rng = Rng::new(4);
        let mut states = Vec::new();
        simulate_life(&rules, 4_000, |avatar| {
            let mut buf = [0; MAX_STATE_SIZE];
            let len = rules.encode(avatar, &mut buf).expect("the buffer is large enough");
            states.push(buf[..len].to_vec());
        });
        let mut decoded = 0;
        for mut bytes in states {
            for _ in 0..=rng.below(3) {
                let at = rng.below(bytes.len() as u32) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            bytes.truncate(bytes.len() - rng.below(2) as usize);
            if let Some(avatar) = rules.decode(&bytes) {
                let mut reencoded = [0; MAX_STATE_SIZE];
                let len = rules.encode(&avatar, &mut reencoded).expect("the buffer is large enough");
                assert_eq!(reencoded[..len], bytes, "a state has two encodings");
                decoded += 1;
            }
        }
        assert!(decoded > 100, "only {decoded} were decoded");
    }

    #[test]
    fn decoding_garbage_fails_or_yields_a_valid_avatar() {
        let rules = rules();
        let mut rng = Rng::new(5);
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..rng.below(60)).map(|_| rng.next_u64() as u8).collect();
            if let Some(avatar) = rules.decode(&bytes) {
                assert!(rules.maze.is_free(rules.extrapolate(&avatar, 50).position, crate::rules::AVATAR_RADIUS));
            }
        }
    }

    #[test]
    fn shots_round_trip_and_damaged_ones_are_rejected() {
        let (rules, mut seen) = (rules(), 0);
        simulate_life(&rules, 3_000, |avatar| {
            let mut buf = [0; MAX_STATE_SIZE];
            let len = avatar.shots.encode(&mut buf).expect("the shots fit");
            assert_eq!(RecentShots::decode(&buf[..len]).as_ref(), Some(&avatar.shots));
            assert!((0..len).all(|cut| RecentShots::decode(&buf[..cut]).is_none()));
            assert_eq!(RecentShots::decode(&buf[..=len]), None);
            seen = seen.max(avatar.shots.iter().len());
        });
        assert!(seen > 2, "no more than {seen} shots");
        assert_eq!(RecentShots::decode(&[200; 100]), None);
    }

    #[test]
    fn shots_at_the_grid_edge_round_trip() {
        let rules = MazeRules::new(Maze::new(1, 128));
        for direction in crate::direction::Direction::ALL {
            let position = rules.maze.cell_centre((127, 127));
            let mut avatar = Avatar { position, heading: direction.heading(), ..rules.spawn_avatar(&[], 1) };
            let press = |fire| Controls { forward: true, fire, ..Controls::default() };
            (0..100).for_each(|tick| rules.step(tick, &mut avatar, press(false), &[], 1));
            rules.step(100, &mut avatar, press(true), &[], 1);
            let mut buf = [0; MAX_STATE_SIZE];
            let len = rules.encode(&avatar, &mut buf).expect("the buffer is large enough");
            assert_eq!(rules.decode(&buf[..len]), Some(avatar));
        }
    }

    #[test]
    fn positions_in_walls_or_off_the_grid_are_rejected() {
        let rules = rules();
        let mut avatar = rules.spawn_avatar(&[], 1);
        let mut buf = [0; MAX_STATE_SIZE];
        avatar.position = rules.maze.corner();
        let len = rules.encode(&avatar, &mut buf).expect("the buffer is large enough");
        assert_eq!(rules.decode(&buf[..len]), None);
        avatar.position.x = -1;
        assert_eq!(rules.encode(&avatar, &mut buf), None);
    }
}
