//! Checker that knows nothing of the engine: it observes only the inputs, the machines and the reports of the sites.
//!
//! - *Agreement*: each site confirms its frames in order and once each. All sites that confirm a frame have the same
//!   inputs and states in it, except in frames that do not count: the others decided without the site, or its machine
//!   was corrupted on purpose.
//! - *Fidelity*: an input takes effect in exactly the frame for which its site sampled it. No input appears that no
//!   player made.
//! - *Spectating*: a spectator steps the frames that a site confirmed, with the same inputs, and reaches the same
//!   states.
//!
//! Liveness and bounds depend on the links and the faults. The [`scenario`](crate::session::scenario) module, which
//! injects the faults, checks them.

use std::collections::BTreeSet;
use std::fmt;

use coplay::input::InputWord;
use coplay::session::AbsentInput;

use crate::toy_machine::mix_hash;

/// Observations of all sites and spectators of one session, and the violations found in them.
#[derive(Debug)]
pub struct SessionChecker {
    players: usize,
    /// Bits of each player's input word that a site owns, by site and player.
    masks: Vec<Vec<InputWord>>,
    input_delay: usize,
    /// Input delay plus prediction window, in frames. The number of frames that a dropped site may still confirm grows
    /// with it.
    pub delay_plus_prediction: usize,
    /// Substitute input that replaces the inputs of dropped sites.
    pub absent_input: AbsentInput,
    /// Whether each site joins late; empty if none does.
    pub late_joiners: Vec<bool>,
    /// History of each site, one entry per start of its host program.
    incarnations: Vec<Vec<Incarnation>>,
    /// Number of crashes so far.
    crashes: usize,
    /// History of each spectator, one entry per state that it loaded.
    spectator_logs: Vec<Vec<SpectatorLog>>,
    /// Frame after the last one that each site has confirmed since its last restart; 0 before the first.
    pub confirmed_frames: Vec<usize>,
    /// Number of confirmed frames, summed over all sites and incarnations.
    pub total_confirmed: u64,
    /// Number of frames stepped by spectators, summed over all of them.
    pub spectated_frames: u64,
    /// Number of frames read back from a movie.
    pub movie_frames: u64,
    /// Hash of all steps, confirmed frames and spectated frames so far. Equal seeds give equal hashes.
    pub trace_hash: u64,
    /// Violations recorded so far, at most 16. [`find_violations`](Self::find_violations) returns these and the ones
    /// that it finds by comparing the histories.
    pub violations: Vec<Violation>,
}

/// History of a site from one start of its host program to the next.
#[derive(Debug, Default)]
struct Incarnation {
    /// First frame that the incarnation confirmed.
    first_frame: usize,
    /// Inputs of the confirmed frames, all players' words side by side.
    inputs: Vec<InputWord>,
    /// State hash after each confirmed frame.
    state_hashes: Vec<u64>,
    /// Frame at which the incarnation joined a running session.
    joined_at: Option<usize>,
    /// Pairs (site, incarnation) that reported the join.
    joined_by: Vec<(usize, usize)>,
    /// First frame for which the site sampled an input.
    first_sampled_frame: Option<usize>,
    /// Owned bits of all sampled inputs, all players' words side by side.
    sampled_inputs: Vec<InputWord>,
    /// First frame without input because the site left.
    left: Option<usize>,
    /// First frame without input because the others dropped the site.
    dropped_at: Option<usize>,
    /// Pairs (site, incarnation) that reported the drop.
    dropped_by: Vec<(usize, usize)>,
    /// Pairs (site, incarnation) that later reported the drop for an earlier frame, because the sites with the last
    /// inputs are gone as well.
    truncated_by: Vec<(usize, usize)>,
    /// Earlier frame that the sites in `truncated_by` reported.
    truncated_at: Option<usize>,
    /// Frame of an earlier drop that became void: all its reporters crashed, and this site had dropped them.
    void_dropped_at: Option<usize>,
    /// Frame from which on the state may differ from the other sites', because a machine was corrupted on purpose.
    diverged_at: Option<usize>,
    /// Number of crashes in the run up to the one that ended the incarnation, including that one; `None` if it did not
    /// crash.
    crash_number: Option<usize>,
    /// Whether the session reported that the others continue without this site.
    has_eviction_notice: bool,
    /// Sites that this incarnation reported as dropped.
    reported_drops: Vec<usize>,
}

