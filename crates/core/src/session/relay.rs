//! Relay of third sites' inputs.
//!
//! A site that misses inputs of another site and cannot get them directly asks the peers that it receives from. A peer
//! that has the inputs passes them on; a peer that knows that the other site has left reports where its inputs end. So
//! the last inputs of a gone site reach every site, and two sites whose direct link is cut play on through a third one,
//! similar to the *pivot* client that Kim and Park suggest as further research.

use alloc::vec::Vec;

use super::peer::{LINK_CUT_TIMEOUT, Peer};
use super::peers::Peers;
use crate::codec::{BufferFull, ByteWriter, MAX_DATAGRAM};
use crate::frame::Frame;
use crate::id::{MAX_SITES, SiteId, SiteSet};
use crate::session::message::{Extra, ScheduledCommand, put_extra};
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
struct RelaySelector {
    chosen_relay: Option<SiteId>,
    since: Instant,
    /// Number of times that each site delivered new inputs first since the last trial began.
    new_input_counts: [u16; MAX_SITES],
}

impl RelaySelector {
    fn new(now: Instant) -> Self {
        Self { chosen_relay: None, since: now, new_input_counts: [0; MAX_SITES] }
    }

    /// Counts that site `by` relayed inputs that were new here.
    fn on_new_input(&mut self, by: SiteId) {
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

/// The relays of this site, by index of the peer.
#[derive(Debug)]
pub(super) struct Relays {
    /// For each peer, the choice of the site that relays its inputs while its link to this site is cut.
    selectors: Vec<RelaySelector>,
    /// For each peer, the first frame that it lacks of each site whose inputs it asked this site to relay. Cleared when
    /// a tick to the peer is sent: a peer that still misses inputs repeats its request.
    requests: Vec<[Option<Frame>; MAX_SITES]>,
}

/// What the relays read of membership and commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct RelayFacts {
    /// Sites whose inputs are not accepted.
    pub(super) muted: SiteSet,
    /// Sites that some peer reports to have left.
    pub(super) reported_left: SiteSet,
    /// Whether this site takes part in a ballot. The ballot may drop another site together with a leaver, and towards
    /// that other site the leaver must keep counting as a member, so its leave is not reported.
    pub(super) is_voting: bool,
    /// The newest scheduled command, without which its issuer's inputs are not passed on.
    pub(super) command: Option<ScheduledCommand>,
}

impl Relays {
    pub(super) fn new(now: Instant, peer_count: usize) -> Self {
        Self {
            selectors: (0..peer_count).map(|_| RelaySelector::new(now)).collect(),
            requests: alloc::vec![[None; MAX_SITES]; peer_count],
        }
    }

    /// Updates the choice of relays. All peers are asked again when a relay delivers nothing for a while, and every
    /// [`RELAY_SELECTION_LIFETIME`], because another peer may have become nearer.
    pub(super) fn update(&mut self, now: Instant, peers: &Peers, muted: SiteSet) {
        let max_rtt = peers.max_rtt();
        for (selector, peer) in self.selectors.iter_mut().zip(peers.iter()) {
            match peer.needs_relay(now, muted.contains(peer.site())) {
                true => selector.update(now, peer.last_input_at(), max_rtt),
                false => *selector = RelaySelector::new(now),
            }
        }
    }

    /// Discards all choices, because every link works.
    pub(super) fn reset(&mut self, now: Instant) {
        self.selectors.iter_mut().for_each(|selector| *selector = RelaySelector::new(now));
    }

    /// Counts that `relay` delivered new inputs of a peer.
    pub(super) fn on_new_input(&mut self, index: usize, relay: SiteId) {
        self.selectors[index].on_new_input(relay);
    }

    /// Stores a peer's request for inputs of a third site from `end` on, for the next tick to that peer.
    pub(super) fn on_request(&mut self, index: usize, site: SiteId, end: Frame) {
        self.requests[index][site.index()] = Some(end);
    }

