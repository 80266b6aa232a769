//! Tests of the engines in virtual time, one module per behaviour, in one executable: it links once, and its threads
//! run tests of all modules at once.
//!
//! One module alone: `cargo test -p coplay-sim --test all late_join::`.

mod auto_delay;
mod bandwidth;
mod common;
mod desync_detection;
mod drop_silent_sites;
mod foreign_datagrams;
mod freeze_and_resume;
mod host_program_misuse;
mod input_recovery;
mod jitter_buffer;
mod late_join;
mod leave_and_play_alone;
mod lobby_agreement;
mod malicious_player;
mod mirror_faults;
mod motion_faults;
mod movie_replay;
mod pacing;
mod peer_world_faults;
mod rollback;
mod session_faults;
mod slow_peer;
mod spectators;
