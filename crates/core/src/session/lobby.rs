//! Before the game: sites find out that they mean the same, learn each other's clocks, and agree on an instant to start at.
//!
//! All sites send hellos to all others. A site agrees with another when their settings are equal and its clock is known well
//! enough, and says so in its own hellos. When everybody agrees with everybody, the lowest site names the instant of group time
//! (its own clock) at which the first frame begins; every site that knows it passes it on.

use alloc::vec;
use alloc::vec::Vec;

use super::event::Event;
use super::peer::Peer;
use super::settings::SettingsDifference;
use super::{Phase, Session};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{Hello, Refusal, VERSION};

/// Hellos are this far apart.
pub(super) const HELLO_INTERVAL: TimeDelta = TimeDelta::from_millis(50);
/// A site that was heard so lately is where it was.
pub(super) const ALIVE_TIMEOUT: TimeDelta = TimeDelta::from_secs(1);
/// Nobody waits longer for a start that all agree on; who hears of it late starts late and catches up.
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
            // A player cannot speak for another.
            self.stats.dropped_datagrams.strangers += 1;
            return;
        }
        let peer = &self.peers[index];
        let restarted = peer.newest_incarnation != 0 && hello.incarnation > peer.newest_incarnation;
        let stale = hello.incarnation < peer.newest_incarnation;
        let news = restarted || peer.is_newer_stamp(hello.stamp_us as i64);
        if stale || !self.accept_hello_from(now, index, from, (news, restarted)) {
            self.stats.dropped_datagrams.strangers += 1;
            return;
        }
        self.update_incarnation(index, hello, restarted);
        self.record_hello(now, index, hello, news, bytes);
        self.learn_clock(now, index, hello);
        if let Some(reason) = hello.refusal {
            self.on_refusal(now, index, hello, reason);
        }
        self.compare_settings(index, hello);
        self.peers[index].lobby.agrees_with = hello.agreed_sites;
        if news {
            self.on_leaving_flag(index, hello.is_leaving);
        }
        self.learn_start(now, hello.start_ns);
        self.try_start(now);
    }

    /// Which start of a peer's program is heard. Before it plays, that is the one that will; and to who is on its way in, whoever is not
    /// is the one that does.
    fn update_incarnation(&mut self, index: usize, hello: &Hello, restarted: bool) {
        let watching = self.joining.is_some() && self.own_join_frame().is_none();
        let peer = &mut self.peers[index];
        if restarted {
            peer.reset_after_restart();
        }
        peer.newest_incarnation = hello.incarnation;
        if (watching || !peer.lobby.has_played && peer.is_playing()) && hello.join_readiness.is_none() {
            peer.incarnation = hello.incarnation;
        }
    }

    fn record_hello(&mut self, now: Instant, index: usize, hello: &Hello, news: bool, bytes: usize) {
        let peer = &mut self.peers[index];
        // Whoever does not know the start needs to be told; an old packet is no such question.
        let asks = (hello.start_ns.is_none() || hello.join_readiness.is_some()) && news;
        peer.lobby.knows_own_incarnation = hello.your_incarnation == self.config.incarnation;
        // Who is let in needs ticks, and hellos would take their place.
        let seated = (peer.is_playing() || peer.join_frame.is_some()) && hello.incarnation == peer.incarnation;
        let let_in = seated && hello.join_readiness.is_some();
        peer.lobby.is_hello_due |= asks && self.start_time.is_some() && !let_in;
        self.hello_pending |= peer.lobby.is_hello_due;
        if news {
            // Whoever had the seat and lost it, or has it, must start anew to take it.
            peer.lobby.join_readiness = hello.join_readiness.filter(|_| hello.incarnation > peer.incarnation);
            peer.lobby.join_requested_at = peer.lobby.join_readiness.map(|_| now);
        }
        if peer.lobby.has_played {
            // A site that was in the game and is in a lobby brings no inputs: it counts as silent.
            peer.count_received(bytes);
        } else {
            peer.on_received(now, bytes);
        }
    }

    /// Whether a hello may come from this address. One from elsewhere means that its site has moved if it is newer than all
    /// others, or if the site was started anew; but while the site is heard where it was, somebody uses its name.
    fn accept_hello_from(&mut self, now: Instant, index: usize, from: Addr, (news, restarted): (bool, bool)) -> bool {
        let peer = &self.peers[index];
        let silent = now - peer.last_received_at >= ALIVE_TIMEOUT;
        let moved = news && (silent || !peer.lobby.has_played) || restarted && silent;
        self.accept_address(index, from, moved)
    }

    fn learn_clock(&mut self, now: Instant, index: usize, hello: &Hello) {
        let echo = hello.echo.map(|(sent_us, held_ns)| (sent_us as i64, TimeDelta::from_nanos(i64::from(held_ns))));
        self.peers[index].on_stamp(now, hello.stamp_us as i64, echo);
    }

    /// Someone speaks another version of the protocol. Only a peer's word for that is taken.
    #[cold]
    pub(super) fn handle_other_version(&mut self, from: Addr, version: u8) {
        match self.peers.iter().position(|peer| peer.addr == from) {
            None => self.stats.dropped_datagrams.strangers += 1,
            Some(index) => {
                let versions = |version: u8| alloc::format!("{version}");
                let what = "the protocol's version".into();
                self.record_disagreement(
                    index,
                    vec![SettingsDifference { setting: what, ours: versions(VERSION), theirs: versions(version) }],
                );
            }
        }
    }

    /// A peer calls itself by our own number.
    fn on_site_number_conflict(&mut self, from: Addr, what: &str, theirs: SiteId) {
        self.stats.dropped_datagrams.strangers += 1;
        let Some(index) = self.peers.iter().position(|peer| peer.addr == from) else { return };
        let text = |site: SiteId| alloc::format!("{site}");
        let expected = text(self.peers[index].site);
        let difference = SettingsDifference { setting: what.into(), ours: expected, theirs: text(theirs) };
        self.record_disagreement(index, vec![difference]);
    }

    /// Settings are compared for as long as nothing has started, because whoever disagrees may think better of it.
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

    /// A peer says that we cannot take part, or not any more. What was meant for an earlier start of ours does not count.
    fn on_refusal(&mut self, now: Instant, index: usize, hello: &Hello, reason: Refusal) {
        if hello.your_incarnation != self.config.incarnation
            || self.handle_split_brain_refusal(now, index, hello, reason)
        {
            return;
        }
        if self.phase == Phase::Lobby && !self.is_refused {
            self.is_refused = true;
            self.events.push(Event::Refused { site: hello.site, reason });
        }
        // Once we were let in, also before we play: then the order that let us in came to nothing.
        if self.pacer.is_some() && reason == Refusal::Dropped {
            self.on_refusal_report(now, index);
        }
    }

    /// A site says whether it is about to leave. Before the start that keeps the others in the lobby until it comes back; after
    /// the start it means that its inputs end before the first.
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

    /// The sites that we agree with, ourselves included.
    pub(super) fn agreed_sites(&self) -> SiteSet {
        let peers = self.peers.iter().filter(|peer| peer.lobby.has_agreed).map(|peer| peer.site);
        peers.chain([self.config.site]).collect()
    }

    /// The sites that are not here, not agreed with, or do not agree with everybody themselves.
    pub(super) fn missing_in_lobby(&self) -> SiteSet {
        let everyone = self.config.settings.starting_sites;
        let missing = |peer: &&Peer| {
            peer.lobby.has_left || !peer.lobby.has_agreed || !peer.lobby.agrees_with.contains_all(everyone)
        };
        let needed = |peer: &&Peer| everyone.contains(peer.site);
        self.peers.iter().filter(needed).filter(missing).map(|peer| peer.site).collect()
    }

    /// The lowest site names the start when everybody agrees with everybody.
    #[cold]
    pub(super) fn try_start(&mut self, now: Instant) {
        let lowest = self.config.settings.starting_sites.iter().next() == Some(self.config.site);
        let ready = self.phase == Phase::Lobby && !self.is_refused && self.leaving.is_none();
        if ready && lowest && self.missing_in_lobby().is_empty() {
            let slowest = self.peers.iter().map(|peer| peer.clock.rtt().unwrap_or_default() + peer.clock.jitter() * 4);
            let lead = (slowest.max().unwrap_or_default() * 2 + TimeDelta::from_millis(100)).min(MAX_START_LEAD);
            self.set_start(GroupInstant::from_nanos((now + lead).as_nanos()), now + lead);
        }
    }

    /// Another site knows when the game starts.
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
        // A start in the far future is a lie or a mistake; waiting for it would be a hang.
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
            // The others count on us; only in a running game can we say that our inputs end before the first.
            self.start_running(at);
        }
    }

    #[cold]
    pub(super) fn encode_hello(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> usize {
        let agreed = self.agreed_sites();
        let ready = self.is_ready_to_join();
        if let Some(joining) = self.joining.as_mut().filter(|_| ready) {
            joining.has_announced_ready = true;
        }
        // In a hello, leaving means that there are no inputs at all. Whoever has given some says in ticks where they end.
        let leaving = self.leaving.is_some_and(|leave| leave.input_end.number() == self.config.settings.input_delay);
        let alone = self.refusal_for_abandoned(index);
        let waits = self.phase == Phase::Joining && self.leaving.is_none() && self.own_join_frame().is_none();
        let peer = &mut self.peers[index];
        peer.lobby.is_hello_due = false;
        let echo = peer.take_echo(now);
        let refusal = match peer.lobby.join_readiness {
            None if alone.is_some() => alone,
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
            join_readiness: waits.then_some(ready),
            refusal,
            stamp_us: now.as_micros() as u64,
            echo: echo.map(|(stamp, held)| (stamp as u64, held.as_nanos().clamp(0, i64::from(u32::MAX)) as u32)),
            start_ns: self.start_time.map(GroupInstant::as_nanos),
            settings: self.config.settings.clone(),
        };
        hello.encode(buf).expect("checked settings fit into a packet")
    }
}
