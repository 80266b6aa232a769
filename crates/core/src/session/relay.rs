//! Relay of third sites' inputs.
//!
//! A site that misses inputs of another site and cannot get them directly asks the peers that it receives from. A peer
//! that has the inputs passes them on; a peer that knows that the other site has left reports where its inputs end. So
//! the last inputs of a gone site reach every site, and two sites whose direct link is cut play on through a third one,
//! similar to the *pivot* client that Kim and Park suggest as further research.

use super::Session;
use super::peer::{LINK_CUT_TIMEOUT, Peer};
use crate::codec::{BufferFull, ByteWriter, MAX_DATAGRAM};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId};
use crate::session::message::{Extra, RelayedInputs, put_extra};
use crate::time::{Instant, TimeDelta};

/// Time, besides two round trips, for which all peers are asked, to find the one that delivers new inputs most often. A
/// chosen relay is replaced if no new inputs arrive for this time plus two round trips.
const RELAY_TRIAL_TIME: TimeDelta = TimeDelta::from_millis(300);
/// Time after which a chosen relay is given up and all peers are asked again.
const RELAY_SELECTION_LIFETIME: TimeDelta = TimeDelta::from_secs(5);
/// Largest length in bytes that a packet may have before another site's inputs are added to it: 240 bytes are left for
/// those inputs, 260 for retransmissions, 510 for new inputs.
const MAX_LEN_BEFORE_RELAY: usize = MAX_DATAGRAM - 240 - 260 - 510;

/// Selects the peer that relays the inputs of an unreachable site. No site knows the links between other sites. So all
/// peers are asked at the beginning. The peer that delivers new inputs before the others most often has the shortest
/// path, over both links.
#[derive(Debug)]
pub(super) struct RelaySelector {
    chosen_relay: Option<SiteId>,
    since: Instant,
    /// Number of times that each site delivered new inputs first since the last trial began.
    new_input_counts: [u16; MAX_SITES],
}

impl RelaySelector {
    pub(super) fn new(now: Instant) -> Self {
        Self { chosen_relay: None, since: now, new_input_counts: [0; MAX_SITES] }
    }

    /// Counts that site `by` relayed inputs that were new here.
    pub(super) fn on_new_input(&mut self, by: SiteId) {
        let count = &mut self.new_input_counts[by.index()];
        *count = count.saturating_add(1);
    }

    /// Chooses the site with the most new inputs when the trial of all peers is over. Begins a new trial when no new
    /// inputs have arrived for the trial time, or the relay was chosen more than [`RELAY_SELECTION_LIFETIME`] ago.
    /// `last_input_at` is when new inputs of the unreachable site last arrived.
    fn update(&mut self, now: Instant, last_input_at: Instant, max_rtt: TimeDelta) {
        let trial_time = RELAY_TRIAL_TIME + max_rtt * 2;
        let is_useless = now - last_input_at.max(self.since) > trial_time;
        match self.chosen_relay {
            Some(_) if is_useless || now - self.since > RELAY_SELECTION_LIFETIME => *self = Self::new(now),
            None if now - self.since > trial_time => {
                let best = self.new_input_counts.iter().zip(SiteId::first(MAX_SITES)).max_by_key(|(count, _)| **count);
                (self.chosen_relay, self.since) = (best.filter(|(count, _)| **count > 0).map(|(_, site)| site), now);
            }
            _ => {}
        }
    }
}

impl Session {
    /// Returns whether other sites have to relay a peer's inputs: some are still to come and its link to this site is
    /// cut, or the peer was dropped and some of its last inputs are missing. Inputs of a muted player are not relayed.
    pub(super) fn needs_relay(&self, now: Instant, peer: &Peer) -> bool {
        match peer.absent_from() {
            Some(last) if peer.join_frame.is_none() => {
                peer.inputs.end() < last && (peer.is_dropped || now - peer.last_received_at > LINK_CUT_TIMEOUT)
            }
            _ => !self.membership.muted.contains(peer.site) && now - peer.last_received_at > LINK_CUT_TIMEOUT,
        }
    }

