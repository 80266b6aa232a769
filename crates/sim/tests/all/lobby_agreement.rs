//! A session starts when all sites have the same settings, at the same instant everywhere. Otherwise every site reports
//! the settings that differ.

use crate::common::{SessionSetup, TestSession, lossy_link, ms, rtt_link, secs, site_id, site_set};
use coplay::codec::{MAX_DATAGRAM, VERSION};
use coplay::frame::FrameRate;
use coplay::id::{Addr, SiteId};
use coplay::input::Ownership;
use coplay::session::{
    Config, ConfigError, Event, MAX_COMPARE_INTERVAL, MIN_DROP_TIMEOUT, SendPolicy, Session, Settings,
    SettingsDifference, SettingsError, State,
};
use coplay::time::{Instant, TimeDelta};
use coplay_sim::clock::NodeClock;

/// Returns the peer and the differences of a disagreement event.
fn as_disagreed(event: &Event) -> Option<(SiteId, &[SettingsDifference])> {
    if let Event::Disagreed { site, differences } = event { Some((*site, differences)) } else { None }
}

fn has_started(game: &TestSession, site: usize) -> bool {
    let starting =
        game.events_of(site).any(|reported| matches!(reported.event, Event::Starting { .. } | Event::Agreed { .. }));
    starting || !game.step_times[site].is_empty()
}

/// Changes the settings of the second of two sites. Asserts that both report the difference and that the session does
/// not start.
#[track_caller]
fn assert_disagree(change: impl Fn(&mut Settings), setting: &str, ours: &str, theirs: &str) {
    let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|site, config| {
        if site == 1 {
            change(&mut config.settings);
        }
        // The changed settings may have more sites. No site is at their addresses.
        for other in 2..usize::from(config.settings.site_count) {
            config.peers.push((site_id(other), Addr(50 + other as u64)));
        }
    });
    game.run_for(secs(10));
    for (site, own, other) in [(0, ours, theirs), (1, theirs, ours)] {
        let disagreements: Vec<_> = game.events_of(site).filter_map(|reported| as_disagreed(&reported.event)).collect();
        let expected = SettingsDifference { setting: setting.into(), ours: own.into(), theirs: other.into() };
        assert_eq!(disagreements, [(site_id(1 - site), &[expected][..])], "site {site}");
        assert!(!has_started(&game, site), "site {site} agreed or started");
        let State::Lobby { waiting_for } = game.state(site) else { panic!("{:?}", game.state(site)) };
        assert!(waiting_for.contains(site_id(1 - site)) && !waiting_for.contains(site_id(site)), "{waiting_for:?}");
    }
}

#[test]
fn different_game_is_reported() {
    let ours = "\"toy\" (07070707…)";
    assert_disagree(|settings| settings.game.hash[0] = 8, "the game", ours, "\"toy\" (08070707…)");
    let renamed = |settings: &mut Settings| (settings.game.name, settings.game.hash) = ("pong".into(), [9; 32]);
    assert_disagree(renamed, "the game", ours, "\"pong\" (09090909…)");
}

#[test]
fn different_game_with_the_same_hash_prefix_is_reported() {
    let mut game =
        SessionSetup::new(2, rtt_link(100)).start_with(|site, config| config.settings.game.hash[31] = site as u8);
    game.run_for(secs(5));
    for site in [0, 1] {
        let found = game.find_event(site, |event| as_disagreed(event).map(|(_, found)| found.to_vec()));
        let (_, found) = found.expect("a disagreement");
        assert!(found.iter().map(|one| one.setting.as_str()).eq(["the game"]), "{found:?}");
        assert!(!has_started(&game, site), "site {site} agreed or started");
    }
}

#[test]
fn different_machine_is_reported() {
    assert_disagree(|settings| settings.machine.name = "loom".into(), "the machine", "toy", "loom");
    assert_disagree(|settings| settings.machine.version = "2".into(), "the machine's version", "1", "2");
    let build = |settings: &mut Settings| settings.machine.first_frames_hash = 0xfeed;
    assert_disagree(build, "the hash of the first frames", "0000000000000000", "000000000000feed");
}

