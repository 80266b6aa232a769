//! State comparison: digests of compared frames, and the check of received inputs against forgery.
//!
//! At every comparison frame the host program hashes the machine's state. The digest of a frame is published once the
//! frame is confirmed, and compared with the digests that the peers send. A peer's state is compared only for frames in
//! which the peer played, and not once the peer may have stepped inputs that do not count. The digest includes a
//! rolling hash of the sender's inputs, which reveals inputs that a relaying site changed.

use alloc::vec::Vec;

use super::digest_history::{DigestHistory, FrameDigest, fold_hash};
use super::input_digest::InputDigest;
use super::peer::Peer;
use crate::frame::Frame;
use crate::input::Stream;

/// The digests of this site and of all peers.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Distance between compared frames; 0 if states are not compared.
    interval: u32,
    own_digests: DigestHistory<FrameDigest>,
    /// Rolling hash of this site's inputs.
    own_input_digest: InputDigest,
    /// State hashes after compared frames, including frames that a rollback may still change.
    tentative_hashes: DigestHistory,
    /// The next frame whose state hash is published once the frame is confirmed; `None` if states are not compared.
    next_frame: Option<Frame>,
    /// The frame for which a state hash was requested from the host program.
    hash_pending: Option<Frame>,
    /// By index of the peer.
    peers: Vec<PeerDigests>,
}

/// The digests of one peer.
#[derive(Debug)]
struct PeerDigests {
    frame_digests: DigestHistory<FrameDigest>,
    /// Rolling hash of the peer's received inputs.
    input_digest: InputDigest,
    /// Values of `input_digest` at compared frames.
    input_digests: DigestHistory,
    /// The newest frame after which the peer's state was equal to this site's.
    last_agreed_frame: Option<Frame>,
    /// Whether the host program was informed that this site holds forged inputs of the peer.
    is_forgery_reported: bool,
    /// The first frame that the peer may have stepped with inputs that do not count, because the others dropped a site
    /// after the peer had left.
    unconsulted_from: Option<Frame>,
    counts: ComparisonCounts,
}

/// Numbers of comparisons with one peer since the peer or this site took its seat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ComparisonCounts {
    pub(super) compared: u64,
    pub(super) mismatches: u64,
}

/// The findings of one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Whether this site holds forged inputs of the peer, which was not reported before.
    pub(super) is_forged: bool,
    /// The first mismatch of the peer's state.
    pub(super) divergence: Option<Divergence>,
}

/// A peer's state that differs from this site's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divergence {
    /// The newest compared frame after which both states were equal.
    pub(super) agreed: Option<Frame>,
    /// This site's folded state hash.
    pub(super) own_hash: u32,
}

impl PeerDigests {
    fn new(first: Frame) -> Self {
        Self {
            frame_digests: DigestHistory::default(),
            input_digest: InputDigest::new(first),
            input_digests: DigestHistory::default(),
            last_agreed_frame: None,
            is_forgery_reported: false,
            unconsulted_from: None,
            counts: ComparisonCounts::default(),
        }
    }

    fn advance_inputs(&mut self, peer: &Peer, until: Frame) {
        self.input_digest.advance(peer.inputs(), until, |frame| peer.is_absent(frame));
    }

    /// Compares the digest of the peer's received inputs with the one that the peer itself sent for the same frame.
    /// Returns whether they differ for the first time. If this site does not know the digest of the peer's earlier
    /// inputs, it adopts the peer's value for `newest`, the newest compared frame.
    fn compare_inputs(&mut self, peer: &Peer, frame: Frame, newest: Option<Frame>) -> bool {
        let Some(theirs) = self.frame_digests.get(frame).map(|digest| digest.input_digest) else { return false };
        if peer.is_absent(frame) {
            return false;
        }
        if !self.input_digest.is_known() {
            if newest == Some(frame) && frame >= peer.inputs().start() {
                self.input_digest.adopt(peer.inputs(), frame, theirs);
            }
            return false;
        }
        let is_forged = self.input_digests.get(frame).is_some_and(|ours| ours != theirs);
        is_forged && !core::mem::replace(&mut self.is_forgery_reported, true)
    }

    /// Compares the peer's state hash with this site's. Returns the first mismatch.
    fn compare_state(&mut self, frame: Frame, ours: u32) -> Option<Divergence> {
        let theirs = self.frame_digests.get(frame)?.state_hash;
        self.counts.compared += 1;
        if ours == theirs {
            self.last_agreed_frame = Some(frame);
            return None;
        }
        self.counts.mismatches += 1;
        let is_first = self.counts.mismatches == 1;
        is_first.then_some(Divergence { agreed: self.last_agreed_frame, own_hash: ours })
    }
}

