//! One site of the fuzzed session: the engine, and a host program that forgets nothing.

use std::collections::BTreeMap;

use coplay::frame::FrameRate;
use coplay::id::{Addr, MAX_SITES, SiteId, SiteSet};
use coplay::input::{InputWord, MAX_PLAYERS, Ownership};
use coplay::session::{
    AbsentInput, Config, GameId, LateJoin, MachineId, SendPolicy, Session, Settings, StarvationPolicy,
};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
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
    /// What was handed to the session for each frame.
    pub(crate) given: BTreeMap<u32, u8>,
    pub(crate) machine: Machine,
    /// The first frame that it was asked to give an input for since it was started.
    pub(crate) asked_from: Option<u32>,
    /// The first frame that it stepped as one who plays.
    pub(crate) seated: Option<u32>,
    /// Whether it was told to leave, now or before it was started anew.
    pub(crate) left: bool,
    pub(crate) ever_left: bool,
    /// Whether it is dead.
    pub(crate) crashed: bool,
    /// Whether it is yet to come.
    pub(crate) absent: bool,
    /// How often its program was started.
    pub(crate) starts: u32,
    number: usize,
}

/// The largest state that a latecomer takes.
pub(crate) const MOST_STATE: usize = 64 * 1_024;

impl Site {
    pub(crate) fn new(scene: &Scene, number: usize) -> Self {
        let ahead = TimeDelta::from_secs(86_400 * number as i64);
        let absent = scene.late && number + 1 == scene.sites();
        Self {
            session: Session::new(Instant::ZERO + ahead, config(scene, number)).expect("a sound configuration"),
            addr: address(number),
            ahead,
            wake: (!absent).then_some(Instant::ZERO),
            pressed: number as u8,
            given: BTreeMap::new(),
            asked_from: None,
            machine: Machine::new(settings(scene).rollback_slots()),
            seated: (!absent).then_some(0),
            left: false,
            ever_left: false,
            crashed: false,
            absent,
            starts: u32::from(!absent),
            number,
        }
    }

    /// Starts its program, to take its seat while the others play.
    pub(crate) fn come(&mut self, scene: &Scene, now: Instant) {
        let start = if scene.from_the_beginning { SpectatorStart::FirstFrame } else { SpectatorStart::Snapshot };
        let mut config = config(scene, self.number);
        config.incarnation = config.incarnation.saturating_add(self.starts);
        config.late_join = Some(LateJoin { start, max_state_len: MOST_STATE });
        self.session = Session::new(self.local(now), config).expect("a sound configuration");
        self.machine = Machine::new(settings(scene).rollback_slots());
        (self.seated, self.asked_from) = (None, None);
        (self.left, self.crashed, self.absent) = (false, false, false);
        self.wake = Some(now);
        self.starts += 1;
    }

    /// Whether nobody drives it.
    pub(crate) fn is_out(&self) -> bool {
        self.crashed || self.absent
    }

    /// The time on its clock.
    pub(crate) fn local(&self, now: Instant) -> Instant {
        now + self.ahead
    }

    /// Takes the next input; with the top bit pressed, it is another one in every frame.
    pub(crate) fn sample(&mut self, frame: u32) -> [InputWord; MAX_PLAYERS] {
        let turn = if self.pressed & 0x80 != 0 { self.given.len() as u8 } else { 0 };
        let input = self.pressed.wrapping_add(turn.wrapping_mul(0x35));
        self.given.insert(frame, input);
        words(input)
    }
}

fn config(scene: &Scene, number: usize) -> Config {
    let id = site_id(number);
    let peers = SiteId::first(scene.sites()).filter(|other| *other != id).map(|other| (other, address(other.index())));
    let mut config = Config::new(SESSION, id, peers.collect(), settings(scene));
    // The machine holds that what is certain is never stepped again.
    config.bisect_desyncs = false;
    config.recovery = scene.recovery;
    config.pacing = scene.pacing;
    config.send_policy = if scene.timer { SendPolicy::Timer(TimeDelta::from_millis(20)) } else { SendPolicy::AtOnce };
    config.incarnation = scene.incarnation;
    config.drop_timeout = scene.drop_after_ms.map(|limit| TimeDelta::from_millis(i64::from(limit)));
    config.silence_timeout = scene.gives_up.then_some(TimeDelta::from_millis(400));
    let keep_log = if scene.from_the_beginning { 64 * 1_024 } else { 0 };
    let feed = FeedConfig {
        max_spectators: 4,
        log_bytes: keep_log,
        ..FeedConfig::new(SESSION, number as u64, settings(scene))
    };
    config.feed = scene.late.then_some(feed);
    config
}

/// What an input stands for; 0 is neutral.
pub(crate) fn words(input: u8) -> [InputWord; MAX_PLAYERS] {
    std::array::from_fn(|player| InputWord::from_le_bytes([input; 16]).wrapping_mul(player as InputWord + 1))
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
        machine: MachineId {
            name: "none".into(),
            version: "1".into(),
            options: vec![("fast".into(), "yes".into())],
            first_frames_hash: 0,
        },
        rate: FrameRate::per_second(if scene.fast { 1_000 } else { 60 }).expect("a frame rate"),
        input_delay: u32::from(scene.lag),
        prediction_window: u32::from(scene.window),
        auto_tune: scene.auto,
        absent_input: AbsentInput::Nothing,
        starvation_policy: StarvationPolicy::Wait,
        compare_interval: 4,
        site_count: scene.sites() as u8,
        starting_sites: SiteSet::first(scene.sites() - usize::from(scene.late)),
        ownership: ownership(scene),
    }
}

fn ownership(scene: &Scene) -> Ownership {
    let sites = scene.sites();
    let each = |mask: InputWord| Ownership::one_player_per_site(sites, mask);
    let given = |players: usize, gifts: &[(usize, usize, InputWord)]| {
        let mut ownership = Ownership::new(players);
        for (site, player, mask) in gifts {
            ownership.assign(site_id(*site), *player, *mask).expect("bits that nobody has");
        }
        ownership
    };
    match scene.owners {
        Owners::Pads => each(0xffff),
        Owners::Sticks => each((1 << 80) - 1),
        Owners::Shared => {
            let nibbles = InputWord::from_le_bytes([0x0f; 16]);
            let parts = [(0, 0, nibbles & 0xff_ffff), (1, 0, nibbles << 4 & 0xff_ffff_ffff), (2, 0, 1 << 127)];
            given(1, &parts[..sites.min(parts.len())])
        }
        Owners::LastAll => {
            let all: Vec<_> = (0..MAX_PLAYERS).map(|player| (sites - 1, player, InputWord::MAX)).collect();
            given(MAX_PLAYERS, &all)
        }
    }
}
