//! libFuzzer entry point of [`coplay_fuzz::wire`]; built and run by `make fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| coplay_fuzz::wire(data));
