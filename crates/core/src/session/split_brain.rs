//! Split brain: the last player continues alone without a quorum, and later meets the others again.
//!
//! A site that is not part of a quorum waits, because the silent sites may have gone on without it. A person can decide
//! otherwise: [`Session::continue_alone`](super::Session::continue_alone) drops the silent sites; their inputs that
//! have arrived count. This site and the silent sites may then play two different games. So a site that continued alone
//! sends each dropped site a hello with [`Refusal::ContinuedAlone`] once per second. When two sites meet again:
//!
//! 1. Both continued alone: the game with the later frame is kept; of equal ones, that of the lower site. Both games go
//!    on while they are compared, so the lower site alone decides. It sends [`Refusal::Dropped`] to keep its game, or a
//!    frame of 0 to give it up.
//! 2. The receiver of the hello still waits: it ends its session if it receives no inputs of the sender and nothing
//!    from any other player. Doubt would gain nothing, because the sender does not play with the receiver any more.
//! 3. The receiver plays with others: it answers that the game goes on without the sender, and the sender gives its own
//!    game up. No message of a single site evicts a site that receives from another player.
//! 4. Two or more of the sites that the sender dropped still wait for the sender, and they are a quorum of the sender
//!    and those dropped sites: the sender gives its game up.
//!
//! The site that gives its game up ends with [`SessionEnd::Dropped`](super::SessionEnd::Dropped), and its host program
//! lets it join the other game.

use super::peer::{Peer, Seat};
use super::peers::Peers;
use super::quorum::{intersection, is_quorum_of};
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::session::message::{MembershipDecision, Refusal, ScheduledCommand};
use crate::time::{Instant, TimeDelta};

/// Interval of the hellos to a site that was dropped without a quorum.
const SPLIT_HELLO_INTERVAL: TimeDelta = TimeDelta::from_secs(1);
/// Interval of the hellos that announce that this site gives its game up.
const YIELD_HELLO_INTERVAL: TimeDelta = TimeDelta::from_millis(200);
/// Time for which this site announces that it gives its game up, before it ends.
const YIELD_DURATION: TimeDelta = TimeDelta::from_secs(1);
/// Time without new inputs, or without packets, of a site after which the site counts as silent.
const INPUT_SILENCE_LIMIT: TimeDelta = TimeDelta::from_secs(1);
/// Silence after which a person may continue alone, if [`Config::drop_timeout`](super::Config::drop_timeout) is not
/// set.
const DEFAULT_SILENCE_LIMIT: TimeDelta = TimeDelta::from_secs(3);

/// The sites that were dropped without a quorum, and the result of meeting them again.
#[derive(Debug, Default)]
pub(super) struct SplitBrain {
    /// Sites that were dropped without a quorum, or that continued alone themselves.
    abandoned_sites: SiteSet,
    /// Sites of `abandoned_sites` that give their game up for this site's game.
    yielding_sites: SiteSet,
    /// When this site ends its own game for that of another site; `None` while this site keeps its own.
    yield_at: Option<Instant>,
}

/// The result of meeting another site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolution {
    /// The other site.
    pub(super) site: SiteId,
    pub(super) is_own_game_kept: bool,
    /// Whether that was not known before.
    pub(super) is_new: bool,
}

