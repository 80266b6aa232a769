//! Encoding and handling of ticks: one packet per frame and peer while the game runs.

use super::Session;
use super::digest_history::FrameDigest;
use super::event::Event;
use super::peer::{Peer, Seat, expand_truncated};
use super::phase::{FramePhase, Phase};
use crate::codec::{BufferFull, ByteWriter, MAX_DATAGRAM};
use crate::frame::Frame;
use crate::id::{Addr, MAX_SITES, SiteSet};
use crate::input::MissingRanges;
use crate::input::{Recovery, missing_ranges, write_with_length};
use crate::session::message::{
    ClockProbe, CommandKind, Extra, ScheduledCommand, SenderIdentity, Tick, TickDigest, TickHeader, TuningStats,
    put_extra, put_plain_header,
};
use crate::time::{Instant, TimeDelta};

/// Largest plausible distance in frames between a frame that a tick names and the frame that this site expects: the
/// largest distance between two sites.
const MAX_FRAME_DISTANCE: i64 = 256;

impl Session {
    pub(super) fn encode_tick(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let extras = self.sending.are_extras_pending() && self.has_extras(now, index);
        let peer = &self.peers[index];
        let plan = peer.sender.plan(self.config.recovery, &self.own_inputs, extras);
        let end_minus_ack = (plan.end - peer.acknowledgement()) as i32;
        let needs_identity = peer.may_have_lost_address(now, &self.own_inputs);
        let has_probe = needs_identity || peer.is_probe_due(now);
        let has_resends = peer.sender.has_resends(now, &peer.clock, &self.own_inputs, plan.end);
        let has_requests = self.requests_missing_inputs(peer);
        let is_plain = !has_probe && !has_resends && !extras && !has_requests;
        let mut writer = ByteWriter::new(&mut buf[..MAX_DATAGRAM]);
        if is_plain {
            put_plain_header(&mut writer, plan.end.low16(), end_minus_ack, plan.is_absolute)?;
        } else {
            let header = self.tick_header(now, index, plan.end, (needs_identity, has_probe, has_requests));
            TickHeader { end_minus_ack, ..header }.encode(&mut writer, (extras, has_resends), plan.is_absolute)?;
        }
        if extras {
            write_with_length(&mut writer, |writer| self.put_extras(now, index, writer))?;
        }
        let peer = &mut self.peers[index];
        if has_resends {
            peer.sender.encode_resends(now, &peer.clock, &self.own_inputs, plan.end, &mut writer)?;
        }
        writer.varint((plan.end - plan.first) as u32)?;
        self.own_inputs.encode(&mut writer, plan.first, plan.end, plan.is_absolute)?;
        peer.sender.on_sent(&plan);
        peer.is_request_due = false;
        Ok(writer.len())
    }

    /// Creates the header of a tick that carries more than inputs.
    #[cold]
    fn tick_header(&mut self, now: Instant, index: usize, end: Frame, flags: (bool, bool, bool)) -> TickHeader {
        let (needs_identity, has_probe, has_requests) = flags;
        TickHeader {
            end: end.low16(),
            probe: has_probe.then(|| self.make_probe(now, index, end)),
            digest: self.own_digests.newest().filter(|_| has_probe).map(wire_digest),
            identity: needs_identity
                .then_some(SenderIdentity { session_id: self.config.session_id, site: self.config.site.number() }),
            missing: if has_requests { missing_ranges(&self.peers[index].inputs) } else { MissingRanges::default() },
            ..TickHeader::default()
        }
    }

    fn make_probe(&mut self, now: Instant, index: usize, end: Frame) -> ClockProbe {
        let join_frame = self.own_join_frame();
        let frame = match self.phase {
            // Once a frame is stepped, the plan is that of the next frame.
            Phase::Running(FramePhase::AwaitStep) => self.frame.next(),
            // A joiner that does not play yet reports its join frame, because its current frame is that of its
            // download.
            _ => join_frame.unwrap_or(self.frame),
        };
        let plan = self.schedule.planned_start();
        let plan = plan.filter(|_| self.leaving.is_none() && join_frame.is_none());
        let echo = self.peers[index].take_echo(now);
        ClockProbe {
            stamp_us: now.as_micros() as u64 & 0xff_ffff_ffff,
            echo: echo.map(|(stamp, held)| (stamp as u32, held.as_nanos())),
            end_minus_frame: (end - frame) as i32,
            lateness_ns: plan.map(|plan| (now - plan).as_nanos()),
        }
    }

