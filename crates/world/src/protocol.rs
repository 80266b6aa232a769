//! Messages between a client and its server. Every datagram is self-contained: the next one replaces a lost one with
//! newer data.
//!
//! ```text
//! client to server                               server to client
//!   family   1  0x55                               family  1  0x56
//!   stamp    8  client clock, echoed               kind    1  1 view, 2 directory, 3 pong
//!   run      4                                     view: see WorldView
//!   name        one byte of length, the name       directory: see Directory
//!   count    1                                     pong: stamp 8, draining 1, full 1, players 2
//!   changes  9 each: number 4, previous held ticks 4, buttons 1
//! or a ping: 0x57, stamp 8; or a goodbye: 0x58, run 4
//! ```
//!
//! Numbers are little-endian.

use coplay::peer_world::{DeadReckoning, EntityId, MAX_STATE_SIZE};
use coplay::time::Instant;
use coplay_maze::{Avatar, Controls, MazeRules, MazeSettings, Score};

use crate::entity_update::{Reader, parse_name, put_avatar, put_entity, put_score, put_short_bytes};

/// First byte of an input message.
const FAMILY_CLIENT_INPUT: u8 = 0x55;
/// First byte of a server's message.
const FAMILY_SERVER: u8 = 0x56;
/// First byte of a ping.
const FAMILY_PING: u8 = 0x57;
/// First byte of a goodbye.
const FAMILY_LEAVE: u8 = 0x58;
const KIND_VIEW: u8 = 1;
const KIND_DIRECTORY: u8 = 2;
const KIND_PONG: u8 = 3;
/// Maximum length of a datagram, in bytes: usual network paths carry it without fragmentation.
pub const MAX_MESSAGE_LEN: usize = 1_100;
/// Largest number of input changes in a datagram: the newest that the server has not acknowledged.
pub const MAX_INPUT_CHANGES: usize = 8;

/// Change of the pressed buttons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputChange {
    /// Number of the change in its run, from 1.
    pub number: u32,
    /// Ticks for which the previous buttons were held on the client.
    pub previous_held_ticks: u32,
    /// Buttons held from this change on.
    pub controls: Controls,
}

/// Input message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInput {
    /// Time at which the client sends the message, on its own clock; the server echoes it.
    pub stamp: Instant,
    /// Random number of the client's run. Input changes are counted per run.
    pub run: u32,
    /// Display name that the player chose.
    pub name: String,
    /// Unacknowledged input changes, oldest first.
    pub changes: Vec<InputChange>,
}

/// State of the world around one player, which its server sends every 40 ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldView {
    /// Three timestamps of a round trip: the newest one of the client, its arrival on the server's clock, and the time
    /// of this view on the server's clock.
    pub echo: [Instant; 3],
    /// World tick of the view.
    pub tick: u32,
    /// Run of the client for which the view is.
    pub run: u32,
    /// Tick in which the player joined this server. The server does not know input changes from before that tick.
    pub joined_tick: u32,
    /// Number of the newest input change in effect, and the ticks since it took effect.
    pub applied_change: (u32, u32),
    /// Entity of the player that gets the view.
    pub own_entity: EntityId,
    /// Hits and falls of the player that survive the crash of any one server.
    pub score: Score,
    /// Whether the server is about to stop, so that the player should move to another server.
    pub is_draining: bool,
    /// Avatar that last hit the player on this server.
    pub last_hit_by: Option<EntityId>,
    /// Avatar of the player, then others nearby, nearest first.
    pub avatars: Vec<(EntityId, Avatar)>,
}

/// Message with the world settings, the other servers and a part of the scoreboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Settings of the world, equal on all its servers.
    pub settings: MazeSettings,
    /// Addresses of other servers, to which the player can move.
    pub mirrors: Vec<String>,
    /// Consecutive rows of the scoreboard; successive messages go through all rows in turn.
    pub score_rows: Vec<(EntityId, String, Score)>,
}

/// Answer to a ping: the ping's timestamp, whether the server admits the client, and its number of players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// Timestamp of the ping, on the client's clock.
    pub stamp: Instant,
    /// Whether the server is about to stop, or does not admit players yet.
    pub is_draining: bool,
    /// Whether the world has no room for the asking player.
    pub is_full: bool,
    /// Number of players on the server.
    pub player_count: u16,
}

/// Encodes a ping with the time of sending on the client's clock.
pub fn encode_ping(stamp: Instant) -> Vec<u8> {
    let mut bytes = vec![FAMILY_PING];
    put_stamp(&mut bytes, stamp);
    bytes
}

/// Decodes the timestamp of a ping; `None` if `bytes` is not a ping.
pub fn decode_ping(bytes: &[u8]) -> Option<Instant> {
    let mut reader = Reader(bytes);
    let ([FAMILY_PING], stamp) = (reader.take()?, read_stamp(&mut reader)?) else { return None };
    reader.rest().is_empty().then_some(stamp)
}

/// Encodes the goodbye of a client's run.
pub(crate) fn encode_leave(run: u32) -> Vec<u8> {
    let mut bytes = vec![FAMILY_LEAVE];
    bytes.extend_from_slice(&run.to_le_bytes());
    bytes
}

