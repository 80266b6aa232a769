//! Checks of liveness and bounds. Their limits depend on the links and the faults of a scenario.

use coplay::id::SiteId;
use coplay::input::Recovery;
use coplay::session::{SendPolicy, SessionEnd, StarvationPolicy, State};
use coplay::time::Instant;

use super::run::SessionRun;
use super::{
    DESYNC_RECOVERY_TIME, MAX_IN_FLIGHT_PER_LINK, MAX_MEMORY_PER_SITE, MachineFault, PLAY_TIME, REPLAY_LOG_BYTES,
    START_DEADLINE, SessionFault, SessionScenario,
};
use crate::session_network::SessionNetwork;
use coplay_links::link::{Delay, Jitter, LinkConfig, Loss};

/// Send interval of a site that waits for others, in milliseconds.
const KEEP_ALIVE_INTERVAL_MS: f64 = 100.0;
/// Longest time for which the game stands still while a slow site is evicted, in delays of the worst link: the messages
/// of the ballot, the last inputs of the evicted site, and the other sites' inputs for the next frames.
const DELAYS_PER_EVICTION: f64 = 8.0;
/// Upper limit of the standstill of one eviction, in seconds. For links with loss and jitter,
/// [`SessionScenario::min_fps`] already has a margin.
const MAX_EVICTION_SECONDS: f64 = 1.0;
/// Probability below which an event counts as impossible.
const NEGLIGIBLE_PROBABILITY: f64 = 1e-5;

impl SessionScenario {
    /// Checks that every dropped site was affected by a fault, has unreliable links, may have stalled the others, or
    /// ended by its own silence timeout.
    pub(super) fn check_drops(&self, run: &mut SessionRun) {
        let late = |site: usize| self.may_stall_others(site) || self.may_lose_too_many_in_a_row(site);
        let excused = |site: usize| self.is_affected_by_fault(site) || !self.has_reliable_links(site) || late(site);
        for site in (0..self.sites).filter(|site| !excused(*site)) {
            if run.checker.was_dropped(site) && !matches!(run.end_reasons[site], Some(SessionEnd::Silent(_))) {
                run.checker
                    .report_violation("agreement", format!("no fault, link or stall explains the drop of site {site}"));
            }
        }
    }

    /// Returns whether a fault or the sabotage affects a site or one of its links. Garbage affects no site.
    fn is_affected_by_fault(&self, site: usize) -> bool {
        let is_sabotaged = self.sabotage.is_some() && site + 1 == self.sites;
        is_sabotaged
            || self.faults.iter().any(|(_, fault)| match fault {
                SessionFault::Cut(one, other)
                | SessionFault::Heal(one, other)
                | SessionFault::CutOneWay(one, other)
                | SessionFault::HealOneWay(one, other)
                | SessionFault::Worsen(one, other, _)
                | SessionFault::Restore(one, other) => [*one, *other].contains(&site),
                SessionFault::Pause(one, _)
                | SessionFault::Suspend(one, _)
                | SessionFault::Engine(MachineFault::Slow(one, _)) => *one == site,
                SessionFault::StepClock(one, _) => *one == site,
                SessionFault::Crash(one)
                | SessionFault::Start(one)
                | SessionFault::Leave(one)
                | SessionFault::Move(one) => *one == site,
                SessionFault::Engine(MachineFault::Diverge(one)) => self.diverged_site(*one) == site,
                SessionFault::Split(_) | SessionFault::HealAll => true,
                SessionFault::Garbage(..) => false,
            })
    }

    /// Returns whether runs of lost packets that are long enough to cause a drop are negligibly rare on all links of a
    /// site, even at the lowest send rate.
    fn has_reliable_links(&self, site: usize) -> bool {
        let period = self.frame_rate.period().as_millis_f64();
        let others = (0..self.sites).filter(|other| *other != site);
        others.flat_map(|other| [(site, other), (other, site)]).all(|(from, to)| {
            let link = &self.links[from * self.sites + to];
            let limit = self.drop_timeouts.as_ref().map_or(f64::INFINITY, |limits| limits[to].as_millis_f64() / 2.0);
            let packets = (limit - 2.0 * worst_input_wait_ms(link, period, false)) / KEEP_ALIVE_INTERVAL_MS;
            packets > 1.0 && loss_run_probability(link, packets, KEEP_ALIVE_INTERVAL_MS) < NEGLIGIBLE_PROBABILITY
        })
    }

