//! One site of the fuzzed session: the engine, and a host program that records all inputs.

use std::collections::BTreeMap;

use coplay::frame::FrameRate;
use coplay::id::{Addr, MAX_SITES, SiteId, SiteSet};
use coplay::input::{InputWord, MAX_PLAYERS, Ownership};
use coplay::session::{
    AbsentInput, Config, GameId, LateJoinConfig, MachineId, SendPolicy, Session, Settings, StarvationPolicy,
};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::{Instant, TimeDelta};

use crate::machine::HashMachine;
use crate::script::{OwnershipKind, ScriptSetup};

/// Id of the fuzzed session, which forged packets carry, too.
pub(crate) const SESSION_ID: u64 = 0x5e55_1017_c0de_d00d;

/// A site with its session, its machine and a record of its inputs.
#[derive(Debug)]
pub(crate) struct FuzzedSite {
    pub(crate) session: Session,
    pub(crate) addr: Addr,
    /// Offset of the site's clock from the harness clock.
    pub(crate) clock_offset: TimeDelta,
    /// Time at which the session must be called next, on the harness clock; `None` while the site does not run, or when
    /// its session is over.
    pub(crate) next_wake: Option<Instant>,
    /// Input byte that the site's player holds.
    pub(crate) held_input: u8,
    /// Inputs given to the session, by frame.
    pub(crate) given_inputs: BTreeMap<u32, u8>,
    pub(crate) machine: HashMachine,
    /// First frame for which the session requested an input since the last start of the site.
    pub(crate) first_sampled_frame: Option<u32>,
    /// First frame that the site stepped as a player; `None` while it joins late.
    pub(crate) seated_from: Option<u32>,
    /// Whether the site has left since its last start.
    pub(crate) has_left: bool,
    /// Whether the site has left at any time, also before its last start.
    pub(crate) has_ever_left: bool,
    /// Whether the site has crashed and was not restarted since.
    pub(crate) is_crashed: bool,
    /// Whether the site joins late and was not started yet.
    pub(crate) is_absent: bool,
    /// Number of starts of the site's program.
    pub(crate) start_count: u32,
    site_number: usize,
}

/// Maximum length of a state that a late joiner accepts, in bytes.
pub(crate) const MAX_STATE_LEN: usize = 64 * 1_024;

impl FuzzedSite {
    pub(crate) fn new(setup: &ScriptSetup, number: usize) -> Self {
        let clock_offset = TimeDelta::from_secs(86_400 * number as i64);
        let is_absent = setup.has_late_joiner && number + 1 == setup.site_count();
        Self {
            session: Session::new(Instant::ZERO + clock_offset, config(setup, number)).expect("a valid configuration"),
            addr: address(number),
            clock_offset,
            next_wake: (!is_absent).then_some(Instant::ZERO),
            held_input: number as u8,
            given_inputs: BTreeMap::new(),
            first_sampled_frame: None,
            machine: HashMachine::new(settings(setup).rollback_slots()),
            seated_from: (!is_absent).then_some(0),
            has_left: false,
            has_ever_left: false,
            is_crashed: false,
            is_absent,
            start_count: u32::from(!is_absent),
            site_number: number,
        }
    }

    /// Starts or restarts the site's program as a late joiner.
    pub(crate) fn join(&mut self, setup: &ScriptSetup, now: Instant) {
        let start = if setup.joins_from_first_frame { SpectatorStart::FirstFrame } else { SpectatorStart::Snapshot };
        let mut config = config(setup, self.site_number);
        config.incarnation = config.incarnation.saturating_add(self.start_count);
        config.late_join = Some(LateJoinConfig { start, max_state_len: MAX_STATE_LEN });
        self.session = Session::new(self.local_time(now), config).expect("a valid configuration");
        self.machine = HashMachine::new(settings(setup).rollback_slots());
        (self.seated_from, self.first_sampled_frame) = (None, None);
        (self.has_left, self.is_crashed, self.is_absent) = (false, false, false);
        self.next_wake = Some(now);
        self.start_count += 1;
    }

    /// Returns whether the host program does not run: the site crashed or was not started yet.
    pub(crate) fn is_inactive(&self) -> bool {
        self.is_crashed || self.is_absent
    }

    /// Returns the time on the site's clock for `now` on the harness clock.
    pub(crate) fn local_time(&self, now: Instant) -> Instant {
        now + self.clock_offset
    }

