//! Judging what came of a scenario: liveness and bounds, which depend on what was done to the world.

use coplay::id::SiteId;
use coplay::input::Recovery;
use coplay::session::{SendPolicy, SessionEnd, StarvationPolicy};
use coplay::time::Instant;

use super::run::SessionRun;
use super::{
    DESYNC_RECOVERY_TIME, MAX_IN_FLIGHT_PER_LINK, MAX_MEMORY_PER_SITE, PLAY_TIME, RECOVERY_TIME, REPLAY_LOG_BYTES,
    START_DEADLINE, SessionFault, SessionScenario,
};
use crate::link::{Delay, Jitter, LinkConfig, Loss};
use crate::session_network::SessionNetwork;

/// Who waits sends this often.
const KEEP_ALIVE_INTERVAL_MS: f64 = 100.0;
/// The chance of what hardly ever happens.
const NEGLIGIBLE_PROBABILITY: f64 = 1e-5;

impl SessionScenario {
    /// Nobody is dropped to whom nothing happened, nor to a way of his, and whose ways are good enough.
    pub(super) fn check_drops(&self, play: &mut SessionRun) {
        let late = |site: usize| self.may_stall_others(site) || self.may_lose_too_many_in_a_row(site);
        let excused = |site: usize| self.is_affected_by_fault(site) || !self.has_reliable_links(site) || late(site);
        for site in (0..self.sites).filter(|site| !excused(*site)) {
            if play.checker.was_dropped(site) && !matches!(play.end_reasons[site], Some(SessionEnd::Silent(_))) {
                play.checker
                    .report_violation("agreement", format!("site {site} was dropped though nothing was wrong with it"));
            }
        }
    }

    /// Whether something happens to a site, or to a way of its.
    fn is_affected_by_fault(&self, site: usize) -> bool {
        let broken = self.sabotage.is_some() && site + 1 == self.sites;
        broken
            || self.faults.iter().any(|(_, fault)| match fault {
                SessionFault::Cut(one, other)
                | SessionFault::Heal(one, other)
                | SessionFault::CutOneWay(one, other)
                | SessionFault::HealOneWay(one, other)
                | SessionFault::Worsen(one, other, _)
                | SessionFault::Restore(one, other) => [*one, *other].contains(&site),
                SessionFault::Pause(one, _) | SessionFault::Suspend(one, _) | SessionFault::Slow(one, _) => {
                    *one == site
                }
                SessionFault::Crash(one)
                | SessionFault::Restart(one)
                | SessionFault::Leave(one)
                | SessionFault::Move(one) => *one == site,
                SessionFault::Astray(one) => self.diverged_site(*one) == site,
                SessionFault::Garbage(..) => false,
            })
    }

    /// Whether as many packets of a site in a row as make others drop it are hardly ever lost, even if it sends as seldom as it may.
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

    /// Whether a site may hold up the others for so long that they go on without it, as one whose ways are too long or too uneven
    /// for the lag, or whose machine is too slow; or whose inputs do not find one who decides, because that one has moved or was asleep.
    fn may_stall_others(&self, site: usize) -> bool {
        if self.stall_timeout.is_none() {
            return false;
        }
        if (0..site).any(|lower| self.is_affected_by_fault(lower)) {
            return true;
        }
        let period = self.frame_rate.period().as_millis_f64();
        let history = self.requests_lost_inputs();
        let others = (0..self.sites).filter(|other| *other != site);
        let ways = others.flat_map(|other| [(site, other), (other, site)]);
        let wait = ways.map(|(from, to)| {
            let (there, back) = (&self.links[from * self.sites + to], &self.links[to * self.sites + from]);
            let asks = [from, to].iter().any(|site| self.recovery[*site] == Recovery::Classic);
            let asked = if asks { worst_request_wait_ms(there, back, period) } else { 0.0 };
            worst_input_wait_ms(there, period, history) + asked
        });
        let step = self.step_cost[site].as_millis_f64() * f64::from(1 + self.prediction_window);
        wait.fold(0.0, f64::max) + step > 0.7 * f64::from(self.input_delay + self.prediction_window) * period
    }

