//! The lobby: sites compare their settings, learn each other's clocks, and agree on an instant to start at.
//!
//! Every site sends hellos to every other site. A site agrees with another when their settings are equal and it knows
//! the other's clock well enough. Its hellos list the sites that it agrees with. When every starting site agrees with
//! every other, the lowest of them sets the instant of group time at which the first frame begins. Every site that
//! knows the start passes it on.

use alloc::vec;
use alloc::vec::Vec;

use super::Session;
use super::event::Event;
use super::peer::Peer;
use super::phase::Phase;
use crate::codec::VERSION;
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::session::message::{Hello, Refusal};
use crate::settings::SettingsDifference;
use crate::time::{GroupInstant, Instant, TimeDelta};

/// Silence after which a peer may have moved to another address, and age after which its request to join is void.
pub(super) const ALIVE_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Maximum time between the agreement of all starting sites and the start. A site that learns of the start too late
/// starts late and catches up.
const MAX_START_LEAD: TimeDelta = TimeDelta::from_secs(2);

impl Session {
    #[cold]
    pub(super) fn handle_hello(&mut self, now: Instant, from: Addr, hello: &Hello, bytes: usize) {
        if hello.session_id != self.config.session_id {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        }
        if hello.site == self.config.site {
            return self.on_site_number_conflict(from, "the site number", hello.site);
        }
        let Some(index) = self.peers.iter().position(|peer| peer.site == hello.site) else {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        };
        if self.peers.iter().any(|peer| peer.addr == from && peer.site != hello.site) {
            // A peer cannot send hellos for another site.
            self.stats.dropped_datagrams.strangers += 1;
            return;
        }
        let peer = &self.peers[index];
        let restarted = peer.newest_incarnation != 0 && hello.incarnation > peer.newest_incarnation;
        let stale = hello.incarnation < peer.newest_incarnation;
        let is_newer = restarted || peer.is_newer_stamp(hello.stamp_us as i64);
        if stale || !self.accept_hello_from(now, index, from, (is_newer, restarted)) {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        }
        self.update_incarnation(index, hello, restarted);
        self.record_hello(now, index, hello, is_newer, bytes);
        self.learn_clock(now, index, hello);
        if let Some(reason) = hello.refusal {
            self.on_refusal(now, index, hello, reason);
        }
        self.compare_settings(index, hello);
        self.peers[index].lobby.agrees_with = hello.agreed_sites;
        if is_newer {
            self.on_leaving_flag(index, hello.is_leaving);
        }
        self.learn_start(now, hello.start_ns);
        self.try_start(now);
    }

    /// Records which incarnation of a peer sends hellos. Until the peer has played, its newest incarnation is the one
    /// that will play. For a joiner that is not admitted yet, a peer that does not ask to join is a player.
    fn update_incarnation(&mut self, index: usize, hello: &Hello, restarted: bool) {
        let is_spectating = self.joining.is_some() && self.own_join_frame().is_none();
        let peer = &mut self.peers[index];
        if restarted {
            peer.reset_after_restart();
        }
        peer.newest_incarnation = hello.incarnation;
        if (is_spectating || !peer.lobby.has_played && peer.is_playing()) && hello.join_readiness.is_none() {
            peer.incarnation = hello.incarnation;
        }
    }

    fn record_hello(&mut self, now: Instant, index: usize, hello: &Hello, is_newer: bool, bytes: usize) {
        let peer = &mut self.peers[index];
        // A peer that does not know the start, or wants to join, needs a hello. An old packet does not show such a
        // need.
        let needs_hello = (hello.start_ns.is_none() || hello.join_readiness.is_some()) && is_newer;
        peer.lobby.knows_own_incarnation = hello.your_incarnation == self.config.incarnation;
        // An admitted joiner needs ticks, and hellos would take their place.
        let has_seat = (peer.is_playing() || peer.join_frame.is_some()) && hello.incarnation == peer.incarnation;
        let is_admitted = has_seat && hello.join_readiness.is_some();
        if needs_hello && self.start_time.is_some() && !is_admitted || self.sending.is_hello_due(index) {
            self.sending.require_hello(index);
        }
        if is_newer {
            // A site that has, or had, this seat must restart to join.
            peer.lobby.join_readiness = hello.join_readiness.filter(|_| hello.incarnation > peer.incarnation);
            peer.lobby.join_requested_at = peer.lobby.join_readiness.map(|_| now);
        }
        if peer.lobby.has_played {
            // A site that has played and is in the lobby again sends no inputs: it counts as silent.
            peer.count_received(bytes);
        } else {
            peer.on_received(now, bytes);
        }
    }

