//! What a player and its server say to each other. Every datagram stands by itself: what is lost is said again, newer.
//!
//! ```text
//! player to server                              server to player
//!   family  1  0x55                               family  1  0x56
//!   stamp   8  its clock, comes back              kind    1  1 view, 2 page, 3 pong
//!   run     4                                     view: see View
//!   name       one byte of length, the name       page: see Page
//!   count   1                                     pong: stamp 8, whether it drains 1 and is full 1, players 2
//!   presses 9 each: number 4, lasted 4, buttons 1
//! or a ping: 0x57, stamp 8; or a goodbye: 0x58, run 4
//! ```
//!
//! Numbers begin with their low byte.

use coplay::peer_world::{DeadReckoning, EntityId, MAX_STATE_SIZE};
use coplay::time::Instant;
use coplay_maze::{Avatar, Controls, Rules, Score, Terms};

use crate::deed::{Reader, name, put_avatar, put_entity, put_score, put_short};

/// The first byte of what a player says, and of what a server says.
const PLAYER: u8 = 0x55;
const SERVER: u8 = 0x56;
const PING: u8 = 0x57;
const GOODBYE: u8 = 0x58;
const VIEW: u8 = 1;
const PAGE: u8 = 2;
const PONG: u8 = 3;
/// No datagram is longer: it fits everywhere.
pub const MAX_TALK: usize = 1_100;
/// The most presses in a datagram: the newest, until the server has them.
pub const MAX_PRESSES: usize = 8;

/// A player presses other buttons than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Press {
    /// Which press of this player's, from 1 on.
    pub number: u32,
    /// For how many ticks the buttons before were held, as the player saw it.
    pub lasted: u32,
    /// What is pressed now.
    pub controls: Controls,
}

/// What a player says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The player's clock.
    pub stamp: Instant,
    /// A number that the player drew when it began: presses are counted from then on.
    pub run: u32,
    /// What it wants to be called.
    pub name: String,
    /// What it pressed, the oldest first, as far as it does not know that the server knows.
    pub presses: Vec<Press>,
}

/// What a player sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Three stamps of a round trip: the player's that came last, when it came, and now.
    pub echo: [Instant; 3],
    /// Which tick of the world this is.
    pub tick: u32,
    /// Which run of the player's this is for.
    pub run: u32,
    /// The tick since which it is on this server. What it pressed before the server does not know.
    pub came: u32,
    /// The newest press that took effect, and for how many ticks by now.
    pub pressed: (u32, u32),
    /// Who the player is.
    pub me: EntityId,
    /// Hits and falls of the player's that will not be forgotten, whichever server dies.
    pub score: Score,
    /// Whether the server is about to go: the player had better be on another.
    pub drains: bool,
    /// Who felled the player last on this server.
    pub felled_by: Option<EntityId>,
    /// The player's avatar, and then others that are near, the nearest first.
    pub avatars: Vec<(EntityId, Avatar)>,
}

/// What a player is told now and then: the world, other servers, and a part of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The world.
    pub terms: Terms,
    /// Where other servers are.
    pub mirrors: Vec<String>,
    /// Some lines of the table.
    pub lines: Vec<(EntityId, String, Score)>,
}

/// The answer to a ping: how a server is that a player is not on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The stamp of the ping.
    pub stamp: Instant,
    /// Whether the server is about to go, or does not let anybody in yet.
    pub drains: bool,
    /// Whether the world has no room for who asks.
    pub full: bool,
    /// How many players are there.
    pub players: u16,
}

/// Asks a server how it is, with our own clock.
pub fn ping(stamp: Instant) -> Vec<u8> {
    let mut bytes = vec![PING];
    put_stamp(&mut bytes, stamp);
    bytes
}

/// The stamp of a ping; `None` if it is none.
pub fn read_ping(bytes: &[u8]) -> Option<Instant> {
    let mut reader = Reader(bytes);
    let ([PING], stamp) = (reader.take()?, stamp(&mut reader)?) else { return None };
    reader.rest().is_empty().then_some(stamp)
}

