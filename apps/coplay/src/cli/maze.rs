//! Commands of the maze, and their flags.

use clap::{Args, Subcommand};
use coplay_maze::{MAX_AVATARS, Maze as Walls};

use super::{DisplayArgs, maze_online, parse_seed};

/// As many avatars as a computer can have, but for the person's.
const MAX_NINJAS: i64 = MAX_AVATARS as i64 - 1;

/// What to do in a maze.
#[derive(Args, Clone, Debug)]
pub struct MazeArgs {
    /// What to do there.
    #[command(subcommand)]
    pub command: MazeCommand,
}

/// What can be done in a maze.
#[derive(Subcommand, Clone, Debug)]
pub enum MazeCommand {
    /// Play against ninjas, alone at this computer
    Play(MazePlayArgs),
    /// Open a maze to others, who join it with a ticket
    Host(maze_online::MazeHostArgs),
    /// Join others in their maze
    Join(maze_online::MazeJoinArgs),
    /// See from the traces of several sites how far apart their views were
    Drift(maze_online::MazeDriftArgs),
}

/// How to play alone.
#[derive(Args, Clone, Debug)]
pub struct MazePlayArgs {
    /// The maze, and who is in it.
    #[command(flatten)]
    pub layout: MazeLayoutArgs,
    /// End after so many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
    /// How to see it.
    #[command(flatten)]
    pub display: DisplayArgs,
}

/// A maze, and the ninjas that this computer puts into it.
#[derive(Args, Clone, Copy, Debug)]
pub struct MazeLayoutArgs {
    /// How many ninjas there are, from 0 to 63: avatars that software plays
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=MAX_NINJAS))]
    pub ninjas: u8,
    /// How many cells the maze has each way: from 4 to 128
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(side_range()))]
    pub side: u8,
    /// What the maze follows from, a whole number; without it, another one each time
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub seed: Option<u64>,
}

/// How many cells a maze can have each way.
pub(super) fn side_range() -> std::ops::RangeInclusive<i64> {
    i64::from(*Walls::SIDE_RANGE.start())..=i64::from(*Walls::SIDE_RANGE.end())
}
