//! `coplay demo`: a game shared over a bad link, both sites side by side, with everything to be turned while it runs.

mod history;
mod tennis;
pub mod world;

use std::time::{Duration, Instant};

use coplay::frame::Frame;
use coplay::id::SiteId;
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::time::{Instant as Time, TimeDelta};
use coplay_machines::Machine;

use crate::config::Config;
use crate::desk::{Can, Desk, Wish, note_of_failure};
use crate::outfit::Outfit;
use crate::pace::sleep_until;
use crate::scene::{Dial, Scene};
use crate::stage::Stage;
use crate::summary::Summary;
use crate::trouble::Trouble;
use history::History;
use world::{Compared, Terms, World};

/// Frames of a run that does not say how many and that nobody sees.
pub const HEADLESS_FRAMES: u32 = 600;
/// How long a person who pressed something counts as playing.
const PLAYING: TimeDelta = TimeDelta::from_secs(5);
/// Commands wait no longer than this.
const LOOK_EVERY: TimeDelta = TimeDelta::from_millis(8);
/// Even a link that stands still comes to an end, in virtual time.
const PATIENCE: TimeDelta = TimeDelta::from_secs(3_600);

/// The demonstration.
pub struct Demo {
    world: World,
    frames: Option<u32>,
    /// Until when each player is a person.
    persons: [Time; 2],
    chosen: usize,
    history: History,
}

impl Demo {
    /// Two machines that are equal.
    pub fn new(machines: [Box<dyn Machine>; 2], terms: Terms, frames: Option<u32>, seed: u64) -> Result<Self, Trouble> {
        let world = World::new(Time::ZERO, machines, terms, seed)?;
        Ok(Self { world, frames, persons: [Time::ZERO; 2], chosen: 0, history: History::default() })
    }

    /// In virtual time, as fast as it goes, without anything to see.
    pub fn run_headless(mut self) -> Result<Summary, Trouble> {
        let begun = Instant::now();
        let now = self.hurry()?;
        self.finish(now, Some(begun.elapsed()), vec![], crate::stop::is_asked())
    }

    /// Plays all frames in virtual time, and says how late it is then.
    fn hurry(&mut self) -> Result<Time, Trouble> {
        let mut now = Time::ZERO;
        self.frames.get_or_insert(HEADLESS_FRAMES);
        while !self.is_done() && !crate::stop::is_asked() && now < Time::ZERO + PATIENCE {
            self.world.advance(now)?;
            now = self.world.next().unwrap_or(now).max(now + TimeDelta::from_nanos(1));
        }
        Ok(now)
    }

    /// In real time, on a stage.
    pub fn run(mut self, mut stage: Stage, config: &Config) -> Result<Summary, Trouble> {
        let begun = Instant::now();
        let clock = || Time::ZERO + TimeDelta::from(begun.elapsed());
        let can = Can { dials: true, ..Can::default() };
        let mut desk = Desk::new(config, can, self.world.sites[0].machine().pads());
        let mut outfit = Outfit::open(config, self.world.sites[0].machine().pads(), &stage, &mut desk);
        while !desk.is_over() && !self.is_done() {
            while let Some(command) = stage.poll_command() {
                if let Some(wish) = desk.handle(Instant::now(), command) {
                    self.grant(clock(), wish, &mut desk)?;
                }
                if desk.is_over() {
                    break;
                }
            }
            let now = clock();
            self.take_pads(now, &stage.hands().look());
            self.world.advance(now)?;
            self.history.look(now, &self.world);
            desk.set_failure(self.failure());
            self.show_and_play(now, &mut stage, &desk, &mut outfit);
            let next = self.world.next().unwrap_or(now + LOOK_EVERY).min(now + LOOK_EVERY);
            sleep_until(begun + (next - Time::ZERO).to_duration());
        }
        self.finish(clock(), None, outfit.notes, desk.is_over())
    }

    /// What it came to.
    fn finish(&self, now: Time, took: Option<Duration>, notes: Vec<String>, left: bool) -> Result<Summary, Trouble> {
        let summary = self.summary(now, took, notes);
        match self.trouble(now, left) {
            None => Ok(summary),
            Some(trouble) => {
                summary.print();
                Err(trouble)
            }
        }
    }

    /// What is wrong: the sites played something else, or did not come as far as they should although nobody `left`.
    fn trouble(&self, now: Time, left: bool) -> Option<Trouble> {
        if let Some(frame) = self.first_different(now) {
            let what = format!("the sites had different states, first after frame {frame}");
            return Some(
                Trouble::failure(what).hint("is the machine deterministic? `coplay check` with the same game says"),
            );
        }
        let stuck = || {
            Trouble::failure(format!("the sites came no further than frame {}", self.frame()))
                .hint("try a better link: less --loss, --jitter or --rtt")
        };
        (!left && !self.is_done()).then(stuck)
    }