/// What a player says when it leaves, in this run of its.
pub(crate) fn goodbye(run: u32) -> Vec<u8> {
    let mut bytes = vec![GOODBYE];
    bytes.extend_from_slice(&run.to_le_bytes());
    bytes
}

/// The run that a goodbye ends; `None` if it is none.
pub(crate) fn read_goodbye(bytes: &[u8]) -> Option<u32> {
    let mut reader = Reader(bytes);
    let ([GOODBYE], run) = (reader.take()?, reader.number()?) else { return None };
    reader.rest().is_empty().then_some(run)
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// What the player sees.
    View(View),
    /// What else there is to know.
    Page(Page),
    /// How it is.
    Pong(Pong),
}

impl Wish {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![PLAYER];
        put_stamp(&mut bytes, self.stamp);
        bytes.extend_from_slice(&self.run.to_le_bytes());
        put_short(&mut bytes, self.name.as_bytes());
        let presses = &self.presses[self.presses.len().saturating_sub(MAX_PRESSES)..];
        bytes.push(presses.len() as u8);
        for press in presses {
            bytes.extend_from_slice(&press.number.to_le_bytes());
            bytes.extend_from_slice(&press.lasted.to_le_bytes());
            bytes.push(buttons(press.controls));
        }
        bytes
    }

    /// What somebody said; `None` if no player would.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let ([PLAYER], stamp) = (reader.take()?, stamp(&mut reader)?) else { return None };
        let (run, name) = (reader.number()?, name(reader.short()?)?);
        let [count] = reader.take()?;
        let mut presses = Vec::new();
        for _ in 0..usize::from(count).min(MAX_PRESSES) {
            let (number, lasted, [held]) = (reader.number()?, reader.number()?, reader.take()?);
            presses.push(Press { number, lasted, controls: controls(held)? });
        }
        reader.rest().is_empty().then_some(Self { stamp, run, name, presses })
    }
}

impl View {
    /// As bytes: as many avatars as there is room for.
    pub fn to_bytes(&self, rules: &Rules) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_TALK + 6 + MAX_STATE_SIZE);
        bytes.extend_from_slice(&[SERVER, VIEW]);
        self.echo.iter().for_each(|stamp| put_stamp(&mut bytes, *stamp));
        for number in [self.tick, self.run, self.came, self.pressed.0, self.pressed.1] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        put_entity(&mut bytes, self.me);
        put_score(&mut bytes, self.score);
        bytes.push(u8::from(self.drains) | u8::from(self.felled_by.is_some()) << 1);
        self.felled_by.iter().for_each(|by| put_entity(&mut bytes, *by));
        for (entity, avatar) in &self.avatars {
            let before = bytes.len();
            put_entity(&mut bytes, *entity);
            put_state(&mut bytes, rules, avatar);
            if bytes.len() > MAX_TALK {
                bytes.truncate(before);
                break;
            }
        }
        bytes
    }

    fn from_reader(reader: &mut Reader<'_>, rules: &Rules) -> Option<Self> {
        let echo = [stamp(reader)?, stamp(reader)?, stamp(reader)?];
        let (tick, run, came) = (reader.number()?, reader.number()?, reader.number()?);
        let pressed = (reader.number()?, reader.number()?);
        let (me, score, [flags]) = (reader.entity()?, reader.score()?, reader.take()?);
        let (drains, has_fallen) = (flags < 4).then_some((flags & 1 == 1, flags & 2 == 2))?;
        let felled_by = if has_fallen { Some(reader.entity()?) } else { None };
        let mut avatars = Vec::new();
        while !reader.rest().is_empty() {
            avatars.push((reader.entity()?, rules.decode(reader.short()?)?));
        }
        Some(Self { echo, tick, run, came, pressed, me, score, drains, felled_by, avatars })
    }
}

