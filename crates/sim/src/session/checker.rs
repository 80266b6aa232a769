//! Checkers that know nothing of the engines: they see what people and machines at the sites see, and what the network carries.
//!
//! - *Agreement*: every site steps the same frames, in order, once each, with the same inputs, into the same states.
//! - *Fidelity*: an input takes effect in exactly the frame it was promised for; no input appears that nobody made.
//! - *Watching*: whoever watches sees frames that a site was certain of, with their inputs, and has their states.
//! - *Bounds*: no datagram is too long, no link is flooded.
//!
//! Liveness needs to know the links and the faults; it is judged by whoever made them ([`scenario`](crate::session_id::scenario)).

use std::collections::BTreeSet;
use std::fmt;

use coplay::input::InputWord;
use coplay::session::AbsentInput;

use crate::toy_machine::mix_hash;

/// What was promised and what came of it, for all sites of one session.
#[derive(Debug)]
pub struct SessionChecker {
    players: usize,
    /// The bits of each player's word that a site owns, by site and player.
    masks: Vec<Vec<InputWord>>,
    input_delay: usize,
    /// How many frames lag and window are together.
    pub delay_plus_prediction: usize,
    /// What is done for sites that were dropped.
    pub absent_input: AbsentInput,
    /// Sites that are not there when the game starts.
    pub late_joiners: Vec<bool>,
    /// What each site did, from one start of its program to the next.
    incarnations: Vec<Vec<Incarnation>>,
    /// What each of those who watch saw, from one state that it began with to the next.
    spectator_logs: Vec<Vec<SpectatorLog>>,
    /// How many frames each site is certain of, counted from the first of the game.
    pub confirmed_frames: Vec<usize>,
    /// Frames that the sites are certain of, over all of them.
    pub total_confirmed: u64,
    /// Frames that those who watch saw, over all of them.
    pub spectated_frames: u64,
    /// Frames that were read back from a movie.
    pub movie_frames: u64,
    /// A hash of all that happened.
    pub trace_hash: u64,
    /// What went wrong, first things first.
    pub violations: Vec<Violation>,
}

/// What a site did from one start of its program to the next.
#[derive(Debug, Default)]
struct Incarnation {
    /// The first frame that it stepped.
    first_frame: usize,
    /// The inputs of each frame, all players' words side by side, and the state after it.
    inputs: Vec<InputWord>,
    state_hashes: Vec<u64>,
    /// The frame with which it took its seat in a running game, and whether another site told that.
    joined_at: Option<usize>,
    is_join_reported_by_peer: bool,
    /// The first frame that it promised an input for, and the inputs.
    first_sampled_frame: Option<usize>,
    sampled_inputs: Vec<InputWord>,
    /// The first frame for which it, having left, makes no input.
    left: Option<usize>,
    /// The first frame for which the others, having dropped it, take none; and who did, in which of their lives.
    dropped_at: Option<usize>,
    dropped_by: Vec<(usize, usize)>,
    /// Those of them who told an earlier frame later on, because the sites that had its last inputs are gone, too; and that frame.
    truncated_by: Vec<(usize, usize)>,
    truncated_at: Option<usize>,
    /// The same of an earlier time, of which nothing came because all who told it are dead.
    void_dropped_at: Option<usize>,
    /// Its state is another from this frame on, which is known.
    diverged_at: Option<usize>,
    /// It died.
    is_crashed: bool,
    /// It was told that the game goes on without it.
    has_eviction_notice: bool,
    /// The sites that it told to be dropped.
    reported_drops: Vec<usize>,
}

impl Incarnation {
    /// The words and the state of a frame that all others must have, too.
    fn frame(&self, frame: usize, players: usize) -> Option<(&[InputWord], u64)> {
        let at = frame.checked_sub(self.first_frame)?;
        let hash = *self.state_hashes.get(at)?;
        Some((&self.inputs[at * players..(at + 1) * players], hash))
    }

    /// The first frame for which it makes no input, having left: not before its first.
    fn left(&self) -> Option<usize> {
        self.left.map(|left| left.max(self.joined_at.unwrap_or(0)))
    }