    pub(super) fn handle_tick(&mut self, now: Instant, from: Addr, tick: &Tick<'_>, bytes: usize) {
        let Some(index) = self.sender_of(from, tick) else {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        };
        if self.start_time.is_none() || self.handle_tick_while_joining(index, tick) {
            self.stats.dropped_datagrams.early += 1;
            return;
        }
        let peer = &mut self.peers[index];
        peer.on_received(now, bytes);
        peer.lobby.has_played = true;
        if peer.is_free() || peer.is_dropped && peer.join_frame.is_none() {
            return self.handle_tick_of_absent(index, tick);
        }
        let Some(end) = peer.inputs.end().expand_low16(tick.end) else {
            self.stats.dropped_datagrams.inputs += 1;
            return;
        };
        if (end - peer.inputs.end()).abs() <= MAX_FRAME_DISTANCE {
            peer.loss_meter.on_packet(end);
        }
        let accepts_inputs = tick.extras.is_empty() || self.handle_extras(now, index, tick);
        let peer = &mut self.peers[index];
        let known = peer.known_end();
        if accepts_inputs && !self.membership.muted.contains(peer.site) {
            self.stats.dropped_datagrams.inputs += peer.receive_tick_inputs(now, end, tick);
        }
        self.stats.dropped_datagrams.inputs +=
            peer.on_ack(now, end, tick, &self.own_inputs, self.leaving.map(|leave| leave.input_end));
        if tick.probe.is_some() || tick.digest.is_some() {
            self.handle_measurements(now, index, end, tick);
        }
        self.check_predictions(index, known);
        if self.config.recovery == Recovery::Classic {
            self.schedule_classic_recovery(now, index, !tick.missing.is_empty());
        }
    }

    /// Handles a tick of a site without a seat. A site that was dropped and not restarted, or whose admission is void
    /// because the issuer of the command is gone, gets a hello that refuses it. A site that has left gets a tick, from
    /// which it learns that its leave is known. A dropped site that was restarted gets only a tick, and only if it
    /// needs the last decision.
    #[cold]
    fn handle_tick_of_absent(&mut self, index: usize, tick: &Tick<'_>) {
        let is_void = self.has_void_admission(index, tick);
        let peer = &mut self.peers[index];
        if is_void {
            (peer.lobby.is_admission_void, peer.lobby.join_readiness) = (true, None);
        }
        // A restarted site may have a seat that this site does not know of yet.
        if is_void || peer.is_dropped && !peer.was_restarted() {
            self.sending.require_hello(index);
            self.invalidate_send_time();
        } else if !peer.is_dropped || peer.needs_last_decision() {
            self.sending.mark_due(index);
        }
    }

    /// Returns whether a restarted site gives inputs for frames that were confirmed without it. No site confirms a
    /// frame without knowing the players in it, so the command that admitted the site is void.
    fn has_void_admission(&self, index: usize, tick: &Tick<'_>) -> bool {
        let first = self.frame.expand_low16(tick.end).and_then(|end| end.checked_sub(tick.frame_count));
        let is_player = self.is_running() && self.joining.is_none();
        let is_past = first.is_some_and(|first| first < self.confirmed_end());
        is_player && is_past && self.peers[index].was_restarted()
    }

    /// Handles the extras of a tick. They come before the inputs, because a command must be known before the inputs
    /// that it covers. Returns whether the tick's inputs can be accepted. They cannot if a command that the sender
    /// issued was refused, because a site that knows the inputs must know the command.
    #[cold]
    fn handle_extras(&mut self, now: Instant, index: usize, tick: &Tick<'_>) -> bool {
        let mut refused = SiteSet::EMPTY;
        for extra in tick.extras.iter() {
            match extra {
                Extra::Leave(last) => self.on_leave(index, last),
                Extra::LeaveReport(site, last) => self.on_leave_report(now, index, site, last),
                Extra::Command(command) if !self.can_issue_command(command.issuer) => refused.insert(command.issuer),
                Extra::Command(command) => self.on_command(index, command),
                Extra::Vote(vote) => self.on_vote(now, index, vote),
                Extra::DecisionReport(epoch, decision, since) => {
                    self.on_decision_report(now, index, epoch, decision, since)
                }
                Extra::RelayRequest(site, end) => self.on_relay_request(index, site, end),
                Extra::Relay(relay) if refused.contains(relay.site) => {}
                Extra::Relay(relay) => self.on_relay(now, index, &relay),
                Extra::TuningStats(stats) => self.on_tuning_stats(index, stats),
                Extra::Pause(request) => self.on_pause_request(now, request),
            }
        }
        !refused.contains(self.peers[index].site)
    }

