//! A game starts when all sites mean the same, everywhere at the same instant; otherwise everybody learns what differs.

mod common;

use common::{Game, Setup, id, lossy, ms, rtt, secs, set};
use coplay::frame::FrameRate;
use coplay::id::{Addr, SiteId};
use coplay::input::Ownership;
use coplay::session::{
    Config, ConfigError, Event, MAX_COMPARE_INTERVAL, MIN_DROP_TIMEOUT, SendPolicy, Session, Settings,
    SettingsDifference, SettingsError, State,
};
use coplay::time::{Instant, TimeDelta};
use coplay::wire::{MAX_DATAGRAM, VERSION};
use coplay_sim::clock::NodeClock;

/// What a site says that another wants to be different.
fn differences(event: &Event) -> Option<(SiteId, &[SettingsDifference])> {
    if let Event::Disagreed { site, differences } = event { Some((*site, differences)) } else { None }
}

fn started(game: &Game, site: usize) -> bool {
    let starting = game.told(site).any(|told| matches!(told.event, Event::Starting { .. } | Event::Agreed { .. }));
    starting || !game.steps[site].is_empty()
}

/// The second of two sites has changed its settings: both must say what, and the game must not start.
#[track_caller]
fn assert_disagree(change: impl Fn(&mut Settings), what: &str, ours: &str, theirs: &str) {
    let mut game = Setup::new(2, rtt(100)).play_with(|site, config| {
        if site == 1 {
            change(&mut config.settings);
        }
        // There may be more sites in what one of them wants; nobody is at their addresses.
        for other in 2..usize::from(config.settings.site_count) {
            config.peers.push((id(other), Addr(50 + other as u64)));
        }
    });
    game.run_for(secs(10));
    for (site, here, there) in [(0, ours, theirs), (1, theirs, ours)] {
        let told: Vec<_> = game.told(site).filter_map(|told| differences(&told.event)).collect();
        let expected = SettingsDifference { setting: what.into(), ours: here.into(), theirs: there.into() };
        assert_eq!(told, [(id(1 - site), &[expected][..])], "site {site}");
        assert!(!started(&game, site), "site {site} agreed to something");
        let State::Lobby { waiting_for } = game.state(site) else { panic!("{:?}", game.state(site)) };
        assert!(waiting_for.contains(id(1 - site)) && !waiting_for.contains(id(site)), "{waiting_for:?}");
    }
}

#[test]
fn another_game() {
    let ours = "\"toy\" (07070707…)";
    assert_disagree(|settings| settings.game.hash[0] = 8, "the game", ours, "\"toy\" (08070707…)");
    let renamed = |settings: &mut Settings| (settings.game.name, settings.game.hash) = ("pong".into(), [9; 32]);
    assert_disagree(renamed, "the game", ours, "\"pong\" (09090909…)");
}

#[test]
fn another_game_whose_hash_begins_the_same() {
    let mut game = Setup::new(2, rtt(100)).play_with(|site, config| config.settings.game.hash[31] = site as u8);
    game.run_for(secs(5));
    for site in [0, 1] {
        let found = game.find(site, |event| differences(event).map(|(_, found)| found.to_vec()));
        let (_, found) = found.expect("they disagree");
        assert!(found.iter().map(|one| one.setting.as_str()).eq(["the game"]), "{found:?}");
        assert!(!started(&game, site), "site {site} agreed to something");
    }
}

#[test]
fn another_machine() {
    assert_disagree(|settings| settings.machine.name = "loom".into(), "the machine", "toy", "loom");
    assert_disagree(|settings| settings.machine.version = "2".into(), "the machine's version", "1", "2");
    let build = |settings: &mut Settings| settings.machine.first_frames_hash = 0xfeed;
    assert_disagree(build, "the machine's first frames", "0000000000000000", "000000000000feed");
}

#[test]
fn another_option() {
    let option = |settings: &mut Settings| settings.machine.options.push(("region".into(), "pal".into()));
    assert_disagree(option, "the machine's option region", "unset", "\"pal\"");
}

#[test]
fn another_value_of_an_option() {
    let mut game = Setup::new(2, rtt(100)).play_with(|site, config| {
        let value = ["ntsc", "pal"][site];
        config.settings.machine.options = vec![("cpu".into(), "exact".into()), ("region".into(), value.into())];
    });
    game.run_for(secs(5));
    let told: Vec<_> = game.told(0).map(|told| told.event.to_string()).collect();
    let sentence =
        "site 1 cannot play with us: the machine's option region differs: \"ntsc\" here, \"pal\" there;".to_owned();
    assert_eq!(told, [sentence]);
}