#[test]
fn different_machine_option_is_reported() {
    let option = |settings: &mut Settings| settings.machine.options.push(("region".into(), "pal".into()));
    assert_disagree(option, "the machine's option region", "unset", "\"pal\"");
}

#[test]
fn different_machine_option_value_is_reported() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|site, config| {
        let value = ["ntsc", "pal"][site];
        config.settings.machine.options = vec![("cpu".into(), "exact".into()), ("region".into(), value.into())];
    });
    game.run_for(secs(5));
    let events: Vec<_> = game.events_of(0).map(|reported| reported.event.to_string()).collect();
    let sentence =
        "site 1 does not match this site: the machine's option region differs: \"ntsc\" here, \"pal\" there".to_owned();
    assert_eq!(events, [sentence]);
}

#[test]
fn different_frame_rate_is_reported() {
    let rate = |frames, seconds| FrameRate::new(frames, seconds).expect("a rate");
    let setting = "the frame rate";
    assert_disagree(|settings| settings.rate = rate(50, 1), setting, "60 fps (60/1)", "50 fps (50/1)");
    // A rate that is nearly equal is still different.
    let nearly = "60.0000 fps (60000001/1000000)";
    assert_disagree(|settings| settings.rate = rate(60_000_001, 1_000_000), setting, "60 fps (60/1)", nearly);
}

#[test]
fn different_input_delay_is_reported() {
    assert_disagree(|settings| settings.input_delay = 7, "the input delay", "6 frames", "7 frames");
}

#[test]
fn different_hash_interval_is_reported() {
    assert_disagree(|settings| settings.compare_interval = 0, "the state comparison interval", "60 frames", "0 frames");
}

#[test]
fn different_input_ownership_is_reported() {
    let wider = |settings: &mut Settings| {
        settings.ownership.assign(site_id(0), 0, 1 << 20).expect("unassigned bits");
    };
    assert_disagree(wider, "the input bits of player 0 that site 0 owns", "0xffff", "0x10ffff");
    let both = |settings: &mut Settings| {
        settings.ownership.assign(site_id(0), 1, 1 << 100).expect("unassigned bits");
    };
    assert_disagree(both, "the input bits of player 1 that site 0 owns", "0x0", "0x10000000000000000000000000");
}

#[test]
fn different_player_count_is_reported() {
    let more = |settings: &mut Settings| {
        let mut ownership = Ownership::new(3);
        ownership.assign(site_id(0), 0, 0xffff).expect("unassigned bits");
        ownership.assign(site_id(1), 1, 0xffff).expect("unassigned bits");
        settings.ownership = ownership;
    };
    assert_disagree(more, "the number of players", "2", "3");
}

#[test]
fn different_site_count_is_reported() {
    assert_disagree(|settings| settings.site_count = 3, "the number of sites", "2", "3");
}

#[test]
fn all_differences_are_reported_at_once() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|site, config| {
        if site == 1 {
            config.settings.machine.version = "2".into();
            config.settings.input_delay = 9;
        }
    });
    game.run_for(secs(5));
    let (_, found) =
        game.find_event(0, |event| as_disagreed(event).map(|(_, found)| found.to_vec())).expect("a disagreement");
    assert!(found.iter().map(|one| one.setting.as_str()).eq(["the machine's version", "the input delay"]), "{found:?}");
}

#[test]
fn only_differing_sites_disagree_and_no_site_starts() {
    let mut game = SessionSetup::new(3, rtt_link(100)).start_with(|site, config| {
        config.settings.input_delay = if site == 2 { 4 } else { 6 };
    });
    game.run_for(secs(10));
    for (site, disagrees_with) in [(0, vec![2]), (1, vec![2]), (2, vec![0, 1])] {
        let disagreements = game.events_of(site).filter_map(|reported| as_disagreed(&reported.event));
        let mut sites: Vec<usize> = disagreements.map(|(site, _)| site.index()).collect();
        sites.sort_unstable();
        assert_eq!(sites, disagrees_with, "site {site}");
        assert!(matches!(game.state(site), State::Lobby { .. }), "{:?}", game.state(site));
    }
}

