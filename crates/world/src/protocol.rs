//! Messages between a client and its server. Each has a part of the [motion engine](coplay::motion), which retransmits
//! what is lost; the rest of a datagram replaces that of a lost one with newer data.
//!
//! ```text
//! client to server                               server to client
//!   family   1  0x5a                               family  1  0x56
//!   version  1                                     kind    1  2 directory, 3 pong, 4 view
//!   run      4                                     view: see WorldView
//!   name        one byte of length, the name       directory: see Directory
//!   motion      a datagram of the motion engine    pong: stamp 8, draining 1, full 1, players 2, version 1
//! or a ping: 0x57, stamp 8; or a goodbye: 0x58, run 4
//! ```
//!
//! Numbers are little-endian. A server ignores input of another version, and its pong tells the client why. The pong of
//! version 1 ends before the version.

use coplay::peer_world::{EntityId, MAX_STATE_SIZE};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{MazeSettings, RecentShots, Score};

use crate::entity_update::{Reader, parse_name, put_entity, put_score, put_short_bytes};

/// Length of a world tick.
pub const TICK_DURATION: TimeDelta = TimeDelta::from_millis(10);
/// Maximum number of scoreboard rows in a directory message.
pub(crate) const ROWS_PER_DIRECTORY: usize = 24;
/// Version of the messages between clients and servers. Version 1 had the same first bytes for pings, goodbyes,
/// directories and pongs.
pub const PROTOCOL_VERSION: u8 = 2;
/// First byte of an input message.
const FAMILY_CLIENT_INPUT: u8 = 0x5a;
/// First byte of a server's message.
const FAMILY_SERVER: u8 = 0x56;
/// First byte of a ping.
const FAMILY_PING: u8 = 0x57;
/// First byte of a goodbye.
const FAMILY_LEAVE: u8 = 0x58;
const KIND_DIRECTORY: u8 = 2;
const KIND_PONG: u8 = 3;
const KIND_VIEW: u8 = 4;
/// Maximum length of a datagram, in bytes: usual network paths carry it without fragmentation.
pub const MAX_MESSAGE_LEN: usize = 1_100;
/// Maximum length of the shots in a view, in bytes, so that there is room for motion.
const MAX_SHOTS_LEN: usize = 500;

/// Input message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInput {
    /// Random number of the client's run.
    pub run: u32,
    /// Display name that the player chose.
    pub name: String,
    /// Datagram of the client's motion engine; empty if it has nothing to send.
    pub motion: Vec<u8>,
}

/// State of the world around one player, which its server sends every 25 ms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldView {
    /// Time at which the server sent the view, on its clock.
    pub sent_at: Instant,
    /// World tick of the view.
    pub tick: u32,
    /// Run of the client for which the view is.
    pub run: u32,
    /// Tick in which the player joined this server. The server does not know commands from before that tick.
    pub joined_tick: u32,
    /// Entity of the player that gets the view.
    pub own_entity: EntityId,
    /// Hits and falls of the player that survive the crash of any one server.
    pub score: Score,
    /// Whether the server is about to stop, so that the player should move to another server.
    pub is_draining: bool,
    /// Avatar that last hit the player on this server.
    pub last_hit_by: Option<EntityId>,
    /// Recent shots of the avatar of the player and of others nearby, nearest first; of those that have any.
    pub shots: Vec<(EntityId, RecentShots)>,
    /// Datagram of the server's motion engine; empty if it has nothing to send.
    pub motion: Vec<u8>,
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
    /// Version of the messages that the server speaks; if it is not [`PROTOCOL_VERSION`], the client cannot join.
    pub protocol_version: u8,
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
    /// Encodes the input.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FAMILY_CLIENT_INPUT, PROTOCOL_VERSION];
        bytes.extend_from_slice(&self.run.to_le_bytes());
        put_short_bytes(&mut bytes, self.name.as_bytes());
        bytes.extend_from_slice(&self.motion);
        bytes
    }

    /// Decodes an input; `None` if it has another version, is malformed or has an invalid name. The motion engine
    /// checks its own part.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [FAMILY_CLIENT_INPUT, PROTOCOL_VERSION] = reader.take()? else { return None };
        let (run, name) = (reader.u32()?, parse_name(reader.short_bytes()?)?);
        Some(Self { run, name, motion: reader.rest().into() })
    }
}

