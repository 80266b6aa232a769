//! The other process: does what it is told by lines on its input, and answers by lines on its output.
//!
//! A core may print whatever it likes to that output, at any time. So an answer begins with a new line and a [`MARK`], and the rest
//! is nobody's business.
//!
//! | asked | answered |
//! |---|---|
//! | (to begin with) | `ready VERSION IDENTITY HASH`, or `failed WHY` |
//! | `step FRESH WORD…` | `look HASH PICTURE` |
//! | `load BYTES`, then the state | `loaded`, or `refused WHY` |
//! | `regions` | `region BYTES PAGES NAME` each, then `end` |
//!
//! Numbers are hexadecimal, but for lengths. It ends when its input does.

use std::io::{self, BufRead, Read, Write};

use coplay::input::InputWord;

use super::VERSION;
use super::digest::{Look, Region, regions};
use super::report::key_of;
use crate::machine::Machine;

/// What an answer begins with.
pub(super) const MARK: &str = "coplay-check: ";
/// The longest state that is taken.
const MAX_STATE: u64 = 256 << 20;

/// Serves a check that runs in the process which has started this one, and gives an exit code: what a program does that was started by the
/// command of a [`Subject`](super::Subject).
pub fn child(open: impl FnOnce() -> Result<Box<dyn Machine>, String>) -> u8 {
    let (input, output) = (io::stdin().lock(), io::stdout());
    match serve(open, input, output) {
        Ok(()) => 0,
        // Who asked has gone.
        Err(_) => 1,
    }
}

fn serve(
    open: impl FnOnce() -> Result<Box<dyn Machine>, String>,
    mut input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    let mut machine = match open() {
        Ok(machine) => machine,
        Err(why) => return answer(&mut output, &format!("failed {}", one_line(&why))),
    };
    let key = key_of(&*machine);
    answer(&mut output, &format!("ready {VERSION} {key} {:x}", machine.hash()))?;
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
                let Look { hash, picture } = Look::at(&mut *machine);
                answer(&mut output, &format!("look {hash:x} {picture:x}"))?;
            }
            Some("load") => {
                let len = parts.next().and_then(|len| len.parse().ok()).unwrap_or(0u64).min(MAX_STATE);
                state.clear();
                input.by_ref().take(len).read_to_end(&mut state)?;
                match machine.load(&state) {
                    Ok(()) => answer(&mut output, "loaded")?,
                    Err(error) => answer(&mut output, &format!("refused {}", one_line(&error.to_string())))?,
                }
            }
            Some("regions") => {
                for region in regions(&mut *machine) {
                    answer(&mut output, &region_line(&region))?;
                }
                answer(&mut output, "end")?;
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

fn answer(output: &mut impl Write, text: &str) -> io::Result<()> {
    output.write_all(format!("\n{MARK}{text}\n").as_bytes())?;
    output.flush()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn region_line(region: &Region) -> String {
    let pages: String = region.pages.iter().map(|page| format!("{page:08x}")).collect();
    format!("region {} {} {}", region.len, if pages.is_empty() { "-" } else { &pages }, one_line(&region.name))
}

/// What [`region_line`] made.
pub(super) fn region(rest: &str) -> Option<Region> {
    let mut parts = rest.splitn(3, ' ');
    let len = parts.next()?.parse().ok()?;
    let pages = parts.next()?.trim_matches('-').as_bytes().chunks(8);
    let page = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let pages = pages.map(page).collect::<Option<_>>()?;
    Some(Region { name: parts.next()?.to_owned(), len, pages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_travel() {
        for (name, pages) in [("work ram", vec![1, u32::MAX, 3]), ("none", Vec::new())] {
            let sent = Region { name: name.into(), len: pages.len() as u64 * 256, pages };
            assert_eq!(region(region_line(&sent).strip_prefix("region ").unwrap()), Some(sent));
        }
        assert!(["", "1", "1 zz name", "x 00 name", "1 00"].iter().all(|line| region(line).is_none()));
    }

    #[test]
    fn who_cannot_open_says_why_in_one_line() {
        let mut output = Vec::new();
        serve(|| Err("no such\ngame".into()), io::empty(), &mut output).unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), format!("\n{MARK}failed no such game\n"));
    }
}