    /// Samples and records the input for `frame`. If the top bit of the held input is set, the input changes in every
    /// frame.
    pub(crate) fn sample_input(&mut self, frame: u32) -> [InputWord; MAX_PLAYERS] {
        let step = if self.held_input & 0x80 != 0 { self.given_inputs.len() as u8 } else { 0 };
        let input = self.held_input.wrapping_add(step.wrapping_mul(0x35));
        self.given_inputs.insert(frame, input);
        input_words(input)
    }
}

fn config(setup: &ScriptSetup, number: usize) -> Config {
    let id = site_id(number);
    let peers =
        SiteId::first(setup.site_count()).filter(|other| *other != id).map(|other| (other, address(other.index())));
    let mut config = Config::new(SESSION_ID, id, peers.collect(), settings(setup));
    // To bisect a desync, a session resimulates confirmed frames, which the machine rejects.
    config.bisect_desyncs = false;
    config.recovery = setup.recovery;
    config.pacing = setup.pacing;
    config.send_policy =
        if setup.is_timer_sending { SendPolicy::Timer(TimeDelta::from_millis(20)) } else { SendPolicy::AtOnce };
    config.incarnation = setup.incarnation;
    config.drop_timeout = setup.drop_timeout_ms.map(|limit| TimeDelta::from_millis(i64::from(limit)));
    config.silence_timeout = setup.is_silence_fatal.then_some(TimeDelta::from_millis(400));
    let log_bytes = if setup.joins_from_first_frame { 64 * 1_024 } else { 0 };
    let feed =
        FeedConfig { max_spectators: 4, log_bytes, ..FeedConfig::new(SESSION_ID, number as u64, settings(setup)) };
    config.feed = setup.has_late_joiner.then_some(feed);
    config
}

/// Returns the words of all players for an input byte; 0 is neutral.
pub(crate) fn input_words(input: u8) -> [InputWord; MAX_PLAYERS] {
    std::array::from_fn(|player| InputWord::from_le_bytes([input; 16]).wrapping_mul(player as InputWord + 1))
}

/// Returns the address of a site. The address after that of the last site belongs to strangers.
pub(crate) fn address(number: usize) -> Addr {
    Addr(10 + number as u64)
}

pub(crate) fn site_id(number: usize) -> SiteId {
    SiteId::first(MAX_SITES).nth(number).expect("a valid site number")
}

/// Returns the settings of a game without a machine, whose sites compare hashes every 4 frames.
pub(crate) fn settings(setup: &ScriptSetup) -> Settings {
    Settings {
        game: GameId { name: "inputs".into(), hash: [7; 32] },
        machine: MachineId {
            name: "none".into(),
            version: "1".into(),
            options: vec![("fast".into(), "yes".into())],
            first_frames_hash: 0,
        },
        rate: FrameRate::per_second(if setup.is_fast { 1_000 } else { 60 }).expect("a frame rate"),
        input_delay: u32::from(setup.input_delay),
        prediction_window: u32::from(setup.prediction_window),
        auto_tune: setup.is_auto,
        absent_input: AbsentInput::Nothing,
        starvation_policy: StarvationPolicy::Wait,
        compare_interval: 4,
        site_count: setup.site_count() as u8,
        starting_sites: SiteSet::first(setup.site_count() - usize::from(setup.has_late_joiner)),
        ownership: ownership(setup),
    }
}

fn ownership(setup: &ScriptSetup) -> Ownership {
    let sites = setup.site_count();
    let per_site = |mask: InputWord| Ownership::one_player_per_site(sites, mask);
    let assigned = |players: usize, assignments: &[(usize, usize, InputWord)]| {
        let mut ownership = Ownership::new(players);
        for (site, player, mask) in assignments {
            ownership.assign(site_id(*site), *player, *mask).expect("the bits are unassigned");
        }
        ownership
    };
    match setup.ownership {
        OwnershipKind::Pads => per_site(0xffff),
        OwnershipKind::AnalogSticks => per_site((1 << 80) - 1),
        OwnershipKind::Shared => {
            let nibbles = InputWord::from_le_bytes([0x0f; 16]);
            let parts = [(0, 0, nibbles & 0xff_ffff), (1, 0, nibbles << 4 & 0xff_ffff_ffff), (2, 0, 1 << 127)];
            assigned(1, &parts[..sites.min(parts.len())])
        }
        OwnershipKind::AllToLast => {
            let all: Vec<_> = (0..MAX_PLAYERS).map(|player| (sites - 1, player, InputWord::MAX)).collect();
            assigned(MAX_PLAYERS, &all)
        }
    }
}