    /// Returns whether a tick to this peer carries extras.
    #[cold]
    fn has_extras(&self, now: Instant, index: usize) -> bool {
        let mut buf = [0; MAX_DATAGRAM];
        let mut writer = ByteWriter::new(&mut buf);
        self.write_extras(now, index, &mut writer).is_err() || writer.len() > 0
    }

    #[cold]
    fn put_extras(&mut self, now: Instant, index: usize, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        self.write_extras(now, index, writer)?;
        // A peer that still misses inputs repeats its request.
        self.peers[index].relay_requests = [None; MAX_SITES];
        Ok(())
    }

    fn write_extras(&self, now: Instant, index: usize, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        let peer = &self.peers[index];
        // A restarted site must not take a command that was meant for its previous incarnation.
        let is_meant = |command: &ScheduledCommand| {
            !matches!(command.kind, CommandKind::Join { site, .. } if site == peer.site) || !peer.was_restarted()
        };
        let is_pending =
            |command: &ScheduledCommand| command.issuer == self.config.site && peer.sender.acked() <= command.frame;
        if let Some(command) = self.command.filter(|command| is_pending(command) && is_meant(command)) {
            put_extra(writer, &Extra::Command(command))?;
        }
        // The leave follows the command: a site that knows of the leave refuses commands for the frames after it.
        if let Some(leave) = self.leaving.filter(|_| !peer.is_dropped && !self.is_bound_by_vote()) {
            put_extra(writer, &Extra::Leave(leave.input_end))?;
        }
        if let Some(vote) = &self.membership.own_vote {
            put_extra(writer, &Extra::Vote(*vote))?;
        }
        if let Some((epoch, decision)) = self.membership.last_decision.filter(|_| peer.needs_last_decision()) {
            let since = self.membership.epoch.saturating_sub(epoch.saturating_add(1));
            put_extra(writer, &Extra::DecisionReport(epoch, decision, since))?;
        }
        if let Some(stats) = self.own_tuning_stats().filter(|_| self.tuning_stats_due && peer.is_playing()) {
            put_extra(writer, &Extra::TuningStats(stats))?;
        }
        if let Some(request) = self.schedule.pause().announced().filter(|_| peer.is_playing()) {
            put_extra(writer, &Extra::Pause(request))?;
        }
        self.write_relays(now, index, writer)
    }

    fn on_tuning_stats(&mut self, index: usize, stats: TuningStats) {
        let site = self.peers[index].site;
        if let Some(tuner) = &mut self.auto_tuner {
            tuner.on_tuning_stats(site, stats);
        }
    }

    /// Recomputes whether ticks have to carry extras. Stops announcing a pause that is over, and stops sending the
    /// tuning statistics.
    pub(super) fn update_extras_pending(&mut self, now: Instant) {
        self.schedule.clear_expired_pause(now);
        let has_own = self.leaving.is_some()
            || self.command.is_some()
            || self.membership.own_vote.is_some()
            || self.schedule.pause().announced().is_some();
        let has_for_peer = |peer: &Peer| {
            peer.needs_last_decision() || self.needs_relay(now, peer) || peer.relay_requests.iter().any(Option::is_some)
        };
        let are_pending = has_own || self.peers.iter().any(has_for_peer);
        self.sending.set_extras_pending(are_pending);
        self.tuning_stats_due = false;
    }

    /// Handles the parts of a tick that measure the link and compare states.
    #[cold]
    fn handle_measurements(&mut self, now: Instant, index: usize, end: Frame, tick: &Tick<'_>) {
        if let Some(probe) = &tick.probe {
            self.on_probe(now, index, end, probe);
        }
        if let Some(digest) = tick.digest {
            self.on_digest(index, digest);
        }
    }

    /// Returns the peer that sent a tick: by address, or by the identity in the tick if the peer has moved.
    fn sender_of(&mut self, from: Addr, tick: &Tick<'_>) -> Option<usize> {
        if tick.identity.is_some_and(|identity| identity.session_id != self.config.session_id) {
            return None;
        }
        if let Some(index) = self.peers.iter().position(|peer| peer.addr == from) {
            let is_other = tick.identity.is_some_and(|identity| identity.site != self.peers[index].site.number());
            return (!is_other).then_some(index);
        }
        let identity = tick.identity.filter(|identity| identity.session_id == self.config.session_id)?;
        let index = self.peers.iter().position(|peer| peer.site.number() == identity.site)?;
        // Only the newest tick moves a peer, so that an old stray packet cannot move it back.
        let newest = self.peers[index].newest_stamp_us().unwrap_or(0);
        let stamp = expand_truncated(newest, tick.probe?.stamp_us as i64, 40);
        let is_newer = self.peers[index].is_newer_stamp(stamp);
        self.accept_address(index, from, is_newer).then_some(index)
    }

