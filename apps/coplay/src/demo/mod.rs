//! `coplay demo`: a game shared over a bad link, both sites side by side, with everything to be turned while it runs.

mod history;
pub mod site_pair;
mod tennis_bot;

use std::time::{Duration, Instant};

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::time::{Instant as Time, TimeDelta};
use coplay_machines::Machine;

use crate::config::Config;
use crate::devices::Devices;
use crate::error::AppError;
use crate::frame_timer::sleep_until;
use crate::hud::{Hud, HudCapabilities, HudRequest, failure_note};
use crate::scene::{Dial, Scene};
use crate::summary::Summary;
use crate::ui_link::GamePort;
use history::DemoHistory;
use site_pair::{DemoSettings, SitePair, StateComparison};

/// Frames of a run that does not say how many and that nobody sees.
pub const HEADLESS_FRAMES: u32 = 600;
/// How long a person who pressed something counts as playing.
const HUMAN_IDLE_TIMEOUT: TimeDelta = TimeDelta::from_secs(5);
/// Commands wait no longer than this.
const POLL_INTERVAL: TimeDelta = TimeDelta::from_millis(8);
/// Even a link that stands still comes to an end, in virtual time.
const MAX_VIRTUAL_TIME: TimeDelta = TimeDelta::from_secs(3_600);

/// The demonstration.
pub struct Demo {
    pair: SitePair,
    frame_limit: Option<u32>,
    /// Until when each player is a person.
    human_until: [Time; 2],
    selected_dial: usize,
    history: DemoHistory,
}

impl Demo {
    /// Two machines that are equal.
    pub fn new(
        machines: [Box<dyn Machine>; 2],
        terms: DemoSettings,
        frames: Option<u32>,
        seed: u64,
    ) -> Result<Self, AppError> {
        let world = SitePair::new(Time::ZERO, machines, terms, seed)?;
        Ok(Self {
            pair: world,
            frame_limit: frames,
            human_until: [Time::ZERO; 2],
            selected_dial: 0,
            history: DemoHistory::default(),
        })
    }

    /// In virtual time, as fast as it goes, without anything to see.
    pub fn run_headless(mut self) -> Result<Summary, AppError> {
        let begun = Instant::now();
        let now = self.run_in_virtual_time()?;
        self.finish(now, Some(begun.elapsed()), vec![], crate::signals::is_stop_requested())
    }

    /// Plays all frames in virtual time, and says how late it is then.
    fn run_in_virtual_time(&mut self) -> Result<Time, AppError> {
        let mut now = Time::ZERO;
        self.frame_limit.get_or_insert(HEADLESS_FRAMES);
        while !self.is_done() && !crate::signals::is_stop_requested() && now < Time::ZERO + MAX_VIRTUAL_TIME {
            self.pair.advance(now)?;
            now = self.pair.next_event().unwrap_or(now).max(now + TimeDelta::from_nanos(1));
        }
        Ok(now)
    }

    /// In real time, on a stage.
    pub fn run(mut self, mut stage: GamePort, config: &Config) -> Result<Summary, AppError> {
        let begun = Instant::now();
        let clock = || Time::ZERO + TimeDelta::from(begun.elapsed());
        let can = HudCapabilities { dials: true, ..HudCapabilities::default() };
        let mut desk = Hud::new(config, can, self.pair.sites[0].machine().pads());
        let mut outfit = Devices::open(config, self.pair.sites[0].machine().pads(), &stage, &mut desk);
        while !desk.is_quit_requested() && !self.is_done() {
            while let Some(command) = stage.poll_command() {
                if let Some(wish) = desk.handle_command(Instant::now(), command) {
                    self.handle_request(clock(), wish, &mut desk)?;
                }
                if desk.is_quit_requested() {
                    break;
                }
            }
            let now = clock();
            self.update_human_input(now, &stage.input_state().sample());
            self.pair.advance(now)?;
            self.history.sample_if_due(now, &self.pair);
            desk.set_failure(self.machine_failure());
            self.present(now, &mut stage, &desk, &mut outfit);
            let next = self.pair.next_event().unwrap_or(now + POLL_INTERVAL).min(now + POLL_INTERVAL);
            sleep_until(begun + (next - Time::ZERO).to_duration());
        }
        self.finish(clock(), None, outfit.notes, desk.is_quit_requested())
    }

    /// What it came to.
    fn finish(&self, now: Time, took: Option<Duration>, notes: Vec<String>, left: bool) -> Result<Summary, AppError> {
        let summary = self.summary(now, took, notes);
        match self.verdict(now, left) {
            None => Ok(summary),
            Some(trouble) => {
                summary.print();
                Err(trouble)
            }
        }
    }

    /// What is wrong: the sites played something else, or did not come as far as they should although nobody `left`.
    fn verdict(&self, now: Time, left: bool) -> Option<AppError> {
        if let Some(frame) = self.first_desync_frame(now) {
            let what = format!("the sites had different states, first after frame {frame}");
            return Some(
                AppError::failure(what).hint("is the machine deterministic? `coplay check` with the same game says"),
            );
        }
        let stuck = || {
            AppError::failure(format!("the sites came no further than frame {}", self.frame()))
                .hint("try a better link: less --loss, --jitter or --rtt")
        };
        (!left && !self.is_done()).then(stuck)
    }