#[test]
fn another_frame_rate() {
    let rate = |frames, seconds| FrameRate::new(frames, seconds).expect("a rate");
    let what = "the frame rate";
    assert_disagree(|settings| settings.rate = rate(50, 1), what, "60 fps (60/1)", "50 fps (50/1)");
    // Nearly the same is not the same.
    let nearly = "60.0000 fps (60000001/1000000)";
    assert_disagree(|settings| settings.rate = rate(60_000_001, 1_000_000), what, "60 fps (60/1)", nearly);
}

#[test]
fn another_lag() {
    assert_disagree(|settings| settings.input_delay = 7, "the lag", "6 frames", "7 frames");
}

#[test]
fn another_distance_of_hashes() {
    assert_disagree(|settings| settings.compare_interval = 0, "the distance of state hashes", "60 frames", "0 frames");
}

#[test]
fn another_ownership() {
    let wider = |settings: &mut Settings| {
        settings.ownership.assign(id(0), 0, 1 << 20).expect("nobody has it");
    };
    assert_disagree(wider, "site 0's part of player 0", "0xffff", "0x10ffff");
    let both = |settings: &mut Settings| {
        settings.ownership.assign(id(0), 1, 1 << 100).expect("nobody has it");
    };
    assert_disagree(both, "site 0's part of player 1", "0x0", "0x10000000000000000000000000");
}

#[test]
fn another_number_of_players() {
    let more = |settings: &mut Settings| {
        let mut ownership = Ownership::new(3);
        ownership.assign(id(0), 0, 0xffff).expect("nobody has it");
        ownership.assign(id(1), 1, 0xffff).expect("nobody has it");
        settings.ownership = ownership;
    };
    assert_disagree(more, "the number of players", "2", "3");
}

#[test]
fn another_number_of_sites() {
    assert_disagree(|settings| settings.site_count = 3, "the number of sites", "2", "3");
}

#[test]
fn everything_that_differs_is_named_at_once() {
    let mut game = Setup::new(2, rtt(100)).play_with(|site, config| {
        if site == 1 {
            config.settings.machine.version = "2".into();
            config.settings.input_delay = 9;
        }
    });
    game.run_for(secs(5));
    let (_, found) = game.find(0, |event| differences(event).map(|(_, found)| found.to_vec())).expect("they disagree");
    assert!(found.iter().map(|one| one.setting.as_str()).eq(["the machine's version", "the lag"]), "{found:?}");
}

#[test]
fn only_the_two_that_differ_disagree_and_nobody_starts() {
    let mut game = Setup::new(3, rtt(100)).play_with(|site, config| {
        config.settings.input_delay = if site == 2 { 4 } else { 6 };
    });
    game.run_for(secs(10));
    for (site, disagrees_with) in [(0, vec![2]), (1, vec![2]), (2, vec![0, 1])] {
        let told = game.told(site).filter_map(|told| differences(&told.event));
        let mut sites: Vec<usize> = told.map(|(site, _)| site.index()).collect();
        sites.sort_unstable();
        assert_eq!(sites, disagrees_with, "site {site}");
        assert!(matches!(game.state(site), State::Lobby { .. }), "{:?}", game.state(site));
    }
}

#[test]
fn the_name_of_the_game_is_for_people_only() {
    let mut game = Setup::new(2, rtt(100)).play_with(|site, config| {
        config.settings.game.name = ["Toy (Europe)", "toy.bin"][site].into();
    });
    game.run_frames(120);
    assert!(game.events.iter().all(|told| differences(&told.event).is_none()));
    game.assert_sound();
}

/// Two sessions and a wire between them that can be tampered with.
struct Wire {
    now: Instant,
    ends: [Session; 2],
    events: [Vec<Event>; 2],
    /// When it arrives, where, and what.
    under_way: Vec<(Instant, usize, Vec<u8>)>,
    tamper: fn(&mut Vec<u8>),
}

/// Where the two are.
const ADDRESSES: [Addr; 2] = [Addr(10), Addr(11)];

impl Wire {
    fn new(configs: [Config; 2], tamper: fn(&mut Vec<u8>)) -> Self {
        let now = Instant::ZERO + secs(1);
        let ends = configs.map(|config| Session::new(now, config).expect("a sound config"));
        Self { now, ends, events: [Vec::new(), Vec::new()], under_way: Vec::new(), tamper }
    }