    /// The frame that both sites have come to.
    fn frame(&self) -> Frame {
        self.world.sites.iter().map(|site| site.session.stats().frame).min().unwrap_or(Frame::ZERO)
    }

    fn is_done(&self) -> bool {
        self.frames.is_some_and(|frames| self.frame().number() >= frames)
    }

    /// Whoever presses something plays; who has not for a while lets the bot go on.
    fn take_pads(&mut self, now: Time, hands: &[InputWord; MAX_PLAYERS]) {
        for (player, site) in self.world.sites.iter_mut().enumerate() {
            let mask = site.machine().pads().get(player).map_or(0, |pad| pad.mask);
            let word = hands[player] & mask;
            if word != 0 {
                self.persons[player] = now + PLAYING;
            }
            site.hand = (now < self.persons[player]).then_some(word);
        }
    }

    fn show_and_play(&mut self, now: Time, stage: &mut Stage, desk: &Desk, outfit: &mut Outfit) {
        let [first, second] = &mut self.world.sites;
        let fresh = std::mem::take(&mut first.fresh);
        if fresh {
            let seam = std::mem::take(&mut first.repaired);
            outfit.play(first.machine(), desk.sound(), seam);
        }
        if fresh | std::mem::take(&mut second.fresh) {
            stage.show(|scene| self.draw(now, scene, desk));
        }
    }

    fn grant(&mut self, now: Time, wish: Wish, desk: &mut Desk) -> Result<(), Trouble> {
        let dials = self.dials();
        let to = match wish {
            Wish::Choose(by) => {
                self.chosen = (self.chosen as i64 + i64::from(by)).rem_euclid(dials.len() as i64) as usize;
                return Ok(());
            }
            Wish::Turn(more) => dials[self.chosen].turned(more),
            Wish::TurnTo { dial, to } if dial < dials.len() => {
                self.chosen = dial;
                to.min(dials[dial].most)
            }
            _ => return Ok(()),
        };
        let mut terms = self.world.terms();
        let turned = match self.chosen {
            0 => &mut terms.rtt_ms,
            1 => &mut terms.jitter_ms,
            2 => &mut terms.loss_percent,
            3 => &mut terms.lag,
            _ => &mut terms.window,
        };
        *turned = to;
        if self.chosen > 2 {
            desk.say(Instant::now(), format!("a new session: lag {}, window {}", terms.lag, terms.window));
        }
        self.world.set_terms(now, terms)
    }

    fn dials(&self) -> [Dial; 5] {
        let terms = self.world.terms();
        [
            Dial { name: "round trip", unit: "ms", value: terms.rtt_ms, most: 400, step: 10 },
            Dial { name: "jitter", unit: "ms", value: terms.jitter_ms, most: 50, step: 1 },
            Dial { name: "loss", unit: "%", value: terms.loss_percent, most: 30, step: 1 },
            Dial { name: "lag", unit: "frames", value: terms.lag, most: 20, step: 1 },
            Dial { name: "window", unit: "frames", value: terms.window, most: 20, step: 1 },
        ]
    }

    fn draw(&self, now: Time, scene: &mut Scene, desk: &Desk) {
        let screens = scene.screens(2);
        for (player, (screen, site)) in screens.iter_mut().zip(&self.world.sites).enumerate() {
            let who = if site.hand.is_some() { "you" } else { "a bot" };
            let stats = site.session.stats();
            let guessed = stats.frame.number().saturating_sub(stats.confirmed.number());
            screen.caption = format!("site {player}: {who}   frame {}   {guessed} guessed", stats.frame);
            screen.show(site.machine().picture());
        }
        scene.graph = Some(self.history.graph());
        scene.dials.clear();
        scene.dials.extend(self.dials());
        scene.chosen_dial = self.chosen;
        let stats = self.world.sites[0].session.stats();
        let period = stats.period.as_millis_f64();
        let equal = if self.first_different(now).is_none() { "states equal" } else { "STATES DIFFER" };
        scene.status = format!("{:.1} fps   {equal}   [ ] choose a dial   - = turn it", 1_000.0 / period.max(1.0));
        desk.draw(Instant::now(), scene);
    }

    /// The first frame after which the sites differed, by what their machines or their sessions say.
    fn first_different(&self, now: Time) -> Option<u32> {
        let peer = |site: SiteId| SiteId::first(2).find(|other| *other != site);
        let differs = self.world.sites.iter().any(|site| {
            let stats = peer(site.session.site()).and_then(|peer| site.session.peer_stats(now, peer));
            stats.is_some_and(|stats| stats.mismatches > 0)
        });
        self.world.compared.first_different.or(differs.then(|| self.frame().number()))
    }

    /// Why a machine stands still.
    fn failure(&self) -> Option<&str> {
        self.world.sites.iter().find_map(|site| site.machine().failure())
    }