impl Comparison {
    /// Creates the comparison of a site and `peer_count` peers whose inputs begin with `first`. States are compared
    /// after every `interval` frames; never if that is 0.
    pub(super) fn new(interval: u32, first: Frame, peer_count: usize) -> Self {
        Self {
            interval,
            own_digests: DigestHistory::default(),
            own_input_digest: InputDigest::new(first),
            tentative_hashes: DigestHistory::default(),
            next_frame: interval.checked_sub(1).map(Frame::new),
            hash_pending: None,
            peers: (0..peer_count).map(|_| PeerDigests::new(first)).collect(),
        }
    }

    /// Returns whether the state after a frame is compared. If so, notes that its hash was requested.
    #[inline]
    pub(super) fn request_hash(&mut self, frame: Frame) -> bool {
        let is_compared = self.interval > 0 && (frame.number() + 1).is_multiple_of(self.interval);
        if is_compared {
            self.hash_pending = Some(frame);
        }
        is_compared
    }

    /// Notes that the hash of a downloaded frame was requested.
    pub(super) fn expect_hash(&mut self, frame: Frame) {
        self.hash_pending = Some(frame);
    }

    /// Returns the frame whose hash was requested and has not arrived.
    #[inline]
    pub(super) fn pending_hash(&self) -> Option<Frame> {
        self.hash_pending
    }

    /// Gives the requested hash up, or takes it in: returns the frame that it belongs to.
    #[inline]
    pub(super) fn take_pending_hash(&mut self) -> Option<Frame> {
        self.hash_pending.take()
    }

    /// Keeps the state hash after a compared frame, which may be resimulated.
    pub(super) fn on_hash(&mut self, frame: Frame, hash: u64) {
        self.tentative_hashes.replace(frame, hash);
    }

    /// Returns the newest state hash after a compared frame.
    pub(super) fn hash(&self, frame: Frame) -> Option<u64> {
        self.tentative_hashes.get(frame)
    }

    /// Returns the state hash after a frame whose digest was published.
    pub(super) fn published_hash(&self, frame: Frame) -> Option<u64> {
        self.hash(frame).filter(|_| self.next_frame.is_some_and(|next| frame < next))
    }

    /// Returns whether a frame before `frame` is compared and not published.
    #[inline]
    pub(super) fn is_behind(&self, frame: Frame) -> bool {
        self.next_frame.is_some_and(|next| next < frame)
    }

    /// Publishes the digest of the next compared frame with a known hash that is before `confirmed`. Returns the frame
    /// and its hash.
    pub(super) fn publish_next(&mut self, confirmed: Frame, peers: &[Peer], own: &Stream) -> Option<(Frame, u64)> {
        loop {
            let frame = self.next_frame.filter(|frame| *frame < confirmed)?;
            self.next_frame = Some(frame + self.interval);
            let input_digest = self.close_input_digests(frame, peers, own);
            let Some(hash) = self.tentative_hashes.get(frame) else { continue };
            self.own_digests.insert(frame, FrameDigest { state_hash: fold_hash(hash), input_digest });
            return Some((frame, hash));
        }
    }

    /// Closes the interval of this site's input digest, and of those of peers that are known, at a compared frame.
    /// Returns the digest of this site's inputs; 0 if the frame is before its first input.
    fn close_input_digests(&mut self, frame: Frame, peers: &[Peer], own: &Stream) -> u64 {
        let known = self.peers.iter_mut().zip(peers).filter(|(digests, _)| digests.input_digest.is_known());
        for (digests, peer) in known {
            digests.advance_inputs(peer, frame.next());
            if let Some(value) = digests.input_digest.close_interval(frame) {
                digests.input_digests.insert(frame, value);
            }
        }
        self.own_input_digest.advance(own, frame.next(), |_| false);
        self.own_input_digest.close_interval(frame).unwrap_or_default()
    }

    /// Adds confirmed inputs to the input digests before the input streams discard them.
    #[cold]
    pub(super) fn advance_input_digests(&mut self, confirmed: Frame, peers: &[Peer], own: &Stream) {
        let Some(next) = self.next_frame else { return };
        let until = confirmed.min(next);
        self.peers.iter_mut().zip(peers).for_each(|(digests, peer)| digests.advance_inputs(peer, until));
        self.own_input_digest.advance(own, until, |_| false);
    }

