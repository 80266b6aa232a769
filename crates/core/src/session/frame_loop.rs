//! During the game: frame after frame.
//!
//! A frame *begins* when its pacer says so: the local input is taken, for the frame `lag` later, and sent at once. It is *stepped*
//! when every site's input for it is here, or, where a window allows it, guessed for the moment; that is the same instant unless
//! something is late.

use super::auto_tune::TimedRequest;
use super::digest_history::FrameDigest;
use super::event::{Event, Freeze, Request, SessionEnd};
use super::peer::{Peer, Seat};
use super::relay::LINK_CUT_TIMEOUT;
use super::settings::{MAX_INPUT_DELAY, MAX_LEAD};
use super::{DelaySettings, FramePhase, MAX_FRAME_STARTS, Phase, Session, SimulationTarget};
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::input::{InputWord, MAX_BLOCKS, Recovery};
use crate::pace::{Pacer, Pacing, ZhaoMaster};
use crate::time::{Instant, TimeDelta};

/// A survivor goes on answering a site that left for so long.
const LEAVER_LINGER: TimeDelta = TimeDelta::from_secs(1);
/// Who leaves waits so long for a silent site to come back and hear of it.
const LEAVE_WAIT_FOR_SILENT_PEER: TimeDelta = TimeDelta::from_secs(10);
/// And so long in all.
const MAX_LEAVE_WAIT: TimeDelta = TimeDelta::from_secs(30);

/// So often inputs are hashed that are not compared yet, long before they are forgotten.
const INPUT_DIGEST_INTERVAL: u32 = 64;