#[test]
fn different_game_name_is_no_disagreement() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|site, config| {
        config.settings.game.name = ["Toy (Europe)", "toy.bin"][site].into();
    });
    game.run_frames(120);
    assert!(game.events.iter().all(|reported| as_disagreed(&reported.event).is_none()));
    game.assert_consistent();
}

/// Two sessions and a wire between them on which datagrams can be changed.
struct Wire {
    now: Instant,
    ends: [Session; 2],
    events: [Vec<Event>; 2],
    /// Datagrams in flight: arrival time, receiving end and payload.
    in_flight: Vec<(Instant, usize, Vec<u8>)>,
    tamper: fn(&mut Vec<u8>),
}

/// Addresses of the two ends of the wire.
const ADDRESSES: [Addr; 2] = [Addr(10), Addr(11)];

impl Wire {
    fn new(configs: [Config; 2], tamper: fn(&mut Vec<u8>)) -> Self {
        let now = Instant::ZERO + secs(1);
        let ends = configs.map(|config| Session::new(now, config).expect("valid config"));
        Self { now, ends, events: [Vec::new(), Vec::new()], in_flight: Vec::new(), tamper }
    }

    fn run_for(&mut self, time: TimeDelta) {
        let until = self.now + time;
        while self.now < until {
            self.now += ms(1);
            for (_, to, bytes) in self.in_flight.extract_if(.., |(arrival, _, _)| *arrival <= self.now) {
                self.ends[to].handle_datagram(self.now, ADDRESSES[1 - to], &bytes);
            }
            for (number, end) in self.ends.iter_mut().enumerate() {
                assert_eq!(end.poll_request(self.now), None, "the game must not start");
                let mut buf = [0; MAX_DATAGRAM];
                while let Some(transmit) = end.poll_transmit(self.now, &mut buf) {
                    assert_eq!(transmit.to, ADDRESSES[1 - number]);
                    let mut bytes = buf[..transmit.len].to_vec();
                    (self.tamper)(&mut bytes);
                    self.in_flight.push((self.now + ms(50), 1 - number, bytes));
                }
                while let Some(event) = end.poll_event() {
                    self.events[number].push(event);
                }
            }
        }
    }
}

/// Returns the config of a site whose only peer is at the other end of the wire.
fn config_at_end(end: usize, site: usize) -> Config {
    let config = SessionSetup::new(2, rtt_link(0)).config(site);
    Config { peers: vec![(site_id(1 - site), ADDRESSES[1 - end])], ..config }
}

#[test]
fn different_protocol_version_is_reported() {
    let mut wire = Wire::new([config_at_end(0, 0), config_at_end(1, 1)], |bytes| bytes[0] = VERSION + 1);
    wire.run_for(secs(10));
    for end in [0, 1] {
        let (ours, theirs) = (VERSION.to_string(), (VERSION + 1).to_string());
        let difference = SettingsDifference { setting: "the protocol's version".into(), ours, theirs };
        let expected = Event::Disagreed { site: site_id(1 - end), differences: vec![difference] };
        assert_eq!(wire.events[end], [expected], "site {end}");
        assert!(matches!(wire.ends[end].state(), State::Lobby { .. }));
    }
}

#[test]
fn duplicate_site_number_is_reported() {
    for site in [0, 1] {
        let mut wire = Wire::new([config_at_end(0, site), config_at_end(1, site)], |_| {});
        wire.run_for(secs(10));
        for end in [0, 1] {
            let other = site_id(1 - site);
            let (ours, theirs) = (other.to_string(), site_id(site).to_string());
            let difference = SettingsDifference { setting: "the site number".into(), ours, theirs };
            let expected = Event::Disagreed { site: other, differences: vec![difference] };
            assert_eq!(wire.events[end], [expected], "end {end}");
            assert!(matches!(wire.ends[end].state(), State::Lobby { .. }));
        }
    }
}

