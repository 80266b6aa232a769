//! Split brain: the last player continues alone without a quorum, and later meets the others again.
//!
//! A site that is not part of a quorum waits, because the silent sites may have gone on without it. A person can decide
//! otherwise: [`Session::continue_alone`] drops the silent sites; their inputs that have arrived count. This site and
//! the silent sites may then play two different games. So a site that continued alone sends each dropped site a hello
//! with [`Refusal::ContinuedAlone`] once per second. When two sites meet again:
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
//! The site that gives its game up ends with [`SessionEnd::Dropped`], and its host program lets it join the other game.

use super::Session;
use super::event::{Event, SessionEnd};
use super::peer::{Peer, Seat};
use super::phase::Phase;
use super::quorum::is_quorum_of;
use crate::frame::Frame;
use crate::id::{SiteId, SiteSet};
use crate::session::message::{Hello, MembershipDecision, Refusal};
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

impl SplitBrain {
    /// Returns whether there is no split brain to resolve: `abandoned_sites` is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.abandoned_sites.is_empty()
    }
}

impl Session {
    /// Returns the sites that play now, this site included, and the leaving sites whose [`Event::Left`] was not
    /// reported yet.
    pub fn players(&self) -> SiteSet {
        let leaves = |peer: &Peer| matches!(peer.seat, Seat::Leaving(_)) && !self.left_sites.contains(peer.site);
        let leaving = self.peers.iter().filter(|peer| leaves(peer)).map(|peer| peer.site);
        leaving.chain(self.voters().iter()).collect()
    }

    /// Returns whether [`Session::continue_alone`] would let the game go on: the game runs, this site does not leave,
    /// inputs of at least one other site are still to come, and each such site was dropped or has been silent for
    /// longer than [`Config::drop_timeout`](super::Config::drop_timeout) (3 s if that is not set).
    pub fn can_continue_alone(&self, now: Instant) -> bool {
        self.may_continue_alone(self.clock.session_time(now))
    }

    /// Drops all silent players although no quorum decides that. They may go on, too, and play another game, so a
    /// person has to decide this. Does nothing and returns `false` unless [`Session::can_continue_alone`] holds. When
    /// the sites meet again, one of the games is kept; see [`Event::SplitBrainResolved`].
    pub fn continue_alone(&mut self, now: Instant) -> bool {
        let now = self.note_call_time(now);
        // A site that is to play by now is dropped with the others.
        self.apply_due_command();
        if !self.may_continue_alone(now) {
            return false;
        }
        let decision = self.decision_without_quorum();
        self.split_brain.abandoned_sites = self.split_brain.abandoned_sites.union(decision.drop);
        self.apply_decision(decision);
        self.close_silent_seats(decision.drop);
        true
    }

    fn may_continue_alone(&self, now: Instant) -> bool {
        let limit = self.config.drop_timeout.unwrap_or(DEFAULT_SILENCE_LIMIT);
        let is_awaited = |peer: &&Peer| peer.known_end() < Frame::NEVER;
        let is_silent = |peer: &Peer| peer.is_dropped || peer.silence(now) > limit;
        let can_be_ended = |peer: &Peer| peer.is_awaited() || peer.lacks_last_inputs();
        self.is_running()
            && self.leaving.is_none()
            && self.peers.iter().any(can_be_ended)
            && self.peers.iter().filter(is_awaited).all(is_silent)
    }

    /// Returns the decision that drops all awaited sites with their received inputs.
    fn decision_without_quorum(&self) -> MembershipDecision {
        let awaited = || self.peers.iter().filter(|peer| peer.is_awaited());
        let mut decision = MembershipDecision::dropping(awaited().map(|peer| peer.site).collect());
        awaited().for_each(|peer| decision.input_ends[peer.site.index()] = peer.known_end());
        let MembershipDecision { drop, input_ends, .. } = decision;
        decision.command = self
            .command
            .filter(|command| drop.contains(command.issuer) && command.frame < input_ends[command.issuer.index()]);
        decision
    }

