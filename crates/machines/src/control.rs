//! Pause, reset, keeping and recalling a state: shared by all, at one frame, because they are input.
//!
//! [`ControlledMachine`] is a machine with one player more, who presses the buttons of the machine itself. Every site has some bits of that
//! player's word, so everybody can press them, and everything that holds for inputs holds for them: they are delayed, guessed, repaired,
//! watched, put on record and played again like a jump or a shot. While the machine is paused frames go by, and it does not step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use coplay::frame::FrameRate;
use coplay::id::SiteId;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::session::{GameId, MachineId, Settings};

use crate::machine::{LoadError, Machine, NetplaySupport, SaveError};
use crate::pad::Pad;
use crate::picture::Picture;

/// Something that people do with the machine, not with the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MachineControl {
    /// Stands still, or goes on.
    Pause = 0,
    /// Begins anew.
    Reset,
    /// Keeps the state of now.
    Save,
    /// Goes back to the state that was kept; without one, nothing happens.
    Load,
}

/// Bits of the word that a site has.
const BITS_PER_SITE: u32 = 16;
/// Sites for which there are bits.
const MAX_CONTROL_SITES: u8 = (InputWord::BITS / BITS_PER_SITE) as u8;
const CONTROLS: [MachineControl; 4] =
    [MachineControl::Pause, MachineControl::Reset, MachineControl::Save, MachineControl::Load];

impl MachineControl {
    /// The bit that a site presses for it.
    pub const fn bit(self, site: usize) -> InputWord {
        1 << (site as u32 * BITS_PER_SITE + self as u32)
    }

    /// All bits that a site has.
    pub const fn mask(site: usize) -> InputWord {
        ((1 << CONTROLS.len()) - 1) << (site as u32 * BITS_PER_SITE)
    }

    /// The first site that presses it anew.
    fn pressed_by(self, pressed: InputWord) -> Option<u8> {
        (0..MAX_CONTROL_SITES).find(|site| pressed & self.bit(usize::from(*site)) != 0)
    }
}

/// Whether a game is shared on a [`ControlledMachine`] machine: every site has its bits of the last player's word, and nothing else of it.
pub fn has_control_player(settings: &Settings) -> bool {
    let Some(last) = settings.ownership.players().checked_sub(1) else { return false };
    let mut sites = SiteId::first(usize::from(settings.site_count));
    sites.all(|site| settings.ownership.mask(site, last) == MachineControl::mask(site.index()))
}

/// A machine with one player more, the last, who presses the buttons of the machine itself.
pub struct ControlledMachine {
    machine: Box<dyn Machine>,
    pads: Vec<Pad>,
    /// The site that paused it.
    paused_by: Option<u8>,
    pause_indicator: PauseIndicator,
    /// What was pressed in the frame before: only pressing counts, not holding.
    held_controls: InputWord,
    saved_state: Vec<u8>,
    has_saved_state: bool,
}

/// Shows to who has no hold of the machine any more whether it stands still.
#[derive(Clone, Debug, Default)]
pub struct PauseIndicator(Arc<AtomicU8>);

impl PauseIndicator {
    /// The site that paused the machine, if it stands still.
    pub fn paused_by(&self) -> Option<u8> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    fn set(&self, paused: Option<u8>) {
        self.0.store(encode_paused_by(paused), Ordering::Relaxed);
    }
}

/// Nobody, or who, in a byte.
fn encode_paused_by(paused: Option<u8>) -> u8 {
    paused.map_or(0, |site| site + 1)
}

/// Behind the machine's own state: its length, who paused it, what is held, whether a state is kept.
const TRAILER_LEN: usize = 4 + 1 + 16 + 1;

impl ControlledMachine {
    /// Gives a machine that player. Of a machine with more than eight pads the first eight are played.
    pub fn new(machine: Box<dyn Machine>) -> Self {
        // More players than a game can have would leave none for the buttons of the machine.
        let mut pads: Vec<Pad> = machine.pads().iter().take(MAX_PLAYERS - 1).cloned().collect();
        pads.push(Pad { mask: InputWord::MAX, labels: Vec::new() });
        Self {
            machine,
            pads,
            paused_by: None,
            pause_indicator: PauseIndicator::default(),
            held_controls: 0,
            saved_state: Vec::new(),
            has_saved_state: false,
        }
    }

    /// The player who presses them.
    pub fn control_player(&self) -> usize {
        self.pads.len() - 1
    }

