//! Rules, ninjas and sites of the maze.

mod fall_prediction;
mod hostile_peers;
mod ninjas;
mod rules;
