//! `coplay demo`: a game shared over a bad link. Both sites are shown side by side, and dials change the link and the
//! delay settings while the game runs.

mod history;
pub mod site_pair;
mod tennis_bot;

use std::time::{Duration, Instant};

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::time::{Instant as Time, TimeDelta};
use coplay_machines::Machine;
use coplay_shell::error::AppError;

use crate::config::{Action, UserSettings};
use crate::frame_timer::sleep_until;
use crate::hud::{Hud, HudCapabilities, HudRequest, failure_note};
use crate::scene::{Dial, Scene, join_footer, key_hint};
use crate::speaker_and_gamepads::SpeakerAndGamepads;
use crate::summary::Summary;
use crate::ui_link::GamePort;
use history::DemoHistory;
use site_pair::{DemoSettings, SitePair, StateComparison};

/// Number of frames of a headless run without `--frames`.
pub const HEADLESS_FRAMES: u32 = 600;
/// Time without a pressed button after which the bot takes over from a person.
const HUMAN_IDLE_TIMEOUT: TimeDelta = TimeDelta::from_secs(5);
/// Longest time between two polls for commands of the user.
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(8);
/// Longest headless run in virtual time. The limit ends runs over a link that loses too many packets.
const MAX_VIRTUAL_TIME: TimeDelta = TimeDelta::from_secs(3_600);

/// Run of the demo: two sites and their link, the players at the sites, the selected dial and the graph.
pub struct Demo {
    pair: SitePair,
    frame_limit: Option<u32>,
    /// Time until which a person controls each player. Every pressed button extends this time.
    human_until: [Time; 2],
    selected_dial: usize,
    /// Part of the status line that names the keys of the dials.
    dial_keys: String,
    history: DemoHistory,
}

impl Demo {
    /// Creates a demo of two equal machines. The run ends once both sites have stepped `frame_limit` frames. `seed`
    /// determines the bots and the link.
    pub fn new(
        machines: [Box<dyn Machine>; 2],
        settings: DemoSettings,
        frame_limit: Option<u32>,
        seed: u64,
    ) -> Result<Self, AppError> {
        Ok(Self {
            pair: SitePair::new(Time::ZERO, machines, settings, seed)?,
            frame_limit,
            human_until: [Time::ZERO; 2],
            selected_dial: 0,
            dial_keys: String::new(),
            history: DemoHistory::default(),
        })
    }

    /// Runs in virtual time, as fast as possible, without picture and sound.
    pub fn run_headless(mut self) -> Result<Summary, AppError> {
        let started = Instant::now();
        let now = self.run_in_virtual_time()?;
        self.finish(now, Some(started.elapsed()), vec![], crate::signals::is_stop_requested())
    }

    /// Plays in virtual time until the frame limit ([`HEADLESS_FRAMES`] if none is set), a stop signal or
    /// [`MAX_VIRTUAL_TIME`]. Returns the virtual time at the end.
    fn run_in_virtual_time(&mut self) -> Result<Time, AppError> {
        let mut now = Time::ZERO;
        self.frame_limit.get_or_insert(HEADLESS_FRAMES);
        while !self.is_done() && !crate::signals::is_stop_requested() && now < Time::ZERO + MAX_VIRTUAL_TIME {
            self.pair.advance(now)?;
            now = self.pair.next_event().unwrap_or(now).max(now + TimeDelta::from_nanos(1));
        }
        Ok(now)
    }