    /// Whether a run of lost packets to or from a site lasts longer than the lag, the window and `late_after` together, with a probability of
    /// more than [`NEGLIGIBLE_PROBABILITY`]. [`worst_input_wait_ms`] knows only the mean length of such a run.
    fn may_lose_too_many_in_a_row(&self, site: usize) -> bool {
        let Some(late_after) = self.stall_timeout else { return false };
        let period = self.frame_rate.period().as_millis_f64();
        let limit = f64::from(self.input_delay + self.prediction_window) * period + late_after.as_millis_f64();
        // Where packets leave by what is measured of a link, they are up to half of the lag apart.
        let apart =
            if self.sending == SendPolicy::Measured { (f64::from(self.input_delay) / 2.0).max(1.0) } else { 1.0 }
                * period;
        let others = (0..self.sites).filter(|other| *other != site);
        others.flat_map(|other| [(site, other), (other, site)]).any(|(from, to)| {
            let link = &self.links[from * self.sites + to];
            loss_run_probability(link, limit / apart, apart) > NEGLIGIBLE_PROBABILITY
        })
    }

    /// Every report names the first frame that differs and, of three or more, the site that does.
    pub(super) fn check_desync_reports(&self, play: &mut SessionRun) {
        let Some((astray, frame)) = play.divergence else { return };
        play.divergence_events.clear();
        let odd = SiteId::first(self.sites).nth(astray).filter(|_| self.sites > 2);
        // A site that was started anew has lost its hashes, and some sites may not have received them before.
        let right = |(at, report): &(usize, &(usize, Option<u32>, Option<SiteId>))| {
            let unanswered = *at >= play.reports_before_restart && report.1.is_none();
            (report.1 == Some(frame) || unanswered) && report.2 == odd
        };
        for site in 0..self.sites {
            let told = play.desync_reports.iter().enumerate().find(|(_, (teller, ..))| *teller == site);
            let is_right = told.is_some_and(|told| right(&told));
            let told = told.map(|(_, report)| report);
            if !is_right && self.min_fps() > 25.0 {
                let what = format!("site {site} tells {told:?} of site {astray} that goes astray in frame {frame}");
                play.checker.report_violation("divergence", what);
            }
        }
    }

    /// Who is not dropped sees no other state than its own.
    pub(super) fn check_divergence_events(play: &mut SessionRun) {
        for (site, other, frame) in std::mem::take(&mut play.forged_input_events) {
            if !play.checker.was_dropped(site) {
                play.checker
                    .report_violation("agreement", format!("site {site} has wrong inputs of {other} up to {frame}"));
            }
        }
        for (site, _, frame) in std::mem::take(&mut play.divergence_events) {
            if !play.checker.was_dropped(site) {
                play.checker
                    .report_violation("agreement", format!("site {site} sees another state after frame {frame}"));
            }
        }
    }

    /// What those who watch saw, and what is on record.
    pub(super) fn check_spectators_and_movie(
        &self,
        world: &SessionNetwork,
        play: &mut SessionRun,
        frames_when_healed: &[usize],
    ) {
        let seconds = (self.end_time() - (self.last_fault_end() + RECOVERY_TIME)).as_secs_f64();
        let frames = play.checker.confirmed_frames.iter().zip(frames_when_healed);
        let speeds: Vec<f64> = frames.map(|(now, then)| now.saturating_sub(*then) as f64 / seconds).collect();
        if let Some(gallery) = play.spectators.take() {
            gallery.check(world, &mut play.checker, &speeds);
        }
        if let Some(movie) = play.recording.take() {
            movie.check(&mut play.checker);
        }
    }

    /// Liveness and bounds, which depend on what was done to the world.
    pub(super) fn check_liveness(&self, world: &SessionNetwork, play: &mut SessionRun, frames_when_healed: &[usize]) {
        let seconds = (self.end_time() - (self.recovery_deadline())).as_secs_f64();
        let floor = self.min_fps();
        self.check_drops(play);
        let left = |site: usize| self.leaves(site);
        let leavers = (0..self.sites).filter(|site| left(*site)).count();
        // Who leaves before the start leaves the others in the lobby. But a game that has begun goes on.
        let nobody_started = play.checker.confirmed_frames.iter().all(|frames| *frames == 0);
        if nobody_started && (leavers > 0 || self.is_cut_before_the_lobby_agrees()) {
            return self.check_bounds(world, play);
        }
        let comes = |fault: &SessionFault| matches!(fault, SessionFault::Restart(_) | SessionFault::Astray(_));
        if self.drop_timeouts.is_some()
            || self.stall_timeout.is_some()
            || self.faults.iter().any(|(_, fault)| comes(fault))
        {
            self.check_liveness_with_drops(world, play, frames_when_healed, seconds);
            return self.check_bounds(world, play);
        }
        for site in (0..self.sites).filter(|site| !left(*site) && !world.sites[*site].is_crashed) {
            let speed = (play.checker.confirmed_frames[site] - frames_when_healed[site]) as f64 / seconds;
            if self.has_crash() {
                self.check_survivor(play, site, speed);
            } else if leavers + 1 >= self.sites {
                // Where the only way to who leaves is cut for good, nobody can tell.
                if play.end_reasons[site] != Some(SessionEnd::Alone) && floor > 0.0 {
                    play.checker.report_violation("liveness", format!("site {site} does not know that it is alone"));
                }
            } else if speed < floor {
                let what =
                    format!("site {site} runs at {speed:.1} fps after all is healed, the links allow {floor:.1}");
                play.checker.report_violation("liveness", what);
            }
        }
        self.check_bounds(world, play);
    }

