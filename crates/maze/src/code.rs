//! Avatars as bytes: thirteen for one that walks and has not fired lately.
//!
//! ```text
//! what it is  1   dead 1 bit; speed 2: 0 stands, 1 walks, 2 backwards, 3 other; turn 2: 0 none, 1 right, 2 left, 3 other; shots 3
//! x, y        3+3
//! heading     2
//! speed       2   only if other
//! turn        2   only if other
//! lives       2
//! dead since  4   only if dead
//! fired       2   the number of the newest shot; the others have those before it
//! shots           the newest first: tick 4, x 2, y 2 (whole units), heading 2; of those before it the ticks from one to the next, 1
//! doom        5   only if it will fall: in how many ticks 1, the tick 4
//! ```
//!
//! Numbers begin with their low byte. A state has one encoding, and bytes that are none are refused.

use crate::avatar::{Avatar, Doom, Life};
use crate::maze::GRID;
use crate::place::{FINE, Position};
use crate::rules::{BACK, FIRE_EVERY, TURN, WALK};
use crate::shot::{MOST_SHOTS, SHOT_KEPT, Shot, Shots};
use crate::watch::FORESIGHT;

/// What stands for a speed; of the usual ones nothing more is written.
const SPEEDS: [i16; 3] = [0, WALK, BACK];
const TURNS: [i16; 3] = [0, TURN, -TURN];
const OTHER: u8 = 3;