    /// Runs in real time with a front end, up to the frame limit or until the user quits.
    pub fn run(mut self, mut ui: GamePort, config: &UserSettings) -> Result<Summary, AppError> {
        let started = Instant::now();
        let clock = || Time::ZERO + TimeDelta::from(started.elapsed());
        self.dial_keys = dial_keys(config);
        let capabilities = HudCapabilities { dials: true, ..HudCapabilities::default() };
        let mut hud = Hud::new(config, capabilities, self.pair.sites[0].machine().pads());
        let mut devices = SpeakerAndGamepads::open(config, self.pair.sites[0].machine().pads(), &ui, &mut hud);
        while !hud.is_quit_requested() && !self.is_done() {
            while let Some(command) = ui.poll_command() {
                if let Some(request) = hud.handle_command(Instant::now(), command) {
                    self.handle_request(clock(), request, &mut hud)?;
                }
                if hud.is_quit_requested() {
                    break;
                }
            }
            let now = clock();
            self.update_human_input(now, &ui.input_state().sample());
            self.pair.advance(now)?;
            self.history.sample_if_due(now, &self.pair);
            hud.set_failure(self.machine_failure());
            self.present(now, &mut ui, &hud, &mut devices);
            let next = self.pair.next_event().unwrap_or(now + POLL_INTERVAL).min(now + POLL_INTERVAL);
            sleep_until(started + (next - Time::ZERO).to_duration());
        }
        self.finish(clock(), None, devices.notes, hud.is_quit_requested())
    }

    /// Returns the summary. If the run failed, prints the summary and returns the error.
    fn finish(
        &self,
        now: Time,
        elapsed: Option<Duration>,
        notes: Vec<String>,
        has_quit: bool,
    ) -> Result<Summary, AppError> {
        let summary = self.summary(now, elapsed, notes);
        match self.verdict(now, has_quit) {
            None => Ok(summary),
            Some(error) => {
                summary.print();
                Err(error)
            }
        }
    }

    /// Returns an error if the states differed, or if the sites did not reach the frame limit although the user has not
    /// quit.
    fn verdict(&self, now: Time, has_quit: bool) -> Option<AppError> {
        if let Some(frame) = self.first_desync_frame(now) {
            let message = format!("desync: the states of the two sites differ, first noticed after frame {frame}");
            return Some(
                AppError::failure(message)
                    .hint("run `coplay check` with the same game and core: the machine may not be deterministic"),
            );
        }
        let unfinished = || {
            let limit = self.frame_limit.unwrap_or_default();
            let seconds = MAX_VIRTUAL_TIME.as_secs_f64();
            let message =
                format!("the demo reached only frame {} of {limit} in {seconds:.0} s of simulated time", self.frame());
            AppError::failure(message)
                .hint("use a smaller number for --frames, or smaller numbers for --loss, --jitter and --rtt")
        };
        (!has_quit && !self.is_done()).then(unfinished)
    }

    /// Returns the number of frames that both sites have stepped since the session started. A change of the delay
    /// settings starts a new session, which counts from 0.
    fn frame(&self) -> Frame {
        self.pair.sites.iter().map(|site| site.session.stats().frame).min().unwrap_or(Frame::ZERO)
    }

    fn is_done(&self) -> bool {
        self.frame_limit.is_some_and(|frames| self.frame().number() >= frames)
    }

    /// Lets a person play at a site from a press of a button until no button has been pressed for
    /// [`HUMAN_IDLE_TIMEOUT`].
    fn update_human_input(&mut self, now: Time, pressed: &[InputWord; MAX_PLAYERS]) {
        for (player, site) in self.pair.sites.iter_mut().enumerate() {
            let mask = site.machine().pads().get(player).map_or(0, |pad| pad.mask);
            let word = pressed[player] & mask;
            if word != 0 {
                self.human_until[player] = now + HUMAN_IDLE_TIMEOUT;
            }
            site.human_input = (now < self.human_until[player]).then_some(word);
        }
    }

    fn present(&mut self, now: Time, ui: &mut GamePort, hud: &Hud, devices: &mut SpeakerAndGamepads) {
        let [first, second] = &mut self.pair.sites;
        let is_new = std::mem::take(&mut first.has_new_picture);
        if is_new {
            let has_gap = std::mem::take(&mut first.has_rolled_back);
            devices.play_sound(first.machine(), hud.sound_settings(), has_gap);
        }
        if is_new | std::mem::take(&mut second.has_new_picture) {
            ui.show(|scene| self.draw(now, scene, hud));
        }
    }

