//! The lobby: sites compare their settings, learn each other's clocks, and agree on an instant to start at.
//!
//! Every site sends hellos to every other site. A site agrees with another when their settings are equal and it knows
//! the other's clock well enough. Its hellos list the sites that it agrees with. When every starting site agrees with
//! every other, the lowest of them sets the instant of group time at which the first frame begins. Every site that
//! knows the start passes it on.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::event::Event;
use super::peer::Peer;
use super::peers::Peers;
use crate::id::{SiteId, SiteSet};
use crate::session::message::{Hello, Refusal};
use crate::settings::{Settings, SettingsDifference};
use crate::time::{GroupInstant, Instant, TimeDelta};

/// Silence after which a peer may have moved to another address, and age after which its request to join is void.
pub(super) const ALIVE_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Maximum time between the agreement of all starting sites and the start. A site that learns of the start too late
/// starts late and catches up.
const MAX_START_LEAD: TimeDelta = TimeDelta::from_secs(2);

/// Longest time to a start that another site has announced. A start further ahead is a lie or a mistake, and waiting
/// for it would hang the session.
const MAX_ANNOUNCED_LEAD: TimeDelta = TimeDelta::from_secs(60);

/// The agreement of the sites on settings and start, and the requests to join.
#[derive(Debug)]
pub(super) struct Lobby {
    /// By index of the peer.
    states: Vec<LobbyState>,
    /// Start of the game in group time, once the sites have agreed on it.
    start_time: Option<GroupInstant>,
    is_refused: bool,
}

/// The state of a peer that comes from its hellos: agreement on the settings, leaving, requests to join.
#[derive(Clone, Debug, Default)]
struct LobbyState {
    has_agreed: bool,
    /// Sites that the peer agrees with, as the last hello from it says.
    agrees_with: SiteSet,
    /// Differences from the peer's settings, protocol version or site number, as last found; empty if none were found.
    differences: Vec<SettingsDifference>,
    /// Whether the peer's newest hello announces that it leaves.
    has_left: bool,
    /// Whether the last hello from the peer names this site's current incarnation.
    knows_own_incarnation: bool,
    /// Whether the peer, which asks to join the running game, is ready to play; `None` if it does not ask to join.
    join_readiness: Option<bool>,
    /// When the peer last asked to join.
    join_requested_at: Option<Instant>,
    /// Whether the peer gives inputs for frames that were confirmed without it, because the command that admitted it
    /// was voided.
    is_admission_void: bool,
}

impl Lobby {
    pub(super) fn new(peer_count: usize) -> Self {
        Self { states: vec![LobbyState::default(); peer_count], start_time: None, is_refused: false }
    }

    /// Returns the start of the game in group time, once the sites have agreed on it.
    #[inline]
    pub(super) fn start_time(&self) -> Option<GroupInstant> {
        self.start_time
    }

    pub(super) fn set_start_time(&mut self, start: GroupInstant) {
        self.start_time = Some(start);
    }

    /// Returns whether another site refuses this one.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Notes that another site refuses this one. Returns whether it is the first refusal.
    pub(super) fn refuse(&mut self) -> bool {
        !core::mem::replace(&mut self.is_refused, true)
    }