    fn run_for(&mut self, time: TimeDelta) {
        let until = self.now + time;
        while self.now < until {
            self.now += ms(1);
            for (_, to, bytes) in self.under_way.extract_if(.., |(arrival, _, _)| *arrival <= self.now) {
                self.ends[to].handle_datagram(self.now, ADDRESSES[1 - to], &bytes);
            }
            for (number, end) in self.ends.iter_mut().enumerate() {
                assert_eq!(end.poll_request(self.now), None, "the game must not start");
                let mut buf = [0; MAX_DATAGRAM];
                while let Some(transmit) = end.poll_transmit(self.now, &mut buf) {
                    assert_eq!(transmit.to, ADDRESSES[1 - number]);
                    let mut bytes = buf[..transmit.len].to_vec();
                    (self.tamper)(&mut bytes);
                    self.under_way.push((self.now + ms(50), 1 - number, bytes));
                }
                while let Some(event) = end.poll_event() {
                    self.events[number].push(event);
                }
            }
        }
    }
}

/// The config of a site whose only peer is at the other end of the wire.
fn at_the_end(end: usize, site: usize) -> Config {
    let config = Setup::new(2, rtt(0)).config(site);
    Config { peers: vec![(id(1 - site), ADDRESSES[1 - end])], ..config }
}

#[test]
fn another_version_of_the_protocol() {
    let mut wire = Wire::new([at_the_end(0, 0), at_the_end(1, 1)], |bytes| bytes[0] = VERSION + 1);
    wire.run_for(secs(10));
    for end in [0, 1] {
        let (ours, theirs) = (VERSION.to_string(), (VERSION + 1).to_string());
        let difference = SettingsDifference { setting: "the protocol's version".into(), ours, theirs };
        let expected = Event::Disagreed { site: id(1 - end), differences: vec![difference] };
        assert_eq!(wire.events[end], [expected], "site {end}");
        assert!(matches!(wire.ends[end].state(), State::Lobby { .. }));
    }
}

#[test]
fn the_same_site_number_twice() {
    for site in [0, 1] {
        let mut wire = Wire::new([at_the_end(0, site), at_the_end(1, site)], |_| {});
        wire.run_for(secs(10));
        for end in [0, 1] {
            let other = id(1 - site);
            let (ours, theirs) = (other.to_string(), id(site).to_string());
            let difference = SettingsDifference { setting: "the site number".into(), ours, theirs };
            let expected = Event::Disagreed { site: other, differences: vec![difference] };
            assert_eq!(wire.events[end], [expected], "end {end}");
            assert!(matches!(wire.ends[end].state(), State::Lobby { .. }));
        }
    }
}

#[test]
fn other_sessions_are_other_peoples_business() {
    let mut game = Setup::new(2, rtt(100)).play_with(|site, config| config.session_id += site as u64);
    game.run_for(secs(10));
    assert!(game.events.is_empty(), "{:?}", game.events);
    assert!(game.stats(0).dropped_datagrams.strangers > 0);
}

/// How far apart, in true time, the sites stepped their first frame.
fn first_steps_apart(game: &mut Game) -> TimeDelta {
    game.run_frames(60);
    game.assert_sound();
    let first = game.steps.iter().map(|steps| steps[0]);
    first.clone().max().expect("a site") - first.min().expect("a site")
}

/// Clocks a thousand seconds apart, and as unequal as crystals are.
fn far_apart(sites: usize) -> Vec<NodeClock> {
    let clock = |site: usize| NodeClock { offset: secs(site as i64 * -1_000), skew_ppm: site as f64 * 40.0 - 80.0 };
    (0..sites).map(clock).collect()
}

#[test]
fn all_start_at_one_instant_whatever_their_clocks_show() {
    for sites in [2, 3, 4, 8] {
        let mut game = Setup { clocks: far_apart(sites), ..Setup::new(sites, rtt(100)) }.play();
        let apart = first_steps_apart(&mut game);
        assert!(apart < ms(2), "{sites} sites start {apart} apart");
    }
}

#[test]
fn a_lost_start_packet_delays_nobody_by_more_than_the_way() {
    for seed in 0..20 {
        for sites in [2, 3, 4] {
            let setup = Setup { seed, clocks: far_apart(sites), ..Setup::new(sites, lossy(100, 0.3)) };
            let apart = first_steps_apart(&mut setup.play());
            assert!(apart <= ms(50), "seed {seed}: {sites} sites start {apart} apart");
        }
    }
}

#[test]
fn the_start_is_heard_from_others_if_not_from_the_first() {
    let mut game = Setup { clocks: far_apart(3), ..Setup::new(3, rtt(100)) }.play();
    game.run_while(secs(10), |game| !matches!(game.state(0), State::Starting { .. }));
    // Everything that the first site says to the second from now on is lost, and what is under way as well.
    game.world.link(0, 1).set_cut(true);
    game.run_for(ms(400));
    game.world.link(0, 1).set_cut(false);
    let apart = first_steps_apart(&mut game);
    assert!(apart < ms(2), "they start {apart} apart");
}