    /// The frame that both sites have come to.
    fn frame(&self) -> Frame {
        self.pair.sites.iter().map(|site| site.session.stats().frame).min().unwrap_or(Frame::ZERO)
    }

    fn is_done(&self) -> bool {
        self.frame_limit.is_some_and(|frames| self.frame().number() >= frames)
    }

    /// Whoever presses something plays; who has not for a while lets the bot go on.
    fn update_human_input(&mut self, now: Time, hands: &[InputWord; MAX_PLAYERS]) {
        for (player, site) in self.pair.sites.iter_mut().enumerate() {
            let mask = site.machine().pads().get(player).map_or(0, |pad| pad.mask);
            let word = hands[player] & mask;
            if word != 0 {
                self.human_until[player] = now + HUMAN_IDLE_TIMEOUT;
            }
            site.human_input = (now < self.human_until[player]).then_some(word);
        }
    }

    fn present(&mut self, now: Time, stage: &mut GamePort, desk: &Hud, outfit: &mut Devices) {
        let [first, second] = &mut self.pair.sites;
        let fresh = std::mem::take(&mut first.has_new_picture);
        if fresh {
            let seam = std::mem::take(&mut first.has_rolled_back);
            outfit.play_sound(first.machine(), desk.sound_settings(), seam);
        }
        if fresh | std::mem::take(&mut second.has_new_picture) {
            stage.show(|scene| self.draw(now, scene, desk));
        }
    }

    fn handle_request(&mut self, now: Time, wish: HudRequest, desk: &mut Hud) -> Result<(), AppError> {
        let dials = self.dials();
        let to = match wish {
            HudRequest::SelectDial(by) => {
                self.selected_dial =
                    (self.selected_dial as i64 + i64::from(by)).rem_euclid(dials.len() as i64) as usize;
                return Ok(());
            }
            HudRequest::StepDial(more) => dials[self.selected_dial].stepped(more),
            HudRequest::SetDial { dial, value: to } if dial < dials.len() => {
                self.selected_dial = dial;
                to.min(dials[dial].max)
            }
            _ => return Ok(()),
        };
        let mut terms = self.pair.settings();
        let turned = match self.selected_dial {
            0 => &mut terms.rtt_ms,
            1 => &mut terms.jitter_ms,
            2 => &mut terms.loss_percent,
            3 => &mut terms.input_delay,
            _ => &mut terms.prediction_window,
        };
        *turned = to;
        if self.selected_dial > 2 {
            desk.show_toast(
                Instant::now(),
                format!("a new session: lag {}, window {}", terms.input_delay, terms.prediction_window),
            );
        }
        self.pair.change_settings(now, terms)
    }

    fn dials(&self) -> [Dial; 5] {
        let terms = self.pair.settings();
        [
            Dial { name: "round trip", unit: "ms", value: terms.rtt_ms, max: 400, step: 10 },
            Dial { name: "jitter", unit: "ms", value: terms.jitter_ms, max: 50, step: 1 },
            Dial { name: "loss", unit: "%", value: terms.loss_percent, max: 30, step: 1 },
            Dial { name: "lag", unit: "frames", value: terms.input_delay, max: 20, step: 1 },
            Dial { name: "window", unit: "frames", value: terms.prediction_window, max: 20, step: 1 },
        ]
    }

    fn draw(&self, now: Time, scene: &mut Scene, desk: &Hud) {
        let screens = scene.screens(2);
        for (player, (screen, site)) in screens.iter_mut().zip(&self.pair.sites).enumerate() {
            let who = if site.human_input.is_some() { "you" } else { "a bot" };
            let stats = site.session.stats();
            let guessed = stats.frame.number().saturating_sub(stats.confirmed.number());
            screen.caption = format!("site {player}: {who}   frame {}   {guessed} guessed", stats.frame);
            screen.show(site.machine().picture());
        }
        scene.graph = Some(self.history.graph());
        scene.dials.clear();
        scene.dials.extend(self.dials());
        scene.selected_dial = self.selected_dial;
        let stats = self.pair.sites[0].session.stats();
        let period = stats.period.as_millis_f64();
        let equal = if self.first_desync_frame(now).is_none() { "states equal" } else { "STATES DIFFER" };
        scene.status = format!("{:.1} fps   {equal}   [ ] choose a dial   - = turn it", 1_000.0 / period.max(1.0));
        desk.draw(Instant::now(), scene);
    }

    /// The first frame after which the sites differed, by what their machines or their sessions say.
    fn first_desync_frame(&self, now: Time) -> Option<u32> {
        let peer = |site: SiteId| SiteId::first(2).find(|other| *other != site);
        let differs = self.pair.sites.iter().any(|site| {
            let stats = peer(site.session.site()).and_then(|peer| site.session.peer_stats(now, peer));
            stats.is_some_and(|stats| stats.mismatches > 0)
        });
        self.pair.comparison.first_desync.or(differs.then(|| self.frame().number()))
    }

