//! What is done from time to time: clocks, who is here, what is kept.

use alloc::vec::Vec;

use super::send::Control;
use super::snapshot::Given;
use super::{GroupTime, Mirror, Notice, Peer, Source, Stream};
use crate::time::TimeDelta;

/// Round trips that are made at once, for a clock, and how soon; then less so until it is known; then seldom, unless they vary much.
const FIRST_PROBES: u32 = 12;
const PROBE_AT_ONCE: TimeDelta = TimeDelta::from_millis(40);
const PROBE_SOON: TimeDelta = TimeDelta::from_millis(100);
const PROBE_LATER: TimeDelta = TimeDelta::from_secs(1);
const UNEVEN: TimeDelta = TimeDelta::from_millis(4);
/// Who has heard of no time for so long begins one.
const FOUND: TimeDelta = TimeDelta::from_secs(2);
/// Whose time is followed must have been heard so lately.
const TRUSTED: TimeDelta = TimeDelta::from_secs(1);
/// Of a source that is gone, what is obsolete and was asked for so often is not waited for.
const IN_VAIN: u32 = 3;

impl Mirror {
    /// Does what is due.
    pub(super) fn tidy(&mut self) {
        self.ask_for_clocks();
        if self.now < self.next_beacon {
            return;
        }
        if self.peers.is_empty() {
            self.next_beacon = self.now + super::send::BEACON;
        }
        self.forget_silent();
        self.keep_time();
        self.forget_stable();
        self.pass_over_lost();
        self.look_for_snapshots();
    }

    fn ask_for_clocks(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (source, peer) in &mut self.peers {
            if now < peer.next_probe || peer.left.is_some() {
                continue;
            }
            peer.probes = peer.probes.saturating_add(1);
            peer.next_probe = now
                + match peer.probes {
                    ..FIRST_PROBES => PROBE_AT_ONCE,
                    _ if !peer.is_here => PROBE_LATER,
                    _ if !peer.clock.is_ready() || peer.clock.jitter() > UNEVEN => PROBE_SOON,
                    _ => PROBE_LATER,
                };
            due.push(*source);
        }
        due.into_iter().for_each(|source| self.push_control(source, Control::Probe));
    }

    fn forget_silent(&mut self) {
        let (now, patience) = (self.now, self.config.forget);
        let mut gone = Vec::new();
        for (source, peer) in self.peers.iter_mut().filter(|(_, peer)| now - peer.heard >= patience) {
            if core::mem::replace(&mut peer.is_here, false) {
                gone.push(*source);
            }
        }
        gone.into_iter().for_each(|source| self.tell(Notice::Left(source)));
        self.peers.retain(|_, peer| peer.is_vouched_for || now - peer.heard < patience * 20);
    }

    /// Follows the time of the lowest source that knows it; begins one if nobody does.
    fn keep_time(&mut self) {
        let (now, me) = (self.now, self.config.source);
        let told = |peer: &Peer| (peer.is_here && now - peer.heard < TRUSTED).then(|| peer.group_ahead_of_us(now))?;
        let known = self.peers.iter().filter_map(|(source, peer)| told(peer).map(|ahead| (*source, ahead)));
        let is_followed = |(source, ahead): &(Source, TimeDelta)| {
            (*source < me || self.time.is_left_behind(*ahead)) && !self.time.is_far_ahead(*ahead)
        };
        let mut followed = known.filter(is_followed);
        if let Some((_, ahead)) = followed.next() {
            self.time.steer(now, ahead);
        } else if self.time.ahead().is_none() && now - self.began >= FOUND && !self.is_time_told() {
            self.time = GroupTime::begin(now);
        }
    }

    /// Whether somebody knows the time, though we do not know its clock yet.
    fn is_time_told(&self) -> bool {
        self.peers.values().any(|peer| peer.is_here && peer.group_ahead.is_some())
    }

    /// Lets go of what everybody who is here has.
    fn forget_stable(&mut self) {
        for (of, stream) in &mut self.streams {
            let here = self.peers.iter().filter(|(source, peer)| peer.is_here && *source != of);
            let stable = here.map(|(_, peer)| peer.have(*of).map_or(0, |have| have.settled_end)).min();
            let given = self.given.get(of).map(Given::settled);
            stream.forget(stable.unwrap_or(u64::MAX), self.config.history, given);
        }
    }

    /// Of who is gone nobody may have what is obsolete.
    fn pass_over_lost(&mut self) {
        let lost = |stream: &Stream| {
            let in_vain = stream.missing().iter().filter(|missing| missing.times >= IN_VAIN);
            in_vain.map(|missing| missing.seq).filter(|seq| stream.is_obsolete(*seq)).collect::<Vec<u64>>()
        };
        let gone = self.streams.iter().filter(|(source, stream)| !self.is_here(**source) && stream.has_droppable());
        let lost: Vec<(Source, Vec<u64>)> = gone.map(|(source, stream)| (*source, lost(stream))).collect();
        for (source, seqs) in lost {
            seqs.into_iter().for_each(|seq| self.drop_event(source, seq));
        }
    }
}
