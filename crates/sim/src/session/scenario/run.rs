//! Runs a session scenario: injects its faults and records its events for the checkers.

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::session::{Event, SessionEnd};
use coplay::time::{Instant, TimeDelta};

use super::{MachineFault, SessionFault, SessionScenario};
use crate::scenario_result::ScenarioResult;
use crate::session::checker::SessionChecker;
use crate::session::recording::{self, MovieRecording};
use crate::session::spectators::{self, SpectatorNetwork};
use crate::session_network::{SessionNetwork, SiteEvent};

impl SessionScenario {
    /// Runs the scenario, and checks its sites, spectators and movie.
    pub fn run(&self) -> ScenarioResult {
        let mut checker = SessionChecker::new(self.ownership_masks(), self.input_delay);
        checker.absent_input = self.absent_input;
        checker.delay_plus_prediction = (self.input_delay + self.prediction_window) as usize;
        checker.late_joiners = (0..self.sites).map(|site| self.is_late_joiner(site)).collect();
        let mut run = SessionRun {
            checker,
            divergence: None,
            drops_before_recovery: 0,
            reports_before_restart: usize::MAX,
            desync_reports: Vec::new(),
            forged_input_events: Vec::new(),
            incarnations: vec![1; self.sites],
            end_reasons: vec![None; self.sites],
            divergence_events: Vec::new(),
            spectators: self
                .spectators
                .clone()
                .map(|plan| SpectatorNetwork::new(self.seed, self.seed | 1, self.settings(), plan)),
            recording: self.movie_site.map(|site| MovieRecording::new(self.seed, site, &self.settings())),
        };
        let mut network = self.build_network();
        for (at, fault) in &self.faults {
            run.run_until(&mut network, *at);
            self.apply_fault(&mut network, fault, &mut run);
        }
        let recovered = self.recovery_deadline();
        while network.now() < recovered {
            let next = (network.now() + TimeDelta::from_millis(100)).min(recovered);
            run.run_until(&mut network, next);
            self.restart_diverged_site(&mut network, &mut run);
        }
        let running = run.checker.confirmed_frames.clone();
        run.drops_before_recovery = (0..self.sites).filter(|site| run.checker.was_dropped(*site)).count();
        run.run_until(&mut network, self.end_time());
        self.check_desync_reports(&mut run);
        Self::check_divergence_events(&mut run);
        self.check_liveness(&network, &mut run, &running);
        self.check_spectators_and_movie(&network, &mut run, &running);
        self.result(&network, &run)
    }

    fn apply_fault(&self, network: &mut SessionNetwork, fault: &SessionFault, run: &mut SessionRun) {
        match fault {
            SessionFault::Crash(site) => {
                network.crash(*site);
                run.checker.on_crash(*site);
            }
            SessionFault::Leave(site) if !network.nodes[*site].is_crashed => {
                let local = network.nodes[*site].clock.local(network.now());
                network.nodes[*site].session.leave(local);
                run.checker.on_leave(*site);
                network.wake(*site);
            }
            SessionFault::Leave(_) => {}
            SessionFault::Start(site) if !network.nodes[*site].is_crashed => {}
            SessionFault::Start(site) => {
                run.incarnations[*site] += 1;
                self.restart_site(network, *site, run.incarnations[*site]);
                run.checker.on_restart(*site);
                run.end_reasons[*site] = None;
            }
            // A machine whose session is over diverges from no other.
            SessionFault::Engine(MachineFault::Diverge(site)) if run.end_reasons[*site].is_some() => {}
            SessionFault::Engine(MachineFault::Diverge(site)) => {
                let frame = network.nodes[*site].session.stats().frame.number() + 5;
                network.nodes[*site].diverges_at = Some(frame);
                run.checker.on_divergence(self.diverged_site(*site), frame);
                run.divergence = Some((*site, frame));
            }
            SessionFault::Engine(MachineFault::Slow(site, cost)) => network.nodes[*site].step_cost = *cost,
            _ => _ = network.apply(fault, &mut |_| ()),
        }
    }

    fn result(&self, network: &SessionNetwork, run: &SessionRun) -> ScenarioResult {
        ScenarioResult {
            trace_hash: run.checker.trace_hash,
            violations: run.checker.find_violations().iter().map(ToString::to_string).collect(),
            frames: run.checker.total_confirmed,
            activity_count: run.checker.spectated_frames,
            recorded: run.checker.movie_frames,
            rejected_datagrams: network.nodes.iter().map(|site| site.session.stats().dropped_datagrams.total()).sum(),
            ..ScenarioResult::of_network(network, &self.faults, self.features())
        }
    }

    /// Returns the site that counts as diverged when the machine of site `corrupted` was corrupted. Of two sites, that
    /// is always the second.
    pub(super) fn diverged_site(&self, corrupted: usize) -> usize {
        if self.sites == 2 { 1 } else { corrupted }
    }

