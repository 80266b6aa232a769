//! What a fuzzer may do to the engines: one function per target, each total on any bytes.
//!
//! A function returns when all is well and panics when a promise is broken. `make fuzz` looks for bytes that make it
//! panic; `tests/corpus.rs` replays the corpus, and so every finding that was added to it, in each `make test`.
//! `cargo run -p coplay-fuzz --example seeds` writes the part of the corpus that is made and not found.

mod checker;
mod feed;
mod forged_feed;
mod forged_session;
mod host_program;
mod machine;
mod movie;
pub mod script;
mod script_reader;
mod session_harness;
mod site;
mod wire;
mod worlds;

use script::Script;
use session_harness::SessionHarness;

/// Takes `data` as one datagram from a stranger, and as pieces of inputs: decoding it must never panic, and what decodes
/// must survive being encoded again.
pub fn wire(data: &[u8]) {
    wire::check_message(data);
    wire::check_streams(data);
}

/// Takes `data` as a [script](script::Script) of time, traffic and forgeries for the sites of a session: whatever the
/// order, nothing panics and every bound holds; and as long as nothing was forged, all sites see the inputs that were
/// given, and go on when they can.
pub fn session(data: &[u8]) {
    SessionHarness::run_script(&Script::decode(data));
}

/// Takes `data` as a script for a feed and one who watches it: whatever the bytes between them, nothing panics and every
/// bound holds; and as long as nothing was forged, what is seen is what was played.
pub fn feed(data: &[u8]) {
    feed::check(data);
}

/// Takes `data` as a recording, and as blocks of one: reading it must never panic, and it does not matter in which pieces it
/// comes.
pub fn movie(data: &[u8]) {
    movie::check(data);
}

/// Takes `data` as a script for a maze without a server, and for a server and its player: whatever somebody among them says, nothing
/// panics and every bound holds; and as long as no server lies, who plays is in.
pub fn worlds(data: &[u8]) {
    worlds::check(data);
}

/// One packet of each flavour that is on the wire while a script plays.
pub fn sample_packets(script: &Script) -> Vec<Vec<u8>> {
    SessionHarness::run_script(script).into_sample_packets()
}
