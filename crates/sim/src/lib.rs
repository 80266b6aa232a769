//! A simulator for the engines of [`coplay`], with virtual time, impaired links and inaccurate clocks. All randomness
//! of a run follows from one seed.
//!
//! The library reads no clock, sleeps nowhere, opens no socket, starts no thread and never iterates in an order that
//! could differ between runs. A seed therefore reproduces a run exactly.
//!
//! Building blocks:
//!
//! * [`clock`]: a node's own clock and its deviation from true time.
//! * [`network`]: computers, the links between them, their faults, and one queue of future events, for any engine.
//! * [`toy_machine`]: a small deterministic machine to share.
//! * [`site`]: one site, made of a session, a machine and a player.
//! * [`session_network`]: several sites and the links between them.
//! * [`host_network`]: several host programs with machines of their own, and the links between them.
//!
//! Fault tests, one folder per engine. Each draws random scenarios, injects their faults, and compares what happened
//! with what must hold:
//!
//! * [`session`]: sessions, including their spectators and movies.
//! * [`peer_world`]: a serverless maze.
//! * [`mirror`]: mirrored servers.
//! * [`motion`]: a server of moving objects and its clients.
//!
//! Measurements, without random faults:
//!
//! * [`session_experiment`]: pacing, traffic and rollback of a session.
//! * [`input_latency`]: time from a button press to its first effect.
//! * [`spectator_scale`]: cost of thousands of spectators.
//! * [`late_join`]: time until a late joiner plays, and its cost for the players.

pub mod clock;
pub mod host_network;
pub mod input_latency;
pub mod late_join;
pub mod mirror;
pub mod motion;
pub mod network;
pub mod peer_world;
pub mod scenario_result;
pub mod session;
pub mod session_experiment;
pub mod session_network;
pub mod site;
pub mod spectator_scale;
pub mod toy_machine;
mod violations;