#[test]
fn the_first_start_packets_may_all_be_lost() {
    for loss in [60, 110, 160, 210] {
        let mut game = Setup { clocks: far_apart(2), ..Setup::new(2, rtt(100)) }.play();
        game.run_while(secs(10), |game| !matches!(game.state(0), State::Starting { .. }));
        game.world.link(0, 1).set_cut(true);
        game.run_for(ms(loss));
        game.world.link(0, 1).set_cut(false);
        let apart = first_steps_apart(&mut game);
        assert!(apart <= ms(50), "after {loss} ms without a word they start {apart} apart");
    }
}

/// Site 1 of three is started, ended without a word, and started again before the third one comes.
fn assert_restarts_in_the_lobby(clock_again: impl Fn(Instant) -> Option<NodeClock>) {
    for restarted in [0, 1] {
        let mut game = Setup::new(3, rtt(100)).play();
        game.isolate(2, true);
        game.run_for(secs(20));
        if let Some(clock) = clock_again(game.now()) {
            game.world.sites[restarted].clock = clock;
        }
        game.restart(restarted);
        game.run_for(secs(5));
        game.isolate(2, false);
        game.run_for(secs(5));
        for site in 0..3 {
            assert_eq!(game.state(site), State::Running, "site {site} after site {restarted} was restarted");
            assert!(game.stats(site).frame.number() > 200, "site {site} after site {restarted} was restarted");
        }
    }
}

#[test]
fn who_restarts_in_the_lobby_is_welcome() {
    assert_restarts_in_the_lobby(|_| None);
}

#[test]
fn also_when_its_clock_starts_again_from_zero() {
    assert_restarts_in_the_lobby(|now| Some(NodeClock { offset: Instant::ZERO - now, skew_ppm: 0.0 }));
}

/// What a site told of another's settings, and of the start, in order.
fn story(game: &Game, site: usize, of: usize) -> Vec<&'static str> {
    let word = |event: &Event| match event {
        Event::Agreed { site } if *site == id(of) => Some("agreed"),
        Event::Disagreed { site, .. } if *site == id(of) => Some("disagreed"),
        Event::Starting { .. } => Some("starting"),
        _ => None,
    };
    game.told(site).filter_map(|told| word(&told.event)).collect()
}

#[track_caller]
fn assert_all_play(game: &Game, what: &str) {
    for site in 0..game.steps.len() {
        assert_eq!(game.state(site), State::Running, "{what}: site {site}");
        let frames = game.stats(site).frame.number();
        assert!(frames > 200, "{what}: site {site} stepped {frames} frames");
    }
}

#[test]
fn who_corrects_its_settings_is_agreed_with() {
    for corrected in [0, 1] {
        let mut game = Setup::new(2, rtt(100)).play_with(|site, config| {
            if site == corrected {
                config.settings.input_delay = 4;
            }
        });
        game.run_for(secs(2));
        game.restart_as(corrected, |config| config.settings.input_delay = 6);
        game.run_for(secs(6));
        let told = story(&game, 1 - corrected, corrected);
        assert_eq!(told, ["disagreed", "agreed", "starting"], "site {corrected} was corrected");
        assert_all_play(&game, &format!("site {corrected} was corrected"));
    }
}

#[test]
fn who_leaves_the_lobby_may_come_back() {
    for leaver in [0, 1] {
        // While it still says goodbye, and long after.
        for away in [ms(100), secs(2)] {
            let mut game = Setup::new(3, rtt(100)).play();
            game.isolate(2, true);
            game.run_for(secs(1));
            game.leave(leaver);
            game.run_for(away);
            game.restart(leaver);
            game.run_for(secs(1));
            game.isolate(2, false);
            game.run_for(secs(6));
            assert_all_play(&game, &format!("site {leaver} was away for {away}"));
        }
    }
}

#[test]
fn who_comes_back_with_other_settings_is_disagreed_with() {
    for changed in [0, 1] {
        let mut game = Setup::new(3, rtt(100)).play();
        let other = 1 - changed;
        game.isolate(2, true);
        game.run_for(secs(2));
        assert_eq!(story(&game, other, changed), ["agreed"]);
        game.restart_as(changed, |config| config.settings.input_delay = 5);
        game.run_for(secs(2));
        assert_eq!(story(&game, other, changed), ["agreed", "disagreed"]);
        let State::Lobby { waiting_for } = game.state(other) else { panic!("{:?}", game.state(other)) };
        assert!(waiting_for.contains(id(changed)), "{waiting_for:?}");
        game.isolate(2, false);
        game.run_for(secs(4));
        assert!(matches!(game.state(other), State::Lobby { .. }), "{:?}", game.state(other));
        game.restart_as(changed, |config| config.settings.input_delay = 6);
        game.run_for(secs(6));
        assert_eq!(story(&game, other, changed), ["agreed", "disagreed", "agreed", "starting"]);
        assert_all_play(&game, &format!("site {changed} thought better of it"));
    }
}

