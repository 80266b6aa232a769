//! Builds session settings and a site's config from a machine and a few options.

use coplay::id::{Addr, SiteId, SiteSet};
use coplay::input::{MAX_PLAYERS, Ownership};
use coplay::session::{AbsentInput, Config, Settings, StarvationPolicy};

use crate::machine::{Machine, NetplaySupport};

/// Default interval of state comparisons, in frames: one second at 60 frames per second.
const DEFAULT_HASH_INTERVAL: u32 = 60;

/// Options of a shared game, from which [`settings`] derives the session settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedGameOptions {
    /// Number of sites, all of which start the game.
    pub sites: u8,
    /// Input delay in frames; with `auto_delay` only the initial value.
    pub input_delay: u32,
    /// Prediction window in frames; with `auto_delay` only the initial value. [`settings`] uses 0 if the machine has no
    /// exact states.
    pub prediction_window: u32,
    /// Whether the session adjusts input delay and prediction window automatically to the delays of the links and the
    /// costs of the machines.
    pub auto_delay: bool,
    /// Interval at which the sites compare state hashes, in frames.
    pub hash_interval: u32,
}

impl SharedGameOptions {
    /// Returns options for `sites` sites with automatic delay settings, starting with input delay 2 and prediction
    /// window 8. Sites compare states every 60 frames.
    pub fn new(sites: u8) -> Self {
        Self { sites, input_delay: 2, prediction_window: 8, auto_delay: true, hash_interval: DEFAULT_HASH_INTERVAL }
    }
}

/// Returns the settings of a game on this machine that all sites start together. Site k owns the pad of player k. If
/// there are more sites than pads, the last sites own no pad; surplus pads stay unowned. For another assignment, change
/// [`Settings::ownership`] in the result.
pub fn settings(machine: &dyn Machine, options: SharedGameOptions) -> Settings {
    let pads = machine.pads();
    let mut ownership = Ownership::new(pads.len().min(MAX_PLAYERS));
    for (player, site) in SiteId::first(usize::from(options.sites)).enumerate().take(ownership.players()) {
        ownership.assign(site, player, pads[player].mask).expect("no site owns these bits yet");
    }
    Settings {
        game: machine.game_id().clone(),
        machine: machine.machine_id().clone(),
        rate: machine.frame_rate(),
        input_delay: options.input_delay,
        prediction_window: if machine.netplay_support() == NetplaySupport::Rollback {
            options.prediction_window
        } else {
            0
        },
        auto_tune: options.auto_delay,
        absent_input: AbsentInput::Nothing,
        starvation_policy: StarvationPolicy::Wait,
        compare_interval: options.hash_interval,
        site_count: options.sites,
        starting_sites: SiteSet::first(usize::from(options.sites)),
        ownership,
    }
}

/// Returns the default config of one site with this machine. If the machine's states are not exact, saved states and
/// desync searches are disabled.
pub fn config(
    machine: &dyn Machine,
    session: u64,
    site: SiteId,
    peers: Vec<(SiteId, Addr)>,
    settings: Settings,
) -> Config {
    let default = Config::new(session, site, peers, settings);
    let has_exact_states = machine.netplay_support() == NetplaySupport::Rollback;
    Config { can_save: has_exact_states, bisect_desyncs: default.bisect_desyncs && has_exact_states, ..default }
}