    /// Returns whether a site may stall the others until they drop it. Its links may be too long or too uneven for
    /// input delay and prediction window, or its machine too slow. Or a fault affects a lower site, which may be the
    /// coordinator and then lacks the site's inputs. Returns `false` without a stall limit, because then no site is
    /// dropped for stalls.
    fn may_stall_others(&self, site: usize) -> bool {
        if self.stall_limit.is_none() {
            return false;
        }
        if (0..site).any(|lower| self.is_affected_by_fault(lower)) {
            return true;
        }
        let period = self.frame_rate.period().as_millis_f64();
        let history = self.requests_lost_inputs();
        let others = (0..self.sites).filter(|other| *other != site);
        let directions = others.flat_map(|other| [(site, other), (other, site)]);
        let interval = self.longest_send_interval_ms();
        let wait = directions.map(|(from, to)| {
            let (link, reverse) = (&self.links[from * self.sites + to], &self.links[to * self.sites + from]);
            let uses_requests = [from, to].iter().any(|site| self.recovery[*site] == Recovery::Classic);
            let request_wait = if uses_requests { worst_request_wait_ms(link, reverse, period) } else { 0.0 };
            worst_input_wait_ms(link, interval, history) + request_wait
        });
        let step = self.step_cost[site].as_millis_f64() * f64::from(1 + self.prediction_window);
        wait.fold(0.0, f64::max) + step > 0.7 * f64::from(self.input_delay + self.prediction_window) * period
    }

    /// Returns the longest time between two packets to a peer while the game runs, in milliseconds: a frame period, or
    /// with [`SendPolicy::Measured`] half of the input delay if that is longer.
    fn longest_send_interval_ms(&self) -> f64 {
        let is_measured = self.sending == SendPolicy::Measured;
        let frames = if is_measured { (f64::from(self.input_delay) / 2.0).max(1.0) } else { 1.0 };
        frames * self.frame_rate.period().as_millis_f64()
    }

    /// Returns whether a run of lost packets to or from a site lasts longer than input delay, prediction window and
    /// stall limit together, with a probability of more than [`NEGLIGIBLE_PROBABILITY`]. Returns `false` without a
    /// stall limit. [`worst_input_wait_ms`] considers only the mean length of such a run.
    fn may_lose_too_many_in_a_row(&self, site: usize) -> bool {
        let Some(stall_limit) = self.stall_limit else { return false };
        let period = self.frame_rate.period().as_millis_f64();
        let limit = f64::from(self.input_delay + self.prediction_window) * period + stall_limit.as_millis_f64();
        let apart = self.longest_send_interval_ms();
        let others = (0..self.sites).filter(|other| *other != site);
        others.flat_map(|other| [(site, other), (other, site)]).any(|(from, to)| {
            let link = &self.links[from * self.sites + to];
            loss_run_probability(link, limit / apart, apart) > NEGLIGIBLE_PROBABILITY
        })
    }

    /// Checks, if a machine was corrupted, that every site has reported the desync with the first frame that differs
    /// and, with three or more sites, the diverged site. A report made after a restart may lack the frame. Scenarios
    /// whose [`min_fps`](SessionScenario::min_fps) is 25 or less are not checked. Discards the reports of differing
    /// states, which are expected then.
    pub(super) fn check_desync_reports(&self, run: &mut SessionRun) {
        let Some((diverged, frame)) = run.divergence else { return };
        run.divergence_events.clear();
        let odd = SiteId::first(self.sites).nth(diverged).filter(|_| self.sites > 2);
        // A restarted site has lost its hashes, and some sites may not have received them before.
        let right = |(at, report): &(usize, &(usize, Option<u32>, Option<SiteId>))| {
            let unanswered = *at >= run.reports_before_restart && report.1.is_none();
            (report.1 == Some(frame) || unanswered) && report.2 == odd
        };
        for site in 0..self.sites {
            let report = run.desync_reports.iter().enumerate().find(|(_, (reporter, ..))| *reporter == site);
            let is_right = report.is_some_and(|report| right(&report));
            let report = report.map(|(_, report)| report);
            if !is_right && self.min_fps() > 25.0 {
                let description =
                    format!("site {site} reports {report:?}, but site {diverged} diverged in frame {frame}");
                run.checker.report_violation("divergence", description);
            }
        }
    }

