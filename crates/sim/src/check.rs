//! Checkers that know nothing of the engines: they see what people and machines at the sites see, and what the network carries.
//!
//! - *Agreement*: every site steps the same frames, in order, once each, with the same inputs, into the same states.
//! - *Fidelity*: an input takes effect in exactly the frame it was promised for; no input appears that nobody made.
//! - *Watching*: whoever watches sees frames that a site was certain of, with their inputs, and has their states.
//! - *Bounds*: no datagram is too long, no link is flooded.
//!
//! Liveness needs to know the links and the faults; it is judged by whoever made them ([`scenario`](crate::scenario)).

use std::collections::BTreeSet;
use std::fmt;

use coplay::input::InputWord;
use coplay::session::AbsentInput;

use crate::toy::mix;

/// What was promised and what came of it, for all sites of one session.
#[derive(Debug)]
pub struct Ledger {
    players: usize,
    /// The bits of each player's word that a site owns, by site and player.
    masks: Vec<Vec<InputWord>>,
    lag: usize,
    /// How many frames lag and window are together.
    pub reach: usize,
    /// What is done for sites that were dropped.
    pub absent: AbsentInput,
    /// Sites that are not there when the game starts.
    pub late: Vec<bool>,
    /// What each site did, from one start of its program to the next.
    lives: Vec<Vec<Life>>,
    /// What each of those who watch saw, from one state that it began with to the next.
    watched: Vec<Vec<Watched>>,
    /// How many frames each site is certain of, counted from the first of the game.
    pub frames: Vec<usize>,
    /// Frames that the sites are certain of, over all of them.
    pub confirmed: u64,
    /// Frames that those who watch saw, over all of them.
    pub seen: u64,
    /// Frames that were read back from a movie.
    pub recorded: u64,
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
    words: Vec<InputWord>,
    hashes: Vec<u64>,
    /// The frame with which it took its seat in a running game, and whether another site told that.
    joined: Option<usize>,
    let_in: bool,
    /// The first frame that it promised an input for, and the inputs.
    promised_first: Option<usize>,
    promised: Vec<InputWord>,
    /// The first frame for which it, having left, makes no input.
    left: Option<usize>,
    /// The first frame for which the others, having dropped it, take none; and who did, in which of their lives.
    dropped: Option<usize>,
    dropped_by: Vec<(usize, usize)>,
    /// Those of them who told an earlier frame later on, because the sites that had its last inputs are gone, too; and that frame.
    shortened_by: Vec<(usize, usize)>,
    shortened: Option<usize>,
    /// The same of an earlier time, of which nothing came because all who told it are dead.
    void_drop: Option<usize>,
    /// Its state is another from this frame on, which is known.
    astray: Option<usize>,
    /// It died.
    crashed: bool,
    /// It was told that the game goes on without it.
    refused: bool,
    /// The sites that it told to be dropped.
    told: Vec<usize>,
}

impl Life {
    /// The words and the state of a frame that all others must have, too.
    fn frame(&self, frame: usize, players: usize) -> Option<(&[InputWord], u64)> {
        let at = frame.checked_sub(self.first)?;
        let hash = *self.hashes.get(at)?;
        Some((&self.words[at * players..(at + 1) * players], hash))
    }

    /// The first frame for which it makes no input, having left: not before its first.
    fn left(&self) -> Option<usize> {
        self.left.map(|left| left.max(self.joined.unwrap_or(0)))
    }

    /// The frame after the last that it is certain of.
    fn certain(&self) -> usize {
        self.first + self.hashes.len()
    }
}

