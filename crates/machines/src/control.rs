//! Pause, reset, keeping and recalling a state: shared by all, at one frame, because they are input.
//!
//! [`Controlled`] is a machine with one player more, who presses the buttons of the machine itself. Every site has some bits of that
//! player's word, so everybody can press them, and everything that holds for inputs holds for them: they are delayed, guessed, repaired,
//! watched, put on record and played again like a jump or a shot. While the machine is paused frames go by, and it does not step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use coplay::frame::FrameRate;
use coplay::id::SiteId;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::session::{GameId, MachineId, Settings};

use crate::machine::{LoadError, Machine, SaveError, Sharing};
use crate::pad::Pad;
use crate::picture::Picture;

/// Something that people do with the machine, not with the game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Control {
    /// Stands still, or goes on.
    Pause = 0,
    /// Begins anew.
    Reset,
    /// Keeps the state of now.
    Keep,
    /// Goes back to the state that was kept; without one, nothing happens.
    Recall,
}

/// Bits of the word that a site has.
const BITS_PER_SITE: u32 = 16;
/// Sites for which there are bits.
const SITES: u8 = (InputWord::BITS / BITS_PER_SITE) as u8;
const CONTROLS: [Control; 4] = [Control::Pause, Control::Reset, Control::Keep, Control::Recall];

impl Control {
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
        (0..SITES).find(|site| pressed & self.bit(usize::from(*site)) != 0)
    }
}

/// Whether a game is shared on a [`Controlled`] machine: every site has its bits of the last player's word, and nothing else of it.
pub fn is_controlled(settings: &Settings) -> bool {
    let Some(last) = settings.ownership.players().checked_sub(1) else { return false };
    let mut sites = SiteId::first(usize::from(settings.site_count));
    sites.all(|site| settings.ownership.mask(site, last) == Control::mask(site.index()))
}

/// A machine with one player more, the last, who presses the buttons of the machine itself.
pub struct Controlled {
    machine: Box<dyn Machine>,
    pads: Vec<Pad>,
    /// The site that paused it.
    paused: Option<u8>,
    lamp: Lamp,
    /// What was pressed in the frame before: only pressing counts, not holding.
    held: InputWord,
    kept: Vec<u8>,
    has_kept: bool,
}

/// Shows to who has no hold of the machine any more whether it stands still.
#[derive(Clone, Debug, Default)]
pub struct Lamp(Arc<AtomicU8>);

impl Lamp {
    /// The site that paused the machine, if it stands still.
    pub fn paused_by(&self) -> Option<u8> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    fn set(&self, paused: Option<u8>) {
        self.0.store(flag(paused), Ordering::Relaxed);
    }
}

/// Nobody, or who, in a byte.
fn flag(paused: Option<u8>) -> u8 {
    paused.map_or(0, |site| site + 1)
}

/// Behind the machine's own state: its length, who paused it, what is held, whether a state is kept.
const TAIL: usize = 4 + 1 + 16 + 1;

impl Controlled {
    /// Gives a machine that player. Of a machine with more than eight pads the first eight are played.
    pub fn new(machine: Box<dyn Machine>) -> Self {
        // More players than a game can have would leave none for the buttons of the machine.
        let mut pads: Vec<Pad> = machine.pads().iter().take(MAX_PLAYERS - 1).cloned().collect();
        pads.push(Pad { mask: InputWord::MAX, labels: Vec::new() });
        Self { machine, pads, paused: None, lamp: Lamp::default(), held: 0, kept: Vec::new(), has_kept: false }
    }

    /// The player who presses them.
    pub fn player(&self) -> usize {
        self.pads.len() - 1
    }

    /// Whether the machine stands still.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// What shows that from outside.
    pub fn lamp(&self) -> Lamp {
        self.lamp.clone()
    }

    fn obey(&mut self, word: InputWord) {
        let pressed = word & !std::mem::replace(&mut self.held, word);
        for (control, by) in CONTROLS.into_iter().filter_map(|control| Some((control, control.pressed_by(pressed)?))) {
            match control {
                Control::Pause => self.paused = if self.is_paused() { None } else { Some(by) },
                Control::Reset => self.machine.reset(),
                Control::Keep => self.has_kept = self.can_save() && self.machine.save(&mut self.kept).is_ok(),
                Control::Recall if self.has_kept => {
                    // It was made by this machine, here or at the site where a snapshot came from.
                    let _ = self.machine.load(&self.kept);
                }
                Control::Recall => {}
            }
        }
        self.lamp.set(self.paused);
    }
}

impl Machine for Controlled {
    fn machine_id(&self) -> &MachineId {
        self.machine.machine_id()
    }

    fn game_id(&self) -> &GameId {
        self.machine.game_id()
    }

