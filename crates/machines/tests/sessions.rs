//! Tests of machines under the session engine: games of two to four sites over a bad link in virtual time, wrappers,
//! and settings derived from a machine.

mod common;

use common::faulty_machine::FaultyMachine;
use common::session_harness::{self, ReferenceChecker, TestSite, bad_link, test_config, test_options};
use common::{test_nes, test_nes_with_four_pads};
use coplay::frame::FrameRate;
use coplay::id::{SiteId, SiteSet};
use coplay::input::InputWord;
use coplay::session::{Config, Event, GameId, LateJoinConfig, MachineId, Session, Settings, State};
use coplay::spectator_feed::SpectatorStart;
use coplay::time::{Instant, TimeDelta};
use coplay_machines::control::ControlledMachine;
#[cfg(target_os = "linux")]
use coplay_machines::libretro;
use coplay_machines::nes::Nes;
use coplay_machines::pad::{Button, PadLayout};
use coplay_machines::session_adapter::{self, SharedGameOptions};
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
    let sites = SiteId::first(2).map(|site| test_site(site, Box::new(test_nes()), &settings)).collect();
    let mut network = HostNetwork::<TestSite>::new(SEED, sites, |_, _| bad_link());
    let mut checker = ReferenceChecker::new(Box::new(test_nes()));
    session_harness::run_until_checked(&mut network, &mut checker, 1_200, |_| {});
    assert_eq!(
        (checker.first_mismatch, checker.next_frame >= 1_200),
        (None, true),
        "{} frames checked",
        checker.next_frame
    );
    for site in &mut network.nodes {
        let (counts, stats) = (site.counts(), site.stats());
        assert_eq!(site.error, None);
        assert!(site.adapter.take_new_picture() && !site.adapter.take_new_picture());
        assert!(counts.resimulated_steps > 100 && counts.loads > 100 && counts.hashes > 10, "{counts:?}");
        assert!(counts.rendered_steps >= 1_200 && counts.saves >= stats.saves && stats.saves > 1_000, "{counts:?}");
        assert!(!site.events.iter().any(|event| matches!(event, Event::Diverged { .. } | Event::Ended(_))));
        // Resimulated frames do not disturb the sound.
        assert!((790..=810).contains(&site.adapter.machine().sound().len()));
    }
}

/// Runs two sites with a core over a bad link and asserts that they stay equal. The sites predict inputs if the core's
/// states are exact.
#[cfg(target_os = "linux")]
fn run_two_sites_with_core(core: &str, game: Option<libretro::GameImage>, frames: u32) -> HostNetwork<TestSite> {
    let first = libretro::open(libretro::CoreConfig {
        game,
        ..libretro::CoreConfig::new(libretro::CoreSource::from_user(core).expect("the name is valid"))
    })
    .expect("the core opens");
    let twin = || Box::new(first.twin().expect("the twin opens"));
    let settings = session_adapter::settings(&first, test_options(2));
    let sites = SiteId::first(2).map(|site| test_site(site, twin(), &settings)).collect();
    let mut network = HostNetwork::<TestSite>::new(SEED, sites, |_, _| bad_link());
    let mut checker = ReferenceChecker::new(twin());
    session_harness::run_until_checked(&mut network, &mut checker, frames, |_| {});
    assert_eq!(
        (checker.first_mismatch, checker.next_frame >= frames),
        (None, true),
        "{} frames checked",
        checker.next_frame
    );
    for site in &network.nodes {
        assert!(!site.events.iter().any(|event| matches!(event, Event::Diverged { .. } | Event::Ended(_))));
        assert!(site.error.is_none() && site.counts().hashes > 0, "{:?}", site.error);
    }
    network
}

