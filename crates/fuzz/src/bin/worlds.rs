//! libFuzzer's way into [`coplay_fuzz::worlds_corpus_replays`]; built and run by `make fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| coplay_fuzz::worlds(data));
