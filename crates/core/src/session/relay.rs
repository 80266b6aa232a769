//! Inputs of third sites, passed on.
//!
//! A site that misses inputs of another and cannot get them from there asks those it hears; whoever has them passes them on, or tells
//! that there are no more because the other has left. So the last inputs of a site that is gone reach everybody, and two sites whose
//! direct way is cut play on through a third (K7, the *pivot*).

use super::Session;
use super::peer::Peer;
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId};
use crate::time::{Instant, TimeDelta};
use crate::wire::{BufferFull, ByteWriter, Extra, MAX_DATAGRAM, RelayedInputs, put_extra};

/// A direct way that brings nothing for so long is taken to be cut, and others are asked.
pub(super) const LINK_CUT_TIMEOUT: TimeDelta = TimeDelta::from_millis(150);

/// A site that brings nothing for so long, beside the time that question and answer take, has nothing. And for so long all are
/// asked, to see who brings most things first.
const RELAY_TRIAL_TIME: TimeDelta = TimeDelta::from_millis(300);
/// So often all are asked again.
const RELAY_SELECTION_LIFETIME: TimeDelta = TimeDelta::from_secs(5);
/// Another relay fits into a packet that is no longer than this so far: 240 bytes for it, 260 for answers, 510 for inputs.
const MAX_LEN_BEFORE_RELAY: usize = MAX_DATAGRAM - 240 - 260 - 510;

/// Who passes on the inputs of a site that is missed. Nobody knows the ways of others, so everybody is asked, and whoever brings news
/// more often than the rest is nearest, counted over both parts of the way.
#[derive(Debug)]
pub(super) struct RelaySelector {
    chosen_relay: Option<SiteId>,
    since: Instant,
    /// How often each site brought something new while all were asked.
    new_input_counts: [u16; MAX_SITES],
}

impl RelaySelector {
    pub(super) fn new(now: Instant) -> Self {
        Self { chosen_relay: None, since: now, new_input_counts: [0; MAX_SITES] }
    }

    /// A site passed on what nobody else had before.
    pub(super) fn on_new_input(&mut self, by: SiteId) {
        let news = &mut self.new_input_counts[by.index()];
        *news = news.saturating_add(1);
    }

    /// Chooses who is asked; `news_at` is when inputs last came.
    fn update(&mut self, now: Instant, news_at: Instant, slowest: TimeDelta) {
        let trial = RELAY_TRIAL_TIME + slowest * 2;
        let useless = now - news_at.max(self.since) > trial;
        match self.chosen_relay {
            Some(_) if useless || now - self.since > RELAY_SELECTION_LIFETIME => *self = Self::new(now),
            None if now - self.since > trial => {
                let best = self.new_input_counts.iter().zip(SiteId::first(MAX_SITES)).max_by_key(|(news, _)| **news);
                (self.chosen_relay, self.since) = (best.filter(|(news, _)| **news > 0).map(|(_, site)| site), now);
            }
            _ => {}
        }
    }
}

impl Session {
    /// Whether the inputs of a peer are to be had from others: it is gone and some are missing, or its way to us is cut.
    pub(super) fn needs_relay(&self, now: Instant, peer: &Peer) -> bool {
        match peer.absent_from() {
            Some(last) if peer.join_frame.is_none() => {
                peer.inputs.end() < last && (peer.is_dropped || now - peer.last_received_at > LINK_CUT_TIMEOUT)
            }
            _ => !self.membership.muted.contains(peer.site) && now - peer.last_received_at > LINK_CUT_TIMEOUT,
        }
    }

    /// Whether a site is asked for the inputs of one that is missed. For those of one that is gone for good, everybody is, because few
    /// may have them. Else it is the one that brings them first.
    fn is_asked_to_relay(&self, now: Instant, helper: &Peer, missed: &Peer) -> bool {
        let can = |peer: &Peer| {
            peer.is_playing() && peer.site != missed.site && now - peer.last_received_at < LINK_CUT_TIMEOUT
        };
        // That it has left is believed when enough of the others say so.
        let chosen =
            missed.relay_selector.chosen_relay.filter(|_| !missed.is_dropped && !self.is_reported_left(missed.site));
        can(helper) && chosen.is_none_or(|chosen| chosen == helper.site)
    }