impl SplitBrain {
    /// Returns whether there is no split brain to resolve: `abandoned_sites` is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.abandoned_sites.is_empty()
    }

    /// Notes that these sites are dropped without a quorum.
    pub(super) fn abandon(&mut self, sites: SiteSet) {
        self.abandoned_sites = self.abandoned_sites.union(sites);
    }

    /// Returns whether this site ends its game, because another site's game is kept or a quorum waits for this site.
    pub(super) fn must_end(&self, now: Instant, peers: &Peers) -> bool {
        self.yield_at.is_some_and(|at| at <= now) || self.is_awaited_by_quorum(now, peers)
    }

    /// Forgets the sites that have joined again. Returns the peers to which a hello is due. `asks_to_join` tells
    /// whether a peer asks to join this site's game.
    pub(super) fn update(
        &mut self,
        now: Instant,
        peers: &Peers,
        asks_to_join: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = usize> {
        let still_abandoned = peers.sites_where(Peer::is_abandoned);
        self.abandoned_sites = intersection(self.abandoned_sites, still_abandoned);
        self.yielding_sites = intersection(self.yielding_sites, still_abandoned);
        let interval = if self.yield_at.is_some() { YIELD_HELLO_INTERVAL } else { SPLIT_HELLO_INTERVAL };
        let abandoned_sites = self.abandoned_sites;
        let is_due = move |(index, peer): &(usize, &Peer)| {
            abandoned_sites.contains(peer.site()) && !asks_to_join(*index) && now - peer.last_sent_at() >= interval
        };
        peers.iter().enumerate().filter(is_due).map(|(index, _)| index)
    }

    /// Returns whether this site is alone, and two or more of the abandoned sites send ticks and are a quorum of the
    /// abandoned sites and this one. They wait for this site and cannot go on before it gives its game up.
    fn is_awaited_by_quorum(&self, now: Instant, peers: &Peers) -> bool {
        let is_waiting = |peer: &Peer| peer.has_played() && now - peer.last_received_at() < INPUT_SILENCE_LIMIT;
        let waiting_sites = peers.sites_where(|peer| self.abandoned_sites.contains(peer.site()) && is_waiting(peer));
        let all_sites = self.abandoned_sites.union(SiteSet::from_iter([peers.own_site()]));
        waiting_sites.iter().count() >= 2 && peers.is_alone() && is_quorum_of(all_sites, waiting_sites)
    }

    /// Returns [`Refusal::ContinuedAlone`] for a peer in `abandoned_sites` that does not ask to join; `None` if the
    /// peer was restarted or gives its game up, and while this site is not alone. `frame` is this site's current frame.
    pub(super) fn refusal_for(&self, peer: &Peer, peers: &Peers, frame: Frame) -> Option<Refusal> {
        let is_undecided = self.is_abandoned(peer.site()) && !self.yielding_sites.contains(peer.site());
        let needs_refusal = is_undecided && peer.is_abandoned() && !peer.was_restarted();
        let frame = if self.yield_at.is_some() { Frame::ZERO } else { frame.max(Frame::ZERO.next()) };
        (needs_refusal && peers.is_alone()).then_some(Refusal::ContinuedAlone { frame })
    }

    /// Returns whether a site was dropped without a quorum, or continued alone itself.
    pub(super) fn is_abandoned(&self, site: SiteId) -> bool {
        self.abandoned_sites.contains(site)
    }

    /// Handles the refusal of a dropped site that has continued alone and reached `frame`, or that gives its game up
    /// (frame 0). If this site is alone, too, the lower of the two decides which game is kept.
    pub(super) fn resolve(
        &mut self,
        now: Instant,
        site: SiteId,
        (own_frame, frame): (Frame, Frame),
        peers: &Peers,
    ) -> Option<Resolution> {
        self.abandoned_sites.insert(site);
        let (we_decide, is_own_ahead) = (peers.own_site() < site, own_frame >= frame);
        match () {
            () if !peers.is_alone() => None,
            () if frame == Frame::ZERO || we_decide && is_own_ahead => Some(self.keep_own_game(site)),
            () if we_decide && self.yield_at.is_none() => Some(self.yield_to(site, now + YIELD_DURATION)),
            () => None,
        }
    }

    /// Keeps this site's game: the game of `site` ends.
    fn keep_own_game(&mut self, site: SiteId) -> Resolution {
        let is_new = !self.yielding_sites.contains(site);
        self.yielding_sites.insert(site);
        Resolution { site, is_own_game_kept: true, is_new }
    }

    /// Ends this site's game at the instant `at`, because the game of `site` is kept.
    pub(super) fn yield_to(&mut self, site: SiteId, at: Instant) -> Resolution {
        let is_new = self.yield_at.is_none();
        self.yield_at = Some(at);
        Resolution { site, is_own_game_kept: false, is_new }
    }
}

/// Returns whether the game could go on without the silent players: inputs of at least one other site are still to
/// come, and each such site was dropped or has been silent for longer than the drop timeout.
pub(super) fn can_continue_alone(now: Instant, peers: &Peers, drop_timeout: Option<TimeDelta>) -> bool {
    let limit = drop_timeout.unwrap_or(DEFAULT_SILENCE_LIMIT);
    let is_awaited = |peer: &&Peer| peer.known_end() < Frame::NEVER;
    let is_silent = |peer: &Peer| peer.is_dropped() || peer.silence(now) > limit;
    let can_be_ended = |peer: &Peer| peer.is_awaited() || peer.lacks_last_inputs();
    peers.iter().any(can_be_ended) && peers.iter().filter(is_awaited).all(is_silent)
}

/// Returns the decision that drops all awaited sites with their received inputs. `command` is the newest scheduled
/// command.
pub(super) fn decision_without_quorum(peers: &Peers, command: Option<ScheduledCommand>) -> MembershipDecision {
    let mut decision = MembershipDecision::dropping(peers.sites_where(Peer::is_awaited));
    for peer in peers.iter().filter(|peer| peer.is_awaited()) {
        decision.input_ends[peer.site().index()] = peer.known_end();
    }
    let MembershipDecision { drop, input_ends, .. } = decision;
    decision.command =
        command.filter(|command| drop.contains(command.issuer) && command.frame < input_ends[command.issuer.index()]);
    decision
}

