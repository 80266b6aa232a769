//! The same work for two engines, to be measured: [`coplay`] and ggrs, in lockstep and when they guess.
//!
//! All sites of a session run in one thread. In lockstep they exchange datagrams through memory, without delay or loss.
//! There is no game: a step folds the inputs into a number, which proves that both engines handed out the same inputs
//! in the same frames.
//!
//! * [`work`]: what is to be done, equal for both.
//! * [`wire`]: memory that stands for a network.
//! * [`ours`]: coplay, driven as a host program drives it.
//! * [`peer`]: ggrs, driven as its documentation says.
//! * [`rollback`]: both when they guess, on a network with delay and loss.
//! * [`allocation_counter`]: counts allocations of the calling thread.
//! * [`stopwatch`]: counts the time that it spends in an engine.
//! * [`clock`]: the clocks of the standard library, in virtual time.

pub mod allocation_counter;
pub mod coplay_lockstep;
pub mod driver;
pub mod ggrs_lockstep;
pub mod inbox;
pub mod rollback;
pub mod stopwatch;
pub mod virtual_clock;
pub mod workload;