impl Page {
    /// As bytes. Who fills a page sees to it that it is not [too long](MAX_TALK).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![SERVER, PAGE];
        put_short(&mut bytes, &self.terms.to_bytes());
        bytes.push(self.mirrors.len() as u8);
        self.mirrors.iter().for_each(|place| put_short(&mut bytes, place.as_bytes()));
        for (entity, name, score) in &self.lines {
            if bytes.len() + Self::line_len(name) > MAX_TALK {
                break;
            }
            put_entity(&mut bytes, *entity);
            put_short(&mut bytes, name.as_bytes());
            put_score(&mut bytes, *score);
        }
        bytes
    }

    fn line_len(name: &str) -> usize {
        5 + 1 + name.len() + 8
    }

    /// How many of its lines there is room for.
    pub(crate) fn fitting(&self) -> usize {
        let before = Self { lines: vec![], ..self.clone() }.to_bytes().len();
        let ends = self.lines.iter().scan(before, |len, (_, name, _)| {
            *len += Self::line_len(name);
            Some(*len)
        });
        ends.take_while(|end| *end <= MAX_TALK).count()
    }

    fn from_reader(reader: &mut Reader<'_>) -> Option<Self> {
        let terms = Terms::from_bytes(reader.short()?)?;
        let [count] = reader.take()?;
        let mut mirrors = Vec::new();
        for _ in 0..count {
            mirrors.push(str::from_utf8(reader.short()?).ok()?.to_owned());
        }
        let mut lines = Vec::new();
        while !reader.rest().is_empty() {
            lines.push((reader.entity()?, name(reader.short()?)?, reader.score()?));
        }
        Some(Self { terms, mirrors, lines })
    }
}

impl Pong {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![SERVER, PONG];
        put_stamp(&mut bytes, self.stamp);
        bytes.extend_from_slice(&[self.drains.into(), self.full.into()]);
        bytes.extend_from_slice(&self.players.to_le_bytes());
        bytes
    }

    fn from_reader(reader: &mut Reader<'_>) -> Option<Self> {
        let (stamp, [drains, full], players) = (stamp(reader)?, reader.take()?, u16::from_le_bytes(reader.take()?));
        reader.rest().is_empty().then_some(Self { stamp, drains: drains != 0, full: full != 0, players })
    }
}

impl Word {
    /// What somebody said; `None` if no server would. Without rules, as long as the world is not known, only pages are understood.
    pub fn from_bytes(bytes: &[u8], rules: Option<&Rules>) -> Option<Self> {
        let mut reader = Reader(bytes);
        match (reader.take()?, rules) {
            ([SERVER, VIEW], Some(rules)) => View::from_reader(&mut reader, rules).map(Self::View),
            ([SERVER, PAGE], _) => Page::from_reader(&mut reader).map(Self::Page),
            ([SERVER, PONG], _) => Pong::from_reader(&mut reader).map(Self::Pong),
            _ => None,
        }
    }
}

/// An avatar, after its length.
fn put_state(bytes: &mut Vec<u8>, rules: &Rules, avatar: &Avatar) {
    let at = bytes.len();
    bytes.push(0);
    put_avatar(bytes, rules, avatar);
    bytes[at] = (bytes.len() - at - 1) as u8;
}

fn put_stamp(bytes: &mut Vec<u8>, stamp: Instant) {
    bytes.extend_from_slice(&stamp.as_nanos().to_le_bytes());
}

fn stamp(reader: &mut Reader<'_>) -> Option<Instant> {
    reader.take().map(|bytes| Instant::from_nanos(i64::from_le_bytes(bytes)))
}

fn buttons(controls: Controls) -> u8 {
    let held = [controls.forward, controls.back, controls.left, controls.right, controls.fire];
    held.iter().enumerate().map(|(bit, held)| u8::from(*held) << bit).sum()
}