impl Incarnation {
    /// Returns the inputs of a confirmed frame and the state hash after it; `None` if the incarnation did not confirm
    /// it.
    fn frame(&self, frame: usize, players: usize) -> Option<(&[InputWord], u64)> {
        let at = frame.checked_sub(self.first_frame)?;
        let hash = *self.state_hashes.get(at)?;
        Some((&self.inputs[at * players..(at + 1) * players], hash))
    }

    /// Returns whether the incarnation ended in a crash.
    fn is_crashed(&self) -> bool {
        self.crash_number.is_some()
    }

    /// Returns the first frame without input because the site left; never before its join frame.
    fn left(&self) -> Option<usize> {
        self.left.map(|left| left.max(self.joined_at.unwrap_or(0)))
    }

    /// Returns the frame after the last confirmed one.
    fn confirmed_end(&self) -> usize {
        self.first_frame + self.state_hashes.len()
    }
}

/// Frames that one spectator stepped since it loaded a state.
#[derive(Debug, Default)]
struct SpectatorLog {
    first_frame: usize,
    /// Hash of the loaded state.
    initial_state_hash: u64,
    inputs: Vec<InputWord>,
    state_hashes: Vec<u64>,
}

/// A property that did not hold in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Property: `agreement`, `fidelity`, `spectator`, `divergence`, `liveness`, `bounds` or `movie`.
    pub property: &'static str,
    /// Description of what did not hold, with the site and the frame if there is one.
    pub description: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.description)
    }
}

/// Largest number of frames that a dropped site may confirm after the frame of its drop until it learns of the drop, in
/// addition to twice the sum of input delay and prediction window.
const MAX_FRAMES_UNTIL_DROP_NOTICE: usize = 150;
/// Number of violations from which on no more are recorded and no more frames are compared; one violation tends to
/// cause many.
const MAX_VIOLATIONS: usize = 16;

impl SessionChecker {
    /// Creates a checker for sites that own these bits (by site and player) and sample inputs `input_delay` frames
    /// ahead.
    pub fn new(masks: Vec<Vec<InputWord>>, input_delay: u32) -> Self {
        let sites = masks.len();
        Self {
            players: masks.first().map_or(0, Vec::len),
            masks,
            input_delay: input_delay as usize,
            delay_plus_prediction: input_delay as usize,
            absent_input: AbsentInput::Nothing,
            late_joiners: Vec::new(),
            incarnations: (0..sites).map(|_| vec![Incarnation::default()]).collect(),
            crashes: 0,
            spectator_logs: Vec::new(),
            confirmed_frames: vec![0; sites],
            total_confirmed: 0,
            spectated_frames: 0,
            movie_frames: 0,
            trace_hash: 0,
            violations: Vec::new(),
        }
    }

