//! Before the game: sites find out that they mean the same, learn each other's clocks, and agree on an instant to start at.
//!
//! All sites send hellos to all others. A site agrees with another when their settings are equal and its clock is known well
//! enough, and says so in its own hellos. When everybody agrees with everybody, the lowest site names the instant of group time
//! (its own clock) at which the first frame begins; every site that knows it passes it on.

use alloc::vec;
use alloc::vec::Vec;

use super::event::Event;
use super::peer::Peer;
use super::settings::Difference;
use super::{Phase, Session};
use crate::frame::Frame;
use crate::id::{Addr, SiteId, SiteSet};
use crate::time::{GroupInstant, Instant, TimeDelta};
use crate::wire::{Hello, Refusal, VERSION};

/// Hellos are this far apart.
pub(super) const HELLO_EVERY: TimeDelta = TimeDelta::from_millis(50);
/// A site that was heard so lately is where it was.
pub(super) const ALIVE: TimeDelta = TimeDelta::from_secs(1);
/// Nobody waits longer for a start that all agree on; who hears of it late starts late and catches up.
const LONGEST_LEAD: TimeDelta = TimeDelta::from_secs(2);

impl Session {
    #[cold]
    pub(super) fn handle_hello(&mut self, now: Instant, from: Addr, hello: &Hello, bytes: usize) {
        if hello.session != self.config.session {
            self.stats.dropped.strangers += 1;
            return;
        }
        if hello.site == self.config.site {
            return self.disagree_from(from, "the site number", hello.site);
        }
        let Some(index) = self.peers.iter().position(|peer| peer.site == hello.site) else {
            self.stats.dropped.strangers += 1;
            return;
        };
        if self.peers.iter().any(|peer| peer.addr == from && peer.site != hello.site) {
            // A player cannot speak for another.
            self.stats.dropped.strangers += 1;
            return;
        }
        let peer = &self.peers[index];
        let restarted = peer.newest_incarnation != 0 && hello.incarnation > peer.newest_incarnation;
        let stale = hello.incarnation < peer.newest_incarnation;
        let news = restarted || peer.is_news(hello.stamp_us as i64);
        if stale || !self.accept_hello_from(now, index, from, (news, restarted)) {
            self.stats.dropped.strangers += 1;
            return;
        }
        self.note_incarnation(index, hello, restarted);
        self.note_hello(now, index, hello, news, bytes);
        self.learn_clock(now, index, hello);
        if let Some(reason) = hello.refusal {
            self.refuse(now, index, hello, reason);
        }
        self.compare_settings(index, hello);
        self.peers[index].lobby.agrees_with = hello.agreed;
        if news {
            self.take_leaving(index, hello.leaving);
        }
        self.learn_start(now, hello.start_ns);
        self.try_start(now);
    }

    /// Which start of a peer's program is heard. Before it plays, that is the one that will; and to who is on its way in, whoever is not
    /// is the one that does.
    fn note_incarnation(&mut self, index: usize, hello: &Hello, restarted: bool) {
        let watching = self.joining.is_some() && self.seat_to_take().is_none();
        let peer = &mut self.peers[index];
        if restarted {
            peer.start_over();
        }
        peer.newest_incarnation = hello.incarnation;
        if (watching || !peer.lobby.playing && peer.is_playing()) && hello.joining.is_none() {
            peer.incarnation = hello.incarnation;
        }
    }

