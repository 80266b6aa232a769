//! Commands and flags of `coplay maze`.

use clap::{Args, Subcommand};
use coplay_maze::{MAX_AVATARS, Maze};
use coplay_shell::values::{parse_seed, whole_number, whole_number_in};

use super::{DisplayArgs, OtherProgramArgs, maze_online};

/// Largest number of ninjas in a solo game: one less than the largest number of avatars of a site, because the player
/// has one.
const MAX_NINJAS: u8 = MAX_AVATARS as u8 - 1;

/// Arguments of `coplay maze`.
#[derive(Args, Clone, Debug)]
pub struct MazeArgs {
    /// Subcommand that the user chose.
    #[command(subcommand)]
    pub command: MazeCommand,
}

/// Commands of the maze.
#[derive(Subcommand, Clone, Debug)]
pub enum MazeCommand {
    /// Play against ninjas on this computer
    Play(MazePlayArgs),
    /// Host a maze that other players join with a ticket
    Host(maze_online::MazeHostArgs),
    /// Join the maze of other players
    Join(maze_online::MazeJoinArgs),
    /// Run `coplay-lab drift`
    #[command(hide = true, disable_help_flag = true)]
    Drift(OtherProgramArgs),
}

/// Arguments of `coplay maze play`.
#[derive(Args, Clone, Debug)]
pub struct MazePlayArgs {
    /// Side and seed of the maze, and number of ninjas.
    #[command(flatten)]
    pub layout: MazeLayoutArgs,
    /// Flags that choose the output.
    #[command(flatten)]
    pub display: DisplayArgs,
    /// Stop after this many seconds, 1 to 86400 [default: no limit; with --headless: 60]
    #[arg(long, value_name = "N", value_parser = whole_number_in::<u32>(1..=86_400, "s"))]
    pub seconds: Option<u32>,
}

/// Flags for the size and the seed of the maze, and for the number of ninjas.
#[derive(Args, Clone, Copy, Debug)]
pub struct MazeLayoutArgs {
    /// Add this many ninjas (avatars that software controls), 0 to 63
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole_number::<u8>(0..=MAX_NINJAS))]
    pub ninjas: u8,
    /// Set the number of cells on each side of the maze, 4 to 128
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole_number::<u8>(Maze::SIDE_RANGE))]
    pub side: u8,
    /// Generate the maze from this seed, a whole number [default: random]
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub seed: Option<u64>,
}
