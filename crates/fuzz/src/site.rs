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

use crate::machine::HashMachine;
use crate::script::{OwnershipKind, ScriptSetup};

/// The number of the fuzzed session, which no stranger knows.
pub(crate) const SESSION_ID: u64 = 0x5e55_1017_c0de_d00d;

/// One site.
#[derive(Debug)]
pub(crate) struct FuzzedSite {
    pub(crate) session: Session,
    pub(crate) addr: Addr,
    /// How far its clock is ahead of the world's.
    pub(crate) clock_offset: TimeDelta,
    /// When it wants to be called, by the world's clock.
    pub(crate) next_wake: Option<Instant>,
    /// What its player presses.
    pub(crate) held_input: u8,
    /// What was handed to the session for each frame.
    pub(crate) given_inputs: BTreeMap<u32, u8>,
    pub(crate) machine: HashMachine,
    /// The first frame that it was asked to give an input for since it was started.
    pub(crate) first_sampled_frame: Option<u32>,
    /// The first frame that it stepped as one who plays.
    pub(crate) seated_from: Option<u32>,
    /// Whether it was told to leave, now or before it was started anew.
    pub(crate) has_left: bool,
    pub(crate) has_ever_left: bool,
    /// Whether it is dead.
    pub(crate) is_crashed: bool,
    /// Whether it is yet to come.
    pub(crate) is_absent: bool,
    /// How often its program was started.
    pub(crate) start_count: u32,
    site_number: usize,
}

/// The largest state that a latecomer takes.
pub(crate) const MAX_STATE_LEN: usize = 64 * 1_024;

impl FuzzedSite {
    pub(crate) fn new(scene: &ScriptSetup, number: usize) -> Self {
        let ahead = TimeDelta::from_secs(86_400 * number as i64);
        let absent = scene.has_late_joiner && number + 1 == scene.site_count();
        Self {
            session: Session::new(Instant::ZERO + ahead, config(scene, number)).expect("a sound configuration"),
            addr: address(number),
            clock_offset: ahead,
            next_wake: (!absent).then_some(Instant::ZERO),
            held_input: number as u8,
            given_inputs: BTreeMap::new(),
            first_sampled_frame: None,
            machine: HashMachine::new(settings(scene).rollback_slots()),
            seated_from: (!absent).then_some(0),
            has_left: false,
            has_ever_left: false,
            is_crashed: false,
            is_absent: absent,
            start_count: u32::from(!absent),
            site_number: number,
        }
    }

    /// Starts its program, to take its seat while the others play.
    pub(crate) fn join(&mut self, scene: &ScriptSetup, now: Instant) {
        let start = if scene.joins_from_first_frame { SpectatorStart::FirstFrame } else { SpectatorStart::Snapshot };
        let mut config = config(scene, self.site_number);
        config.incarnation = config.incarnation.saturating_add(self.start_count);
        config.late_join = Some(LateJoin { start, max_state_len: MAX_STATE_LEN });
        self.session = Session::new(self.local_time(now), config).expect("a sound configuration");
        self.machine = HashMachine::new(settings(scene).rollback_slots());
        (self.seated_from, self.first_sampled_frame) = (None, None);
        (self.has_left, self.is_crashed, self.is_absent) = (false, false, false);
        self.next_wake = Some(now);
        self.start_count += 1;
    }

    /// Whether nobody drives it.
    pub(crate) fn is_inactive(&self) -> bool {
        self.is_crashed || self.is_absent
    }

    /// The time on its clock.
    pub(crate) fn local_time(&self, now: Instant) -> Instant {
        now + self.clock_offset
    }

    /// Takes the next input; with the top bit pressed, it is another one in every frame.
    pub(crate) fn sample_input(&mut self, frame: u32) -> [InputWord; MAX_PLAYERS] {
        let turn = if self.held_input & 0x80 != 0 { self.given_inputs.len() as u8 } else { 0 };
        let input = self.held_input.wrapping_add(turn.wrapping_mul(0x35));
        self.given_inputs.insert(frame, input);
        input_words(input)
    }
}

fn config(scene: &ScriptSetup, number: usize) -> Config {
    let id = site_id(number);
    let peers =
        SiteId::first(scene.site_count()).filter(|other| *other != id).map(|other| (other, address(other.index())));
    let mut config = Config::new(SESSION_ID, id, peers.collect(), settings(scene));
    // The machine holds that what is certain is never stepped again.
    config.bisect_desyncs = false;
    config.recovery = scene.recovery;
    config.pacing = scene.pacing;
    config.send_policy =
        if scene.is_timer_sending { SendPolicy::Timer(TimeDelta::from_millis(20)) } else { SendPolicy::AtOnce };
    config.incarnation = scene.incarnation;
    config.drop_timeout = scene.drop_timeout_ms.map(|limit| TimeDelta::from_millis(i64::from(limit)));
    config.silence_timeout = scene.is_silence_fatal.then_some(TimeDelta::from_millis(400));
    let keep_log = if scene.joins_from_first_frame { 64 * 1_024 } else { 0 };
    let feed = FeedConfig {
        max_spectators: 4,
        log_bytes: keep_log,
        ..FeedConfig::new(SESSION_ID, number as u64, settings(scene))
    };
    config.feed = scene.has_late_joiner.then_some(feed);
    config
}

/// What an input stands for; 0 is neutral.
pub(crate) fn input_words(input: u8) -> [InputWord; MAX_PLAYERS] {
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
pub(crate) fn settings(scene: &ScriptSetup) -> Settings {
    Settings {
        game: GameId { name: "inputs".into(), hash: [7; 32] },
        machine: MachineId {
            name: "none".into(),
            version: "1".into(),
            options: vec![("fast".into(), "yes".into())],
            first_frames_hash: 0,
        },
        rate: FrameRate::per_second(if scene.is_fast { 1_000 } else { 60 }).expect("a frame rate"),
        input_delay: u32::from(scene.input_delay),
        prediction_window: u32::from(scene.prediction_window),
        auto_tune: scene.is_auto,
        absent_input: AbsentInput::Nothing,
        starvation_policy: StarvationPolicy::Wait,
        compare_interval: 4,
        site_count: scene.site_count() as u8,
        starting_sites: SiteSet::first(scene.site_count() - usize::from(scene.has_late_joiner)),
        ownership: ownership(scene),
    }
}

fn ownership(scene: &ScriptSetup) -> Ownership {
    let sites = scene.site_count();
    let each = |mask: InputWord| Ownership::one_player_per_site(sites, mask);
    let given = |players: usize, gifts: &[(usize, usize, InputWord)]| {
        let mut ownership = Ownership::new(players);
        for (site, player, mask) in gifts {
            ownership.assign(site_id(*site), *player, *mask).expect("bits that nobody has");
        }
        ownership
    };
    match scene.ownership {
        OwnershipKind::Pads => each(0xffff),
        OwnershipKind::AnalogSticks => each((1 << 80) - 1),
        OwnershipKind::Shared => {
            let nibbles = InputWord::from_le_bytes([0x0f; 16]);
            let parts = [(0, 0, nibbles & 0xff_ffff), (1, 0, nibbles << 4 & 0xff_ffff_ffff), (2, 0, 1 << 127)];
            given(1, &parts[..sites.min(parts.len())])
        }
        OwnershipKind::AllToLast => {
            let all: Vec<_> = (0..MAX_PLAYERS).map(|player| (sites - 1, player, InputWord::MAX)).collect();
            given(MAX_PLAYERS, &all)
        }
    }
}