    /// Checks that no site reported forged inputs or a desync, unless the others dropped it.
    pub(super) fn check_divergence_events(run: &mut SessionRun) {
        for (site, other, frame) in std::mem::take(&mut run.forged_input_events) {
            if !run.checker.was_dropped(site) {
                run.checker.report_violation(
                    "agreement",
                    format!("site {site} has forged inputs of site {other} up to frame {frame}"),
                );
            }
        }
        for (site, _, frame) in std::mem::take(&mut run.divergence_events) {
            if !run.checker.was_dropped(site) {
                run.checker.report_violation("agreement", format!("site {site} reports a desync after frame {frame}"));
            }
        }
    }

    /// Checks the spectators, and compares the movie with the history of the site that recorded it.
    /// `frames_when_healed` is the number of frames that each site had confirmed at the recovery deadline.
    pub(super) fn check_spectators_and_movie(
        &self,
        network: &SessionNetwork,
        run: &mut SessionRun,
        frames_when_healed: &[usize],
    ) {
        let seconds = (self.end_time() - self.recovery_deadline()).as_secs_f64();
        let frames = run.checker.confirmed_frames.iter().zip(frames_when_healed);
        let speeds: Vec<f64> = frames.map(|(now, then)| now.saturating_sub(*then) as f64 / seconds).collect();
        if let Some(spectators) = run.spectators.take() {
            spectators.check(network, &mut run.checker, &speeds);
        }
        if let Some(movie) = run.recording.take() {
            movie.check(&mut run.checker);
        }
    }

    /// Checks that the sites that can run reached [`SessionScenario::min_fps`] after recovery, and checks drops and
    /// bounds. Without drops and joiners, sites that cannot run because others crashed or left must have ended.
    /// `frames_when_healed` is the number of frames that each site had confirmed at the recovery deadline.
    pub(super) fn check_liveness(&self, network: &SessionNetwork, run: &mut SessionRun, frames_when_healed: &[usize]) {
        let seconds = (self.end_time() - self.recovery_deadline()).as_secs_f64();
        let min_fps = self.min_fps();
        self.check_drops(run);
        let left = |site: usize| self.leaves(site);
        let leavers = (0..self.sites).filter(|site| left(*site)).count();
        // A leave before the start leaves the others in the lobby. A session that has started must continue.
        let none_started = run.checker.confirmed_frames.iter().all(|frames| *frames == 0);
        if none_started && (leavers > 0 || self.is_cut_before_the_lobby_agrees()) {
            return self.check_bounds(network, run);
        }
        let has_joiner = |fault: &SessionFault| {
            matches!(fault, SessionFault::Start(_) | SessionFault::Engine(MachineFault::Diverge(_)))
        };
        if self.drop_timeouts.is_some()
            || self.stall_limit.is_some()
            || self.faults.iter().any(|(_, fault)| has_joiner(fault))
        {
            self.check_liveness_with_drops(network, run, frames_when_healed, seconds);
            return self.check_bounds(network, run);
        }
        for site in (0..self.sites).filter(|site| !left(*site) && !network.nodes[*site].is_crashed) {
            let speed = (run.checker.confirmed_frames[site] - frames_when_healed[site]) as f64 / seconds;
            if self.has_crash() {
                self.check_survivor(run, site, speed);
            } else if leavers + 1 >= self.sites {
                // If the only link to the leaving site is cut for good, the last site cannot learn of the leave.
                if run.end_reasons[site] != Some(SessionEnd::Alone) && min_fps > 0.0 {
                    run.checker.report_violation("liveness", format!("site {site} did not learn that it is alone"));
                }
            } else if speed < min_fps {
                let description =
                    format!("site {site} runs at {speed:.1} fps after recovery, but the links allow {min_fps:.1} fps");
                run.checker.report_violation("liveness", description);
            }
        }
        self.check_bounds(network, run);
    }