impl WorldView {
    /// Encodes the view, with as many of the first shots as fit into 500 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_MESSAGE_LEN);
        bytes.extend_from_slice(&[FAMILY_SERVER, KIND_VIEW]);
        put_stamp(&mut bytes, self.sent_at);
        for number in [self.tick, self.run, self.joined_tick] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        put_entity(&mut bytes, self.own_entity);
        put_score(&mut bytes, self.score);
        bytes.push(u8::from(self.is_draining) | u8::from(self.last_hit_by.is_some()) << 1);
        self.last_hit_by.iter().for_each(|by| put_entity(&mut bytes, *by));
        put_all_shots(&mut bytes, &self.shots);
        bytes.extend_from_slice(&self.motion);
        bytes
    }

    fn from_reader(reader: &mut Reader<'_>) -> Option<Self> {
        let sent_at = read_stamp(reader)?;
        let (tick, run, joined_tick) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (own_entity, score, [flags]) = (reader.entity()?, reader.score()?, reader.take()?);
        let (is_draining, was_hit) = (flags < 4).then_some((flags & 1 == 1, flags & 2 == 2))?;
        let last_hit_by = if was_hit { Some(reader.entity()?) } else { None };
        let [count] = reader.take()?;
        let shots = (0..count).map(|_| Some((reader.entity()?, RecentShots::decode(reader.short_bytes()?)?)));
        let shots = shots.collect::<Option<_>>()?;
        let motion = reader.rest().into();
        Some(Self { sent_at, tick, run, joined_tick, own_entity, score, is_draining, last_hit_by, shots, motion })
    }
}

/// Appends the number of rows that fit into [`MAX_SHOTS_LEN`], and these rows.
fn put_all_shots(bytes: &mut Vec<u8>, shots: &[(EntityId, RecentShots)]) {
    let start = bytes.len();
    bytes.push(0);
    for (entity, shots) in shots {
        let mut encoded = [0; MAX_STATE_SIZE];
        let Some(len) = shots.encode(&mut encoded) else { continue };
        if bytes.len() - start + 6 + len > MAX_SHOTS_LEN {
            break;
        }
        put_entity(bytes, *entity);
        put_short_bytes(bytes, &encoded[..len]);
        bytes[start] += 1;
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
    /// Encodes the pong as a server message of 15 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FAMILY_SERVER, KIND_PONG];
        put_stamp(&mut bytes, self.stamp);
        bytes.extend_from_slice(&[self.is_draining.into(), self.is_full.into()]);
        bytes.extend_from_slice(&self.player_count.to_le_bytes());
        bytes.push(self.protocol_version);
        bytes
    }

    fn from_reader(reader: &mut Reader<'_>) -> Option<Self> {
        let (stamp, [is_draining, is_full], player_count) =
            (read_stamp(reader)?, reader.take()?, u16::from_le_bytes(reader.take()?));
        let protocol_version = reader.take().map_or(1, |[version]| version);
        reader.rest().is_empty().then_some(Self {
            stamp,
            is_draining: is_draining != 0,
            is_full: is_full != 0,
            player_count,
            protocol_version,
        })
    }
}

impl ServerMessage {
    /// Decodes a server message; `None` if it is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        match reader.take()? {
            [FAMILY_SERVER, KIND_VIEW] => WorldView::from_reader(&mut reader).map(Self::View),
            [FAMILY_SERVER, KIND_DIRECTORY] => Directory::from_reader(&mut reader).map(Self::Directory),
            [FAMILY_SERVER, KIND_PONG] => Pong::from_reader(&mut reader).map(Self::Pong),
            _ => None,
        }
    }
}

fn put_stamp(bytes: &mut Vec<u8>, stamp: Instant) {
    bytes.extend_from_slice(&stamp.as_nanos().to_le_bytes());
}

