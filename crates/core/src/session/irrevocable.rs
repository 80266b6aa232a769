//! Irrevocable frames: the confirmed frames that stay so even if the others drop this site. Only these are published.
//!
//! Every quorum of the other sites contains a site that has the inputs of all sites outside the quorum for them.

use super::peer::Peer;
use super::peers::Peers;
use super::quorum::Electorate;
use crate::frame::Frame;

/// Returns the end of the irrevocable frames. `confirmed` is the end of the confirmed frames, `unpublished` the first
/// frame that is not published, and `lead` the most frames by which inputs run ahead of the machine that gives them.
pub(super) fn irrevocable_end(
    peers: &Peers,
    electorate: Electorate,
    (unpublished, confirmed): (Frame, Frame),
    lead: u32,
) -> Frame {
    let mut irrevocable = confirmed;
    let others_may_lack = peers.iter().any(|peer| quorum_may_lack_inputs_of(peer, electorate, peers, unpublished));
    let mut others_left = electorate.voters;
    others_left.remove(peers.own_site());
    while electorate.is_quorum(others_left) {
        let is_established = |peer: &Peer| peer.inputs().start() <= unpublished && !peer.has_advance_inputs();
        let is_candidate = |peer: &&Peer| others_left.contains(peer.site()) && is_established(peer);
        let known_end = |peer: &Peer| match others_may_lack {
            true => peer.acked().min(proven_confirmed_end(peer, lead)),
            false => peer.acked(),
        };
        let candidates = peers.iter().filter(is_candidate).map(|peer| (known_end(peer), peer.site()));
        // Only new joiners are left, which know earlier frames from a feed alone.
        let Some((acked, site)) = candidates.max() else { break };
        irrevocable = irrevocable.min(acked);
        others_left.remove(site);
    }
    irrevocable
}

/// Returns whether the other sites could go on without `peer` and without its inputs for frames from `unpublished` on:
/// a quorum of them does not contain it, or it was absent from such a frame on.
fn quorum_may_lack_inputs_of(peer: &Peer, electorate: Electorate, peers: &Peers, unpublished: Frame) -> bool {
    let mut without = electorate.voters;
    without.remove(peers.own_site());
    match without.contains(peer.site()) {
        true => {
            without.remove(peer.site());
            electorate.is_quorum(without)
        }
        false => peer.absent_from().is_some_and(|end| end > unpublished),
    }
}

/// Returns the end of the frames that `peer` must have confirmed, because it has sampled its newest input: its machine
/// runs ahead of the confirmed frames by at most the prediction window, and its inputs run ahead of its machine by at
/// most the input delay and one frame.
fn proven_confirmed_end(peer: &Peer, lead: u32) -> Frame {
    peer.inputs().end().checked_sub(lead + 1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;
    use crate::input::Stream;
    use crate::session::message::Tick;
    use crate::time::Instant;

    /// Returns the end for a site whose peers have acknowledged its inputs before these frames, when 100 frames are
    /// confirmed.
    fn end(own: u8, acks: &[u32]) -> u32 {
        let mut peers = table(own, acks.len() as u8 + 1);
        let mut own_inputs = Stream::new(1, Frame::ZERO);
        (0..200).for_each(|_| own_inputs.push(&[1]));
        for (peer, ack) in peers.iter_mut().zip(acks) {
            peer.give_inputs(&own_inputs, Frame::new(100));
            let tick = Tick { end_minus_ack: 100 - *ack as i32, ..Tick::default() };
            peer.on_ack(Instant::ZERO, Frame::new(100), &tick, &own_inputs, None);
        }
        let electorate = Electorate { voters: peers.voters(), pending_joiner: None };
        irrevocable_end(&peers, electorate, (Frame::ZERO, Frame::new(100)), 4).number()
    }

    #[test]
    fn lowest_of_two_sites_needs_no_acknowledgement() {
        assert_eq!(end(0, &[10]), 100, "the other site alone is no quorum");
    }

    #[test]
    fn higher_of_two_sites_needs_the_acknowledgement_of_the_lower() {
        assert_eq!(end(1, &[10]), 10);
    }

    #[test]
    fn one_site_of_every_quorum_must_know_the_inputs() {
        assert_eq!(end(0, &[90, 20]), 90, "each quorum of the others contains both");
        assert_eq!(end(3, &[90, 80, 20]), 90, "sites 1 and 2 are no quorum without the lowest");
        assert_eq!(end(3, &[20, 90, 80]), 80, "sites 0 and 2 are a quorum");
    }
}
