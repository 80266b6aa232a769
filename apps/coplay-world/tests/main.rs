//! Servers in processes of their own, over real sockets.

mod common;
mod iroh;
mod replay;
mod servers;
