//! Playing a scenario: what happens, and what is noted of it.

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::session::{Event, SessionEnd};
use coplay::time::{Instant, TimeDelta};

use super::{SessionFault, SessionScenario};
use crate::random::Random;
use crate::session::checker::SessionChecker;
use crate::session::recording::{self, MovieRecording};
use crate::session_network::{SessionNetwork, SiteEvent};
use crate::spectators;
use crate::spectators::scenario::SpectatorNetwork;

impl SessionScenario {
    /// Plays it through.
    pub fn run(&self) -> ScenarioResult {
        let mut ledger = SessionChecker::new(self.ownership_masks(), self.input_delay);
        ledger.absent_input = self.absent_input;
        ledger.delay_plus_prediction = (self.input_delay + self.prediction_window) as usize;
        ledger.late_joiners = (0..self.sites).map(|site| self.is_late_joiner(site)).collect();
        let mut play = SessionRun {
            checker: ledger,
            divergence: None,
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
        let mut world = self.build_network();
        let mut garbage = Random::stream(self.seed, "garbage");
        for (at, fault) in &self.faults {
            play.run_until(&mut world, *at);
            self.apply_fault(&mut world, fault, &mut play, &mut garbage);
        }
        let recovered = self.recovery_deadline();
        while world.now() < recovered {
            let next = (world.now() + TimeDelta::from_millis(100)).min(recovered);
            play.run_until(&mut world, next);
            self.restart_diverged_site(&mut world, &mut play);
        }
        let running = play.checker.confirmed_frames.clone();
        play.run_until(&mut world, self.end_time());
        self.check_desync_reports(&mut play);
        Self::check_divergence_events(&mut play);
        self.check_liveness(&world, &mut play, &running);
        self.check_spectators_and_movie(&world, &mut play, &running);
        ScenarioResult::new(self, &world, play)
    }

    fn apply_fault(
        &self,
        world: &mut SessionNetwork,
        fault: &SessionFault,
        play: &mut SessionRun,
        garbage: &mut Random,
    ) {
        match fault {
            SessionFault::Cut(one, other) => world.set_cut(*one, *other, true),
            SessionFault::Heal(one, other) => world.set_cut(*one, *other, false),
            SessionFault::CutOneWay(from, to) => world.link(*from, *to).set_cut(true),
            SessionFault::HealOneWay(from, to) => world.link(*from, *to).set_cut(false),
            SessionFault::Pause(site, until) => world.pause(*site, *until),
            SessionFault::Suspend(site, until) => world.suspend(*site, *until),
            SessionFault::Crash(site) => {
                world.crash(*site);
                play.checker.on_crash(*site);
            }
            SessionFault::Leave(site) if !world.sites[*site].is_crashed => {
                let local = world.sites[*site].clock.local(world.now());
                world.sites[*site].session.leave(local);
                play.checker.on_leave(*site);
                world.wake(*site);
            }
            SessionFault::Leave(_) => {}
            SessionFault::Restart(site) if !world.sites[*site].is_crashed => {}
            SessionFault::Restart(site) => {
                play.incarnations[*site] += 1;
                self.restart_site(world, *site, play.incarnations[*site]);
                play.checker.on_restart(*site);
                play.end_reasons[*site] = None;
            }
            SessionFault::Move(site) => world.change_address(*site),
            SessionFault::Worsen(one, other, config) => {
                world.link(*one, *other).set_config(config.clone());
                world.link(*other, *one).set_config(config.clone());
            }
            SessionFault::Restore(one, other) => {
                for (from, to) in [(*one, *other), (*other, *one)] {
                    let config = self.links[from * self.sites + to].clone();
                    world.link(from, to).set_config(config);
                }
            }
            SessionFault::Astray(site) => {
                let frame = world.sites[*site].session.stats().frame.number() + 5;
                world.sites[*site].diverges_at = Some(frame);
                play.checker.on_divergence(self.diverged_site(*site), frame);
                play.divergence = Some((*site, frame));
            }
            SessionFault::Slow(site, cost) => world.sites[*site].step_cost = *cost,
            SessionFault::Garbage(site, packets) => inject_garbage(world, *site, *packets, garbage),
        }
    }

    /// Whose state is not what the others have, when a site's machine went astray. Of two, the first is taken to be right.
    pub(super) fn diverged_site(&self, astray: usize) -> usize {
        if self.sites == 2 { 1 } else { astray }
    }

    /// The site that is odd starts anew, once that was told, and has the others' state again.
    fn restart_diverged_site(&self, world: &mut SessionNetwork, play: &mut SessionRun) {
        let Some((astray, _)) = play.divergence.filter(|_| self.restarts_diverged_site) else { return };
        let sick = self.diverged_site(astray);
        if play.incarnations[sick] == 1 && play.desync_reports.iter().any(|(site, ..)| *site == sick) {
            play.incarnations[sick] += 1;
            play.reports_before_restart = play.desync_reports.len();
            self.restart_site(world, sick, 2);
            play.checker.on_restart(sick);
        }
    }
}

/// Strangers throw random bytes, half of which look like hellos, from addresses of their own. What comes in a peer's name is the
/// transport's to tell.
fn inject_garbage(world: &mut SessionNetwork, site: usize, packets: u32, luck: &mut Random) {
    let mut bytes = [0u8; 200];
    for _ in 0..packets {
        let len = luck.below(bytes.len() as u64) as usize;
        bytes.fill_with(|| luck.bits() as u8);
        if luck.chance(0.5) {
            bytes[0] = coplay::wire::VERSION;
        }
        world.inject(site, coplay::id::Addr(1_000_000 + luck.below(1_000)), &bytes[..len]);
    }
}

#[derive(Debug)]
pub(super) struct SessionRun {
    pub(super) checker: SessionChecker,
    pub(super) end_reasons: Vec<Option<SessionEnd>>,
    /// How many had told of a difference when the site that went astray was started anew.
    pub(super) reports_before_restart: usize,
    /// The site that went astray, and in which frame.
    pub(super) divergence: Option<(usize, u32)>,
    /// Who told of a difference: the first frame that differs, and whose state is odd.
    pub(super) desync_reports: Vec<(usize, Option<u32>, Option<SiteId>)>,
    /// Who says that it has other inputs of whom than were given.
    pub(super) forged_input_events: Vec<(usize, usize, u32)>,
    /// How often each site was started.
    pub(super) incarnations: Vec<u32>,
    /// Who saw whom in another state, and after which frame.
    pub(super) divergence_events: Vec<(usize, usize, u32)>,
    /// Those who watch.
    pub(super) spectators: Option<SpectatorNetwork>,
    /// What one site keeps, as long as its program runs.
    pub(super) recording: Option<MovieRecording>,
}

impl SessionRun {
    /// Lets all of it go on: the world, those who watch it and who keeps a movie take turns.
    fn run_until(&mut self, world: &mut SessionNetwork, until: Instant) {
        let turn = match (&self.spectators, &self.recording) {
            (Some(_), _) => spectators::scenario::STEP_INTERVAL,
            (None, Some(_)) => recording::RECORD_INTERVAL,
            (None, None) => TimeDelta::MAX,
        };
        loop {
            let next = if until - world.now() > turn { world.now() + turn } else { until };
            world.run_until(next, &mut |happened| self.on_event(happened));
            if let Some(gallery) = &mut self.spectators {
                gallery.catch_up(world, &mut self.checker);
            }
            let lives = &self.incarnations;
            if let Some(movie) = self.recording.as_mut().filter(|movie| lives[movie.site()] == 1) {
                movie.record_confirmed_frames(&mut world.sites[movie.site()].session);
            }
            if world.now() >= until {
                return;
            }
        }
    }