    fn handle_request(&mut self, now: Time, request: HudRequest, hud: &mut Hud) -> Result<(), AppError> {
        let dials = self.dials();
        let value = match request {
            HudRequest::SelectDial(by) => {
                self.selected_dial =
                    (self.selected_dial as i64 + i64::from(by)).rem_euclid(dials.len() as i64) as usize;
                return Ok(());
            }
            HudRequest::StepDial(more) => dials[self.selected_dial].stepped(more),
            HudRequest::SetDial { dial, value } if dial < dials.len() => {
                self.selected_dial = dial;
                value.min(dials[dial].max)
            }
            _ => return Ok(()),
        };
        let is_delay_dial = self.selected_dial > 2;
        let mut settings = self.pair.settings();
        if is_delay_dial {
            // A person who turns one of these dials fixes both values.
            (settings.input_delay, settings.prediction_window) = self.current_delays();
            settings.auto_delay = false;
        }
        let changed = match self.selected_dial {
            0 => &mut settings.rtt_ms,
            1 => &mut settings.jitter_ms,
            2 => &mut settings.loss_percent,
            3 => &mut settings.input_delay,
            _ => &mut settings.prediction_window,
        };
        *changed = value;
        if is_delay_dial {
            hud.show_toast(
                Instant::now(),
                format!(
                    "new session: input delay {} frames, prediction window {} frames",
                    settings.input_delay, settings.prediction_window
                ),
            );
        }
        self.pair.change_settings(now, settings)
    }

    /// Returns input delay and prediction window in frames: those of the settings, or those that automatic tuning
    /// chose.
    fn current_delays(&self) -> (u32, u32) {
        let settings = self.pair.settings();
        if settings.auto_delay {
            let stats = self.pair.sites[0].session.stats();
            (stats.input_delay, stats.prediction_window)
        } else {
            (settings.input_delay, settings.prediction_window)
        }
    }

    fn dials(&self) -> [Dial; 5] {
        let settings = self.pair.settings();
        let (delay, prediction) = self.current_delays();
        [
            Dial { name: "round trip", unit: "ms", value: settings.rtt_ms, max: 400, step: 10 },
            Dial { name: "jitter", unit: "ms", value: settings.jitter_ms, max: 50, step: 1 },
            Dial { name: "loss", unit: "%", value: settings.loss_percent, max: 30, step: 1 },
            Dial { name: "delay", unit: "frames", value: delay, max: 20, step: 1 },
            Dial { name: "prediction", unit: "frames", value: prediction, max: 20, step: 1 },
        ]
    }

    fn draw(&self, now: Time, scene: &mut Scene, hud: &Hud) {
        let screens = scene.screens(2);
        for (player, (screen, site)) in screens.iter_mut().zip(&self.pair.sites).enumerate() {
            let controller = if site.human_input.is_some() { "you" } else { "bot" };
            let stats = site.session.stats();
            let predicted = stats.frame.number().saturating_sub(stats.confirmed.number());
            screen.caption = format!("site {player}: {controller}   frame {}   {predicted} predicted", stats.frame);
            screen.show(site.machine().picture());
        }
        scene.graph = Some(self.history.graph());
        scene.dials.clear();
        scene.dials.extend(self.dials());
        scene.selected_dial = self.selected_dial;
        let stats = self.pair.sites[0].session.stats();
        let period = stats.period.as_millis_f64();
        let verdict = match self.first_desync_frame(now) {
            Some(_) => "STATES DIFFER",
            None if self.pair.comparison.count == 0 => "no states compared yet",
            None => "states equal",
        };
        scene.status = format!("{:.1} fps   {verdict}   {}", 1_000.0 / period.max(1.0), self.dial_keys);
        hud.draw(Instant::now(), scene);
    }