    /// Why a machine stands still.
    fn machine_failure(&self) -> Option<&str> {
        self.pair.sites.iter().find_map(|site| site.machine().failure())
    }

    fn summary(&self, now: Time, took: Option<Duration>, notes: Vec<String>) -> Summary {
        let sites = &self.pair.sites;
        let stats = [0, 1].map(|site: usize| sites[site].session.stats());
        let other = sites[1].session.site();
        let link = sites[0].session.peer_stats(now, other).unwrap_or_default();
        let terms = self.pair.settings();
        let mut summary = Summary::for_frames(u64::from(self.frame().number()), took, sites[0].machine().frame_rate());
        let DemoSettings { rtt_ms, jitter_ms, loss_percent, input_delay: lag, prediction_window: window } = terms;
        summary.add_row(
            "link",
            format!("{rtt_ms} ms, {loss_percent} %"),
            &format!("round trip and loss; {jitter_ms} ms of jitter"),
        );
        summary.add_row("dials", format!("lag {lag}, window {window}"), "frames");
        summary.add_row("round trip", format!("{:.1} ms", link.rtt.as_millis_f64()), "as the engine measured it");
        let (sent, lost) = self.pair.packet_counts();
        summary.add_row("packets", sent.to_string(), &format!("{lost} of them lost"));
        let each = |numbers: [u64; 2]| format!("{} and {}", numbers[0], numbers[1]);
        summary.add_row("stalls", each(stats.map(|stats| stats.stalls)), "frames that waited, at each site");
        summary.add_row(
            "played again",
            each(stats.map(|stats| stats.resimulated)),
            "frames, to repair what was guessed wrongly",
        );
        let StateComparison { count: times, .. } = self.pair.comparison;
        let equal = match self.first_desync_frame(now) {
            Some(_) => "NO",
            None if times == 0 => "unknown",
            None => "yes",
        };
        summary.add_row("states equal", equal.into(), &format!("compared {times} times"));
        summary.notes = notes;
        summary.notes.extend(failure_note(self.machine_failure()));
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy_machine::ToyMachine;

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
        let told = |demo: &mut Demo| {
            let now = demo.run_in_virtual_time().unwrap();
            demo.verdict(now, false).map(|trouble| trouble.to_string()).unwrap_or_default()
        };
        let machines: [Box<dyn Machine>; 2] =
            [Box::new(ToyMachine::new(1)), Box::new(ToyMachine::new(1).diverging_after(200))];
        let mut astray = Demo::new(machines, DemoSettings::default(), Some(600), 1).unwrap();
        assert!(told(&mut astray).contains("the sites had different states, first after frame"));
        assert!(astray.summary(Time::ZERO, None, vec![]).to_string().contains("states equal NO"));
        let mut cut = demo(600);
        cut.pair.change_settings(Time::ZERO, DemoSettings { loss_percent: 100, ..DemoSettings::default() }).unwrap();
        assert!(told(&mut cut).contains("the sites came no further than frame 0"));
        let short = demo(30).run_headless().unwrap().to_string();
        assert!(short.contains("states equal unknown") && short.contains("compared 0 times"), "{short}");
    }

    #[test]
    fn dials_change_their_settings() {
        let mut demo = demo(600);
        let mut desk = Hud::new(&Config::default(), HudCapabilities { dials: true, ..HudCapabilities::default() }, &[]);
        let mut wish = |demo: &mut Demo, wish| demo.handle_request(Time::ZERO, wish, &mut desk).unwrap();
        wish(&mut demo, HudRequest::StepDial(true));
        wish(&mut demo, HudRequest::SelectDial(-1));
        wish(&mut demo, HudRequest::StepDial(false));
        wish(&mut demo, HudRequest::SetDial { dial: 2, value: 900 });
        wish(&mut demo, HudRequest::SetDial { dial: 99, value: 1 });
        assert_eq!(
            demo.pair.settings(),
            DemoSettings { rtt_ms: 90, loss_percent: 30, prediction_window: 7, ..DemoSettings::default() }
        );
    }

    #[test]
    fn human_replaces_the_bot_until_idle_timeout() {
        let mut demo = demo(600);
        let mut hands = [0; MAX_PLAYERS];
        demo.update_human_input(Time::ZERO, &hands);
        assert_eq!(demo.pair.sites[1].human_input, None);
        hands[1] = !0;
        demo.update_human_input(Time::ZERO, &hands);
        assert_eq!(demo.pair.sites[1].human_input, Some(demo.pair.sites[1].machine().pads()[1].mask));
        hands[1] = 0;
        demo.update_human_input(Time::ZERO + HUMAN_IDLE_TIMEOUT / 2, &hands);
        assert_eq!((demo.pair.sites[0].human_input, demo.pair.sites[1].human_input), (None, Some(0)));
        demo.update_human_input(Time::ZERO + HUMAN_IDLE_TIMEOUT, &hands);
        assert_eq!(demo.pair.sites[1].human_input, None);
    }
}