#[test]
fn datagrams_of_other_sessions_are_ignored() {
    let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|site, config| config.session_id += site as u64);
    game.run_for(secs(10));
    assert!(game.events.is_empty(), "{:?}", game.events);
    assert!(game.stats(0).dropped_datagrams.strangers > 0);
}

/// Plays 60 frames. Returns the true time between the first and the last site's step of frame 0.
fn first_step_spread(game: &mut TestSession) -> TimeDelta {
    game.run_frames(60);
    game.assert_consistent();
    let first = game.step_times.iter().map(|steps| steps[0]);
    first.clone().max().expect("a site") - first.min().expect("a site")
}

/// Returns clocks that are 1,000 s apart and differ in rate like crystals, by 40 ppm from site to site.
fn clocks_far_apart(sites: usize) -> Vec<NodeClock> {
    let clock = |site: usize| NodeClock { offset: secs(site as i64 * -1_000), skew_ppm: site as f64 * 40.0 - 80.0 };
    (0..sites).map(clock).collect()
}

#[test]
fn all_sites_start_at_one_instant_whatever_their_clocks_show() {
    for sites in [2, 3, 4, 8] {
        let mut game =
            SessionSetup { clocks: clocks_far_apart(sites), ..SessionSetup::new(sites, rtt_link(100)) }.start();
        let apart = first_step_spread(&mut game);
        assert!(apart < ms(2), "{sites} sites start {apart} apart");
    }
}

#[test]
fn lost_start_datagram_delays_the_start_by_at_most_the_latency() {
    for seed in 0..20 {
        for sites in [2, 3, 4] {
            let setup = SessionSetup {
                seed,
                clocks: clocks_far_apart(sites),
                ..SessionSetup::new(sites, lossy_link(100, 0.3))
            };
            let apart = first_step_spread(&mut setup.start());
            assert!(apart <= ms(50), "seed {seed}: {sites} sites start {apart} apart");
        }
    }
}

#[test]
fn start_is_learned_from_a_third_site() {
    let mut game = SessionSetup { clocks: clocks_far_apart(3), ..SessionSetup::new(3, rtt_link(100)) }.start();
    game.run_while(secs(10), |game| !matches!(game.state(0), State::Starting { .. }));
    // All datagrams from site 0 to site 1 are lost from now on, including those in flight.
    game.network.link(0, 1).set_cut(true);
    game.run_for(ms(400));
    game.network.link(0, 1).set_cut(false);
    let apart = first_step_spread(&mut game);
    assert!(apart < ms(2), "they start {apart} apart");
}

#[test]
fn start_survives_the_loss_of_the_first_start_datagrams() {
    for cut_ms in [60, 110, 160, 210] {
        let mut game = SessionSetup { clocks: clocks_far_apart(2), ..SessionSetup::new(2, rtt_link(100)) }.start();
        game.run_while(secs(10), |game| !matches!(game.state(0), State::Starting { .. }));
        game.network.link(0, 1).set_cut(true);
        game.run_for(ms(cut_ms));
        game.network.link(0, 1).set_cut(false);
        let apart = first_step_spread(&mut game);
        assert!(apart <= ms(50), "after a cut of {cut_ms} ms they start {apart} apart");
    }
}

/// Restarts one of three sites in the lobby, without a goodbye, before the third site arrives. Asserts that the session
/// starts.
fn assert_restarts_in_the_lobby(new_clock: impl Fn(Instant) -> Option<NodeClock>) {
    for restarted in [0, 1] {
        let mut game = SessionSetup::new(3, rtt_link(100)).start();
        game.set_isolated(2, true);
        game.run_for(secs(20));
        if let Some(clock) = new_clock(game.now()) {
            game.network.nodes[restarted].clock = clock;
        }
        game.restart(restarted);
        game.run_for(secs(5));
        game.set_isolated(2, false);
        game.run_for(secs(5));
        for site in 0..3 {
            assert_eq!(game.state(site), State::Running, "site {site} after site {restarted} was restarted");
            assert!(game.stats(site).frame.number() > 200, "site {site} after site {restarted} was restarted");
        }
    }
}

