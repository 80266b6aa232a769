//! Worlds with servers: several game state servers mirror one maze, and a player is on the nearest of them.
//!
//! A server runs the reference simulators of its players' avatars, after Li, Li and Lau, *Supporting Continuous Consistency in Multiplayer Online
//! Games*, and tells the other servers what happens by events, after Palazzi et al. ([`coplay::mirror`]). The maze is that of
//! [`coplay_maze`], with the same rules as without servers.
//!
//! Pure: whoever owns clock and networks calls. The program `coplay-world` does, with zenoh between the servers.
//!
//! # Facts
//!
//! Everything that a server says of an object is a fact that holds by itself ([`Fact`]): where it stands, by the word of who owns it for the
//! how manieth time; how often it hit and fell, as one server counted. Of two facts that contradict each other one is newer and
//! says so. So it makes no difference in which order, by which way or how often facts are learned; what is known ([`Register`]) only grows,
//! until it is old; and a server that comes back, or a partition that heals, needs nothing but the facts that it lacks. That is more than
//! the theorem of [`coplay::mirror`] asks for, so dropping obsolete events changes nothing.
//!
//! # Rooms
//!
//! - [`Server`]: one server, whole. Begin here. [`Realm`] is the world in it, [`Hall`] its simulators, [`Field`] who is where.
//! - [`Client`]: one player. [`Voyage`] is its choice between servers.
//! - [`Being`], [`Register`], [`Deed`]: what is known, and how it is told.
//! - [`Wish`], [`View`], [`Page`]: what players and servers say to each other.

mod being;
mod client;
mod deed;
mod doubt;
mod field;
mod greeting;
mod hall;
mod player;
mod realm;
mod register;
mod server;
mod standing;
mod talk;
mod tally;
mod trail;
mod voyage;

pub use being::{Being, Stand, Term};
pub use client::{Client, TICK};
pub use deed::{Deed, Fact, MAX_DEED};
pub use field::{Field, Placed};
pub use greeting::{Greeting, Hello, MAX_HEARD, Nonce};
pub use hall::{Hall, Happening, Mind};
pub use realm::{Realm, entity_of, ninja};
pub use register::{KEPT, MAX_BEINGS, Register};
pub use server::Server;
pub use standing::Loss;
pub use talk::{MAX_PRESSES, MAX_TALK, Page, Pong, Press, View, Wish, Word, ping, read_ping};
pub use tally::Tally;
pub use trail::{TOLERANCE, WINDOW};
pub use voyage::Voyage;