/// Decodes the run that a goodbye ends; `None` if `bytes` is not a goodbye.
pub(crate) fn decode_leave(bytes: &[u8]) -> Option<u32> {
    let mut reader = Reader(bytes);
    let ([FAMILY_LEAVE], run) = (reader.take()?, reader.u32()?) else { return None };
    reader.rest().is_empty().then_some(run)
}

/// Message of a server to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerMessage {
    /// Avatars around the player, its score and its newest applied input.
    View(WorldView),
    /// World settings, other servers and scoreboard.
    Directory(Directory),
    /// Answer to a ping.
    Pong(Pong),
}

impl ClientInput {
    /// Encodes the input, with the newest [`MAX_INPUT_CHANGES`] changes at most.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FAMILY_CLIENT_INPUT];
        put_stamp(&mut bytes, self.stamp);
        bytes.extend_from_slice(&self.run.to_le_bytes());
        put_short_bytes(&mut bytes, self.name.as_bytes());
        let changes = &self.changes[self.changes.len().saturating_sub(MAX_INPUT_CHANGES)..];
        bytes.push(changes.len() as u8);
        for change in changes {
            bytes.extend_from_slice(&change.number.to_le_bytes());
            bytes.extend_from_slice(&change.previous_held_ticks.to_le_bytes());
            bytes.push(controls_to_bits(change.controls));
        }
        bytes
    }

    /// Decodes an input; `None` if it is malformed or has an invalid name.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let ([FAMILY_CLIENT_INPUT], stamp) = (reader.take()?, read_stamp(&mut reader)?) else { return None };
        let (run, name) = (reader.u32()?, parse_name(reader.short_bytes()?)?);
        let [count] = reader.take()?;
        let mut changes = Vec::new();
        for _ in 0..usize::from(count).min(MAX_INPUT_CHANGES) {
            let (number, previous_held_ticks, [bits]) = (reader.u32()?, reader.u32()?, reader.take()?);
            changes.push(InputChange { number, previous_held_ticks, controls: controls_from_bits(bits)? });
        }
        reader.rest().is_empty().then_some(Self { stamp, run, name, changes })
    }
}

impl WorldView {
    /// Encodes the view, with as many of the first avatars as fit into [`MAX_MESSAGE_LEN`].
    pub fn to_bytes(&self, rules: &MazeRules) -> Vec<u8> {
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

    fn from_reader(reader: &mut Reader<'_>, rules: &MazeRules) -> Option<Self> {
        let echo = [read_stamp(reader)?, read_stamp(reader)?, read_stamp(reader)?];
        let (tick, run, joined_tick) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let applied_change = (reader.u32()?, reader.u32()?);
        let (own_entity, score, [flags]) = (reader.entity()?, reader.score()?, reader.take()?);
        let (is_draining, was_hit) = (flags < 4).then_some((flags & 1 == 1, flags & 2 == 2))?;
        let last_hit_by = if was_hit { Some(reader.entity()?) } else { None };
        let mut avatars = Vec::new();
        while !reader.rest().is_empty() {
            avatars.push((reader.entity()?, rules.decode(reader.short_bytes()?)?));
        }
        Some(Self {
            echo,
            tick,
            run,
            joined_tick,
            applied_change,
            own_entity,
            score,
            is_draining,
            last_hit_by,
            avatars,
        })
    }
}

impl Directory {
    /// Encodes the directory, with as many scoreboard rows as fit into [`MAX_MESSAGE_LEN`]. The caller must limit the
    /// addresses, so that they fit, too.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FAMILY_SERVER, KIND_DIRECTORY];
        put_short_bytes(&mut bytes, &self.settings.to_bytes());
        bytes.push(self.mirrors.len() as u8);
        self.mirrors.iter().for_each(|addr| put_short_bytes(&mut bytes, addr.as_bytes()));
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

    /// Returns the number of scoreboard rows that fit into [`MAX_MESSAGE_LEN`].
    pub(crate) fn fitting_rows(&self) -> usize {
        let before = Self { score_rows: vec![], ..self.clone() }.to_bytes().len();
        let ends = self.score_rows.iter().scan(before, |len, (_, name, _)| {
            *len += Self::row_len(name);
            Some(*len)
        });
        ends.take_while(|end| *end <= MAX_MESSAGE_LEN).count()
    }

    fn from_reader(reader: &mut Reader<'_>) -> Option<Self> {
        let settings = MazeSettings::from_bytes(reader.short_bytes()?)?;
        let [count] = reader.take()?;
        let mut mirrors = Vec::new();
        for _ in 0..count {
            mirrors.push(str::from_utf8(reader.short_bytes()?).ok()?.to_owned());
        }
        let mut score_rows = Vec::new();
        while !reader.rest().is_empty() {
            score_rows.push((reader.entity()?, parse_name(reader.short_bytes()?)?, reader.score()?));
        }
        Some(Self { settings, mirrors, score_rows })
    }
}

impl Pong {
    /// Encodes the pong as a server message of 14 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FAMILY_SERVER, KIND_PONG];
        put_stamp(&mut bytes, self.stamp);
        bytes.extend_from_slice(&[self.is_draining.into(), self.is_full.into()]);
        bytes.extend_from_slice(&self.player_count.to_le_bytes());
        bytes
    }