    /// Returns the newest published digest of this site.
    pub(super) fn newest_digest(&self) -> Option<(Frame, FrameDigest)> {
        self.own_digests.newest()
    }

    /// Returns the published state hash of this site after a frame, folded to 32 bits.
    pub(super) fn own_state_hash(&self, frame: Frame) -> Option<u32> {
        self.own_digests.get(frame).map(|digest| digest.state_hash)
    }

    /// Keeps a digest that a peer sent. Returns whether it is new.
    pub(super) fn on_digest(&mut self, index: usize, frame: Frame, digest: FrameDigest) -> bool {
        self.peers[index].frame_digests.insert(frame, digest)
    }

    /// Compares the digests of a peer and of this site for a frame. A leaving site does not follow the others'
    /// decisions, so it compares no states (`is_leaving`).
    pub(super) fn compare(&mut self, index: usize, frame: Frame, peer: &Peer, is_leaving: bool) -> Findings {
        let newest = self.next_frame.and_then(|next| next.checked_sub(self.interval));
        let digests = &mut self.peers[index];
        let is_forged = digests.compare_inputs(peer, frame, newest);
        let was_unconsulted = digests.unconsulted_from.is_some_and(|first| frame >= first);
        let ours = self.own_digests.get(frame).filter(|_| !peer.is_absent(frame) && !was_unconsulted && !is_leaving);
        Findings { is_forged, divergence: ours.and_then(|ours| digests.compare_state(frame, ours.state_hash)) }
    }

    pub(super) fn counts(&self, index: usize) -> ComparisonCounts {
        self.peers[index].counts
    }

    /// Notes, for a peer that does not play, that other sites were dropped. `earliest` is the first frame without the
    /// inputs of one of them. A peer that has left gave no vote and may have stepped that frame with inputs that do not
    /// count.
    pub(super) fn on_decision_without(&mut self, index: usize, earliest: Option<Frame>) {
        let from = &mut self.peers[index].unconsulted_from;
        *from = [*from, earliest].into_iter().flatten().min();
    }

    /// Forgets the digests of a dropped peer: it may have stepped inputs of other dropped sites, which do not count.
    pub(super) fn on_drop(&mut self, index: usize) {
        self.peers[index].frame_digests = DigestHistory::default();
    }

    /// Restarts the comparison with a peer whose seat is taken from frame `first` on. `is_start_known` tells whether
    /// this site receives all inputs from that frame on.
    pub(super) fn on_seat_taken(&mut self, index: usize, first: Frame, is_start_known: bool) {
        self.peers[index] = PeerDigests::new(first);
        if !is_start_known {
            self.peers[index].input_digest = InputDigest::with_unknown_start(first);
        }
    }

    /// Restarts the digest of this site's inputs, which begin with frame `first`.
    pub(super) fn restart_own_inputs(&mut self, first: Frame) {
        self.own_input_digest = InputDigest::new(first);
    }

    /// Skips the compared frames before `next`, because this site has no hash of the states after them. This site's
    /// inputs from `first` on, which were sent in advance, still enter its input digest.
    pub(super) fn skip_until(&mut self, next: Frame, first: Frame, own: &Stream) {
        self.next_frame = first_compared_frame(first, self.interval);
        while let Some(frame) = self.next_frame.filter(|frame| *frame < next) {
            self.own_input_digest.advance(own, frame.next(), |_| false);
            self.own_input_digest.close_interval(frame);
            self.next_frame = Some(frame + self.interval);
        }
    }

    /// Returns the size on the heap, in bytes.
    pub(super) fn memory(&self) -> usize {
        let of_peer =
            |peer: &PeerDigests| size_of_val(peer) + peer.frame_digests.memory() + peer.input_digests.memory();
        let peers: usize = self.peers.iter().map(of_peer).sum();
        self.own_digests.memory() + self.tentative_hashes.memory() + peers
    }
}