    fn note_hello(&mut self, now: Instant, index: usize, hello: &Hello, news: bool, bytes: usize) {
        let peer = &mut self.peers[index];
        // Whoever does not know the start needs to be told; an old packet is no such question.
        let asks = (hello.start_ns.is_none() || hello.joining.is_some()) && news;
        peer.lobby.knows_us = hello.yours == self.config.incarnation;
        // Who is let in needs ticks, and hellos would take their place.
        let seated = (peer.is_playing() || peer.joins.is_some()) && hello.incarnation == peer.incarnation;
        let let_in = seated && hello.joining.is_some();
        peer.lobby.hello_due |= asks && self.start.is_some() && !let_in;
        self.greetings |= peer.lobby.hello_due;
        if news {
            // Whoever had the seat and lost it, or has it, must start anew to take it.
            peer.lobby.joining = hello.joining.filter(|_| hello.incarnation > peer.incarnation);
            peer.lobby.asked_at = peer.lobby.joining.map(|_| now);
        }
        if peer.lobby.playing {
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
        let silent = now - peer.heard >= ALIVE;
        let moved = news && (silent || !peer.lobby.playing) || restarted && silent;
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
            None => self.stats.dropped.strangers += 1,
            Some(index) => {
                let versions = |version: u8| alloc::format!("{version}");
                let what = "the protocol's version".into();
                self.disagree(index, vec![Difference { what, ours: versions(VERSION), theirs: versions(version) }]);
            }
        }
    }

    /// A peer calls itself by our own number.
    fn disagree_from(&mut self, from: Addr, what: &str, theirs: SiteId) {
        self.stats.dropped.strangers += 1;
        let Some(index) = self.peers.iter().position(|peer| peer.addr == from) else { return };
        let text = |site: SiteId| alloc::format!("{site}");
        let expected = text(self.peers[index].site);
        let difference = Difference { what: what.into(), ours: expected, theirs: text(theirs) };
        self.disagree(index, vec![difference]);
    }

    /// Settings are compared for as long as nothing has started, because whoever disagrees may think better of it.
    fn compare_settings(&mut self, index: usize, hello: &Hello) {
        if !matches!(self.phase, Phase::Lobby | Phase::Joining) && hello.joining.is_none() {
            return;
        }
        let differences = self.config.settings.differences(&hello.settings);
        let peer = &mut self.peers[index];
        if !differences.is_empty() {
            return self.disagree(index, differences);
        }
        peer.lobby.differences.clear();
        if !peer.lobby.agreed && peer.clock.is_ready() {
            peer.lobby.agreed = true;
            self.events.push(Event::Agreed { site: hello.site });
        }
    }

    fn disagree(&mut self, index: usize, differences: Vec<Difference>) {
        let lobby = &mut self.peers[index].lobby;
        lobby.agreed = false;
        if lobby.differences != differences {
            lobby.differences.clone_from(&differences);
            self.events.push(Event::Disagreed { site: self.peers[index].site, differences });
        }
    }

    /// A peer says that we cannot take part, or not any more. What was meant for an earlier start of ours does not count.
    fn refuse(&mut self, now: Instant, index: usize, hello: &Hello, reason: Refusal) {
        if hello.yours != self.config.incarnation || self.meet_again(now, index, hello, reason) {
            return;
        }
        if self.phase == Phase::Lobby && !self.refused {
            self.refused = true;
            self.events.push(Event::Refused { site: hello.site, reason });
        }
        // Once we were let in, also before we play: then the order that let us in came to nothing.
        if self.pacer.is_some() && reason == Refusal::Dropped {
            self.take_refusal(now, index);
        }
    }

    /// A site says whether it is about to leave. Before the start that keeps the others in the lobby until it comes back; after
    /// the start it means that its inputs end before the first.
    fn take_leaving(&mut self, index: usize, leaving: bool) {
        let peer = &mut self.peers[index];
        if self.start.is_none() && leaving && !peer.lobby.left {
            self.events.push(Event::Left { site: peer.site, frame: self.frame });
        }
        peer.lobby.left = leaving;
        if leaving && self.start.is_some() && !peer.lobby.playing {
            self.take_leave(index, Frame::new(self.config.settings.lag));
        }
    }

    /// The sites that we agree with, ourselves included.
    pub(super) fn agreed(&self) -> SiteSet {
        let peers = self.peers.iter().filter(|peer| peer.lobby.agreed).map(|peer| peer.site);
        peers.chain([self.config.site]).collect()
    }

