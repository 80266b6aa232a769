//! What sites agree on, made of a machine and a few choices.

use coplay::id::{Addr, SiteId, SiteSet};
use coplay::input::{MAX_PLAYERS, Ownership};
use coplay::session::{AbsentInput, Config, Settings, StarvationPolicy};

use crate::machine::{Machine, NetplaySupport};

/// States are compared this often unless asked otherwise: about once a second.
const DEFAULT_HASH_INTERVAL: u32 = 60;

/// What can be chosen about a shared game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// How many sites there can be.
    pub sites: u8,
    /// By how many frames local input is delayed.
    pub input_delay: u32,
    /// How many frames may be guessed. A machine whose states cannot be shared gets none.
    pub prediction_window: u32,
    /// Whether lag and window follow what links and machines need.
    pub auto_delay: bool,
    /// State hashes are compared every so many frames.
    pub hash_interval: u32,
}

impl SessionOptions {
    /// So many sites, with dials that turn by themselves.
    pub fn new(sites: u8) -> Self {
        Self { sites, input_delay: 2, prediction_window: 8, auto_delay: true, hash_interval: DEFAULT_HASH_INTERVAL }
    }
}

/// The settings of a game on this machine that all sites start together. Site k has the pad of player k; where there are more sites than
/// pads the last ones have none, and pads that are left over lie untouched. Change the fields for another order.
pub fn settings(machine: &dyn Machine, terms: SessionOptions) -> Settings {
    let pads = machine.pads();
    let mut ownership = Ownership::new(pads.len().min(MAX_PLAYERS));
    for (player, site) in SiteId::first(usize::from(terms.sites)).enumerate().take(ownership.players()) {
        ownership.assign(site, player, pads[player].mask).expect("bits that nobody owns");
    }
    Settings {
        game: machine.game_id().clone(),
        machine: machine.machine_id().clone(),
        rate: machine.frame_rate(),
        input_delay: terms.input_delay,
        prediction_window: if machine.netplay_support() == NetplaySupport::Rollback {
            terms.prediction_window
        } else {
            0
        },
        auto_tune: terms.auto_delay,
        absent_input: AbsentInput::Nothing,
        starvation_policy: StarvationPolicy::Wait,
        compare_interval: terms.hash_interval,
        site_count: terms.sites,
        starting_sites: SiteSet::first(usize::from(terms.sites)),
        ownership,
    }
}

/// The usual way for one site to take part with this machine.
pub fn config(
    machine: &dyn Machine,
    session: u64,
    site: SiteId,
    peers: Vec<(SiteId, Addr)>,
    settings: Settings,
) -> Config {
    let usual = Config::new(session, site, peers, settings);
    let exact = machine.netplay_support() == NetplaySupport::Rollback;
    Config { can_save: exact, bisect_desyncs: usual.bisect_desyncs && exact, ..usual }
}