    /// Checks, in a scenario with drops or joiners, that the sites with a quorum reached [`SessionScenario::min_fps`]
    /// after recovery. Does nothing where that cannot be expected, for example without a quorum or where permanent cuts
    /// separate the sites.
    fn check_liveness_with_drops(
        &self,
        network: &SessionNetwork,
        run: &mut SessionRun,
        frames_when_healed: &[usize],
        seconds: f64,
    ) {
        let left = |site: usize| self.leaves(site);
        let is_out = |site: usize| run.checker.is_dropped(site) || run.end_reasons[site] == Some(SessionEnd::Dropped);
        let alive = |site: &usize| !network.nodes[*site].is_crashed && !left(*site) && !is_out(*site);
        let alive: Vec<usize> = (0..self.sites).filter(alive).collect();
        // A restarted site could not vote before it was back.
        let steady: Vec<usize> = alive.iter().copied().filter(|site| run.incarnations[*site] == 1).collect();
        // A crash is not a leave, though a restarted site may have left later. A leave that no remaining site can
        // receive does not count: the leaving site might as well have crashed or continue with others, so the remaining
        // sites need a quorum that counts it as a voter.
        let has_left = |site: usize| left(site) && !self.is_restarted(site) && self.can_receive_leave(site, &steady);
        let base: Vec<usize> = (0..self.sites).filter(|site| !has_left(*site) && !self.is_late_joiner(*site)).collect();
        let decides = 2 * steady.len() > base.len() || 2 * steady.len() == base.len() && steady.first() == base.first();
        // A late joiner votes from its first frame on. If it and another site crash before either is dropped, the
        // remaining sites may be no quorum.
        let counts = |reporter: usize, site: usize| {
            let in_game = !self.is_late_joiner(site) || run.checker.has_joined(site);
            in_game && !has_left(site) && !run.checker.has_reported_drop(reporter, site)
        };
        let counted = |reporter: usize| (0..self.sites).filter(|site| counts(reporter, *site)).collect::<Vec<usize>>();
        let decides = decides && steady.iter().any(|site| is_quorum(&steady, &counted(*site)));
        // A joining site cannot find a site that changes its address meanwhile.
        let has = |is: fn(&SessionFault) -> bool| self.faults.iter().any(|(_, fault)| is(fault));
        if has(|fault| matches!(fault, SessionFault::Start(_))) && has(|fault| matches!(fault, SessionFault::Move(_))) {
            return;
        }
        // Without drop timeouts, the sites wait for a crashed one.
        let has_crashed = |site: usize| network.nodes[site].is_crashed && !left(site);
        // A site that left before the others learned that it was back counts as crashed.
        let is_leave_lost = |site: usize| {
            let cannot_be_received = self.crashes(site) || !self.can_receive_leave(site, &steady);
            left(site) && cannot_be_received && !run.checker.was_dropped(site)
        };
        let waiting =
            self.drop_timeouts.is_none() && (0..self.sites).any(|site| has_crashed(site) || is_leave_lost(site));
        if waiting
            || !decides
            || self.is_partitioned(&alive)
            || self.may_detect_desync_too_late()
            || run.checker.confirmed_frames.iter().all(|frames| *frames == 0)
        {
            return;
        }
        let is_frozen = |site: &usize| matches!(network.nodes[*site].session.state(), State::Frozen(_));
        let may_be_evicting = alive.iter().any(is_frozen);
        let seconds = seconds - self.eviction_seconds(run, may_be_evicting).min(seconds / 2.0);
        let min_fps = self.min_fps();
        // A site that is alone because all others left need not run. A restarted site that may stall the others may be
        // kept out.
        let may_be_kept_out = |site: usize| self.is_restarted(site) && self.may_stall_others(site);
        for site in alive
            .into_iter()
            .filter(|site| run.end_reasons[*site] != Some(SessionEnd::Alone) && !may_be_kept_out(*site))
        {
            let speed = run.checker.confirmed_frames[site].saturating_sub(frames_when_healed[site]) as f64 / seconds;
            if speed < min_fps {
                let description =
                    format!("site {site} runs at {speed:.1} fps after recovery, but the links allow {min_fps:.1} fps");
                run.checker.report_violation("liveness", description);
            }
        }
    }

    /// Returns the time, in seconds, for which the game may stand still because slow sites are evicted after the
    /// recovery deadline. With `may_be_evicting`, one more eviction may be in progress at the end. Returns 0 if no site
    /// may stall the others.
    fn eviction_seconds(&self, run: &SessionRun, may_be_evicting: bool) -> f64 {
        if !(0..self.sites).any(|site| self.may_stall_others(site)) {
            return 0.0;
        }
        let period = self.frame_rate.period().as_millis_f64();
        let waits = self.inter_site_links().map(|link| worst_input_wait_ms(link, period, self.requests_lost_inputs()));
        let evictions = (0..self.sites).filter(|site| run.checker.was_dropped(*site)).count();
        let evictions = evictions.saturating_sub(run.drops_before_recovery) + usize::from(may_be_evicting);
        let seconds = DELAYS_PER_EVICTION * waits.fold(0.0, f64::max) / 1_000.0;
        evictions as f64 * seconds.min(MAX_EVICTION_SECONDS)
    }

