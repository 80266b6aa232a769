//! The frame loop: samples local inputs, gathers the inputs of all sites, rolls back and steps frames.
//!
//! A frame *begins* at the time that the pacer sets: the local input is sampled for the frame that is later by the
//! input delay, and sent at once. A frame is *stepped* when every site's input for it is known, or predicted where the
//! prediction window allows it. Both happen at the same instant unless inputs are late.

use super::auto_tune::MeasuredRequest;

use super::event::{Event, Freeze, SessionEnd};
use super::peer::{LINK_CUT_TIMEOUT, Peer, Seat};
use super::phase::{FramePhase, Phase, SimulationTarget};
use super::request::Request;
use super::{DelaySettings, Session};
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::input::{InputWord, MAX_BLOCKS, Recovery};
use crate::pace::{MasterObservation, Pacing};
use crate::settings::{MAX_INPUT_DELAY, MAX_LEAD};
use crate::time::{Instant, TimeDelta};

/// Silence after which the seat of a site that left or was dropped becomes free. The seat becomes free earlier once
/// this site is more than 60 frames past the end of that site's inputs. Until its seat is free, a site that left still
/// gets ticks, from which it learns that this site knows of its leave.
const LEAVER_LINGER: TimeDelta = TimeDelta::from_secs(1);
/// Silence of a peer after which a leaving site no longer waits for it to receive the leave.
const LEAVE_WAIT_FOR_SILENT_PEER: TimeDelta = TimeDelta::from_secs(10);
/// Maximum duration of a leave, after which the session ends even if some peers do not know of it.
const MAX_LEAVE_WAIT: TimeDelta = TimeDelta::from_secs(30);

/// Interval, in frames, at which inputs are hashed between comparisons, long before the input streams discard them.
const INPUT_DIGEST_INTERVAL: u32 = 64;