    /// Returns whether a packet of a peer may come from this address. Another address than the known one is accepted
    /// only if the packet proves that the peer has `moved` and the transport does not authenticate senders. Then the
    /// session follows the peer to the new address.
    pub(super) fn accept_address(&mut self, index: usize, from: Addr, moved: bool) -> bool {
        let peer = &mut self.peers[index];
        if peer.addr == from {
            return true;
        }
        if !moved || self.config.is_transport_authenticated {
            return false;
        }
        if let Some(joining) = &mut self.joining {
            joining.spectator.move_source(peer.addr, from);
        }
        peer.addr = from;
        self.events.push(Event::AddressChanged { site: peer.site, addr: from });
        true
    }

    fn on_probe(&mut self, now: Instant, index: usize, end: Frame, probe: &ClockProbe) {
        let Some(stamp) = self.peers[index].on_probe(now, probe) else { return };
        let peer = &self.peers[index];
        let site = peer.site;
        if !peer.is_playing() && peer.join_frame.is_none() {
            // No site waits for a leaving site.
            return;
        }
        if let Some(sent) = peer.clock.to_local(stamp) {
            self.schedule.on_delay(now, site, (now - sent).max(TimeDelta::ZERO));
        }
        let Ok(frame) = u32::try_from(end - Frame::ZERO - i64::from(probe.end_minus_frame)) else { return };
        let frame = Frame::new(frame);
        if (frame - self.frame).abs() > MAX_FRAME_DISTANCE {
            return;
        }
        self.peers[index].on_frame(frame, end, self.delay_settings.input_delay);
        let Some(lateness_ns) = probe.lateness_ns else { return };
        let planned = self.peers[index].clock.to_local(stamp - TimeDelta::from_nanos(lateness_ns));
        let Some(planned) = planned else { return };
        if let Some(began) = self.frame_start(frame) {
            self.peers[index].stats.lead = began - planned;
        }
        self.schedule.on_plan(site, frame, planned);
    }

    fn on_digest(&mut self, index: usize, digest: TickDigest) {
        let Some(frame) = self.frame.expand_low16(digest.frame) else { return };
        let is_near = (frame - self.frame).abs() <= MAX_FRAME_DISTANCE;
        if is_near
            && self.peers[index]
                .frame_digests
                .insert(frame, FrameDigest { state_hash: digest.state_hash, input_digest: digest.input_digest })
        {
            self.compare_state(index, frame);
        }
    }

    /// Handles a peer's announcement that it leaves. A site that takes part in a ballot about the peer has reported the
    /// end of the peer's inputs and ignores the announcement.
    fn on_leave(&mut self, index: usize, last: Frame) {
        if !self.membership.muted.contains(self.peers[index].site) {
            self.apply_leave(index, last);
        }
    }

    pub(super) fn apply_leave(&mut self, index: usize, last: Frame) {
        let peer = &mut self.peers[index];
        let is_near = last >= peer.inputs.received_end()
            && last - peer.inputs.end() < i64::from(crate::input::STREAM_CAPACITY as u32);
        // For a site that joined later, the peer may have left before the join.
        let has_left_before = last <= peer.inputs.start() && peer.inputs.received_end() == peer.inputs.start();
        if peer.join_frame.is_some() && (is_near || has_left_before) {
            // The leave counts only once the join command does: if the command turns out to be void, the seat was never
            // taken.
            peer.leave_after_join = Some(last.max(peer.inputs.start()));
        } else if peer.is_playing() && (is_near || has_left_before) {
            let site = peer.site;
            // This comes before the end of the peer's inputs is set: until then, frames from the command's frame on are
            // not confirmed and can be resimulated.
            self.void_command_after(site, last);
            let peer = &mut self.peers[index];
            let known = peer.known_end();
            peer.seat = Seat::Leaving(last);
            peer.stall_record.on_leave(self.clock.last_call());
            peer.use_neutral_substitute();
            self.schedule.forget_site(site);
            self.check_predictions(index, known);
        }
    }
}

fn wire_digest((frame, FrameDigest { state_hash, input_digest }): (Frame, FrameDigest)) -> TickDigest {
    TickDigest { frame: frame.low16(), state_hash, input_digest }
}
