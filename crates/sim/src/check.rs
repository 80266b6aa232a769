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
    /// Sites that are not there when the game starts.
    pub late: Vec<bool>,
    /// What each site did, from one start of its program to the next.
    lives: Vec<Vec<Life>>,
    /// How many frames each site is certain of, counted from the first of the game.
    pub frames: Vec<usize>,
    /// Frames that the sites are certain of, over all of them.
    pub confirmed: u64,
    /// A hash of all that happened.
    pub trace: u64,
    /// What went wrong, first things first.
    pub violations: Vec<Violation>,
}

/// What a site did from one start of its program to the next.
#[derive(Debug, Default)]
struct Life {
    /// The first frame that it stepped.
    first: usize,
    /// The inputs of each frame, all players' words side by side, and the state after it.
    words: Vec<Word>,
    hashes: Vec<u64>,
    /// The frame with which it took its seat in a running game.
    joined: Option<usize>,
    /// The first frame that it promised an input for, and the inputs.
    promised_first: Option<usize>,
    promised: Vec<Word>,
    /// The first frame for which it, having left, makes no input.
    left: Option<usize>,
    /// The first frame for which the others, having dropped it, take none.
    dropped: Option<usize>,
    /// Its state is another from this frame on, which is known.
    astray: Option<usize>,
    /// It died.
    crashed: bool,
    /// The sites that it told to be dropped.
    told: Vec<usize>,
}

impl Life {
    /// The words and the state of a frame that all others must have, too.
    fn frame(&self, frame: usize, players: usize) -> Option<(&[Word], u64)> {
        let at = frame.checked_sub(self.first)?;
        let hash = *self.hashes.get(at)?;
        Some((&self.words[at * players..(at + 1) * players], hash))
    }

    fn end(&self) -> Option<usize> {
        self.left.into_iter().chain(self.dropped).min()
    }
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
            late: Vec::new(),
            lives: (0..sites).map(|_| vec![Life::default()]).collect(),
            frames: vec![0; sites],
            confirmed: 0,
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

    fn life(&mut self, site: usize) -> &mut Life {
        self.lives[site].last_mut().expect("every site has a life")
    }

    /// A site's player made an input, which the site promised to be in this frame.
    pub fn on_promise(&mut self, site: usize, frame: u32, words: &[Word]) {
        let (players, newborn, lag) = (self.players, self.lives[site].len() == 1, self.lag);
        let owned: Vec<Word> = words.iter().zip(&self.masks[site]).map(|(word, mask)| word & mask).collect();
        let life = self.life(site);
        let frame = frame as usize;
        let first = *life.promised_first.get_or_insert(frame);
        let expected = first + life.promised.len() / players;
        life.promised.extend(owned);
        if frame != expected || newborn && first != lag {
            self.violate("fidelity", format!("site {site} promised frame {frame} and not {expected}"));
        }
    }

    /// A site left; from what it promised last on, it makes no input.
    pub fn on_leave(&mut self, site: usize) {
        let (players, lag) = (self.players, self.lag);
        let life = self.life(site);
        life.left = Some(life.promised_first.unwrap_or(lag) + life.promised.len() / players);
    }

    /// A site told that another one was dropped with a frame. All who tell must tell the same.
    pub fn on_drop(&mut self, teller: usize, site: usize, frame: u32) {
        self.life(teller).told.push(site);
        // It may have come back by now; then it is about an earlier life.
        let meant = |life: &Life| life.joined.or(life.promised_first).is_some_and(|first| first <= frame as usize);
        let at = self.lives[site].iter().rposition(meant).unwrap_or(0);
        let life = &mut self.lives[site][at];
        let told = *life.dropped.get_or_insert(frame as usize);
        if told != frame as usize {
            let what = format!("site {teller} dropped site {site} with frame {frame}, another one with {told}");
            self.violate("agreement", what);
        }
    }

    /// A site told that another one took its seat with a frame. All who tell must tell the same.
    pub fn on_join(&mut self, teller: usize, site: usize, frame: u32) {
        let frame = frame as usize;
        let known = self.lives[site].iter().any(|life| life.joined == Some(frame));
        let newcomer = self.lives[site].last_mut().filter(|life| life.joined.is_none());
        match newcomer {
            _ if known => {}
            Some(life) => life.joined = Some(frame),
            None => self
                .violate("agreement", format!("site {teller} let site {site} in with frame {frame}, others did not")),
        }
    }

    /// A site's state is made to be another from this frame on.
    pub fn on_astray(&mut self, site: usize, frame: u32) {
        self.life(site).astray = Some(frame as usize);
    }

    /// A site died.
    pub fn on_crash(&mut self, site: usize) {
        self.life(site).crashed = true;
    }

    /// Whether the others have dropped a site.
    pub fn is_dropped(&self, site: usize) -> bool {
        self.lives[site].last().is_some_and(|life| life.dropped.is_some())
    }

