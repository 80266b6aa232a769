//! During the game: frame after frame.
//!
//! A frame *begins* when its pacer says so: the local input is taken, for the frame `lag` later, and sent at once. It is *stepped*
//! when every site's input for it is here, or, where a window allows it, guessed for the moment; that is the same instant unless
//! something is late.

use super::auto::Asked;
use super::compare::Told;
use super::event::{End, Event, Freeze, Request};
use super::peer::{Peer, Seat};
use super::relay::CUT;
use super::settings::{MAX_LAG, MAX_REACH};
use super::{Aim, Dials, Phase, STARTS, Session, Step};
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::input::{MAX_BLOCKS, Recovery, Word};
use crate::pace::{Master, Pacer, Pacing};
use crate::time::{Instant, TimeDelta};

/// A survivor goes on answering a site that left for so long.
const LINGER: TimeDelta = TimeDelta::from_secs(1);
/// Who leaves waits so long for a silent site to come back and hear of it.
const LINGER_FOR_SILENT: TimeDelta = TimeDelta::from_secs(10);
/// And so long in all.
const LINGER_AT_MOST: TimeDelta = TimeDelta::from_secs(30);

/// So often inputs are hashed that are not compared yet, long before they are forgotten.
const CHAINED_EVERY: u32 = 64;