    /// Where silent sites are dropped, those who can decide go on, at full speed, and nobody else does.
    fn check_liveness_with_drops(
        &self,
        world: &SessionNetwork,
        play: &mut SessionRun,
        frames_when_healed: &[usize],
        seconds: f64,
    ) {
        let left = |site: usize| self.leaves(site);
        let out = |site: usize| play.checker.is_dropped(site) || play.end_reasons[site] == Some(SessionEnd::Dropped);
        let alive = |site: &usize| !world.sites[*site].is_crashed && !left(*site) && !out(*site);
        let alive: Vec<usize> = (0..self.sites).filter(alive).collect();
        // Whoever came back could not decide before it was back.
        let steady: Vec<usize> = alive.iter().copied().filter(|site| play.incarnations[*site] == 1).collect();
        // Who died did not leave, though it may have when it was back. And a leave that nobody who stays can hear counts for nothing: the
        // leaver might as well have crashed, or play on with others, so those who stay need a quorum with it.
        let went = |site: usize| left(site) && !self.is_restarted(site) && self.can_receive_leave(site, &steady);
        let base: Vec<usize> = (0..self.sites).filter(|site| !went(*site) && !self.is_late_joiner(*site)).collect();
        let decides = 2 * steady.len() > base.len() || 2 * steady.len() == base.len() && steady.first() == base.first();
        // A latecomer is a voter from its first frame on. If it and another site die before either is dropped, the sites that are
        // left may be no quorum.
        let counts = |teller: usize, site: usize| {
            let in_game = !self.is_late_joiner(site) || play.checker.has_joined(site);
            in_game && !went(site) && !play.checker.has_reported_drop(teller, site)
        };
        let counted = |teller: usize| (0..self.sites).filter(|site| counts(teller, *site)).collect::<Vec<usize>>();
        let decides = decides && steady.iter().any(|site| is_quorum(&steady, &counted(*site)));
        // Who comes while another moves cannot find it.
        let has = |is: fn(&SessionFault) -> bool| self.faults.iter().any(|(_, fault)| is(fault));
        if has(|fault| matches!(fault, SessionFault::Restart(_))) && has(|fault| matches!(fault, SessionFault::Move(_)))
        {
            return;
        }
        // Without a limit to patience, the dead are waited for.
        let dead = |site: usize| world.sites[site].is_crashed && !left(site);
        // Who left before the others heard that it was back is as good as dead.
        let unheard = |site: usize| {
            let nobody_hears = self.crashes(site) || !self.can_receive_leave(site, &steady);
            left(site) && nobody_hears && !play.checker.was_dropped(site)
        };
        let waiting = self.drop_timeouts.is_none() && (0..self.sites).any(|site| dead(site) || unheard(site));
        if waiting
            || !decides
            || self.is_partitioned(&alive)
            || self.may_detect_desync_too_late()
            || play.checker.confirmed_frames.iter().all(|frames| *frames == 0)
        {
            return;
        }
        let floor = self.min_fps();
        // Who is alone because all others left has nobody to play with.
        // Who was late comes in again only where its ways are short enough.
        let kept_out = |site: usize| self.is_restarted(site) && self.may_stall_others(site);
        for site in
            alive.into_iter().filter(|site| play.end_reasons[*site] != Some(SessionEnd::Alone) && !kept_out(*site))
        {
            let speed = play.checker.confirmed_frames[site].saturating_sub(frames_when_healed[site]) as f64 / seconds;
            if speed < floor {
                let what =
                    format!("site {site} runs at {speed:.1} fps after all is healed, the links allow {floor:.1}");
                play.checker.report_violation("liveness", what);
            }
        }
    }

