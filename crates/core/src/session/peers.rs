//! The table of all other sites.
//!
//! The order of the peers is that of [`Config::peers`](super::Config::peers) and never changes, so parts refer to a
//! peer by its index. The sites that play are the *members* of the current membership epoch.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use super::peer::{Peer, Seat};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::pace::MasterObservation;
use crate::session::message::Tick;
use crate::time::{GroupInstant, Instant, TimeDelta};

/// Upper bound for a peer's round-trip time in timeouts, because a peer controls its own round-trip time.
const MAX_WAITED_RTT: TimeDelta = TimeDelta::from_secs(1);

/// All other sites, and this site's place among them.
#[derive(Debug)]
pub(super) struct Peers {
    own_site: SiteId,
    peers: Vec<Peer>,
    /// The sites whose leave or drop was reported to the host program.
    reported_gone: SiteSet,
}

impl Deref for Peers {
    type Target = [Peer];

    #[inline]
    fn deref(&self) -> &[Peer] {
        &self.peers
    }
}

impl DerefMut for Peers {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Peer] {
        &mut self.peers
    }
}

impl Peers {
    pub(super) fn new(own_site: SiteId, peers: Vec<Peer>) -> Self {
        Self { own_site, peers, reported_gone: SiteSet::EMPTY }
    }

    pub(super) fn own_site(&self) -> SiteId {
        self.own_site
    }

    /// Returns the index of a site; `None` if it is this site or does not exist.
    pub(super) fn index_of(&self, site: SiteId) -> Option<usize> {
        self.iter().position(|peer| peer.site() == site)
    }

    /// Returns the peer of a site; `None` if it is this site or does not exist.
    pub(super) fn of_site(&self, site: SiteId) -> Option<&Peer> {
        self.iter().find(|peer| peer.site() == site)
    }

    /// Returns the index of the peer at an address.
    #[inline]
    pub(super) fn index_at(&self, addr: Addr) -> Option<usize> {
        self.iter().position(|peer| peer.addr() == addr)
    }

    /// Returns the peer that may have sent a tick from this address in a session, and whether the tick proves that the
    /// peer has moved there. Only the newest tick moves a peer, so that an old stray packet cannot move it back.
    #[inline]
    pub(super) fn sender_of(&self, from: Addr, tick: &Tick<'_>, session_id: u64) -> Option<(usize, bool)> {
        if tick.identity.is_some_and(|identity| identity.session_id != session_id) {
            return None;
        }
        if let Some(index) = self.index_at(from) {
            let is_other = tick.identity.is_some_and(|identity| identity.site != self[index].site().number());
            return (!is_other).then_some((index, false));
        }
        let identity = tick.identity?;
        let index = self.iter().position(|peer| peer.site().number() == identity.site)?;
        let stamp = self[index].expand_stamp(tick.probe?.stamp_us);
        Some((index, self[index].is_newer_stamp(stamp)))
    }

    /// Returns whether an address belongs to another site than `site`.
    pub(super) fn is_taken(&self, addr: Addr, site: SiteId) -> bool {
        self.iter().any(|peer| peer.addr() == addr && peer.site() != site)
    }

    /// Returns a site that has been silent for longer than `limit` although inputs of it are still to come.
    pub(super) fn timed_out_site(&self, now: Instant, limit: TimeDelta) -> Option<SiteId> {
        let has_ended = |peer: &Peer| peer.absent_from().is_some_and(|last| peer.inputs().end() >= last);
        let is_complete = |peer: &Peer| has_ended(peer) && peer.join_frame().is_none();
        let is_silent = |peer: &&Peer| !is_complete(peer) && now - peer.last_received_at() > limit;
        self.iter().find(is_silent).map(Peer::site)
    }

    /// Returns whether all other sites have left, and none of them was dropped, so that it could come back.
    pub(super) fn have_all_left(&self) -> bool {
        self.iter().all(|peer| peer.is_free() && !peer.is_dropped())
    }

    /// Returns what is known of the frames of `site`, for Algorithm 4 of Zhao et al.; `None` until a tick of that site
    /// and a round trip to it are known.
    pub(super) fn observe_master(&self, site: SiteId) -> Option<MasterObservation> {
        let peer = self.of_site(site)?;
        let last_received = peer.inputs().end().checked_sub(1).filter(|_| peer.has_played())?;
        Some(MasterObservation { last_received, received_at: peer.last_input_at(), rtt: peer.clock().rtt()? })
    }

    /// Returns the other sites that play.
    pub(super) fn playing(&self) -> impl Iterator<Item = &Peer> + Clone {
        self.iter().filter(|peer| peer.is_playing())
    }