    /// Returns whether a hello may come from this address. A hello from another address means that the site has moved,
    /// if it is newer than all others or the site was restarted. But while packets of a site that has played still
    /// arrive from its old address, such a hello is refused: another sender uses the site's number.
    fn accept_hello_from(
        &mut self,
        now: Instant,
        index: usize,
        from: Addr,
        (is_newer, restarted): (bool, bool),
    ) -> bool {
        let peer = &self.peers[index];
        let silent = now - peer.last_received_at >= ALIVE_TIMEOUT;
        let moved = is_newer && (silent || !peer.lobby.has_played) || restarted && silent;
        self.accept_address(index, from, moved)
    }

    fn learn_clock(&mut self, now: Instant, index: usize, hello: &Hello) {
        let echo = hello.echo.map(|(sent_us, held_ns)| (sent_us as i64, TimeDelta::from_nanos(i64::from(held_ns))));
        self.peers[index].on_stamp(now, hello.stamp_us as i64, echo);
    }

    /// Handles a hello of another protocol version. Only one from a peer's known address counts.
    #[cold]
    pub(super) fn handle_other_version(&mut self, from: Addr, version: u8) {
        match self.peers.iter().position(|peer| peer.addr == from) {
            None => self.stats.dropped_datagrams.strangers += 1,
            Some(index) => {
                let text = |version: u8| alloc::format!("{version}");
                let setting = "the protocol's version".into();
                self.record_disagreement(
                    index,
                    vec![SettingsDifference { setting, ours: text(VERSION), theirs: text(version) }],
                );
            }
        }
    }

    /// Handles a hello that claims this site's number. If it comes from a peer's address, that peer disagrees with this
    /// site about site numbers.
    fn on_site_number_conflict(&mut self, from: Addr, setting: &str, theirs: SiteId) {
        self.stats.dropped_datagrams.strangers += 1;
        let Some(index) = self.peers.iter().position(|peer| peer.addr == from) else { return };
        let text = |site: SiteId| alloc::format!("{site}");
        let expected = text(self.peers[index].site);
        let difference = SettingsDifference { setting: setting.into(), ours: expected, theirs: text(theirs) };
        self.record_disagreement(index, vec![difference]);
    }

    /// Compares the settings of a peer with this site's. A peer may change its settings, so this goes on until the
    /// start, and after it for peers that ask to join.
    fn compare_settings(&mut self, index: usize, hello: &Hello) {
        if !matches!(self.phase, Phase::Lobby | Phase::Joining) && hello.join_readiness.is_none() {
            return;
        }
        let differences = self.config.settings.differences(&hello.settings);
        let peer = &mut self.peers[index];
        if !differences.is_empty() {
            return self.record_disagreement(index, differences);
        }
        peer.lobby.differences.clear();
        if !peer.lobby.has_agreed && peer.clock.is_ready() {
            peer.lobby.has_agreed = true;
            self.events.push(Event::Agreed { site: hello.site });
        }
    }

    fn record_disagreement(&mut self, index: usize, differences: Vec<SettingsDifference>) {
        let lobby = &mut self.peers[index].lobby;
        lobby.has_agreed = false;
        if lobby.differences != differences {
            lobby.differences.clone_from(&differences);
            self.events.push(Event::Disagreed { site: self.peers[index].site, differences });
        }
    }

    /// Handles a peer's refusal. A refusal of an earlier incarnation of this site does not count.
    fn on_refusal(&mut self, now: Instant, index: usize, hello: &Hello, reason: Refusal) {
        if hello.your_incarnation != self.config.incarnation
            || self.handle_split_brain_refusal(now, index, hello, reason)
        {
            return;
        }
        if self.phase == Phase::Lobby && !self.is_refused {
            self.is_refused = true;
            // A site that will not play has nothing to publish.
            self.close_feed();
            self.events.push(Event::Refused { site: hello.site, reason });
        }
        // This site plays or was admitted. If it was admitted and does not play yet, the command that admitted it was
        // voided.
        if self.schedule.is_started() && reason == Refusal::Dropped {
            self.on_refusal_report(now, index);
        }
    }

    /// Handles a peer's statement whether it leaves. Before the start, a leaving peer keeps the others in the lobby
    /// until it comes back. After the start, the statement means that the peer gives no inputs.
    fn on_leaving_flag(&mut self, index: usize, leaving: bool) {
        let peer = &mut self.peers[index];
        if self.start_time.is_none() && leaving && !peer.lobby.has_left {
            self.events.push(Event::Left { site: peer.site, frame: self.frame });
        }
        peer.lobby.has_left = leaving;
        if leaving && self.start_time.is_some() && !peer.lobby.has_played {
            self.apply_leave(index, Frame::new(self.config.settings.input_delay));
        }
    }

    /// Returns the sites that this site agrees with on the settings and whose clocks it knows, including itself.
    pub(super) fn agreed_sites(&self) -> SiteSet {
        let peers = self.peers.iter().filter(|peer| peer.lobby.has_agreed).map(|peer| peer.site);
        peers.chain([self.config.site]).collect()
    }

