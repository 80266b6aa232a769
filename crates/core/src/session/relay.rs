//! Inputs of third sites, passed on.
//!
//! A site that misses inputs of another and cannot get them from there asks those it hears; whoever has them passes them on. So the
//! last inputs of a site that is gone reach everybody, and two sites whose direct way is cut play on through a third (K7, the
//! *pivot*).

use super::Session;
use super::peer::Peer;
use crate::frame::Frame;
use crate::id::SiteId;
use crate::time::{Instant, TimeDelta};
use crate::wire::{Extra, Full, MAX_DATAGRAM, Relay, Writer, put_extra};

/// A direct way that brings nothing for so long is taken to be cut, and others are asked.
const CUT: TimeDelta = TimeDelta::from_millis(150);

/// A site that brings nothing for so long, beside the time that question and answer take, has nothing.
const HELPLESS: TimeDelta = TimeDelta::from_millis(300);
/// Another relay fits into a packet that is no longer than this so far: 240 bytes for it, 260 for answers, 510 for inputs.
const BEFORE_RELAY: usize = MAX_DATAGRAM - 240 - 260 - 510;

impl Session {
    /// Whether the inputs of a peer are to be had from others: it is gone and some are missing, or its way to us is cut.
    pub(super) fn is_missed(&self, now: Instant, peer: &Peer) -> bool {
        match peer.last() {
            Some(last) if peer.joins.is_none() => peer.inputs.end() < last && (peer.dropped || now - peer.heard > CUT),
            _ => !self.view.deaf_to.contains(peer.site) && now - peer.heard > CUT,
        }
    }

    /// Whether a site is asked for the inputs of one that is missed. For those of one that is gone for good, everybody is, because few
    /// may have them. Else it is the nearest that brings any.
    fn helps(&self, now: Instant, helper: &Peer, missed: &Peer) -> bool {
        let can = |peer: &&Peer| peer.is_playing() && peer.site != missed.site && now - peer.heard < CUT;
        if missed.dropped || !can(&helper) {
            return can(&helper);
        }
        let distance = |peer: &Peer| (peer.clock.rtt().unwrap_or(TimeDelta::from_secs(60)), peer.site);
        let candidates = || self.peers.iter().filter(can);
        let nearer = candidates().filter(|peer| distance(peer) < distance(helper)).count();
        nearer == usize::from(missed.helper) % candidates().count().max(1)
    }

    /// Who does not help for a while cannot, and the next is asked.
    pub(super) fn watch_helpers(&mut self, now: Instant) {
        let slowest = self.peers.iter().filter_map(|peer| peer.clock.rtt()).max().unwrap_or_default();
        let helpless = HELPLESS + slowest * 2;
        for index in 0..self.peers.len() {
            let missed = self.is_missed(now, &self.peers[index]);
            let peer = &mut self.peers[index];
            if !missed {
                peer.helper = 0;
            } else if now - peer.inputs_at.max(peer.helped_since) > helpless {
                peer.helper = peer.helper.wrapping_add(1);
                peer.helped_since = now;
            }
        }
    }

    /// Writes what is asked of a peer, and what it asked for.
    pub(super) fn put_relays(&self, now: Instant, index: usize, writer: &mut Writer<'_>) -> Result<(), Full> {
        let receiver = &self.peers[index];
        for peer in self.peers.iter().filter(|peer| peer.site != receiver.site) {
            if self.is_missed(now, peer) && self.helps(now, receiver, peer) {
                put_extra(writer, &Extra::Want(peer.site, peer.inputs.end()))?;
            }
        }
        // No packet has room for all of them, so each comes first in its turn.
        let turn = receiver.stats.packets_out as usize;
        let in_turn = (0..self.peers.len()).map(|at| &self.peers[(turn + at) % self.peers.len()]);
        for peer in in_turn.filter(|peer| peer.site != receiver.site) {
            if writer.len() > BEFORE_RELAY {
                break;
            }
            if let Some(first) = receiver.wants[peer.site.index()].filter(|first| *first < peer.inputs.end()) {
                self.put_relay(peer, first, writer)?;
            }
        }
        Ok(())
    }

    fn put_relay(&self, peer: &Peer, first: Frame, writer: &mut Writer<'_>) -> Result<(), Full> {
        // What the stream has forgotten, nobody can need: it is further back than sites can be apart.
        let Some(range) = crate::input::passable(&peer.inputs, first) else { return Ok(()) };
        if let Some(order) = self.order.filter(|order| order.by == peer.site) {
            put_extra(writer, &Extra::Order(order))?;
        }
        crate::wire::put_relay_head(writer, peer.site, first, (range - first) as u32)?;
        crate::input::sized(writer, |writer| peer.inputs.encode(writer, first, range, true))
    }

    /// A peer misses inputs of a third site.
    pub(super) fn take_want(&mut self, index: usize, site: SiteId, end: Frame) {
        self.peers[index].wants[site.index()] = Some(end);
        self.talk();
    }

    /// A peer passes on inputs of a third site.
    pub(super) fn take_relay(&mut self, now: Instant, relay: &Relay<'_>) {
        let Some(index) = self.peers.iter().position(|peer| peer.site == relay.site) else { return };
        // Nobody's word counts for another's without need.
        if self.view.deaf_to.contains(relay.site) || !self.is_missed(now, &self.peers[index]) {
            return;
        }
        let peer = &mut self.peers[index];
        let known = peer.known_end();
        self.stats.dropped.inputs += peer.take_relayed(now, relay);
        self.check_guesses(index, known);
    }
}
