//! Servers that mirror each other until all is said, and what the first of them saw.

use coplay::mirror::{DeliveryOrder, DropPolicy, GtdMeasure, MirrorConfig, SourceId};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::clock::NodeClock;
use coplay_sim::link::{Delay, LinkConfig, Loss};
use coplay_sim::mirror::{EventScript, MirrorNetwork, MirrorObservation, MirrorServerPlan};

use crate::numbers::ms;

/// Clocks get to know each other before anything is said.
const WARM_UP: TimeDelta = TimeDelta::from_secs(5);
/// After the last event all must have arrived by then.
const SETTLING_TIME: TimeDelta = TimeDelta::from_secs(4);

/// What the paper does not say, or leaves open.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkModel {
    /// Mean delays from the senders to the receiver, in milliseconds.
    pub(super) delays_ms: [f64; 7],
    /// Their standard deviation, as a part of the mean.
    pub(super) relative_deviation: f64,
    /// The part of all packets that is lost.
    pub(super) loss: f64,
    /// How long the receiver works on an event, in milliseconds.
    pub(super) processing_ms: f64,
    /// What policies go by.
    pub(super) measure: GtdMeasure,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub(super) struct MirrorTrial {
    pub(super) seed: u64,
    pub(super) senders: usize,
    /// Events of each.
    pub(super) events: u32,
    pub(super) policy: DropPolicy,
    pub(super) model: NetworkModel,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct TrialOutcome {
    /// How long each event took that was delivered, in milliseconds.
    pub(super) gtds_ms: Vec<f64>,
    /// Events that were issued.
    pub(super) issued: u64,
    /// Obsolete events that were here and dropped.
    pub(super) dropped: u64,
    /// Obsolete events that were missing and not waited for.
    pub(super) skipped: u64,
    pub(super) retransmit_requests: u64,
    /// The game as it is in the end at each server, run after run.
    pub(super) states: Vec<u64>,
    /// Everything that was issued was delivered or dropped everywhere, and all states of a run are equal.
    pub(super) is_settled: bool,
}

impl MirrorTrial {
    fn server_plan(&self, seat: usize) -> MirrorServerPlan {
        // One object for each server, as the paper has it: nine of ten events make those before useless.
        let script = EventScript {
            every: ms(30.0),
            spread: ms(10.0),
            count: self.events,
            keys: 1,
            shares: [0.9, 0.0, 0.0, 0.0],
            bytes: 200,
        };
        let config = MirrorConfig {
            order: DeliveryOrder::Total,
            policy: self.policy,
            measure: self.model.measure,
            max_obsolete_set: coplay::mirror::MAX_OBSOLETE_SET,
            ..MirrorConfig::new(SourceId(0))
        };
        let clock =
            NodeClock { offset: TimeDelta::from_secs(1_000 * seat as i64), skew_ppm: 15.0 * seat as f64 - 45.0 };
        MirrorServerPlan { clock, config, work: ms(self.model.processing_ms), script, bulk: 0 }
    }

    /// The way between the receiver and a sender is that sender's; between two senders it is as long as theirs are on average.
    fn link(&self, from: usize, to: usize) -> LinkConfig {
        let delay = |seat: usize| seat.checked_sub(1).map(|sender| self.model.delays_ms[sender]);
        let mean = match (delay(from), delay(to)) {
            (Some(one), Some(other)) => (one + other) / 2.0,
            (one, other) => one.or(other).unwrap_or(0.0),
        };
        LinkConfig {
            delay: Delay::LogNormal { mean: ms(mean), sd: ms(mean * self.model.relative_deviation) },
            reorder: true,
            loss: Loss::Independent(self.model.loss),
            ..LinkConfig::default()
        }
    }

    pub(super) fn run(&self) -> TrialOutcome {
        let plans: Vec<MirrorServerPlan> = (0..=self.senders).map(|seat| self.server_plan(seat)).collect();
        let mut senate = MirrorNetwork::new(self.seed, &plans, |from, to| self.link(from, to));
        (0..=self.senders).for_each(|seat| senate.start_server(seat));
        senate.run_until(Instant::ZERO + WARM_UP, |_, _| ());
        (1..=self.senders).for_each(|seat| senate.start_issuing(seat));
        let mut gtds_ms = Vec::new();
        let mut watch = |seat, seen| {
            if let (0, MirrorObservation::Delivered { gtd, is_own: false, .. }) = (seat, seen) {
                gtds_ms.push(gtd.as_millis_f64());
            }
        };
        while (1..=self.senders).any(|seat| !senate.has_stopped_issuing(seat)) {
            senate.run_until(senate.now() + TimeDelta::from_secs(1), &mut watch);
        }
        senate.run_until(senate.now() + SETTLING_TIME, &mut watch);
        self.outcome(&senate, gtds_ms)
    }

    fn outcome(&self, senate: &MirrorNetwork, gtds_ms: Vec<f64>) -> TrialOutcome {
        let servers: Vec<_> = (0..=self.senders).filter_map(|seat| senate.server(seat)).collect();
        // The parts of a state in the order of seats: who is which source is chosen anew in every run.
        let state = |server: &&coplay_sim::mirror::MirrorServer| {
            let mut parts: Vec<(usize, u64)> = server
                .source_states
                .iter()
                .map(|(source, part)| (senate.node_of(*source).unwrap_or(usize::MAX), part.hash()))
                .collect();
            parts.sort_unstable();
            parts.into_iter().fold(0, |hash, (seat, part)| {
                coplay_sim::toy_machine::mix_hash(coplay_sim::toy_machine::mix_hash(hash, seat as u64), part)
            })
        };
        let is_settled = |server: &&coplay_sim::mirror::MirrorServer| {
            senate.sources().all(|source| server.mirror.settled(source) as usize == senate.issued_events(source).len())
        };
        let states: Vec<u64> = servers.iter().map(state).collect();
        let stats = servers[0].mirror.stats();
        TrialOutcome {
            gtds_ms,
            issued: u64::from(self.events) * self.senders as u64,
            dropped: stats.dropped,
            skipped: stats.skipped,
            retransmit_requests: stats.requested,
            is_settled: servers.iter().all(is_settled) && states.iter().all(|state| *state == states[0]),
            states,
        }
    }

    /// Several runs, put together.
    pub(super) fn run_with_seeds(&self, count: u64) -> TrialOutcome {
        let runs = (1..count).map(|more| Self { seed: self.seed.wrapping_add(more << 32), ..*self }.run());
        runs.fold(self.run(), TrialOutcome::merge)
    }
}

impl TrialOutcome {
    fn merge(mut self, other: Self) -> Self {
        self.gtds_ms.extend(other.gtds_ms);
        self.states.extend(other.states);
        self.issued += other.issued;
        self.dropped += other.dropped;
        self.skipped += other.skipped;
        self.retransmit_requests += other.retransmit_requests;
        self.is_settled &= other.is_settled;
        self
    }

    /// The part of all delivered events that took longer than this.
    pub(super) fn share_over(&self, threshold_ms: f64) -> f64 {
        let over = self.gtds_ms.iter().filter(|gtd| **gtd > threshold_ms).count();
        over as f64 / self.gtds_ms.len().max(1) as f64
    }

    /// The part of all events that was not delivered.
    pub(super) fn drop_share(&self) -> f64 {
        (self.dropped + self.skipped) as f64 / self.issued.max(1) as f64
    }

    pub(super) fn mean_gtd_ms(&self) -> f64 {
        crate::numbers::mean(&self.gtds_ms)
    }

    pub(super) fn gtd_deviation_ms(&self) -> f64 {
        let mean = self.mean_gtd_ms();
        let squares: f64 = self.gtds_ms.iter().map(|gtd| (gtd - mean).powi(2)).sum();
        (squares / self.gtds_ms.len().max(1) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_policy_delivers_everything_and_adaptive_drops_only_obsolete_events() {
        let trial = |policy| {
            MirrorTrial { seed: 3, senders: 4, events: 100, policy, model: super::super::CALIBRATED_MODEL }.run()
        };
        let off = trial(DropPolicy::Off);
        assert_eq!((off.gtds_ms.len(), off.drop_share()), (400, 0.0));
        let ours = trial(DropPolicy::Adaptive { threshold: coplay::mirror::DEFAULT_GIT });
        assert!(off.is_settled && ours.is_settled && off.states == ours.states);
        assert!(ours.drop_share() > 0.0 && ours.share_over(150.0) < off.share_over(150.0));
        assert!(off.gtds_ms.iter().all(|gtd| *gtd > 40.0), "nothing is quicker than the network");
    }
}