impl Session {
    /// What to do now; ask again until there is nothing.
    ///
    /// Call it whenever the time of [`Session::poll_timeout`] has come or a datagram was handled, with the time of the call: the
    /// time at which a request is given out is when its frame is taken to begin or step.
    #[inline]
    pub fn poll_request(&mut self, now: Instant) -> Option<Request<'_>> {
        if matches!(self.phase, Phase::Running(Step::Rest))
            && self.wrong.is_none()
            && self.next_begin().min(self.next_watch) > now + self.set_back
        {
            self.note_done(now + self.set_back);
            return None;
        }
        self.next_request(now)
    }

    /// Whoever comes for more has done what was asked for.
    fn note_done(&mut self, now: Instant) {
        if let Some(auto) = &mut self.auto {
            auto.on_call(now);
        }
    }

    pub(super) fn next_request(&mut self, now: Instant) -> Option<Request<'_>> {
        let now = self.own_time(now);
        if self.next_watch <= now || !matches!(self.phase, Phase::Running(_)) {
            self.note_call(now);
            self.pass_time(now);
        }
        self.note_done(now);
        loop {
            if matches!(self.phase, Phase::Joining) && !self.sit_down_if_due() {
                return self.next_joining_request(now);
            }
            let Phase::Running(step) = self.phase else { return None };
            if self.leaving.is_some() {
                return None;
            }
            match step {
                Step::Rest if self.goes_aside() => {}
                Step::Rest if self.wants_snapshot() => return Some(self.ask_for_snapshot()),
                Step::Rest if self.next_begin() > now => return self.mend(now),
                Step::Rest if self.starves(now) => return None,
                Step::Rest => self.begin(now),
                Step::Sample => {
                    self.phase = Phase::Running(Step::Sampling);
                    return Some(Request::Sample { frame: self.own.end() });
                }
                Step::Sampling => return None,
                Step::Gather { began } => {
                    let known = self.known_end();
                    if !self.may_step_after(known) {
                        self.note_wait(now);
                        return None;
                    }
                    if self.frame >= known && now < self.guess_at(began) {
                        return None;
                    }
                    let aim = Aim::Frame { began };
                    self.phase = Phase::Running(Step::Run { aim, saved: self.wrong.is_some() });
                    // Once per frame: what is found wrong during a repair waits for the next, or a slow machine would never get done.
                    if let Some(wrong) = self.wrong.take() {
                        return Some(self.repair(now, wrong));
                    }
                }
                Step::Run { aim: Aim::Rest, .. } if self.at == self.frame => self.rest(now),
                Step::Run { aim: Aim::Rest, .. } if self.next_begin() <= now => self.begin(now),
                Step::Run { aim, saved } => return Some(self.run(now, aim, saved)),
                Step::Stepping => {
                    if let Some(pacer) = &mut self.pacer {
                        pacer.on_end(now);
                    }
                    self.finish();
                }
                Step::Hash => {
                    self.phase = self.after_hash(None);
                    return self.hashing.map(|frame| Request::Hash { frame });
                }
                Step::HashPast { aim } => {
                    self.phase = self.after_hash(Some(aim));
                    return self.hashing.map(|frame| Request::Hash { frame });
                }
                Step::Anchor { place, aim } => {
                    self.phase = Phase::Running(aim.map_or(Step::Rest, |aim| Step::Run { aim, saved: false }));
                    let frame = self.at;
                    return Some(self.keep_anchor(place, frame));
                }
                Step::Aside => return Some(self.next_aside()),
            }
        }
    }

    /// What comes after a hash, in the middle of a repair or not.
    #[cold]
    fn after_hash(&self, aim: Option<Aim>) -> Phase {
        let anchor = self.hashing.and_then(|frame| self.anchor_place(frame));
        Phase::Running(match (anchor, aim) {
            (Some(place), aim) => Step::Anchor { place, aim },
            (None, Some(aim)) => Step::Run { aim, saved: false },
            (None, None) => Step::Rest,
        })
    }

    /// Goes back to the first frame that was stepped with a wrong guess.
    #[cold]
    pub(super) fn repair(&mut self, now: Instant, wrong: Frame) -> Request<'_> {
        self.stats.repairs += 1;
        self.mending.begin(now, self.frame - wrong);
        self.ask(now, Asked::Load);
        self.at = wrong;
        Request::Load { frame: wrong, slot: self.slot(wrong) }
    }

    /// The next thing on the way to the frame that began: a frame once more, or the frame itself.
    fn run(&mut self, now: Instant, aim: Aim, saved: bool) -> Request<'_> {
        let at = self.at;
        if !saved && at >= self.known_end() {
            self.stats.saves += 1;
            self.ask(now, Asked::Save);
            self.phase = Phase::Running(Step::Run { aim, saved: true });
            return Request::Save { frame: at, slot: self.slot(at) };
        }
        self.gather_words(at);
        self.at = at.next();
        let fresh = match aim {
            Aim::Frame { began } if at == self.frame => {
                self.mending.end(now);
                self.ask(now, Asked::Show);
                self.step(now, began);
                true
            }
            _ => {
                self.ask(now, Asked::Step);
                self.step_again(aim, at);
                false
            }
        };
        Request::Advance { frame: at, inputs: &self.words, fresh }
    }

    fn ask(&mut self, now: Instant, asked: Asked) {
        if let Some(auto) = &mut self.auto {
            auto.on_ask(now, asked);
        }
    }

    /// Where the state before a frame is kept.
    pub(super) fn slot(&self, frame: Frame) -> usize {
        frame.number() as usize % self.config.settings.slots().max(1)
    }

    /// The local input that [`Request::Sample`] asked for: one word per player, of which only the bits that we own count. Until
    /// it comes the frame waits; when it was not asked for it is ignored.
    pub fn handle_input(&mut self, now: Instant, inputs: &[Word]) {
        if !matches!(self.phase, Phase::Running(Step::Sampling)) || self.leaving.is_some() {
            return;
        }
        let now = self.own_time(now);
        match self.own.blocks() {
            1 => self.push_input::<1>(inputs),
            _ => self.push_input::<MAX_BLOCKS>(inputs),
        }
        self.set_all_due();
        self.phase = self.sample_or_gather(now);
    }

    fn push_input<const BLOCKS: usize>(&mut self, inputs: &[Word]) {
        let mut packed = [[0; 16]; BLOCKS];
        let packed = &mut packed[..BLOCKS.min(self.own.blocks())];
        self.layout.pack_blocks(inputs, packed);
        self.own.push_blocks(packed);
    }

    /// The hash that [`Request::Hash`] asked for. Without it this frame is not compared.
    pub fn handle_hash(&mut self, hash: u64) {
        if self.take_hash_aside(hash) {
            return;
        }
        let Some(frame) = self.hashing.take() else { return };
        if let Some(joining) = &mut self.joining {
            return joining.watcher.handle_hash(hash);
        }
        self.tentative.replace(frame, hash);
        self.publish_digests();
    }

    /// Compares the states that nothing can change any more.
    #[cold]
    fn publish_digests(&mut self) {
        while let Some(frame) = self.compare_next.filter(|frame| *frame < self.certain()) {
            self.compare_next = Some(frame + self.config.settings.compare_every);
            let inputs = self.close_chains(frame);
            let Some(hash) = self.tentative.get(frame) else { continue };
            self.digests.insert(frame, Told { hash: fold(hash), inputs });
            self.feed_hash(frame, hash);
            for index in 0..self.peers.len() {
                self.compare(index, frame);
            }
        }
    }

    /// Hashes everybody's inputs up to a frame that is compared; returns the hash of ours.
    fn close_chains(&mut self, frame: Frame) -> u64 {
        for peer in self.peers.iter_mut().filter(|peer| peer.chain.is_known()) {
            if let Some(value) = peer.close_chain(frame) {
                peer.chained.insert(frame, value);
            }
        }
        self.chain.advance(&self.own, frame.next(), |_| false);
        self.chain.close(frame).unwrap_or_default()
    }

    /// Inputs are forgotten in time; before that they are hashed.
    #[cold]
    fn advance_chains(&mut self) {
        let Some(next) = self.compare_next else { return };
        let until = self.certain().min(next);
        self.peers.iter_mut().for_each(|peer| peer.advance_chain(until));
        self.chain.advance(&self.own, until, |_| false);
    }

    /// Whether what we have of a peer's inputs is what it gave, which it alone can say.
    fn compare_inputs(&mut self, index: usize, frame: Frame) {
        let newest = self.compare_next.and_then(|next| next.checked_sub(self.config.settings.compare_every));
        let peer = &mut self.peers[index];
        let Some(theirs) = peer.digests.get(frame).map(|told| told.inputs) else { return };
        if peer.is_absent(frame) {
            return;
        }
        if !peer.chain.is_known() {
            let Peer { chain, inputs, .. } = peer;
            if newest == Some(frame) && frame >= inputs.start() {
                chain.adopt(inputs, frame, theirs);
            }
            return;
        }
        let Some(ours) = peer.chained.get(frame) else { return };
        if ours != theirs && !peer.forged {
            peer.forged = true;
            self.events.push(Event::Forged { site: peer.site, frame });
        }
    }

    pub(super) fn compare(&mut self, index: usize, frame: Frame) {
        self.compare_inputs(index, frame);
        let peer = &mut self.peers[index];
        let (Some(ours), Some(theirs)) = (self.digests.get(frame), peer.digests.get(frame)) else { return };
        // What a site did that is gone does not concern the others, nor does what they decide concern who leaves.
        if peer.is_absent(frame) || peer.was_unasked(frame) || self.leaving.is_some() {
            return;
        }
        peer.stats.compared += 1;
        if ours.hash == theirs.hash {
            peer.agreed = Some(frame);
            return;
        }
        peer.stats.mismatches += 1;
        if peer.stats.mismatches == 1 {
            self.events.push(Event::Diverged { site: peer.site, frame });
            let agreed = peer.agreed;
            // Whoever begins with an older state would not come to ours.
            if let Some(feed) = &mut self.feed {
                feed.retire_snapshots();
            }
            self.investigate(agreed, frame, ours.hash);
        }
    }

    /// The first frame comes.
    #[cold]
    pub(super) fn start_running(&mut self, at: Instant) {
        self.start_pacing(at);
        self.phase = self.first_phase();
    }

    /// What comes before the first frame that we play: a state to go back to, should states differ.
    pub(super) fn first_phase(&self) -> Phase {
        let place = self.inquiry.as_ref().map(|_| self.place_before(self.at));
        Phase::Running(place.map_or(Step::Rest, |place| Step::Anchor { place, aim: None }))
    }

    fn begin(&mut self, now: Instant) {
        self.snapshot_asked = None;
        // What was not answered by now never will be.
        self.hashing = None;
        if let Some(dials) = self.turning.filter(|dials| dials.from <= self.frame) {
            self.turn_now(dials);
        }
        self.starts[self.frame.number() as usize % STARTS] = now;
        self.begun = now;
        let master = self.master();
        if let Some(pacer) = &mut self.pacer {
            pacer.on_begin(now, self.frame, master);
        }
        self.phase = self.sample_or_gather(now);
    }

    /// Every frame asks for one input, unless the lag has just changed.
    fn sample_or_gather(&self, now: Instant) -> Phase {
        let wanted = self.own.end() <= self.frame + self.dials.lag;
        Phase::Running(if wanted { Step::Sample } else { Step::Gather { began: now } })
    }

    /// Lag and window change with a frame. More lag asks for an input more, less for one less.
    pub(super) fn turn_dials(&mut self, from: Frame, lag: u32, window: u32) {
        let window = window.min(self.config.settings.slots() as u32);
        let dials = Dials { from, lag: lag.min(MAX_LAG).min(MAX_REACH - window), window };
        self.most_reach = self.most_reach.max(dials.lag + dials.window);
        self.turning = Some(dials);
    }

    /// The frame has come with which they change.
    #[cold]
    fn turn_now(&mut self, dials: Dials) {
        self.turning = None;
        self.dials = dials;
        let reach = dials.lag + dials.window;
        (self.stats.lag, self.stats.window) = (dials.lag, dials.window);
        if let Some(pacer) = &mut self.pacer {
            pacer.set_reach(reach);
            if dials.window > 0 {
                pacer.sway(self.config.site);
            }
        }
    }

    /// What Algorithm 4 needs to know, at a slave that has heard its master.
    fn master(&self) -> Option<Master> {
        let setter = self.pace_setter.filter(|_| self.config.pacing == Pacing::Paper)?;
        let peer = self.peers.iter().find(|peer| peer.site == setter)?;
        let last_received = peer.inputs.end().checked_sub(1).filter(|_| peer.lobby.playing)?;
        Some(Master { last_received, received_at: peer.inputs_at, rtt: peer.clock.rtt()? })
    }

    /// All inputs are known for the frames before this one.
    pub(super) fn known_end(&self) -> Frame {
        self.peers.iter().map(Peer::known_end).fold(self.own.end(), Frame::min)
    }

    /// How many frames may be guessed here: none where nothing can be repaired, whatever the others do.
    fn window(&self) -> u32 {
        if self.config.can_save { self.dials.window } else { 0 }
    }

    /// Whether the frame that began may be stepped: its inputs are here, or few enough are guessed.
    pub(super) fn may_step(&self) -> bool {
        self.may_step_after(self.known_end())
    }

    fn may_step_after(&self, known: Frame) -> bool {
        self.frame < known + self.window() && self.frame < self.own.end()
    }

    /// Those without whose inputs it may not.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &Peer> {
        let window = self.window();
        self.peers.iter().filter(move |peer| peer.known_end() + window <= self.frame)
    }

    /// Everything before this frame is stepped with the inputs that all sites gave, and will not be stepped again.
    pub(super) fn certain(&self) -> Frame {
        self.at.min(self.known_end()).min(self.wrong.unwrap_or(Frame::LAST))
    }

    /// Inputs of a peer came, which before was known up to `known`: looks whether they are what was guessed. What is yet to be stepped,
    /// or stepped again, needs no repair.
    #[inline]
    pub(super) fn check_guesses(&mut self, index: usize, known: Frame) {
        self.peers[index].settle_stand_in();
        let until = self.peers[index].known_end().min(self.at);
        // What we got before we played was certain.
        let known = known.max(if self.joining.is_some() { Frame::LAST } else { self.born });
        if known < until {
            let wrong = self.peers[index].first_wrong(known, until);
            self.wrong = [self.wrong, wrong].into_iter().flatten().min();
        }
    }

    /// Puts together what all players do in a frame, as far as that is known, and guesses the rest.
    pub(super) fn gather_words(&mut self, frame: Frame) {
        let Self { words, peers, config, .. } = self;
        words.fill(0);
        if let Some(packed) = self.own.value_blocks(frame) {
            self.layout.unpack_blocks(packed, words);
        }
        for peer in peers {
            let known = frame < peer.known_end();
            let absent = peer.is_absent(frame);
            let Peer { inputs, layout, guesses, stand_in, away, before, .. } = peer;
            let given = match absent {
                true => Some(&(if away.contains(&frame) { before } else { stand_in })[..inputs.blocks()]),
                false => inputs.value_blocks(frame),
            };
            let packed = match given {
                Some(packed) if known => packed,
                Some(packed) => guesses.keep(frame, packed),
                // Only who breaks the rules is so far ahead that this is forgotten already.
                None if known => continue,
                None => guesses.guess(config.predictor, inputs, layout, frame, words.len()),
            };
            layout.unpack_blocks(packed, words);
        }
    }

    /// Steps the frame that began.
    fn step(&mut self, now: Instant, began: Instant) {
        self.note_age(now - began);
        self.count_stall(now, began);
        let plan = self.pacer.as_ref().and_then(Pacer::plan);
        match self.pacer.as_mut().is_some_and(|pacer| pacer.on_step(now, self.frame)) {
            true => self.finish(),
            false => self.phase = Phase::Running(Step::Stepping),
        }
        self.hurry();
        self.tell_new_plan(plan);
    }

    /// A plan that was given up leads others astray until they hear of it.
    fn tell_new_plan(&mut self, before: Option<Instant>) {
        let (Some(before), Some(pacer)) = (before, &self.pacer) else { return };
        if pacer.plan().is_some_and(|plan| plan - before > pacer.period() * 3) {
            self.peers.iter_mut().for_each(Peer::probe_soon);
        }
    }

    /// Steps a frame of the past once more.
    fn step_again(&mut self, aim: Aim, at: Frame) {
        self.stats.resimulated += 1;
        self.phase = Phase::Running(match self.is_compared(at) {
            true => Step::HashPast { aim },
            false => Step::Run { aim, saved: false },
        });
    }

    /// The frame is done with.
    fn finish(&mut self) {
        let frame = self.frame;
        self.frame = frame.next();
        self.feed_certain();
        let hash = self.is_compared(frame);
        self.phase = Phase::Running(if hash { Step::Hash } else { Step::Rest });
        if !hash && self.compare_next.is_some_and(|next| next < frame) {
            self.publish_digests();
        }
        if frame.number().is_multiple_of(CHAINED_EVERY) {
            self.advance_chains();
        }
    }

    /// Whether the state after a frame is to be hashed.
    fn is_compared(&mut self, frame: Frame) -> bool {
        let every = self.config.settings.compare_every;
        let compared = every > 0 && (frame.number() + 1).is_multiple_of(every);
        if compared {
            self.hashing = Some(frame);
        }
        compared
    }

    fn count_stall(&mut self, now: Instant, began: Instant) {
        if core::mem::take(&mut self.waited) {
            self.stats.stalls += 1;
            self.stats.stalled += now - began;
            self.blame_awaited(now);
        }
        if self.frozen.take().is_some() {
            self.events.push(Event::Resumed { frame: self.frame, after: now - began });
        }
    }

    pub(super) fn next_begin(&self) -> Instant {
        self.pacer.as_ref().map_or(Instant::FAR_FUTURE, Pacer::next).max(self.pause.until)
    }

    /// When a recent frame began here.
    pub(super) fn began(&self, frame: Frame) -> Option<Instant> {
        let begun = match self.phase {
            Phase::Running(
                Step::Rest
                | Step::Hash
                | Step::Aside
                | Step::Run { aim: Aim::Rest, .. }
                | Step::HashPast { aim: Aim::Rest }
                | Step::Anchor { aim: None | Some(Aim::Rest), .. },
            ) => frame < self.frame,
            _ => frame <= self.frame,
        };
        (begun && self.frame - frame < STARTS as i64).then(|| self.starts[frame.number() as usize % STARTS])
    }

    /// When a frame that has not begun yet probably will.
    pub(super) fn planned(&self, frame: Frame) -> Option<Instant> {
        let pacer = self.pacer.as_ref()?;
        Some(pacer.next() + pacer.period() * (frame - self.frame))
    }

    /// The lowest site that plays sets the pace.
    pub(super) fn choose_pace_setter(&mut self) {
        let playing = self.peers.iter().filter(|peer| peer.is_playing()).map(|peer| peer.site);
        self.pace_setter = playing.min().filter(|lowest| *lowest < self.config.site);
    }

    /// What the passing of time does to a running game.
    pub(super) fn watch(&mut self, now: Instant) {
        if self.is_quiet(now) {
            self.peers.iter_mut().for_each(|peer| peer.needs_no_help(now));
            return self.watch_auto(now);
        }
        self.watch_all(now);
    }

    /// Whether looking after all slow things would find nothing: everybody plays and is heard, and nothing is under way.
    fn is_quiet(&self, now: Instant) -> bool {
        let config = &self.config;
        let nobody_is_timed = config.late_after.is_none() && config.give_up_after.is_none_or(|limit| limit > CUT);
        let idle = self.order.is_none() && self.leaving.is_none() && !self.talkative && !self.telling_condition;
        nobody_is_timed
            && idle
            && config.recovery != Recovery::Classic
            && self.pause.told.is_none()
            && self.view.is_quiet()
            && self.alone.is_quiet()
            && self.inquiry.as_ref().is_none_or(|inquiry| !inquiry.is_under_way())
            && !matches!(self.phase, Phase::Running(Step::Gather { .. }))
            && self.peers.iter().all(|peer| peer.is_quiet(now))
    }

    #[cold]
    fn watch_all(&mut self, now: Instant) {
        for index in 0..self.peers.len() {
            self.watch_leaver(now, index);
        }
        self.watch_late(now);
        self.watch_reports(now);
        self.watch_view(now);
        self.watch_alone(now);
        self.watch_order();
        self.watch_helpers(now);
        self.watch_requests(now);
        self.watch_talk(now);
        self.watch_search(now);
        self.watch_auto(now);
        if let Phase::Running(Step::Gather { began }) = self.phase {
            self.watch_freeze(now, began);
        }
        if self.leaving.is_some() {
            self.watch_own_leave(now);
        } else if let Some(site) = self.given_up(now) {
            self.end(End::Silent(site));
        }
    }

    /// A site that announced to leave has left when all its inputs are here.
    fn watch_leaver(&mut self, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        let Seat::Leaving(last) = peer.seat else { return };
        if peer.inputs.end() < last {
            return;
        }
        if !self.left.contains(peer.site) {
            self.left.insert(peer.site);
            self.events.push(Event::Left { site: peer.site, frame: last });
            self.choose_pace_setter();
        } else if now - peer.heard > LINGER || self.frame > last + 60 {
            peer.seat = Seat::Free(last);
            self.listeners &= !(1 << index);
            self.end_if_alone();
        }
    }

    #[cold]
    fn watch_freeze(&mut self, now: Instant, began: Instant) {
        let limit = self.config.freeze_after;
        if now - began < limit || self.may_step() {
            return;
        }
        let waiting_for: SiteSet = self.awaited().map(|peer| peer.site).collect();
        let silent = self.awaited().filter(|peer| now - peer.heard >= limit).map(|peer| peer.site).collect();
        let freeze = Freeze { frame: self.frame, since: began, waiting_for, silent };
        if self.frozen != Some(freeze) {
            self.frozen = Some(freeze);
            self.events.push(Event::Frozen(freeze));
        }
    }

    /// We leave when everybody has our last input and knows that it is the last, or is silent, or will not listen.
    #[cold]
    fn watch_own_leave(&mut self, now: Instant) {
        let told =
            |peer: &Peer| peer.is_free() || peer.dropped || peer.knows_leave || now - peer.heard > LINGER_FOR_SILENT;
        let Some(leave) = self.leaving else { return };
        if now - leave.since > LINGER_AT_MOST || self.peers.iter().all(told) {
            self.end(leave.end);
        }
    }

    fn given_up(&self, now: Instant) -> Option<SiteId> {
        let limit = self.config.give_up_after?;
        let complete = |peer: &Peer| peer.last().is_some_and(|last| peer.inputs.end() >= last) && peer.joins.is_none();
        let silent = |peer: &&Peer| !complete(peer) && now - peer.heard > limit;
        self.peers.iter().find(silent).map(|peer| peer.site)
    }

    /// A site whose last other player left ends, unless somebody can still come (a dropped site, a latecomer) or it plays on alone.
    pub(super) fn end_if_alone(&mut self) {
        let open = self.config.settings.starters != SiteSet::first(usize::from(self.config.settings.sites));
        let gone = |peer: &Peer| peer.is_free() && !peer.dropped;
        if !self.config.play_on_alone && !open && self.peers.iter().all(gone) {
            self.end(End::Alone);
        }
    }

    #[cold]
    pub(super) fn end(&mut self, end: End) {
        if !self.is_over() {
            self.phase = Phase::Over(end);
            self.due = 0;
            self.events.push(Event::Ended(end));
        }
    }
}

/// A state's hash as it travels.
pub(super) fn fold(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}
