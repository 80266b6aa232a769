//! Commands of the maze, and their flags.

use clap::{Args, Subcommand};
use coplay_maze::{MAX_AVATARS, Maze as Walls};

use super::{Show, maze_online, seed};

/// As many avatars as a computer can have, but for the person's.
const MOST_NINJAS: i64 = MAX_AVATARS as i64 - 1;

/// What to do in a maze.
#[derive(Args, Clone, Debug)]
pub struct Maze {
    /// What to do there.
    #[command(subcommand)]
    pub what: What,
}

/// What can be done in a maze.
#[derive(Subcommand, Clone, Debug)]
pub enum What {
    /// Play against ninjas, alone at this computer
    Play(Play),
    /// Open a maze to others, who join it with a ticket
    Host(maze_online::Host),
    /// Join others in their maze
    Join(maze_online::Join),
    /// See from the traces of several sites how far apart their views were
    Drift(maze_online::Drift),
}

/// How to play alone.
#[derive(Args, Clone, Debug)]
pub struct Play {
    /// The maze, and who is in it.
    #[command(flatten)]
    pub place: Place,
    /// End after so many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
    /// How to see it.
    #[command(flatten)]
    pub show: Show,
}

/// A maze, and the ninjas that this computer puts into it.
#[derive(Args, Clone, Copy, Debug)]
pub struct Place {
    /// How many ninjas there are, from 0 to 63: avatars that software plays
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=MOST_NINJAS))]
    pub ninjas: u8,
    /// How many cells the maze has each way: from 4 to 128
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(sides()))]
    pub side: u8,
    /// What the maze follows from, a whole number; without it, another one each time
    #[arg(long, value_name = "SEED", value_parser = seed)]
    pub seed: Option<u64>,
}

/// How many cells a maze can have each way.
pub(super) fn sides() -> std::ops::RangeInclusive<i64> {
    i64::from(*Walls::SIDE_RANGE.start())..=i64::from(*Walls::SIDE_RANGE.end())
}
