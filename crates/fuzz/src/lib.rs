//! Fuzz targets for the engines: one function per target, each of which accepts any bytes.
//!
//! A target returns if every invariant holds and panics otherwise. `make fuzz` searches for bytes that make a target
//! panic. `tests/corpus.rs` replays the corpus in each `make test`, and with it every finding that was added.
//! `cargo run -p coplay-fuzz --example seeds` writes the generated part of the corpus.

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

/// Decodes `data` as one datagram from a stranger, and as fragments of inputs. Decoding must never panic, and a decoded
/// message, except one of a mirror, must survive another round of encoding and decoding.
pub fn wire(data: &[u8]) {
    wire::check_message(data);
    wire::check_streams(data);
}

/// Runs `data` as a [script](script::Script) of time, traffic and forgeries for the sites of a session. Whatever the
/// script does, no session may panic or exceed a bound. Without a forgery, all sites step with the inputs that were
/// given, and continue when they can.
pub fn session(data: &[u8]) {
    SessionHarness::run_script(&Script::decode(data));
}

/// Runs `data` as a script for a spectator feed and one spectator. Whatever bytes the script sends between them,
/// neither may panic or exceed a bound. Without a forgery, the spectator gets no frame with inputs other than those
/// played.
pub fn feed(data: &[u8]) {
    feed::check(data);
}

/// Reads `data` as a movie, and as blocks of one. Reading must never panic, and its result must not depend on the size
/// of the chunks that the reader receives.
pub fn movie(data: &[u8]) {
    movie::check(data);
}

/// Runs `data` as a script for a peer world, and for a world server with its player. Whatever a hostile participant
/// sends, no engine may panic or exceed a bound. As long as no server message is forged, an honest player is admitted.
pub fn worlds(data: &[u8]) {
    worlds::check(data);
}

/// Runs a script and returns up to 64 packets that its sites sent to each other: from each site, the first packet of
/// each flavor. The first byte of a packet and, for a hello, its flags determine the flavor.
pub fn sample_packets(script: &Script) -> Vec<Vec<u8>> {
    SessionHarness::run_script(script).into_sample_packets()
}