#[test]
fn site_restarted_in_the_lobby_is_accepted() {
    assert_restarts_in_the_lobby(|_| None);
}

#[test]
fn site_restarted_in_the_lobby_with_a_reset_clock_is_accepted() {
    assert_restarts_in_the_lobby(|now| Some(NodeClock { offset: Instant::ZERO - now, skew_ppm: 0.0 }));
}

/// Returns the lobby events of `site` about site `of`, and its start events, in order.
fn lobby_events(game: &TestSession, site: usize, of: usize) -> Vec<&'static str> {
    let name = |event: &Event| match event {
        Event::Agreed { site } if *site == site_id(of) => Some("agreed"),
        Event::Disagreed { site, .. } if *site == site_id(of) => Some("disagreed"),
        Event::Starting { .. } => Some("starting"),
        _ => None,
    };
    game.events_of(site).filter_map(|reported| name(&reported.event)).collect()
}

#[track_caller]
fn assert_all_play(game: &TestSession, case: &str) {
    for site in 0..game.step_times.len() {
        assert_eq!(game.state(site), State::Running, "{case}: site {site}");
        let frames = game.stats(site).frame.number();
        assert!(frames > 200, "{case}: site {site} stepped {frames} frames");
    }
}

#[test]
fn site_that_corrects_its_settings_is_accepted() {
    for corrected in [0, 1] {
        let mut game = SessionSetup::new(2, rtt_link(100)).start_with(|site, config| {
            if site == corrected {
                config.settings.input_delay = 4;
            }
        });
        game.run_for(secs(2));
        game.restart_with(corrected, |config| config.settings.input_delay = 6);
        game.run_for(secs(6));
        let events = lobby_events(&game, 1 - corrected, corrected);
        assert_eq!(events, ["disagreed", "agreed", "starting"], "site {corrected} was corrected");
        assert_all_play(&game, &format!("site {corrected} was corrected"));
    }
}

#[test]
fn site_that_left_the_lobby_may_return() {
    for leaver in [0, 1] {
        // While it still sends goodbyes, and long after.
        for away in [ms(100), secs(2)] {
            let mut game = SessionSetup::new(3, rtt_link(100)).start();
            game.set_isolated(2, true);
            game.run_for(secs(1));
            game.leave(leaver);
            game.run_for(away);
            game.restart(leaver);
            game.run_for(secs(1));
            game.set_isolated(2, false);
            game.run_for(secs(6));
            assert_all_play(&game, &format!("site {leaver} was away for {away}"));
        }
    }
}

#[test]
fn site_that_returns_with_other_settings_is_reported() {
    for changed in [0, 1] {
        let mut game = SessionSetup::new(3, rtt_link(100)).start();
        let other = 1 - changed;
        game.set_isolated(2, true);
        game.run_for(secs(2));
        assert_eq!(lobby_events(&game, other, changed), ["agreed"]);
        game.restart_with(changed, |config| config.settings.input_delay = 5);
        game.run_for(secs(2));
        assert_eq!(lobby_events(&game, other, changed), ["agreed", "disagreed"]);
        let State::Lobby { waiting_for } = game.state(other) else { panic!("{:?}", game.state(other)) };
        assert!(waiting_for.contains(site_id(changed)), "{waiting_for:?}");
        game.set_isolated(2, false);
        game.run_for(secs(4));
        assert!(matches!(game.state(other), State::Lobby { .. }), "{:?}", game.state(other));
        game.restart_with(changed, |config| config.settings.input_delay = 6);
        game.run_for(secs(6));
        assert_eq!(lobby_events(&game, other, changed), ["agreed", "disagreed", "agreed", "starting"]);
        assert_all_play(&game, &format!("site {changed} restored its settings"));
    }
}