    /// Gives up the missing inputs of sites that were dropped before, and frees the seats of silent sites, which need
    /// no more ticks.
    fn close_silent_seats(&mut self, silent: SiteSet) {
        for index in 0..self.peers.len() {
            let peer = &mut self.peers[index];
            if peer.lacks_last_inputs() {
                let known = peer.known_end();
                peer.seat = Seat::Leaving(peer.inputs.end());
                self.check_predictions(index, known);
            }
            let peer = &mut self.peers[index];
            if let Seat::Leaving(last) = peer.seat
                && silent.contains(peer.site)
            {
                peer.seat = Seat::Free(last);
                self.sending.set_active(index, false);
            }
        }
    }

    /// Returns whether no other site plays or has been admitted.
    fn is_alone(&self) -> bool {
        !self.peers.iter().any(|peer| peer.is_playing() || peer.join_frame.is_some())
    }

    /// Schedules the due hellos to the abandoned sites: those dropped without a quorum, and dropped sites that
    /// continued alone. Ends the session once it is time to yield to another site's game, or if a quorum waits for this
    /// site.
    pub(super) fn update_split_brain(&mut self, now: Instant) {
        if self.split_brain.abandoned_sites.is_empty() || self.leaving.is_some() {
            return;
        }
        if self.split_brain.yield_at.is_some_and(|at| at <= now) || self.is_awaited_by_quorum(now) {
            return self.end_session(SessionEnd::Dropped);
        }
        let still_abandoned = self.peers.iter().filter(|peer| is_abandoned(peer)).map(|peer| peer.site).collect();
        self.split_brain.abandoned_sites = intersection(self.split_brain.abandoned_sites, still_abandoned);
        self.split_brain.yielding_sites = intersection(self.split_brain.yielding_sites, still_abandoned);
        let interval = if self.split_brain.yield_at.is_some() { YIELD_HELLO_INTERVAL } else { SPLIT_HELLO_INTERVAL };
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if self.split_brain.abandoned_sites.contains(peer.site)
                && peer.lobby.join_readiness.is_none()
                && now - peer.last_sent_at >= interval
            {
                self.schedule_hello(index);
            }
        }
    }

    /// Returns whether this site is alone, and two or more of the abandoned sites send ticks and are a quorum of the
    /// abandoned sites and this one. They wait for this site and cannot go on before it gives its game up.
    fn is_awaited_by_quorum(&self, now: Instant) -> bool {
        let is_waiting = |peer: &&Peer| peer.lobby.has_played && now - peer.last_received_at < INPUT_SILENCE_LIMIT;
        let left_behind = self.peers.iter().filter(|peer| self.split_brain.abandoned_sites.contains(peer.site));
        let waiting_sites: SiteSet = left_behind.filter(is_waiting).map(|peer| peer.site).collect();
        let all_sites = self.split_brain.abandoned_sites.union(SiteSet::from_iter([self.config.site]));
        waiting_sites.iter().count() >= 2 && self.is_alone() && is_quorum_of(all_sites, waiting_sites)
    }

    /// Returns [`Refusal::ContinuedAlone`] for a peer in `abandoned_sites`; `None` if the peer was restarted, asks to
    /// join or gives its game up, and while this site is not alone.
    pub(super) fn refusal_for_abandoned(&self, index: usize) -> Option<Refusal> {
        let (peer, split_brain) = (&self.peers[index], &self.split_brain);
        let is_undecided =
            split_brain.abandoned_sites.contains(peer.site) && !split_brain.yielding_sites.contains(peer.site);
        let needs_refusal =
            is_undecided && is_abandoned(peer) && !peer.was_restarted() && peer.lobby.join_readiness.is_none();
        let frame = if split_brain.yield_at.is_some() { Frame::ZERO } else { self.frame.max(Frame::ZERO.next()) };
        (needs_refusal && self.is_alone()).then_some(Refusal::ContinuedAlone { frame })
    }

    /// Handles a peer's refusal if it is part of a split brain. Returns `false` if the caller has to handle the
    /// refusal.
    pub(super) fn handle_split_brain_refusal(
        &mut self,
        now: Instant,
        index: usize,
        hello: &Hello,
        reason: Refusal,
    ) -> bool {
        let peer = &self.peers[index];
        let is_current = is_abandoned(peer) && hello.incarnation == peer.incarnation;
        match reason {
            Refusal::AlreadyRunning => false,
            Refusal::Dropped => {
                let must_yield = is_current
                    && self.is_running()
                    && self.split_brain.abandoned_sites.contains(peer.site)
                    && self.is_alone();
                if must_yield {
                    self.yield_to(peer.site, now);
                }
                must_yield
            }
            Refusal::ContinuedAlone { .. } if self.phase == Phase::Lobby => false,
            Refusal::ContinuedAlone { frame } => {
                if is_current && self.is_running() && self.leaving.is_none() {
                    self.resolve_split_brain(now, index, frame);
                } else if self.is_waiting_in_vain(now, index) {
                    self.end_session(SessionEnd::Dropped);
                }
                true
            }
        }
    }

    /// Handles the refusal of a dropped site that has continued alone and reached `frame`, or that gives its game up
    /// (frame 0). If this site is alone, too, the lower of the two decides which game is kept.
    fn resolve_split_brain(&mut self, now: Instant, index: usize, frame: Frame) {
        let site = self.peers[index].site;
        self.split_brain.abandoned_sites.insert(site);
        if self.is_alone() {
            let (we_decide, is_own_ahead) = (self.config.site < site, self.frame >= frame);
            if frame == Frame::ZERO || we_decide && is_own_ahead {
                self.keep_own_game(site);
            } else if we_decide && self.split_brain.yield_at.is_none() {
                self.yield_to(site, now + YIELD_DURATION);
            }
        }
        self.schedule_hello(index);
    }

    /// Keeps this site's game, and reports that the game of `site` ends.
    fn keep_own_game(&mut self, site: SiteId) {
        if !self.split_brain.yielding_sites.contains(site) {
            self.split_brain.yielding_sites.insert(site);
            self.events.push(Event::SplitBrainResolved { site, is_own_game_kept: true });
        }
    }

    /// Ends this site's game at the instant `at`, because the game of `site` is kept.
    fn yield_to(&mut self, site: SiteId, at: Instant) {
        if self.split_brain.yield_at.is_none() {
            self.events.push(Event::SplitBrainResolved { site, is_own_game_kept: false });
        }
        self.split_brain.yield_at = Some(at);
        if at <= self.clock.last_call() {
            self.end_session(SessionEnd::Dropped);
        }
    }

    /// Returns whether this site plays with the peer, no new inputs of the peer arrive, and nothing arrives from any
    /// other player. Then this site believes that the peer continued alone.
    fn is_waiting_in_vain(&self, now: Instant, index: usize) -> bool {
        let sends_no_input = |peer: &Peer| now - peer.last_input_at >= INPUT_SILENCE_LIMIT;
        let is_other_player =
            |peer: &&Peer| peer.site != self.peers[index].site && (peer.is_playing() || peer.join_frame.is_some());
        let is_playing = self.is_running() || self.phase == Phase::Joining && self.schedule.is_started();
        is_playing
            && self.leaving.is_none()
            && self.peers[index].is_playing()
            && sends_no_input(&self.peers[index])
            && self
                .peers
                .iter()
                .filter(is_other_player)
                .all(|peer| sends_no_input(peer) && peer.silence(now) >= INPUT_SILENCE_LIMIT)
    }

    /// Makes the next packet to a peer a hello.
    fn schedule_hello(&mut self, index: usize) {
        self.sending.require_hello(index);
        self.invalidate_send_time();
    }
}

/// Returns whether a site was dropped and has not joined again.
fn is_abandoned(peer: &Peer) -> bool {
    peer.is_dropped && peer.join_frame.is_none()
}

fn intersection(some: SiteSet, others: SiteSet) -> SiteSet {
    SiteSet::from_bits(some.bits() & others.bits())
}