    /// The frame after the last that it is certain of.
    fn confirmed_end(&self) -> usize {
        self.first_frame + self.state_hashes.len()
    }
}

/// What somebody who watches saw.
#[derive(Debug, Default)]
struct SpectatorLog {
    first_frame: usize,
    /// The hash of the state that it began with.
    initial_state_hash: u64,
    inputs: Vec<InputWord>,
    state_hashes: Vec<u64>,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise: `agreement`, `fidelity`, `watching`, `divergence`, `liveness` or `bounds`.
    pub property: &'static str,
    /// What happened.
    pub description: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.description)
    }
}

/// Frames for which somebody who was dropped may still hear those who go on without him.
const MAX_FRAMES_UNTIL_DROP_NOTICE: usize = 150;
/// One broken promise tends to break many; this many are kept.
const MAX_VIOLATIONS: usize = 16;

impl SessionChecker {
    /// A ledger for sites that own these bits (by site and player) and promise inputs `lag` frames ahead.
    pub fn new(masks: Vec<Vec<InputWord>>, lag: u32) -> Self {
        let sites = masks.len();
        Self {
            players: masks.first().map_or(0, Vec::len),
            masks,
            input_delay: lag as usize,
            delay_plus_prediction: lag as usize,
            absent_input: AbsentInput::Nothing,
            late_joiners: Vec::new(),
            incarnations: (0..sites).map(|_| vec![Incarnation::default()]).collect(),
            spectator_logs: Vec::new(),
            confirmed_frames: vec![0; sites],
            total_confirmed: 0,
            spectated_frames: 0,
            movie_frames: 0,
            trace_hash: 0,
            violations: Vec::new(),
        }
    }

