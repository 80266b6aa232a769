//! The target `worlds`: a maze without a server and a server with its player, and somebody among them who says anything at all.

use coplay::mirror::{self, SourceId};
use coplay::peer_world::{PeerWorld, PeerWorldConfig, UpdatePolicy, WorldSiteId};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_maze::{Avatar, Controls, Maze, Rules, Tally, Terms};
use coplay_world::{Client, Greeting, Hello, Server, Wish, Word, entity_of};

use crate::bytes::Bytes;

/// A tick of all worlds.
const TICK: TimeDelta = TimeDelta::from_millis(10);
/// No script lasts longer, in ticks.
const MOST_TICKS: u32 = 2_000;
/// The most memory of a site, and of a server's mirror.
const MEMORY: usize = 8 << 20;
const TERMS: Terms = Terms { seed: 7, side: 4, bucket: 4, delay: 15 };

/// Plays a script: deeds of a byte each, with what they need behind them. Bytes are thrown as they are, or a datagram that
/// somebody honest sent last is sent again, changed in one place.
pub(crate) fn check(data: &[u8]) {
    check_alone(data);
    let (mut bytes, mut stage) = (Bytes::new(data), Stage::new());
    while !bytes.is_empty() && stage.ticks < MOST_TICKS {
        match bytes.u8() % 4 {
            0 => (0..=bytes.u8() % 64).for_each(|_| stage.tick()),
            1 => {
                let whom = bytes.u8();
                stage.throw(whom, &bytes.string());
            }
            _ => {
                let (whom, at, change) = (bytes.u8(), bytes.u8(), bytes.u8());
                stage.throw_again(whom, at.into(), change);
            }
        }
    }
    (0..50).for_each(|_| stage.tick());
    stage.check();
}

/// What can be read can be written, and is the same then.
fn check_alone(data: &[u8]) {
    let rules = Rules::new(Maze::new(TERMS.seed, TERMS.side));
    if let Some(wish) = Wish::from_bytes(data) {
        assert_eq!(Wish::from_bytes(&wish.to_bytes()), Some(wish));
    }
    if let Some(tally) = Tally::from_bytes(data) {
        assert_eq!(tally.to_bytes(), data, "one tally, one encoding");
    }
    if let Some(greeting) = Greeting::from_bytes(data) {
        assert_eq!(Greeting::from_bytes(&greeting.to_bytes()), Some(greeting));
    }
    if let Some(hello) = Hello::from_bytes(data) {
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
    }
    if let Some(Word::View(view)) = Word::from_bytes(data, Some(&rules)) {
        assert!(Word::from_bytes(&view.to_bytes(&rules), Some(&rules)).is_some());
    }
}

struct Stage {
    ticks: u32,
    site: PeerWorld<Rules>,
    avatar: Avatar,
    server: Server,
    player: Client,
    /// What each of them said last: the site, the player, the server to its player, and to its mirrors.
    said: [Vec<u8>; 4],
    /// Whether a server lied, to its player or to its mirrors.
    is_deceived: bool,
}

const SITE: WorldSiteId = WorldSiteId(1);
const ENEMY: WorldSiteId = WorldSiteId(2);
/// Keys of an honest player, and of another one.
const ADA: [u8; 32] = [1; 32];
const EVE: [u8; 32] = [2; 32];
/// By then a player is in, if only other players say what they like.
const IN: u32 = 100;

impl Stage {
    fn new() -> Self {
        let now = Instant::ZERO;
        let rules = Rules::new(Maze::new(TERMS.seed, TERMS.side));
        let config = PeerWorldConfig { update_policy: UpdatePolicy::fixed(25), ..PeerWorldConfig::new(SITE, true) };
        let mut site = PeerWorld::new(now, config, rules.clone()).expect("a site can be like that");
        site.add_peer(now, ENEMY);
        let config = mirror::MirrorConfig { is_founder: true, ..mirror::MirrorConfig::new(SourceId(1)) };
        let mut server = Server::new(now, config, TERMS, 1).expect("a server can be like that");
        server.add_peer(now, SourceId(2));
        let avatar = rules.newcomer(&[], 7);
        Self {
            ticks: 0,
            site,
            avatar,
            server,
            player: Client::new(now, "Ada", 1),
            said: Default::default(),
            is_deceived: false,
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + TICK * i64::from(self.ticks)
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
            self.said[0] = buf[..packet.len].into();
        }
        self.server.advance(now);
        self.player.press(now, Controls { forward: self.ticks % 50 < 25, ..Controls::default() });
        self.player.advance(now);
        if let Some(wish) = self.player.poll_wish(now) {
            self.server.handle_player(now, entity_of(&ADA), &wish);
            self.said[1] = wish;
        }
        for (entity, bytes) in self.server.poll_players(now, |_| &[]) {
            if entity == entity_of(&ADA) {
                self.player.handle_datagram(now, &bytes);
                self.said[2] = bytes;
            }
        }
        while let Some(transmit) = self.server.poll_mirror(now, &mut buf) {
            self.said[3] = buf[..transmit.len].into();
        }
        while self.server.poll_notice().is_some() {}
    }

    /// Somebody who was let in says something to one of them.
    fn throw(&mut self, whom: u8, bytes: &[u8]) {
        let now = self.now();
        self.is_deceived |= whom % 4 >= 2;
        match whom % 4 {
            0 => self.site.handle_datagram(now, ENEMY, bytes),
            1 => _ = self.server.handle_player(now, entity_of(&EVE), bytes),
            2 => _ = self.player.handle_datagram(now, bytes),
            _ => self.server.handle_mirror(now, SourceId(2), bytes),
        }
    }

    fn throw_again(&mut self, whom: u8, at: usize, change: u8) {
        let mut bytes = self.said[usize::from(whom % 4)].clone();
        let len = bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at % len) {
            *byte ^= change;
        }
        self.throw(whom, &bytes);
    }

    fn check(&self) {
        let (site, mirror) = (self.site.memory(), self.server.mirror().memory());
        assert!(site < MEMORY && mirror < MEMORY, "{site} bytes at the site, {mirror} at the server");
        assert!(self.is_deceived || self.ticks < IN || self.player.avatar().is_some(), "an honest player is not in");
    }
}
