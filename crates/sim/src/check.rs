//! Checkers that know nothing of the engines: they see what people and machines at the sites see, and what the network carries.
//!
//! - *Agreement*: every site steps the same frames, in order, once each, with the same inputs, into the same states.
//! - *Fidelity*: an input takes effect in exactly the frame it was promised for; no input appears that nobody made.
//! - *Bounds*: no datagram is too long, no link is flooded.
//!
//! Liveness needs to know the links and the faults; it is judged by whoever made them ([`scenario`](crate::scenario)).

use std::fmt;

use coplay::input::Word;

use crate::toy::mix;

/// What was promised and what came of it, for all sites of one session.
#[derive(Debug)]
pub struct Ledger {
    players: usize,
    /// The bits of each player's word that a site owns, by site and player.
    masks: Vec<Vec<Word>>,
    lag: usize,
    /// The inputs promised by each site, from frame `lag` on, all players' words of a frame side by side.
    promised: Vec<Vec<Word>>,
    /// The first frame for which a site, having left, makes no input.
    left: Vec<Option<usize>>,
    /// The inputs of each frame as the first site to step it had them.
    stepped: Vec<Word>,
    hashes: Vec<u64>,
    /// How many frames each site has stepped.
    pub frames: Vec<usize>,
    /// A hash of all that happened.
    pub trace: u64,
    /// What went wrong, first things first.
    pub violations: Vec<Violation>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise: `agreement`, `fidelity`, `liveness` or `bounds`.
    pub promise: &'static str,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

/// One broken promise tends to break many; this many are kept.
const MAX_VIOLATIONS: usize = 16;

impl Ledger {
    /// A ledger for sites that own these bits (by site and player) and promise inputs `lag` frames ahead.
    pub fn new(masks: Vec<Vec<Word>>, lag: u32) -> Self {
        let sites = masks.len();
        Self {
            players: masks.first().map_or(0, Vec::len),
            masks,
            lag: lag as usize,
            promised: vec![Vec::new(); sites],
            left: vec![None; sites],
            stepped: Vec::new(),
            hashes: Vec::new(),
            frames: vec![0; sites],
            trace: 0,
            violations: Vec::new(),
        }
    }

    /// Notes a broken promise.
    pub fn violate(&mut self, promise: &'static str, what: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { promise, what });
        }
    }

    /// A site's player made an input, which the site promised to be in this frame.
    pub fn on_promise(&mut self, site: usize, frame: u32, words: &[Word]) {
        let expected = self.lag + self.promised[site].len() / self.players;
        if frame as usize != expected {
            self.violate("fidelity", format!("site {site} promised frame {frame} and not {expected}"));
        }
        let owned = words.iter().zip(&self.masks[site]).map(|(word, mask)| word & mask);
        self.promised[site].extend(owned);
    }

    /// A site left; from what it promised last on, it makes no input.
    pub fn on_leave(&mut self, site: usize) {
        self.left[site] = Some(self.lag + self.promised[site].len() / self.players);
    }

    /// A site stepped its machine, perhaps with guessed inputs.
    pub fn on_any_step(&mut self, site: usize, frame: u32, at_ns: i64) {
        self.trace = mix(mix(self.trace, site as u64 + u64::from(frame) * 8), at_ns as u64);
    }

    /// A site will not step a frame again.
    pub fn on_step(&mut self, site: usize, frame: u32, words: &[Word], at_ns: i64) {
        let frame = frame as usize;
        if frame != self.frames[site] {
            self.violate("agreement", format!("site {site} stepped frame {frame} and not {}", self.frames[site]));
        }
        self.frames[site] = frame + 1;
        self.trace = mix(mix(self.trace, (site + frame * 8) as u64), at_ns as u64);
        let place = frame * self.players;
        if place == self.stepped.len() {
            self.stepped.extend_from_slice(words);
            self.trace = words.iter().fold(self.trace, |hash, word| mix(mix(hash, *word as u64), (*word >> 64) as u64));
            self.check_fidelity(frame, words);
        } else if self.stepped.get(place..place + self.players) != Some(words) {
            self.violate("agreement", format!("site {site} stepped frame {frame} with other inputs than another site"));
        }
    }

    fn check_fidelity(&mut self, frame: usize, words: &[Word]) {
        let mut unowned: Vec<Word> = words.to_vec();
        for site in 0..self.masks.len() {
            for player in 0..self.players {
                let mask = self.masks[site][player];
                unowned[player] &= !mask;
                if Some(words[player] & mask) != self.promise(site, frame, player) {
                    self.violate("fidelity", format!("frame {frame} does not have what site {site} promised for it"));
                }
            }
        }
        if unowned.iter().any(|bits| *bits != 0) {
            self.violate("fidelity", format!("frame {frame} has bits that nobody owns"));
        }
    }

    /// The input that must be in a frame, or `None` if there must not be such a frame yet.
    fn promise(&self, site: usize, frame: usize, player: usize) -> Option<Word> {
        if frame < self.lag || self.left[site].is_some_and(|left| frame >= left) {
            return Some(0);
        }
        self.promised[site].get((frame - self.lag) * self.players + player).copied()
    }

    /// The state after the frame that a site stepped last.
    pub fn on_state(&mut self, site: usize, hash: u64) {
        let Some(frame) = self.frames[site].checked_sub(1) else { return };
        if frame == self.hashes.len() {
            self.hashes.push(hash);
        } else if self.hashes.get(frame) != Some(&hash) {
            self.violate("agreement", format!("site {site} has another state after frame {frame} than another site"));
        }
    }
}
