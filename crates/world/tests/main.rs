//! Servers of a world and their players in virtual time.

mod hostile;
mod leaving;
mod player;
mod servers;
