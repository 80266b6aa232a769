//! A simulated world for the engines of [`coplay`]: virtual time, bad links and bad clocks, all drawn from one seed.
//!
//! Everything here is data in, data out. Nothing reads a clock, sleeps, opens a socket, starts a thread or iterates in an
//! order that could differ between runs, so a seed reproduces a run exactly.
//!
//! * [`random`]: seeded numbers, one independent stream per purpose.
//! * [`event_queue`]: what happens next, in virtual time.
//! * [`link`]: one direction of a network path: delay, loss, duplicates, a bottleneck, cuts.
//! * [`clock`]: how a node's own clock departs from the true time.
//! * [`toy_machine`]: a machine to share.
//! * [`site`]: a computer with a session, a machine and a player.
//! * [`world`]: all of them together.
//! * [`host_network`]: a small world for host programs with machines of their own.
//! * [`scale`]: many who watch.
//! * [`gallery`]: a few who watch, well or badly.
//! * [`recording`]: one site keeps a movie.
//! * [`late_join`]: one who comes late.
//! * [`input_latency`]: how long a button takes to show.
//! * [`measure`]: experiments without faults, measured.
//! * [`scenario`]: random sessions with faults, for the swarm.
//! * [`peer_world_faults`]: a maze without a server, with faults, and what must hold in it.
//! * [`mirror_faults`]: servers that mirror each other, with faults, and what must hold among them.
//! * [`motion_faults`]: a server of moving objects and its clients, with faults, and what must hold among them.
//! * [`check`]: what must hold, judged without knowledge of the engines.

pub mod clock;
pub mod event_queue;
pub mod host_network;
pub mod input_latency;
pub mod late_join;
pub mod link;
pub mod mirror;
pub mod motion;
pub mod peer_world;
pub mod random;
pub mod session;
pub mod session_experiment;
pub mod session_network;
pub mod site;
pub mod spectators;
pub mod toy_machine;
