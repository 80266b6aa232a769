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
use coplay_maze::{Avatar, Controls, MazeSettings, Rules, Score};

use crate::entity_update::{Reader, parse_name, put_avatar, put_entity, put_score, put_short_bytes};

/// The first byte of what a player says, and of what a server says.
const FAMILY_CLIENT_INPUT: u8 = 0x55;
const FAMILY_SERVER: u8 = 0x56;
const FAMILY_PING: u8 = 0x57;
const FAMILY_LEAVE: u8 = 0x58;
const KIND_VIEW: u8 = 1;
const KIND_DIRECTORY: u8 = 2;
const KIND_PONG: u8 = 3;
/// No datagram is longer: it fits everywhere.
pub const MAX_MESSAGE_LEN: usize = 1_100;
/// The most presses in a datagram: the newest, until the server has them.
pub const MAX_INPUT_CHANGES: usize = 8;

/// A player presses other buttons than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputChange {
    /// Which press of this player's, from 1 on.
    pub number: u32,
    /// For how many ticks the buttons before were held, as the player saw it.
    pub previous_held_ticks: u32,
    /// What is pressed now.
    pub controls: Controls,
}

/// What a player says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInput {
    /// The player's clock.
    pub stamp: Instant,
    /// A number that the player drew when it began: presses are counted from then on.
    pub run: u32,
    /// What it wants to be called.
    pub name: String,
    /// What it pressed, the oldest first, as far as it does not know that the server knows.
    pub changes: Vec<InputChange>,
}

/// What a player sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldView {
    /// Three stamps of a round trip: the player's that came last, when it came, and now.
    pub echo: [Instant; 3],
    /// Which tick of the world this is.
    pub tick: u32,
    /// Which run of the player's this is for.
    pub run: u32,
    /// The tick since which it is on this server. What it pressed before the server does not know.
    pub joined_tick: u32,
    /// The newest press that took effect, and for how many ticks by now.
    pub applied_change: (u32, u32),
    /// Who the player is.
    pub own_entity: EntityId,
    /// Hits and falls of the player's that will not be forgotten, whichever server dies.
    pub score: Score,
    /// Whether the server is about to go: the player had better be on another.
    pub is_draining: bool,
    /// Who felled the player last on this server.
    pub last_hit_by: Option<EntityId>,
    /// The player's avatar, and then others that are near, the nearest first.
    pub avatars: Vec<(EntityId, Avatar)>,
}

/// What a player is told now and then: the world, other servers, and a part of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The world.
    pub settings: MazeSettings,
    /// Where other servers are.
    pub mirrors: Vec<String>,
    /// Some lines of the table.
    pub score_rows: Vec<(EntityId, String, Score)>,
}

/// The answer to a ping: how a server is that a player is not on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The stamp of the ping.
    pub stamp: Instant,
    /// Whether the server is about to go, or does not let anybody in yet.
    pub is_draining: bool,
    /// Whether the world has no room for who asks.
    pub is_full: bool,
    /// How many players are there.
    pub player_count: u16,
}

/// Asks a server how it is, with our own clock.
pub fn encode_ping(stamp: Instant) -> Vec<u8> {
    let mut bytes = vec![FAMILY_PING];
    put_stamp(&mut bytes, stamp);
    bytes
}

/// The stamp of a ping; `None` if it is none.
pub fn decode_ping(bytes: &[u8]) -> Option<Instant> {
    let mut reader = Reader(bytes);
    let ([FAMILY_PING], stamp) = (reader.take()?, read_stamp(&mut reader)?) else { return None };
    reader.rest().is_empty().then_some(stamp)
}

/// What a player says when it leaves, in this run of its.
pub(crate) fn encode_leave(run: u32) -> Vec<u8> {
    let mut bytes = vec![FAMILY_LEAVE];
    bytes.extend_from_slice(&run.to_le_bytes());
    bytes
}