    /// Whether the machine stands still.
    pub fn is_paused(&self) -> bool {
        self.paused_by.is_some()
    }

    /// What shows that from outside.
    pub fn pause_indicator(&self) -> PauseIndicator {
        self.pause_indicator.clone()
    }

    fn apply_controls(&mut self, word: InputWord) {
        let pressed = word & !std::mem::replace(&mut self.held_controls, word);
        for (control, by) in CONTROLS.into_iter().filter_map(|control| Some((control, control.pressed_by(pressed)?))) {
            match control {
                MachineControl::Pause => self.paused_by = if self.is_paused() { None } else { Some(by) },
                MachineControl::Reset => self.machine.reset(),
                MachineControl::Save => {
                    self.has_saved_state = self.can_save() && self.machine.save(&mut self.saved_state).is_ok()
                }
                MachineControl::Load if self.has_saved_state => {
                    // It was made by this machine, here or at the site where a snapshot came from.
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

    fn pads(&self) -> &[Pad] {
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

    /// What it saves is for all sites: states that are not exact are of no use to them.
    fn can_save(&self) -> bool {
        self.netplay_support() == NetplaySupport::Rollback
    }

    fn netplay_support(&self) -> NetplaySupport {
        self.machine.netplay_support()
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        self.machine.save(into)?;
        let own = into.len() as u32;
        into.extend_from_slice(&self.saved_state[..if self.has_saved_state { self.saved_state.len() } else { 0 }]);
        into.extend_from_slice(&own.to_le_bytes());
        into.push(encode_paused_by(self.paused_by));
        into.extend_from_slice(&self.held_controls.to_le_bytes());
        into.push(u8::from(self.has_saved_state));
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        let unfit = || LoadError::InvalidState("it breaks off".into());
        let (states, tail) = state.split_last_chunk::<TRAILER_LEN>().ok_or_else(unfit)?;
        let own = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]) as usize;
        let (own, kept) = states.split_at_checked(own).ok_or_else(unfit)?;
        let flags = (tail[4], tail[TRAILER_LEN - 1]);
        if flags.0 > MAX_CONTROL_SITES || flags.1 > 1 {
            return Err(LoadError::InvalidState("it makes no sense".into()));
        }
        self.machine.load(own)?;
        self.paused_by = flags.0.checked_sub(1);
        self.pause_indicator.set(self.paused_by);
        self.held_controls = InputWord::from_le_bytes(tail[5..21].try_into().expect("16 bytes"));
        self.has_saved_state = flags.1 == 1;
        self.saved_state.clear();
        self.saved_state.extend_from_slice(kept);
        Ok(())
    }

    fn hash(&mut self) -> u64 {
        // What is kept came of hashed states, at a frame that all agree on.
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
    use crate::session_adapter::{SessionOptions, settings};

    fn controlled_nes() -> ControlledMachine {
        ControlledMachine::new(Box::new(Nes::open(&coplay_testcores::images::nes(), "test").expect("a sound image")))
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
        let (lamp, mut before, mut during) = (machine.pause_indicator(), Vec::new(), Vec::new());
        machine.save(&mut before).unwrap();
        step_with_controls(&mut machine, MachineControl::Pause.bit(2) | MachineControl::Pause.bit(3));
        assert_eq!((lamp.paused_by(), machine.is_paused()), (Some(2), true));
        step_with_controls(&mut machine, MachineControl::Pause.bit(2));
        assert_eq!(lamp.paused_by(), Some(2), "it is held, not pressed again");
        machine.save(&mut during).unwrap();
        machine.load(&before).unwrap();
        assert_eq!((lamp.paused_by(), machine.is_paused()), (None, false));
        machine.load(&during).unwrap();
        assert_eq!(lamp.paused_by(), Some(2));
        step_with_controls(&mut machine, 0);
        step_with_controls(&mut machine, MachineControl::Pause.bit(0));
        assert_eq!(lamp.paused_by(), None, "anybody can go on");
        machine.load(&during).unwrap();
        machine.reset();
        assert_eq!((lamp.paused_by(), machine.is_paused()), (None, false));
    }

    #[test]
    fn settings_with_control_masks_are_recognized() {
        let machine = controlled_nes();
        let mut shared = settings(&machine, SessionOptions::new(2));
        assert!(!has_control_player(&shared), "nobody has them");
        for site in SiteId::first(2) {
            shared.ownership.assign(site, machine.control_player(), MachineControl::mask(site.index())).unwrap();
        }
        assert!(has_control_player(&shared));
    }
}