    /// Whether two sites are cut off from each other for good before there was a time of [`START_DEADLINE`] without a fault. In the lobby every site has to hear
    /// every other one.
    fn is_cut_before_the_lobby_agrees(&self) -> bool {
        let Some(cut) = self.permanent_cuts().map(|(at, ..)| at).min() else { return false };
        let mut quiet_since = Instant::ZERO;
        for (at, fault) in self.faults.iter().filter(|(at, _)| *at < cut) {
            if *at > quiet_since + START_DEADLINE {
                return false;
            }
            quiet_since = quiet_since.max(self.over(*at, fault));
        }
        cut < quiet_since + START_DEADLINE
    }

    /// When a fault no longer keeps sites from hearing each other.
    fn over(&self, at: Instant, fault: &SessionFault) -> Instant {
        let first = |is_end: &dyn Fn(&SessionFault) -> bool| {
            let end = self.faults.iter().find(|(end, fault)| *end >= at && is_end(fault));
            end.map_or(Instant::FAR_FUTURE, |(end, _)| *end)
        };
        match fault {
            SessionFault::Pause(_, until) | SessionFault::Suspend(_, until) => *until,
            SessionFault::Cut(one, other) => first(&|fault| *fault == SessionFault::Heal(*one, *other)),
            SessionFault::CutOneWay(one, other) => first(&|fault| *fault == SessionFault::HealOneWay(*one, *other)),
            SessionFault::Worsen(one, other, _) => first(&|fault| *fault == SessionFault::Restore(*one, *other)),
            SessionFault::Garbage(..) | SessionFault::Slow(..) => Instant::ZERO,
            _ => at,
        }
    }

    /// Whether not all of these sites can reach each other, directly or through each other, because ways are cut for good: a third one
    /// through which two played is not among them any more.
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

    /// Whether one of these sites has a way to a leaver that was not cut for good before the leave; it passes the leave on to the others.
    fn can_receive_leave(&self, leaver: usize, sites: &[usize]) -> bool {
        let left_at = self.faults.iter().find(|(_, fault)| *fault == SessionFault::Leave(leaver)).map(|(at, _)| *at);
        let cut = |site: usize| {
            let before = |at: Instant| left_at.is_some_and(|left| at <= left);
            self.permanent_cuts()
                .any(|(at, one, other)| before(at) && [(leaver, site), (site, leaver)].contains(&(one, other)))
        };
        sites.iter().any(|site| *site != leaver && !cut(*site))
    }