#[test]
fn start_learned_a_minute_late_still_starts() {
    for sites in [2, 3] {
        let mut game =
            SessionSetup { clocks: clocks_far_apart(sites), ..SessionSetup::new(sites, rtt_link(100)) }.start();
        game.run_while(secs(10), |game| !matches!(game.state(0), State::Starting { .. }));
        game.set_isolated(sites - 1, true);
        game.run_for(secs(70));
        let last = game.state(sites - 1);
        assert!(matches!(last, State::Lobby { .. }), "{last:?}");
        game.set_isolated(sites - 1, false);
        game.run_for(secs(10));
        let then = game.now();
        game.run_for(secs(10));
        assert_all_play(&game, &format!("{sites} sites"));
        for site in 0..sites {
            let fps = game.fps(site, then, game.now());
            assert!(fps > 59.5, "site {site} of {sites} at {fps:.2} fps");
        }
        game.assert_consistent();
    }
}

#[test]
fn lobby_names_the_sites_not_yet_agreed() {
    let waiting_for = |game: &TestSession, site: usize| match game.state(site) {
        State::Lobby { waiting_for } => waiting_for,
        state => panic!("site {site} is {state:?}"),
    };
    let mut game = SessionSetup::new(3, rtt_link(100)).start();
    game.network.set_cut(1, 2, true);
    game.run_for(secs(3));
    assert_eq!(waiting_for(&game, 0), site_set([1, 2]), "they do not agree with each other");
    assert!(waiting_for(&game, 1).contains(site_id(2)) && waiting_for(&game, 2).contains(site_id(1)));
    game.network.set_cut(1, 2, false);
    // A waiting site names at least one awaited site until it knows the start time.
    let mut game = SessionSetup::new(3, lossy_link(100, 0.1)).start();
    while !matches!(game.state(0), State::Starting { .. } | State::Running) {
        assert!(!waiting_for(&game, 0).is_empty(), "at {:?}", game.now());
        game.run_for(ms(1));
    }
}

#[test]
fn invalid_settings_are_rejected() {
    let config = SessionSetup::new(2, rtt_link(0)).config(0);
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        let error = config.settings.check().err();
        (error, Session::new(Instant::ZERO, config).err())
    };
    assert_eq!(refused(&|_| {}), (None, None));

    let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let duplicate = SettingsError::DuplicateOption("region".into());
    for other in ["ntsc", "pal"] {
        let options = vec![option("region", "ntsc"), option("cpu", "exact"), option("region", other)];
        let (settings, config_error) = refused(&|config| config.settings.machine.options.clone_from(&options));
        assert_eq!((settings, config_error), (Some(duplicate.clone()), Some(ConfigError::Settings(duplicate.clone()))));
    }

    assert_eq!(refused(&|config| config.settings.compare_interval = MAX_COMPARE_INTERVAL), (None, None));
    for interval in [MAX_COMPARE_INTERVAL + 1, 65_536, u32::MAX] {
        let (settings, _) = refused(&|config| config.settings.compare_interval = interval);
        assert_eq!(settings, Some(SettingsError::CompareIntervalTooLong(interval)));
    }

    for (input_delay, prediction_window) in [(120, 8), (68, 60), (120, 60)] {
        let (settings, _) = refused(&|config| {
            (config.settings.input_delay, config.settings.prediction_window) = (input_delay, prediction_window)
        });
        assert_eq!(settings, Some(SettingsError::LeadTooLong(input_delay + prediction_window)));
    }

    for period in [TimeDelta::ZERO, ms(-20)] {
        let (_, config_error) = refused(&|config| config.send_policy = SendPolicy::Timer(period));
        assert_eq!(config_error, Some(ConfigError::InvalidSendTimer), "{period}");
    }
    assert_eq!(refused(&|config| config.send_policy = SendPolicy::Timer(ms(20))), (None, None));

    for limit in [ms(-1), TimeDelta::ZERO, ms(299)] {
        let (_, config_error) = refused(&|config| config.drop_timeout = Some(limit));
        assert_eq!(config_error, Some(ConfigError::DropTimeoutTooShort(limit)), "{limit}");
    }
    assert_eq!(refused(&|config| config.drop_timeout = Some(MIN_DROP_TIMEOUT)), (None, None));
}
