//! The target `worlds`: a peer world, and a world server with its player, each with a hostile participant.

use coplay::codec::MAX_DATAGRAM;
use coplay::mirror::{self, SourceId};
use coplay::peer_world::{PeerWorld, PeerWorldConfig, UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay_maze::{Avatar, Controls, Maze, MazeRules, MazeSettings, ScoreRecord};
use coplay_world::{Client, ClientInput, Server, ServerHello, ServerInfo, ServerMessage, player_entity};

use crate::script_reader::ScriptReader;

/// Tick period of all worlds.
const TICK_PERIOD: TimeDelta = TimeDelta::from_millis(10);
/// Number of ticks after which the rest of a script is ignored.
const MAX_TICKS: u32 = 2_000;
/// Maximum memory of the peer world's site, and likewise of the server's mirror, in bytes.
const MAX_MEMORY: usize = 8 << 20;
const SETTINGS: MazeSettings = MazeSettings { seed: 7, cells_per_side: 4, bucket_ticks: 4, playout_delay_ticks: 15 };

/// Runs a script: actions of one byte each, followed by their operands. An action lets time pass, injects arbitrary
/// bytes, or injects the last datagram of an honest participant with one byte changed.
pub(crate) fn check(data: &[u8]) {
    check_round_trips(data);
    let (mut bytes, mut harness) = (ScriptReader::new(data), WorldHarness::new());
    while !bytes.is_empty() && harness.ticks < MAX_TICKS {
        match bytes.u8() % 4 {
            0 => (0..=bytes.u8() % 64).for_each(|_| harness.tick()),
            1 => {
                let target = bytes.u8();
                harness.inject(target, &bytes.string());
            }
            _ => {
                let (target, at, change) = (bytes.u8(), bytes.u8(), bytes.u8());
                harness.inject_mutated(target, at.into(), change);
            }
        }
    }
    (0..50).for_each(|_| harness.tick());
    harness.check();
}

/// Checks that a decoded message survives another round of encoding and decoding.
fn check_round_trips(data: &[u8]) {
    if let Some(input) = ClientInput::from_bytes(data) {
        assert_eq!(ClientInput::from_bytes(&input.to_bytes()), Some(input));
    }
    if let Some(record) = ScoreRecord::from_bytes(data) {
        assert_eq!(record.to_bytes(), data, "a score record has one encoding");
    }
    if let Some(info) = ServerInfo::from_bytes(data) {
        assert_eq!(ServerInfo::from_bytes(&info.to_bytes()), Some(info));
    }
    if let Some(hello) = ServerHello::from_bytes(data) {
        assert_eq!(ServerHello::from_bytes(&hello.to_bytes()), Some(hello));
    }
    if let Some(ServerMessage::View(view)) = ServerMessage::from_bytes(data) {
        assert!(ServerMessage::from_bytes(&view.to_bytes()).is_some());
    }
}

struct WorldHarness {
    ticks: u32,
    site: PeerWorld<MazeRules>,
    avatar: Avatar,
    server: Server,
    player: Client,
    /// Last datagram of the site, of the player, of the server to its player, and of the server to its mirrors.
    last_datagrams: [Vec<u8>; 4],
    /// Whether a server message was forged, to the player or to a mirror.
    has_forged_server_message: bool,
}

const SITE: WorldSiteId = WorldSiteId(1);
const HOSTILE_SITE: WorldSiteId = WorldSiteId(2);
/// Key of the honest player.
const HONEST_PLAYER: [u8; 32] = [1; 32];
/// Key of the hostile player.
const HOSTILE_PLAYER: [u8; 32] = [2; 32];
/// Tick by which the honest player has an avatar, unless a server message was forged.
const JOINED_BY_TICK: u32 = 100;

impl WorldHarness {
    fn new() -> Self {
        let now = Instant::ZERO;
        let rules = MazeRules::new(Maze::new(SETTINGS.seed, SETTINGS.cells_per_side));
        let config = PeerWorldConfig { update_policy: UpdatePolicy::fixed(25), ..PeerWorldConfig::new(SITE, true) };
        let mut site = PeerWorld::new(now, config, rules.clone()).expect("a valid configuration");
        site.add_peer(now, HOSTILE_SITE);
        let config = mirror::MirrorConfig { is_founder: true, ..mirror::MirrorConfig::new(SourceId(1)) };
        let mut server = Server::new(now, config, SETTINGS, 1).expect("a valid configuration");
        server.add_peer(now, SourceId(2));
        let avatar = rules.spawn_avatar(&[], 7);
        Self {
            ticks: 0,
            site,
            avatar,
            server,
            player: Client::new(now, "Ada", 1),
            last_datagrams: Default::default(),
            has_forged_server_message: false,
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + TICK_PERIOD * i64::from(self.ticks)
    }

    fn tick(&mut self) {
        self.ticks += 1;
        let (now, mut buf) = (self.now(), [0; MAX_DATAGRAM]);
        self.site.advance(now);
        if let Some(tick) = self.site.tick(now) {
            self.site.publish_entity(tick, 0, self.avatar.clone());
        }
        if let Some(tick) = self.site.poll_view(now) {
            self.site.visible_at(tick);
        }
        while let Some(packet) = self.site.poll_transmit(now, &mut buf) {
            self.last_datagrams[0] = buf[..packet.len].into();
        }
        self.server.advance(now);
        self.player.set_controls(now, Controls { forward: self.ticks % 50 < 25, ..Controls::default() });
        self.player.advance(now);
        if let Some(input) = self.player.poll_input(now) {
            self.server.handle_player(now, player_entity(&HONEST_PLAYER), &input);
            self.last_datagrams[1] = input;
        }
        for (entity, bytes) in self.server.poll_players(now, |_| &[]) {
            if entity == player_entity(&HONEST_PLAYER) {
                self.player.handle_datagram(now, &bytes);
                self.last_datagrams[2] = bytes;
            }
        }
        while let Some(transmit) = self.server.poll_mirror(now, &mut buf) {
            self.last_datagrams[3] = buf[..transmit.len].into();
        }
        while self.server.poll_mirror_event().is_some() {}
    }

    /// Delivers bytes of a hostile participant to the participant that `target` modulo 4 selects.
    fn inject(&mut self, target: u8, bytes: &[u8]) {
        let now = self.now();
        self.has_forged_server_message |= target % 4 >= 2;
        match target % 4 {
            0 => self.site.handle_datagram(now, HOSTILE_SITE, bytes),
            1 => _ = self.server.handle_player(now, player_entity(&HOSTILE_PLAYER), bytes),
            2 => _ = self.player.handle_datagram(now, bytes),
            _ => self.server.handle_mirror(now, SourceId(2), bytes),
        }
    }

    fn inject_mutated(&mut self, target: u8, at: usize, change: u8) {
        let mut bytes = self.last_datagrams[usize::from(target % 4)].clone();
        let len = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at % len) {
            *byte ^= change;
        }
        self.inject(target, &bytes);
    }

    fn check(&self) {
        let (site, mirror) = (self.site.memory(), self.server.mirror().memory());
        assert!(site < MAX_MEMORY && mirror < MAX_MEMORY, "{site} bytes at the site, {mirror} at the server");
        assert!(
            self.has_forged_server_message || self.ticks < JOINED_BY_TICK || self.player.avatar().is_some(),
            "an honest player has no avatar"
        );
    }
}
