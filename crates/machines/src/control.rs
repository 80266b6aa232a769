//! Pause, reset, save and load as inputs, so that they take effect at the same frame at all sites.
//!
//! [`ControlledMachine`] wraps a machine and adds one player, the control player, whose buttons operate the machine
//! itself. The session settings give each of up to eight sites bits of its own in that player's word, so every site can
//! press them. The session treats these bits like all inputs: it delays, predicts, rolls back, shows to spectators,
//! records and replays them. While the machine is paused, frames continue but the machine does not step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use coplay::frame::FrameRate;
use coplay::id::SiteId;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::session::{GameId, MachineId, Settings};

use crate::machine::{LoadError, Machine, NetplaySupport, SaveError};
use crate::pad::PadLayout;
use crate::picture::Picture;

/// An operation on the machine itself, which a button of the control player triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MachineControl {
    /// Pauses the machine, or resumes it if it is paused.
    Pause = 0,
    /// Resets the wrapped machine. The saved state is kept.
    Reset,
    /// Saves the machine's state in place of the one saved before. If that fails, no state is saved.
    Save,
    /// Loads the saved state; without one, does nothing.
    Load,
}

/// Number of bits of the control word that belong to each site.
const BITS_PER_SITE: u32 = 16;
/// Number of sites that have bits in the control word: 8.
const MAX_CONTROL_SITES: u8 = (InputWord::BITS / BITS_PER_SITE) as u8;
const CONTROLS: [MachineControl; 4] =
    [MachineControl::Pause, MachineControl::Reset, MachineControl::Save, MachineControl::Load];

impl MachineControl {
    /// Returns the bit with which a site triggers this control.
    pub const fn bit(self, site: usize) -> InputWord {
        1 << (site as u32 * BITS_PER_SITE + self as u32)
    }

    /// Returns the mask of all control bits of a site.
    pub const fn mask(site: usize) -> InputWord {
        ((1 << CONTROLS.len()) - 1) << (site as u32 * BITS_PER_SITE)
    }

    /// Returns the lowest site whose bit of this control is set in `pressed`.
    fn pressed_by(self, pressed: InputWord) -> Option<u8> {
        (0..MAX_CONTROL_SITES).find(|site| pressed & self.bit(usize::from(*site)) != 0)
    }
}

/// Returns whether the session runs on a [`ControlledMachine`]: every site owns exactly its own bits of the last
/// player's word.
pub fn has_control_player(settings: &Settings) -> bool {
    let Some(last) = settings.ownership.players().checked_sub(1) else { return false };
    let mut sites = SiteId::first(usize::from(settings.site_count));
    sites.all(|site| settings.ownership.mask(site, last) == MachineControl::mask(site.index()))
}

/// A machine with an added control player, the last player, whose buttons operate the machine itself.
pub struct ControlledMachine {
    machine: Box<dyn Machine>,
    pads: Vec<PadLayout>,
    /// Site that paused the machine; `None` while it runs.
    paused_by: Option<u8>,
    pause_indicator: SharedPauseState,
    /// Control bits of the previous frame. Only a newly pressed bit takes effect, not a held one.
    held_controls: InputWord,
    saved_state: Vec<u8>,
    has_saved_state: bool,
}

/// Shared indicator of the pause state, for code that no longer has access to the machine.
#[derive(Clone, Debug, Default)]
pub struct SharedPauseState(Arc<AtomicU8>);

impl SharedPauseState {
    /// Returns the site that paused the machine, if it is paused.
    pub fn paused_by(&self) -> Option<u8> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    fn set(&self, paused: Option<u8>) {
        self.0.store(encode_paused_by(paused), Ordering::Relaxed);
    }
}

/// Encodes the pausing site as one byte; 0 means not paused.
fn encode_paused_by(paused: Option<u8>) -> u8 {
    paused.map_or(0, |site| site + 1)
}

