//! Keeps replicas of a real-time game in step over a network.
//!
//! Several *sites* run the same deterministic machine. Coplay feeds every site's machine the same inputs in the same
//! frames, paces the frames evenly, recovers lost inputs, freezes while a site is silent and resumes when that site is
//! back or dropped. The machine is a black box. The network may be any that carries datagrams. The design follows Zhao
//! et al., *An Approach to Sharing Legacy TV/Arcade Games for Real-Time Collaboration*, and Kim and Park, *A History
//! Retransmission Algorithm for Online Arcade Video Games*.
//!
//! This crate is pure: time, bytes and inputs go in, bytes and requests come out. It has no clock, no socket, no thread
//! and no unsafe code. The frames of a running game allocate no memory, and no bytes from the network can make the
//! crate panic. Because it is pure, it runs unchanged in a test, in an emulator, on a phone and in a browser.
//!
//! # Example
//!
//! Two sites share a machine over a link with a one-way delay of 40 ms. A real host program does the same with a socket
//! and a clock.
//!
//! ```
//! use coplay::frame::FrameRate;
//! use coplay::id::{Addr, SiteId};
//! use coplay::session::{Config, GameId, MachineId, Request, Session, Settings};
//! use coplay::time::{Instant, TimeDelta};
//! use coplay::codec::MAX_DATAGRAM;
//!
//! // Two sites with one player each, an input delay of 2 frames (33 ms) and up to 8 predicted frames.
//! let rate = FrameRate::per_second(60).unwrap();
//! let settings =
//!     Settings::builder(GameId::new("sum", [1; 32]), MachineId::new("adder", "1"), rate).build().unwrap();
//! let site = |number| SiteId::new(number).unwrap();
//! let config = |me, other| Config::new(7, site(me), vec![(site(other), Addr(other.into()))], settings.clone());
//! let mut now = Instant::ZERO;
//! let mut sites = [(0, 1), (1, 0)].map(|(me, other)| Session::new(now, config(me, other)).unwrap());
//! let mut machines = [0u64; 2]; // the state of the "game" at each site
//! let mut saved = [const { [0u64; 12] }; 2]; // saved states: `Session::slots` slots per site
//! let mut link: Vec<(Instant, usize, Vec<u8>)> = vec![]; // arrival time, receiver, datagram
//! let mut buf = [0; MAX_DATAGRAM];
//!
//! while sites.iter().any(|session| session.stats().frame.number() < 600) {
//!     for (me, session) in sites.iter_mut().enumerate() {
//!         for (_, _, bytes) in link.extract_if(.., |(at, to, _)| *at <= now && *to == me) {
//!             session.handle_datagram(now, Addr(1 - me as u64), &bytes);
//!         }
//!         while let Some(request) = session.poll_request(now) {
//!             match request {
//!                 Request::Sample { frame } => {
//!                     let mut inputs = [0; 2];
//!                     inputs[me] = u128::from(frame.number() / 10 % 16); // the buttons that the player holds
//!                     session.handle_input(now, &inputs);
//!                 }
//!                 Request::Advance { inputs, .. } => {
//!                     machines[me] = inputs.iter().fold(machines[me], |state, word| state * 3 + *word as u64 % 1_000);
//!                     machines[me] %= 1_000_003;
//!                 }
//!                 Request::Hash { .. } => session.handle_hash(machines[me]),
//!                 Request::Save { slot, .. } => saved[me][slot] = machines[me],
//!                 Request::Load { slot, .. } => machines[me] = saved[me][slot],
//!                 _ => {} // requests for late joiners and desync searches
//!             }
//!         }
//!         while let Some(packet) = session.poll_transmit(now, &mut buf) {
//!             link.push((now + TimeDelta::from_millis(40), packet.to.0 as usize, buf[..packet.len].to_vec()));
//!         }
//!     }
//!     now += TimeDelta::from_millis(1);
//! }
//! // The newest frames contain predictions; all confirmed states are equal.
//! assert_eq!(sites[0].peer_stats(now, site(1)).unwrap().mismatches, 0);
//! ```
//!
//! # Authentication
//!
//! This crate does not authenticate: it takes the sender's address as the host program gives it. Over a network that
//! strangers can reach, pass in only datagrams whose sender the transport has authenticated, and set
//! [`session::Config::is_transport_authenticated`]. The crate `coplay-net` does that: over UDP with the Noise protocol,
//! over iroh with QUIC. Its `runner` also has the real-time loop, and its `lobby` the seats and the settings.
//!
//! # Examples
//!
//! `cargo run -p coplay --example NAME`, from the smallest to the largest:
//! - `two_sites`: two sites in one process, with rollback;
//! - `udp_game`: one player per process over UDP, with late join;
//! - `spectator`: watches a game of `udp_game`.
//!
//! # Modules
//!
//! - [`session`]: the shared machine. Begin here.
//! - [`spectator_feed`]: the stream for spectators and late joiners.
//! - [`input`]: input words and the ownership of their bits; streams, coding, recovery of lost inputs.
//! - [`pace`]: the choice of the start time of the next frame.
//! - [`mirror`]: mirrored servers that run the same game and exchange its events.
//! - [`movie`]: recordings of games.
//! - [`peer_world`]: replicated worlds without a server.
//! - [`motion`]: moving objects at a server, and their copies at clients, which are kept in step.
//! - [`clock`]: estimates of other sites' clocks, and group time.
//! - [`codec`]: reading and writing of bytes; each engine has its messages in a module `message`.
//! - [`hash`]: XXH64, for checksums and state hashes.
//! - [`time`], [`frame`], [`id`]: basic types.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod clock;
pub mod codec;
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
mod settings;
pub mod spectator_feed;
pub mod time;