    /// Records a violation, unless 16 are recorded already.
    pub fn report_violation(&mut self, property: &'static str, description: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { property, description });
        }
    }

    fn current_incarnation(&mut self, site: usize) -> &mut Incarnation {
        self.incarnations[site].last_mut().expect("every site has an incarnation")
    }

    /// Records the input that a site sampled for a frame. A frame out of sequence is a violation.
    pub fn on_sampled(&mut self, site: usize, frame: u32, words: &[InputWord]) {
        let (players, is_first_incarnation, input_delay) =
            (self.players, self.incarnations[site].len() == 1, self.input_delay);
        let owned: Vec<InputWord> = words.iter().zip(&self.masks[site]).map(|(word, mask)| word & mask).collect();
        let incarnation = self.current_incarnation(site);
        let frame = frame as usize;
        let first = *incarnation.first_sampled_frame.get_or_insert(frame);
        let sampled = incarnation.sampled_inputs.len() / players;
        let expected = if is_first_incarnation { input_delay } else { first } + sampled;
        incarnation.sampled_inputs.extend(owned);
        if frame != expected {
            self.report_violation("fidelity", format!("site {site} sampled frame {frame} instead of {expected}"));
        }
    }

    /// Records that a site left. The site makes no input after the last sampled one.
    pub fn on_leave(&mut self, site: usize) {
        let (players, input_delay) = (self.players, self.input_delay);
        let incarnation = self.current_incarnation(site);
        incarnation.left =
            Some(incarnation.first_sampled_frame.unwrap_or(input_delay) + incarnation.sampled_inputs.len() / players);
    }

    /// Records a report that a site was dropped as of a frame. Reports of several sites that name different frames are
    /// a violation. A site that reports the same drop again may name an earlier frame.
    pub fn on_drop(&mut self, reporter: usize, site: usize, frame: u32) {
        self.current_incarnation(reporter).reported_drops.push(site);
        // The site may have rejoined before the report, which then concerns an earlier incarnation.
        let is_concerned = |incarnation: &Incarnation| {
            incarnation.joined_at.or(incarnation.first_sampled_frame).is_some_and(|first| first <= frame as usize)
        };
        let at = self.incarnations[site].iter().rposition(is_concerned).unwrap_or(0);
        let reporter_incarnation = self.incarnations[reporter].len() - 1;
        let void = self.is_void_drop(&self.incarnations[site][at]);
        let incarnation = &mut self.incarnations[site][at];
        if void {
            incarnation.void_dropped_at = incarnation.dropped_at.take();
            incarnation.dropped_by.clear();
        }
        if incarnation.dropped_by.contains(&(reporter, reporter_incarnation))
            && incarnation.dropped_at.is_some_and(|reported| (frame as usize) < reported)
        {
            incarnation.truncated_by.push((reporter, reporter_incarnation));
            let reported = *incarnation.truncated_at.get_or_insert(frame as usize);
            if reported != frame as usize {
                let description = format!(
                    "site {reporter} ends the inputs of site {site} at frame {frame}, another site at {reported}"
                );
                self.report_violation("agreement", description);
            }
            return;
        }
        incarnation.dropped_by.push((reporter, reporter_incarnation));
        let reported = *incarnation.dropped_at.get_or_insert(frame as usize);
        if reported != frame as usize {
            let description =
                format!("site {reporter} dropped site {site} as of frame {frame}, another site as of {reported}");
            self.report_violation("agreement", description);
        }
    }

    /// Records a report that a site joined at a frame. Reports of the same join that name different frames are a
    /// violation, unless one of them does not count.
    pub fn on_join(&mut self, reporter: usize, site: usize, frame: u32) {
        let frame = frame as usize;
        let by = (reporter, self.incarnations[reporter].len() - 1);
        if self.is_void_join_report(by, frame) {
            return;
        }
        if let Some(known) = self.incarnations[site].iter_mut().find(|incarnation| incarnation.joined_at == Some(frame))
        {
            return known.joined_by.push(by);
        }
        self.attribute_join_to_crashed_incarnation(site);
        self.forget_void_join(site);
        let joiner = self.incarnations[site].last_mut().filter(|incarnation| incarnation.joined_at.is_none());
        match joiner {
            Some(incarnation) => (incarnation.joined_at, incarnation.joined_by) = (Some(frame), vec![by]),
            None => self.report_violation(
                "agreement",
                format!("site {reporter} reports that site {site} joined at frame {frame}, other sites do not"),
            ),
        }
    }

    /// Returns whether a reported join does not count: the reporter was dropped as of the join frame or an earlier one,
    /// and played on until it learned of the drop.
    fn is_void_join_report(&self, (reporter, number): (usize, usize), frame: usize) -> bool {
        self.drop_frame(&self.incarnations[reporter][number]).is_some_and(|dropped| dropped <= frame)
    }

    /// Forgets the join of a site's newest incarnation if only other sites reported it and none of their reports
    /// counts. The next coordinator may admit the same incarnation at another frame.
    fn forget_void_join(&mut self, site: usize) {
        let Some(last) = self.incarnations[site].last() else { return };
        let Some(frame) = last.joined_at else { return };
        if last.joined_by.iter().all(|by| by.0 != site && self.is_void_join_report(*by, frame)) {
            self.current_incarnation(site).joined_at = None;
        }
    }

    /// Moves the join and the drop recorded for a site's newest incarnation to the previous one, if that crashed while
    /// joining. The crashed incarnation may still be admitted. Its join is then reported while the newest incarnation
    /// is joining, and is first attributed to the newest. A second join frame shows that the first belonged to the
    /// crashed one.
    fn attribute_join_to_crashed_incarnation(&mut self, site: usize) {
        let [.., before, last] = &mut self.incarnations[site][..] else { return };
        if before.is_crashed()
            && before.joined_at.is_none()
            && before.first_sampled_frame.is_none()
            && last.first_sampled_frame.is_none()
        {
            before.joined_at = last.joined_at.take();
            before.joined_by = std::mem::take(&mut last.joined_by);
            before.dropped_at = last.dropped_at.take();
            before.dropped_by = std::mem::take(&mut last.dropped_by);
            before.truncated_at = last.truncated_at.take();
            before.truncated_by = std::mem::take(&mut last.truncated_by);
        }
    }

    /// Returns whether a drop does not count: all its reporters crashed, and the dropped site dropped them and did not
    /// crash before them. The game of the one that crashes last goes on: its incarnations and joiners load its state.
    /// Also returns `true` if no site reported a drop.
    fn is_void_drop(&self, incarnation: &Incarnation) -> bool {
        let gone = |(reporter, number): &(usize, usize)| {
            let crash = self.incarnations[*reporter][*number].crash_number;
            let is_outlived = crash.is_some_and(|crash| incarnation.crash_number.is_none_or(|own| crash < own));
            is_outlived && incarnation.reported_drops.contains(reporter)
        };
        incarnation.dropped_by.iter().all(gone)
    }

    /// Returns the first frame without the inputs of a dropped site; `None` without a drop that counts.
    fn drop_frame(&self, incarnation: &Incarnation) -> Option<usize> {
        incarnation.truncated_at.or(incarnation.dropped_at).filter(|_| !self.is_void_drop(incarnation))
    }

    /// Returns the first frame without the inputs of a site that left or was dropped; `None` if they do not end.
    fn input_end(&self, incarnation: &Incarnation) -> Option<usize> {
        incarnation.left().into_iter().chain(self.drop_frame(incarnation)).min()
    }

    /// Records that a site's state need not match the others' from this frame on, because a machine is corrupted on
    /// purpose.
    pub fn on_divergence(&mut self, site: usize, frame: u32) {
        self.current_incarnation(site).diverged_at = Some(frame as usize);
    }

    /// Records that the current incarnation of a site crashed.
    pub fn on_crash(&mut self, site: usize) {
        self.crashes += 1;
        self.current_incarnation(site).crash_number = Some(self.crashes);
    }

    /// Records that a site's session ended because the others continue without it.
    pub fn on_eviction_notice(&mut self, site: usize) {
        self.current_incarnation(site).has_eviction_notice = true;
    }

    /// Returns whether the others have dropped the newest incarnation of a site.
    pub fn is_dropped(&self, site: usize) -> bool {
        self.incarnations[site].last().is_some_and(|incarnation| self.drop_frame(incarnation).is_some())
    }

    /// Returns whether any incarnation of a site joined a running session.
    pub fn has_joined(&self, site: usize) -> bool {
        self.incarnations[site].iter().any(|incarnation| incarnation.joined_at.is_some())
    }

    /// Returns whether the newest incarnation of `reporter` reported that `site` was dropped.
    pub fn has_reported_drop(&self, reporter: usize, site: usize) -> bool {
        self.incarnations[reporter].last().is_some_and(|incarnation| incarnation.reported_drops.contains(&site))
    }

    /// Returns whether the others ever dropped any incarnation of a site.
    pub fn was_dropped(&self, site: usize) -> bool {
        self.incarnations[site].iter().any(|incarnation| incarnation.dropped_at.is_some())
    }

    /// Returns the first frame of an incarnation of `site` that does not count, because the other sites decided without
    /// it; `usize::MAX` if all its frames count.
    fn authoritative_until(&self, site: usize, incarnation: &Incarnation) -> usize {
        // An evicted site may never have played: its coordinator crashed before any other site received the scheduled
        // join.
        if incarnation.left.is_none()
            && self.drop_frame(incarnation).is_none()
            && !incarnation.is_crashed()
            && !incarnation.has_eviction_notice
        {
            return usize::MAX;
        }
        let others = self.incarnations.iter().enumerate().filter(|(other, _)| *other != site);
        let others =
            others.flat_map(|(other, incarnations)| incarnations.iter().map(move |incarnation| (other, incarnation)));
        let number = self.incarnations[site].iter().position(|known| std::ptr::eq(known, incarnation)).unwrap_or(0);
        let without =
            |other: &Incarnation| other.truncated_at.is_some() && !other.truncated_by.contains(&(site, number));
        let dropped = others.filter_map(|(other, of_other)| {
            match incarnation.reported_drops.contains(&other) && !without(of_other) {
                // A drop that a site decided alone before it crashed is void. The site's history counts only up to that
                // drop.
                true => {
                    let void = of_other.dropped_at.filter(|_| self.is_void_drop(of_other));
                    of_other.void_dropped_at.or(void).filter(|_| incarnation.is_crashed())
                }
                false => self.drop_frame(of_other),
            }
        });
        dropped.chain(self.drop_frame(incarnation)).min().unwrap_or(usize::MAX)
    }

    /// Records a restart of a site's host program, which begins a new incarnation.
    pub fn on_restart(&mut self, site: usize) {
        self.incarnations[site].push(Incarnation::default());
        self.confirmed_frames[site] = 0;
    }

    /// Adds a step of a site's machine, perhaps with predicted inputs, to the trace hash.
    pub fn on_step(&mut self, site: usize, frame: u32, at_ns: i64) {
        self.trace_hash = mix_hash(mix_hash(self.trace_hash, site as u64 + u64::from(frame) * 8), at_ns as u64);
    }

    /// Records that a site loaded a state from another site, with `frame` as the next frame. Earlier frames of a
    /// joining site are discarded: they may be too old, or belong to a game that no site plays any more.
    pub fn on_restored(&mut self, site: usize, frame: u32) {
        let incarnation = self.current_incarnation(site);
        if incarnation.first_sampled_frame.is_none() {
            (incarnation.first_frame, incarnation.inputs, incarnation.state_hashes) =
                (frame as usize, Vec::new(), Vec::new());
        }
    }

    /// Records a confirmed frame of a site, its inputs and the state hash after it. A frame out of sequence is a
    /// violation.
    pub fn on_confirmed(&mut self, site: usize, frame: u32, words: &[InputWord], hash: u64) {
        let frame = frame as usize;
        self.trace_hash =
            words.iter().fold(mix_hash(self.trace_hash, hash), |trace, word| mix_hash(trace, *word as u64));
        self.total_confirmed += 1;
        self.confirmed_frames[site] = frame + 1;
        let incarnation = self.current_incarnation(site);
        if incarnation.state_hashes.is_empty() {
            incarnation.first_frame = frame;
        }
        let expected = incarnation.first_frame + incarnation.state_hashes.len();
        incarnation.inputs.extend_from_slice(words);
        incarnation.state_hashes.push(hash);
        if frame != expected {
            self.report_violation("agreement", format!("site {site} confirmed frame {frame} instead of {expected}"));
        }
    }

    /// Records that a spectator loaded a state with `frame` as the next frame. `before` is the hash of that state.
    pub fn on_spectator_load(&mut self, spectator: usize, frame: u32, before: u64) {
        if self.spectator_logs.len() <= spectator {
            self.spectator_logs.resize_with(spectator + 1, Vec::new);
        }
        self.spectator_logs[spectator].push(SpectatorLog {
            first_frame: frame as usize,
            initial_state_hash: before,
            ..SpectatorLog::default()
        });
    }

    /// Records that a spectator stepped a frame with these inputs, and the state hash after it. A frame out of sequence
    /// is a violation.
    pub fn on_spectator_step(&mut self, spectator: usize, frame: u32, words: &[InputWord], hash: u64) {
        self.trace_hash = mix_hash(mix_hash(self.trace_hash, hash), u64::from(frame));
        self.spectated_frames += 1;
        let Some(log) = self.spectator_logs.get_mut(spectator).and_then(|log| log.last_mut()) else {
            let description = format!("spectator {spectator} steps frame {frame} without a state");
            return self.report_violation("spectator", description);
        };
        let expected = log.first_frame + log.state_hashes.len();
        log.inputs.extend_from_slice(words);
        log.state_hashes.push(hash);
        if frame as usize != expected {
            let description = format!("spectator {spectator} steps frame {frame} instead of {expected}");
            self.report_violation("spectator", description);
        }
    }

    /// Returns the inputs of a frame confirmed by the first incarnation of a site, and the state hash after it; `None`
    /// if it did not confirm the frame.
    pub fn first_incarnation_frame(&self, site: usize, frame: usize) -> Option<(&[InputWord], u64)> {
        self.incarnations[site].first().and_then(|incarnation| incarnation.frame(frame, self.players))
    }

    /// Returns all violations: the recorded ones, and those found by comparing the histories of all sites and
    /// spectators.
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

    /// Checks that a dropped site confirms only few more frames: the other sites freeze until they have decided on the
    /// drop, and the dropped site receives few of their datagrams afterwards. So at most one part of a partitioned
    /// network continues, unless no site is left that knows of the other part.
    fn check_dropped_sites_stop(&self, violations: &mut Vec<Violation>) {
        for (site, incarnations) in self.incarnations.iter().enumerate() {
            // A site may drop all sites that dropped it, crash, and rejoin them. They never learned of its game, so its
            // game is gone and theirs continues.
            let gave_way = |incarnation: &Incarnation| {
                incarnation.is_crashed()
                    && incarnation.dropped_by.iter().all(|(reporter, _)| incarnation.reported_drops.contains(reporter))
            };
            let continues = |incarnation: &Incarnation| {
                let dropped = self.drop_frame(incarnation).filter(|_| !gave_way(incarnation))?;
                (incarnation.confirmed_end() > dropped + 2 * self.delay_plus_prediction + MAX_FRAMES_UNTIL_DROP_NOTICE)
                    .then_some((dropped, incarnation.confirmed_end()))
            };
            violations.extend(incarnations.iter().filter_map(continues).map(|(dropped, confirmed)| Violation {
                property: "agreement",
                description: format!(
                    "site {site} was dropped as of frame {dropped} and continued to frame {confirmed}"
                ),
            }));
        }
    }

    /// Checks that all continuing sites that reported a drop also reported that the inputs of the dropped site end
    /// earlier, if any site reported that.
    fn check_truncated_drops(&self, violations: &mut Vec<Violation>) {
        for (site, incarnations) in self.incarnations.iter().enumerate() {
            for incarnation in incarnations.iter().filter(|incarnation| incarnation.truncated_at.is_some()) {
                let continues = |(reporter, number): &&(usize, usize)| {
                    let reporter = &self.incarnations[*reporter][*number];
                    !reporter.is_crashed() && reporter.left.is_none() && self.drop_frame(reporter).is_none()
                };
                let missed = incarnation
                    .dropped_by
                    .iter()
                    .filter(|reporter| !incarnation.truncated_by.contains(reporter))
                    .find(continues);
                violations.extend(missed.map(|(reporter, _)| Violation {
                    property: "agreement",
                    description: format!("site {reporter} did not learn that the inputs of site {site} end earlier"),
                }));
            }
        }
    }

    fn check_spectators(&self, violations: &mut Vec<Violation>) {
        let sites = self.incarnations.iter().enumerate();
        let incarnations = sites.flat_map(|(site, incarnations)| {
            incarnations.iter().map(move |incarnation| (incarnation, self.authoritative_until(site, incarnation)))
        });
        let incarnations: Vec<(&Incarnation, usize)> = incarnations
            .map(|(incarnation, until)| (incarnation, until.min(incarnation.diverged_at.unwrap_or(usize::MAX))))
            .collect();
        let mut discarded = DiscardedStates::new();
        for (spectator, log) in self.spectator_logs.iter().enumerate() {
            let mismatch =
                log.iter().filter_map(|log| self.first_spectator_mismatch(log, &incarnations, &mut discarded)).next();
            violations.extend(mismatch.map(|(frame, description)| Violation {
                property: "spectator",
                description: format!("spectator {spectator} has {description} in frame {frame}"),
            }));
        }
    }

    /// Finds the first frame in which a spectator differs from every site that confirmed the frame, and names the
    /// difference. Each incarnation comes with the first frame that does not count. A spectator of a site that the
    /// others dropped may have another state when it switches to the others, which its engine reports. The same holds
    /// for a spectator that started from such a state.
    fn first_spectator_mismatch(
        &self,
        log: &SpectatorLog,
        incarnations: &[(&Incarnation, usize)],
        discarded: &mut DiscardedStates,
    ) -> Option<(usize, &'static str)> {
        let before = log.first_frame.checked_sub(1).map(|before| (before, log.initial_state_hash));
        let mut misled = self.started_from_discarded_state(log, incarnations)
            || before.is_some_and(|before| discarded.contains(&before));
        for (at, hash) in log.state_hashes.iter().enumerate() {
            let frame = log.first_frame + at;
            let words = &log.inputs[at * self.players..(at + 1) * self.players];
            let known = || {
                incarnations
                    .iter()
                    .filter_map(|(incarnation, until)| Some((incarnation.frame(frame, self.players)?, *until)))
            };
            let alike = || known().filter(|((theirs, _), _)| *theirs == words);
            // No site has reported this frame as confirmed yet.
            if known().next().is_none() {
                continue;
            }
            if alike().next().is_none() {
                return Some((frame, "different inputs"));
            }
            let mut equal = alike().filter(|((_, theirs), _)| theirs == hash).map(|(_, until)| until).peekable();
            if equal.peek().is_none() && !misled {
                return Some((frame, "a different state"));
            }
            misled |= equal.all(|until| frame >= until);
            if misled {
                discarded.insert((frame, *hash));
            }
        }
        None
    }

    /// Returns whether a spectator started from a state that incarnations had, but none of them in a frame that counts.
    fn started_from_discarded_state(&self, log: &SpectatorLog, incarnations: &[(&Incarnation, usize)]) -> bool {
        let Some(before) = log.first_frame.checked_sub(1) else { return false };
        let had = |(incarnation, _): &&(&Incarnation, usize)| {
            incarnation.frame(before, self.players).is_some_and(|(_, hash)| hash == log.initial_state_hash)
        };
        let mut had = incarnations.iter().filter(had).peekable();
        had.peek().is_some() && had.all(|(_, until)| before >= *until)
    }

    fn check_frame(&self, frame: usize, violations: &mut Vec<Violation>) {
        let incarnations = self
            .incarnations
            .iter()
            .enumerate()
            .flat_map(|(site, incarnations)| incarnations.iter().map(move |incarnation| (site, incarnation)));
        let counts = |(site, incarnation): &(usize, &Incarnation)| frame < self.authoritative_until(*site, incarnation);
        let has_not_diverged =
            |(_, incarnation): &(usize, &Incarnation)| incarnation.diverged_at.is_none_or(|since| frame < since);
        let counting = incarnations.filter(counts).filter(has_not_diverged);
        let mut known = counting
            .filter_map(|(site, incarnation)| incarnation.frame(frame, self.players).map(|reported| (site, reported)));
        let Some((first, (words, hash))) = known.next() else { return };
        for (site, (other_words, other_hash)) in known {
            if other_words != words {
                violations.push(Violation {
                    property: "agreement",
                    description: format!("sites {first} and {site} stepped frame {frame} with different inputs"),
                });
            } else if other_hash != hash {
                violations.push(Violation {
                    property: "agreement",
                    description: format!("sites {first} and {site} have different states after frame {frame}"),
                });
            }
        }
        self.check_fidelity(frame, words, violations);
    }

    fn check_fidelity(&self, frame: usize, words: &[InputWord], violations: &mut Vec<Violation>) {
        let mut unowned: Vec<InputWord> = words.to_vec();
        for (site, masks) in self.masks.iter().enumerate() {
            for (player, mask) in masks.iter().enumerate() {
                unowned[player] &= !mask;
                let input = Some(words[player] & mask);
                if [false, true]
                    .iter()
                    .all(|leave_too_late| input != self.expected_input(site, frame, player, *leave_too_late))
                {
                    violations.push(Violation {
                        property: "fidelity",
                        description: format!("frame {frame} does not have the input that site {site} sampled for it"),
                    });
                }
            }
        }
        if unowned.iter().any(|bits| *bits != 0) {
            violations.push(Violation {
                property: "fidelity",
                description: format!("frame {frame} has input bits that no site owns"),
            });
        }
    }

    /// Returns the input that a site's player must have in a frame, or `None` if the frame must not exist yet.
    /// `leave_too_late` assumes that sites that dropped a leaving site at the frame of its leave had not received the
    /// leave.
    fn expected_input(&self, site: usize, frame: usize, player: usize, leave_too_late: bool) -> Option<InputWord> {
        let begun = |incarnation: &&Incarnation| {
            incarnation.joined_at.or(incarnation.first_sampled_frame).is_some_and(|first| first <= frame)
        };
        // The inputs of an evicted joiner count only if a peer reported its join.
        let begun = |incarnation: &&Incarnation| {
            begun(incarnation)
                && (!incarnation.has_eviction_notice
                    || incarnation.joined_by.iter().any(|(reporter, _)| *reporter != site)
                    || incarnation.joined_at.is_none())
        };
        let Some(incarnation) = self.incarnations[site].iter().rev().find(begun) else {
            let awaited = frame >= self.input_delay
                && self.incarnations[site].len() == 1
                && self.input_end(&self.incarnations[site][0]).is_none();
            return (!awaited || !self.is_starter(site)).then_some(0);
        };
        if let Some(end) = self.input_end(incarnation).filter(|end| frame >= *end) {
            let dropped = incarnation.truncated_at.or(incarnation.dropped_at) == Some(end)
                && (leave_too_late || incarnation.left() != Some(end));
            let before = end.checked_sub(1).filter(|_| self.absent_input == AbsentInput::Repeat && dropped);
            return before.map_or(Some(0), |before| self.expected_input(site, before, player, leave_too_late));
        }
        // A late joiner has no input before its first sample.
        let Some(at) = incarnation.first_sampled_frame.and_then(|first| frame.checked_sub(first)) else {
            return Some(0);
        };
        incarnation.sampled_inputs.get(at * self.players + player).copied()
    }

    /// Returns whether the other sites wait for this site from the first frame on.
    fn is_starter(&self, site: usize) -> bool {
        !self.late_joiners.get(site).copied().unwrap_or(false)
    }
}