    /// Returns whether `helper`, which must be a player from which packets arrive, is asked for the inputs of `missed`.
    /// All such players are asked for the inputs of a site that was dropped or is reported to have left, because few
    /// may have them. Otherwise only the chosen relay is asked, or all while there is none.
    fn is_asked_to_relay(&self, now: Instant, helper: &Peer, missed: &Peer) -> bool {
        let can = |peer: &Peer| {
            peer.is_playing() && peer.site != missed.site && now - peer.last_received_at < LINK_CUT_TIMEOUT
        };
        // A report that the site has left is believed when enough peers make it, so all peers are asked.
        let chosen =
            missed.relay_selector.chosen_relay.filter(|_| !missed.is_dropped && !self.is_reported_left(missed.site));
        can(helper) && chosen.is_none_or(|chosen| chosen == helper.site)
    }

    /// Updates the choice of relays. All peers are asked again when a relay delivers nothing for a while, and every
    /// [`RELAY_SELECTION_LIFETIME`], because another peer may have become nearer.
    pub(super) fn update_relays(&mut self, now: Instant) {
        let max_rtt = self.max_rtt();
        for index in 0..self.peers.len() {
            let needs_relay = self.needs_relay(now, &self.peers[index]);
            let peer = &mut self.peers[index];
            if needs_relay {
                peer.relay_selector.update(now, peer.last_input_at, max_rtt);
            } else {
                peer.relay_selector = RelaySelector::new(now);
            }
        }
    }

    /// Writes this site's requests to a peer to relay inputs, and the inputs and leave reports that the peer requested.
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
        // No packet has room for all relays, so each site comes first in turn.
        let turn = receiver.stats.packets_out as usize;
        let in_turn = (0..self.peers.len()).map(|offset| &self.peers[(turn + offset) % self.peers.len()]);
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

    /// Returns the first frame without a site that has left in an orderly way; `None` while this site takes part in a
    /// ballot. The ballot may drop another site together with the leaver, and towards that other site the leaver must
    /// keep counting as a member.
    fn final_leave_frame(&self, peer: &Peer) -> Option<Frame> {
        peer.absent_from().filter(|_| peer.has_left() && self.membership.own_vote.is_none())
    }

    fn write_relay(&self, peer: &Peer, first: Frame, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
        // The stream discards only inputs that no site needs: they are further back than sites can be apart.
        let Some(end) = crate::input::relayable_end(&peer.inputs, first) else { return Ok(()) };
        if let Some(command) = self.command.filter(|command| command.issuer == peer.site) {
            put_extra(writer, &Extra::Command(command))?;
        }
        crate::session::message::put_relay_header(writer, peer.site, first, (end - first) as u32)?;
        crate::input::write_with_length(writer, |writer| peer.inputs.encode(writer, first, end, true))
    }

    /// Stores a peer's request for inputs of a third site from `end` on, for the next tick to that peer.
    pub(super) fn on_relay_request(&mut self, index: usize, site: SiteId, end: Frame) {
        self.peers[index].relay_requests[site.index()] = Some(end);
        self.mark_extras_pending();
    }

    /// Handles inputs of a third site that a peer passes on. They are ignored unless this site needs a relay.
    pub(super) fn on_relay(&mut self, now: Instant, relay_index: usize, relay: &RelayedInputs<'_>) {
        let relayed_by = self.peers[relay_index].site;
        let Some(index) = self.peers.iter().position(|peer| peer.site == relay.site) else { return };
        // A relay is accepted only when it is needed.
        if self.membership.muted.contains(relay.site) || !self.needs_relay(now, &self.peers[index]) {
            return;
        }
        let peer = &mut self.peers[index];
        let known = peer.known_end();
        self.stats.dropped_datagrams.inputs += peer.receive_relayed(now, relayed_by, relay);
        self.check_predictions(index, known);
    }
}