fn read_stamp(reader: &mut Reader<'_>) -> Option<Instant> {
    reader.take().map(|bytes| Instant::from_nanos(i64::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coplay::peer_world::WorldSiteId;
    use coplay_maze::{Maze, MazeRules};

    fn entity(number: u32) -> EntityId {
        EntityId { site: WorldSiteId(number), index: 0 }
    }

    #[test]
    fn client_input_round_trips_and_invalid_bytes_are_rejected() {
        let input = ClientInput { run: 0x0102_0304, name: "Ada".into(), motion: vec![7; 20] };
        let bytes = input.to_bytes();
        assert_eq!(ClientInput::from_bytes(&bytes), Some(input.clone()));
        for cut in 0..bytes.len() {
            assert_ne!(ClientInput::from_bytes(&bytes[..cut]), Some(input.clone()));
        }
        assert_eq!(ClientInput::from_bytes(&[FAMILY_CLIENT_INPUT, PROTOCOL_VERSION + 1, 1, 2, 3, 4, 0]), None);
    }

    #[test]
    fn ping_and_pong_round_trip() {
        let stamp = Instant::from_nanos(77);
        assert_eq!(decode_ping(&encode_ping(stamp)), Some(stamp));
        assert_eq!(decode_ping(&encode_ping(stamp)[..8]), None);
        for (is_draining, is_full) in [(true, false), (false, true)] {
            let pong = Pong { stamp, is_draining, is_full, player_count: 300, protocol_version: PROTOCOL_VERSION };
            assert_eq!(ServerMessage::from_bytes(&pong.to_bytes()), Some(ServerMessage::Pong(pong)));
            // A server of the first version does not name its version.
            let first = ServerMessage::from_bytes(&pong.to_bytes()[..14]);
            assert_eq!(first, Some(ServerMessage::Pong(Pong { protocol_version: 1, ..pong })));
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
        let (rules, mut avatar) =
            (MazeRules::new(Maze::new(7, 8)), MazeRules::new(Maze::new(7, 8)).spawn_avatar(&[], 1));
        let mut view = WorldView {
            sent_at: Instant::from_nanos(3),
            tick: 9,
            run: 5,
            joined_tick: 6,
            own_entity: entity(0),
            score: Score { hits: 3, falls: 4 },
            is_draining: true,
            last_hit_by: None,
            shots: Vec::new(),
            motion: vec![5; 100],
        };
        for (is_draining, last_hit_by) in [(true, None), (false, Some(entity(8))), (true, Some(entity(9)))] {
            (view.is_draining, view.last_hit_by) = (is_draining, last_hit_by);
            view.shots = (0..100).map(|number| (entity(number), avatar.shots.clone())).collect();
            let bytes = view.to_bytes();
            assert!(bytes.len() <= MAX_MESSAGE_LEN - 300);
            let Some(ServerMessage::View(decoded)) = ServerMessage::from_bytes(&bytes) else {
                panic!("the message is not a view")
            };
            assert!(decoded.shots.len() > 10 && view.shots.starts_with(&decoded.shots));
            assert_eq!(WorldView { shots: vec![], ..decoded }, WorldView { shots: vec![], ..view.clone() });
            (0..bytes.len()).for_each(|cut| _ = ServerMessage::from_bytes(&bytes[..cut]));
            rules.fire(100 + 70 * view.tick, &mut avatar);
            view.tick += 1;
        }

        let score_rows: Vec<_> = (0..90)
            .map(|number| (entity(number), format!("player {number}"), Score { hits: number, falls: 1 }))
            .collect();
        let directory =
            Directory { settings: MazeSettings::default(), mirrors: vec!["192.0.2.1:7000".into()], score_rows };
        let bytes = directory.to_bytes();
        assert!(bytes.len() <= MAX_MESSAGE_LEN);
        let Some(ServerMessage::Directory(decoded)) = ServerMessage::from_bytes(&bytes) else {
            panic!("the message is not a directory")
        };
        assert!(decoded.score_rows.len() > 30 && directory.score_rows.starts_with(&decoded.score_rows));
        assert_eq!((decoded.settings, decoded.mirrors), (directory.settings, directory.mirrors));
    }
}