/// Length in bytes of the trailer that follows the machine's own state and the saved state: length of the own state,
/// pausing site, held control bits, and whether a state is saved.
const TRAILER_LEN: usize = 4 + 1 + 16 + 1;

impl ControlledMachine {
    /// Adds the control player to a machine. Of a machine with more than eight pads, only the first eight are playable.
    pub fn new(machine: Box<dyn Machine>) -> Self {
        // One player slot is reserved for the control player.
        let mut pads: Vec<PadLayout> = machine.pads().iter().take(MAX_PLAYERS - 1).cloned().collect();
        pads.push(PadLayout { mask: InputWord::MAX, labels: Vec::new() });
        Self {
            machine,
            pads,
            paused_by: None,
            pause_indicator: SharedPauseState::default(),
            held_controls: 0,
            saved_state: Vec::new(),
            has_saved_state: false,
        }
    }

    /// Returns the index of the control player: the last player.
    pub fn control_player(&self) -> usize {
        self.pads.len() - 1
    }

    /// Returns whether a site has paused the machine. Frames then pass without a step of the wrapped machine.
    pub fn is_paused(&self) -> bool {
        self.paused_by.is_some()
    }

    /// Returns an indicator that follows the pause state of this machine from now on.
    pub fn pause_indicator(&self) -> SharedPauseState {
        self.pause_indicator.clone()
    }

    fn apply_controls(&mut self, word: InputWord) {
        let pressed = word & !std::mem::replace(&mut self.held_controls, word);
        for (control, site) in CONTROLS.into_iter().filter_map(|control| Some((control, control.pressed_by(pressed)?)))
        {
            match control {
                MachineControl::Pause => self.paused_by = if self.is_paused() { None } else { Some(site) },
                MachineControl::Reset => self.machine.reset(),
                MachineControl::Save => {
                    self.has_saved_state = self.can_save() && self.machine.save(&mut self.saved_state).is_ok()
                }
                MachineControl::Load if self.has_saved_state => {
                    // The state was saved by this machine, here or at the site that sent a snapshot.
                    let _ = self.machine.load(&self.saved_state);
                }
                MachineControl::Load => {}
            }
        }
        self.pause_indicator.set(self.paused_by);
    }
}

impl Machine for ControlledMachine {
    fn machine_id(&self) -> &MachineId {
        self.machine.machine_id()
    }

    fn game_id(&self) -> &GameId {
        self.machine.game_id()
    }

    fn frame_rate(&self) -> FrameRate {
        self.machine.frame_rate()
    }

    fn pads(&self) -> &[PadLayout] {
        &self.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        let player = self.control_player();
        self.apply_controls(inputs.get(player).copied().unwrap_or(0));
        if !self.is_paused() {
            self.machine.step(&inputs[..player.min(inputs.len())], fresh);
        }
    }

    fn reset(&mut self) {
        self.machine.reset();
        (self.paused_by, self.held_controls, self.has_saved_state) = (None, 0, false);
        self.saved_state.clear();
        self.pause_indicator.set(None);
    }