/// The run that a goodbye ends; `None` if it is none.
pub(crate) fn decode_leave(bytes: &[u8]) -> Option<u32> {
    let mut reader = Reader(bytes);
    let ([FAMILY_LEAVE], run) = (reader.take()?, reader.u32()?) else { return None };
    reader.rest().is_empty().then_some(run)
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage {
    /// What the player sees.
    View(WorldView),
    /// What else there is to know.
    Directory(Directory),
    /// How it is.
    Pong(Pong),
}

impl ClientInput {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FAMILY_CLIENT_INPUT];
        put_stamp(&mut bytes, self.stamp);
        bytes.extend_from_slice(&self.run.to_le_bytes());
        put_short_bytes(&mut bytes, self.name.as_bytes());
        let presses = &self.changes[self.changes.len().saturating_sub(MAX_INPUT_CHANGES)..];
        bytes.push(presses.len() as u8);
        for press in presses {
            bytes.extend_from_slice(&press.number.to_le_bytes());
            bytes.extend_from_slice(&press.previous_held_ticks.to_le_bytes());
            bytes.push(controls_to_bits(press.controls));
        }
        bytes
    }

    /// What somebody said; `None` if no player would.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let ([FAMILY_CLIENT_INPUT], stamp) = (reader.take()?, read_stamp(&mut reader)?) else { return None };
        let (run, name) = (reader.u32()?, parse_name(reader.short_bytes()?)?);
        let [count] = reader.take()?;
        let mut presses = Vec::new();
        for _ in 0..usize::from(count).min(MAX_INPUT_CHANGES) {
            let (number, lasted, [held]) = (reader.u32()?, reader.u32()?, reader.take()?);
            presses.push(InputChange { number, previous_held_ticks: lasted, controls: controls_from_bits(held)? });
        }
        reader.rest().is_empty().then_some(Self { stamp, run, name, changes: presses })
    }
}

impl WorldView {
    /// As bytes: as many avatars as there is room for.
    pub fn to_bytes(&self, rules: &Rules) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_MESSAGE_LEN + 6 + MAX_STATE_SIZE);
        bytes.extend_from_slice(&[FAMILY_SERVER, KIND_VIEW]);
        self.echo.iter().for_each(|stamp| put_stamp(&mut bytes, *stamp));
        for number in [self.tick, self.run, self.joined_tick, self.applied_change.0, self.applied_change.1] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        put_entity(&mut bytes, self.own_entity);
        put_score(&mut bytes, self.score);
        bytes.push(u8::from(self.is_draining) | u8::from(self.last_hit_by.is_some()) << 1);
        self.last_hit_by.iter().for_each(|by| put_entity(&mut bytes, *by));
        for (entity, avatar) in &self.avatars {
            let before = bytes.len();
            put_entity(&mut bytes, *entity);
            put_avatar_with_len(&mut bytes, rules, avatar);
            if bytes.len() > MAX_MESSAGE_LEN {
                bytes.truncate(before);
                break;
            }
        }
        bytes
    }

    fn from_reader(reader: &mut Reader<'_>, rules: &Rules) -> Option<Self> {
        let echo = [read_stamp(reader)?, read_stamp(reader)?, read_stamp(reader)?];
        let (tick, run, came) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let pressed = (reader.u32()?, reader.u32()?);
        let (me, score, [flags]) = (reader.entity()?, reader.score()?, reader.take()?);
        let (drains, has_fallen) = (flags < 4).then_some((flags & 1 == 1, flags & 2 == 2))?;
        let felled_by = if has_fallen { Some(reader.entity()?) } else { None };
        let mut avatars = Vec::new();
        while !reader.rest().is_empty() {
            avatars.push((reader.entity()?, rules.decode(reader.short_bytes()?)?));
        }
        Some(Self {
            echo,
            tick,
            run,
            joined_tick: came,
            applied_change: pressed,
            own_entity: me,
            score,
            is_draining: drains,
            last_hit_by: felled_by,
            avatars,
        })
    }
}

