//! A simulated world for the engines of [`coplay`]: virtual time, bad links and bad clocks, all drawn from one seed.
//!
//! Everything here is data in, data out. Nothing reads a clock, sleeps, opens a socket, starts a thread or iterates in an
//! order that could differ between runs, so a seed reproduces a run exactly.
//!
//! * [`random`]: seeded numbers, one independent stream per purpose.
//! * [`queue`]: what happens next, in virtual time.
//! * [`link`]: one direction of a network path: delay, loss, duplicates, a bottleneck, cuts.
//! * [`clock`]: how a node's own clock departs from the true time.
//! * [`toy`]: a machine to share.
//! * [`site`]: a computer with a session, a machine and a player.
//! * [`world`]: all of them together.
//! * [`stage`]: a small world for host programs with machines of their own.
//! * [`crowd`]: many who watch.
//! * [`gallery`]: a few who watch, well or badly.
//! * [`recording`]: one site keeps a movie.
//! * [`latecomer`]: one who comes late.
//! * [`buttons`]: how long a button takes to show.
//! * [`measure`]: experiments without faults, measured.
//! * [`scenario`]: random sessions with faults, for the swarm.
//! * [`arena`]: a maze without a server, with faults, and what must hold in it.
//! * [`senate`]: servers that mirror each other, with faults, and what must hold among them.
//! * [`court`]: a server of moving objects and its clients, with faults, and what must hold among them.
//! * [`check`]: what must hold, judged without knowledge of the engines.

pub mod arena;
pub mod buttons;
pub mod check;
pub mod clock;
pub mod court;
pub mod crowd;
pub mod gallery;
pub mod latecomer;
pub mod link;
pub mod measure;
pub mod queue;
pub mod random;
pub mod recording;
pub mod scenario;
pub mod senate;
pub mod site;
pub mod stage;
pub mod toy;
pub mod world;