    /// Returns whether two sites are cut off from each other for good before an interval of [`START_DEADLINE`] without
    /// a fault. In the lobby, every site must receive datagrams from every other one.
    fn is_cut_before_the_lobby_agrees(&self) -> bool {
        let Some(cut) = self.permanent_cuts().map(|(at, ..)| at).min() else { return false };
        let mut quiet_since = Instant::ZERO;
        for (at, fault) in self.faults.iter().filter(|(at, _)| *at < cut) {
            if *at > quiet_since + START_DEADLINE {
                return false;
            }
            quiet_since = quiet_since.max(self.fault_end(*at, fault));
        }
        cut < quiet_since + START_DEADLINE
    }

    /// Returns the time from which on the fault that begins at `at` no longer keeps sites from receiving each other's
    /// datagrams.
    fn fault_end(&self, at: Instant, fault: &SessionFault) -> Instant {
        let first = |is_end: &dyn Fn(&SessionFault) -> bool| {
            let end = self.faults.iter().find(|(end, fault)| *end >= at && is_end(fault));
            end.map_or(Instant::FAR_FUTURE, |(end, _)| *end)
        };
        match fault {
            SessionFault::Pause(_, until) | SessionFault::Suspend(_, until) => *until,
            SessionFault::Cut(one, other) => first(&|fault| *fault == SessionFault::Heal(*one, *other)),
            SessionFault::CutOneWay(one, other) => first(&|fault| *fault == SessionFault::HealOneWay(*one, *other)),
            SessionFault::Split(_) => first(&|fault| *fault == SessionFault::HealAll),
            SessionFault::Worsen(one, other, _) => first(&|fault| *fault == SessionFault::Restore(*one, *other)),
            SessionFault::Garbage(..) | SessionFault::Engine(MachineFault::Slow(..)) => Instant::ZERO,
            _ => at,
        }
    }

    /// Returns whether permanent link cuts separate these sites: two of them reach each other neither directly nor
    /// through others of these sites. A site that is not in `sites` does not relay.
    fn is_partitioned(&self, sites: &[usize]) -> bool {
        let cut = |one: usize, other: usize| {
            self.permanent_cuts().any(|(_, a, b)| [(one, other), (other, one)].contains(&(a, b)))
        };
        let mut reached: Vec<usize> = sites.first().copied().into_iter().collect();
        let mut at = 0;
        while let Some(one) = reached.get(at).copied() {
            let more = sites.iter().filter(|other| !reached.contains(other) && !cut(one, **other));
            reached.extend(more.copied().collect::<Vec<_>>());
            at += 1;
        }
        reached.len() < sites.len()
    }

    /// Returns whether one of these sites has a link to a leaver that was not cut for good before the leave. That site
    /// relays the leave to the others.
    fn can_receive_leave(&self, leaver: usize, sites: &[usize]) -> bool {
        let left_at = self.faults.iter().find(|(_, fault)| *fault == SessionFault::Leave(leaver)).map(|(at, _)| *at);
        let cut = |site: usize| {
            let before = |at: Instant| left_at.is_some_and(|left| at <= left);
            self.permanent_cuts()
                .any(|(at, one, other)| before(at) && [(leaver, site), (site, leaver)].contains(&(one, other)))
        };
        sites.iter().any(|site| *site != leaver && !cut(*site))
    }