    /// Returns the first frame after which the machines' hashes differed; `None` if all compared states are equal. If
    /// only the sessions' own comparison found a difference, returns the present frame.
    fn first_desync_frame(&self, now: Time) -> Option<u32> {
        let peer = |site: SiteId| SiteId::first(2).find(|other| *other != site);
        let differs = self.pair.sites.iter().any(|site| {
            let stats = peer(site.session.site()).and_then(|peer| site.session.peer_stats(now, peer));
            stats.is_some_and(|stats| stats.mismatches > 0)
        });
        self.pair.comparison.first_desync.or(differs.then(|| self.frame().number()))
    }

    /// Returns the reason why the machine of a site has halted; `None` if both run.
    fn machine_failure(&self) -> Option<&str> {
        self.pair.sites.iter().find_map(|site| site.machine().failure())
    }

    fn summary(&self, now: Time, elapsed: Option<Duration>, notes: Vec<String>) -> Summary {
        let sites = &self.pair.sites;
        let stats = [0, 1].map(|site: usize| sites[site].session.stats());
        let other = sites[1].session.site();
        let link = sites[0].session.peer_stats(now, other).unwrap_or_default();
        let frames = u64::from(self.frame().number());
        let mut summary = Summary::for_frames(frames, elapsed, sites[0].machine().frame_rate());
        let DemoSettings { rtt_ms, jitter_ms, loss_percent, auto_delay, .. } = self.pair.settings();
        summary.add_row(
            "link",
            format!("{rtt_ms} ms, {loss_percent} %"),
            &format!("round trip, and packet loss in each direction; {jitter_ms} ms of mean jitter per round trip"),
        );
        let (delay, prediction) = self.current_delays();
        let automatic = if auto_delay { ", chosen automatically" } else { "" };
        summary.add_row("delay", format!("{delay} frames"), &format!("input delay{automatic}"));
        summary.add_row("prediction", format!("{prediction} frames"), &format!("prediction window{automatic}"));
        summary.add_row("round trip", format!("{:.1} ms", link.rtt.as_millis_f64()), "smoothed, as measured by site 0");
        let (sent, lost) = self.pair.packet_counts();
        summary.add_row("packets", sent.to_string(), &format!("sent by both sites; {lost} of them lost"));
        let each = |numbers: [u64; 2]| format!("{} and {}", numbers[0], numbers[1]);
        summary.add_row("stalls", each(stats.map(|stats| stats.stalls)), "frames that waited for inputs, at each site");
        summary.add_row(
            "resimulated",
            each(stats.map(|stats| stats.resimulated)),
            "frames, after mispredictions, at each site",
        );
        let StateComparison { count, .. } = self.pair.comparison;
        let equal = match self.first_desync_frame(now) {
            Some(_) => "NO",
            None if count == 0 => "unknown",
            None => "yes",
        };
        summary.add_row("states equal", equal.into(), &format!("compared {count} times"));
        summary.notes = notes;
        summary.notes.extend(failure_note(self.machine_failure()));
        summary
    }
}

