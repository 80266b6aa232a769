//! libFuzzer's way into [`coplay_fuzz::session_corpus_replays`]; built and run by `make fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| coplay_fuzz::session(data));