    /// The sites that are not here, not agreed with, or do not agree with everybody themselves.
    pub(super) fn missing_in_lobby(&self) -> SiteSet {
        let everyone = self.config.settings.starters;
        let missing =
            |peer: &&Peer| peer.lobby.left || !peer.lobby.agreed || !peer.lobby.agrees_with.contains_all(everyone);
        let needed = |peer: &&Peer| everyone.contains(peer.site);
        self.peers.iter().filter(needed).filter(missing).map(|peer| peer.site).collect()
    }

    /// The lowest site names the start when everybody agrees with everybody.
    #[cold]
    pub(super) fn try_start(&mut self, now: Instant) {
        let lowest = self.config.settings.starters.iter().next() == Some(self.config.site);
        let ready = self.phase == Phase::Lobby && !self.refused && self.leaving.is_none();
        if ready && lowest && self.missing_in_lobby().is_empty() {
            let slowest = self.peers.iter().map(|peer| peer.clock.rtt().unwrap_or_default() + peer.clock.jitter() * 4);
            let lead = (slowest.max().unwrap_or_default() * 2 + TimeDelta::from_millis(100)).min(LONGEST_LEAD);
            self.set_start(GroupInstant::from_nanos((now + lead).as_nanos()), now + lead);
        }
    }

    /// Another site knows when the game starts.
    fn learn_start(&mut self, now: Instant, start_ns: Option<i64>) {
        let Some(start_ns) = start_ns else { return };
        if self.phase == Phase::Joining {
            self.start = Some(GroupInstant::from_nanos(start_ns));
        }
        if self.phase != Phase::Lobby || self.refused || !self.agreed().contains_all(self.config.settings.starters) {
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
        self.start = Some(start);
        self.phase = Phase::Starting { at };
        self.events.push(Event::Starting { at });
        for index in 0..self.peers.len() {
            if self.peers[index].lobby.left {
                self.take_leaving(index, true);
            }
        }
        if self.leaving.is_some() {
            // The others count on us; only in a running game can we say that our inputs end before the first.
            self.start_running(at);
        }
    }

    #[cold]
    pub(super) fn encode_hello(&mut self, now: Instant, index: usize, buf: &mut [u8]) -> usize {
        let agreed = self.agreed();
        let ready = self.is_ready_to_join();
        if let Some(joining) = self.joining.as_mut().filter(|_| ready) {
            joining.told_ready = true;
        }
        // In a hello, leaving means that there are no inputs at all. Whoever has given some says in ticks where they end.
        let leaving = self.leaving.is_some_and(|leave| leave.frame.number() == self.config.settings.lag);
        let alone = self.refusal_of_left_behind(index);
        let waits = self.phase == Phase::Joining && self.leaving.is_none() && self.seat_to_take().is_none();
        let peer = &mut self.peers[index];
        peer.lobby.hello_due = false;
        let echo = peer.take_echo(now);
        let refusal = match peer.lobby.joining {
            None if alone.is_some() => alone,
            None if peer.dropped || peer.lobby.in_vain => Some(Refusal::Dropped),
            None if peer.lobby.playing && self.start.is_some() => Some(Refusal::Running),
            _ => None,
        };
        let hello = Hello {
            session: self.config.session,
            site: self.config.site,
            incarnation: self.config.incarnation,
            yours: peer.newest_incarnation,
            agreed,
            leaving,
            joining: waits.then_some(ready),
            refusal,
            stamp_us: now.as_micros() as u64,
            echo: echo.map(|(stamp, held)| (stamp as u64, held.as_nanos().clamp(0, i64::from(u32::MAX)) as u32)),
            start_ns: self.start.map(GroupInstant::as_nanos),
            settings: self.config.settings.clone(),
        };
        hello.encode(buf).expect("checked settings fit into a packet")
    }
}