    /// Who does not help for a while cannot, and now and then another is nearer: then all are asked again.
    pub(super) fn update_relays(&mut self, now: Instant) {
        let slowest = self.max_rtt();
        for index in 0..self.peers.len() {
            let missed = self.needs_relay(now, &self.peers[index]);
            let peer = &mut self.peers[index];
            if missed {
                peer.relay_selector.update(now, peer.last_input_at, slowest);
            } else {
                peer.relay_selector = RelaySelector::new(now);
            }
        }
    }

    /// Writes what is asked of a peer, and what it asked for.
    pub(super) fn write_relays(
        &self,
        now: Instant,
        index: usize,
        writer: &mut ByteWriter<'_>,
    ) -> Result<(), BufferFull> {
        let receiver = &self.peers[index];
        for peer in self.peers.iter().filter(|peer| peer.site != receiver.site) {
            if self.needs_relay(now, peer) && self.is_asked_to_relay(now, receiver, peer) {
                put_extra(writer, &Extra::RelayRequest(peer.site, peer.inputs.end()))?;
            }
        }
        // No packet has room for all of them, so each comes first in its turn.
        let turn = receiver.stats.packets_out as usize;
        let in_turn = (0..self.peers.len()).map(|at| &self.peers[(turn + at) % self.peers.len()]);
        for peer in in_turn.filter(|peer| peer.site != receiver.site) {
            if writer.len() > MAX_LEN_BEFORE_RELAY {
                break;
            }
            let Some(first) = receiver.relay_requests[peer.site.index()] else { continue };
            if first < peer.inputs.end() {
                self.write_relay(peer, first, writer)?;
            } else if let Some(last) = self.final_leave_frame(peer).filter(|last| *last <= first) {
                put_extra(writer, &Extra::LeaveReport(peer.site, last))?;
            }
        }
        Ok(())
    }

    /// The frame with which a site has left of its own accord, if that is beyond doubt: who takes part in a change of the view may have
    /// dropped somebody together with the leaver, and to those it must go on counting.
    fn final_leave_frame(&self, peer: &Peer) -> Option<Frame> {
        peer.absent_from().filter(|_| peer.has_left() && self.membership.own_vote.is_none())
    }

    fn write_relay(&self, peer: &Peer, first: Frame, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        // What the stream has forgotten, nobody can need: it is further back than sites can be apart.
        let Some(range) = crate::input::relayable_end(&peer.inputs, first) else { return Ok(()) };
        if let Some(order) = self.command.filter(|order| order.issuer == peer.site) {
            put_extra(writer, &Extra::Command(order))?;
        }
        crate::wire::put_relay_header(writer, peer.site, first, (range - first) as u32)?;
        crate::input::write_with_length(writer, |writer| peer.inputs.encode(writer, first, range, true))
    }

    /// A peer misses inputs of a third site.
    pub(super) fn on_relay_request(&mut self, index: usize, site: SiteId, end: Frame) {
        self.peers[index].relay_requests[site.index()] = Some(end);
        self.mark_extras_pending();
    }

    /// A peer passes on inputs of a third site.
    pub(super) fn on_relay(&mut self, now: Instant, by: usize, relay: &RelayedInputs<'_>) {
        let by = self.peers[by].site;
        let Some(index) = self.peers.iter().position(|peer| peer.site == relay.site) else { return };
        // Nobody's word counts for another's without need.
        if self.membership.muted.contains(relay.site) || !self.needs_relay(now, &self.peers[index]) {
            return;
        }
        let peer = &mut self.peers[index];
        let known = peer.known_end();
        self.stats.dropped_datagrams.inputs += peer.receive_relayed(now, by, relay);
        self.check_predictions(index, known);
    }
}
