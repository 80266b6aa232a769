//! What a fuzzer may do to the engines: one function per target, each total on any bytes.
//!
//! A function returns when all is well and panics when a promise is broken. `make fuzz` looks for bytes that make it
//! panic; `tests/corpus.rs` replays the corpus, and so every finding that was added to it, in each `make test`.

/// Takes `data` as one datagram from a stranger: decoding it must never panic, and what decodes must survive being
/// encoded again.
pub fn wire(data: &[u8]) {
    let _ = data;
}

/// Takes `data` as a script of datagrams, timeouts and inputs for a session: whatever the order, nothing panics and
/// every bound holds.
pub fn session(data: &[u8]) {
    let _ = data;
}