    /// Returns whether a desync may be detected so late that the sites still bisect it at the recovery deadline. In a
    /// slow session, a compare interval of many frames takes many seconds, and bisection resimulates all of those
    /// frames.
    fn may_detect_desync_too_late(&self) -> bool {
        let diverges =
            self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Engine(MachineFault::Diverge(_))));
        diverges && f64::from(self.compare_every) / self.min_fps() > (DESYNC_RECOVERY_TIME / 2).as_secs_f64()
    }

    /// Checks, in a scenario with a crash and without drops, that a remaining site did not continue the game and that
    /// its session has ended, as the silence timeout requires. `speed` is the site's frame rate after recovery, in
    /// frames per second.
    fn check_survivor(&self, run: &mut SessionRun, site: usize, speed: f64) {
        let started = run.checker.confirmed_frames[site] > 0;
        if started && speed > 0.0 {
            run.checker.report_violation("agreement", format!("site {site} continues without a crashed site"));
        }
        if started && run.end_reasons[site].is_none() {
            run.checker
                .report_violation("liveness", format!("site {site} waits for a crashed site beyond its timeout"));
        }
    }

    fn check_bounds(&self, network: &SessionNetwork, run: &mut SessionRun) {
        if network.oversized_datagrams > 0 {
            run.checker.report_violation("bounds", format!("{} datagrams are too long", network.oversized_datagrams));
        }
        for (number, site) in network.nodes.iter().enumerate() {
            let memory = site.session.memory();
            if memory > self.sites * MAX_MEMORY_PER_SITE + if self.joins_by_replay { 3 * REPLAY_LOG_BYTES } else { 0 } {
                run.checker.report_violation("bounds", format!("the session of site {number} uses {memory} bytes"));
            }
        }
        if network.max_queued_events > self.sites * self.sites * MAX_IN_FLIGHT_PER_LINK {
            run.checker.report_violation("bounds", format!("{} events were queued at once", network.max_queued_events));
        }
        let most = PLAY_TIME.as_secs_f64() * (1.05 / self.frame_rate.period().as_secs_f64() + 60.0);
        let busiest = network.links().iter().map(|link| link.stats().sent).max().unwrap_or(0);
        if busiest as f64 > most {
            run.checker
                .report_violation("bounds", format!("{busiest} datagrams on one link, at most {most:.0} allowed"));
        }
    }

    /// Returns how long an input may take, in milliseconds, where the direct link is cut for good; 0 without such a
    /// cut. The input takes the best path through another site, which relays it in its next frame after a request in
    /// the frame before.
    fn worst_relay_wait_ms(&self, period: f64) -> f64 {
        let history = self.requests_lost_inputs();
        let wait = |from: usize, to: usize| worst_input_wait_ms(&self.links[from * self.sites + to], period, history);
        let through = |one: usize, other: usize, third: usize| {
            (wait(one, third) + wait(third, other)).max(wait(other, third) + wait(third, one))
        };
        let detour = |(_, one, other): (Instant, usize, usize)| {
            let stays = |site: &usize| !self.leaves(*site) && !self.crashes(*site);
            let thirds = (0..self.sites).filter(stays).filter(|third| *third != one && *third != other);
            thirds.map(|third| through(one, other, third)).fold(f64::INFINITY, f64::min) + 2.0 * period
        };
        self.permanent_cuts().map(detour).fold(0.0, f64::max)
    }

    /// Returns whether any site recovers lost inputs by requests only.
    fn requests_lost_inputs(&self) -> bool {
        self.recovery.iter().any(|recovery| matches!(recovery, Recovery::History | Recovery::Classic))
    }

    /// Returns the frame rate, in frames per second, that the sites must reach after recovery: the full rate or, on a
    /// longer link, the sum of input delay and prediction window divided by the transit time; less a margin for loss
    /// and jitter.
    pub fn min_fps(&self) -> f64 {
        let period = self.frame_rate.period().as_millis_f64();
        let reach = self.input_delay + self.prediction_window;
        let reach_ms = f64::from(reach.max(1)) * period;
        let slowest =
            self.inter_site_links().map(|link| worst_input_wait_ms(link, period, self.requests_lost_inputs()));
        // Without input delay, transit and step are sequential. So are a transit that is too long and the rollback
        // after it.
        let rollback_steps = f64::from(self.prediction_window + u32::from(reach == 0));
        let step = self.step_cost.iter().max().map_or(0.0, |cost| cost.as_millis_f64() * rollback_steps);
        let wait = slowest.fold(0.0, f64::max).max(self.worst_relay_wait_ms(period)) + step;
        let has_joiner = self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Start(_)));
        let steady = !has_joiner
            && self.permanent_cuts().next().is_none()
            && self.inter_site_links().all(has_constant_latency)
            && self.clocks.iter().all(|clock| clock.skew_ppm.abs() < 200.0);
        // With more links, an unlucky one is more frequent. Without input delay, a lost packet costs more than a frame,
        // because no packet follows it.
        let share = match reach {
            0 if steady => 0.75,
            _ if steady && self.prediction_window == 0 => 0.95,
            _ if steady => 0.9,
            0 => 0.35,
            _ if self.sites > 4 => 0.45,
            _ => 0.6,
        };
        // Infrequent packets arrive late, and a paused session makes no progress.
        let pause_factor = if !steady && self.starvation == StarvationPolicy::Pause { 0.3 } else { 1.0 };
        let send_factor = match self.sending {
            SendPolicy::Measured if steady => 0.8,
            SendPolicy::Measured => 0.4,
            _ => 1.0,
        };
        // Classic recovery requests lost inputs in packets of their own. After a lost request or answer it waits longer
        // than a round trip before it repeats the request.
        let lossy = self.inter_site_links().any(|link| !matches!(link.loss, Loss::None));
        let recovery_factor = if lossy && self.recovery.contains(&Recovery::Classic) { 0.7 } else { 1.0 };
        share * pause_factor * send_factor * recovery_factor * (1_000.0 / period) * (reach_ms / wait).min(1.0)
    }
}

