//! Equal work for two engines, to compare their cost: [`coplay`] and ggrs, in lockstep and with rollback.
//!
//! All sites of a session run in one thread. In lockstep they exchange datagrams through memory, without delay or loss.
//! There is no game: a step folds the inputs into a hash, which proves that both engines delivered the same inputs in
//! the same frames.
//!
//! * [`workload`]: the work, equal for both engines.
//! * [`inbox`]: datagram queues in memory.
//! * [`coplay_lockstep`]: coplay, driven as by a host program.
//! * [`ggrs_lockstep`]: ggrs, driven according to its documentation.
//! * [`without_engine`]: the host program without an engine, whose cost is subtracted.
//! * [`rollback`]: both engines with prediction, on a network with delay and loss.
//! * [`allocation_counter`]: counts the allocations of the calling thread.
//! * [`stopwatch`]: measures the time and the allocations inside an engine.
//! * [`virtual_clock`]: makes the clocks of the standard library show virtual time.

pub mod allocation_counter;
pub mod coplay_lockstep;
pub mod ggrs_lockstep;
pub mod inbox;
pub mod rollback;
pub mod stopwatch;
pub mod virtual_clock;
pub mod without_engine;
pub mod workload;