    fn picture(&self) -> Picture<'_> {
        self.machine.picture()
    }

    fn sound(&self) -> &[[i16; 2]] {
        if self.is_paused() { &[] } else { self.machine.sound() }
    }

    fn sample_rate(&self) -> f64 {
        self.machine.sample_rate()
    }

    /// Returns `false` for a machine with inexact states, because states are sent to other sites.
    fn can_save(&self) -> bool {
        self.netplay_support() == NetplaySupport::Rollback
    }

    fn netplay_support(&self) -> NetplaySupport {
        self.machine.netplay_support()
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        self.machine.save(into)?;
        let own_len = into.len() as u32;
        into.extend_from_slice(&self.saved_state[..if self.has_saved_state { self.saved_state.len() } else { 0 }]);
        into.extend_from_slice(&own_len.to_le_bytes());
        into.push(encode_paused_by(self.paused_by));
        into.extend_from_slice(&self.held_controls.to_le_bytes());
        into.push(u8::from(self.has_saved_state));
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        let truncated = || LoadError::InvalidState("it is cut off".into());
        let (states, trailer) = state.split_last_chunk::<TRAILER_LEN>().ok_or_else(truncated)?;
        let own_len = u32::from_le_bytes([trailer[0], trailer[1], trailer[2], trailer[3]]) as usize;
        let (own, saved) = states.split_at_checked(own_len).ok_or_else(truncated)?;
        let flags = (trailer[4], trailer[TRAILER_LEN - 1]);
        if flags.0 > MAX_CONTROL_SITES || flags.1 > 1 {
            return Err(LoadError::InvalidState("its pause or save-state flag is invalid".into()));
        }
        self.machine.load(own)?;
        self.paused_by = flags.0.checked_sub(1);
        self.pause_indicator.set(self.paused_by);
        self.held_controls = InputWord::from_le_bytes(trailer[5..21].try_into().expect("16 bytes"));
        self.has_saved_state = flags.1 == 1;
        self.saved_state.clear();
        self.saved_state.extend_from_slice(saved);
        Ok(())
    }

    fn hash(&mut self) -> u64 {
        // The saved state itself is not hashed: it is the machine's own state at a frame that is the same at all sites,
        // and the hashes of that state are compared like those of any frame.
        self.machine.hash() ^ u64::from(self.is_paused()) << 1 ^ u64::from(self.has_saved_state) << 2
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        self.machine.regions(show);
        show("controls", &[encode_paused_by(self.paused_by), u8::from(self.has_saved_state)]);
    }

    fn failure(&self) -> Option<&str> {
        self.machine.failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nes::Nes;
    use crate::session_adapter::{SharedGameOptions, settings};

    fn controlled_nes() -> ControlledMachine {
        ControlledMachine::new(Box::new(
            Nes::open(&coplay_testcores::images::nes(), "test").expect("the test image is valid"),
        ))
    }

    fn step_with_controls(machine: &mut ControlledMachine, word: InputWord) {
        let player = machine.control_player();
        let mut inputs = vec![0; player + 1];
        inputs[player] = word;
        machine.step(&inputs, true);
    }

    #[test]
    fn pause_indicator_follows_pause_across_load_and_reset() {
        let mut machine = controlled_nes();
        let (indicator, mut before, mut during) = (machine.pause_indicator(), Vec::new(), Vec::new());
        machine.save(&mut before).unwrap();
        step_with_controls(&mut machine, MachineControl::Pause.bit(2) | MachineControl::Pause.bit(3));
        assert_eq!((indicator.paused_by(), machine.is_paused()), (Some(2), true));
        step_with_controls(&mut machine, MachineControl::Pause.bit(2));
        assert_eq!(indicator.paused_by(), Some(2), "held, not newly pressed");
        machine.save(&mut during).unwrap();
        machine.load(&before).unwrap();
        assert_eq!((indicator.paused_by(), machine.is_paused()), (None, false));
        machine.load(&during).unwrap();
        assert_eq!(indicator.paused_by(), Some(2));
        step_with_controls(&mut machine, 0);
        step_with_controls(&mut machine, MachineControl::Pause.bit(0));
        assert_eq!(indicator.paused_by(), None, "any site can resume");
        machine.load(&during).unwrap();
        machine.reset();
        assert_eq!((indicator.paused_by(), machine.is_paused()), (None, false));
    }

    #[test]
    fn settings_with_control_masks_are_recognized() {
        let machine = controlled_nes();
        let mut shared = settings(&machine, SharedGameOptions::new(2));
        assert!(!has_control_player(&shared), "no site owns the control bits");
        for site in SiteId::first(2) {
            shared.ownership.assign(site, machine.control_player(), MachineControl::mask(site.index())).unwrap();
        }
        assert!(has_control_player(&shared));
    }
}
