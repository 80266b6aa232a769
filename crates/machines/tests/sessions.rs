//! Real machines under the session engine, over a bad link in virtual time.

mod common;

use common::faulty_machine::FaultyMachine;
use common::session_harness::{self, ReferenceChecker, TestSite, bad_link, test_config, test_options};
use common::{test_nes, test_nes_with_four_pads};
use coplay::frame::FrameRate;
use coplay::id::{SiteId, SiteSet};
use coplay::input::InputWord;
use coplay::session::{Config, Event, GameId, LateJoin, MachineId, Session, Settings, State};
use coplay::spectator_feed::SpectatorStart;
use coplay::time::{Instant, TimeDelta};
use coplay_machines::control::ControlledMachine;
#[cfg(target_os = "linux")]
use coplay_machines::libretro;
use coplay_machines::nes::Nes;
use coplay_machines::pad::{Button, Pad};
use coplay_machines::session_adapter::{self, SessionOptions};
use coplay_machines::{LoadError, LockstepOnly, Machine, NetplaySupport, Picture, SaveError};
use coplay_sim::host_network::{HostNetwork, HostProgram};
#[cfg(target_os = "linux")]
use coplay_testcores::{CoreDefect, build_core};

const SEED: u64 = 1;

fn zero_clock() -> u64 {
    0
}

fn test_site(site: SiteId, machine: Box<dyn Machine>, settings: &Settings) -> TestSite {
    TestSite::new(Instant::ZERO, test_config(&*machine, site, settings), machine, SEED, zero_clock)
}

#[test]
fn two_sites_stay_equal_with_rollback() {
    let settings = session_adapter::settings(&test_nes(), test_options(2));
    let seats = SiteId::first(2).map(|site| test_site(site, Box::new(test_nes()), &settings)).collect();
    let mut stage = HostNetwork::new(SEED, seats, |_, _| bad_link());
    let mut judge = ReferenceChecker::new(Box::new(test_nes()));
    session_harness::run_until_checked(&mut stage, &mut judge, 1_200, |_| {});
    assert_eq!((judge.first_mismatch, judge.next_frame >= 1_200), (None, true), "{} frames judged", judge.next_frame);
    for seat in &mut stage.programs {
        let (counts, stats) = (seat.counts(), seat.stats());
        assert_eq!(seat.error, None);
        assert!(seat.adapter.take_new_picture() && !seat.adapter.take_new_picture());
        assert!(counts.resimulated_steps > 100 && counts.loads > 100 && counts.hashes > 10, "{counts:?}");
        assert!(counts.rendered_steps >= 1_200 && counts.saves >= stats.saves && stats.saves > 1_000, "{counts:?}");
        assert!(!seat.events.iter().any(|event| matches!(event, Event::Diverged { .. } | Event::Ended(_))));
        // Frames that are not seen again leave the sound in one piece.
        assert!((790..=810).contains(&seat.adapter.machine().sound().len()));
    }
}

/// Two sites that play a core so long over a bad link, with guesses where its states allow that.
#[cfg(target_os = "linux")]
fn run_two_sites_with_core(core: &str, game: Option<libretro::GameImage>, frames: u32) -> HostNetwork<TestSite> {
    let first = libretro::open(libretro::CoreConfig {
        game,
        ..libretro::CoreConfig::new(libretro::CoreSource::from_user(core).expect("a core"))
    })
    .expect("it opens");
    let twin = || Box::new(first.twin().expect("another one"));
    let settings = session_adapter::settings(&first, test_options(2));
    let seats = SiteId::first(2).map(|site| test_site(site, twin(), &settings)).collect();
    let mut stage = HostNetwork::new(SEED, seats, |_, _| bad_link());
    let mut judge = ReferenceChecker::new(twin());
    session_harness::run_until_checked(&mut stage, &mut judge, frames, |_| {});
    assert_eq!((judge.first_mismatch, judge.next_frame >= frames), (None, true), "{} frames judged", judge.next_frame);
    for seat in &stage.programs {
        assert!(!seat.events.iter().any(|event| matches!(event, Event::Diverged { .. } | Event::Ended(_))));
        assert!(seat.error.is_none() && seat.counts().hashes > 0, "{:?}", seat.error);
    }
    stage
}