    fn summary(&self, now: Time, took: Option<Duration>, notes: Vec<String>) -> Summary {
        let sites = &self.world.sites;
        let stats = [0, 1].map(|site: usize| sites[site].session.stats());
        let other = sites[1].session.site();
        let link = sites[0].session.peer_stats(now, other).unwrap_or_default();
        let terms = self.world.terms();
        let mut summary = Summary::of(u64::from(self.frame().number()), took, sites[0].machine().frame_rate());
        let Terms { rtt_ms, jitter_ms, loss_percent, lag, window } = terms;
        summary.row(
            "link",
            format!("{rtt_ms} ms, {loss_percent} %"),
            &format!("round trip and loss; {jitter_ms} ms of jitter"),
        );
        summary.row("dials", format!("lag {lag}, window {window}"), "frames");
        summary.row("round trip", format!("{:.1} ms", link.rtt.as_millis_f64()), "as the engine measured it");
        let (sent, lost) = self.world.packets();
        summary.row("packets", sent.to_string(), &format!("{lost} of them lost"));
        let each = |numbers: [u64; 2]| format!("{} and {}", numbers[0], numbers[1]);
        summary.row("stalls", each(stats.map(|stats| stats.stalls)), "frames that waited, at each site");
        summary.row(
            "played again",
            each(stats.map(|stats| stats.resimulated)),
            "frames, to repair what was guessed wrongly",
        );
        let Compared { times, .. } = self.world.compared;
        let equal = match self.first_different(now) {
            Some(_) => "NO",
            None if times == 0 => "unknown",
            None => "yes",
        };
        summary.row("states equal", equal.into(), &format!("compared {times} times"));
        summary.notes = notes;
        summary.notes.extend(note_of_failure(self.failure()));
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::ToyMachine;

    fn demo(frames: u32) -> Demo {
        let machine = || -> Box<dyn Machine> { Box::new(ToyMachine::new(1)) };
        Demo::new([machine(), machine()], Terms::default(), Some(frames), 1).unwrap()
    }

    #[test]
    fn a_run_without_a_screen_tells_that_the_states_are_equal() {
        let summary = demo(600).run_headless().unwrap().to_string();
        assert!(summary.contains("states equal yes") && summary.contains("compared 9 times"), "{summary}");
    }

    #[test]
    fn sites_that_differ_or_never_begin_are_a_failure() {
        let told = |demo: &mut Demo| {
            let now = demo.hurry().unwrap();
            demo.trouble(now, false).map(|trouble| trouble.to_string()).unwrap_or_default()
        };
        let machines: [Box<dyn Machine>; 2] = [Box::new(ToyMachine::new(1)), Box::new(ToyMachine::new(1).astray(200))];
        let mut astray = Demo::new(machines, Terms::default(), Some(600), 1).unwrap();
        assert!(told(&mut astray).contains("the sites had different states, first after frame"));
        assert!(astray.summary(Time::ZERO, None, vec![]).to_string().contains("states equal NO"));
        let mut cut = demo(600);
        cut.world.set_terms(Time::ZERO, Terms { loss_percent: 100, ..Terms::default() }).unwrap();
        assert!(told(&mut cut).contains("the sites came no further than frame 0"));
        let short = demo(30).run_headless().unwrap().to_string();
        assert!(short.contains("states equal unknown") && short.contains("compared 0 times"), "{short}");
    }

    #[test]
    fn dials_turn_what_they_say() {
        let mut demo = demo(600);
        let mut desk = Desk::new(&Config::default(), Can { dials: true, ..Can::default() }, &[]);
        let mut wish = |demo: &mut Demo, wish| demo.grant(Time::ZERO, wish, &mut desk).unwrap();
        wish(&mut demo, Wish::Turn(true));
        wish(&mut demo, Wish::Choose(-1));
        wish(&mut demo, Wish::Turn(false));
        wish(&mut demo, Wish::TurnTo { dial: 2, to: 900 });
        wish(&mut demo, Wish::TurnTo { dial: 99, to: 1 });
        assert_eq!(demo.world.terms(), Terms { rtt_ms: 90, loss_percent: 30, window: 7, ..Terms::default() });
    }

    #[test]
    fn a_person_plays_as_long_as_something_is_pressed() {
        let mut demo = demo(600);
        let mut hands = [0; MAX_PLAYERS];
        demo.take_pads(Time::ZERO, &hands);
        assert_eq!(demo.world.sites[1].hand, None);
        hands[1] = !0;
        demo.take_pads(Time::ZERO, &hands);
        assert_eq!(demo.world.sites[1].hand, Some(demo.world.sites[1].machine().pads()[1].mask));
        hands[1] = 0;
        demo.take_pads(Time::ZERO + PLAYING / 2, &hands);
        assert_eq!((demo.world.sites[0].hand, demo.world.sites[1].hand), (None, Some(0)));
        demo.take_pads(Time::ZERO + PLAYING, &hands);
        assert_eq!(demo.world.sites[1].hand, None);
    }
}