impl Directory {
    /// As bytes. Who fills a page sees to it that it is not [too long](MAX_MESSAGE_LEN).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FAMILY_SERVER, KIND_DIRECTORY];
        put_short_bytes(&mut bytes, &self.settings.to_bytes());
        bytes.push(self.mirrors.len() as u8);
        self.mirrors.iter().for_each(|place| put_short_bytes(&mut bytes, place.as_bytes()));
        for (entity, name, score) in &self.score_rows {
            if bytes.len() + Self::row_len(name) > MAX_MESSAGE_LEN {
                break;
            }
            put_entity(&mut bytes, *entity);
            put_short_bytes(&mut bytes, name.as_bytes());
            put_score(&mut bytes, *score);
        }
        bytes
    }

    fn row_len(name: &str) -> usize {
        5 + 1 + name.len() + 8
    }

    /// How many of its lines there is room for.
    pub(crate) fn fitting_rows(&self) -> usize {
        let before = Self { score_rows: vec![], ..self.clone() }.to_bytes().len();
        let ends = self.score_rows.iter().scan(before, |len, (_, name, _)| {
            *len += Self::row_len(name);
            Some(*len)
        });
        ends.take_while(|end| *end <= MAX_MESSAGE_LEN).count()
    }

    fn from_reader(reader: &mut Reader<'_>) -> Option<Self> {
        let terms = MazeSettings::from_bytes(reader.short_bytes()?)?;
        let [count] = reader.take()?;
        let mut mirrors = Vec::new();
        for _ in 0..count {
            mirrors.push(str::from_utf8(reader.short_bytes()?).ok()?.to_owned());
        }
        let mut lines = Vec::new();
        while !reader.rest().is_empty() {
            lines.push((reader.entity()?, parse_name(reader.short_bytes()?)?, reader.score()?));
        }
        Some(Self { settings: terms, mirrors, score_rows: lines })
    }
}

impl Pong {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FAMILY_SERVER, KIND_PONG];
        put_stamp(&mut bytes, self.stamp);
        bytes.extend_from_slice(&[self.is_draining.into(), self.is_full.into()]);
        bytes.extend_from_slice(&self.player_count.to_le_bytes());
        bytes
    }

    fn from_reader(reader: &mut Reader<'_>) -> Option<Self> {
        let (stamp, [drains, full], players) =
            (read_stamp(reader)?, reader.take()?, u16::from_le_bytes(reader.take()?));
        reader.rest().is_empty().then_some(Self {
            stamp,
            is_draining: drains != 0,
            is_full: full != 0,
            player_count: players,
        })
    }
}

impl ServerMessage {
    /// What somebody said; `None` if no server would. Without rules, as long as the world is not known, only pages are understood.
    pub fn from_bytes(bytes: &[u8], rules: Option<&Rules>) -> Option<Self> {
        let mut reader = Reader(bytes);
        match (reader.take()?, rules) {
            ([FAMILY_SERVER, KIND_VIEW], Some(rules)) => WorldView::from_reader(&mut reader, rules).map(Self::View),
            ([FAMILY_SERVER, KIND_DIRECTORY], _) => Directory::from_reader(&mut reader).map(Self::Directory),
            ([FAMILY_SERVER, KIND_PONG], _) => Pong::from_reader(&mut reader).map(Self::Pong),
            _ => None,
        }
    }
}

/// An avatar, after its length.
fn put_avatar_with_len(bytes: &mut Vec<u8>, rules: &Rules, avatar: &Avatar) {
    let at = bytes.len();
    bytes.push(0);
    put_avatar(bytes, rules, avatar);
    bytes[at] = (bytes.len() - at - 1) as u8;
}

fn put_stamp(bytes: &mut Vec<u8>, stamp: Instant) {
    bytes.extend_from_slice(&stamp.as_nanos().to_le_bytes());
}

fn read_stamp(reader: &mut Reader<'_>) -> Option<Instant> {
    reader.take().map(|bytes| Instant::from_nanos(i64::from_le_bytes(bytes)))
}

fn controls_to_bits(controls: Controls) -> u8 {
    let held = [controls.forward, controls.backward, controls.left, controls.right, controls.fire];
    held.iter().enumerate().map(|(bit, held)| u8::from(*held) << bit).sum()
}