#[test]
#[cfg(target_os = "linux")]
fn two_sites_on_nestopia_stay_equal_with_rollback() {
    let image = coplay_testcores::images::nes();
    let game = libretro::GameImage { name: "test.nes".into(), image };
    let stage = run_two_sites_with_core("nestopia", Some(game), 600);
    for seat in &stage.programs {
        assert!(seat.counts().resimulated_steps > 50 && seat.counts().loads > 50, "{:?}", seat.counts());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn core_with_inexact_states_runs_in_lockstep() {
    let mut stage = run_two_sites_with_core(&build_core(CoreDefect::Forgets).path_string(), None, 600);
    for seat in &mut stage.programs {
        let (counts, window) = (seat.counts(), seat.session().settings().prediction_window);
        assert_eq!((window, counts.resimulated_steps, counts.saves, counts.loads), (0, 0, 0, 0));
    }
    // The one that remembers everything guesses.
    let stage = run_two_sites_with_core(&build_core(CoreDefect::Honest).path_string(), None, 300);
    assert!(stage.programs.iter().all(|seat| seat.counts().resimulated_steps > 0));
}

#[test]
fn lockstep_only_is_part_of_machine_id() {
    let (with, without) = (test_nes(), LockstepOnly::wrap(Box::new(test_nes())));
    assert!(LockstepOnly::is_lockstep_only(without.machine_id()) && !LockstepOnly::is_lockstep_only(with.machine_id()));
    assert_eq!(&LockstepOnly::inner_machine_id(without.machine_id().clone()), with.machine_id());
    let [ours, theirs] =
        [&with as &dyn Machine, &*without].map(|machine| session_adapter::settings(machine, SessionOptions::new(2)));
    assert_eq!((ours.prediction_window, theirs.prediction_window), (8, 0));
    assert!(ours.differences(&theirs).iter().any(|point| point.to_string().contains("states")));
    let controlled = ControlledMachine::new(without);
    assert!(!controlled.can_save() && controlled.netplay_support() == NetplaySupport::Lockstep);
}

#[test]
fn failure_reason_passes_through_wrappers() {
    let told = |machine: Box<dyn Machine>| ControlledMachine::new(machine).failure().map(str::to_owned);
    assert_eq!(told(Box::new(FaultyMachine::new("down"))).as_deref(), Some("it is down"));
    assert_eq!(told(LockstepOnly::wrap(Box::new(FaultyMachine::new("down")))).as_deref(), Some("it is down"));
    assert_eq!(told(Box::new(FaultyMachine::new("not"))), None);
}

#[test]
fn four_sites_with_four_pads_stay_equal() {
    let settings = session_adapter::settings(&test_nes_with_four_pads(), test_options(4));
    let seats = SiteId::first(4).map(|site| test_site(site, Box::new(test_nes_with_four_pads()), &settings)).collect();
    let mut stage = HostNetwork::new(SEED, seats, |_, _| bad_link());
    let mut judge = ReferenceChecker::new(Box::new(test_nes_with_four_pads()));
    session_harness::run_until_checked(&mut stage, &mut judge, 200, |_| {});
    assert_eq!((judge.first_mismatch, judge.next_frame >= 200), (None, true), "{} frames judged", judge.next_frame);
}

#[test]
fn late_joiner_starts_from_a_snapshot() {
    let all = session_adapter::settings(&test_nes(), test_options(3));
    let settings = Settings { starting_sites: SiteSet::first(2), ..all };
    let seats = SiteId::first(3).map(|site| test_site(site, Box::new(test_nes()), &settings)).collect();
    let mut stage = HostNetwork::new(SEED, seats, |_, _| bad_link());
    stage.run_until(Instant::ZERO + TimeDelta::from_secs(6));
    let late = SiteId::new(2).expect("a site");
    let usual = test_config(&test_nes(), late, &settings);
    let join = Config {
        late_join: Some(LateJoin { start: SpectatorStart::Snapshot, max_state_len: 1 << 20 }),
        incarnation: 2,
        ..usual
    };
    stage.programs[2] = TestSite::new(stage.now(), join, Box::new(test_nes()), SEED, zero_clock);
    stage.wake(2);
    stage.run_until(Instant::ZERO + TimeDelta::from_secs(12));
    assert!(matches!(stage.programs[2].session().state(), State::Running), "{:?}", stage.programs[2].events);
    // He has not played the first frames, but all since.
    let (first, last) =
        (stage.programs[2].confirmed[0].frame, stage.programs[2].confirmed.back().expect("frames").frame);
    assert!(first > 200 && last > first + 200, "{first} to {last}");
    let (players, latecomers) = stage.programs.split_at_mut(2);
    for note in &latecomers[0].confirmed {
        let theirs = players[0].confirmed.iter().find(|theirs| theirs.frame == note.frame);
        assert!(theirs.is_none_or(|theirs| theirs.state_hash == note.state_hash), "frame {}", note.frame);
    }
    let mut judge = ReferenceChecker::new(Box::new(test_nes()));
    judge.check_confirmed(&mut players.iter_mut().collect::<Vec<_>>());
    assert_eq!((judge.first_mismatch, judge.next_frame > last - 100), (None, true));
}

/// A machine that presses a button of its own from some time on.
struct DivergingMachine {
    nes: Nes,
    steps_left: u32,
}

impl Machine for DivergingMachine {
    fn step(&mut self, inputs: &[InputWord], fresh: bool) {
        self.steps_left = self.steps_left.saturating_sub(1);
        let mut words = inputs.to_vec();
        words[0] |= if self.steps_left == 0 { Button::A.bit() } else { 0 };
        self.nes.step(&words, fresh);
    }

    fn machine_id(&self) -> &MachineId {
        self.nes.machine_id()
    }
    fn game_id(&self) -> &GameId {
        self.nes.game_id()
    }
    fn frame_rate(&self) -> FrameRate {
        self.nes.frame_rate()
    }
    fn pads(&self) -> &[Pad] {
        self.nes.pads()
    }
    fn reset(&mut self) {
        self.nes.reset();
    }
    fn picture(&self) -> Picture<'_> {
        self.nes.picture()
    }
    fn sound(&self) -> &[[i16; 2]] {
        self.nes.sound()
    }
    fn sample_rate(&self) -> f64 {
        self.nes.sample_rate()
    }
    fn can_save(&self) -> bool {
        self.nes.can_save()
    }
    fn save(&mut self, into: &mut Vec<u8>) -> Result<(), SaveError> {
        self.nes.save(into)
    }
    fn load(&mut self, state: &[u8]) -> Result<(), LoadError> {
        self.nes.load(state)
    }
    fn hash(&mut self) -> u64 {
        self.nes.hash()
    }
    fn regions(&mut self, show: &mut dyn FnMut(&str, &[u8])) {
        self.nes.regions(show);
    }
}

#[test]
fn desync_report_names_the_diverged_region() {
    let settings = session_adapter::settings(&test_nes(), test_options(2));
    let machines: [Box<dyn Machine>; 2] =
        [Box::new(test_nes()), Box::new(DivergingMachine { nes: test_nes(), steps_left: 300 })];
    let seats = SiteId::first(2).zip(machines).map(|(site, machine)| test_site(site, machine, &settings)).collect();
    let mut stage = HostNetwork::new(SEED, seats, |_, _| bad_link());
    let mut judge = ReferenceChecker::new(Box::new(test_nes()));
    session_harness::run_until_checked(&mut stage, &mut judge, 1_200, |_| {});
    let (frame, site) = judge.first_mismatch.expect("the judge sees it");
    assert!(site == 1 && (100..300).contains(&frame), "frame {frame}, site {site}");
    stage.run_until(stage.now() + TimeDelta::from_secs(8));
    for seat in &stage.programs {
        assert!(seat.events.iter().any(|event| matches!(event, Event::Diverged { .. })), "{:?}", seat.events);
        let report = seat.events.iter().find_map(|event| match event {
            Event::DesyncReport(report) => Some(report),
            _ => None,
        });
        let report = report.expect("a report");
        assert!(report.to_string().contains("work ram"), "{report}");
    }
}

#[test]
fn settings_are_derived_from_the_machine() {
    let machine = test_nes();
    let settings = session_adapter::settings(&machine, SessionOptions::new(3));
    assert_eq!((settings.rate, settings.site_count), (machine.frame_rate(), 3));
    assert_eq!(settings.ownership.players(), 2);
    for site in SiteId::first(3) {
        for player in 0..2 {
            let wanted = if site.index() == player { machine.pads()[player].mask } else { 0 };
            assert_eq!(settings.ownership.mask(site, player), wanted);
        }
    }
    let config = test_config(&machine, SiteId::new(2).expect("a site"), &settings);
    assert!(Session::new(Instant::ZERO, config).is_ok());
}