    /// Returns the starting sites that are not connected, have left, do not agree with this site, or do not agree with
    /// every starting site.
    pub(super) fn missing_in_lobby(&self) -> SiteSet {
        let starting_sites = self.config.settings.starting_sites;
        let missing = |peer: &&Peer| {
            peer.lobby.has_left || !peer.lobby.has_agreed || !peer.lobby.agrees_with.contains_all(starting_sites)
        };
        let needed = |peer: &&Peer| starting_sites.contains(peer.site);
        self.peers.iter().filter(needed).filter(missing).map(|peer| peer.site).collect()
    }

    /// Sets the start when every starting site agrees with every other. Only the lowest of them does this.
    #[cold]
    pub(super) fn try_start(&mut self, now: Instant) {
        let is_lowest = self.config.settings.starting_sites.iter().next() == Some(self.config.site);
        let is_ready = self.phase == Phase::Lobby && !self.is_refused && self.leaving.is_none();
        if is_ready && is_lowest && self.missing_in_lobby().is_empty() {
            let delays = self.peers.iter().map(|peer| peer.clock.rtt().unwrap_or_default() + peer.clock.jitter() * 4);
            let lead = (delays.max().unwrap_or_default() * 2 + TimeDelta::from_millis(100)).min(MAX_START_LEAD);
            self.set_start(GroupInstant::from_nanos((now + lead).as_nanos()), now + lead);
        }
    }

    /// Takes over the start that another site has announced, once this site agrees with all starting sites and knows
    /// group time, unless the start is 60 s ahead or more. A joiner only notes the start.
    fn learn_start(&mut self, now: Instant, start_ns: Option<i64>) {
        let Some(start_ns) = start_ns else { return };
        if self.phase == Phase::Joining {
            self.start_time = Some(GroupInstant::from_nanos(start_ns));
        }
        if self.phase != Phase::Lobby
            || self.is_refused
            || !self.agreed_sites().contains_all(self.config.settings.starting_sites)
        {
            return;
        }
        let start = GroupInstant::from_nanos(start_ns);
        let Some(at) = self.local_time(start) else { return };
        // A start in the far future is a lie or a mistake, and waiting for it would hang the session.
        if at - now < TimeDelta::from_secs(60) {
            self.set_start(start, at);
        }
    }

    fn set_start(&mut self, start: GroupInstant, at: Instant) {
        self.start_time = Some(start);
        self.phase = Phase::Starting { at };
        self.events.push(Event::Starting { at });
        for index in 0..self.peers.len() {
            if self.peers[index].lobby.has_left {
                self.on_leaving_flag(index, true);
            }
        }
        if self.leaving.is_some() {
            // The other sites wait for this site's inputs. Only ticks of a running game can announce that it gives
            // none.
            self.start_running(at);
        }
    }

    #[cold]
    pub(super) fn encode_hello(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> usize {
        let agreed = self.agreed_sites();
        let is_ready = self.is_ready_to_join();
        if let Some(joining) = self.joining.as_mut().filter(|_| is_ready) {
            joining.has_announced_ready = true;
        }
        // In a hello, leaving means that there are no inputs at all. A site that has given inputs sends their end in
        // ticks.
        let leaving = self.leaving.is_some_and(|leave| leave.input_end.number() == self.config.settings.input_delay);
        let split_refusal = self.refusal_for_abandoned(index);
        let wants_seat = self.phase == Phase::Joining && self.leaving.is_none() && self.own_join_frame().is_none();
        let peer = &mut self.peers[index];
        self.sending.on_hello(index);
        let echo = peer.take_echo(now);
        let refusal = match peer.lobby.join_readiness {
            None if split_refusal.is_some() => split_refusal,
            None if peer.is_dropped || peer.lobby.is_admission_void => Some(Refusal::Dropped),
            None if peer.lobby.has_played && self.start_time.is_some() => Some(Refusal::AlreadyRunning),
            _ => None,
        };
        let hello = Hello {
            session_id: self.config.session_id,
            site: self.config.site,
            incarnation: self.config.incarnation,
            your_incarnation: peer.newest_incarnation,
            agreed_sites: agreed,
            is_leaving: leaving,
            join_readiness: wants_seat.then_some(is_ready),
            refusal,
            stamp_us: now.as_micros() as u64,
            echo: echo.map(|(stamp, held)| (stamp as u64, held.as_nanos().clamp(0, i64::from(u32::MAX)) as u32)),
            start_ns: self.start_time.map(GroupInstant::as_nanos),
            settings: self.config.settings.clone(),
        };
        hello.encode(buf).expect("checked settings fit into a packet")
    }
}
