//! During the game: one packet per frame and peer, out and in.

use super::event::Event;
use super::peer::widen;
use super::{Phase, Session, Step};
use crate::frame::Frame;
use crate::id::Addr;
use crate::input::missing;
use crate::time::{Instant, TimeDelta};
use crate::wire::{Digest, Full, Head, Identity, Probe, Tick, Writer};

/// A peer that was not heard for so long may not know our address any more.
const IDENTIFY_AFTER: TimeDelta = TimeDelta::from_millis(200);

impl Session {
    pub(super) fn encode_tick(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> Result<usize, Full> {
        let peer = &self.peers[index];
        let plan = peer.sender.plan(self.config.recovery, &self.own);
        let mut head = Head::new(plan.until.low16(), (plan.until - peer.acknowledgement()) as i32);
        let silent = now - peer.heard > IDENTIFY_AFTER;
        let answering = peer.sender.has_answers(now, &peer.clock, &self.own);
        if silent || peer.probe_is_due(now) {
            head.probe = Some(self.probe(now, index, plan.until));
            head.digest = self.digests.newest().map(short);
            head.identity =
                silent.then_some(Identity { session: self.config.session, site: self.config.site.number() });
        }
        if !self.peers[index].inputs.is_gapless() {
            head.request = missing(&self.peers[index].inputs);
        }
        head.leave = self.leaving.map(|leave| leave.frame.number());
        let mut writer = Writer::new(buf);
        head.encode(&mut writer, answering, plan.absolute)?;
        let peer = &mut self.peers[index];
        if answering {
            peer.sender.encode_answers(now, &peer.clock, &self.own, plan.until, &mut writer)?;
        }
        writer.varint((plan.until - plan.first) as u32)?;
        self.own.encode(&mut writer, plan.first, plan.until, plan.absolute)?;
        peer.sender.on_sent(&plan);
        Ok(writer.len())
    }

    fn probe(&mut self, now: Instant, index: usize, end: Frame) -> Probe {
        // Once a frame is stepped, the plan is that of the next one.
        let frame = if self.phase == Phase::Running(Step::Stepping) { self.frame.next() } else { self.frame };
        let plan = self.pacer.as_ref().and_then(|pacer| pacer.plan()).filter(|_| self.leaving.is_none());
        let echo = self.peers[index].take_echo(now);
        Probe {
            stamp_us: now.as_micros() as u64 & 0xff_ffff_ffff,
            echo: echo.map(|(stamp, held)| (stamp as u32, held.as_nanos())),
            end_minus_frame: (end - frame) as i32,
            late_ns: plan.map(|plan| (now - plan).as_nanos()),
        }
    }

    pub(super) fn handle_tick(&mut self, now: Instant, from: Addr, tick: &Tick<'_>, bytes: usize) {
        let Some(index) = self.sender_of(from, tick) else {
            self.stats.dropped.strangers += 1;
            return;
        };
        if self.start.is_none() {
            self.stats.dropped.early += 1;
            return;
        }
        self.peers[index].on_received(now, bytes);
        self.peers[index].lobby.playing = true;
        if self.peers[index].gone {
            // It did not hear that we know; say so once more.
            self.due |= 1 << index;
            return;
        }
        let Some(end) = self.peers[index].inputs.end().nearest(tick.end) else {
            self.stats.dropped.inputs += 1;
            return;
        };
        self.peers[index].loss.on_packet(end);
        self.take_inputs(now, index, end, tick);
        self.take_acknowledgement(index, end, tick);
        if let Some(probe) = &tick.probe {
            self.take_probe(now, index, end, probe);
        }
        if let Some(digest) = tick.digest {
            self.take_digest(index, digest);
        }
        if let Some(last) = tick.leave {
            self.take_leave(index, Frame::new(last));
        }
    }

    /// The peer that a tick is from: by address, or by what it says of itself when it has moved.
    fn sender_of(&mut self, from: Addr, tick: &Tick<'_>) -> Option<usize> {
        if let Some(index) = self.peers.iter().position(|peer| peer.addr == from) {
            return Some(index);
        }
        let identity = tick.identity.filter(|identity| identity.session == self.config.session)?;
        let index = self.peers.iter().position(|peer| peer.site.number() == identity.site)?;
        // Only the newest word moves a peer, so that a stray old packet cannot move it back.
        let newest = self.peers[index].newest_stamp_us().unwrap_or(0);
        let stamp = widen(newest, tick.probe?.stamp_us as i64, 40);
        self.accept_address(index, from, stamp).then_some(index)
    }

    /// Whether a packet stamped so may come from this address; a newer one from elsewhere means that the peer has moved.
    pub(super) fn accept_address(&mut self, index: usize, from: Addr, stamp_us: i64) -> bool {
        let peer = &mut self.peers[index];
        if peer.addr == from {
            return true;
        }
        if peer.newest_stamp_us().is_some_and(|newest| stamp_us <= newest) {
            self.stats.dropped.strangers += 1;
            return false;
        }
        peer.addr = from;
        self.events.push(Event::Moved { site: peer.site, to: from });
        true
    }

    fn take_inputs(&mut self, now: Instant, index: usize, end: Frame, tick: &Tick<'_>) {
        let before = self.peers[index].inputs.end();
        let last = self.peers[index].last_frame;
        for answer in tick.answers.iter() {
            let Some(first) = end.checked_sub(answer.end_minus_first) else { continue };
            self.receive(index, first, answer.len, true, answer.changes, last);
        }
        match end.checked_sub(tick.len) {
            Some(first) if tick.len > 0 => self.receive(index, first, tick.len, tick.absolute, tick.changes, last),
            Some(_) => {}
            None => self.stats.dropped.inputs += 1,
        }
        if self.peers[index].inputs.end() > before {
            self.peers[index].inputs_at = now;
        }
    }

    fn receive(&mut self, index: usize, first: Frame, len: u32, absolute: bool, bytes: &[u8], last: Option<Frame>) {
        // Nobody's inputs go on after the frame with which it said to leave.
        let beyond = last.is_some_and(|last| first + len > last);
        if beyond || self.peers[index].inputs.receive(first, len, absolute, bytes).is_err() {
            self.stats.dropped.inputs += 1;
        }
    }

    fn take_acknowledgement(&mut self, index: usize, end: Frame, tick: &Tick<'_>) {
        let Ok(ack) = u32::try_from(end - Frame::ZERO - i64::from(tick.end_minus_ack)) else {
            self.stats.dropped.inputs += 1;
            return;
        };
        let leave = self.leaving.map(|leave| leave.frame);
        self.peers[index].knows_leave |= leave.is_some_and(|last| Frame::new(ack) == last.next());
        let sender = &mut self.peers[index].sender;
        sender.on_ack(Frame::new(ack), &self.own);
        if !tick.request.is_empty() {
            sender.on_request(Frame::new(ack), &tick.request);
        }
    }

    fn take_probe(&mut self, now: Instant, index: usize, end: Frame, probe: &Probe) {
        let stamp = self.peers[index].on_probe(now, probe);
        let peer = &self.peers[index];
        let site = peer.site;
        if peer.last_frame.is_some() {
            // Nobody waits for a site that leaves.
            return;
        }
        if let (Some(sent), Some(pacer)) = (peer.clock.to_local(stamp), self.pacer.as_mut()) {
            pacer.on_delay(now, site, now - sent);
        }
        let Some(late_ns) = probe.late_ns else { return };
        let Ok(frame) = u32::try_from(end - Frame::ZERO - i64::from(probe.end_minus_frame)) else { return };
        let frame = Frame::new(frame);
        let planned = self.peers[index].clock.to_local(stamp - TimeDelta::from_nanos(late_ns));
        let Some(planned) = planned else { return };
        if let Some(began) = self.began(frame).or_else(|| self.planned(frame)) {
            self.peers[index].stats.lead = began - planned;
        }
        if let Some(pacer) = self.pacer.as_mut().filter(|_| Some(site) == self.pace_setter) {
            pacer.on_reference(frame, planned);
        }
    }

    fn take_digest(&mut self, index: usize, digest: Digest) {
        let Some(frame) = self.frame.nearest(digest.frame) else { return };
        if self.peers[index].digests.insert(frame, digest.hash) {
            self.compare(index, frame);
        }
    }

    fn take_leave(&mut self, index: usize, last: Frame) {
        let peer = &mut self.peers[index];
        let possible = last >= peer.inputs.top() && last - peer.inputs.end() < i64::from(crate::input::CAPACITY as u32);
        if peer.last_frame.is_none() && possible {
            peer.last_frame = Some(last);
            if let Some(pacer) = &mut self.pacer {
                pacer.forget(peer.site);
            }
        }
    }
}

fn short((frame, hash): (Frame, u32)) -> Digest {
    Digest { frame: frame.low16(), hash }
}
