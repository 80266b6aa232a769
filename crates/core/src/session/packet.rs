//! During the game: one packet per frame and peer, out and in.

use super::compare::Told;
use super::event::Event;
use super::peer::{Peer, Seat, widen};
use super::{Phase, Session, Step};
use crate::frame::Frame;
use crate::id::{Addr, MAX_SITES, SiteSet};
use crate::input::{Recovery, missing, sized};
use crate::time::{Instant, TimeDelta};
use crate::wire::{
    Condition, Digest, Extra, Full, Head, Identity, MAX_DATAGRAM, Order, Probe, Ranges, Tick, What, Writer, put_extra,
    put_plain_head,
};

/// What is further from the frame at hand than sites can be apart makes no sense.
const FAR: i64 = 256;

impl Session {
    pub(super) fn encode_tick(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> Result<usize, Full> {
        let extras = self.talkative && self.has_extras(now, index);
        let peer = &self.peers[index];
        let plan = peer.sender.plan(self.config.recovery, &self.own, extras);
        let end_minus_ack = (plan.until - peer.acknowledgement()) as i32;
        let deaf = peer.is_deaf(now, &self.own);
        let probing = deaf || peer.probe_is_due(now);
        let answering = peer.sender.has_answers(now, &peer.clock, &self.own, plan.until);
        let asking = self.asks(peer);
        let plain = !probing && !answering && !extras && !asking;
        let mut writer = Writer::new(&mut buf[..MAX_DATAGRAM]);
        if plain {
            put_plain_head(&mut writer, plan.until.low16(), end_minus_ack, plan.absolute)?;
        } else {
            let head = self.head(now, index, plan.until, (deaf, probing, asking));
            Head { end_minus_ack, ..head }.encode(&mut writer, (extras, answering), plan.absolute)?;
        }
        if extras {
            sized(&mut writer, |writer| self.put_extras(now, index, writer))?;
        }
        let peer = &mut self.peers[index];
        if answering {
            peer.sender.encode_answers(now, &peer.clock, &self.own, plan.until, &mut writer)?;
        }
        writer.varint((plan.until - plan.first) as u32)?;
        self.own.encode(&mut writer, plan.first, plan.until, plan.absolute)?;
        peer.sender.on_sent(&plan);
        peer.asks_now = false;
        Ok(writer.len())
    }

    /// The head of a tick that carries more than inputs.
    #[cold]
    fn head(&mut self, now: Instant, index: usize, end: Frame, flags: (bool, bool, bool)) -> Head {
        let (deaf, probing, asking) = flags;
        Head {
            end: end.low16(),
            probe: probing.then(|| self.probe(now, index, end)),
            digest: self.digests.newest().filter(|_| probing).map(short),
            identity: deaf.then_some(Identity { session: self.config.session, site: self.config.site.number() }),
            request: if asking { missing(&self.peers[index].inputs) } else { Ranges::default() },
            ..Head::default()
        }
    }

    fn probe(&mut self, now: Instant, index: usize, end: Frame) -> Probe {
        let seat = self.seat_to_take();
        let frame = match self.phase {
            // Once a frame is stepped, the plan is that of the next one.
            Phase::Running(Step::Stepping) => self.frame.next(),
            // Whoever is on its way in knows nothing of the frames that it is in but what it watches.
            _ => seat.unwrap_or(self.frame),
        };
        let plan = self.pacer.as_ref().and_then(|pacer| pacer.plan());
        let plan = plan.filter(|_| self.leaving.is_none() && seat.is_none());
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
        if self.start.is_none() || self.take_tick_while_joining(index, tick) {
            self.stats.dropped.early += 1;
            return;
        }
        let peer = &mut self.peers[index];
        peer.on_received(now, bytes);
        peer.lobby.playing = true;
        if peer.is_free() || peer.dropped && peer.joins.is_none() {
            return self.take_tick_of_absent(index, tick);
        }
        let Some(end) = peer.inputs.end().nearest(tick.end) else {
            self.stats.dropped.inputs += 1;
            return;
        };
        if (end - peer.inputs.end()).abs() <= FAR {
            peer.loss.on_packet(end);
        }
        let in_order = tick.extras.is_empty() || self.take_extras(now, index, tick);
        let peer = &mut self.peers[index];
        let known = peer.known_end();
        if in_order && !self.view.deaf_to.contains(peer.site) {
            self.stats.dropped.inputs += peer.take_inputs(now, end, tick);
        }
        self.stats.dropped.inputs +=
            peer.take_acknowledgement(now, end, tick, &self.own, self.leaving.map(|leave| leave.frame));
        if tick.probe.is_some() || tick.digest.is_some() {
            self.take_measures(now, index, end, tick);
        }
        self.check_guesses(index, known);
        if self.config.recovery == Recovery::Classic {
            self.ask_and_answer_at_once(now, index, !tick.request.is_empty());
        }
    }

    /// A tick of a site without a seat. It has left, or was dropped, and does not know that this site knows; or an order let it in that came
    /// to nothing, because its giver is gone.
    #[cold]
    fn take_tick_of_absent(&mut self, index: usize, tick: &Tick<'_>) {
        let in_vain = self.has_seat_in_vain(index, tick);
        let peer = &mut self.peers[index];
        if in_vain {
            (peer.lobby.in_vain, peer.lobby.joining) = (true, None);
        }
        // The seat of one that was started anew may be one that this site has not heard of yet.
        if in_vain || peer.dropped && !peer.was_restarted() {
            peer.lobby.hello_due = true;
            self.greetings = true;
            self.look_again();
        } else if !peer.dropped {
            self.due |= 1 << index;
        }
    }

    /// Whether a site that was started anew gives inputs for frames that went by without it: nobody is certain of a frame without knowing who
    /// plays in it.
    fn has_seat_in_vain(&self, index: usize, tick: &Tick<'_>) -> bool {
        let first = self.frame.nearest(tick.end).and_then(|end| end.checked_sub(tick.len));
        let plays = self.is_running() && self.joining.is_none();
        let is_past = first.is_some_and(|first| first < self.certain());
        plays && is_past && self.peers[index].was_restarted()
    }

    /// What few ticks carry. It comes before the inputs: an order must be known before what it is about. Returns whether the inputs can
    /// be taken: those of a site whose order was refused cannot, because whoever knows its inputs must know its orders.
    #[cold]
    fn take_extras(&mut self, now: Instant, index: usize, tick: &Tick<'_>) -> bool {
        let mut refused = SiteSet::EMPTY;
        for extra in tick.extras.iter() {
            match extra {
                Extra::Leave(last) => self.hear_leave(index, last),
                Extra::Left(site, last) => self.take_left(now, index, site, last),
                Extra::Order(order) if !self.may_order(order.by) => refused.insert(order.by),
                Extra::Order(order) => self.hear_order(index, order),
                Extra::Vote(vote) => self.take_vote(now, index, vote),
                Extra::Decided(view, decision, since) => self.take_decision(now, index, view, decision, since),
                Extra::Want(site, end) => self.take_want(index, site, end),
                Extra::Relay(relay) if refused.contains(relay.site) => {}
                Extra::Relay(relay) => self.take_relay(now, index, &relay),
                Extra::Condition(condition) => self.take_condition(index, condition),
                Extra::Hold(hold) => self.take_hold(now, hold),
            }
        }
        !refused.contains(self.peers[index].site)
    }

    /// Whether a tick to this peer carries more than inputs.
    #[cold]
    fn has_extras(&self, now: Instant, index: usize) -> bool {
        let mut buf = [0; MAX_DATAGRAM];
        let mut writer = Writer::new(&mut buf);
        self.write_extras(now, index, &mut writer).is_err() || writer.len() > 0
    }

    #[cold]
    fn put_extras(&mut self, now: Instant, index: usize, writer: &mut Writer<'_>) -> Result<(), Full> {
        self.write_extras(now, index, writer)?;
        // Whoever still misses something asks again.
        self.peers[index].wants = [None; MAX_SITES];
        Ok(())
    }

    fn write_extras(&self, now: Instant, index: usize, writer: &mut Writer<'_>) -> Result<(), Full> {
        let peer = &self.peers[index];
        // Who was started anew must not take what was meant for who was there before.
        let meant = |order: &Order| {
            !matches!(order.what, What::Join { site, .. } if site == peer.site) || !peer.was_restarted()
        };
        let ours = |order: &Order| order.by == self.config.site && peer.sender.acked() <= order.frame;
        if let Some(order) = self.order.filter(|order| ours(order) && meant(order)) {
            put_extra(writer, &Extra::Order(order))?;
        }
        // After the order: of one who has left nothing is taken but what came before.
        if let Some(leave) = self.leaving.filter(|_| !peer.dropped && !self.is_bound()) {
            put_extra(writer, &Extra::Leave(leave.frame))?;
        }
        if let Some(vote) = &self.view.vote {
            put_extra(writer, &Extra::Vote(*vote))?;
        }
        if let Some((view, decision)) = self.view.decided.filter(|_| peer.is_behind()) {
            let since = self.view.number.saturating_sub(view.saturating_add(1));
            put_extra(writer, &Extra::Decided(view, decision, since))?;
        }
        if let Some(condition) = self.condition().filter(|_| self.telling_condition && peer.is_playing()) {
            put_extra(writer, &Extra::Condition(condition))?;
        }
        if let Some(hold) = self.pause.told.filter(|_| peer.is_playing()) {
            put_extra(writer, &Extra::Hold(hold))?;
        }
        self.put_relays(now, index, writer)
    }

    fn take_condition(&mut self, index: usize, condition: Condition) {
        let site = self.peers[index].site;
        if let Some(auto) = &mut self.auto {
            auto.tell(site, condition);
        }
    }

    /// There may be something to tell but inputs.
    pub(super) fn talk(&mut self) {
        self.talkative = true;
    }

    /// Looks whether there still is.
    pub(super) fn watch_talk(&mut self, now: Instant) {
        self.forget_hold(now);
        let ours =
            self.leaving.is_some() || self.order.is_some() || self.view.vote.is_some() || self.pause.told.is_some();
        let theirs =
            |peer: &Peer| peer.is_behind() || self.is_missed(now, peer) || peer.wants.iter().any(Option::is_some);
        self.talkative = ours || self.peers.iter().any(theirs);
        self.telling_condition = false;
    }

    /// What measures the link and the states.
    #[cold]
    fn take_measures(&mut self, now: Instant, index: usize, end: Frame, tick: &Tick<'_>) {
        if let Some(probe) = &tick.probe {
            self.take_probe(now, index, end, probe);
        }
        if let Some(digest) = tick.digest {
            self.take_digest(index, digest);
        }
    }

    /// The peer that a tick is from: by address, or by what it says of itself when it has moved.
    fn sender_of(&mut self, from: Addr, tick: &Tick<'_>) -> Option<usize> {
        if tick.identity.is_some_and(|identity| identity.session != self.config.session) {
            return None;
        }
        if let Some(index) = self.peers.iter().position(|peer| peer.addr == from) {
            let other = tick.identity.is_some_and(|identity| identity.site != self.peers[index].site.number());
            return (!other).then_some(index);
        }
        let identity = tick.identity.filter(|identity| identity.session == self.config.session)?;
        let index = self.peers.iter().position(|peer| peer.site.number() == identity.site)?;
        // Only the newest word moves a peer, so that a stray old packet cannot move it back.
        let newest = self.peers[index].newest_stamp_us().unwrap_or(0);
        let stamp = widen(newest, tick.probe?.stamp_us as i64, 40);
        let newer = self.peers[index].is_news(stamp);
        self.accept_address(index, from, newer).then_some(index)
    }

    /// Whether a packet may come from this address: where the peer was, or, if it has moved, where it is now.
    pub(super) fn accept_address(&mut self, index: usize, from: Addr, moved: bool) -> bool {
        let peer = &mut self.peers[index];
        if peer.addr == from {
            return true;
        }
        if !moved || self.config.authenticated {
            return false;
        }
        if let Some(joining) = &mut self.joining {
            joining.watcher.move_source(peer.addr, from);
        }
        peer.addr = from;
        self.events.push(Event::Moved { site: peer.site, to: from });
        true
    }

    fn take_probe(&mut self, now: Instant, index: usize, end: Frame, probe: &Probe) {
        let Some(stamp) = self.peers[index].on_probe(now, probe) else { return };
        let peer = &self.peers[index];
        let site = peer.site;
        if !peer.is_playing() && peer.joins.is_none() {
            // Nobody waits for a site that leaves.
            return;
        }
        if let (Some(sent), Some(pacer)) = (peer.clock.to_local(stamp), self.pacer.as_mut()) {
            pacer.on_delay(now, site, (now - sent).max(TimeDelta::ZERO));
        }
        let Ok(frame) = u32::try_from(end - Frame::ZERO - i64::from(probe.end_minus_frame)) else { return };
        let frame = Frame::new(frame);
        if (frame - self.frame).abs() > FAR {
            return;
        }
        self.peers[index].on_frame(frame, end, self.dials.lag);
        let Some(late_ns) = probe.late_ns else { return };
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
        let near = (frame - self.frame).abs() <= FAR;
        if near && self.peers[index].digests.insert(frame, Told { hash: digest.hash, inputs: digest.inputs }) {
            self.compare(index, frame);
        }
    }

    /// A peer says that it leaves. Who takes part in a ballot about it has said how far it goes, and does not listen any more.
    fn hear_leave(&mut self, index: usize, last: Frame) {
        if !self.view.deaf_to.contains(self.peers[index].site) {
            self.take_leave(index, last);
        }
    }

    pub(super) fn take_leave(&mut self, index: usize, last: Frame) {
        let peer = &mut self.peers[index];
        let near = last >= peer.inputs.top() && last - peer.inputs.end() < i64::from(crate::input::CAPACITY as u32);
        // To one who came later it may have left before.
        let before = last <= peer.inputs.start() && peer.inputs.top() == peer.inputs.start();
        if peer.joins.is_some() && (near || before) {
            // An order that is void leaves everything as it was, so that its seat is not even taken.
            peer.leaves = Some(last.max(peer.inputs.start()));
        } else if peer.is_playing() && (near || before) {
            let site = peer.site;
            // As long as nothing else is known of the frames from there on, they can be stepped again.
            self.void_order_after(site, last);
            let peer = &mut self.peers[index];
            let known = peer.known_end();
            peer.seat = Seat::Leaving(last);
            peer.let_go();
            if let Some(pacer) = &mut self.pacer {
                pacer.forget(site);
            }
            self.check_guesses(index, known);
        }
    }
}

fn short((frame, Told { hash, inputs }): (Frame, Told)) -> Digest {
    Digest { frame: frame.low16(), hash, inputs }
}