    /// Returns the sites that satisfy a condition.
    pub(super) fn sites_where(&self, condition: impl Fn(&Peer) -> bool) -> SiteSet {
        self.iter().filter(|peer| condition(peer)).map(Peer::site).collect()
    }

    /// Returns the sites that play, including this site.
    pub(super) fn voters(&self) -> SiteSet {
        self.playing().map(Peer::site).chain([self.own_site]).collect()
    }

    /// Returns the sites that play now, this site included, and the leaving sites whose leave was not reported yet.
    pub(super) fn players(&self) -> SiteSet {
        let leaves = |peer: &Peer| matches!(peer.seat(), Seat::Leaving(_)) && !self.reported_gone.contains(peer.site());
        self.voters().union(self.sites_where(leaves))
    }

    /// Returns whether this site is the coordinator: the lowest site that plays.
    pub(super) fn is_coordinator(&self) -> bool {
        self.playing().all(|peer| peer.site() > self.own_site)
    }

    /// Returns the lowest site that plays, if that is not this site. Its plan sets the pace.
    pub(super) fn pace_setter(&self) -> Option<SiteId> {
        self.playing().map(Peer::site).min().filter(|lowest| *lowest < self.own_site)
    }

    /// Returns whether no other site plays or has been admitted.
    pub(super) fn is_alone(&self) -> bool {
        !self.iter().any(Peer::has_seat)
    }

    /// Returns the end of the frames for which the inputs of all peers are known.
    #[inline]
    pub(super) fn known_end(&self) -> Frame {
        self.iter().map(Peer::known_end).fold(Frame::NEVER, Frame::min)
    }

    /// Returns the longest smoothed round-trip time to any other site, whether it plays or not.
    pub(super) fn max_rtt(&self) -> TimeDelta {
        self.iter().filter_map(|peer| peer.clock().rtt()).max().unwrap_or_default()
    }

    /// Returns the longest round-trip time to any player, at most [`MAX_WAITED_RTT`], for timeouts.
    pub(super) fn max_player_rtt(&self) -> TimeDelta {
        self.playing().filter_map(|peer| peer.clock().rtt()).max().unwrap_or_default().min(MAX_WAITED_RTT)
    }

    /// Returns the longest round-trip time to any other site, with a margin of four mean deviations.
    pub(super) fn max_rtt_with_jitter(&self) -> TimeDelta {
        let delay = |peer: &Peer| peer.clock().rtt().unwrap_or_default() + peer.clock().jitter() * 4;
        self.iter().map(delay).max().unwrap_or_default()
    }

    /// Does not count this much time, in which the host program was suspended, as silence of the peers.
    pub(super) fn excuse_silence(&mut self, away: TimeDelta) {
        self.iter_mut().for_each(|peer| peer.excuse_silence(away));
    }

    /// Makes the next packet to each peer carry a probe.
    pub(super) fn make_probes_due(&mut self) {
        self.iter_mut().for_each(Peer::make_probe_due);
    }

    /// Notes that the leave or drop of a site is reported. Returns whether it was not reported before.
    pub(super) fn report_gone(&mut self, site: SiteId) -> bool {
        let is_new = !self.reported_gone.contains(site);
        self.reported_gone.insert(site);
        is_new
    }

    /// Notes that a site plays again.
    pub(super) fn on_return(&mut self, site: SiteId) {
        self.reported_gone.remove(site);
    }

    /// Notes that this site is admitted and has reported no leave yet.
    pub(super) fn on_own_admission(&mut self) {
        self.reported_gone = SiteSet::EMPTY;
    }

    /// Returns the time on the clock that all sites share, which is the clock of the lowest site; `None` until this
    /// site has estimated that clock.
    pub(super) fn group_time(&self, now: Instant) -> Option<GroupInstant> {
        match self.time_keeper() {
            None => Some(GroupInstant::from_nanos(now.as_nanos())),
            Some(keeper) => keeper.clock().to_group(now),
        }
    }

    /// Converts group time to this site's session time; `None` until this site has estimated the clock of the lowest
    /// site.
    pub(super) fn local_time(&self, group: GroupInstant) -> Option<Instant> {
        match self.time_keeper() {
            None => Some(Instant::from_nanos(group.as_nanos())),
            Some(keeper) => keeper.clock().from_group(group),
        }
    }

    /// Returns the peer whose clock is group time; `None` if that is this site's own clock.
    fn time_keeper(&self) -> Option<&Peer> {
        self.iter().min_by_key(|peer| peer.site()).filter(|peer| peer.site() < self.own_site)
    }

    /// Returns the memory use of the peers, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.iter().map(Peer::memory).sum()
    }
}

