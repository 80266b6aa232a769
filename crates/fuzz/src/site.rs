//! One site of the fuzzed session: the engine, and a host program that forgets nothing.

use coplay::frame::FrameRate;
use coplay::id::{Addr, MAX_SITES, SiteId, SiteSet};
use coplay::input::{MAX_PLAYERS, Ownership, Word};
use coplay::session::{Config, GameId, MachineId, Sending, Session, Settings};
use coplay::time::{Instant, TimeDelta};

use crate::machine::Machine;
use crate::script::{Owners, Scene};

/// The number of the fuzzed session, which no stranger knows.
pub(crate) const SESSION: u64 = 0x5e55_1017_c0de_d00d;

/// One site.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) session: Session,
    pub(crate) addr: Addr,
    /// How far its clock is ahead of the world's.
    pub(crate) ahead: TimeDelta,
    /// When it wants to be called, by the world's clock.
    pub(crate) wake: Option<Instant>,
    /// What its player presses.
    pub(crate) pressed: u8,
    /// What was handed to the session for each frame after the lag.
    pub(crate) given: Vec<u8>,
    pub(crate) machine: Machine,
    /// Whether it was told to leave.
    pub(crate) left: bool,
    /// Whether it is dead.
    pub(crate) crashed: bool,
}

impl Site {
    pub(crate) fn new(scene: &Scene, number: usize) -> Self {
        let ahead = TimeDelta::from_secs(86_400 * number as i64);
        let id = site_id(number);
        let peers =
            SiteId::first(scene.sites()).filter(|other| *other != id).map(|other| (other, address(other.index())));
        let mut config = Config::new(SESSION, id, peers.collect(), settings(scene));
        config.recovery = scene.recovery;
        config.pacing = scene.pacing;
        config.sending = if scene.timer { Sending::Timer(TimeDelta::from_millis(20)) } else { Sending::AtOnce };
        config.incarnation = scene.incarnation;
        config.drop_after = scene.drop_after_ms.map(|limit| TimeDelta::from_millis(i64::from(limit)));
        config.give_up_after = scene.gives_up.then_some(TimeDelta::from_millis(400));
        let start = Instant::ZERO + ahead;
        Self {
            session: Session::new(start, config).expect("a sound configuration"),
            addr: address(number),
            ahead,
            wake: Some(Instant::ZERO),
            pressed: number as u8,
            given: Vec::new(),
            machine: Machine::new(settings(scene).slots()),
            left: false,
            crashed: false,
        }
    }

    /// The time on its clock.
    pub(crate) fn local(&self, now: Instant) -> Instant {
        now + self.ahead
    }

    /// Takes the next input; with the top bit pressed, it is another one in every frame.
    pub(crate) fn sample(&mut self) -> [Word; MAX_PLAYERS] {
        let turn = if self.pressed & 0x80 != 0 { self.given.len() as u8 } else { 0 };
        let input = self.pressed.wrapping_add(turn.wrapping_mul(0x35));
        self.given.push(input);
        words(input)
    }
}

/// What an input stands for; 0 is neutral.
pub(crate) fn words(input: u8) -> [Word; MAX_PLAYERS] {
    std::array::from_fn(|player| Word::from_le_bytes([input; 16]).wrapping_mul(player as Word + 1))
}

/// Where a site is; nobody is at the address that follows the last one's.
pub(crate) fn address(number: usize) -> Addr {
    Addr(10 + number as u64)
}

pub(crate) fn site_id(number: usize) -> SiteId {
    SiteId::first(MAX_SITES).nth(number).expect("a site that can be")
}

/// What is agreed on: a game without a machine, hashed often.
pub(crate) fn settings(scene: &Scene) -> Settings {
    Settings {
        game: GameId { name: "inputs".into(), hash: [7; 32] },
        machine: MachineId { name: "none".into(), version: "1".into(), options: vec![("fast".into(), "yes".into())] },
        rate: FrameRate::per_second(if scene.fast { 1_000 } else { 60 }).expect("a frame rate"),
        lag: u32::from(scene.lag),
        window: u32::from(scene.window),
        compare_every: 4,
        sites: scene.sites() as u8,
        starters: SiteSet::first(scene.sites()),
        ownership: ownership(scene),
    }
}

fn ownership(scene: &Scene) -> Ownership {
    let sites = scene.sites();
    let each = |mask: Word| Ownership::one_each(sites, mask);
    let given = |players: usize, gifts: &[(usize, usize, Word)]| {
        let mut ownership = Ownership::new(players);
        for (site, player, mask) in gifts {
            ownership.give(site_id(*site), *player, *mask).expect("bits that nobody has");
        }
        ownership
    };
    match scene.owners {
        Owners::Pads => each(0xffff),
        Owners::Sticks => each((1 << 80) - 1),
        Owners::Shared => {
            let nibbles = Word::from_le_bytes([0x0f; 16]);
            let parts = [(0, 0, nibbles & 0xff_ffff), (1, 0, nibbles << 4 & 0xff_ffff_ffff), (2, 0, 1 << 127)];
            given(1, &parts[..sites.min(parts.len())])
        }
        Owners::LastAll => {
            let all: Vec<_> = (0..MAX_PLAYERS).map(|player| (sites - 1, player, Word::MAX)).collect();
            given(MAX_PLAYERS, &all)
        }
    }
}