    fn from_reader(reader: &mut Reader<'_>) -> Option<Self> {
        let (stamp, [is_draining, is_full], player_count) =
            (read_stamp(reader)?, reader.take()?, u16::from_le_bytes(reader.take()?));
        reader.rest().is_empty().then_some(Self {
            stamp,
            is_draining: is_draining != 0,
            is_full: is_full != 0,
            player_count,
        })
    }
}

impl ServerMessage {
    /// Decodes a server message; `None` if it is invalid. Without rules, while the world is not known, views cannot be
    /// decoded.
    pub fn from_bytes(bytes: &[u8], rules: Option<&MazeRules>) -> Option<Self> {
        let mut reader = Reader(bytes);
        match (reader.take()?, rules) {
            ([FAMILY_SERVER, KIND_VIEW], Some(rules)) => WorldView::from_reader(&mut reader, rules).map(Self::View),
            ([FAMILY_SERVER, KIND_DIRECTORY], _) => Directory::from_reader(&mut reader).map(Self::Directory),
            ([FAMILY_SERVER, KIND_PONG], _) => Pong::from_reader(&mut reader).map(Self::Pong),
            _ => None,
        }
    }
}

/// Appends an avatar, preceded by its length.
fn put_avatar_with_len(bytes: &mut Vec<u8>, rules: &MazeRules, avatar: &Avatar) {
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

fn controls_from_bits(bits: u8) -> Option<Controls> {
    let bit = |bit: u8| bits >> bit & 1 == 1;
    let controls = Controls { forward: bit(0), backward: bit(1), left: bit(2), right: bit(3), fire: bit(4) };
    (bits < 32).then_some(controls)
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
        let change = |number| InputChange {
            number,
            previous_held_ticks: number * 30_000,
            controls: controls_from_bits(number as u8).unwrap(),
        };
        let (stamp, changes) = (Instant::from_nanos(-7), (1..=8).map(change).collect());
        let mut input = ClientInput { stamp, run: 0x0102_0304, name: "Ada".into(), changes };
        let bytes = input.to_bytes();
        assert_eq!(ClientInput::from_bytes(&bytes), Some(input.clone()));
        for cut in 0..bytes.len() {
            assert_eq!(ClientInput::from_bytes(&bytes[..cut]), None);
        }
        input.changes.push(change(9));
        let newest: Vec<u32> =
            ClientInput::from_bytes(&input.to_bytes()).unwrap().changes.iter().map(|change| change.number).collect();
        assert_eq!(newest, (2..=9).collect::<Vec<u32>>(), "not the newest changes");
    }

    #[test]
    fn ping_and_pong_round_trip() {
        let stamp = Instant::from_nanos(77);
        assert_eq!(decode_ping(&encode_ping(stamp)), Some(stamp));
        assert_eq!(decode_ping(&encode_ping(stamp)[..8]), None);
        for (is_draining, is_full) in [(true, false), (false, true)] {
            let pong = Pong { stamp, is_draining, is_full, player_count: 300 };
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
        let rules = MazeRules::new(Maze::new(7, 8));
        let avatars: Vec<(EntityId, Avatar)> =
            (0..200).map(|number| (entity(number), rules.spawn_avatar(&[], number.into()))).collect();
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
        for (is_draining, last_hit_by) in [(true, None), (false, Some(entity(8))), (true, Some(entity(9)))] {
            (view.is_draining, view.last_hit_by) = (is_draining, last_hit_by);
            let bytes = view.to_bytes(&rules);
            assert!(bytes.len() <= MAX_MESSAGE_LEN);
            let Some(ServerMessage::View(decoded)) = ServerMessage::from_bytes(&bytes, Some(&rules)) else {
                panic!("the message is not a view")
            };
            assert!(decoded.avatars.len() > 40 && view.avatars.starts_with(&decoded.avatars));
            assert_eq!(WorldView { avatars: vec![], ..decoded }, WorldView { avatars: vec![], ..view.clone() });
            assert_eq!(ServerMessage::from_bytes(&bytes, None), None);
        }

        let score_rows: Vec<_> = (0..90)
            .map(|number| (entity(number), format!("player {number}"), Score { hits: number, falls: 1 }))
            .collect();
        let directory =
            Directory { settings: MazeSettings::default(), mirrors: vec!["192.0.2.1:7000".into()], score_rows };
        let bytes = directory.to_bytes();
        assert!(bytes.len() <= MAX_MESSAGE_LEN);
        let Some(ServerMessage::Directory(decoded)) = ServerMessage::from_bytes(&bytes, None) else {
            panic!("the message is not a directory")
        };
        assert!(decoded.score_rows.len() > 30 && directory.score_rows.starts_with(&decoded.score_rows));
        assert_eq!((decoded.settings, decoded.mirrors), (directory.settings, directory.mirrors));
    }
}