/// Creates the table of site `own` in a session of `count` sites that all play, for tests.
#[cfg(test)]
pub(super) fn table(own: u8, count: u8) -> Peers {
    let ownership = crate::input::Ownership::one_player_per_site(usize::from(count), 0xff);
    let peer = |number: u8| {
        let site = SiteId::new(number).unwrap();
        Peer::new(Instant::ZERO, site, Addr(u64::from(number)), ownership.layout(site), Frame::ZERO, 1)
    };
    Peers::new(SiteId::new(own).unwrap(), (0..count).filter(|number| *number != own).map(peer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(number: u8) -> SiteId {
        SiteId::new(number).unwrap()
    }

    #[test]
    fn coordinator_and_pace_setter_are_the_lowest_player() {
        let mut peers = table(1, 4);
        assert_eq!((peers.is_coordinator(), peers.pace_setter()), (false, Some(site(0))));
        peers[0].leave(Frame::ZERO);
        assert_eq!((peers.is_coordinator(), peers.pace_setter()), (true, None));
        assert_eq!(peers.voters(), [1, 2, 3].map(site).into_iter().collect());
        assert_eq!(peers.players(), SiteSet::first(4), "the leave was not reported yet");
        assert!(peers.report_gone(site(0)) && !peers.report_gone(site(0)));
        assert_eq!(peers.players(), peers.voters());
    }

    #[test]
    fn group_time_is_the_clock_of_the_lowest_site() {
        let now = Instant::ZERO + TimeDelta::from_secs(3);
        let (lowest, other) = (table(0, 3), table(2, 3));
        assert_eq!(lowest.group_time(now), Some(GroupInstant::from_nanos(now.as_nanos())));
        assert_eq!(lowest.local_time(GroupInstant::from_nanos(now.as_nanos())), Some(now));
        assert_eq!(other.group_time(now), None, "the clock of site 0 is unknown");
    }

    #[test]
    fn known_end_is_that_of_the_slowest_peer() {
        let mut peers = table(0, 3);
        let mut inputs = crate::input::Stream::new(1, Frame::ZERO);
        (0..9).for_each(|_| inputs.push(&[1]));
        peers[0].give_inputs(&inputs, Frame::new(9));
        peers[1].give_inputs(&inputs, Frame::new(4));
        assert_eq!(peers.known_end(), Frame::new(4));
        peers[1].leave(Frame::new(4));
        assert_eq!(peers.known_end(), Frame::new(9));
        assert!(!peers.is_alone());
    }

    #[test]
    fn peer_is_known_by_address_or_by_identity_and_newest_stamp() {
        use crate::session::message::{ClockProbe, SenderIdentity};
        let mut peers = table(0, 3);
        peers[1].on_stamp(Instant::ZERO, 500, None);
        let tick = |session_id: u64, site: u8, stamp_us: u64| Tick {
            identity: Some(SenderIdentity { session_id, site }),
            probe: Some(ClockProbe { stamp_us, echo: None, end_minus_frame: 0, lateness_ns: None }),
            ..Tick::default()
        };
        assert_eq!(peers.sender_of(Addr(1), &Tick::default(), 7), Some((0, false)));
        assert_eq!(peers.sender_of(Addr(1), &tick(7, 2, 600), 7), None, "site 2 does not send from there");
        assert_eq!(peers.sender_of(Addr(9), &Tick::default(), 7), None, "a stranger");
        assert_eq!(peers.sender_of(Addr(9), &tick(8, 2, 600), 7), None, "another session");
        assert_eq!(peers.sender_of(Addr(9), &tick(7, 2, 500), 7), Some((1, false)), "an old packet moves no peer");
        assert_eq!(peers.sender_of(Addr(9), &tick(7, 2, 501), 7), Some((1, true)));
        assert!(peers.is_taken(Addr(1), site(2)) && !peers.is_taken(Addr(1), site(1)));
    }

    #[test]
    fn site_without_inputs_to_come_does_not_time_out() {
        let mut peers = table(0, 3);
        let (now, limit) = (Instant::ZERO + TimeDelta::from_secs(9), TimeDelta::from_secs(5));
        peers[0].leave(Frame::ZERO);
        assert_eq!(peers.timed_out_site(now, limit), Some(site(2)));
        peers[1].on_received(now, 1);
        assert_eq!(peers.timed_out_site(now, limit), None);
        peers.iter_mut().for_each(|peer| peer.leave(Frame::ZERO));
        assert!(!peers.have_all_left(), "their seats are not free yet");
        peers.iter_mut().for_each(Peer::free_seat);
        assert!(peers.have_all_left());
    }
}