fn controls(held: u8) -> Option<Controls> {
    let bit = |bit: u8| held >> bit & 1 == 1;
    let controls = Controls { forward: bit(0), back: bit(1), left: bit(2), right: bit(3), fire: bit(4) };
    (held < 32).then_some(controls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::Maze;

    fn entity(number: u32) -> EntityId {
        EntityId { site: WorldSiteId(number), index: 0 }
    }

    #[test]
    fn wishes_come_back_and_others_are_refused() {
        let press = |number| Press { number, lasted: number * 30_000, controls: controls(number as u8).unwrap() };
        let (stamp, presses) = (Instant::from_nanos(-7), (1..=8).map(press).collect());
        let mut wish = Wish { stamp, run: 0x0102_0304, name: "Ada".into(), presses };
        let bytes = wish.to_bytes();
        assert_eq!(Wish::from_bytes(&bytes), Some(wish.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(Wish::from_bytes(&bytes[..cut]), None);
        }
        wish.presses.push(press(9));
        let newest: Vec<u32> =
            Wish::from_bytes(&wish.to_bytes()).unwrap().presses.iter().map(|press| press.number).collect();
        assert_eq!(newest, (2..=9).collect::<Vec<u32>>(), "the newest");
    }

    #[test]
    fn pings_are_answered() {
        let stamp = Instant::from_nanos(77);
        assert_eq!(read_ping(&ping(stamp)), Some(stamp));
        assert_eq!(read_ping(&ping(stamp)[..8]), None);
        for (drains, full) in [(true, false), (false, true)] {
            let pong = Pong { stamp, drains, full, players: 300 };
            assert_eq!(Word::from_bytes(&pong.to_bytes(), None), Some(Word::Pong(pong)));
        }
    }

    #[test]
    fn a_goodbye_is_nothing_else() {
        assert_eq!(read_goodbye(&goodbye(77)), Some(77));
        assert_eq!((read_goodbye(&goodbye(77)[..4]), read_goodbye(&ping(Instant::ZERO))), (None, None));
        assert_eq!((read_ping(&goodbye(77)), Wish::from_bytes(&goodbye(77))), (None, None));
    }

    #[test]
    fn views_and_pages_come_back_and_fit() {
        let rules = Rules::new(Maze::new(7, 8));
        let avatars: Vec<(EntityId, Avatar)> =
            (0..200).map(|luck| (entity(luck), rules.newcomer(&[], luck.into()))).collect();
        let mut view = View {
            echo: [1, 2, 3].map(Instant::from_nanos),
            tick: 9,
            run: 5,
            came: 6,
            pressed: (7, 70_000),
            me: entity(0),
            score: Score { hits: 3, falls: 4 },
            drains: true,
            felled_by: None,
            avatars,
        };
        for (drains, felled_by) in [(true, None), (false, Some(entity(8))), (true, Some(entity(9)))] {
            (view.drains, view.felled_by) = (drains, felled_by);
            let bytes = view.to_bytes(&rules);
            assert!(bytes.len() <= MAX_TALK);
            let Some(Word::View(back)) = Word::from_bytes(&bytes, Some(&rules)) else { panic!("a view") };
            assert!(back.avatars.len() > 40 && view.avatars.starts_with(&back.avatars));
            assert_eq!(View { avatars: vec![], ..back }, View { avatars: vec![], ..view.clone() });
            assert_eq!(Word::from_bytes(&bytes, None), None);
        }

        let lines: Vec<_> = (0..90)
            .map(|number| (entity(number), format!("player {number}"), Score { hits: number, falls: 1 }))
            .collect();
        let page = Page { terms: Terms::default(), mirrors: vec!["192.0.2.1:7000".into()], lines };
        let bytes = page.to_bytes();
        assert!(bytes.len() <= MAX_TALK);
        let Some(Word::Page(back)) = Word::from_bytes(&bytes, None) else { panic!("a page") };
        assert!(back.lines.len() > 30 && page.lines.starts_with(&back.lines));
        assert_eq!((back.terms, back.mirrors), (page.terms, page.mirrors));
    }
}
