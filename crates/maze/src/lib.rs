//! Game rules of the maze: avatars walk along straight lines and circles through a maze, see, chase and shoot each
//! other.
//!
//! After MiMaze, the game in Gautier, Diot and Kurose, *End-to-end Transmission Control Mechanisms for Multiparty
//! Interactive Applications on the Internet*: a grid of 65,536 × 65,536 units, avatars of radius 32 that walk 32 units
//! in 40 ms, a first-person view, a map, and *ninjas*, avatars played by software. This crate does not synchronise
//! sites. [`coplay::peer_world`] does, and calls these rules to dead-reckon avatars
//! ([`DeadReckoning`](coplay::peer_world::DeadReckoning)).
//!
//! Everything that sites must agree on is computed in integers from 10 ms ticks, pressed buttons and seeds. Only
//! [rendering](render), [traces](trace) and [drift measurement](drift) use floating point. The crate reads no clock,
//! uses no system randomness and starts no thread, so it also runs in a browser.
//!
//! # Example
//!
//! ```
//! use coplay_maze::{Controls, Maze, MazeRules};
//!
//! let rules = MazeRules::new(Maze::new(7, 12));
//! let mut avatar = rules.spawn_avatar(&[], 1);
//! let started = avatar.position;
//! for tick in 0..4 {
//!     rules.step(tick, &mut avatar, Controls { forward: true, ..Controls::default() }, &[], 1);
//! }
//! assert_eq!(avatar.position.distance(started), 32);
//! ```
//!
//! # Modules
//!
//! - [`MazeRules`]: the simulation of one tick. Begin here.
//! - [`Maze`]: walls, line of sight, spawn points.
//! - [`Avatar`], [`Shot`]: the state that sites send each other.
//! - [`Ninja`]: a bot that plays an avatar.
//! - [`MazeSite`]: a whole site: rules, ninjas and the shared world.
//! - [`trace`], [`drift`]: the trace of a site, and how far apart the views of two sites were.
//! - [`render`]: a software renderer.
//! - [`angle`]: headings in integers.

pub mod angle;
mod avatar;
mod codec;
mod dead_reckoning;
mod direction;
pub mod drift;
mod generate;
mod maze;
mod ninja;
mod path;
mod position;
mod projectiles;
pub mod render;
mod rng;
mod rules;
mod scores;
mod settings;
mod shot;
mod site;
pub mod trace;

pub use avatar::{Avatar, BACKWARD_SPEED, Controls, Life, MAX_AVATARS, PredictedFall, TURN_RATE, WALK_SPEED};
pub use direction::Direction;
pub use maze::{CELL_SIZE, Maze};
pub use ninja::Ninja;
pub use position::{GRID_SIZE, Position, UNIT};
pub use projectiles::{HitCandidate, ProjectileTracker};
pub use rules::{AVATAR_RADIUS, FIRE_INTERVAL, MazeRules, RESPAWN_TICKS, TICKS_PER_SECOND};
pub use scores::{MAX_NAME_LEN, OTHER_AVATARS, OTHER_SITES, Score, ScoreRecord, Scoreboard};
pub use settings::MazeSettings;
pub use shot::{MAX_SHOTS, RecentShots, SHOT_RETENTION, Shot};
pub use site::{MazeEvent, MazeSite, to_units};
