//! The child process: reads requests as lines from its input, executes them, and answers with lines on its output.
//!
//! A core may print anything to that output at any time. So an answer begins on a new line, with [`ANSWER_PREFIX`], and
//! the parent ignores all other output.
//!
//! | request | answer |
//! |---|---|
//! | (at start) | `ready VERSION IDENTITY HASH`, or `failed REASON` |
//! | `step FRESH WORD…` | `look HASH PICTURE` |
//! | `load BYTES`, then the state | `loaded`, or `refused REASON` |
//! | `regions` | `region BYTES PAGES NAME` for each region, then `end` |
//!
//! Hashes and input words are hexadecimal, other numbers decimal. The process ends if the machine cannot be opened,
//! when its input ends, or after an invalid request.

use std::io::{self, BufRead, Read, Write};

use coplay::input::InputWord;

use super::CHECK_VERSION;
use super::digest::{MachineDigest, RegionDigest, region_digests};
use super::report::identity_key;
use crate::machine::Machine;

/// Prefix that distinguishes an answer from other output of the child process.
pub(super) const ANSWER_PREFIX: &str = "coplay-check: ";
/// Maximum length of the state in a `load` request, in bytes.
const MAX_STATE_BYTES: u64 = 256 << 20;

/// Opens a machine, executes the requests of a check that runs in the parent process, and returns the exit code. A
/// program that was started by the [`child_command`](super::CheckSubject::child_command) of a subject calls this
/// function.
pub fn run_child(open: impl FnOnce() -> Result<Box<dyn Machine>, String>) -> u8 {
    let (input, output) = (io::stdin().lock(), io::stdout());
    match serve_requests(open, input, output) {
        Ok(()) => 0,
        // The parent process is gone, or it sent an invalid request.
        Err(_) => 1,
    }
}

fn serve_requests(
    open: impl FnOnce() -> Result<Box<dyn Machine>, String>,
    mut input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    let mut machine = match open() {
        Ok(machine) => machine,
        Err(reason) => return write_answer(&mut output, &format!("failed {}", to_one_line(&reason))),
    };
    let key = identity_key(&*machine);
    write_answer(&mut output, &format!("ready {CHECK_VERSION} {key} {:x}", machine.hash()))?;
    let (mut line, mut words, mut state) = (String::new(), Vec::new(), Vec::new());
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut parts = line.split_ascii_whitespace();
        match parts.next() {
            Some("step") => {
                let fresh = parts.next() == Some("1");
                words.clear();
                words.extend(parts.filter_map(|word| InputWord::from_str_radix(word, 16).ok()));
                machine.step(&words, fresh);
                let MachineDigest { state_hash: hash, picture_hash: picture } =
                    MachineDigest::of_machine(&mut *machine);
                write_answer(&mut output, &format!("look {hash:x} {picture:x}"))?;
            }
            Some("load") => {
                let len = parts.next().and_then(|len| len.parse().ok()).unwrap_or(0u64).min(MAX_STATE_BYTES);
                state.clear();
                input.by_ref().take(len).read_to_end(&mut state)?;
                match machine.load(&state) {
                    Ok(()) => write_answer(&mut output, "loaded")?,
                    Err(error) => write_answer(&mut output, &format!("refused {}", to_one_line(&error.to_string())))?,
                }
            }
            Some("regions") => {
                for region in region_digests(&mut *machine) {
                    write_answer(&mut output, &encode_region(&region))?;
                }
                write_answer(&mut output, "end")?;
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

fn write_answer(output: &mut impl Write, text: &str) -> io::Result<()> {
    output.write_all(format!("\n{ANSWER_PREFIX}{text}\n").as_bytes())?;
    output.flush()
}

fn to_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn encode_region(region: &RegionDigest) -> String {
    let pages: String = region.page_hashes.iter().map(|page| format!("{page:08x}")).collect();
    format!("region {} {} {}", region.len, if pages.is_empty() { "-" } else { &pages }, to_one_line(&region.name))
}

/// Decodes an answer of [`encode_region`] without its first word; `None` if it is invalid.
pub(super) fn decode_region(rest: &str) -> Option<RegionDigest> {
    let mut parts = rest.splitn(3, ' ');
    let len = parts.next()?.parse().ok()?;
    let pages = parts.next()?.trim_matches('-').as_bytes().chunks(8);
    let page = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let pages = pages.map(page).collect::<Option<_>>()?;
    Some(RegionDigest { name: parts.next()?.to_owned(), len, page_hashes: pages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_encoding_round_trips() {
        for (name, pages) in [("work ram", vec![1, u32::MAX, 3]), ("none", Vec::new())] {
            let sent = RegionDigest { name: name.into(), len: pages.len() as u64 * 256, page_hashes: pages };
            assert_eq!(decode_region(encode_region(&sent).strip_prefix("region ").unwrap()), Some(sent));
        }
        assert!(["", "1", "1 zz name", "x 00 name", "1 00"].iter().all(|line| decode_region(line).is_none()));
    }

    #[test]
    fn open_failure_is_answered_in_one_line() {
        let mut output = Vec::new();
        serve_requests(|| Err("no such\ngame".into()), io::empty(), &mut output).unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), format!("\n{ANSWER_PREFIX}failed no such game\n"));
    }
}