    /// Notes a broken promise.
    pub fn report_violation(&mut self, promise: &'static str, what: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { property: promise, description: what });
        }
    }

    fn current_incarnation(&mut self, site: usize) -> &mut Incarnation {
        self.incarnations[site].last_mut().expect("every site has a life")
    }

    /// A site's player made an input, which the site promised to be in this frame.
    pub fn on_sampled(&mut self, site: usize, frame: u32, words: &[InputWord]) {
        let (players, newborn, lag) = (self.players, self.incarnations[site].len() == 1, self.input_delay);
        let owned: Vec<InputWord> = words.iter().zip(&self.masks[site]).map(|(word, mask)| word & mask).collect();
        let life = self.current_incarnation(site);
        let frame = frame as usize;
        let first = *life.first_sampled_frame.get_or_insert(frame);
        let expected = first + life.sampled_inputs.len() / players;
        life.sampled_inputs.extend(owned);
        if frame != expected || newborn && first != lag {
            self.report_violation("fidelity", format!("site {site} promised frame {frame} and not {expected}"));
        }
    }

    /// A site left; from what it promised last on, it makes no input.
    pub fn on_leave(&mut self, site: usize) {
        let (players, lag) = (self.players, self.input_delay);
        let life = self.current_incarnation(site);
        life.left = Some(life.first_sampled_frame.unwrap_or(lag) + life.sampled_inputs.len() / players);
    }

    /// A site told that another one was dropped with a frame. All who tell must tell the same.
    pub fn on_drop(&mut self, teller: usize, site: usize, frame: u32) {
        self.current_incarnation(teller).reported_drops.push(site);
        // It may have come back by now; then it is about an earlier life.
        let meant = |life: &Incarnation| {
            life.joined_at.or(life.first_sampled_frame).is_some_and(|first| first <= frame as usize)
        };
        let at = self.incarnations[site].iter().rposition(meant).unwrap_or(0);
        let teller_life = self.incarnations[teller].len() - 1;
        let void = self.is_void_drop(&self.incarnations[site][at]);
        let life = &mut self.incarnations[site][at];
        if void {
            life.void_dropped_at = life.dropped_at.take();
            life.dropped_by.clear();
        }
        if life.dropped_by.contains(&(teller, teller_life))
            && life.dropped_at.is_some_and(|told| (frame as usize) < told)
        {
            life.truncated_by.push((teller, teller_life));
            let told = *life.truncated_at.get_or_insert(frame as usize);
            if told != frame as usize {
                let what = format!("site {teller} shortened site {site} to frame {frame}, another one to {told}");
                self.report_violation("agreement", what);
            }
            return;
        }
        life.dropped_by.push((teller, teller_life));
        let told = *life.dropped_at.get_or_insert(frame as usize);
        if told != frame as usize {
            let what = format!("site {teller} dropped site {site} with frame {frame}, another one with {told}");
            self.report_violation("agreement", what);
        }
    }

    /// A site told that another one took its seat with a frame. All who tell must tell the same.
    pub fn on_join(&mut self, teller: usize, site: usize, frame: u32) {
        let frame = frame as usize;
        let known = self.incarnations[site].iter().any(|life| life.joined_at == Some(frame));
        let others = self.incarnations[site].iter_mut().filter(|life| teller != site && life.joined_at == Some(frame));
        others.for_each(|life| life.is_join_reported_by_peer = true);
        if !known {
            self.attribute_join_to_crashed_incarnation(site);
        }
        let newcomer = self.incarnations[site].last_mut().filter(|life| life.joined_at.is_none());
        match newcomer {
            _ if known => {}
            Some(life) => (life.joined_at, life.is_join_reported_by_peer) = (Some(frame), teller != site),
            None => self.report_violation(
                "agreement",
                format!("site {teller} let site {site} in with frame {frame}, others did not"),
            ),
        }
    }

    /// A site that died on its way in may be let in nevertheless, which is told when it is on its way again. If another frame follows,
    /// the first one was for the one who died.
    fn attribute_join_to_crashed_incarnation(&mut self, site: usize) {
        let [.., before, last] = &mut self.incarnations[site][..] else { return };
        if before.is_crashed
            && before.joined_at.is_none()
            && before.first_sampled_frame.is_none()
            && last.first_sampled_frame.is_none()
        {
            (before.joined_at, before.is_join_reported_by_peer) =
                (last.joined_at.take(), last.is_join_reported_by_peer);
            before.dropped_at = last.dropped_at.take();
            before.dropped_by = std::mem::take(&mut last.dropped_by);
            before.truncated_at = last.truncated_at.take();
            before.truncated_by = std::mem::take(&mut last.truncated_by);
        }
    }

    /// Whether it does not count that the others dropped a site: they are all dead, and it dropped them.
    fn is_void_drop(&self, life: &Incarnation) -> bool {
        let gone = |(teller, number): &(usize, usize)| {
            self.incarnations[*teller][*number].is_crashed && life.reported_drops.contains(teller)
        };
        life.dropped_by.iter().all(gone)
    }

    /// The first frame for which the others, having dropped a site, take none of its inputs.
    fn drop_frame(&self, life: &Incarnation) -> Option<usize> {
        life.truncated_at.or(life.dropped_at).filter(|_| !self.is_void_drop(life))
    }

    /// The first frame for which nobody takes a site's inputs. Who leaves before its first frame leaves with that.
    fn input_end(&self, life: &Incarnation) -> Option<usize> {
        life.left().into_iter().chain(self.drop_frame(life)).min()
    }

    /// A site's state is made to be another from this frame on.
    pub fn on_divergence(&mut self, site: usize, frame: u32) {
        self.current_incarnation(site).diverged_at = Some(frame as usize);
    }

    /// A site died.
    pub fn on_crash(&mut self, site: usize) {
        self.current_incarnation(site).is_crashed = true;
    }

    /// A site was told that the game goes on without it, and stopped.
    pub fn on_eviction_notice(&mut self, site: usize) {
        self.current_incarnation(site).has_eviction_notice = true;
    }

    /// Whether the others have dropped a site.
    pub fn is_dropped(&self, site: usize) -> bool {
        self.incarnations[site].last().is_some_and(|life| self.drop_frame(life).is_some())
    }

    /// Whether a site was let in to a running game at any time.
    pub fn has_joined(&self, site: usize) -> bool {
        self.incarnations[site].iter().any(|life| life.joined_at.is_some())
    }

    /// Whether a site, in its newest life, told that another one was dropped.
    pub fn has_reported_drop(&self, teller: usize, site: usize) -> bool {
        self.incarnations[teller].last().is_some_and(|life| life.reported_drops.contains(&site))
    }

    /// Whether the others have dropped a site at any time.
    pub fn was_dropped(&self, site: usize) -> bool {
        self.incarnations[site].iter().any(|life| life.dropped_at.is_some())
    }

    /// From which frame on it does not count what a site did that is not among the others any more: what they decided without it.
    fn authoritative_until(&self, site: usize, life: &Incarnation) -> usize {
        // A refused site may never have played: its coordinator died before any other site heard of the order.
        if life.left.is_none() && self.drop_frame(life).is_none() && !life.is_crashed && !life.has_eviction_notice {
            return usize::MAX;
        }
        let others = self.incarnations.iter().enumerate().filter(|(other, _)| *other != site);
        let others = others.flat_map(|(other, lives)| lives.iter().map(move |life| (other, life)));
        let number = self.incarnations[site].iter().position(|known| std::ptr::eq(known, life)).unwrap_or(0);
        let without =
            |other: &Incarnation| other.truncated_at.is_some() && !other.truncated_by.contains(&(site, number));
        let dropped =
            others.filter_map(|(other, of_other)| match life.reported_drops.contains(&other) && !without(of_other) {
                // What it decided alone, before it died, came to nothing.
                true => {
                    let void = of_other.dropped_at.filter(|_| self.is_void_drop(of_other));
                    of_other.void_dropped_at.or(void).filter(|_| life.is_crashed)
                }
                false => self.drop_frame(of_other),
            });
        dropped.chain(self.drop_frame(life)).min().unwrap_or(usize::MAX)
    }

    /// A site's program was started anew.
    pub fn on_restart(&mut self, site: usize) {
        self.incarnations[site].push(Incarnation::default());
        self.confirmed_frames[site] = 0;
    }

    /// A site stepped its machine, perhaps with guessed inputs.
    pub fn on_step(&mut self, site: usize, frame: u32, at_ns: i64) {
        self.trace_hash = mix_hash(mix_hash(self.trace_hash, site as u64 + u64::from(frame) * 8), at_ns as u64);
    }

    /// A site's machine is put into the state before a frame that another site sent. What a site on its way in had before is gone: the
    /// frames may be too old, or those of a game that nobody plays any more.
    pub fn on_restored(&mut self, site: usize, frame: u32) {
        let life = self.current_incarnation(site);
        if life.first_sampled_frame.is_none() {
            (life.first_frame, life.inputs, life.state_hashes) = (frame as usize, Vec::new(), Vec::new());
        }
    }

    /// A site will not step a frame again: these were its inputs, and this is the state after it.
    pub fn on_confirmed(&mut self, site: usize, frame: u32, words: &[InputWord], hash: u64) {
        let frame = frame as usize;
        self.trace_hash =
            words.iter().fold(mix_hash(self.trace_hash, hash), |trace, word| mix_hash(trace, *word as u64));
        self.total_confirmed += 1;
        self.confirmed_frames[site] = frame + 1;
        let life = self.current_incarnation(site);
        if life.state_hashes.is_empty() {
            life.first_frame = frame;
        }
        let expected = life.first_frame + life.state_hashes.len();
        life.inputs.extend_from_slice(words);
        life.state_hashes.push(hash);
        if frame != expected {
            self.report_violation("agreement", format!("site {site} is certain of frame {frame} and not {expected}"));
        }
    }

    /// Somebody who watches begins with the state before a frame, of which this is the hash.
    pub fn on_spectator_load(&mut self, watcher: usize, frame: u32, before: u64) {
        if self.spectator_logs.len() <= watcher {
            self.spectator_logs.resize_with(watcher + 1, Vec::new);
        }
        self.spectator_logs[watcher].push(SpectatorLog {
            first_frame: frame as usize,
            initial_state_hash: before,
            ..SpectatorLog::default()
        });
    }

    /// Somebody who watches stepped a frame with these inputs, and this is the state after it.
    pub fn on_spectator_step(&mut self, watcher: usize, frame: u32, words: &[InputWord], hash: u64) {
        self.trace_hash = mix_hash(mix_hash(self.trace_hash, hash), u64::from(frame));
        self.spectated_frames += 1;
        let Some(seen) = self.spectator_logs.get_mut(watcher).and_then(|seen| seen.last_mut()) else {
            return self.report_violation("watching", format!("watcher {watcher} sees frame {frame} without a state"));
        };
        let expected = seen.first_frame + seen.state_hashes.len();
        seen.inputs.extend_from_slice(words);
        seen.state_hashes.push(hash);
        if frame as usize != expected {
            self.report_violation("watching", format!("watcher {watcher} sees frame {frame} and not {expected}"));
        }
    }

    /// The inputs of a frame that a site was certain of before its program was ever started anew, and the state after it.
    pub fn first_incarnation_frame(&self, site: usize, frame: usize) -> Option<(&[InputWord], u64)> {
        self.incarnations[site].first().and_then(|life| life.frame(frame, self.players))
    }

    /// Everything that went wrong: what was noted, and what comparing everything with everything shows.
    pub fn find_violations(&self) -> Vec<Violation> {
        let mut found = self.violations.clone();
        for frame in 0..self.confirmed_frames.iter().copied().max().unwrap_or(0) {
            self.check_frame(frame, &mut found);
            if found.len() >= MAX_VIOLATIONS {
                break;
            }
        }
        self.check_dropped_sites_stop(&mut found);
        self.check_truncated_drops(&mut found);
        self.check_spectators(&mut found);
        found
    }

    /// Who was dropped does not go on: the others stand still until they have decided, and what it hears of them afterwards is not
    /// much. So of a network in two parts at most one does, unless nobody is left who knows of the other.
    fn check_dropped_sites_stop(&self, broken: &mut Vec<Violation>) {
        for (site, lives) in self.incarnations.iter().enumerate() {
            // Who died after it went on without all who dropped it came back to them, who never heard of it: its game is gone, and
            // theirs goes on.
            let gave_way = |life: &Incarnation| {
                life.is_crashed && life.dropped_by.iter().all(|(teller, _)| life.reported_drops.contains(teller))
            };
            let goes_on = |life: &Incarnation| {
                let dropped = self.drop_frame(life).filter(|_| !gave_way(life))?;
                (life.confirmed_end() > dropped + 2 * self.delay_plus_prediction + MAX_FRAMES_UNTIL_DROP_NOTICE)
                    .then_some((dropped, life.confirmed_end()))
            };
            broken.extend(lives.iter().filter_map(goes_on).map(|(dropped, certain)| Violation {
                property: "agreement",
                description: format!("site {site} was dropped with frame {dropped} and went on to frame {certain}"),
            }));
        }
    }

    /// All sites that go on take the inputs of a dropped site up to the same frame.
    fn check_truncated_drops(&self, broken: &mut Vec<Violation>) {
        for (site, lives) in self.incarnations.iter().enumerate() {
            for life in lives.iter().filter(|life| life.truncated_at.is_some()) {
                let goes_on = |(teller, number): &&(usize, usize)| {
                    let teller = &self.incarnations[*teller][*number];
                    !teller.is_crashed && teller.left.is_none() && self.drop_frame(teller).is_none()
                };
                let missed = life.dropped_by.iter().filter(|teller| !life.truncated_by.contains(teller)).find(goes_on);
                broken.extend(missed.map(|(teller, _)| Violation {
                    property: "agreement",
                    description: format!("site {teller} did not hear that the inputs of site {site} end earlier"),
                }));
            }
        }
    }

    fn check_spectators(&self, broken: &mut Vec<Violation>) {
        let sites = self.incarnations.iter().enumerate();
        let lives =
            sites.flat_map(|(site, lives)| lives.iter().map(move |life| (life, self.authoritative_until(site, life))));
        let lives: Vec<(&Incarnation, usize)> =
            lives.map(|(life, until)| (life, until.min(life.diverged_at.unwrap_or(usize::MAX)))).collect();
        let mut led = DiscardedStates::new();
        for (watcher, seen) in self.spectator_logs.iter().enumerate() {
            let wrong = seen.iter().filter_map(|seen| self.first_spectator_mismatch(seen, &lives, &mut led)).next();
            broken.extend(wrong.map(|(frame, what)| Violation {
                property: "watching",
                description: format!("watcher {watcher} has {what} of frame {frame}"),
            }));
        }
    }

    /// The first frame that somebody saw otherwise than any site, and in what. Each life comes with the frame up to which it counts:
    /// who watched a site that the others went on without has another state when it turns to them, and is told. So has who began with
    /// the state of such a one.
    fn first_spectator_mismatch(
        &self,
        seen: &SpectatorLog,
        lives: &[(&Incarnation, usize)],
        led: &mut DiscardedStates,
    ) -> Option<(usize, &'static str)> {
        let before = seen.first_frame.checked_sub(1).map(|before| (before, seen.initial_state_hash));
        let mut misled =
            self.started_from_discarded_state(seen, lives) || before.is_some_and(|before| led.contains(&before));
        for (at, hash) in seen.state_hashes.iter().enumerate() {
            let frame = seen.first_frame + at;
            let words = &seen.inputs[at * self.players..(at + 1) * self.players];
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
    fn started_from_discarded_state(&self, seen: &SpectatorLog, lives: &[(&Incarnation, usize)]) -> bool {
        let Some(before) = seen.first_frame.checked_sub(1) else { return false };
        let had = |(life, _): &&(&Incarnation, usize)| {
            life.frame(before, self.players).is_some_and(|(_, hash)| hash == seen.initial_state_hash)
        };
        let mut had = lives.iter().filter(had).peekable();
        had.peek().is_some() && had.all(|(_, until)| before >= *until)
    }

    fn check_frame(&self, frame: usize, broken: &mut Vec<Violation>) {
        let lives =
            self.incarnations.iter().enumerate().flat_map(|(site, lives)| lives.iter().map(move |life| (site, life)));
        let counts = |(site, life): &(usize, &Incarnation)| frame < self.authoritative_until(*site, life);
        let sane = |(_, life): &(usize, &Incarnation)| life.diverged_at.is_none_or(|since| frame < since);
        let counting = lives.filter(counts).filter(sane);
        let mut known = counting.filter_map(|(site, life)| life.frame(frame, self.players).map(|told| (site, told)));
        let Some((first, (words, hash))) = known.next() else { return };
        for (site, (other_words, other_hash)) in known {
            if other_words != words {
                broken.push(Violation {
                    property: "agreement",
                    description: format!("sites {first} and {site} stepped frame {frame} with different inputs"),
                });
            } else if other_hash != hash {
                broken.push(Violation {
                    property: "agreement",
                    description: format!("sites {first} and {site} have different states after frame {frame}"),
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
                if [false, true].iter().all(|late| input != self.expected_input(site, frame, player, *late)) {
                    broken.push(Violation {
                        property: "fidelity",
                        description: format!("frame {frame} does not have what site {site} promised for it"),
                    });
                }
            }
        }
        if unowned.iter().any(|bits| *bits != 0) {
            broken.push(Violation {
                property: "fidelity",
                description: format!("frame {frame} has bits that nobody owns"),
            });
        }
    }

    /// The input that must be in a frame, or `None` if there must not be such a frame yet. That a site leaves may come too `late` for
    /// those who drop it with the same frame.
    fn expected_input(&self, site: usize, frame: usize, player: usize, late: bool) -> Option<InputWord> {
        let begun =
            |life: &&Incarnation| life.joined_at.or(life.first_sampled_frame).is_some_and(|first| first <= frame);
        // Of whom nobody knew that it was let in, no input is taken.
        let begun = |life: &&Incarnation| {
            begun(life) && (!life.has_eviction_notice || life.is_join_reported_by_peer || life.joined_at.is_none())
        };
        let Some(life) = self.incarnations[site].iter().rev().find(begun) else {
            let awaited = frame >= self.input_delay
                && self.incarnations[site].len() == 1
                && self.input_end(&self.incarnations[site][0]).is_none();
            return (!awaited || !self.is_starter(site)).then_some(0);
        };
        if let Some(end) = self.input_end(life).filter(|end| frame >= *end) {
            let dropped = life.truncated_at.or(life.dropped_at) == Some(end) && (late || life.left() != Some(end));
            let before = end.checked_sub(1).filter(|_| self.absent_input == AbsentInput::Repeat && dropped);
            return before.map_or(Some(0), |before| self.expected_input(site, before, player, late));
        }
        // Who comes late presses nothing at first.
        let Some(at) = life.first_sampled_frame.and_then(|first| frame.checked_sub(first)) else { return Some(0) };
        life.sampled_inputs.get(at * self.players + player).copied()
    }

    /// Whether a site is waited for from the first frame on.
    fn is_starter(&self, site: usize) -> bool {
        !self.late_joiners.get(site).copied().unwrap_or(false)
    }
}

/// States of frames that were seen by those who were misled, and which they may have passed on.
type DiscardedStates = BTreeSet<(usize, u64)>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sites that are certain of ten frames, the second of which counts only for its first five, and one who watches.
    fn check_spectator(watched: impl Fn(u32) -> (InputWord, u64)) -> Vec<String> {
        let mut ledger = SessionChecker::new(vec![vec![0xff], vec![0]], 0);
        for frame in 0..10 {
            ledger.on_sampled(0, frame, &[7]);
            ledger.on_sampled(1, frame, &[0]);
            ledger.on_confirmed(0, frame, &[7], u64::from(frame));
            ledger.on_confirmed(1, frame, &[7], if frame < 5 { u64::from(frame) } else { 99 });
        }
        ledger.on_divergence(1, 5);
        ledger.on_spectator_load(0, 2, 1);
        for frame in 2..12 {
            let (word, hash) = watched(frame);
            ledger.on_spectator_step(0, frame, &[word], hash);
        }
        ledger.find_violations().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn spectator_must_see_confirmed_inputs_and_states() {
        assert!(check_spectator(|frame| (7, u64::from(frame))).is_empty());
        assert_eq!(check_spectator(|frame| (8, u64::from(frame))), ["watching: watcher 0 has other inputs of frame 2"]);
        let late = check_spectator(|frame| (7, if frame < 8 { u64::from(frame) } else { 1_000 }));
        assert_eq!(late, ["watching: watcher 0 has another state of frame 8"]);
    }

    #[test]
    fn split_brain_after_mutual_drop_is_detected() {
        let play = |frames: [u32; 2]| {
            let mut ledger = SessionChecker::new(vec![vec![0xff], vec![0]], 0);
            for (site, until) in frames.into_iter().enumerate() {
                for frame in 0..until {
                    ledger.on_sampled(site, frame, &[0]);
                    let state = if frame < 500 { 0 } else { site as u64 };
                    ledger.on_confirmed(site, frame, &[0], state + u64::from(frame));
                }
            }
            ledger.on_drop(0, 1, 500);
            ledger
        };
        assert_eq!(play([1_000, 500]).find_violations(), []);
        let mut both = play([1_000, 1_000]);
        both.on_drop(1, 0, 500);
        let told: Vec<String> = both.find_violations().iter().map(ToString::to_string).collect();
        let wrong = |site| format!("agreement: site {site} was dropped with frame 500 and went on to frame 1000");
        assert_eq!(told, [wrong(0), wrong(1)]);
    }

    #[test]
    fn spectator_of_a_diverged_site_may_have_another_state() {
        assert!(check_spectator(|frame| (7, if frame < 5 { u64::from(frame) } else { 99 })).is_empty());
        assert!(
            check_spectator(|frame| (7, [u64::from(frame), 99, 1_000][(frame >= 5) as usize + (frame >= 7) as usize]))
                .is_empty()
        );
    }
}
