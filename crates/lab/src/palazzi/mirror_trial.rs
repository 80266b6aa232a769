//! Runs mirrored servers until 4 s or more after the last event, and measures the first server, which only receives.

use coplay::mirror::{DeliveryOrder, DropPolicy, GtdMeasure, MirrorConfig, SourceId};
use coplay::time::{Instant, TimeDelta};
use coplay_links::link::{Delay, LinkConfig, Loss};
use coplay_sim::clock::NodeClock;
use coplay_sim::mirror::{EventScript, MirrorNetwork, MirrorObservation, MirrorServerPlan};

use crate::numbers::ms;

/// Time before the first event, in which the clocks synchronise.
const WARM_UP: TimeDelta = TimeDelta::from_secs(5);
/// Time after the last events were issued, within which all events must be delivered or dropped.
const SETTLING_TIME: TimeDelta = TimeDelta::from_secs(4);

/// Parameters of network and servers that the paper leaves open.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkModel {
    /// Mean delay from each sender to the receiver, in milliseconds.
    pub(super) delays_ms: [f64; 7],
    /// Standard deviation of the delays, relative to the mean.
    pub(super) relative_deviation: f64,
    /// Fraction of all packets lost, on every link.
    pub(super) loss: f64,
    /// Processing time per event, in milliseconds.
    pub(super) processing_ms: f64,
    /// Events whose game time difference ON-OFF and ILA sample.
    pub(super) measure: GtdMeasure,
}

/// Settings of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct MirrorTrial {
    pub(super) seed: u64,
    pub(super) senders: usize,
    /// Number of events that each sender issues.
    pub(super) events: u32,
    pub(super) policy: DropPolicy,
    pub(super) model: NetworkModel,
}

/// Measurements of one or several runs.
#[derive(Clone, Debug)]
pub(super) struct TrialOutcome {
    /// Game time difference (GTD) of each event of another server at its delivery by the receiver, in milliseconds.
    pub(super) gtds_ms: Vec<f64>,
    /// Number of events issued by all senders.
    pub(super) issued: u64,
    /// Obsolete events that had arrived at the receiver and were dropped.
    pub(super) dropped: u64,
    /// Obsolete events that were missing at the receiver and skipped.
    pub(super) skipped: u64,
    pub(super) retransmit_requests: u64,
    /// Hash of the final state of each server, run after run.
    pub(super) states: Vec<u64>,
    /// Whether every server delivered or dropped every issued event, and all final states of a run are equal.
    pub(super) is_settled: bool,
}

impl MirrorTrial {
    fn server_plan(&self, node: usize) -> MirrorServerPlan {
        // One object per server, as in the paper: nine of ten events make the earlier ones obsolete.
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
            NodeClock { offset: TimeDelta::from_secs(1_000 * node as i64), skew_ppm: 15.0 * node as f64 - 45.0 };
        MirrorServerPlan { clock, config, work: ms(self.model.processing_ms), script, bulk: 0 }
    }

    /// Returns the link between two servers. The delay between the receiver and a sender is that sender's; the delay
    /// between two senders is the mean of theirs.
    fn link(&self, from: usize, to: usize) -> LinkConfig {
        let delay = |node: usize| node.checked_sub(1).map(|sender| self.model.delays_ms[sender]);
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
        let plans: Vec<MirrorServerPlan> = (0..=self.senders).map(|node| self.server_plan(node)).collect();
        let mut network = MirrorNetwork::new(self.seed, &plans, |from, to| self.link(from, to));
        (0..=self.senders).for_each(|node| network.start_server(node));
        network.run_until(Instant::ZERO + WARM_UP, |_, _| ());
        (1..=self.senders).for_each(|node| network.start_issuing(node));
        let mut gtds_ms = Vec::new();
        let mut on_observation = |node, observation| {
            if let (0, MirrorObservation::Delivered { gtd, is_own: false, .. }) = (node, observation) {
                gtds_ms.push(gtd.as_millis_f64());
            }
        };
        while (1..=self.senders).any(|node| !network.has_stopped_issuing(node)) {
            network.run_until(network.now() + TimeDelta::from_secs(1), &mut on_observation);
        }
        network.run_until(network.now() + SETTLING_TIME, &mut on_observation);
        self.outcome(&network, gtds_ms)
    }

    fn outcome(&self, network: &MirrorNetwork, gtds_ms: Vec<f64>) -> TrialOutcome {
        let servers: Vec<_> = (0..=self.senders).filter_map(|node| network.server(node)).collect();
        // The parts of a state are ordered by node, since source ids differ between runs.
        let state = |server: &&coplay_sim::mirror::MirrorServer| {
            let mut parts: Vec<(usize, u64)> = server
                .source_states
                .iter()
                .map(|(source, part)| (network.node_of(*source).unwrap_or(usize::MAX), part.hash()))
                .collect();
            parts.sort_unstable();
            parts.into_iter().fold(0, |hash, (node, part)| {
                coplay_sim::toy_machine::mix_hash(coplay_sim::toy_machine::mix_hash(hash, node as u64), part)
            })
        };
        let is_settled = |server: &&coplay_sim::mirror::MirrorServer| {
            network
                .sources()
                .all(|source| server.mirror.settled(source) as usize == network.issued_events(source).len())
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

    /// Runs the trial with `count` different seeds and merges the outcomes.
    pub(super) fn run_with_seeds(&self, count: u64) -> TrialOutcome {
        let runs = (1..count).map(|run| Self { seed: self.seed.wrapping_add(run << 32), ..*self }.run());
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

    /// Returns the fraction of delivered events whose game time difference exceeds the threshold.
    pub(super) fn share_over(&self, threshold_ms: f64) -> f64 {
        let over = self.gtds_ms.iter().filter(|gtd| **gtd > threshold_ms).count();
        over as f64 / self.gtds_ms.len().max(1) as f64
    }

    /// Returns the fraction of issued events that the receiver dropped or skipped.
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
        assert!(off.gtds_ms.iter().all(|gtd| *gtd > 40.0), "no event is faster than the network");
    }
}