    fn on_event(&mut self, happened: SiteEvent<'_>) {
        match happened {
            SiteEvent::Sampled { site, frame, words, .. } => self.checker.on_sampled(site, frame, words),
            SiteEvent::Confirmed { site, frame, words, hash, .. } => {
                self.checker.on_confirmed(site, frame, words, hash)
            }
            SiteEvent::Stepped { site, at, frame, .. } => self.checker.on_step(site, frame, at.as_nanos()),
            SiteEvent::InvalidRequest { site, description: what } => {
                self.checker.report_violation("agreement", format!("site {site} {what}"))
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

/// What came of a scenario.
#[derive(Clone, Debug, Default)]
pub struct ScenarioResult {
    /// A hash of everything that happened.
    pub trace_hash: u64,
    /// What went wrong, readable.
    pub violations: Vec<String>,
    /// Frames stepped, over all sites.
    pub frames: u64,
    /// Frames that those who watch saw.
    pub activity_count: u64,
    /// Frames that were read back from a movie.
    pub recorded: u64,
    /// Datagrams sent.
    pub packets: u64,
    /// Datagrams lost, to loss, full queues and cuts.
    pub lost_datagrams: u64,
    /// Datagrams dropped by the sites.
    pub rejected_datagrams: u64,
    /// Cuts.
    pub cuts: u64,
    /// Crashes.
    pub crashes: u64,
    /// Which of [`KINDS`](super::FEATURES) it contained.
    pub features: Vec<bool>,
    /// Virtual seconds.
    pub virtual_seconds: f64,
}

impl ScenarioResult {
    fn new(scenario: &SessionScenario, world: &SessionNetwork, play: SessionRun) -> Self {
        let links = world.links().iter().map(|link| link.stats());
        let (packets, losses) = links.fold((0, 0), |(packets, losses), link| {
            (packets + link.sent, losses + link.lost + link.overflowed + link.cut)
        });
        let faults =
            |is: fn(&SessionFault) -> bool| scenario.faults.iter().filter(|(_, fault)| is(fault)).count() as u64;
        Self {
            trace_hash: play.checker.trace_hash,
            violations: play.checker.find_violations().iter().map(ToString::to_string).collect(),
            frames: play.checker.total_confirmed,
            activity_count: play.checker.spectated_frames,
            recorded: play.checker.movie_frames,
            packets,
            lost_datagrams: losses,
            rejected_datagrams: world.sites.iter().map(|site| site.session.stats().dropped_datagrams.total()).sum(),
            cuts: faults(|fault| matches!(fault, SessionFault::Cut(..) | SessionFault::CutOneWay(..))),
            crashes: faults(|fault| matches!(fault, SessionFault::Crash(_))),
            features: scenario.features().to_vec(),
            virtual_seconds: (world.now() - Instant::ZERO).as_secs_f64(),
        }
    }
}
