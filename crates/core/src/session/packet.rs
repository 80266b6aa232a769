//! During the game: one packet per frame and peer, out and in.

use super::digest_history::FrameDigest;
use super::event::Event;
use super::peer::{Peer, Seat, expand_truncated};
use super::{FramePhase, Phase, Session};
use crate::frame::Frame;
use crate::id::{Addr, MAX_SITES, SiteSet};
use crate::input::{Recovery, missing_ranges, write_with_length};
use crate::time::{Instant, TimeDelta};
use crate::wire::{
    BufferFull, ByteWriter, ClockProbe, CommandKind, Extra, MAX_DATAGRAM, MissingRanges, ScheduledCommand,
    SenderIdentity, Tick, TickDigest, TickHeader, TuningStats, put_extra, put_plain_header,
};

/// What is further from the frame at hand than sites can be apart makes no sense.
const MAX_FRAME_DISTANCE: i64 = 256;

impl Session {
    pub(super) fn encode_tick(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> Result<usize, BufferFull> {
        let extras = self.extras_pending && self.has_extras(now, index);
        let peer = &self.peers[index];
        let plan = peer.sender.plan(self.config.recovery, &self.own_inputs, extras);
        let end_minus_ack = (plan.end - peer.acknowledgement()) as i32;
        let deaf = peer.may_have_lost_address(now, &self.own_inputs);
        let probing = deaf || peer.is_probe_due(now);
        let answering = peer.sender.has_resends(now, &peer.clock, &self.own_inputs, plan.end);
        let asking = self.requests_missing_inputs(peer);
        let plain = !probing && !answering && !extras && !asking;
        let mut writer = ByteWriter::new(&mut buf[..MAX_DATAGRAM]);
        if plain {
            put_plain_header(&mut writer, plan.end.low16(), end_minus_ack, plan.is_absolute)?;
        } else {
            let head = self.tick_header(now, index, plan.end, (deaf, probing, asking));
            TickHeader { end_minus_ack, ..head }.encode(&mut writer, (extras, answering), plan.is_absolute)?;
        }
        if extras {
            write_with_length(&mut writer, |writer| self.put_extras(now, index, writer))?;
        }
        let peer = &mut self.peers[index];
        if answering {
            peer.sender.encode_resends(now, &peer.clock, &self.own_inputs, plan.end, &mut writer)?;
        }
        writer.varint((plan.end - plan.first) as u32)?;
        self.own_inputs.encode(&mut writer, plan.first, plan.end, plan.is_absolute)?;
        peer.sender.on_sent(&plan);
        peer.is_request_due = false;
        Ok(writer.len())
    }

    /// The head of a tick that carries more than inputs.
    #[cold]
    fn tick_header(&mut self, now: Instant, index: usize, end: Frame, flags: (bool, bool, bool)) -> TickHeader {
        let (deaf, probing, asking) = flags;
        TickHeader {
            end: end.low16(),
            probe: probing.then(|| self.make_probe(now, index, end)),
            digest: self.own_digests.newest().filter(|_| probing).map(wire_digest),
            identity: deaf
                .then_some(SenderIdentity { session_id: self.config.session_id, site: self.config.site.number() }),
            missing: if asking { missing_ranges(&self.peers[index].inputs) } else { MissingRanges::default() },
            ..TickHeader::default()
        }
    }

    fn make_probe(&mut self, now: Instant, index: usize, end: Frame) -> ClockProbe {
        let seat = self.own_join_frame();
        let frame = match self.phase {
            // Once a frame is stepped, the plan is that of the next one.
            Phase::Running(FramePhase::AwaitStep) => self.frame.next(),
            // Whoever is on its way in knows nothing of the frames that it is in but what it watches.
            _ => seat.unwrap_or(self.frame),
        };
        let plan = self.pacer.as_ref().and_then(|pacer| pacer.planned_start());
        let plan = plan.filter(|_| self.leaving.is_none() && seat.is_none());
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
        let in_order = tick.extras.is_empty() || self.handle_extras(now, index, tick);
        let peer = &mut self.peers[index];
        let known = peer.known_end();
        if in_order && !self.membership.muted.contains(peer.site) {
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

    /// A tick of a site without a seat. It has left, or was dropped, and does not know that this site knows; or an order let it in that came
    /// to nothing, because its giver is gone.
    #[cold]
    fn handle_tick_of_absent(&mut self, index: usize, tick: &Tick<'_>) {
        let in_vain = self.has_void_admission(index, tick);
        let peer = &mut self.peers[index];
        if in_vain {
            (peer.lobby.is_admission_void, peer.lobby.join_readiness) = (true, None);
        }
        // The seat of one that was started anew may be one that this site has not heard of yet.
        if in_vain || peer.is_dropped && !peer.was_restarted() {
            peer.lobby.is_hello_due = true;
            self.hello_pending = true;
            self.invalidate_send_time();
        } else if !peer.is_dropped {
            self.due_peers |= 1 << index;
        }
    }

    /// Whether a site that was started anew gives inputs for frames that went by without it: nobody is certain of a frame without knowing who
    /// plays in it.
    fn has_void_admission(&self, index: usize, tick: &Tick<'_>) -> bool {
        let first = self.frame.expand_low16(tick.end).and_then(|end| end.checked_sub(tick.frame_count));
        let plays = self.is_running() && self.joining.is_none();
        let is_past = first.is_some_and(|first| first < self.confirmed_end());
        plays && is_past && self.peers[index].was_restarted()
    }

    /// What few ticks carry. It comes before the inputs: an order must be known before what it is about. Returns whether the inputs can
    /// be taken: those of a site whose order was refused cannot, because whoever knows its inputs must know its orders.
    #[cold]
    fn handle_extras(&mut self, now: Instant, index: usize, tick: &Tick<'_>) -> bool {
        let mut refused = SiteSet::EMPTY;
        for extra in tick.extras.iter() {
            match extra {
                Extra::Leave(last) => self.on_leave(index, last),
                Extra::LeaveReport(site, last) => self.on_leave_report(now, index, site, last),
                Extra::Command(order) if !self.can_issue_command(order.issuer) => refused.insert(order.issuer),
                Extra::Command(order) => self.on_command(index, order),
                Extra::Vote(vote) => self.on_vote(now, index, vote),
                Extra::DecisionReport(view, decision, since) => {
                    self.on_decision_report(now, index, view, decision, since)
                }
                Extra::RelayRequest(site, end) => self.on_relay_request(index, site, end),
                Extra::Relay(relay) if refused.contains(relay.site) => {}
                Extra::Relay(relay) => self.on_relay(now, index, &relay),
                Extra::TuningStats(condition) => self.on_tuning_stats(index, condition),
                Extra::Pause(hold) => self.on_pause_request(now, hold),
            }
        }
        !refused.contains(self.peers[index].site)
    }

    /// Whether a tick to this peer carries more than inputs.
    #[cold]
    fn has_extras(&self, now: Instant, index: usize) -> bool {
        let mut buf = [0; MAX_DATAGRAM];
        let mut writer = ByteWriter::new(&mut buf);
        self.write_extras(now, index, &mut writer).is_err() || writer.len() > 0
    }

    #[cold]
    fn put_extras(&mut self, now: Instant, index: usize, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        self.write_extras(now, index, writer)?;
        // Whoever still misses something asks again.
        self.peers[index].relay_requests = [None; MAX_SITES];
        Ok(())
    }

    fn write_extras(&self, now: Instant, index: usize, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        let peer = &self.peers[index];
        // Who was started anew must not take what was meant for who was there before.
        let meant = |order: &ScheduledCommand| {
            !matches!(order.kind, CommandKind::Join { site, .. } if site == peer.site) || !peer.was_restarted()
        };
        let ours = |order: &ScheduledCommand| order.issuer == self.config.site && peer.sender.acked() <= order.frame;
        if let Some(order) = self.command.filter(|order| ours(order) && meant(order)) {
            put_extra(writer, &Extra::Command(order))?;
        }
        // After the order: of one who has left nothing is taken but what came before.
        if let Some(leave) = self.leaving.filter(|_| !peer.is_dropped && !self.is_bound_by_vote()) {
            put_extra(writer, &Extra::Leave(leave.input_end))?;
        }
        if let Some(vote) = &self.membership.own_vote {
            put_extra(writer, &Extra::Vote(*vote))?;
        }
        if let Some((view, decision)) = self.membership.last_decision.filter(|_| peer.needs_last_decision()) {
            let since = self.membership.epoch.saturating_sub(view.saturating_add(1));
            put_extra(writer, &Extra::DecisionReport(view, decision, since))?;
        }
        if let Some(condition) = self.own_tuning_stats().filter(|_| self.tuning_stats_due && peer.is_playing()) {
            put_extra(writer, &Extra::TuningStats(condition))?;
        }
        if let Some(hold) = self.pause.announced.filter(|_| peer.is_playing()) {
            put_extra(writer, &Extra::Pause(hold))?;
        }
        self.write_relays(now, index, writer)
    }

    fn on_tuning_stats(&mut self, index: usize, condition: TuningStats) {
        let site = self.peers[index].site;
        if let Some(auto) = &mut self.auto_tuner {
            auto.on_tuning_stats(site, condition);
        }
    }

    /// There may be something to tell but inputs.
    pub(super) fn mark_extras_pending(&mut self) {
        self.extras_pending = true;
    }

    /// Looks whether there still is.
    pub(super) fn update_extras_pending(&mut self, now: Instant) {
        self.clear_expired_pause(now);
        let ours = self.leaving.is_some()
            || self.command.is_some()
            || self.membership.own_vote.is_some()
            || self.pause.announced.is_some();
        let theirs = |peer: &Peer| {
            peer.needs_last_decision() || self.needs_relay(now, peer) || peer.relay_requests.iter().any(Option::is_some)
        };
        self.extras_pending = ours || self.peers.iter().any(theirs);
        self.tuning_stats_due = false;
    }

    /// What measures the link and the states.
    #[cold]
    fn handle_measurements(&mut self, now: Instant, index: usize, end: Frame, tick: &Tick<'_>) {
        if let Some(probe) = &tick.probe {
            self.on_probe(now, index, end, probe);
        }
        if let Some(digest) = tick.digest {
            self.on_digest(index, digest);
        }
    }

    /// The peer that a tick is from: by address, or by what it says of itself when it has moved.
    fn sender_of(&mut self, from: Addr, tick: &Tick<'_>) -> Option<usize> {
        if tick.identity.is_some_and(|identity| identity.session_id != self.config.session_id) {
            return None;
        }
        if let Some(index) = self.peers.iter().position(|peer| peer.addr == from) {
            let other = tick.identity.is_some_and(|identity| identity.site != self.peers[index].site.number());
            return (!other).then_some(index);
        }
        let identity = tick.identity.filter(|identity| identity.session_id == self.config.session_id)?;
        let index = self.peers.iter().position(|peer| peer.site.number() == identity.site)?;
        // Only the newest word moves a peer, so that a stray old packet cannot move it back.
        let newest = self.peers[index].newest_stamp_us().unwrap_or(0);
        let stamp = expand_truncated(newest, tick.probe?.stamp_us as i64, 40);
        let newer = self.peers[index].is_newer_stamp(stamp);
        self.accept_address(index, from, newer).then_some(index)
    }

    /// Whether a packet may come from this address: where the peer was, or, if it has moved, where it is now.
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
            // Nobody waits for a site that leaves.
            return;
        }
        if let (Some(sent), Some(pacer)) = (peer.clock.to_local(stamp), self.pacer.as_mut()) {
            pacer.on_delay(now, site, (now - sent).max(TimeDelta::ZERO));
        }
        let Ok(frame) = u32::try_from(end - Frame::ZERO - i64::from(probe.end_minus_frame)) else { return };
        let frame = Frame::new(frame);
        if (frame - self.frame).abs() > MAX_FRAME_DISTANCE {
            return;
        }
        self.peers[index].on_frame(frame, end, self.delay_settings.input_delay);
        let Some(late_ns) = probe.lateness_ns else { return };
        let planned = self.peers[index].clock.to_local(stamp - TimeDelta::from_nanos(late_ns));
        let Some(planned) = planned else { return };
        if let Some(began) = self.frame_began_at(frame).or_else(|| self.frame_planned_at(frame)) {
            self.peers[index].stats.lead = began - planned;
        }
        if let Some(pacer) = self.pacer.as_mut().filter(|_| Some(site) == self.pace_setter) {
            pacer.on_reference(frame, planned);
        }
    }

    fn on_digest(&mut self, index: usize, digest: TickDigest) {
        let Some(frame) = self.frame.expand_low16(digest.frame) else { return };
        let near = (frame - self.frame).abs() <= MAX_FRAME_DISTANCE;
        if near
            && self.peers[index]
                .frame_digests
                .insert(frame, FrameDigest { state_hash: digest.state_hash, input_digest: digest.input_digest })
        {
            self.compare_state(index, frame);
        }
    }

    /// A peer says that it leaves. Who takes part in a ballot about it has said how far it goes, and does not listen any more.
    fn on_leave(&mut self, index: usize, last: Frame) {
        if !self.membership.muted.contains(self.peers[index].site) {
            self.apply_leave(index, last);
        }
    }

    pub(super) fn apply_leave(&mut self, index: usize, last: Frame) {
        let peer = &mut self.peers[index];
        let near = last >= peer.inputs.received_end()
            && last - peer.inputs.end() < i64::from(crate::input::STREAM_CAPACITY as u32);
        // To one who came later it may have left before.
        let before = last <= peer.inputs.start() && peer.inputs.received_end() == peer.inputs.start();
        if peer.join_frame.is_some() && (near || before) {
            // An order that is void leaves everything as it was, so that its seat is not even taken.
            peer.leave_after_join = Some(last.max(peer.inputs.start()));
        } else if peer.is_playing() && (near || before) {
            let site = peer.site;
            // As long as nothing else is known of the frames from there on, they can be stepped again.
            self.void_command_after(site, last);
            let peer = &mut self.peers[index];
            let known = peer.known_end();
            peer.seat = Seat::Leaving(last);
            peer.use_neutral_substitute();
            if let Some(pacer) = &mut self.pacer {
                pacer.forget_site(site);
            }
            self.check_predictions(index, known);
        }
    }
}

fn wire_digest((frame, FrameDigest { state_hash: hash, input_digest: inputs }): (Frame, FrameDigest)) -> TickDigest {
    TickDigest { frame: frame.low16(), state_hash: hash, input_digest: inputs }
}
