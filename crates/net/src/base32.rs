//! Bytes as text that people can read aloud: base32 with letters and the digits 2 to 7, case-insensitive, without
//! padding.

use data_encoding::BASE32_NOPAD_NOCASE;

pub(crate) fn encode(bytes: &[u8]) -> String {
    BASE32_NOPAD_NOCASE.encode(bytes).to_ascii_lowercase()
}

pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    BASE32_NOPAD_NOCASE.decode(text.as_bytes()).ok()
}
