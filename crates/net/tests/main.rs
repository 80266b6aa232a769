//! Transports, meshes and runners on real sockets.

mod common;
mod iroh;
mod mesh;
mod runner;
mod udp;