/// Returns the part of the status line that names the keys to select and to change a dial; empty without keys.
fn dial_keys(config: &UserSettings) -> String {
    let labels = |actions: [Action; 2]| actions.map(|action| config.key_label(action)).join(" ").trim().to_owned();
    join_footer(&[
        key_hint(&labels([Action::PreviousDial, Action::NextDial]), "select a dial"),
        key_hint(&labels([Action::Decrease, Action::Increase]), "change it"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_machine::ToyMachine;

    fn demo(frames: u32) -> Demo {
        let machine = || -> Box<dyn Machine> { Box::new(ToyMachine::new(1)) };
        Demo::new([machine(), machine()], DemoSettings::default(), Some(frames), 1).unwrap()
    }

    #[test]
    fn headless_demo_reports_equal_states() {
        let summary = demo(600).run_headless().unwrap().to_string();
        assert!(summary.contains("states equal yes") && summary.contains("compared 9 times"), "{summary}");
    }

    #[test]
    fn desync_or_no_progress_is_a_failure() {
        let error_text = |demo: &mut Demo| {
            let now = demo.run_in_virtual_time().unwrap();
            demo.verdict(now, false).map(|error| error.to_string()).unwrap_or_default()
        };
        let machines: [Box<dyn Machine>; 2] =
            [Box::new(ToyMachine::new(1)), Box::new(ToyMachine::new(1).diverging_after(200))];
        let mut diverged = Demo::new(machines, DemoSettings::default(), Some(600), 1).unwrap();
        assert!(error_text(&mut diverged).contains("the states of the two sites differ, first noticed after frame"));
        assert!(diverged.summary(Time::ZERO, None, vec![]).to_string().contains("states equal NO"));
        let mut cut = demo(600);
        cut.pair.change_settings(Time::ZERO, DemoSettings { loss_percent: 100, ..DemoSettings::default() }).unwrap();
        assert!(error_text(&mut cut).contains("the demo reached only frame 0 of"));
        let short = demo(30).run_headless().unwrap().to_string();
        assert!(short.contains("states equal unknown") && short.contains("compared 0 times"), "{short}");
    }

    #[test]
    fn dials_change_their_settings() {
        let mut demo = demo(600);
        let mut hud =
            Hud::new(&UserSettings::default(), HudCapabilities { dials: true, ..HudCapabilities::default() }, &[]);
        let mut request = |demo: &mut Demo, request| demo.handle_request(Time::ZERO, request, &mut hud).unwrap();
        request(&mut demo, HudRequest::StepDial(true));
        request(&mut demo, HudRequest::SelectDial(-1));
        request(&mut demo, HudRequest::StepDial(false));
        request(&mut demo, HudRequest::SetDial { dial: 2, value: 900 });
        request(&mut demo, HudRequest::SetDial { dial: 99, value: 1 });
        assert_eq!(
            demo.pair.settings(),
            DemoSettings { rtt_ms: 90, loss_percent: 30, prediction_window: 7, ..DemoSettings::default() }
        );
    }

    #[test]
    fn delay_dial_ends_automatic_delays() {
        let mut demo = demo(600);
        let mut hud =
            Hud::new(&UserSettings::default(), HudCapabilities { dials: true, ..HudCapabilities::default() }, &[]);
        let auto = DemoSettings { auto_delay: true, ..DemoSettings::default() };
        demo.pair.change_settings(Time::ZERO, auto).unwrap();
        let mut request = |demo: &mut Demo, request| demo.handle_request(Time::ZERO, request, &mut hud).unwrap();
        request(&mut demo, HudRequest::SetDial { dial: 0, value: 90 });
        assert_eq!(demo.pair.settings(), DemoSettings { rtt_ms: 90, ..auto }, "the link has no influence on it");
        request(&mut demo, HudRequest::SetDial { dial: 3, value: 5 });
        assert!(!demo.pair.settings().auto_delay && demo.pair.settings().input_delay == 5);
    }

    #[test]
    fn human_replaces_the_bot_until_idle_timeout() {
        let mut demo = demo(600);
        let mut pressed = [0; MAX_PLAYERS];
        demo.update_human_input(Time::ZERO, &pressed);
        assert_eq!(demo.pair.sites[1].human_input, None);
        pressed[1] = !0;
        demo.update_human_input(Time::ZERO, &pressed);
        assert_eq!(demo.pair.sites[1].human_input, Some(demo.pair.sites[1].machine().pads()[1].mask));
        pressed[1] = 0;
        demo.update_human_input(Time::ZERO + HUMAN_IDLE_TIMEOUT / 2, &pressed);
        assert_eq!((demo.pair.sites[0].human_input, demo.pair.sites[1].human_input), (None, Some(0)));
        demo.update_human_input(Time::ZERO + HUMAN_IDLE_TIMEOUT, &pressed);
        assert_eq!(demo.pair.sites[1].human_input, None);
    }
}