    /// Restarts the diverged site once, after it has reported the desync, so that it loads the others' state.
    fn restart_diverged_site(&self, network: &mut SessionNetwork, run: &mut SessionRun) {
        let Some((corrupted, _)) = run.divergence.filter(|_| self.restarts_diverged_site) else { return };
        let diverged = self.diverged_site(corrupted);
        if run.incarnations[diverged] == 1 && run.desync_reports.iter().any(|(site, ..)| *site == diverged) {
            run.incarnations[diverged] += 1;
            run.reports_before_restart = run.desync_reports.len();
            self.restart_site(network, diverged, 2);
            run.checker.on_restart(diverged);
        }
    }
}

#[derive(Debug)]
pub(super) struct SessionRun {
    pub(super) checker: SessionChecker,
    pub(super) end_reasons: Vec<Option<SessionEnd>>,
    /// Number of sites that were dropped before the recovery deadline.
    pub(super) drops_before_recovery: usize,
    /// Number of desync reports before the restart of the diverged site; `usize::MAX` without a restart.
    pub(super) reports_before_restart: usize,
    /// Site whose machine is corrupted, and the frame after whose step it is corrupted.
    pub(super) divergence: Option<(usize, u32)>,
    /// Desync reports: reporting site, first frame that differs, and odd site.
    pub(super) desync_reports: Vec<(usize, Option<u32>, Option<SiteId>)>,
    /// Reports of forged inputs: reporting site, site whose inputs are forged, and frame.
    pub(super) forged_input_events: Vec<(usize, usize, u32)>,
    /// Newest incarnation number of each site: 1, plus 1 for each restart. The start of a late joiner counts as a
    /// restart.
    pub(super) incarnations: Vec<u32>,
    /// Reports of differing states: reporting site, other site, and frame.
    pub(super) divergence_events: Vec<(usize, usize, u32)>,
    pub(super) spectators: Option<SpectatorNetwork>,
    /// Movie of one site's first incarnation; `None` if none is recorded.
    pub(super) recording: Option<MovieRecording>,
}

impl SessionRun {
    /// Runs the network, the spectators and the movie recording in turns up to the true time `until`.
    fn run_until(&mut self, network: &mut SessionNetwork, until: Instant) {
        let step = match (&self.spectators, &self.recording) {
            (Some(_), _) => spectators::STEP_INTERVAL,
            (None, Some(_)) => recording::RECORD_INTERVAL,
            (None, None) => TimeDelta::MAX,
        };
        loop {
            let next = if until - network.now() > step { network.now() + step } else { until };
            network.run_until(next, &mut |event| self.on_event(event));
            if let Some(spectators) = &mut self.spectators {
                spectators.catch_up(network, &mut self.checker);
            }
            let incarnations = &self.incarnations;
            if let Some(movie) = self.recording.as_mut().filter(|movie| incarnations[movie.site()] == 1) {
                movie.record_confirmed_frames(&mut network.nodes[movie.site()].session);
            }
            if network.now() >= until {
                return;
            }
        }
    }

    fn on_event(&mut self, event: SiteEvent<'_>) {
        match event {
            SiteEvent::Sampled { site, frame, words, .. } => self.checker.on_sampled(site, frame, words),
            SiteEvent::Confirmed { site, frame, words, hash, .. } => {
                self.checker.on_confirmed(site, frame, words, hash)
            }
            SiteEvent::Stepped { site, at, frame, .. } => self.checker.on_step(site, frame, at.as_nanos()),
            SiteEvent::InvalidRequest { site, description } => {
                self.checker.report_violation("agreement", format!("site {site} {description}"))
            }
            SiteEvent::Restored { site, frame } => self.checker.on_restored(site, frame),
            SiteEvent::SessionEvent { site, event: Event::Ended(end), .. } => {
                self.end_reasons[site] = Some(end);
                if end == SessionEnd::Dropped {
                    self.checker.on_eviction_notice(site);
                }
            }
            SiteEvent::SessionEvent { site, event: Event::InputsForged { site: other, frame }, .. } => {
                self.forged_input_events.push((site, other.index(), frame.number()));
            }
            SiteEvent::SessionEvent { site, event: Event::DesyncReport(report), .. } => {
                self.desync_reports.push((site, report.first_frame.map(Frame::number), report.odd_site));
            }
            SiteEvent::SessionEvent { site, event: Event::Joined { site: joined, frame }, .. } => {
                self.checker.on_join(site, joined.index(), frame.number());
            }
            SiteEvent::SessionEvent { site, event: Event::Dropped { site: dropped, frame }, .. } => {
                self.checker.on_drop(site, dropped.index(), frame.number());
            }
            SiteEvent::SessionEvent { site, event: Event::Diverged { site: other, frame }, .. } => {
                self.divergence_events.push((site, other.index(), frame.number()));
            }
            SiteEvent::Saved { .. } | SiteEvent::Loaded { .. } | SiteEvent::SessionEvent { .. } => {}
        }
    }
}
