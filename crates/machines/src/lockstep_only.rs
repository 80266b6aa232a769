//! Wraps a machine so that sessions do not use its saved states.

use coplay::frame::FrameRate;
use coplay::input::InputWord;
use coplay::session::{GameId, MAX_OPTIONS, MachineId};

use crate::machine::{LoadError, Machine, NetplaySupport, SaveError};
use crate::pad::PadLayout;
use crate::picture::Picture;

/// Option, as key and value, that [`LockstepOnly::wrap`] adds to the machine id.
const STATES_UNUSED_OPTION: (&str, &str) = ("states", "not used");

/// A machine whose saved states are not used, because a check here or at the host's site found that they are not exact.
/// Sites with such a machine run in lockstep, and a late joiner replays the game from the first frame. The machine id
/// of a wrapped machine differs from that of the machine inside, unless that one already has [`MAX_OPTIONS`] options.
/// So a session starts only if all sites use the wrapper or none does.
pub struct LockstepOnly {
    machine: Box<dyn Machine>,
    id: MachineId,
}

impl LockstepOnly {
    /// Wraps a machine. A machine that cannot save is returned unchanged. If the machine already has [`MAX_OPTIONS`]
    /// options, its machine id stays the same.
    pub fn wrap(machine: Box<dyn Machine>) -> Box<dyn Machine> {
        if !machine.can_save() {
            return machine;
        }
        let mut id = machine.machine_id().clone();
        if id.options.len() < MAX_OPTIONS {
            id.options.push((STATES_UNUSED_OPTION.0.into(), STATES_UNUSED_OPTION.1.into()));
        }
        Box::new(Self { machine, id })
    }

    /// Returns whether `id`, for example that of another site, belongs to a wrapped machine.
    pub fn is_lockstep_only(id: &MachineId) -> bool {
        id.options.iter().any(|(key, value)| (key.as_str(), value.as_str()) == STATES_UNUSED_OPTION)
    }

    /// Returns the id of the machine inside the wrapper: `id` without the option that [`wrap`](Self::wrap) adds.
    pub fn inner_machine_id(mut id: MachineId) -> MachineId {
        id.options.retain(|(key, value)| (key.as_str(), value.as_str()) != STATES_UNUSED_OPTION);
        id
    }
}

impl Machine for LockstepOnly {
    fn machine_id(&self) -> &MachineId {
        &self.id
    }

    fn game_id(&self) -> &GameId {
        self.machine.game_id()
    }

    fn frame_rate(&self) -> FrameRate {
        self.machine.frame_rate()
    }

    fn pads(&self) -> &[PadLayout] {
        self.machine.pads()
    }

    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        self.machine.step(inputs, fresh);
    }

    fn reset(&mut self) {
        self.machine.reset();
    }

    fn picture(&self) -> Picture<'_> {
        self.machine.picture()
    }

    fn sound(&self) -> &[[i16; 2]] {
        self.machine.sound()
    }

    fn sample_rate(&self) -> f64 {
        self.machine.sample_rate()
    }

    fn can_save(&self) -> bool {
        false
    }

    fn netplay_support(&self) -> NetplaySupport {
        self.machine.netplay_support().min(NetplaySupport::Lockstep)
    }

    fn save(&mut self, _: &mut Vec<u8>) -> Result<(), SaveError> {
        Err(SaveError::Unsupported)
    }

    fn load(&mut self, _: &[u8]) -> Result<(), LoadError> {
        Err(LoadError::Unsupported)
    }

    fn hash(&mut self) -> u64 {
        self.machine.hash()
    }

    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        self.machine.regions(show);
    }

    fn failure(&self) -> Option<&str> {
        self.machine.failure()
    }
}