impl Session {
    /// What to do now; ask again until there is nothing.
    ///
    /// Call it whenever the time of [`Session::poll_timeout`] has come or a datagram was handled, with the time of the call: the
    /// time at which a request is given out is when its frame is taken to begin or step.
    #[inline]
    pub fn poll_request(&mut self, now: Instant) -> Option<Request<'_>> {
        if matches!(self.phase, Phase::Running(FramePhase::Idle))
            && self.first_misprediction.is_none()
            && self.next_frame_time().min(self.next_update) > now + self.clock_set_back
        {
            self.note_request_done(now + self.clock_set_back);
            return None;
        }
        self.next_request(now)
    }

    /// Whoever comes for more has done what was asked for.
    fn note_request_done(&mut self, now: Instant) {
        if let Some(auto) = &mut self.auto_tuner {
            auto.on_request_done(now);
        }
    }

    pub(super) fn next_request(&mut self, now: Instant) -> Option<Request<'_>> {
        let now = self.monotonic_time(now);
        if self.next_update <= now || !matches!(self.phase, Phase::Running(_)) {
            self.detect_host_stall(now);
            self.advance_time(now);
        }
        self.note_request_done(now);
        loop {
            if matches!(self.phase, Phase::Joining) && !self.start_playing_if_due() {
                return self.next_joining_request(now);
            }
            let Phase::Running(step) = self.phase else { return None };
            if self.leaving.is_some() {
                return None;
            }
            match step {
                FramePhase::Idle if self.begin_replay_if_due() => {}
                FramePhase::Idle if self.is_snapshot_due() => return Some(self.request_snapshot()),
                FramePhase::Idle if self.next_frame_time() > now => return self.roll_back_if_due(now),
                FramePhase::Idle if self.is_starved(now) => return None,
                FramePhase::Idle => self.begin_frame(now),
                FramePhase::SampleDue => {
                    self.phase = Phase::Running(FramePhase::AwaitSample);
                    return Some(Request::Sample { frame: self.own_inputs.end() });
                }
                FramePhase::AwaitSample => return None,
                FramePhase::AwaitInputs { began } => {
                    let known = self.known_end();
                    if !self.can_step_with(known) {
                        self.record_stall(now);
                        return None;
                    }
                    if self.frame >= known && now < self.predict_at(began) {
                        return None;
                    }
                    let aim = SimulationTarget::CurrentFrame { began };
                    self.phase = Phase::Running(FramePhase::Simulate {
                        target: aim,
                        is_saved: self.first_misprediction.is_some(),
                    });
                    // Once per frame: what is found wrong during a repair waits for the next, or a slow machine would never get done.
                    if let Some(wrong) = self.first_misprediction.take() {
                        return Some(self.begin_rollback(now, wrong));
                    }
                }
                FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, .. }
                    if self.machine_frame == self.frame =>
                {
                    self.finish_early_rollback(now)
                }
                FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, .. }
                    if self.next_frame_time() <= now =>
                {
                    self.begin_frame(now)
                }
                FramePhase::Simulate { target: aim, is_saved: saved } => {
                    return Some(self.next_simulation_request(now, aim, saved));
                }
                FramePhase::AwaitStep => {
                    if let Some(pacer) = &mut self.pacer {
                        pacer.on_end(now);
                    }
                    self.finish_frame();
                }
                FramePhase::Hash => {
                    self.phase = self.phase_after_hash(None);
                    return self.hash_pending.map(|frame| Request::Hash { frame });
                }
                FramePhase::HashResimulated { target: aim } => {
                    self.phase = self.phase_after_hash(Some(aim));
                    return self.hash_pending.map(|frame| Request::Hash { frame });
                }
                FramePhase::SaveAnchor { slot: place, target: aim } => {
                    self.phase = Phase::Running(
                        aim.map_or(FramePhase::Idle, |aim| FramePhase::Simulate { target: aim, is_saved: false }),
                    );
                    let frame = self.machine_frame;
                    return Some(self.save_anchor(place, frame));
                }
                FramePhase::Replay => return Some(self.next_replay_request()),
            }
        }
    }

    /// What comes after a hash, in the middle of a repair or not.
    #[cold]
    fn phase_after_hash(&self, aim: Option<SimulationTarget>) -> Phase {
        let anchor = self.hash_pending.and_then(|frame| self.anchor_slot(frame));
        Phase::Running(match (anchor, aim) {
            (Some(place), aim) => FramePhase::SaveAnchor { slot: place, target: aim },
            (None, Some(aim)) => FramePhase::Simulate { target: aim, is_saved: false },
            (None, None) => FramePhase::Idle,
        })
    }

    /// Goes back to the first frame that was stepped with a wrong guess.
    #[cold]
    pub(super) fn begin_rollback(&mut self, now: Instant, wrong: Frame) -> Request<'_> {
        self.stats.rollbacks += 1;
        self.rollback_scheduler.begin(now, self.frame - wrong);
        self.time_request(now, TimedRequest::Load);
        self.machine_frame = wrong;
        Request::Load { frame: wrong, slot: self.save_slot(wrong) }
    }

    /// The next thing on the way to the frame that began: a frame once more, or the frame itself.
    fn next_simulation_request(&mut self, now: Instant, aim: SimulationTarget, saved: bool) -> Request<'_> {
        let at = self.machine_frame;
        if !saved && at >= self.known_end() {
            self.stats.saves += 1;
            self.time_request(now, TimedRequest::Save);
            self.phase = Phase::Running(FramePhase::Simulate { target: aim, is_saved: true });
            return Request::Save { frame: at, slot: self.save_slot(at) };
        }
        self.gather_inputs(at);
        self.machine_frame = at.next();
        let fresh = match aim {
            SimulationTarget::CurrentFrame { began } if at == self.frame => {
                self.rollback_scheduler.end(now);
                self.time_request(now, TimedRequest::ShownStep);
                self.step_frame(now, began);
                true
            }
            _ => {
                self.time_request(now, TimedRequest::HiddenStep);
                self.resimulate_frame(aim, at);
                false
            }
        };
        Request::Advance { frame: at, inputs: &self.input_words, fresh }
    }

    fn time_request(&mut self, now: Instant, asked: TimedRequest) {
        if let Some(auto) = &mut self.auto_tuner {
            auto.on_request(now, asked);
        }
    }

    /// Where the state before a frame is kept.
    pub(super) fn save_slot(&self, frame: Frame) -> usize {
        frame.number() as usize % self.config.settings.rollback_slots().max(1)
    }

    /// The local input that [`MirrorRequest::StateSample`] asked for: one word per player, of which only the bits that we own count. Until
    /// it comes the frame waits; when it was not asked for it is ignored.
    pub fn handle_input(&mut self, now: Instant, inputs: &[InputWord]) {
        if !matches!(self.phase, Phase::Running(FramePhase::AwaitSample)) || self.leaving.is_some() {
            return;
        }
        let now = self.monotonic_time(now);
        match self.own_inputs.block_count() {
            1 => self.push_input::<1>(inputs),
            _ => self.push_input::<MAX_BLOCKS>(inputs),
        }
        self.mark_all_due();
        self.phase = self.sample_or_await_inputs(now);
    }

    fn push_input<const BLOCKS: usize>(&mut self, inputs: &[InputWord]) {
        let mut packed = [[0; 16]; BLOCKS];
        let packed = &mut packed[..BLOCKS.min(self.own_inputs.block_count())];
        self.layout.pack_blocks(inputs, packed);
        self.own_inputs.push_blocks(packed);
    }

    /// The hash that [`MirrorRequest::HashCheck`] asked for. Without it this frame is not compared.
    pub fn handle_hash(&mut self, hash: u64) {
        if self.handle_replay_hash(hash) {
            return;
        }
        let Some(frame) = self.hash_pending.take() else { return };
        if let Some(joining) = &mut self.joining {
            return joining.spectator.handle_hash(hash);
        }
        self.tentative_hashes.replace(frame, hash);
        self.publish_confirmed_digests();
    }

    /// Compares the states that nothing can change any more.
    #[cold]
    fn publish_confirmed_digests(&mut self) {
        while let Some(frame) = self.next_compared_frame.filter(|frame| *frame < self.confirmed_end()) {
            self.next_compared_frame = Some(frame + self.config.settings.compare_interval);
            let inputs = self.close_input_digests(frame);
            let Some(hash) = self.tentative_hashes.get(frame) else { continue };
            self.own_digests.insert(frame, FrameDigest { state_hash: fold_hash(hash), input_digest: inputs });
            self.feed_hash(frame, hash);
            for index in 0..self.peers.len() {
                self.compare_state(index, frame);
            }
        }
    }

    /// Hashes everybody's inputs up to a frame that is compared; returns the hash of ours.
    fn close_input_digests(&mut self, frame: Frame) -> u64 {
        for peer in self.peers.iter_mut().filter(|peer| peer.input_digest.is_known()) {
            if let Some(value) = peer.close_input_digest(frame) {
                peer.input_digests.insert(frame, value);
            }
        }
        self.own_input_digest.advance(&self.own_inputs, frame.next(), |_| false);
        self.own_input_digest.close_interval(frame).unwrap_or_default()
    }

    /// Inputs are forgotten in time; before that they are hashed.
    #[cold]
    fn advance_input_digests(&mut self) {
        let Some(next) = self.next_compared_frame else { return };
        let until = self.confirmed_end().min(next);
        self.peers.iter_mut().for_each(|peer| peer.advance_input_digest(until));
        self.own_input_digest.advance(&self.own_inputs, until, |_| false);
    }

    /// Whether what we have of a peer's inputs is what it gave, which it alone can say.
    fn compare_input_digest(&mut self, index: usize, frame: Frame) {
        let newest = self.next_compared_frame.and_then(|next| next.checked_sub(self.config.settings.compare_interval));
        let peer = &mut self.peers[index];
        let Some(theirs) = peer.frame_digests.get(frame).map(|told| told.input_digest) else { return };
        if peer.is_absent(frame) {
            return;
        }
        if !peer.input_digest.is_known() {
            let Peer { input_digest: chain, inputs, .. } = peer;
            if newest == Some(frame) && frame >= inputs.start() {
                chain.adopt(inputs, frame, theirs);
            }
            return;
        }
        let Some(ours) = peer.input_digests.get(frame) else { return };
        if ours != theirs && !peer.is_forgery_reported {
            peer.is_forgery_reported = true;
            self.events.push(Event::InputsForged { site: peer.site, frame });
        }
    }

    pub(super) fn compare_state(&mut self, index: usize, frame: Frame) {
        self.compare_input_digest(index, frame);
        let peer = &mut self.peers[index];
        let (Some(ours), Some(theirs)) = (self.own_digests.get(frame), peer.frame_digests.get(frame)) else { return };
        // What a site did that is gone does not concern the others, nor does what they decide concern who leaves.
        if peer.is_absent(frame) || peer.was_unconsulted(frame) || self.leaving.is_some() {
            return;
        }
        peer.stats.compared += 1;
        if ours.state_hash == theirs.state_hash {
            peer.last_agreed_frame = Some(frame);
            return;
        }
        peer.stats.mismatches += 1;
        if peer.stats.mismatches == 1 {
            self.events.push(Event::Diverged { site: peer.site, frame });
            let agreed = peer.last_agreed_frame;
            // Whoever begins with an older state would not come to ours.
            if let Some(feed) = &mut self.feed {
                feed.retire_snapshots();
            }
            self.start_desync_search(agreed, frame, ours.state_hash);
        }
    }

    /// The first frame comes.
    #[cold]
    pub(super) fn start_running(&mut self, at: Instant) {
        self.start_pacing(at);
        self.phase = self.initial_phase();
    }

    /// What comes before the first frame that we play: a state to go back to, should states differ.
    pub(super) fn initial_phase(&self) -> Phase {
        let place = self.desync_search.as_ref().map(|_| self.anchor_slot_before(self.machine_frame));
        Phase::Running(place.map_or(FramePhase::Idle, |place| FramePhase::SaveAnchor { slot: place, target: None }))
    }

    fn begin_frame(&mut self, now: Instant) {
        self.snapshot_requested = None;
        // What was not answered by now never will be.
        self.hash_pending = None;
        if let Some(dials) = self.next_delay_settings.filter(|dials| dials.from_frame <= self.frame) {
            self.apply_delay_settings(dials);
        }
        self.frame_starts[self.frame.number() as usize % MAX_FRAME_STARTS] = now;
        self.frame_begun_at = now;
        let master = self.zhao_master();
        if let Some(pacer) = &mut self.pacer {
            pacer.on_begin(now, self.frame, master);
        }
        self.phase = self.sample_or_await_inputs(now);
    }

    /// Every frame asks for one input, unless the lag has just changed.
    fn sample_or_await_inputs(&self, now: Instant) -> Phase {
        let wanted = self.own_inputs.end() <= self.frame + self.delay_settings.input_delay;
        Phase::Running(if wanted { FramePhase::SampleDue } else { FramePhase::AwaitInputs { began: now } })
    }

    /// Lag and window change with a frame. More lag asks for an input more, less for one less.
    pub(super) fn schedule_delay_settings(&mut self, from: Frame, lag: u32, window: u32) {
        let window = window.min(self.config.settings.rollback_slots() as u32);
        let dials = DelaySettings {
            from_frame: from,
            input_delay: lag.min(MAX_INPUT_DELAY).min(MAX_LEAD - window),
            prediction_window: window,
        };
        self.max_lead = self.max_lead.max(dials.input_delay + dials.prediction_window);
        self.next_delay_settings = Some(dials);
    }

    /// The frame has come with which they change.
    #[cold]
    fn apply_delay_settings(&mut self, dials: DelaySettings) {
        self.next_delay_settings = None;
        self.delay_settings = dials;
        let reach = dials.input_delay + dials.prediction_window;
        (self.stats.input_delay, self.stats.prediction_window) = (dials.input_delay, dials.prediction_window);
        if let Some(pacer) = &mut self.pacer {
            pacer.set_max_lead(reach);
            if dials.prediction_window > 0 {
                pacer.enable_dither(self.config.site);
            }
        }
    }

    /// What Algorithm 4 needs to know, at a slave that has heard its master.
    fn zhao_master(&self) -> Option<ZhaoMaster> {
        let setter = self.pace_setter.filter(|_| self.config.pacing == Pacing::Zhao)?;
        let peer = self.peers.iter().find(|peer| peer.site == setter)?;
        let last_received = peer.inputs.end().checked_sub(1).filter(|_| peer.lobby.has_played)?;
        Some(ZhaoMaster { last_received, received_at: peer.last_input_at, rtt: peer.clock.rtt()? })
    }

    /// All inputs are known for the frames before this one.
    pub(super) fn known_end(&self) -> Frame {
        self.peers.iter().map(Peer::known_end).fold(self.own_inputs.end(), Frame::min)
    }

    /// How many frames may be guessed here: none where nothing can be repaired, whatever the others do.
    fn usable_prediction_window(&self) -> u32 {
        if self.config.can_save { self.delay_settings.prediction_window } else { 0 }
    }

    /// Whether the frame that began may be stepped: its inputs are here, or few enough are guessed.
    pub(super) fn can_step(&self) -> bool {
        self.can_step_with(self.known_end())
    }

    fn can_step_with(&self, known: Frame) -> bool {
        self.frame < known + self.usable_prediction_window() && self.frame < self.own_inputs.end()
    }

    /// Those without whose inputs it may not.
    pub(super) fn stalling_peers(&self) -> impl Iterator<Item = &Peer> {
        let window = self.usable_prediction_window();
        self.peers.iter().filter(move |peer| peer.known_end() + window <= self.frame)
    }

    /// Everything before this frame is stepped with the inputs that all sites gave, and will not be stepped again.
    pub(super) fn confirmed_end(&self) -> Frame {
        self.machine_frame.min(self.known_end()).min(self.first_misprediction.unwrap_or(Frame::NEVER))
    }

    /// Inputs of a peer came, which before was known up to `known`: looks whether they are what was guessed. What is yet to be stepped,
    /// or stepped again, needs no repair.
    #[inline]
    pub(super) fn check_predictions(&mut self, index: usize, known: Frame) {
        self.peers[index].settle_substitute_input();
        let until = self.peers[index].known_end().min(self.machine_frame);
        // What we got before we played was certain.
        let known = known.max(if self.joining.is_some() { Frame::NEVER } else { self.joined_at });
        if known < until {
            let wrong = self.peers[index].first_misprediction(known, until);
            self.first_misprediction = [self.first_misprediction, wrong].into_iter().flatten().min();
        }
    }

    /// Puts together what all players do in a frame, as far as that is known, and guesses the rest.
    pub(super) fn gather_inputs(&mut self, frame: Frame) {
        let Self { input_words: words, peers, config, .. } = self;
        words.fill(0);
        if let Some(packed) = self.own_inputs.value_blocks(frame) {
            self.layout.unpack_blocks(packed, words);
        }
        for peer in peers {
            let known = frame < peer.known_end();
            let absent = peer.is_absent(frame);
            let Peer {
                inputs,
                layout,
                predictions: guesses,
                substitute_input: stand_in,
                absence: away,
                absence_input: before,
                ..
            } = peer;
            let given = match absent {
                true => Some(&(if away.contains(&frame) { before } else { stand_in })[..inputs.block_count()]),
                false => inputs.value_blocks(frame),
            };
            let packed = match given {
                Some(packed) if known => packed,
                Some(packed) => guesses.store_known(frame, packed),
                // Only who breaks the rules is so far ahead that this is forgotten already.
                None if known => continue,
                None => guesses.predict(config.predictor, inputs, layout, frame, words.len()),
            };
            layout.unpack_blocks(packed, words);
        }
    }

    /// Steps the frame that began.
    fn step_frame(&mut self, now: Instant, began: Instant) {
        self.record_input_age(now - began);
        self.end_stall(now, began);
        let plan = self.pacer.as_ref().and_then(Pacer::planned_start);
        match self.pacer.as_mut().is_some_and(|pacer| pacer.on_step(now, self.frame)) {
            true => self.finish_frame(),
            false => self.phase = Phase::Running(FramePhase::AwaitStep),
        }
        self.catch_up();
        self.announce_new_plan(plan);
    }

    /// A plan that was given up leads others astray until they hear of it.
    fn announce_new_plan(&mut self, before: Option<Instant>) {
        let (Some(before), Some(pacer)) = (before, &self.pacer) else { return };
        if pacer.planned_start().is_some_and(|plan| plan - before > pacer.period() * 3) {
            self.peers.iter_mut().for_each(Peer::make_probe_due);
        }
    }

    /// Steps a frame of the past once more.
    fn resimulate_frame(&mut self, aim: SimulationTarget, at: Frame) {
        self.stats.resimulated += 1;
        self.phase = Phase::Running(match self.request_hash_if_compared(at) {
            true => FramePhase::HashResimulated { target: aim },
            false => FramePhase::Simulate { target: aim, is_saved: false },
        });
    }

    /// The frame is done with.
    fn finish_frame(&mut self) {
        let frame = self.frame;
        self.frame = frame.next();
        self.feed_confirmed();
        let hash = self.request_hash_if_compared(frame);
        self.phase = Phase::Running(if hash { FramePhase::Hash } else { FramePhase::Idle });
        if !hash && self.next_compared_frame.is_some_and(|next| next < frame) {
            self.publish_confirmed_digests();
        }
        if frame.number().is_multiple_of(INPUT_DIGEST_INTERVAL) {
            self.advance_input_digests();
        }
    }

    /// Whether the state after a frame is to be hashed.
    fn request_hash_if_compared(&mut self, frame: Frame) -> bool {
        let every = self.config.settings.compare_interval;
        let compared = every > 0 && (frame.number() + 1).is_multiple_of(every);
        if compared {
            self.hash_pending = Some(frame);
        }
        compared
    }

    fn end_stall(&mut self, now: Instant, began: Instant) {
        if core::mem::take(&mut self.is_stalled) {
            self.stats.stalls += 1;
            self.stats.stall_time += now - began;
            self.charge_stall(now);
        }
        if self.freeze.take().is_some() {
            self.events.push(Event::Resumed { frame: self.frame, after: now - began });
        }
    }

    pub(super) fn next_frame_time(&self) -> Instant {
        self.pacer.as_ref().map_or(Instant::FAR_FUTURE, Pacer::next_start).max(self.pause.until)
    }

    /// When a recent frame began here.
    pub(super) fn frame_began_at(&self, frame: Frame) -> Option<Instant> {
        let begun = match self.phase {
            Phase::Running(
                FramePhase::Idle
                | FramePhase::Hash
                | FramePhase::Replay
                | FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, .. }
                | FramePhase::HashResimulated { target: SimulationTarget::BeforeNextFrame }
                | FramePhase::SaveAnchor { target: None | Some(SimulationTarget::BeforeNextFrame), .. },
            ) => frame < self.frame,
            _ => frame <= self.frame,
        };
        (begun && self.frame - frame < MAX_FRAME_STARTS as i64)
            .then(|| self.frame_starts[frame.number() as usize % MAX_FRAME_STARTS])
    }

    /// When a frame that has not begun yet probably will.
    pub(super) fn frame_planned_at(&self, frame: Frame) -> Option<Instant> {
        let pacer = self.pacer.as_ref()?;
        Some(pacer.next_start() + pacer.period() * (frame - self.frame))
    }

    /// The lowest site that plays sets the pace.
    pub(super) fn choose_pace_setter(&mut self) {
        let playing = self.peers.iter().filter(|peer| peer.is_playing()).map(|peer| peer.site);
        self.pace_setter = playing.min().filter(|lowest| *lowest < self.config.site);
    }

    /// What the passing of time does to a running game.
    pub(super) fn update(&mut self, now: Instant) {
        if self.is_steady(now) {
            self.peers.iter_mut().for_each(|peer| peer.reset_relay_selector(now));
            return self.update_auto_tuner(now);
        }
        self.update_all(now);
    }

    /// Whether looking after all slow things would find nothing: everybody plays and is heard, and nothing is under way.
    fn is_steady(&self, now: Instant) -> bool {
        let config = &self.config;
        let nobody_is_timed =
            config.stall_limit.is_none() && config.silence_timeout.is_none_or(|limit| limit > LINK_CUT_TIMEOUT);
        let idle = self.command.is_none() && self.leaving.is_none() && !self.extras_pending && !self.tuning_stats_due;
        nobody_is_timed
            && idle
            && config.recovery != Recovery::Classic
            && self.pause.announced.is_none()
            && self.membership.is_idle()
            && self.split_brain.is_idle()
            && self.desync_search.as_ref().is_none_or(|inquiry| !inquiry.is_under_way())
            && !matches!(self.phase, Phase::Running(FramePhase::AwaitInputs { .. }))
            && self.peers.iter().all(|peer| peer.is_steady(now))
    }

    #[cold]
    fn update_all(&mut self, now: Instant) {
        for index in 0..self.peers.len() {
            self.update_leaver(now, index);
        }
        self.update_slow_peers(now);
        self.update_reports(now);
        self.update_membership(now);
        self.update_split_brain(now);
        self.update_command();
        self.update_relays(now);
        self.update_classic_recovery(now);
        self.update_extras_pending(now);
        self.update_desync_search(now);
        self.update_auto_tuner(now);
        if let Phase::Running(FramePhase::AwaitInputs { began }) = self.phase {
            self.update_freeze(now, began);
        }
        if self.leaving.is_some() {
            self.update_own_leave(now);
        } else if let Some(site) = self.timed_out_site(now) {
            self.end_session(SessionEnd::Silent(site));
        }
    }

    /// A site that announced to leave has left when all its inputs are here.
    fn update_leaver(&mut self, now: Instant, index: usize) {
        let peer = &mut self.peers[index];
        let Seat::Leaving(last) = peer.seat else { return };
        if peer.inputs.end() < last {
            return;
        }
        if !self.left_sites.contains(peer.site) {
            self.left_sites.insert(peer.site);
            self.events.push(Event::Left { site: peer.site, frame: last });
            self.choose_pace_setter();
        } else if now - peer.last_received_at > LEAVER_LINGER || self.frame > last + 60 {
            peer.seat = Seat::Free(last);
            self.active_peers &= !(1 << index);
            self.end_if_alone();
        }
    }

    #[cold]
    fn update_freeze(&mut self, now: Instant, began: Instant) {
        let limit = self.config.freeze_timeout;
        if now - began < limit || self.can_step() {
            return;
        }
        let waiting_for: SiteSet = self.stalling_peers().map(|peer| peer.site).collect();
        let silent =
            self.stalling_peers().filter(|peer| now - peer.last_received_at >= limit).map(|peer| peer.site).collect();
        let freeze = Freeze { frame: self.frame, since: began, waiting_for, silent_sites: silent };
        if self.freeze != Some(freeze) {
            self.freeze = Some(freeze);
            self.events.push(Event::Frozen(freeze));
        }
    }

    /// We leave when everybody has our last input and knows that it is the last, or is silent, or will not listen.
    #[cold]
    fn update_own_leave(&mut self, now: Instant) {
        let told = |peer: &Peer| {
            peer.is_free()
                || peer.is_dropped
                || peer.knows_own_leave
                || now - peer.last_received_at > LEAVE_WAIT_FOR_SILENT_PEER
        };
        let Some(leave) = self.leaving else { return };
        if now - leave.since > MAX_LEAVE_WAIT || self.peers.iter().all(told) {
            self.end_session(leave.reason);
        }
    }

    fn timed_out_site(&self, now: Instant) -> Option<SiteId> {
        let limit = self.config.silence_timeout?;
        let complete =
            |peer: &Peer| peer.absent_from().is_some_and(|last| peer.inputs.end() >= last) && peer.join_frame.is_none();
        let silent = |peer: &&Peer| !complete(peer) && now - peer.last_received_at > limit;
        self.peers.iter().find(silent).map(|peer| peer.site)
    }

    /// A site whose last other player left ends, unless somebody can still come (a dropped site, a latecomer) or it plays on alone.
    pub(super) fn end_if_alone(&mut self) {
        let open = self.config.settings.starting_sites != SiteSet::first(usize::from(self.config.settings.site_count));
        let gone = |peer: &Peer| peer.is_free() && !peer.is_dropped;
        if !self.config.can_play_alone && !open && self.peers.iter().all(gone) {
            self.end_session(SessionEnd::Alone);
        }
    }

    #[cold]
    pub(super) fn end_session(&mut self, end: SessionEnd) {
        if !self.is_over() {
            self.phase = Phase::Over(end);
            self.due_peers = 0;
            self.events.push(Event::Ended(end));
        }
    }
}

/// A state's hash as it travels.
pub(super) fn fold_hash(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}