    /// Returns whether a peer has asked for inputs of third sites.
    pub(super) fn has_requests(&self, index: usize) -> bool {
        self.requests[index].iter().any(Option::is_some)
    }

    /// Notes that a tick to a peer was encoded.
    pub(super) fn on_tick(&mut self, index: usize) {
        self.requests[index] = [None; MAX_SITES];
    }

    /// Returns whether `helper`, which must be a player from which packets arrive, is asked for the inputs of `missed`.
    /// All such players are asked for the inputs of a site that was dropped or is reported to have left, because few
    /// may have them. Otherwise only the chosen relay is asked, or all while there is none.
    fn is_asked(&self, now: Instant, helper: &Peer, (index, missed): (usize, &Peer), facts: &RelayFacts) -> bool {
        let can_help = helper.is_playing() && now - helper.last_received_at() < LINK_CUT_TIMEOUT;
        // A report that the site has left is believed when enough peers make it, so all peers are asked.
        let is_gone = missed.is_dropped() || facts.reported_left.contains(missed.site());
        let chosen = self.selectors[index].chosen_relay.filter(|_| !is_gone);
        can_help && chosen.is_none_or(|chosen| chosen == helper.site())
    }

    /// Writes this site's requests to a peer to relay inputs, and the inputs and leave reports that the peer requested.
    pub(super) fn write(
        &self,
        now: Instant,
        index: usize,
        peers: &Peers,
        facts: &RelayFacts,
        writer: &mut ByteWriter<'_>,
    ) -> Result<(), BufferFull> {
        let receiver = &peers[index];
        for (missed_index, peer) in peers.iter().enumerate().filter(|(missed, _)| *missed != index) {
            let is_missed = peer.needs_relay(now, facts.muted.contains(peer.site()));
            if is_missed && self.is_asked(now, receiver, (missed_index, peer), facts) {
                put_extra(writer, &Extra::RelayRequest(peer.site(), peer.inputs().end()))?;
            }
        }
        // No packet has room for all relays, so each site comes first in turn.
        let turn = receiver.packets_out() as usize;
        let in_turn = (0..peers.len()).map(|offset| &peers[(turn + offset) % peers.len()]);
        for peer in in_turn.filter(|peer| peer.site() != receiver.site()) {
            if writer.len() > MAX_LEN_BEFORE_RELAY {
                break;
            }
            let Some(first) = self.requests[index][peer.site().index()] else { continue };
            if first < peer.inputs().end() {
                write_relay(peer, first, facts, writer)?;
            } else if let Some(last) = final_leave_frame(peer, facts).filter(|last| *last <= first) {
                put_extra(writer, &Extra::LeaveReport(peer.site(), last))?;
            }
        }
        Ok(())
    }
}

/// Returns the first frame without a site that has left in an orderly way, if that can be reported.
fn final_leave_frame(peer: &Peer, facts: &RelayFacts) -> Option<Frame> {
    peer.absent_from().filter(|_| peer.has_left() && !facts.is_voting)
}

fn write_relay(peer: &Peer, first: Frame, facts: &RelayFacts, writer: &mut ByteWriter<'_>) -> Result<(), BufferFull> {
    // The stream discards only inputs that no site needs: they are further back than sites can be apart.
    let Some(end) = crate::input::relayable_end(peer.inputs(), first) else { return Ok(()) };
    if let Some(command) = facts.command.filter(|command| command.issuer == peer.site()) {
        put_extra(writer, &Extra::Command(command))?;
    }
    crate::session::message::put_relay_header(writer, peer.site(), first, (end - first) as u32)?;
    crate::input::write_with_length(writer, |writer| peer.inputs().encode(writer, first, end, true))
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;
    use crate::input::Stream;
    use std::vec::Vec;

    const FACTS: RelayFacts =
        RelayFacts { muted: SiteSet::EMPTY, reported_left: SiteSet::EMPTY, is_voting: false, command: None };

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn site(number: u8) -> SiteId {
        SiteId::new(number).unwrap()
    }

    /// Returns the bytes of the extras to a peer.
    fn written(relays: &Relays, now: Instant, index: usize, peers: &Peers, facts: &RelayFacts) -> Vec<u8> {
        let mut buf = [0; MAX_DATAGRAM];
        let mut writer = ByteWriter::new(&mut buf);
        relays.write(now, index, peers, facts, &mut writer).unwrap();
        let len = writer.len();
        buf[..len].to_vec()
    }

    fn encoded(extra: &Extra<'_>) -> Vec<u8> {
        let mut buf = [0; MAX_DATAGRAM];
        let len = extra.encode(&mut buf).unwrap();
        buf[..len].to_vec()
    }

    /// Site 0 of 4, which receives from sites 2 and 3 but not from site 1.
    fn with_cut_link(now: Instant) -> Peers {
        let mut peers = table(0, 4);
        peers[1].on_received(now, 1);
        peers[2].on_received(now, 1);
        peers
    }

    #[test]
    fn all_peers_are_asked_until_one_proves_fastest() {
        let mut peers = with_cut_link(at(1_000));
        let mut relays = Relays::new(at(1_000), 3);
        let request = encoded(&Extra::RelayRequest(site(1), Frame::ZERO));
        let asked = |relays: &Relays, now: Instant, peers: &Peers| {
            [1, 2].map(|index| written(relays, now, index, peers, &FACTS) == request)
        };
        assert_eq!(asked(&relays, at(1_000), &peers), [true, true]);
        relays.on_new_input(0, site(3));
        (1..3).for_each(|index| peers[index].on_received(at(1_301), 1));
        relays.update(at(1_301), &peers, SiteSet::EMPTY);
        assert_eq!(asked(&relays, at(1_301), &peers), [false, true]);
        (1..3).for_each(|index| peers[index].on_received(at(1_603), 1));
        relays.update(at(1_603), &peers, SiteSet::EMPTY);
        assert_eq!(asked(&relays, at(1_603), &peers), [true, true], "the chosen relay delivered nothing");
    }

    #[test]
    fn muted_and_reachable_sites_are_not_requested() {
        let mut peers = with_cut_link(at(1_000));
        let relays = Relays::new(at(1_000), 3);
        let muted = RelayFacts { muted: SiteSet::from_iter([site(1)]), ..FACTS };
        assert!(written(&relays, at(1_000), 1, &peers, &muted).is_empty());
        peers[0].on_received(at(1_000), 1);
        assert!(written(&relays, at(1_000), 1, &peers, &FACTS).is_empty());
    }

    #[test]
    fn requested_inputs_are_passed_on_once_per_request() {
        let mut peers = with_cut_link(at(0));
        let mut inputs = Stream::new(1, Frame::ZERO);
        (0..9).for_each(|_| inputs.push(&[5]));
        peers[0].give_inputs(&inputs, Frame::new(9));
        let mut relays = Relays::new(at(0), 3);
        relays.on_request(1, site(1), Frame::new(4));
        assert!(relays.has_requests(1) && !relays.has_requests(2));
        assert!(!written(&relays, at(0), 1, &peers, &FACTS).is_empty());
        relays.on_tick(1);
        assert!(written(&relays, at(0), 1, &peers, &FACTS).is_empty());
    }

    #[test]
    fn leave_is_reported_unless_a_ballot_is_under_way() {
        let mut peers = with_cut_link(at(0));
        peers[0].leave(Frame::ZERO);
        let mut relays = Relays::new(at(0), 3);
        relays.on_request(1, site(1), Frame::ZERO);
        let report = encoded(&Extra::LeaveReport(site(1), Frame::ZERO));
        assert_eq!(written(&relays, at(0), 1, &peers, &FACTS), report);
        assert!(written(&relays, at(0), 1, &peers, &RelayFacts { is_voting: true, ..FACTS }).is_empty());
    }
}
