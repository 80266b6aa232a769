//! The same work for two engines, to be measured: [`coplay`] and ggrs in its lockstep mode.
//!
//! All sites of a session run in one thread and exchange datagrams through memory, without delay or loss. There is no
//! game: a step folds the inputs into a number, which proves that both engines handed out the same inputs in the same
//! frames.
//!
//! * [`work`]: what is to be done, equal for both.
//! * [`wire`]: memory that stands for a network.
//! * [`ours`]: coplay, driven as a host program drives it.
//! * [`peer`]: ggrs, driven as its documentation says.
//! * [`counter`]: counts allocations of the calling thread.

pub mod counter;
pub mod driver;
pub mod ours;
pub mod peer;
pub mod wire;
pub mod work;
