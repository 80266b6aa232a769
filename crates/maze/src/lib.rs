//! The rules of the maze: avatars that walk straight lines and circles through a maze, see, chase and shoot each other.
//!
//! After MiMaze, the game in Gautier, Diot and Kurose, *End-to-end Transmission Control Mechanisms for Multiparty Interactive Applications on
//! the Internet*: a grid of 65,536 × 65,536 units, avatars of radius 32 that walk 32 units in 40 ms, a view from within and a map from
//! above, and *ninjas*, avatars that software plays. How sites are kept in step is not in here but in [`coplay::bucket`], which
//! asks these rules how an avatar goes on ([`Reckoner`](coplay::bucket::Reckoner)).
//!
//! Everything that sites must agree on is whole numbers and follows from ticks of 10 ms, pressed buttons and seeds; only
//! [pictures](picture) are drawn with others. There is no clock, no chance and no thread, so it runs in a browser, too.
//!
//! # Example
//!
//! ```
//! use coplay_maze::{Controls, Maze, Rules};
//!
//! let rules = Rules::new(Maze::new(7, 12));
//! let mut avatar = rules.newcomer(&[], 1);
//! let started = avatar.position;
//! for tick in 0..4 {
//!     rules.step(tick, &mut avatar, Controls { forward: true, ..Controls::default() }, &[], 1);
//! }
//! assert_eq!(avatar.position.distance(started), 32);
//! ```
//!
//! # Rooms
//!
//! - [`Rules`]: what happens in a tick. Begin here.
//! - [`Maze`]: walls, sight, places to start from.
//! - [`Avatar`], [`Shot`]: what sites tell each other.
//! - [`Ninja`]: software that plays.
//! - [`Game`]: a whole site: rules, ninjas and the shared world.
//! - [`trace`], [`drift`]: what sites write down, and how far apart their views were.
//! - [`picture`]: what it looks like.
//! - [`angle`]: headings in whole numbers.

pub mod angle;
mod avatar;
mod carve;
mod code;
pub mod drift;
mod game;
mod luck;
mod maze;
mod ninja;
pub mod picture;
mod place;
mod reckon;
mod rules;
mod shot;
mod tally;
mod terms;
pub mod trace;
mod watch;
mod way;

pub use avatar::{Avatar, Controls, Doom, Life};
pub use game::{Game, MAX_AVATARS, News, units};
pub use maze::{CELL, Direction, GRID, Maze};
pub use ninja::Ninja;
pub use place::{FINE, Position};
pub use rules::{BACK, FIRE_EVERY, RADIUS, RESPAWN, Rules, TICKS_PER_SECOND, TURN, WALK};
pub use shot::{MOST_SHOTS, SHOT_KEPT, Shot, Shots};
pub use tally::{ANYBODY, MAX_NAME, OTHERS, Score, Scores, Tally};
pub use terms::Terms;
pub use watch::{Target, Watch};