    /// Records what a hello says about this site's incarnation and, if it is the newest, about joining. `playing` is
    /// the incarnation that has, or had, the peer's seat: it must restart to join.
    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        index: usize,
        hello: &Hello,
        own: u32,
        playing: u32,
        is_newest: bool,
    ) {
        let state = &mut self.states[index];
        state.knows_own_incarnation = hello.your_incarnation == own;
        if is_newest {
            state.join_readiness = hello.join_readiness.filter(|_| hello.incarnation > playing);
            state.join_requested_at = state.join_readiness.map(|_| now);
        }
    }

    /// Records the sites that a peer agrees with.
    pub(super) fn on_agreed_sites(&mut self, index: usize, agreed: SiteSet) {
        self.states[index].agrees_with = agreed;
    }

    /// Compares a peer's settings with this site's. The sites agree once their settings are equal and the peer's clock
    /// is known (`is_clock_known`). Returns an event if something has changed.
    pub(super) fn compare_settings(
        &mut self,
        index: usize,
        (ours, theirs): (&Settings, &Settings),
        is_clock_known: bool,
        site: SiteId,
    ) -> Option<Event> {
        let differences = ours.differences(theirs);
        if !differences.is_empty() {
            return self.disagree(index, site, differences);
        }
        let state = &mut self.states[index];
        state.differences.clear();
        let agrees = !state.has_agreed && is_clock_known;
        state.has_agreed |= agrees;
        agrees.then_some(Event::Agreed { site })
    }

    /// Records that a peer uses another version of the protocol.
    pub(super) fn on_other_version(&mut self, index: usize, site: SiteId, (ours, theirs): (u8, u8)) -> Option<Event> {
        let setting = "the protocol's version".into();
        self.disagree(
            index,
            site,
            vec![SettingsDifference { setting, ours: ours.to_string(), theirs: theirs.to_string() }],
        )
    }

    /// Records that the peer that this site knows as `site` takes itself for `claimed`.
    pub(super) fn on_other_site(&mut self, index: usize, site: SiteId, claimed: SiteId) -> Option<Event> {
        let setting = "the site number".into();
        self.disagree(
            index,
            site,
            vec![SettingsDifference { setting, ours: site.to_string(), theirs: claimed.to_string() }],
        )
    }

    fn disagree(&mut self, index: usize, site: SiteId, differences: Vec<SettingsDifference>) -> Option<Event> {
        let state = &mut self.states[index];
        state.has_agreed = false;
        let is_new = state.differences != differences;
        if is_new {
            state.differences.clone_from(&differences);
        }
        is_new.then_some(Event::Disagreed { site, differences })
    }

    /// Records whether a peer's newest hello announces that it leaves. Returns what was recorded before.
    pub(super) fn set_left(&mut self, index: usize, has_left: bool) -> bool {
        core::mem::replace(&mut self.states[index].has_left, has_left)
    }

    /// Returns whether a peer's newest hello announces that it leaves.
    pub(super) fn has_left(&self, index: usize) -> bool {
        self.states[index].has_left
    }

    /// Returns whether the last hello from a peer names this site's current incarnation.
    pub(super) fn knows_own_incarnation(&self, index: usize) -> bool {
        self.states[index].knows_own_incarnation
    }

    /// Returns whether a peer asks to join the running game.
    pub(super) fn asks_to_join(&self, index: usize) -> bool {
        self.states[index].join_readiness.is_some()
    }

    /// Forgets a peer's request to join: it has no use for it, or asks again.
    pub(super) fn forget_join_request(&mut self, index: usize) {
        self.states[index].join_readiness = None;
    }

    /// Records that a peer's admission is void although the peer plays by it.
    pub(super) fn void_admission(&mut self, index: usize) {
        self.states[index].is_admission_void = true;
        self.forget_join_request(index);
    }

    /// Forgets the request of a joiner that takes its seat.
    pub(super) fn on_seat_taken(&mut self, index: usize) {
        self.states[index].is_admission_void = false;
        self.forget_join_request(index);
    }

    /// Forgets what the hellos of a peer's previous incarnation said.
    pub(super) fn on_restart(&mut self, index: usize) {
        self.states[index] = LobbyState::default();
    }

    /// Returns the sites that this site agrees with on the settings and whose clocks it knows, including itself.
    pub(super) fn agreed_sites(&self, peers: &Peers) -> SiteSet {
        let agreed = peers.iter().zip(&self.states).filter(|(_, state)| state.has_agreed);
        agreed.map(|(peer, _)| peer.site()).chain([peers.own_site()]).collect()
    }

    /// Returns the starting sites that are not connected, have left, do not agree with this site, or do not agree with
    /// every starting site.
    pub(super) fn missing_sites(&self, peers: &Peers, starting_sites: SiteSet) -> SiteSet {
        let is_missing =
            |state: &LobbyState| state.has_left || !state.has_agreed || !state.agrees_with.contains_all(starting_sites);
        let starting = peers.iter().zip(&self.states).filter(|(peer, _)| starting_sites.contains(peer.site()));
        starting.filter(|(_, state)| is_missing(state)).map(|(peer, _)| peer.site()).collect()
    }

    /// Returns the time from the agreement of all starting sites to the start: two round trips, with a margin.
    pub(super) fn start_lead(peers: &Peers) -> TimeDelta {
        (peers.max_rtt_with_jitter() * 2 + TimeDelta::from_millis(100)).min(MAX_START_LEAD)
    }

    /// Returns whether this site takes over a start at the instant `at` that another site has announced: it agrees with
    /// all starting sites, no site refuses it, and the start is less than 60 s ahead.
    pub(super) fn accepts_start(&self, now: Instant, at: Instant, peers: &Peers, starting_sites: SiteSet) -> bool {
        !self.is_refused && self.agreed_sites(peers).contains_all(starting_sites) && at - now < MAX_ANNOUNCED_LEAD
    }

    /// Returns whether a peer is ready to join: it asked for it within the last second, has not left, agrees with this
    /// site and with all sites in `playing`.
    pub(super) fn is_ready_to_join(&self, index: usize, now: Instant, playing: SiteSet) -> bool {
        let state = &self.states[index];
        state.join_readiness == Some(true)
            && !state.has_left
            && state.join_requested_at.is_some_and(|at| now - at < ALIVE_TIMEOUT)
            && state.has_agreed
            && state.agrees_with.contains_all(playing)
    }

    /// Returns the refusal that a hello to a peer carries, if the peer does not ask to join.
    pub(super) fn refusal_for(&self, index: usize, peer: &Peer) -> Option<Refusal> {
        let state = &self.states[index];
        match state.join_readiness {
            None if peer.is_dropped() || state.is_admission_void => Some(Refusal::Dropped),
            None if peer.has_played() && self.start_time.is_some() => Some(Refusal::AlreadyRunning),
            _ => None,
        }
    }

    /// Returns the size on the heap, in bytes.
    pub(super) fn memory(&self) -> usize {
        let of_state =
            |state: &LobbyState| size_of_val(state) + state.differences.capacity() * size_of::<SettingsDifference>();
        self.states.iter().map(of_state).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::peers::table;
    use super::*;
    use crate::frame::FrameRate;
    use crate::input::Ownership;
    use crate::settings::{AbsentInput, GameId, MachineId, StarvationPolicy};

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn settings(input_delay: u32) -> Settings {
        Settings {
            game: GameId { name: "sum".into(), hash: [1; 32] },
            machine: MachineId { name: "adder".into(), version: "1".into(), options: vec![], first_frames_hash: 0 },
            rate: FrameRate::per_second(60).unwrap(),
            input_delay,
            prediction_window: 0,
            auto_tune: false,
            absent_input: AbsentInput::Nothing,
            starvation_policy: StarvationPolicy::Wait,
            compare_interval: 60,
            site_count: 2,
            starting_sites: SiteSet::first(2),
            ownership: Ownership::one_player_per_site(2, 0xff),
        }
    }

    fn hello(join_readiness: Option<bool>) -> Hello {
        Hello {
            session_id: 0,
            site: SiteId::new(1).unwrap(),
            incarnation: 2,
            your_incarnation: 5,
            agreed_sites: SiteSet::first(2),
            is_leaving: false,
            join_readiness,
            refusal: None,
            stamp_us: 0,
            echo: None,
            start_ns: None,
            settings: settings(2),
        }
    }

    #[test]
    fn sites_agree_once_settings_are_equal_and_clock_is_known() {
        let (mut lobby, peers) = (Lobby::new(1), table(0, 2));
        let (ours, site) = (settings(2), peers[0].site());
        let compare = |lobby: &mut Lobby, theirs: u32, is_clock_known: bool| {
            lobby.compare_settings(0, (&ours, &settings(theirs)), is_clock_known, site)
        };
        assert_eq!(compare(&mut lobby, 2, false), None);
        assert!(matches!(compare(&mut lobby, 3, true), Some(Event::Disagreed { .. })));
        assert_eq!(compare(&mut lobby, 3, true), None, "reported once");
        assert_eq!(compare(&mut lobby, 2, true), Some(Event::Agreed { site }));
        assert_eq!(lobby.agreed_sites(&peers), SiteSet::first(2));
        assert_eq!(lobby.missing_sites(&peers, SiteSet::first(2)), [site].into_iter().collect());
        lobby.on_agreed_sites(0, SiteSet::first(2));
        assert!(lobby.missing_sites(&peers, SiteSet::first(2)).is_empty());
        lobby.set_left(0, true);
        assert!(!lobby.missing_sites(&peers, SiteSet::first(2)).is_empty());
    }

    #[test]
    fn start_far_ahead_is_not_accepted() {
        let (lobby, peers) = (Lobby::new(1), table(1, 2));
        let accepts = |lead: i64, starting: SiteSet| lobby.accepts_start(at(0), at(lead), &peers, starting);
        let own = [peers.own_site()].into_iter().collect();
        assert!(accepts(59_999, own) && !accepts(60_000, own));
        assert!(!accepts(100, SiteSet::first(2)), "this site does not agree with site 0 yet");
    }

    #[test]
    fn request_to_join_is_void_after_a_second() {
        let (mut lobby, peers) = (Lobby::new(1), table(0, 2));
        let (ours, site) = (settings(2), peers[0].site());
        lobby.compare_settings(0, (&ours, &ours), true, site);
        lobby.on_agreed_sites(0, SiteSet::first(2));
        lobby.on_hello(at(0), 0, &hello(Some(true)), 5, 1, true);
        assert!(lobby.knows_own_incarnation(0) && lobby.asks_to_join(0));
        assert!(lobby.is_ready_to_join(0, at(999), SiteSet::first(1)));
        assert!(!lobby.is_ready_to_join(0, at(1_000), SiteSet::first(1)));
        assert!(!lobby.is_ready_to_join(0, at(999), SiteSet::first(3)), "it does not agree with site 2");
        lobby.on_hello(at(10), 0, &hello(Some(true)), 5, 2, true);
        assert!(!lobby.asks_to_join(0), "a site that has played must restart to join");
    }

    #[test]
    fn site_outside_the_game_is_refused_unless_it_asks_to_join() {
        let (mut lobby, mut peers) = (Lobby::new(1), table(0, 2));
        lobby.set_start_time(GroupInstant::from_nanos(0));
        assert_eq!(lobby.refusal_for(0, &peers[0]), None);
        peers[0].on_tick();
        assert_eq!(lobby.refusal_for(0, &peers[0]), Some(Refusal::AlreadyRunning));
        peers[0].drop_after(crate::frame::Frame::ZERO, crate::frame::Frame::ZERO, false);
        assert_eq!(lobby.refusal_for(0, &peers[0]), Some(Refusal::Dropped));
        lobby.on_hello(at(0), 0, &hello(Some(false)), 5, 1, true);
        assert_eq!(lobby.refusal_for(0, &peers[0]), None);
    }
}