/// Returns whether `some` sites are more than half of `all`, or half of them with the lowest. `all` is in ascending
/// order.
fn is_quorum(some: &[usize], all: &[usize]) -> bool {
    let present = some.iter().filter(|site| all.contains(site)).count();
    2 * present > all.len() || 2 * present == all.len() && all.first().is_none_or(|lowest| some.contains(lowest))
}

/// Returns the probability that this many packets in a row are lost. The packets are `apart_ms` apart.
fn loss_run_probability(link: &LinkConfig, packets: f64, apart_ms: f64) -> f64 {
    match link.loss {
        Loss::None => 0.0,
        Loss::Independent(loss) => loss.powf(packets),
        Loss::Bursty { leave, .. } => (1.0 - leave).powf(packets),
        Loss::Outages { mean, .. } => (-packets * apart_ms / mean.as_millis_f64()).exp(),
    }
}

/// Returns whether a link delivers every packet with the same delay, apart from the queue of its bottleneck.
fn has_constant_latency(link: &LinkConfig) -> bool {
    matches!((&link.delay, link.jitter, link.loss), (Delay::Constant(_), Jitter::None, Loss::None))
}

/// Returns the time, in milliseconds, for which requests or their answers may be lost in a row; longer runs are
/// negligibly rare. Covers independent loss only; [`worst_input_wait_ms`] covers the other kinds.
fn worst_request_wait_ms(link: &LinkConfig, reverse: &LinkConfig, period_ms: f64) -> f64 {
    let lost = |link: &LinkConfig| if let Loss::Independent(loss) = link.loss { loss } else { 0.0 };
    let fails = 1.0 - (1.0 - lost(link)) * (1.0 - lost(reverse));
    if fails == 0.0 {
        return 0.0;
    }
    let round_trip = worst_input_wait_ms(link, period_ms, false) + worst_input_wait_ms(reverse, period_ms, false);
    NEGLIGIBLE_PROBABILITY.ln() / fails.ln() * round_trip
}

/// Returns how long an input may take over a link, in milliseconds, in a moderately unlucky case. With `history`, a
/// lost input must be requested.
fn worst_input_wait_ms(link: &LinkConfig, period_ms: f64, history: bool) -> f64 {
    let delay = match &link.delay {
        Delay::Constant(delay) => delay.as_millis_f64(),
        Delay::Normal { mean, sd } | Delay::LogNormal { mean, sd } => (*mean + *sd).as_millis_f64(),
        Delay::Recorded(delays) => delays.iter().max().copied().unwrap_or_default().as_millis_f64(),
    };
    let jitter = match link.jitter {
        Jitter::None => 0.0,
        Jitter::Uniform(most) => most.as_millis_f64(),
        Jitter::Exponential { mean } => mean.as_millis_f64() * 2.0,
    };
    let packets_lost = match link.loss {
        Loss::None => 0.0,
        Loss::Independent(loss) => 0.5 + loss * 5.0,
        Loss::Bursty { leave, .. } => 1.0 / leave,
        Loss::Outages { mean, .. } => mean.as_millis_f64() / period_ms,
    };
    let queue = link.rate.map_or(0.0, |rate| rate.queue_bytes as f64 / rate.bytes_per_second as f64 * 1_000.0);
    let once = delay + jitter + queue + packets_lost * period_ms;
    if history && packets_lost > 0.0 { once * 3.5 + 2.0 * period_ms } else { once }
}