#[test]
#[cfg(target_os = "linux")]
fn two_sites_on_nestopia_stay_equal_with_rollback() {
    let image = coplay_testcores::images::nes();
    let game = libretro::GameImage { name: "test.nes".into(), image };
    let network = run_two_sites_with_core("nestopia", Some(game), 600);
    for site in &network.nodes {
        assert!(site.counts().resimulated_steps > 50 && site.counts().loads > 50, "{:?}", site.counts());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn core_with_inexact_states_runs_in_lockstep() {
    let mut network = run_two_sites_with_core(&build_core(CoreDefect::Forgets).path_string(), None, 600);
    for site in &mut network.nodes {
        let (counts, window) = (site.counts(), site.session().settings().prediction_window);
        assert_eq!((window, counts.resimulated_steps, counts.saves, counts.loads), (0, 0, 0, 0));
    }
    // A core with exact states uses prediction.
    let network = run_two_sites_with_core(&build_core(CoreDefect::Honest).path_string(), None, 300);
    assert!(network.nodes.iter().all(|site| site.counts().resimulated_steps > 0));
}

#[test]
fn lockstep_only_is_part_of_machine_id() {
    let (rollback, lockstep) = (test_nes(), LockstepOnly::wrap(Box::new(test_nes())));
    assert!(
        LockstepOnly::is_lockstep_only(lockstep.machine_id()) && !LockstepOnly::is_lockstep_only(rollback.machine_id())
    );
    assert_eq!(&LockstepOnly::inner_machine_id(lockstep.machine_id().clone()), rollback.machine_id());
    let [ours, theirs] = [&rollback as &dyn Machine, &*lockstep]
        .map(|machine| session_adapter::settings(machine, SharedGameOptions::new(2)));
    assert_eq!((ours.prediction_window, theirs.prediction_window), (8, 0));
    assert!(ours.differences(&theirs).iter().any(|point| point.to_string().contains("states")));
    let controlled = ControlledMachine::new(lockstep);
    assert!(!controlled.can_save() && controlled.netplay_support() == NetplaySupport::Lockstep);
}

#[test]
fn failure_reason_passes_through_wrappers() {
    let failure_reason = |machine: Box<dyn Machine>| ControlledMachine::new(machine).failure().map(str::to_owned);
    assert_eq!(failure_reason(Box::new(FaultyMachine::new("down"))).as_deref(), Some("halted for the test"));
    assert_eq!(
        failure_reason(LockstepOnly::wrap(Box::new(FaultyMachine::new("down")))).as_deref(),
        Some("halted for the test")
    );
    assert_eq!(failure_reason(Box::new(FaultyMachine::new("not"))), None);
}

#[test]
fn four_sites_with_four_pads_stay_equal() {
    let settings = session_adapter::settings(&test_nes_with_four_pads(), test_options(4));
    let sites = SiteId::first(4).map(|site| test_site(site, Box::new(test_nes_with_four_pads()), &settings)).collect();
    let mut network = HostNetwork::<TestSite>::new(SEED, sites, |_, _| bad_link());
    let mut checker = ReferenceChecker::new(Box::new(test_nes_with_four_pads()));
    session_harness::run_until_checked(&mut network, &mut checker, 200, |_| {});
    assert_eq!(
        (checker.first_mismatch, checker.next_frame >= 200),
        (None, true),
        "{} frames checked",
        checker.next_frame
    );
}

#[test]
fn late_joiner_starts_from_a_snapshot() {
    let settings_for_all = session_adapter::settings(&test_nes(), test_options(3));
    let settings = Settings { starting_sites: SiteSet::first(2), ..settings_for_all };
    let sites = SiteId::first(3).map(|site| test_site(site, Box::new(test_nes()), &settings)).collect();
    let mut network = HostNetwork::<TestSite>::new(SEED, sites, |_, _| bad_link());
    network.run_until(Instant::ZERO + TimeDelta::from_secs(6));
    let joiner = SiteId::new(2).expect("the site id is valid");
    let default = test_config(&test_nes(), joiner, &settings);
    let join = Config {
        late_join: Some(LateJoinConfig { start: SpectatorStart::Snapshot, max_state_len: 1 << 20 }),
        incarnation: 2,
        ..default
    };
    network.nodes[2].node = TestSite::new(network.now(), join, Box::new(test_nes()), SEED, zero_clock);
    network.wake(2);
    network.run_until(Instant::ZERO + TimeDelta::from_secs(12));
    assert!(matches!(network.nodes[2].session().state(), State::Running), "{:?}", network.nodes[2].events);
    // The late joiner skipped the first frames and played all later ones.
    let (first, last) = (
        network.nodes[2].confirmed[0].frame,
        network.nodes[2].confirmed.back().expect("the joiner confirmed frames").frame,
    );
    assert!(first > 200 && last > first + 200, "{first} to {last}");
    let (players, joiners) = network.nodes.split_at_mut(2);
    for record in &joiners[0].confirmed {
        let theirs = players[0].confirmed.iter().find(|theirs| theirs.frame == record.frame);
        assert!(theirs.is_none_or(|theirs| theirs.state_hash == record.state_hash), "frame {}", record.frame);
    }
    let mut checker = ReferenceChecker::new(Box::new(test_nes()));
    checker.check_confirmed(&mut players.iter_mut().map(|site| &mut site.node).collect::<Vec<_>>());
    assert_eq!((checker.first_mismatch, checker.next_frame > last - 100), (None, true));
}

/// A machine that behaves as if the first player held the A button, once it has stepped a number of frames.
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
    fn pads(&self) -> &[PadLayout] {
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
    let sites = SiteId::first(2).zip(machines).map(|(site, machine)| test_site(site, machine, &settings)).collect();
    let mut network = HostNetwork::<TestSite>::new(SEED, sites, |_, _| bad_link());
    let mut checker = ReferenceChecker::new(Box::new(test_nes()));
    session_harness::run_until_checked(&mut network, &mut checker, 1_200, |_| {});
    let (frame, site) = checker.first_mismatch.expect("the checker finds the mismatch");
    assert!(site == 1 && (100..300).contains(&frame), "frame {frame}, site {site}");
    network.run_until(network.now() + TimeDelta::from_secs(8));
    for site in &network.nodes {
        assert!(site.events.iter().any(|event| matches!(event, Event::Diverged { .. })), "{:?}", site.events);
        let report = site.events.iter().find_map(|event| match event {
            Event::DesyncReport(report) => Some(report),
            _ => None,
        });
        let report = report.expect("a desync report was sent");
        assert!(report.to_string().contains("work ram"), "{report}");
    }
}

#[test]
fn settings_are_derived_from_the_machine() {
    let machine = test_nes();
    let settings = session_adapter::settings(&machine, SharedGameOptions::new(3));
    assert_eq!((settings.rate, settings.site_count), (machine.frame_rate(), 3));
    assert_eq!(settings.ownership.players(), 2);
    for site in SiteId::first(3) {
        for player in 0..2 {
            let expected = if site.index() == player { machine.pads()[player].mask } else { 0 };
            assert_eq!(settings.ownership.mask(site, player), expected);
        }
    }
    let config = test_config(&machine, SiteId::new(2).expect("the site id is valid"), &settings);
    assert!(Session::new(Instant::ZERO, config).is_ok());
}