/// Frames with the state hashes that spectators reached from a state that does not count. They may have passed these
/// states on to other spectators.
type DiscardedStates = BTreeSet<(usize, u64)>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the violations for a spectator of two sites that confirm ten frames. The second site counts only for its
    /// first five frames. `observed` gives the spectator's input and state hash in each frame.
    fn check_spectator(observed: impl Fn(u32) -> (InputWord, u64)) -> Vec<String> {
        let mut checker = SessionChecker::new(vec![vec![0xff], vec![0]], 0);
        for frame in 0..10 {
            checker.on_sampled(0, frame, &[7]);
            checker.on_sampled(1, frame, &[0]);
            checker.on_confirmed(0, frame, &[7], u64::from(frame));
            checker.on_confirmed(1, frame, &[7], if frame < 5 { u64::from(frame) } else { 99 });
        }
        checker.on_divergence(1, 5);
        checker.on_spectator_load(0, 2, 1);
        for frame in 2..12 {
            let (word, hash) = observed(frame);
            checker.on_spectator_step(0, frame, &[word], hash);
        }
        checker.find_violations().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn spectator_must_see_confirmed_inputs_and_states() {
        assert!(check_spectator(|frame| (7, u64::from(frame))).is_empty());
        let violations = check_spectator(|frame| (8, u64::from(frame)));
        assert_eq!(violations, ["spectator: spectator 0 has different inputs in frame 2"]);
        let violations = check_spectator(|frame| (7, if frame < 8 { u64::from(frame) } else { 1_000 }));
        assert_eq!(violations, ["spectator: spectator 0 has a different state in frame 8"]);
    }

    #[test]
    fn split_brain_after_mutual_drop_is_detected() {
        let run = |frames: [u32; 2]| {
            let mut checker = SessionChecker::new(vec![vec![0xff], vec![0]], 0);
            for (site, until) in frames.into_iter().enumerate() {
                for frame in 0..until {
                    checker.on_sampled(site, frame, &[0]);
                    let state = if frame < 500 { 0 } else { site as u64 };
                    checker.on_confirmed(site, frame, &[0], state + u64::from(frame));
                }
            }
            checker.on_drop(0, 1, 500);
            checker
        };
        assert_eq!(run([1_000, 500]).find_violations(), []);
        let mut both = run([1_000, 1_000]);
        both.on_drop(1, 0, 500);
        let violations: Vec<String> = both.find_violations().iter().map(ToString::to_string).collect();
        let expected = |site| format!("agreement: site {site} was dropped as of frame 500 and continued to frame 1000");
        assert_eq!(violations, [expected(0), expected(1)]);
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