pub(crate) fn encode(avatar: &Avatar, buf: &mut [u8]) -> Option<usize> {
    let mut out = Writer { buf, len: 0 };
    let speed = usual(&SPEEDS, avatar.speed);
    let turn = usual(&TURNS, avatar.turn);
    out.put(&[u8::from(!avatar.is_alive()) | speed << 1 | turn << 3 | (avatar.shots.iter().len() as u8) << 5])?;
    out.position(avatar.position)?;
    out.put(&avatar.heading.to_le_bytes())?;
    if speed == OTHER {
        out.put(&avatar.speed.to_le_bytes())?;
    }
    if turn == OTHER {
        out.put(&avatar.turn.to_le_bytes())?;
    }
    out.put(&avatar.lives.to_le_bytes())?;
    if let Life::Dead { since } = avatar.life {
        out.put(&since.to_le_bytes())?;
    }
    out.shots(&avatar.shots)?;
    if let Some(Doom { tick, left }) = avatar.doom {
        out.put(&[left])?;
        out.put(&tick.to_le_bytes())?;
    }
    Some(out.len)
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Avatar> {
    let mut reader = Reader { bytes };
    let [what] = reader.take()?;
    let (is_dead, speed, turn, shots) = (what & 1 == 1, what >> 1 & 3, what >> 3 & 3, what >> 5);
    let position = reader.position()?;
    let heading = reader.u16()?;
    let speed = reader.unusual(&SPEEDS, speed, WALK)?;
    let turn = reader.unusual(&TURNS, turn, TURN)?;
    let lives = reader.u16()?;
    let life = if is_dead { Life::Dead { since: reader.u32()? } } else { Life::Alive };
    let shots = reader.shots(shots.into())?;
    let doom = reader.doom()?;
    let lies_still = !is_dead || (speed, turn, doom) == (0, 0, None);
    let avatar = Avatar { position, heading, speed, turn, life, lives, shots, doom };
    lies_still.then_some(avatar)
}

/// Which of the usual values it is.
fn usual(values: &[i16; 3], value: i16) -> u8 {
    values.iter().position(|usual| *usual == value).map_or(OTHER, |at| at as u8)
}

struct Writer<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.len + bytes.len();
        self.buf.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(())
    }

    fn position(&mut self, position: Position) -> Option<()> {
        for at in [position.x, position.y] {
            let inside = (0..GRID * FINE).contains(&at);
            self.put(at.to_le_bytes().get(..3).filter(|_| inside)?)?;
        }
        Some(())
    }

    fn shots(&mut self, shots: &Shots) -> Option<()> {
        self.put(&shots.fired().to_le_bytes())?;
        let mut newer: Option<u32> = None;
        for shot in shots.iter().rev() {
            match newer {
                None => self.put(&shot.tick.to_le_bytes())?,
                Some(newer) => self.put(&[u8::try_from(newer.checked_sub(shot.tick)?).ok()?])?,
            }
            newer = Some(shot.tick);
            for at in [shot.from.x, shot.from.y] {
                self.put(&u16::try_from(at / FINE).ok()?.to_le_bytes())?;
            }
            self.put(&shot.heading.to_le_bytes())?;
        }
        Some(())
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
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

    /// Three bytes each way: what they can say is on the grid.
    fn position(&mut self) -> Option<Position> {
        let mut coordinate = || self.take().map(|[low, middle, high]| i32::from_le_bytes([low, middle, high, 0]));
        Some(Position { x: coordinate()?, y: coordinate()? })
    }

    /// One of the usual values, or another that is not faster than the fastest.
    fn unusual(&mut self, values: &[i16; 3], which: u8, fastest: i16) -> Option<i16> {
        if let Some(value) = values.get(usize::from(which)) {
            return Some(*value);
        }
        let value = self.take().map(i16::from_le_bytes)?;
        let possible = value.unsigned_abs() <= fastest.unsigned_abs() && usual(values, value) == OTHER;
        possible.then_some(value)
    }

    fn shots(&mut self, count: usize) -> Option<Shots> {
        let fired = self.u16()?;
        let mut newest_first = [Shot::default(); MOST_SHOTS];
        for at in 0..count {
            let newer = at.checked_sub(1).map(|newer| newest_first[newer].tick);
            let tick = self.shot_tick(newer)?;
            let from = Position::of_units(self.u16()?.into(), self.u16()?.into());
            *newest_first.get_mut(at)? = Shot { number: 0, tick, from, heading: self.u16()? };
        }
        let kept = newest_first.get(..count)?;
        if let [newest, .., oldest] = kept
            && newest.tick - oldest.tick > SHOT_KEPT
        {
            return None;
        }
        let mut shots = Shots::after(fired.wrapping_sub(count as u16));
        kept.iter().rev().for_each(|shot| shots.push(*shot));
        Some(shots)
    }

    /// What is left: nothing, or when it will fall.
    fn doom(&mut self) -> Option<Option<Doom>> {
        if self.bytes.is_empty() {
            return Some(None);
        }
        let ([left], tick) = (self.take()?, self.u32()?);
        (self.bytes.is_empty() && (1..=FORESIGHT).contains(&left)).then_some(Some(Doom { tick, left }))
    }

    /// Nobody shoots faster than the rules allow.
    fn shot_tick(&mut self, newer: Option<u32>) -> Option<u32> {
        let Some(newer) = newer else { return self.u32() };
        let [before] = self.take()?;
        let before = u32::from(before);
        newer.checked_sub(before).filter(|_| before >= FIRE_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avatar::Controls;
    use crate::luck::Luck;
    use crate::maze::Maze;
    use crate::rules::Rules;
    use coplay::peer_world::{DeadReckoning, MAX_STATE_SIZE};

    fn rules() -> Rules {
        Rules::new(Maze::new(7, 8))
    }

    /// A life with everything in it, told to the visitor tick by tick.
    fn play(rules: &Rules, ticks: u32, mut visit: impl FnMut(&Avatar)) {
        let mut luck = Luck::new(3);
        let mut avatar = rules.newcomer(&[], 1);
        let mut controls = Controls::default();
        for tick in 0..ticks {
            if luck.one_in(15) {
                let [forward, back, left, right, fire] = [2, 8, 4, 4, 2].map(|many| luck.one_in(many));
                controls = Controls { forward, back, left, right, fire };
            }
            if luck.one_in(700) {
                rules.kill(tick, &mut avatar);
            }
            rules.step(tick, &mut avatar, controls, &[], 1);
            let left = 1 + luck.below(FORESIGHT.into()) as u8;
            let is_doomed = avatar.is_alive() && luck.one_in(10);
            avatar.doom = is_doomed.then_some(Doom { tick: tick + u32::from(left), left });
            visit(&avatar);
        }
    }

    #[test]
    fn what_a_game_produces_comes_back_as_it_was() {
        let rules = rules();
        let mut seen = [0; MOST_SHOTS + 1];
        let mut dead = 0;
        play(&rules, 60_000, |avatar| {
            let mut buf = [0; MAX_STATE_SIZE];
            let len = rules.encode(avatar, &mut buf).expect("there is room");
            assert_eq!(rules.decode(&buf[..len]).as_ref(), Some(avatar));
            assert_eq!(rules.encode(avatar, &mut buf[..len - 1]), None, "no room");
            assert_eq!(rules.decode(&buf[..len - 1]), None, "cut off");
            assert_eq!(rules.decode(&buf[..len + 1]), None, "something behind it");
            let shots = avatar.shots.iter().len();
            let fate = if avatar.is_alive() { 0 } else { 4 } + if avatar.doom.is_some() { 5 } else { 0 };
            assert_eq!(len, 13 + if shots == 0 { 0 } else { 3 + 7 * shots } + fate);
            seen[shots] += 1;
            dead += u32::from(!avatar.is_alive());
        });
        assert!(seen.iter().all(|count| *count > 100) && dead > 1_000, "{seen:?}, {dead}");
    }

    #[test]
    fn other_speeds_and_turns_can_be_told_up_to_the_fastest() {
        let rules = rules();
        let mut avatar = rules.newcomer(&[], 1);
        let mut buf = [0; MAX_STATE_SIZE];
        let mut comes_back = |speed, turn| {
            (avatar.speed, avatar.turn) = (speed, turn);
            let len = rules.encode(&avatar, &mut buf).expect("there is room");
            rules.decode(&buf[..len]).as_ref() == Some(&avatar)
        };
        assert!(comes_back(1, -1) && comes_back(-WALK, TURN - 1) && comes_back(WALK - 1, 0));
        assert!(
            !comes_back(WALK + 1, 0)
                && !comes_back(0, TURN + 1)
                && !comes_back(i16::MIN, 5)
                && !comes_back(5, i16::MIN)
        );
    }

    #[test]
    fn whatever_is_decoded_could_have_been_encoded() {
        let rules = rules();
        let mut luck = Luck::new(4);
        let mut states = Vec::new();
        play(&rules, 4_000, |avatar| {
            let mut buf = [0; MAX_STATE_SIZE];
            let len = rules.encode(avatar, &mut buf).expect("there is room");
            states.push(buf[..len].to_vec());
        });
        let mut understood = 0;
        for mut bytes in states {
            for _ in 0..=luck.below(3) {
                let at = luck.below(bytes.len() as u32) as usize;
                bytes[at] ^= 1 << luck.below(8);
            }
            bytes.truncate(bytes.len() - luck.below(2) as usize);
            if let Some(avatar) = rules.decode(&bytes) {
                let mut again = [0; MAX_STATE_SIZE];
                let len = rules.encode(&avatar, &mut again).expect("there is room");
                assert_eq!(again[..len], bytes, "one state, one encoding");
                understood += 1;
            }
        }
        assert!(understood > 100, "{understood} were understood");
    }

    #[test]
    fn garbage_is_refused_or_harmless() {
        let rules = rules();
        let mut luck = Luck::new(5);
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..luck.below(60)).map(|_| luck.bits() as u8).collect();
            if let Some(avatar) = rules.decode(&bytes) {
                assert!(rules.maze.is_free(rules.extrapolate(&avatar, 50).position, crate::rules::RADIUS));
            }
        }
    }

    #[test]
    fn shots_from_the_rim_of_the_grid_can_be_told() {
        let rules = Rules::new(Maze::new(1, 128));
        for direction in crate::maze::Direction::ALL {
            let position = rules.maze.middle((127, 127));
            let mut avatar = Avatar { position, heading: direction.heading(), ..rules.newcomer(&[], 1) };
            let press = |fire| Controls { forward: true, fire, ..Controls::default() };
            (0..100).for_each(|tick| rules.step(tick, &mut avatar, press(false), &[], 1));
            rules.step(100, &mut avatar, press(true), &[], 1);
            let mut buf = [0; MAX_STATE_SIZE];
            let len = rules.encode(&avatar, &mut buf).expect("it can be told");
            assert_eq!(rules.decode(&buf[..len]), Some(avatar));
        }
    }

    #[test]
    fn nobody_is_in_a_wall_or_off_the_grid() {
        let rules = rules();
        let mut avatar = rules.newcomer(&[], 1);
        let mut buf = [0; MAX_STATE_SIZE];
        avatar.position = rules.maze.corner();
        let len = rules.encode(&avatar, &mut buf).expect("there is room");
        assert_eq!(rules.decode(&buf[..len]), None);
        avatar.position.x = -1;
        assert_eq!(rules.encode(&avatar, &mut buf), None);
    }
}