/// Returns whether this site plays with a peer, no new inputs of the peer arrive, and nothing arrives from any other
/// player. Then this site believes that the peer continued alone.
pub(super) fn is_waiting_in_vain(now: Instant, index: usize, peers: &Peers) -> bool {
    let sends_no_input = |peer: &Peer| now - peer.last_input_at() >= INPUT_SILENCE_LIMIT;
    let is_silent = |peer: &Peer| sends_no_input(peer) && peer.silence(now) >= INPUT_SILENCE_LIMIT;
    let mut others = peers.iter().enumerate().filter(|(other, peer)| *other != index && peer.has_seat());
    peers[index].is_playing() && sends_no_input(&peers[index]) && others.all(|(_, peer)| is_silent(peer))
}

/// Returns whether the seat of a peer, which was dropped without a quorum, can be freed now: no player waits for it.
pub(super) fn can_free_seat(peer: &Peer, silent: SiteSet) -> bool {
    matches!(peer.seat(), Seat::Leaving(_)) && silent.contains(peer.site())
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn site(number: u8) -> SiteId {
        SiteId::new(number).unwrap()
    }

    /// Returns the split-brain state and the peer table of site `own` of 3, after it has dropped the others and
    /// continued alone.
    fn alone(own: u8) -> (SplitBrain, Peers) {
        let (mut split_brain, mut peers) = (SplitBrain::default(), table(own, 3));
        split_brain.abandon(peers.sites_where(|_| true));
        peers.iter_mut().for_each(|peer| peer.drop_after(Frame::ZERO, Frame::ZERO, false));
        (split_brain, peers)
    }

    fn resolve(own: u8, other: u8, own_frame: u32, frame: u32) -> Option<Resolution> {
        let (mut split_brain, peers) = alone(own);
        split_brain.resolve(at(0), site(other), (Frame::new(own_frame), Frame::new(frame)), &peers)
    }

    #[test]
    fn lower_site_keeps_the_game_at_the_later_frame() {
        let kept = |other: u8| Some(Resolution { site: site(other), is_own_game_kept: true, is_new: true });
        assert_eq!(resolve(0, 1, 90, 90), kept(1), "of equal frames, that of the lower site");
        assert_eq!(resolve(0, 1, 89, 90).map(|resolution| resolution.is_own_game_kept), Some(false));
        assert_eq!(resolve(1, 0, 95, 90), None, "the lower site decides");
        assert_eq!(resolve(1, 0, 80, 0), kept(0), "the other site gives its game up");
    }

    #[test]
    fn yielding_site_announces_it_for_a_second() {
        let (mut split_brain, peers) = alone(0);
        let frames = (Frame::new(5), Frame::new(9));
        assert!(split_brain.resolve(at(0), site(1), frames, &peers).is_some_and(|resolution| resolution.is_new));
        assert_eq!(split_brain.resolve(at(1), site(2), frames, &peers), None, "it yields already");
        let refusal = split_brain.refusal_for(&peers[0], &peers, Frame::new(5));
        assert_eq!(refusal, Some(Refusal::ContinuedAlone { frame: Frame::ZERO }));
        assert!(!split_brain.must_end(at(999), &peers) && split_brain.must_end(at(1_000), &peers));
    }

    #[test]
    fn site_ends_when_a_quorum_waits_for_it() {
        let (split_brain, mut peers) = alone(2);
        for peer in peers.iter_mut() {
            peer.on_received(at(5_000), 1);
            peer.on_tick();
        }
        assert!(split_brain.must_end(at(5_000), &peers));
        assert!(!split_brain.must_end(at(6_000), &peers), "nothing has arrived for a second");
    }

    #[test]
    fn hellos_go_to_abandoned_sites_once_per_second() {
        let (mut split_brain, mut peers) = alone(0);
        peers[1].on_sent(at(500), 1);
        assert!(split_brain.update(at(600), &peers, |_| false).eq([0]));
        assert!(split_brain.update(at(1_500), &peers, |index| index == 0).eq([1]), "site 1 asks to join");
        peers[0].admit(at(1_500), Frame::new(50), 1, 2, false);
        assert!(split_brain.update(at(1_500), &peers, |_| false).eq([1]), "site 1 is admitted");
    }

    #[test]
    fn only_silent_players_can_be_left_behind() {
        let mut peers = table(0, 3);
        peers[0].on_received(at(4_000), 1);
        assert!(!can_continue_alone(at(6_000), &peers, None), "site 1 was received 2 s ago");
        assert!(can_continue_alone(at(7_001), &peers, None));
        let decision = decision_without_quorum(&peers, None);
        assert_eq!(decision.drop, [1, 2].map(site).into_iter().collect());
    }
}