    /// From which frame on it does not count what a site did that is not among the others any more: what they decided without it.
    fn counts_until(&self, site: usize, life: &Life) -> usize {
        if life.left.is_none() && life.dropped.is_none() && !life.crashed {
            return usize::MAX;
        }
        let others = self.lives.iter().enumerate().filter(|(other, _)| *other != site && !life.told.contains(other));
        let dropped = others.flat_map(|(_, lives)| lives).filter_map(|other| other.dropped);
        dropped.chain(life.dropped).min().unwrap_or(usize::MAX)
    }

    /// A site's program was started anew.
    pub fn on_restart(&mut self, site: usize) {
        self.lives[site].push(Life::default());
        self.frames[site] = 0;
    }

    /// A site stepped its machine, perhaps with guessed inputs.
    pub fn on_any_step(&mut self, site: usize, frame: u32, at_ns: i64) {
        self.trace = mix(mix(self.trace, site as u64 + u64::from(frame) * 8), at_ns as u64);
    }

    /// A site will not step a frame again: these were its inputs, and this is the state after it.
    pub fn on_confirmed(&mut self, site: usize, frame: u32, words: &[Word], hash: u64) {
        let frame = frame as usize;
        self.trace = words.iter().fold(mix(self.trace, hash), |trace, word| mix(trace, *word as u64));
        self.confirmed += 1;
        self.frames[site] = frame + 1;
        let life = self.life(site);
        if life.hashes.is_empty() {
            life.first = frame;
        }
        let expected = life.first + life.hashes.len();
        life.words.extend_from_slice(words);
        life.hashes.push(hash);
        if frame != expected {
            self.violate("agreement", format!("site {site} is certain of frame {frame} and not {expected}"));
        }
    }

    /// Everything that went wrong: what was noted, and what comparing everything with everything shows.
    pub fn verdict(&self) -> Vec<Violation> {
        let mut found = self.violations.clone();
        for frame in 0..self.frames.iter().copied().max().unwrap_or(0) {
            self.check_frame(frame, &mut found);
            if found.len() >= MAX_VIOLATIONS {
                break;
            }
        }
        found
    }

    fn check_frame(&self, frame: usize, broken: &mut Vec<Violation>) {
        let lives = self.lives.iter().enumerate().flat_map(|(site, lives)| lives.iter().map(move |life| (site, life)));
        let counts = |(site, life): &(usize, &Life)| frame < self.counts_until(*site, life);
        let sane = |(_, life): &(usize, &Life)| life.astray.is_none_or(|since| frame < since);
        let counting = lives.filter(counts).filter(sane);
        let mut known = counting.filter_map(|(site, life)| life.frame(frame, self.players).map(|told| (site, told)));
        let Some((first, (words, hash))) = known.next() else { return };
        for (site, (other_words, other_hash)) in known {
            if other_words != words {
                broken.push(Violation {
                    promise: "agreement",
                    what: format!("sites {first} and {site} stepped frame {frame} with different inputs"),
                });
            } else if other_hash != hash {
                broken.push(Violation {
                    promise: "agreement",
                    what: format!("sites {first} and {site} have different states after frame {frame}"),
                });
            }
        }
        self.check_fidelity(frame, words, broken);
    }

    fn check_fidelity(&self, frame: usize, words: &[Word], broken: &mut Vec<Violation>) {
        let mut unowned: Vec<Word> = words.to_vec();
        for (site, masks) in self.masks.iter().enumerate() {
            for (player, mask) in masks.iter().enumerate() {
                unowned[player] &= !mask;
                if Some(words[player] & mask) != self.promise(site, frame, player) {
                    broken.push(Violation {
                        promise: "fidelity",
                        what: format!("frame {frame} does not have what site {site} promised for it"),
                    });
                }
            }
        }
        if unowned.iter().any(|bits| *bits != 0) {
            broken.push(Violation { promise: "fidelity", what: format!("frame {frame} has bits that nobody owns") });
        }
    }

    /// The input that must be in a frame, or `None` if there must not be such a frame yet.
    fn promise(&self, site: usize, frame: usize, player: usize) -> Option<Word> {
        let begun = |life: &&Life| life.promised_first.is_some_and(|first| first <= frame);
        let Some(life) = self.lives[site].iter().rev().find(begun) else {
            let awaited = frame >= self.lag && self.lives[site].len() == 1 && self.lives[site][0].end().is_none();
            return (!awaited || !self.starts(site)).then_some(0);
        };
        if life.end().is_some_and(|end| frame >= end) {
            return Some(0);
        }
        let at = frame - life.promised_first.unwrap_or_default();
        life.promised.get(at * self.players + player).copied()
    }

    /// Whether a site is waited for from the first frame on.
    fn starts(&self, site: usize) -> bool {
        !self.late.get(site).copied().unwrap_or(false)
    }
}