fn controls_from_bits(held: u8) -> Option<Controls> {
    let bit = |bit: u8| held >> bit & 1 == 1;
    let controls = Controls { forward: bit(0), backward: bit(1), left: bit(2), right: bit(3), fire: bit(4) };
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
    fn client_input_round_trips_and_invalid_bytes_are_rejected() {
        let press = |number| InputChange {
            number,
            previous_held_ticks: number * 30_000,
            controls: controls_from_bits(number as u8).unwrap(),
        };
        let (stamp, presses) = (Instant::from_nanos(-7), (1..=8).map(press).collect());
        let mut wish = ClientInput { stamp, run: 0x0102_0304, name: "Ada".into(), changes: presses };
        let bytes = wish.to_bytes();
        assert_eq!(ClientInput::from_bytes(&bytes), Some(wish.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(ClientInput::from_bytes(&bytes[..cut]), None);
        }
        wish.changes.push(press(9));
        let newest: Vec<u32> =
            ClientInput::from_bytes(&wish.to_bytes()).unwrap().changes.iter().map(|press| press.number).collect();
        assert_eq!(newest, (2..=9).collect::<Vec<u32>>(), "the newest");
    }

    #[test]
    fn ping_and_pong_round_trip() {
        let stamp = Instant::from_nanos(77);
        assert_eq!(decode_ping(&encode_ping(stamp)), Some(stamp));
        assert_eq!(decode_ping(&encode_ping(stamp)[..8]), None);
        for (drains, full) in [(true, false), (false, true)] {
            let pong = Pong { stamp, is_draining: drains, is_full: full, player_count: 300 };
            assert_eq!(ServerMessage::from_bytes(&pong.to_bytes(), None), Some(ServerMessage::Pong(pong)));
        }
    }

    #[test]
    fn leave_message_is_distinct_from_other_messages() {
        assert_eq!(decode_leave(&encode_leave(77)), Some(77));
        assert_eq!((decode_leave(&encode_leave(77)[..4]), decode_leave(&encode_ping(Instant::ZERO))), (None, None));
        assert_eq!((decode_ping(&encode_leave(77)), ClientInput::from_bytes(&encode_leave(77))), (None, None));
    }

    #[test]
    fn views_and_directories_round_trip_within_the_size_limit() {
        let rules = Rules::new(Maze::new(7, 8));
        let avatars: Vec<(EntityId, Avatar)> =
            (0..200).map(|luck| (entity(luck), rules.spawn_avatar(&[], luck.into()))).collect();
        let mut view = WorldView {
            echo: [1, 2, 3].map(Instant::from_nanos),
            tick: 9,
            run: 5,
            joined_tick: 6,
            applied_change: (7, 70_000),
            own_entity: entity(0),
            score: Score { hits: 3, falls: 4 },
            is_draining: true,
            last_hit_by: None,
            avatars,
        };
        for (drains, felled_by) in [(true, None), (false, Some(entity(8))), (true, Some(entity(9)))] {
            (view.is_draining, view.last_hit_by) = (drains, felled_by);
            let bytes = view.to_bytes(&rules);
            assert!(bytes.len() <= MAX_MESSAGE_LEN);
            let Some(ServerMessage::View(back)) = ServerMessage::from_bytes(&bytes, Some(&rules)) else {
                panic!("a view")
            };
            assert!(back.avatars.len() > 40 && view.avatars.starts_with(&back.avatars));
            assert_eq!(WorldView { avatars: vec![], ..back }, WorldView { avatars: vec![], ..view.clone() });
            assert_eq!(ServerMessage::from_bytes(&bytes, None), None);
        }

        let lines: Vec<_> = (0..90)
            .map(|number| (entity(number), format!("player {number}"), Score { hits: number, falls: 1 }))
            .collect();
        let page =
            Directory { settings: MazeSettings::default(), mirrors: vec!["192.0.2.1:7000".into()], score_rows: lines };
        let bytes = page.to_bytes();
        assert!(bytes.len() <= MAX_MESSAGE_LEN);
        let Some(ServerMessage::Directory(back)) = ServerMessage::from_bytes(&bytes, None) else { panic!("a page") };
        assert!(back.score_rows.len() > 30 && page.score_rows.starts_with(&back.score_rows));
        assert_eq!((back.settings, back.mirrors), (page.settings, page.mirrors));
    }
}