    /// Whether one that goes astray may be found out so late that the others still look into it when all should be well again: in a slow
    /// game, comparisons that are many frames apart are many seconds apart, and who looks into a difference plays all of those frames again.
    fn may_detect_desync_too_late(&self) -> bool {
        let astray = self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Astray(_)));
        astray && f64::from(self.compare_every) / self.min_fps() > (DESYNC_RECOVERY_TIME / 2).as_secs_f64()
    }

    /// Nobody plays on alone by accident: whoever waits for a dead site says so and gives up, as it was told to.
    fn check_survivor(&self, play: &mut SessionRun, site: usize, speed: f64) {
        let started = play.checker.confirmed_frames[site] > 0;
        if started && speed > 0.0 {
            play.checker.report_violation("agreement", format!("site {site} plays on without a site that died"));
        }
        if started && play.end_reasons[site].is_none() {
            play.checker
                .report_violation("liveness", format!("site {site} waits for a dead site longer than it was told to"));
        }
    }

    fn check_bounds(&self, world: &SessionNetwork, play: &mut SessionRun) {
        if world.oversized_datagrams > 0 {
            play.checker.report_violation("bounds", format!("{} datagrams were too long", world.oversized_datagrams));
        }
        for (number, site) in world.sites.iter().enumerate() {
            let memory = site.session.memory();
            if memory > self.sites * MAX_MEMORY_PER_SITE + if self.joins_by_replay { 3 * REPLAY_LOG_BYTES } else { 0 } {
                play.checker.report_violation("bounds", format!("the session of site {number} takes {memory} bytes"));
            }
        }
        if world.max_queued_events > self.sites * self.sites * MAX_IN_FLIGHT_PER_LINK {
            play.checker
                .report_violation("bounds", format!("{} things were under way at once", world.max_queued_events));
        }
        let most = PLAY_TIME.as_secs_f64() * (1.05 / self.frame_rate.period().as_secs_f64() + 60.0);
        let busiest = world.links().iter().map(|link| link.stats().sent).max().unwrap_or(0);
        if busiest as f64 > most {
            play.checker.report_violation("bounds", format!("{busiest} datagrams on one link, {most:.0} are plenty"));
        }
    }

    /// How long an input may take where the direct way is cut for good, in milliseconds: as on the best way through another site, which
    /// passes it on in its next frame to whoever asked for it in the one before.
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

    /// Whether lost inputs come back when they are asked for.
    fn requests_lost_inputs(&self) -> bool {
        self.recovery.iter().any(|recovery| matches!(recovery, Recovery::History | Recovery::Classic))
    }

    /// The speed that the worst link allows: full, or lag over one-way delay; less what its losses and jitter may cost.
    pub fn min_fps(&self) -> f64 {
        let period = self.frame_rate.period().as_millis_f64();
        let reach = self.input_delay + self.prediction_window;
        let lag_ms = f64::from(reach.max(1)) * period;
        let slowest =
            self.inter_site_links().map(|link| worst_input_wait_ms(link, period, self.requests_lost_inputs()));
        // Without lag the way and the step come one after the other, and so do a way that is too long and the repair after it.
        let repair = f64::from(self.prediction_window + u32::from(reach == 0));
        let step = self.step_cost.iter().max().map_or(0.0, |cost| cost.as_millis_f64() * repair);
        let wait = slowest.fold(0.0, f64::max).max(self.worst_relay_wait_ms(period)) + step;
        let comes = self.faults.iter().any(|(_, fault)| matches!(fault, SessionFault::Restart(_)));
        let steady = !comes
            && self.permanent_cuts().next().is_none()
            && self.inter_site_links().all(has_constant_latency)
            && self.clocks.iter().all(|clock| clock.skew_ppm.abs() < 200.0);
        // The more links there are, the more often one of them has bad luck; and without lag a lost packet is awaited for longer
        // than a frame, because none follows it.
        let share = match reach {
            0 if steady => 0.75,
            _ if steady && self.prediction_window == 0 => 0.95,
            _ if steady => 0.9,
            0 => 0.35,
            _ if self.sites > 4 => 0.45,
            _ => 0.6,
        };
        // Packets that leave seldom come late, and who pauses does not play.
        let rest = if !steady && self.starvation == StarvationPolicy::Pause { 0.3 } else { 1.0 };
        let seldom = match self.sending {
            SendPolicy::Measured if steady => 0.8,
            SendPolicy::Measured => 0.4,
            _ => 1.0,
        };
        // Who asks in packets of its own waits for longer than a round trip before it asks again, where the question or the answer is lost.
        let lossy = self.inter_site_links().any(|link| !matches!(link.loss, Loss::None));
        let stubborn = if lossy && self.recovery.contains(&Recovery::Classic) { 0.7 } else { 1.0 };
        share * rest * seldom * stubborn * (1_000.0 / period) * (lag_ms / wait).min(1.0)
    }
}

/// Whether some of these sites, in ascending order, are more than half of all, or half with the lowest.
fn is_quorum(some: &[usize], all: &[usize]) -> bool {
    let present = some.iter().filter(|site| all.contains(site)).count();
    2 * present > all.len() || 2 * present == all.len() && all.first().is_none_or(|lowest| some.contains(lowest))
}

/// The chance that so many packets in a row are lost, which are so far apart.
fn loss_run_probability(link: &LinkConfig, packets: f64, apart_ms: f64) -> f64 {
    match link.loss {
        Loss::None => 0.0,
        Loss::Independent(loss) => loss.powf(packets),
        Loss::Bursty { leave, .. } => (1.0 - leave).powf(packets),
        Loss::Outages { mean, .. } => (-packets * apart_ms / mean.as_millis_f64()).exp(),
    }
}

/// Whether a link treats all packets alike.
fn has_constant_latency(link: &LinkConfig) -> bool {
    matches!((&link.delay, link.jitter, link.loss), (Delay::Constant(_), Jitter::None, Loss::None))
}

/// How long questions and answers may be lost in a row, in milliseconds, each one after the other: until that hardly ever happens. Only
/// losses that do not depend on each other; the other kinds are in [`worst_input_wait_ms`].
fn worst_request_wait_ms(there: &LinkConfig, back: &LinkConfig, period_ms: f64) -> f64 {
    let lost = |link: &LinkConfig| if let Loss::Independent(loss) = link.loss { loss } else { 0.0 };
    let fails = 1.0 - (1.0 - lost(there)) * (1.0 - lost(back));
    if fails == 0.0 {
        return 0.0;
    }
    let round_trip = worst_input_wait_ms(there, period_ms, false) + worst_input_wait_ms(back, period_ms, false);
    NEGLIGIBLE_PROBABILITY.ln() / fails.ln() * round_trip
}

/// How long an input may take over a link, in milliseconds, if its luck is as bad as it often is.
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
