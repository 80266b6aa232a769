//! Requests: what a session asks of its host program.

use crate::frame::Frame;
use crate::input::InputWord;

/// A request to the host program. The host program must complete each request before it asks for the next.
#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Sample the local input and pass it to [`Session::handle_input`](super::Session::handle_input). The input takes
    /// effect in `frame`.
    Sample {
        /// The frame that the input is for.
        frame: Frame,
    },
    /// Save the machine's state in a slot and overwrite the previous content of that slot. Only requested if the state
    /// may be needed later: for a rollback, while the [prediction window](super::Settings::prediction_window) in force
    /// is above 0, or for a desync search with [`Config::bisect_desyncs`](super::Config::bisect_desyncs).
    Save {
        /// The frame that the machine steps next from this state.
        frame: Frame,
        /// The slot, below [`Session::slots`](super::Session::slots).
        slot: usize,
    },
    /// Load the state from a slot, for a rollback or a desync search.
    Load {
        /// The frame that the machine steps next from this state.
        frame: Frame,
        /// The slot to load from. The last [`Request::Save`] for this slot had the same frame.
        slot: usize,
    },
    /// Step the machine by one frame.
    Advance {
        /// The frame to step, which is the next one after the machine's current state.
        frame: Frame,
        /// Input word of each player, by player number.
        inputs: &'a [InputWord],
        /// Whether to display the frame and play its sound, because it is stepped for the first time by a site that
        /// plays. If not, the frame is resimulated, replayed for a desync search, or stepped by a late joiner that does
        /// not play yet.
        fresh: bool,
    },
    /// Pass a state of the machine and its hash to [`Session::handle_snapshot`](super::Session::handle_snapshot). A
    /// spectator or late joiner needs them.
    Snapshot {
        /// The frame that the machine steps next from that state.
        frame: Frame,
        /// The slot that holds that state; `None` for the machine's current state.
        slot: Option<usize>,
    },
    /// Load a state that was received from another site, because this site joins late. The frames from `frame` on
    /// follow.
    Restore {
        /// The frame that the machine steps next from that state.
        frame: Frame,
        /// The state. It comes from an untrusted source: validate it like any file.
        state: &'a [u8],
    },
    /// Pass the named regions of the machine's state, with their hashes, to
    /// [`Session::handle_regions`](super::Session::handle_regions), for a desync search. The request may be left
    /// unanswered.
    Regions {
        /// The frame just stepped.
        frame: Frame,
    },
    /// Pass the hashes of up to 256 pages of a region of the state, for a desync search, to
    /// [`Session::handle_pages`](super::Session::handle_pages). The request may be left unanswered.
    Pages {
        /// The frame just stepped.
        frame: Frame,
        /// Index of the region in the answer to [`Request::Regions`].
        region: u8,
        /// The first page to hash. Page n begins at byte n × [`PAGE_SIZE`](super::PAGE_SIZE) of the region.
        from: u32,
    },
    /// Hash the state after `frame` and pass the hash to [`Session::handle_hash`](super::Session::handle_hash).
    Hash {
        /// The frame just stepped.
        frame: Frame,
    },
}