impl Session {
    /// Returns the next request to the host program; call it until it returns `None`.
    ///
    /// Call it whenever the time of [`Session::poll_timeout`] has come or a datagram was handled, with the time of the
    /// call: a frame begins or is stepped at the time at which its request is returned.
    #[inline]
    pub fn poll_request(&mut self, now: Instant) -> Option<Request<'_>> {
        if matches!(self.phase, Phase::Running(FramePhase::Idle))
            && self.first_misprediction.is_none()
            && self.next_frame_time().min(self.clock.next_update()) > self.clock.session_time(now)
        {
            self.note_request_done(self.clock.session_time(now));
            return None;
        }
        self.next_request(now)
    }

    /// Notes that the host program has completed the last request, because it asks for the next one.
    fn note_request_done(&mut self, now: Instant) {
        if let Some(tuner) = &mut self.auto_tuner {
            tuner.on_request_done(now);
        }
    }

    pub(super) fn next_request(&mut self, now: Instant) -> Option<Request<'_>> {
        let now = self.clock.call_time(now);
        if self.clock.next_update() <= now || !matches!(self.phase, Phase::Running(_)) {
            self.detect_host_stall(now);
            self.advance_time(now);
        }
        self.note_request_done(now);
        loop {
            if matches!(self.phase, Phase::Joining) && !self.start_playing_if_due() {
                return self.next_joining_request(now);
            }
            let Phase::Running(frame_phase) = self.phase else { return None };
            if self.leaving.is_some() {
                return None;
            }
            match frame_phase {
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
                    let target = SimulationTarget::CurrentFrame { began };
                    self.phase =
                        Phase::Running(FramePhase::Simulate { target, is_saved: self.first_misprediction.is_some() });
                    // There is at most one rollback per frame: a misprediction that is found during a rollback waits
                    // for the next frame, or a slow machine would never finish.
                    if let Some(mispredicted) = self.first_misprediction.take() {
                        return Some(self.begin_rollback(now, mispredicted));
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
                FramePhase::Simulate { target, is_saved } => {
                    return Some(self.next_simulation_request(now, target, is_saved));
                }
                FramePhase::AwaitStep => {
                    self.schedule.on_step_end(now);
                    self.finish_frame();
                }
                FramePhase::Hash => {
                    self.phase = self.phase_after_hash(None);
                    return self.comparison.pending_hash().map(|frame| Request::Hash { frame });
                }
                FramePhase::HashResimulated { target } => {
                    self.phase = self.phase_after_hash(Some(target));
                    return self.comparison.pending_hash().map(|frame| Request::Hash { frame });
                }
                FramePhase::SaveAnchor { slot, target } => {
                    self.phase = Phase::Running(
                        target.map_or(FramePhase::Idle, |target| FramePhase::Simulate { target, is_saved: false }),
                    );
                    let frame = self.machine_frame;
                    return Some(self.save_anchor(slot, frame));
                }
                FramePhase::Replay => return Some(self.next_replay_request()),
            }
        }
    }

    /// Returns the phase after a hash: first an anchor is saved if one is due, then the rollback towards `target` goes
    /// on, if there is one.
    #[cold]
    fn phase_after_hash(&self, target: Option<SimulationTarget>) -> Phase {
        let anchor = self.comparison.pending_hash().and_then(|frame| self.anchor_slot(frame));
        Phase::Running(match (anchor, target) {
            (Some(slot), target) => FramePhase::SaveAnchor { slot, target },
            (None, Some(target)) => FramePhase::Simulate { target, is_saved: false },
            (None, None) => FramePhase::Idle,
        })
    }

    /// Begins a rollback to `mispredicted`, the first frame that was stepped with a mispredicted input: returns the
    /// request to load the state before that frame.
    #[cold]
    pub(super) fn begin_rollback(&mut self, now: Instant, mispredicted: Frame) -> Request<'_> {
        self.stats.rollbacks += 1;
        self.rollback_scheduler.begin(now, self.frame - mispredicted);
        self.time_request(now, MeasuredRequest::Load);
        self.machine_frame = mispredicted;
        Request::Load { frame: mispredicted, slot: self.save_slot(mispredicted) }
    }

    /// Returns the next request on the way to the target: the step of a past frame or of the current one, or the save
    /// that comes before each frame for which an input is missing.
    fn next_simulation_request(&mut self, now: Instant, target: SimulationTarget, is_saved: bool) -> Request<'_> {
        let frame = self.machine_frame;
        if !is_saved && frame >= self.known_end() {
            self.stats.saves += 1;
            self.time_request(now, MeasuredRequest::Save);
            self.phase = Phase::Running(FramePhase::Simulate { target, is_saved: true });
            return Request::Save { frame, slot: self.save_slot(frame) };
        }
        self.gather_inputs(frame);
        self.machine_frame = frame.next();
        let fresh = match target {
            SimulationTarget::CurrentFrame { began } if frame == self.frame => {
                self.rollback_scheduler.end(now);
                self.time_request(now, MeasuredRequest::ShownStep);
                self.step_frame(now, began);
                true
            }
            _ => {
                self.time_request(now, MeasuredRequest::HiddenStep);
                self.resimulate_frame(target, frame);
                false
            }
        };
        Request::Advance { frame, inputs: &self.input_words, fresh }
    }

    fn time_request(&mut self, now: Instant, request: MeasuredRequest) {
        if let Some(tuner) = &mut self.auto_tuner {
            tuner.on_request(now, request);
        }
    }

    /// Returns the slot for the state before a frame, from which a rollback to that frame begins.
    pub(super) fn save_slot(&self, frame: Frame) -> usize {
        frame.number() as usize % self.config.settings.rollback_slots().max(1)
    }

    /// Handles the local input that [`Request::Sample`] asked for: one word per player, of which only the bits that
    /// this site owns count. The current frame waits until the input comes. An input that was not requested is ignored.
    pub fn handle_input(&mut self, now: Instant, inputs: &[InputWord]) {
        if !matches!(self.phase, Phase::Running(FramePhase::AwaitSample)) || self.leaving.is_some() {
            return;
        }
        let now = self.clock.call_time(now);
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

    /// Handles the hash of the state that [`Request::Hash`] asked for. Without this call before the next frame begins,
    /// the hashed frame is not compared.
    pub fn handle_hash(&mut self, hash: u64) {
        if self.handle_replay_hash(hash) {
            return;
        }
        let Some(frame) = self.comparison.take_pending_hash() else { return };
        if let Some(joining) = &mut self.joining {
            return joining.spectator.handle_hash(hash);
        }
        self.comparison.on_hash(frame, hash);
        self.publish_confirmed_digests();
    }

    /// Publishes the digests of compared frames that are confirmed by now, and compares them with those of the peers.
    #[cold]
    fn publish_confirmed_digests(&mut self) {
        let confirmed = self.confirmed_end();
        while let Some((frame, hash)) = self.comparison.publish_next(confirmed, &self.peers, &self.own_inputs) {
            self.feed_hash(frame, hash);
            for index in 0..self.peers.len() {
                self.compare_state(index, frame);
            }
        }
    }

    /// Starts the game: its first frame begins at `at`.
    #[cold]
    pub(super) fn start_running(&mut self, at: Instant) {
        self.start_pacing(at);
        self.phase = self.initial_phase();
    }

    /// Returns the phase before the first frame that this site plays. A site that takes part in desync searches saves
    /// the machine's state as its first anchor.
    pub(super) fn initial_phase(&self) -> Phase {
        let slot = self.desync_search.as_ref().map(|_| self.anchor_slot_before(self.machine_frame));
        Phase::Running(slot.map_or(FramePhase::Idle, |slot| FramePhase::SaveAnchor { slot, target: None }))
    }

    fn begin_frame(&mut self, now: Instant) {
        self.snapshot_requested = None;
        // A hash that has not arrived by now never will.
        self.comparison.take_pending_hash();
        if let Some(settings) = self.next_delay_settings.filter(|settings| settings.from_frame <= self.frame) {
            self.apply_delay_settings(settings);
        }
        let master = self.zhao_master();
        self.schedule.on_begin(now, self.frame, master);
        self.phase = self.sample_or_await_inputs(now);
    }

    /// Returns the phase after the start of a frame or after a sample: the next sample, or the wait for the peers'
    /// inputs. Every frame samples one input, unless the input delay has just changed or the site has given its inputs
    /// in advance, as a joiner does at first.
    fn sample_or_await_inputs(&self, now: Instant) -> Phase {
        let is_sample_due = self.own_inputs.end() <= self.frame + self.delay_settings.input_delay;
        Phase::Running(if is_sample_due { FramePhase::SampleDue } else { FramePhase::AwaitInputs { began: now } })
    }

    /// Schedules new delay settings from a frame on, limited to valid values. The frame in which the input delay grows
    /// by one samples two inputs, and one in which it shrinks by one samples none.
    pub(super) fn schedule_delay_settings(&mut self, from: Frame, input_delay: u32, prediction_window: u32) {
        let prediction_window = prediction_window.min(self.config.settings.rollback_slots() as u32);
        let settings = DelaySettings {
            from_frame: from,
            input_delay: input_delay.min(MAX_INPUT_DELAY).min(MAX_LEAD - prediction_window),
            prediction_window,
        };
        self.max_lead = self.max_lead.max(settings.input_delay + settings.prediction_window);
        self.next_delay_settings = Some(settings);
    }

    /// Puts scheduled delay settings into force.
    #[cold]
    fn apply_delay_settings(&mut self, settings: DelaySettings) {
        self.next_delay_settings = None;
        self.delay_settings = settings;
        let max_lead = settings.input_delay + settings.prediction_window;
        (self.stats.input_delay, self.stats.prediction_window) = (settings.input_delay, settings.prediction_window);
        self.schedule.set_lead(max_lead, Some(self.config.site).filter(|_| settings.prediction_window > 0));
    }

    /// Returns the newest observation of the master, for Algorithm 4 of Zhao et al.; `None` with other pacing, at the
    /// master itself, and until a tick of the master and a round trip to it are known.
    fn zhao_master(&self) -> Option<MasterObservation> {
        let setter = self.schedule.setter().filter(|_| self.config.pacing == Pacing::Zhao)?;
        let peer = self.peers.iter().find(|peer| peer.site() == setter)?;
        let last_received = peer.inputs().end().checked_sub(1).filter(|_| peer.has_played())?;
        Some(MasterObservation { last_received, received_at: peer.last_input_at(), rtt: peer.clock().rtt()? })
    }

    /// Returns the end of the frames whose inputs are all known.
    pub(super) fn known_end(&self) -> Frame {
        self.peers.known_end().min(self.own_inputs.end())
    }

    /// Returns the prediction window at this site: the one in force, or 0 if this site's machine cannot save its state.
    fn usable_prediction_window(&self) -> u32 {
        if self.config.can_save { self.delay_settings.prediction_window } else { 0 }
    }

    /// Returns whether the current frame may be stepped: all its inputs are known, or only inputs of peers are missing
    /// and the frame is within the prediction window.
    pub(super) fn can_step(&self) -> bool {
        self.can_step_with(self.known_end())
    }

    fn can_step_with(&self, known: Frame) -> bool {
        self.frame < known + self.usable_prediction_window() && self.frame < self.own_inputs.end()
    }

    /// Returns the peers without whose inputs the current frame cannot be stepped.
    pub(super) fn stalling_peers(&self) -> impl Iterator<Item = &Peer> {
        let prediction_window = self.usable_prediction_window();
        self.peers.iter().filter(move |peer| peer.known_end() + prediction_window <= self.frame)
    }

    /// Returns the end of the confirmed frames: all earlier frames are stepped with the inputs that all sites gave, and
    /// will not be resimulated.
    pub(super) fn confirmed_end(&self) -> Frame {
        self.machine_frame.min(self.known_end()).min(self.first_misprediction.unwrap_or(Frame::NEVER))
    }

    /// Compares newly received inputs of a peer with the predicted ones, and notes the first misprediction. `known` is
    /// the previous end of the peer's known inputs. Frames that are yet to be stepped or resimulated need no rollback.
    #[inline]
    pub(super) fn check_predictions(&mut self, index: usize, known: Frame) {
        let peer = &mut self.peers[index];
        peer.settle_substitute_input();
        let until = peer.known_end().min(self.machine_frame);
        // The machine stepped the frames before this site played with confirmed inputs.
        let known = known.max(if self.joining.is_some() { Frame::NEVER } else { self.joined_at });
        if known < until {
            let mispredicted = self.predictions[index].first_misprediction(peer, known, until);
            self.first_misprediction = [self.first_misprediction, mispredicted].into_iter().flatten().min();
        }
    }

    /// Gathers the inputs of all players for a frame in `input_words`, and predicts the missing ones.
    pub(super) fn gather_inputs(&mut self, frame: Frame) {
        let Self { input_words: words, peers, predictions, config, .. } = self;
        words.fill(0);
        if let Some(packed) = self.own_inputs.value_blocks(frame) {
            self.layout.unpack_blocks(packed, words);
        }
        for (peer, predictions) in peers.iter().zip(predictions) {
            let known = frame < peer.known_end();
            let (inputs, layout) = (peer.inputs(), peer.layout());
            let given = match peer.is_absent(frame) {
                true => Some(peer.substitute_input(frame)),
                false => inputs.value_blocks(frame),
            };
            let packed = match given {
                Some(packed) if known => packed,
                Some(packed) => predictions.store_known(frame, packed),
                // Only a site that violates the protocol is so far ahead that its input has left the buffer.
                None if known => continue,
                None => predictions.predict(config.predictor, inputs, layout, frame, words.len()),
            };
            layout.unpack_blocks(packed, words);
        }
    }

    /// Handles the step of the current frame, which began at `began`: ends the stall and lets the pacer plan the next
    /// frame.
    fn step_frame(&mut self, now: Instant, began: Instant) {
        self.record_input_age(now - began);
        self.end_stall(now, began);
        let plan = self.schedule.planned_start();
        match self.schedule.on_step(now, self.frame) {
            true => self.finish_frame(),
            false => self.phase = Phase::Running(FramePhase::AwaitStep),
        }
        self.catch_up();
        self.announce_new_plan(plan);
    }

    /// Makes the next packets carry probes if the pacer has abandoned its plan, the planned start before this step.
    fn announce_new_plan(&mut self, previous: Option<Instant>) {
        if self.schedule.has_abandoned(previous) {
            self.peers.make_probes_due();
        }
    }

    /// Handles the step of a past frame in a rollback, and requests the hash of the state after it if that state is
    /// compared.
    fn resimulate_frame(&mut self, target: SimulationTarget, frame: Frame) {
        self.stats.resimulated += 1;
        self.phase = Phase::Running(match self.comparison.request_hash(frame) {
            true => FramePhase::HashResimulated { target },
            false => FramePhase::Simulate { target, is_saved: false },
        });
    }

    /// Advances to the next frame: passes confirmed frames to the feed, and requests the hash of the state if the frame
    /// is compared.
    fn finish_frame(&mut self) {
        let frame = self.frame;
        self.frame = frame.next();
        self.feed_confirmed();
        let hash = self.comparison.request_hash(frame);
        self.phase = Phase::Running(if hash { FramePhase::Hash } else { FramePhase::Idle });
        if !hash && self.comparison.is_behind(frame) {
            self.publish_confirmed_digests();
        }
        if frame.number().is_multiple_of(INPUT_DIGEST_INTERVAL) {
            let confirmed = self.confirmed_end();
            self.comparison.advance_input_digests(confirmed, &self.peers, &self.own_inputs);
        }
    }

    fn end_stall(&mut self, now: Instant, began: Instant) {
        if let Some(ended) = self.stall.end(now) {
            self.stats.stalls += 1;
            self.stats.stall_time += now - began;
            if !ended.caused_by.is_empty() && self.own_stall_limit().is_some() {
                self.slow_peers.charge(ended, &self.peers);
            }
        }
        if self.stall.end_freeze() {
            self.events.push(Event::Resumed { frame: self.frame, after: now - began });
        }
    }

    pub(super) fn next_frame_time(&self) -> Instant {
        self.schedule.next_start()
    }

    /// Returns whether a frame has begun.
    pub(super) fn has_begun(&self, frame: Frame) -> bool {
        frame < self.begun_end()
    }

    /// Returns the end of the frames that have begun.
    fn begun_end(&self) -> Frame {
        match self.phase {
            Phase::Running(
                FramePhase::Idle
                | FramePhase::Hash
                | FramePhase::Replay
                | FramePhase::Simulate { target: SimulationTarget::BeforeNextFrame, .. }
                | FramePhase::HashResimulated { target: SimulationTarget::BeforeNextFrame }
                | FramePhase::SaveAnchor { target: None | Some(SimulationTarget::BeforeNextFrame), .. },
            ) => self.frame,
            _ => self.frame.next(),
        }
    }

    /// Returns when a frame began at this site, or will probably begin if it has not begun yet; `None` if that is
    /// unknown.
    pub(super) fn frame_start(&self, frame: Frame) -> Option<Instant> {
        let began = self.schedule.began_at(frame, self.frame, self.begun_end());
        began.or_else(|| self.schedule.planned_at(frame, self.frame))
    }

    /// Chooses the pace setter: the lowest site that plays, or `None` if that is this site.
    pub(super) fn choose_pace_setter(&mut self) {
        self.schedule.follow(self.peers.pace_setter());
    }

    /// Runs the periodic update of a running game, which handles leaves, freezes, membership and timeouts.
    pub(super) fn update(&mut self, now: Instant) {
        if self.is_steady(now) {
            self.relays.reset(now);
            return self.update_auto_tuner(now);
        }
        self.update_all(now);
    }

    /// Returns whether an update needs to do no more than reset the relay selectors and tune the delay settings: all
    /// peers play and send, nothing is under way, and no limit has to be checked.
    fn is_steady(&self, now: Instant) -> bool {
        let config = &self.config;
        let no_peer_is_timed =
            config.stall_limit.is_none() && config.silence_timeout.is_none_or(|limit| limit > LINK_CUT_TIMEOUT);
        let is_idle = self.command.is_none()
            && self.leaving.is_none()
            && !self.sending.are_extras_pending()
            && !self.tuning_stats_due;
        no_peer_is_timed
            && is_idle
            && config.recovery != Recovery::Classic
            && self.schedule.pause().announced().is_none()
            && self.membership.is_idle()
            && self.split_brain.is_idle()
            && self.desync_search.as_ref().is_none_or(|search| !search.is_under_way())
            && !matches!(self.phase, Phase::Running(FramePhase::AwaitInputs { .. }))
            && self.reports.is_empty()
            && self
                .peers
                .iter()
                .enumerate()
                .all(|(index, peer)| peer.is_steady(now) && self.membership.is_peer_idle(index, peer))
    }

    #[cold]
    fn update_all(&mut self, now: Instant) {
        for index in 0..self.peers.len() {
            self.update_leaver(now, index);
        }
        self.update_slow_peers(now);
        self.update_reports();
        self.update_membership();
        self.update_split_brain(now);
        self.update_command();
        self.relays.update(now, &self.peers, self.membership.muted());
        self.update_classic_recovery(now);
        self.update_extras_pending(now);
        self.update_desync_search(now);
        self.update_auto_tuner(now);
        if let Phase::Running(FramePhase::AwaitInputs { began }) = self.phase {
            self.update_freeze(now, began);
            // Acknowledgements can make more frames irrevocable, and a joiner for which all sites wait may need these
            // frames from the feed.
            self.feed_confirmed();
        }
        if self.leaving.is_some() {
            self.update_own_leave(now);
        } else if let Some(site) = self.timed_out_site(now) {
            self.end_session(SessionEnd::Silent(site));
        }
    }

    /// Completes the leave of a peer when all its inputs are known, and later frees its seat.
    fn update_leaver(&mut self, now: Instant, index: usize) {
        let peer = &self.peers[index];
        let Seat::Leaving(last) = peer.seat() else { return };
        if peer.inputs().end() < last {
            return;
        }
        let site = peer.site();
        if !self.peers.is_reported_gone(site) {
            self.peers.report_gone(site);
            self.events.push(Event::Left { site, frame: last });
            self.choose_pace_setter();
        } else if now - peer.last_received_at() > LEAVER_LINGER || self.frame > last + 60 {
            self.peers[index].free_seat();
            self.sending.set_active(index, false);
            self.end_if_alone();
        }
    }

    #[cold]
    fn update_freeze(&mut self, now: Instant, began: Instant) {
        let limit = self.config.freeze_timeout;
        if now - began < limit || self.can_step() {
            return;
        }
        let waiting_for: SiteSet = self.stalling_peers().map(|peer| peer.site()).collect();
        let silent = self
            .stalling_peers()
            .filter(|peer| now - peer.last_received_at() >= limit)
            .map(|peer| peer.site())
            .collect();
        let freeze = Freeze { frame: self.frame, since: began, waiting_for, silent_sites: silent };
        if self.stall.note_freeze(freeze) {
            self.events.push(Event::Frozen(freeze));
        }
    }

    /// Ends the session when every peer has this site's last input and knows that it is the last, has been silent for
    /// longer than [`LEAVE_WAIT_FOR_SILENT_PEER`], was dropped or restarted, or has no seat; at the latest after
    /// [`MAX_LEAVE_WAIT`].
    #[cold]
    fn update_own_leave(&mut self, now: Instant) {
        let is_informed = |peer: &Peer| {
            peer.is_free()
                || peer.is_dropped()
                || peer.was_restarted()
                || peer.knows_own_leave()
                || now - peer.last_received_at() > LEAVE_WAIT_FOR_SILENT_PEER
        };
        let Some(leave) = self.leaving else { return };
        if now - leave.since > MAX_LEAVE_WAIT || self.peers.iter().all(is_informed) {
            self.end_session(leave.reason);
        }
    }

    fn timed_out_site(&self, now: Instant) -> Option<SiteId> {
        let limit = self.config.silence_timeout?;
        let complete = |peer: &Peer| {
            peer.absent_from().is_some_and(|last| peer.inputs().end() >= last) && peer.join_frame().is_none()
        };
        let silent = |peer: &&Peer| !complete(peer) && now - peer.last_received_at() > limit;
        self.peers.iter().find(silent).map(|peer| peer.site())
    }

    /// Ends the session if all other players have left, unless the game started with free seats, a dropped site can
    /// still come back, or this site may play on alone.
    pub(super) fn end_if_alone(&mut self) {
        let has_open_seats =
            self.config.settings.starting_sites != SiteSet::first(usize::from(self.config.settings.site_count));
        let has_left = |peer: &Peer| peer.is_free() && !peer.is_dropped();
        if !self.config.can_play_alone && !has_open_seats && self.peers.iter().all(has_left) {
            self.end_session(SessionEnd::Alone);
        }
    }

    #[cold]
    pub(super) fn end_session(&mut self, end: SessionEnd) {
        if !self.is_over() {
            self.phase = Phase::Over(end);
            self.sending.cancel();
            // A session that is over does not handle the datagrams of subscribers.
            self.close_feed();
            self.events.push(Event::Ended(end));
        }
    }
}
