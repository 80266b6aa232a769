//! Keeps replicas of a game in step over a network.
//!
//! Several *sites* run the same deterministic machine. Coplay feeds every site's machine the same inputs in the same frames, paces the
//! frames evenly, gets lost inputs back, freezes when a site is gone and goes on when it is back. The machine is a black box; the
//! network is any that carries datagrams. After Zhao et al., *An Approach to Sharing Legacy TV/Arcade Games for Real-Time
//! Collaboration*, and Kim and Park, *A History Retransmission Algorithm for Online Arcade Video Games*.
//!
//! Everything in here is pure: time, bytes and inputs go in, bytes and requests come out. There is no clock, no socket, no thread
//! and no unsafe code, nothing is allocated in a running game, and no bytes from the network can make it panic. So it runs
//! unchanged in a test, in an emulator, on a phone and in a browser.
//!
//! # Example
//!
//! Two sites share a machine over a wire that takes 40 ms. A real host program does the same with a socket and a clock.
//!
//! ```
//! use coplay::frame::FrameRate;
//! use coplay::id::{Addr, SiteId, SiteSet};
//! use coplay::input::Ownership;
//! use coplay::session::{Absent, Config, GameId, MachineId, Request, Session, Settings, Starvation};
//! use coplay::time::{Instant, TimeDelta};
//! use coplay::wire::MAX_DATAGRAM;
//!
//! let settings = Settings {
//!     game: GameId { name: "sum".into(), hash: [1; 32] },
//!     machine: MachineId { name: "adder".into(), version: "1".into(), options: vec![], first_frames: 0 },
//!     rate: FrameRate::per_second(60).unwrap(),
//!     lag: 2,            // local input takes effect 2 frames (33 ms) later
//!     window: 8,         // up to 8 frames may rest on guesses and be repaired; 0 needs no save and load
//!     auto: false,       // whether the two above follow what the link needs
//!     absent: Absent::Nothing, // whoever is dropped presses nothing
//!     starvation: Starvation::Wait, // inputs that are late are waited for
//!     compare_every: 60, // states are compared once a second
//!     sites: 2,
//!     starters: SiteSet::first(2), // nobody comes later
//!     ownership: Ownership::one_each(2, 0xffff), // site k is player k and has 16 buttons
//! };
//! let site = |number| SiteId::new(number).unwrap();
//! let config = |me, other| Config::new(7, site(me), vec![(site(other), Addr(other.into()))], settings.clone());
//! let mut now = Instant::ZERO;
//! let mut sites = [(0, 1), (1, 0)].map(|(me, other)| Session::new(now, config(me, other)).unwrap());
//! let mut machines = [0u64; 2]; // the state of the "game" at each site
//! let mut saved = [const { [0u64; 12] }; 2]; // and its copies, of which `sites[own_site].slots()` are needed
//! let mut wire: Vec<(Instant, usize, Vec<u8>)> = vec![]; // when, to whom, what
//! let mut buf = [0; MAX_DATAGRAM];
//!
//! while sites.iter().any(|session| session.stats().frame.number() < 600) {
//!     for (me, session) in sites.iter_mut().enumerate() {
//!         for (_, _, bytes) in wire.extract_if(.., |(at, to, _)| *at <= now && *to == me) {
//!             session.handle_datagram(now, Addr(1 - me as u64), &bytes);
//!         }
//!         while let Some(request) = session.poll_request(now) {
//!             match request {
//!                 Request::Sample { frame } => {
//!                     let mut inputs = [0; 2];
//!                     inputs[own_site] = u128::from(frame.number() / 10 % 16); // what the player presses
//!                     session.handle_input(now, &inputs);
//!                 }
//!                 Request::Advance { inputs, .. } => {
//!                     machines[own_site] = inputs.iter().fold(machines[own_site], |state, word| state * 3 + *word as u64 % 1_000);
//!                     machines[own_site] %= 1_000_003;
//!                 }
//!                 Request::Hash { .. } => session.handle_hash(machines[own_site]),
//!                 Request::Save { slot, .. } => saved[own_site][save_slot] = machines[own_site],
//!                 Request::Load { slot, .. } => machines[own_site] = saved[own_site][save_slot],
//!                 _ => {} // what latecomers and searches for differences need
//!             }
//!         }
//!         while let Some(packet) = session.poll_transmit(now, &mut buf) {
//!             wire.push((now + TimeDelta::from_millis(40), packet.to.0 as usize, buf[..packet.len].to_vec()));
//!         }
//!     }
//!     now += TimeDelta::from_millis(1);
//! }
//! // The newest frames rest on guesses; what was confirmed is equal.
//! assert_eq!(sites[0].peer_stats(now, site(1)).unwrap().mismatches, 0);
//! ```
//!
//! # Rooms
//!
//! - [`session_id`]: the shared machine. Begin here.
//! - [`spectator_feed`]: for those who only watch, and for those who come late.
//! - [`input`]: words and who owns which of their bits; streams, coding, recovery of what is lost.
//! - [`current_period`]: when the next frame begins.
//! - [`mirror`]: servers that hold the same game and exchange its events.
//! - [`movie`]: a game on record, to be played again.
//! - [`peer_world`]: worlds without a server.
//! - [`motion`]: objects that move at a server and at clients that are kept in step with it.
//! - [`clock`]: other sites' clocks, and group time.
//! - [`in_flight`]: bytes in and out.
//! - [`hash`]: XXH64, for checksums and for the hashes of states.
//! - [`time`], [`next_frame`], [`id`]: the vocabulary.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod clock;
pub mod frame;
pub mod hash;
pub mod id;
pub mod input;
pub mod mirror;
pub mod motion;
pub mod movie;
pub mod pace;
pub mod peer_world;
pub mod session;
pub mod spectator_feed;
pub mod time;
pub mod wire;