/// What somebody who watches saw.
#[derive(Debug, Default)]
struct Watched {
    first: usize,
    /// The hash of the state that it began with.
    before: u64,
    words: Vec<InputWord>,
    hashes: Vec<u64>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise: `agreement`, `fidelity`, `watching`, `divergence`, `liveness` or `bounds`.
    pub promise: &'static str,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

/// Frames for which somebody who was dropped may still hear those who go on without him.
const UNTIL_TOLD: usize = 150;
/// One broken promise tends to break many; this many are kept.
const MAX_VIOLATIONS: usize = 16;

impl Ledger {
    /// A ledger for sites that own these bits (by site and player) and promise inputs `lag` frames ahead.
    pub fn new(masks: Vec<Vec<InputWord>>, lag: u32) -> Self {
        let sites = masks.len();
        Self {
            players: masks.first().map_or(0, Vec::len),
            masks,
            lag: lag as usize,
            reach: lag as usize,
            absent: AbsentInput::Nothing,
            late: Vec::new(),
            lives: (0..sites).map(|_| vec![Life::default()]).collect(),
            watched: Vec::new(),
            frames: vec![0; sites],
            confirmed: 0,
            seen: 0,
            recorded: 0,
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
    pub fn on_promise(&mut self, site: usize, frame: u32, words: &[InputWord]) {
        let (players, newborn, lag) = (self.players, self.lives[site].len() == 1, self.lag);
        let owned: Vec<InputWord> = words.iter().zip(&self.masks[site]).map(|(word, mask)| word & mask).collect();
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
        let teller_life = self.lives[teller].len() - 1;
        let void = self.is_void(&self.lives[site][at]);
        let life = &mut self.lives[site][at];
        if void {
            life.void_drop = life.dropped.take();
            life.dropped_by.clear();
        }
        if life.dropped_by.contains(&(teller, teller_life)) && life.dropped.is_some_and(|told| (frame as usize) < told)
        {
            life.shortened_by.push((teller, teller_life));
            let told = *life.shortened.get_or_insert(frame as usize);
            if told != frame as usize {
                let what = format!("site {teller} shortened site {site} to frame {frame}, another one to {told}");
                self.violate("agreement", what);
            }
            return;
        }
        life.dropped_by.push((teller, teller_life));
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
        let others = self.lives[site].iter_mut().filter(|life| teller != site && life.joined == Some(frame));
        others.for_each(|life| life.let_in = true);
        if !known {
            self.tell_lives_apart(site);
        }
        let newcomer = self.lives[site].last_mut().filter(|life| life.joined.is_none());
        match newcomer {
            _ if known => {}
            Some(life) => (life.joined, life.let_in) = (Some(frame), teller != site),
            None => self
                .violate("agreement", format!("site {teller} let site {site} in with frame {frame}, others did not")),
        }
    }

    /// A site that died on its way in may be let in nevertheless, which is told when it is on its way again. If another frame follows,
    /// the first one was for the one who died.
    fn tell_lives_apart(&mut self, site: usize) {
        let [.., before, last] = &mut self.lives[site][..] else { return };
        if before.crashed && before.joined.is_none() && before.promised_first.is_none() && last.promised_first.is_none()
        {
            (before.joined, before.let_in) = (last.joined.take(), last.let_in);
            before.dropped = last.dropped.take();
            before.dropped_by = std::mem::take(&mut last.dropped_by);
            before.shortened = last.shortened.take();
            before.shortened_by = std::mem::take(&mut last.shortened_by);
        }
    }

    /// Whether it does not count that the others dropped a site: they are all dead, and it dropped them.
    fn is_void(&self, life: &Life) -> bool {
        let gone =
            |(teller, number): &(usize, usize)| self.lives[*teller][*number].crashed && life.told.contains(teller);
        life.dropped_by.iter().all(gone)
    }

    /// The first frame for which the others, having dropped a site, take none of its inputs.
    fn dropped(&self, life: &Life) -> Option<usize> {
        life.shortened.or(life.dropped).filter(|_| !self.is_void(life))
    }

    /// The first frame for which nobody takes a site's inputs. Who leaves before its first frame leaves with that.
    fn end(&self, life: &Life) -> Option<usize> {
        life.left().into_iter().chain(self.dropped(life)).min()
    }

    /// A site's state is made to be another from this frame on.
    pub fn on_astray(&mut self, site: usize, frame: u32) {
        self.life(site).astray = Some(frame as usize);
    }

    /// A site died.
    pub fn on_crash(&mut self, site: usize) {
        self.life(site).crashed = true;
    }

    /// A site was told that the game goes on without it, and stopped.
    pub fn on_refused(&mut self, site: usize) {
        self.life(site).refused = true;
    }

    /// Whether the others have dropped a site.
    pub fn is_dropped(&self, site: usize) -> bool {
        self.lives[site].last().is_some_and(|life| self.dropped(life).is_some())
    }

    /// Whether a site was let in to a running game at any time.
    pub fn has_joined(&self, site: usize) -> bool {
        self.lives[site].iter().any(|life| life.joined.is_some())
    }

    /// Whether a site, in its newest life, told that another one was dropped.
    pub fn has_told_drop(&self, teller: usize, site: usize) -> bool {
        self.lives[teller].last().is_some_and(|life| life.told.contains(&site))
    }

    /// Whether the others have dropped a site at any time.
    pub fn was_dropped(&self, site: usize) -> bool {
        self.lives[site].iter().any(|life| life.dropped.is_some())
    }

    /// From which frame on it does not count what a site did that is not among the others any more: what they decided without it.
    fn counts_until(&self, site: usize, life: &Life) -> usize {
        // A refused site may never have played: its coordinator died before any other site heard of the order.
        if life.left.is_none() && self.dropped(life).is_none() && !life.crashed && !life.refused {
            return usize::MAX;
        }
        let others = self.lives.iter().enumerate().filter(|(other, _)| *other != site);
        let others = others.flat_map(|(other, lives)| lives.iter().map(move |life| (other, life)));
        let number = self.lives[site].iter().position(|known| std::ptr::eq(known, life)).unwrap_or(0);
        let without = |other: &Life| other.shortened.is_some() && !other.shortened_by.contains(&(site, number));
        let dropped = others.filter_map(|(other, of_other)| match life.told.contains(&other) && !without(of_other) {
            // What it decided alone, before it died, came to nothing.
            true => {
                let void = of_other.dropped.filter(|_| self.is_void(of_other));
                of_other.void_drop.or(void).filter(|_| life.crashed)
            }
            false => self.dropped(of_other),
        });
        dropped.chain(self.dropped(life)).min().unwrap_or(usize::MAX)
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

    /// A site's machine is put into the state before a frame that another site sent. What a site on its way in had before is gone: the
    /// frames may be too old, or those of a game that nobody plays any more.
    pub fn on_restored(&mut self, site: usize, frame: u32) {
        let life = self.life(site);
        if life.promised_first.is_none() {
            (life.first, life.words, life.hashes) = (frame as usize, Vec::new(), Vec::new());
        }
    }

    /// A site will not step a frame again: these were its inputs, and this is the state after it.
    pub fn on_confirmed(&mut self, site: usize, frame: u32, words: &[InputWord], hash: u64) {
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

    /// Somebody who watches begins with the state before a frame, of which this is the hash.
    pub fn on_watch_begins(&mut self, watcher: usize, frame: u32, before: u64) {
        if self.watched.len() <= watcher {
            self.watched.resize_with(watcher + 1, Vec::new);
        }
        self.watched[watcher].push(Watched { first: frame as usize, before, ..Watched::default() });
    }

    /// Somebody who watches stepped a frame with these inputs, and this is the state after it.
    pub fn on_watched(&mut self, watcher: usize, frame: u32, words: &[InputWord], hash: u64) {
        self.trace = mix(mix(self.trace, hash), u64::from(frame));
        self.seen += 1;
        let Some(seen) = self.watched.get_mut(watcher).and_then(|seen| seen.last_mut()) else {
            return self.violate("watching", format!("watcher {watcher} sees frame {frame} without a state"));
        };
        let expected = seen.first + seen.hashes.len();
        seen.words.extend_from_slice(words);
        seen.hashes.push(hash);
        if frame as usize != expected {
            self.violate("watching", format!("watcher {watcher} sees frame {frame} and not {expected}"));
        }
    }

    /// The inputs of a frame that a site was certain of before its program was ever started anew, and the state after it.
    pub fn first_life_frame(&self, site: usize, frame: usize) -> Option<(&[InputWord], u64)> {
        self.lives[site].first().and_then(|life| life.frame(frame, self.players))
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
        self.check_dropped(&mut found);
        self.check_shortened(&mut found);
        self.check_watchers(&mut found);
        found
    }

    /// Who was dropped does not go on: the others stand still until they have decided, and what it hears of them afterwards is not
    /// much. So of a network in two parts at most one does, unless nobody is left who knows of the other.
    fn check_dropped(&self, broken: &mut Vec<Violation>) {
        for (site, lives) in self.lives.iter().enumerate() {
            // Who died after it went on without all who dropped it came back to them, who never heard of it: its game is gone, and
            // theirs goes on.
            let gave_way =
                |life: &Life| life.crashed && life.dropped_by.iter().all(|(teller, _)| life.told.contains(teller));
            let goes_on = |life: &Life| {
                let dropped = self.dropped(life).filter(|_| !gave_way(life))?;
                (life.certain() > dropped + 2 * self.reach + UNTIL_TOLD).then_some((dropped, life.certain()))
            };
            broken.extend(lives.iter().filter_map(goes_on).map(|(dropped, certain)| Violation {
                promise: "agreement",
                what: format!("site {site} was dropped with frame {dropped} and went on to frame {certain}"),
            }));
        }
    }

    /// All sites that go on take the inputs of a dropped site up to the same frame.
    fn check_shortened(&self, broken: &mut Vec<Violation>) {
        for (site, lives) in self.lives.iter().enumerate() {
            for life in lives.iter().filter(|life| life.shortened.is_some()) {
                let goes_on = |(teller, number): &&(usize, usize)| {
                    let teller = &self.lives[*teller][*number];
                    !teller.crashed && teller.left.is_none() && self.dropped(teller).is_none()
                };
                let missed = life.dropped_by.iter().filter(|teller| !life.shortened_by.contains(teller)).find(goes_on);
                broken.extend(missed.map(|(teller, _)| Violation {
                    promise: "agreement",
                    what: format!("site {teller} did not hear that the inputs of site {site} end earlier"),
                }));
            }
        }
    }

    fn check_watchers(&self, broken: &mut Vec<Violation>) {
        let sites = self.lives.iter().enumerate();
        let lives = sites.flat_map(|(site, lives)| lives.iter().map(move |life| (life, self.counts_until(site, life))));
        let lives: Vec<(&Life, usize)> =
            lives.map(|(life, until)| (life, until.min(life.astray.unwrap_or(usize::MAX)))).collect();
        let mut led = Led::new();
        for (watcher, seen) in self.watched.iter().enumerate() {
            let wrong = seen.iter().filter_map(|seen| self.first_wrong(seen, &lives, &mut led)).next();
            broken.extend(wrong.map(|(frame, what)| Violation {
                promise: "watching",
                what: format!("watcher {watcher} has {what} of frame {frame}"),
            }));
        }
    }

    /// The first frame that somebody saw otherwise than any site, and in what. Each life comes with the frame up to which it counts:
    /// who watched a site that the others went on without has another state when it turns to them, and is told. So has who began with
    /// the state of such a one.
    fn first_wrong(&self, seen: &Watched, lives: &[(&Life, usize)], led: &mut Led) -> Option<(usize, &'static str)> {
        let before = seen.first.checked_sub(1).map(|before| (before, seen.before));
        let mut misled = self.is_misled(seen, lives) || before.is_some_and(|before| led.contains(&before));
        for (at, hash) in seen.hashes.iter().enumerate() {
            let frame = seen.first + at;
            let words = &seen.words[at * self.players..(at + 1) * self.players];
            let known = || lives.iter().filter_map(|(life, until)| Some((life.frame(frame, self.players)?, *until)));
            let alike = || known().filter(|((theirs, _), _)| *theirs == words);
            // What is certain, but not told by any site yet, comes last.
            if known().next().is_none() {
                continue;
            }
            if alike().next().is_none() {
                return Some((frame, "other inputs"));
            }
            let mut equal = alike().filter(|((_, theirs), _)| theirs == hash).map(|(_, until)| until).peekable();
            if equal.peek().is_none() && !misled {
                return Some((frame, "another state"));
            }
            misled |= equal.all(|until| frame >= until);
            if misled {
                led.insert((frame, *hash));
            }
        }
        None
    }

    /// Whether somebody began with a state that only those had who do not count any more.
    fn is_misled(&self, seen: &Watched, lives: &[(&Life, usize)]) -> bool {
        let Some(before) = seen.first.checked_sub(1) else { return false };
        let had =
            |(life, _): &&(&Life, usize)| life.frame(before, self.players).is_some_and(|(_, hash)| hash == seen.before);
        let mut had = lives.iter().filter(had).peekable();
        had.peek().is_some() && had.all(|(_, until)| before >= *until)
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

    fn check_fidelity(&self, frame: usize, words: &[InputWord], broken: &mut Vec<Violation>) {
        let mut unowned: Vec<InputWord> = words.to_vec();
        for (site, masks) in self.masks.iter().enumerate() {
            for (player, mask) in masks.iter().enumerate() {
                unowned[player] &= !mask;
                let input = Some(words[player] & mask);
                if [false, true].iter().all(|late| input != self.promise(site, frame, player, *late)) {
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

    /// The input that must be in a frame, or `None` if there must not be such a frame yet. That a site leaves may come too `late` for
    /// those who drop it with the same frame.
    fn promise(&self, site: usize, frame: usize, player: usize, late: bool) -> Option<InputWord> {
        let begun = |life: &&Life| life.joined.or(life.promised_first).is_some_and(|first| first <= frame);
        // Of whom nobody knew that it was let in, no input is taken.
        let begun = |life: &&Life| begun(life) && (!life.refused || life.let_in || life.joined.is_none());
        let Some(life) = self.lives[site].iter().rev().find(begun) else {
            let awaited = frame >= self.lag && self.lives[site].len() == 1 && self.end(&self.lives[site][0]).is_none();
            return (!awaited || !self.starts(site)).then_some(0);
        };
        if let Some(end) = self.end(life).filter(|end| frame >= *end) {
            let dropped = life.shortened.or(life.dropped) == Some(end) && (late || life.left() != Some(end));
            let before = end.checked_sub(1).filter(|_| self.absent == AbsentInput::Repeat && dropped);
            return before.map_or(Some(0), |before| self.promise(site, before, player, late));
        }
        // Who comes late presses nothing at first.
        let Some(at) = life.promised_first.and_then(|first| frame.checked_sub(first)) else { return Some(0) };
        life.promised.get(at * self.players + player).copied()
    }

    /// Whether a site is waited for from the first frame on.
    fn starts(&self, site: usize) -> bool {
        !self.late.get(site).copied().unwrap_or(false)
    }
}

/// States of frames that were seen by those who were misled, and which they may have passed on.
type Led = BTreeSet<(usize, u64)>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sites that are certain of ten frames, the second of which counts only for its first five, and one who watches.
    fn ledger(watched: impl Fn(u32) -> (InputWord, u64)) -> Vec<String> {
        let mut ledger = Ledger::new(vec![vec![0xff], vec![0]], 0);
        for frame in 0..10 {
            ledger.on_promise(0, frame, &[7]);
            ledger.on_promise(1, frame, &[0]);
            ledger.on_confirmed(0, frame, &[7], u64::from(frame));
            ledger.on_confirmed(1, frame, &[7], if frame < 5 { u64::from(frame) } else { 99 });
        }
        ledger.on_astray(1, 5);
        ledger.on_watch_begins(0, 2, 1);
        for frame in 2..12 {
            let (word, hash) = watched(frame);
            ledger.on_watched(0, frame, &[word], hash);
        }
        ledger.verdict().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn who_watches_must_see_what_a_site_did() {
        assert!(ledger(|frame| (7, u64::from(frame))).is_empty());
        assert_eq!(ledger(|frame| (8, u64::from(frame))), ["watching: watcher 0 has other inputs of frame 2"]);
        let late = ledger(|frame| (7, if frame < 8 { u64::from(frame) } else { 1_000 }));
        assert_eq!(late, ["watching: watcher 0 has another state of frame 8"]);
    }

    #[test]
    fn two_that_drop_each_other_and_go_on_are_seen() {
        let play = |frames: [u32; 2]| {
            let mut ledger = Ledger::new(vec![vec![0xff], vec![0]], 0);
            for (site, until) in frames.into_iter().enumerate() {
                for frame in 0..until {
                    ledger.on_promise(site, frame, &[0]);
                    let state = if frame < 500 { 0 } else { site as u64 };
                    ledger.on_confirmed(site, frame, &[0], state + u64::from(frame));
                }
            }
            ledger.on_drop(0, 1, 500);
            ledger
        };
        assert_eq!(play([1_000, 500]).verdict(), []);
        let mut both = play([1_000, 1_000]);
        both.on_drop(1, 0, 500);
        let told: Vec<String> = both.verdict().iter().map(ToString::to_string).collect();
        let wrong = |site| format!("agreement: site {site} was dropped with frame 500 and went on to frame 1000");
        assert_eq!(told, [wrong(0), wrong(1)]);
    }

    #[test]
    fn who_watched_one_that_went_astray_may_have_another_state_afterwards() {
        assert!(ledger(|frame| (7, if frame < 5 { u64::from(frame) } else { 99 })).is_empty());
        assert!(
            ledger(|frame| (7, [u64::from(frame), 99, 1_000][(frame >= 5) as usize + (frame >= 7) as usize]))
                .is_empty()
        );
    }
}