    fn rate(&self) -> FrameRate {
        self.machine.rate()
    }

    fn pads(&self) -> &[Pad] {
        &self.pads
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        let player = self.player();
        self.obey(inputs.get(player).copied().unwrap_or(0));
        if !self.is_paused() {
            self.machine.step(&inputs[..player.min(inputs.len())], fresh);
        }
    }

    fn reset(&mut self) {
        self.machine.reset();
        (self.paused, self.held, self.has_kept) = (None, 0, false);
        self.kept.clear();
        self.lamp.set(None);
    }

    fn picture(&self) -> Picture<'_> {
        self.machine.picture()
    }

    fn sound(&self) -> &[[i16; 2]] {
        if self.is_paused() { &[] } else { self.machine.sound() }
    }

    fn sound_rate(&self) -> f64 {
        self.machine.sound_rate()
    }

    /// What it saves is for all sites: states that are not exact are of no use to them.
    fn can_save(&self) -> bool {
        self.sharing() == Sharing::Rollback
    }

    fn sharing(&self) -> Sharing {
        self.machine.sharing()
    }

    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        self.machine.save(into)?;
        let own = into.len() as u32;
        into.extend_from_slice(&self.kept[..if self.has_kept { self.kept.len() } else { 0 }]);
        into.extend_from_slice(&own.to_le_bytes());
        into.push(flag(self.paused));
        into.extend_from_slice(&self.held.to_le_bytes());
        into.push(u8::from(self.has_kept));
        Ok(())
    }

    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        let unfit = || LoadError::Unfit("it breaks off".into());
        let (states, tail) = state.split_last_chunk::<TAIL>().ok_or_else(unfit)?;
        let own = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]) as usize;
        let (own, kept) = states.split_at_checked(own).ok_or_else(unfit)?;
        let flags = (tail[4], tail[TAIL - 1]);
        if flags.0 > SITES || flags.1 > 1 {
            return Err(LoadError::Unfit("it makes no sense".into()));
        }
        self.machine.load(own)?;
        self.paused = flags.0.checked_sub(1);
        self.lamp.set(self.paused);
        self.held = InputWord::from_le_bytes(tail[5..21].try_into().expect("16 bytes"));
        self.has_kept = flags.1 == 1;
        self.kept.clear();
        self.kept.extend_from_slice(kept);
        Ok(())
    }

    fn hash(&mut self) -> u64 {
        // What is kept came of hashed states, at a frame that all agree on.
        self.machine.hash() ^ u64::from(self.is_paused()) << 1 ^ u64::from(self.has_kept) << 2
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        self.machine.regions(show);
        show("controls", &[flag(self.paused), u8::from(self.has_kept)]);
    }

    fn failure(&self) -> Option<&str> {
        self.machine.failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosted::{Terms, settings};
    use crate::nes::Nes;

    fn machine() -> Controlled {
        Controlled::new(Box::new(Nes::open(&coplay_testcores::images::nes(), "test").expect("a sound image")))
    }

    fn press(machine: &mut Controlled, word: InputWord) {
        let player = machine.player();
        let mut inputs = vec![0; player + 1];
        inputs[player] = word;
        machine.step(&inputs, true);
    }

    #[test]
    fn the_lamp_shows_who_paused_also_after_going_back() {
        let mut machine = machine();
        let (lamp, mut before, mut during) = (machine.lamp(), Vec::new(), Vec::new());
        machine.save(&mut before).unwrap();
        press(&mut machine, Control::Pause.bit(2) | Control::Pause.bit(3));
        assert_eq!((lamp.paused_by(), machine.is_paused()), (Some(2), true));
        press(&mut machine, Control::Pause.bit(2));
        assert_eq!(lamp.paused_by(), Some(2), "it is held, not pressed again");
        machine.save(&mut during).unwrap();
        machine.load(&before).unwrap();
        assert_eq!((lamp.paused_by(), machine.is_paused()), (None, false));
        machine.load(&during).unwrap();
        assert_eq!(lamp.paused_by(), Some(2));
        press(&mut machine, 0);
        press(&mut machine, Control::Pause.bit(0));
        assert_eq!(lamp.paused_by(), None, "anybody can go on");
        machine.load(&during).unwrap();
        machine.reset();
        assert_eq!((lamp.paused_by(), machine.is_paused()), (None, false));
    }

    #[test]
    fn a_game_with_buttons_for_the_machine_is_known_by_them() {
        let machine = machine();
        let mut shared = settings(&machine, Terms::new(2));
        assert!(!is_controlled(&shared), "nobody has them");
        for site in SiteId::first(2) {
            shared.ownership.assign(site, machine.player(), Control::mask(site.index())).unwrap();
        }
        assert!(is_controlled(&shared));
    }
}
