//! Comparison of the local game and machine with the host's settings.

use coplay::session::Settings;
use coplay_machines::{Machine, session_adapter};

/// Returns every point in which the local machine or game differs from the host's.
pub(super) fn differences(theirs: &Settings, machine: &dyn Machine) -> Vec<String> {
    let ours = session_adapter::settings(machine, session_adapter::SharedGameOptions::new(theirs.site_count));
    let same = Settings { game: ours.game, machine: ours.machine, rate: ours.rate, ..theirs.clone() };
    let players = check_player_count(theirs, machine).err();
    same.differences(theirs).iter().map(ToString::to_string).chain(players).collect()
}

/// Checks that the settings have as many players as the machine, counting the control player. Otherwise returns the
/// difference as text. The host can change the settings until the game starts, so the check is repeated then.
pub(super) fn check_player_count(theirs: &Settings, machine: &dyn Machine) -> Result<(), String> {
    match (machine.pads().len(), theirs.ownership.players()) {
        (ours, theirs) if ours == theirs => Ok(()),
        // The control player has no pad.
        (ours, theirs) => Err(format!(
            "the number of pads differs: {} here, {} there",
            ours.saturating_sub(1),
            theirs.saturating_sub(1)
        )),
    }
}