#[test]
fn a_start_that_is_heard_of_a_minute_late_is_a_start() {
    for sites in [2, 3] {
        let mut game = Setup { clocks: far_apart(sites), ..Setup::new(sites, rtt(100)) }.play();
        game.run_while(secs(10), |game| !matches!(game.state(0), State::Starting { .. }));
        game.isolate(sites - 1, true);
        game.run_for(secs(70));
        let last = game.state(sites - 1);
        assert!(matches!(last, State::Lobby { .. }), "{last:?}");
        game.isolate(sites - 1, false);
        game.run_for(secs(10));
        let then = game.now();
        game.run_for(secs(10));
        assert_all_play(&game, &format!("{sites} sites"));
        for site in 0..sites {
            let fps = game.fps(site, then, game.now());
            assert!(fps > 59.5, "site {site} of {sites} at {fps:.2} fps");
        }
        game.assert_sound();
    }
}

#[test]
fn a_lobby_names_who_does_not_agree_yet() {
    let waiting_for = |game: &Game, site: usize| match game.state(site) {
        State::Lobby { waiting_for } => waiting_for,
        state => panic!("site {site} is {state:?}"),
    };
    let mut game = Setup::new(3, rtt(100)).play();
    game.world.set_cut(1, 2, true);
    game.run_for(secs(3));
    assert_eq!(waiting_for(&game, 0), set([1, 2]), "they do not agree with each other");
    assert!(waiting_for(&game, 1).contains(id(2)) && waiting_for(&game, 2).contains(id(1)));
    game.world.set_cut(1, 2, false);
    // Whoever waits names somebody until the start is named; and those that hear of it wait for whoever names it.
    let mut game = Setup::new(3, lossy(100, 0.1)).play();
    while !matches!(game.state(0), State::Starting { .. } | State::Running) {
        assert!(!waiting_for(&game, 0).is_empty(), "at {:?}", game.now());
        game.run_for(ms(1));
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let config = Setup::new(2, rtt(0)).config(0);
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        let error = config.settings.check().err();
        (error, Session::new(Instant::ZERO, config).err())
    };
    assert_eq!(refused(&|_| {}), (None, None));

    let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let twice = SettingsError::DuplicateOption("region".into());
    for other in ["ntsc", "pal"] {
        let options = vec![option("region", "ntsc"), option("cpu", "exact"), option("region", other)];
        let (settings, whole) = refused(&|config| config.settings.machine.options.clone_from(&options));
        assert_eq!((settings, whole), (Some(twice.clone()), Some(ConfigError::Settings(twice.clone()))));
    }

    assert_eq!(refused(&|config| config.settings.compare_interval = MAX_COMPARE_INTERVAL), (None, None));
    for every in [MAX_COMPARE_INTERVAL + 1, 65_536, u32::MAX] {
        let (settings, _) = refused(&|config| config.settings.compare_interval = every);
        assert_eq!(settings, Some(SettingsError::CompareIntervalTooLong(every)));
    }

    for (lag, window) in [(120, 8), (68, 60), (120, 60)] {
        let (settings, _) =
            refused(&|config| (config.settings.input_delay, config.settings.prediction_window) = (lag, window));
        assert_eq!(settings, Some(SettingsError::LeadTooLong(lag + window)));
    }

    for period in [TimeDelta::ZERO, ms(-20)] {
        let (_, whole) = refused(&|config| config.send_policy = SendPolicy::Timer(period));
        assert_eq!(whole, Some(ConfigError::InvalidSendTimer), "{period}");
    }
    assert_eq!(refused(&|config| config.send_policy = SendPolicy::Timer(ms(20))), (None, None));

    for limit in [ms(-1), TimeDelta::ZERO, ms(299)] {
        let (_, whole) = refused(&|config| config.drop_timeout = Some(limit));
        assert_eq!(whole, Some(ConfigError::DropTimeoutTooShort(limit)), "{limit}");
    }
    assert_eq!(refused(&|config| config.drop_timeout = Some(MIN_DROP_TIMEOUT)), (None, None));
}
