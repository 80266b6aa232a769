//! The target `worlds`: a maze without a server and a server with its player, and somebody among them who says anything at all.

use coplay::mirror::{self, SourceId};
use coplay::peer_world::{PeerWorld, PeerWorldConfig, UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::{Avatar, Controls, Maze, MazeSettings, Rules, ScoreRecord};
use coplay_world::{Client, ClientInput, Server, ServerHello, ServerInfo, ServerMessage, player_entity};

use crate::script_reader::ScriptReader;

/// A tick of all worlds.
const TICK_PERIOD: TimeDelta = TimeDelta::from_millis(10);
/// No script lasts longer, in ticks.
const MAX_TICKS: u32 = 2_000;
/// The most memory of a site, and of a server's mirror.
const MAX_MEMORY: usize = 8 << 20;
const TERMS: MazeSettings = MazeSettings { seed: 7, cells_per_side: 4, bucket_ticks: 4, playout_delay_ticks: 15 };

/// Plays a script: deeds of a byte each, with what they need behind them. Bytes are thrown as they are, or a datagram that
/// somebody honest sent last is sent again, changed in one place.
pub(crate) fn check(data: &[u8]) {
    check_round_trips(data);
    let (mut bytes, mut stage) = (ScriptReader::new(data), WorldHarness::new());
    while !bytes.is_empty() && stage.ticks < MAX_TICKS {
        match bytes.u8() % 4 {
            0 => (0..=bytes.u8() % 64).for_each(|_| stage.tick()),
            1 => {
                let whom = bytes.u8();
                stage.inject(whom, &bytes.string());
            }
            _ => {
                let (whom, at, change) = (bytes.u8(), bytes.u8(), bytes.u8());
                stage.inject_mutated(whom, at.into(), change);
            }
        }
    }
    (0..50).for_each(|_| stage.tick());
    stage.check();
}

/// What can be read can be written, and is the same then.
fn check_round_trips(data: &[u8]) {
    let rules = Rules::new(Maze::new(TERMS.seed, TERMS.cells_per_side));
    if let Some(wish) = ClientInput::from_bytes(data) {
        assert_eq!(ClientInput::from_bytes(&wish.to_bytes()), Some(wish));
    }
    if let Some(tally) = ScoreRecord::from_bytes(data) {
        assert_eq!(tally.to_bytes(), data, "one tally, one encoding");
    }
    if let Some(greeting) = ServerInfo::from_bytes(data) {
        assert_eq!(ServerInfo::from_bytes(&greeting.to_bytes()), Some(greeting));
    }
    if let Some(hello) = ServerHello::from_bytes(data) {
        assert_eq!(ServerHello::from_bytes(&hello.to_bytes()), Some(hello));
    }
    if let Some(ServerMessage::View(view)) = ServerMessage::from_bytes(data, Some(&rules)) {
        assert!(ServerMessage::from_bytes(&view.to_bytes(&rules), Some(&rules)).is_some());
    }
}

struct WorldHarness {
    ticks: u32,
    site: PeerWorld<Rules>,
    avatar: Avatar,
    server: Server,
    player: Client,
    /// What each of them said last: the site, the player, the server to its player, and to its mirrors.
    last_datagrams: [Vec<u8>; 4],
    /// Whether a server lied, to its player or to its mirrors.
    has_forged_server_message: bool,
}

const SITE: WorldSiteId = WorldSiteId(1);
const HOSTILE_SITE: WorldSiteId = WorldSiteId(2);
/// Keys of an honest player, and of another one.
const HONEST_PLAYER: [u8; 32] = [1; 32];
const HOSTILE_PLAYER: [u8; 32] = [2; 32];
/// By then a player is in, if only other players say what they like.
const JOINED_BY_TICK: u32 = 100;

impl WorldHarness {
    fn new() -> Self {
        let now = Instant::ZERO;
        let rules = Rules::new(Maze::new(TERMS.seed, TERMS.cells_per_side));
        let config = PeerWorldConfig { update_policy: UpdatePolicy::fixed(25), ..PeerWorldConfig::new(SITE, true) };
        let mut site = PeerWorld::new(now, config, rules.clone()).expect("a site can be like that");
        site.add_peer(now, HOSTILE_SITE);
        let config = mirror::MirrorConfig { is_founder: true, ..mirror::MirrorConfig::new(SourceId(1)) };
        let mut server = Server::new(now, config, TERMS, 1).expect("a server can be like that");
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
        if let Some(wish) = self.player.poll_input(now) {
            self.server.handle_player(now, player_entity(&HONEST_PLAYER), &wish);
            self.last_datagrams[1] = wish;
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

    /// Somebody who was let in says something to one of them.
    fn inject(&mut self, whom: u8, bytes: &[u8]) {
        let now = self.now();
        self.has_forged_server_message |= whom % 4 >= 2;
        match whom % 4 {
            0 => self.site.handle_datagram(now, HOSTILE_SITE, bytes),
            1 => _ = self.server.handle_player(now, player_entity(&HOSTILE_PLAYER), bytes),
            2 => _ = self.player.handle_datagram(now, bytes),
            _ => self.server.handle_mirror(now, SourceId(2), bytes),
        }
    }

    fn inject_mutated(&mut self, whom: u8, at: usize, change: u8) {
        let mut bytes = self.last_datagrams[usize::from(whom % 4)].clone();
        let len = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at % len) {
            *byte ^= change;
        }
        self.inject(whom, &bytes);
    }

    fn check(&self) {
        let (site, mirror) = (self.site.memory(), self.server.mirror().memory());
        assert!(site < MAX_MEMORY && mirror < MAX_MEMORY, "{site} bytes at the site, {mirror} at the server");
        assert!(
            self.has_forged_server_message || self.ticks < JOINED_BY_TICK || self.player.avatar().is_some(),
            "an honest player is not in"
        );
    }
}
