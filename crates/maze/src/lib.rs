//! The rules of the maze: avatars that walk straight lines and circles through a maze, see, chase and shoot each other.
//!
//! After MiMaze, the game in Gautier, Diot and Kurose, *End-to-end Transmission Control Mechanisms for Multiparty Interactive Applications on
//! the Internet*: a grid of 65,536 × 65,536 units, avatars of radius 32 that walk 32 units in 40 ms, a view from within and a map from
//! above, and *ninjas*, avatars that software plays. How sites are kept in step is not in here but in [`coplay::bucket_ticks`], which
//! asks these rules how an avatar goes on ([`Reckoner`](coplay::bucket_ticks::Reckoner)).
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
//! - [`backtrack`], [`drift`]: what sites write down, and how far apart their views were.
//! - [`picture`]: what it looks like.
//! - [`angle`]: headings in whole numbers.

pub mod angle;
mod avatar;
mod codec;
mod dead_reckoning;
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

pub use avatar::{Avatar, Controls, Life, PredictedFall};
pub use maze::{CELL_SIZE, Direction, GRID_SIZE, Maze};
pub use ninja::Ninja;
pub use position::{Position, UNIT};
pub use projectiles::{HitTarget, ProjectileTracker};
pub use rules::{
    AVATAR_RADIUS, BACKWARD_SPEED, FIRE_INTERVAL, RESPAWN_TICKS, Rules, TICKS_PER_SECOND, TURN_RATE, WALK_SPEED,
};
pub use scores::{MAX_NAME_LEN, OTHER_AVATARS, OTHER_SITES, Score, ScoreRecord, Scoreboard};
pub use settings::MazeSettings;
pub use shot::{MAX_SHOTS, RecentShots, SHOT_RETENTION, Shot};
pub use site::{MAX_AVATARS, MazeEvent, MazeSite, to_units};