/// Returns the first compared frame that is not before `first`; `None` if no states are compared.
fn first_compared_frame(first: Frame, interval: u32) -> Option<Frame> {
    let next = (first.number() + 1).checked_next_multiple_of(interval)?;
    (interval > 0).then(|| Frame::new(next - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Addr, SiteId};
    use crate::input::Ownership;
    use crate::time::Instant;

    const INTERVAL: u32 = 10;

    /// A comparison with one peer. Both sites have given the same input for 100 frames.
    fn with_one_peer() -> (Comparison, Peer, Stream) {
        let site = SiteId::new(1).unwrap();
        let layout = Ownership::one_player_per_site(2, 0xff).layout(site);
        let mut peer = Peer::new(Instant::ZERO, site, Addr(1), layout, Frame::ZERO, 1);
        let mut own = Stream::new(1, Frame::ZERO);
        (0..100).for_each(|_| own.push(&[3]));
        peer.give_inputs(&own, Frame::new(100));
        (Comparison::new(INTERVAL, Frame::ZERO, 1), peer, own)
    }

    fn frames(confirmed: u32, comparison: &mut Comparison, peer: &Peer, own: &Stream) -> std::vec::Vec<u32> {
        let peers = core::slice::from_ref(peer);
        let next = || comparison.publish_next(Frame::new(confirmed), peers, own).map(|(frame, _)| frame.number());
        core::iter::from_fn(next).collect()
    }

    #[test]
    fn publishes_confirmed_frames_with_known_hash_in_order() {
        let (mut comparison, peer, own) = with_one_peer();
        for frame in [9, 29, 39] {
            assert!(comparison.request_hash(Frame::new(frame)) && !comparison.request_hash(Frame::new(frame + 1)));
            comparison.on_hash(Frame::new(frame), u64::from(frame));
        }
        assert_eq!(frames(39, &mut comparison, &peer, &own), [9, 29], "frame 39 is not confirmed");
        assert_eq!(comparison.published_hash(Frame::new(29)), Some(29));
        assert_eq!(comparison.published_hash(Frame::new(39)), None);
        assert_eq!(frames(40, &mut comparison, &peer, &own), [39]);
    }

    #[test]
    fn first_mismatch_names_last_equal_frame() {
        let (mut comparison, peer, own) = with_one_peer();
        for frame in [9, 19, 29] {
            comparison.on_hash(Frame::new(frame), u64::from(frame));
            frames(frame + 1, &mut comparison, &peer, &own);
            let (_, ours) = comparison.newest_digest().unwrap();
            let state_hash = if frame == 9 { ours.state_hash } else { ours.state_hash ^ 1 };
            assert!(comparison.on_digest(0, Frame::new(frame), FrameDigest { state_hash, ..ours }));
        }
        let mut divergence = |frame: u32| comparison.compare(0, Frame::new(frame), &peer, false).divergence;
        assert_eq!(divergence(9), None);
        assert_eq!(divergence(19), Some(Divergence { agreed: Some(Frame::new(9)), own_hash: 19 }));
        assert_eq!(divergence(29), None, "only the first mismatch is reported");
        assert_eq!(comparison.counts(0), ComparisonCounts { compared: 3, mismatches: 2 });
    }

    #[test]
    fn forged_inputs_are_reported_once() {
        let (mut comparison, peer, own) = with_one_peer();
        for frame in [9, 19] {
            comparison.on_hash(Frame::new(frame), 5);
            frames(frame + 1, &mut comparison, &peer, &own);
            let (_, ours) = comparison.newest_digest().unwrap();
            comparison.on_digest(0, Frame::new(frame), FrameDigest { input_digest: ours.input_digest ^ 1, ..ours });
        }
        assert!(comparison.compare(0, Frame::new(9), &peer, false).is_forged);
        assert!(!comparison.compare(0, Frame::new(19), &peer, false).is_forged);
    }

    #[test]
    fn peer_that_missed_a_drop_is_not_compared_from_its_frame_on() {
        let (mut comparison, peer, own) = with_one_peer();
        comparison.on_decision_without(0, Some(Frame::new(15)));
        for frame in [9, 19] {
            comparison.on_hash(Frame::new(frame), 5);
            frames(frame + 1, &mut comparison, &peer, &own);
            comparison.on_digest(0, Frame::new(frame), FrameDigest { state_hash: 6, input_digest: 0 });
            comparison.compare(0, Frame::new(frame), &peer, false);
        }
        assert_eq!(comparison.counts(0).compared, 1);
    }

    #[test]
    fn joiner_skips_frames_before_its_first_step() {
        let (mut comparison, _, own) = with_one_peer();
        comparison.skip_until(Frame::new(35), Frame::new(12), &own);
        assert!(!comparison.is_behind(Frame::new(39)) && comparison.is_behind(Frame::new(40)));
        assert_eq!(first_compared_frame(Frame::new(12), INTERVAL), Some(Frame::new(19)));
        assert_eq!(first_compared_frame(Frame::new(12), 0), None);
    }
}
