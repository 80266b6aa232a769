//! Two sites that share a game over a link that is as bad as one likes, in one process.
//!
//! Pure: time comes from outside. So the same world runs in real time in front of somebody, and in virtual time as fast as it goes.

use std::collections::BTreeMap;

use coplay::id::{Addr, SiteId};
use coplay::input::{InputWord, MAX_PLAYERS};
use coplay::session::Session;
use coplay::time::{Instant, TimeDelta};
use coplay::wire::MAX_DATAGRAM;
use coplay_machines::identity::game_id;
use coplay_machines::session_adapter::{self, RequestOutcome, SessionAdapter};
use coplay_machines::{Machine, NetplaySupport};
use coplay_sim::link::{Delay, Jitter, Link, LinkConfig, Loss};

use super::tennis::Player;
use crate::bot::Bot;
use crate::game::Game;
use crate::trouble::Trouble;

/// States are compared this often, in frames.
pub const COMPARE_EVERY: u32 = 60;

/// How bad the link is, and how the game is shared over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// There and back, in milliseconds.
    pub rtt_ms: u32,
    /// What is added on the way, in the mean, in milliseconds.
    pub jitter_ms: u32,
    /// Packets that never arrive, in percent.
    pub loss_percent: u32,
    /// By how many frames local input is delayed.
    pub lag: u32,
    /// How many frames may be guessed.
    pub window: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { rtt_ms: 80, jitter_ms: 5, loss_percent: 1, lag: 2, window: 8 }
    }
}

impl Terms {
    fn link(&self) -> LinkConfig {
        let millis = |millis: u32| TimeDelta::from_millis(i64::from(millis));
        LinkConfig {
            delay: Delay::Constant(millis(self.rtt_ms) / 2),
            jitter: match self.jitter_ms {
                0 => Jitter::None,
                mean => Jitter::Exponential { mean: millis(mean) / 2 },
            },
            loss: Loss::Independent(f64::from(self.loss_percent) / 100.0),
            ..LinkConfig::default()
        }
    }
}

/// One site.
pub struct Site {
    /// Its end of the game.
    pub session: Session,
    hosted: SessionAdapter,
    bot: Bot,
    /// Plays the tennis that comes with the program.
    tennis: Option<Player>,
    /// What a person presses here; a bot plays where there is none.
    pub hand: Option<InputWord>,
    /// When the newest frame was stepped for the first time, and its number.
    pub newest: (u32, Instant),
    /// There is a picture that was not there before.
    pub fresh: bool,
    /// The past was repaired since the last fresh frame.
    pub repaired: bool,
    /// Hashes of states that were asked for and are not compared yet, by frame.
    digests: BTreeMap<u32, u64>,
}

/// What came of comparing the states of both sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// How often they were compared.
    pub times: u64,
    /// The first frame after which they differed.
    pub first_different: Option<u32>,
}

/// Both sites, and what is on the way between them.
pub struct World {
    /// The sites.
    pub sites: [Site; 2],
    links: [Link; 2],
    /// What arrives when, at which site.
    flying: Vec<(Instant, usize, Vec<u8>)>,
    buffer: [u8; MAX_DATAGRAM],
    terms: Terms,
    /// Sessions so far.
    round: u64,
    /// When the sites began the same frame, how far apart that was.
    pub apart: TimeDelta,
    /// Whether the sites played the same, by what their machines say and not by what their sessions do.
    pub compared: Compared,
}

impl World {
    /// A world of two equal machines.
    pub fn new(now: Instant, machines: [Box<dyn Machine>; 2], terms: Terms, seed: u64) -> Result<Self, Trouble> {
        let [first, second] = machines;
        let links = ["there", "back"].map(|name| Link::new(terms.link(), seed, name));
        let site = |number: usize, machine: Box<dyn Machine>| {
            let session = session(now, number, &*machine, terms, 1)?;
            let pads = machine.pads();
            let pad = pads
                .get(number)
                .or(pads.first())
                .cloned()
                .unwrap_or_else(|| coplay_machines::pad::Pad::with_buttons(&[]));
            let bot = Bot::new(seed, number, &pad);
            let newest = (0, now);
            let tennis = is_tennis(&*machine).then(|| Player::new(seed, number));
            let hosted = SessionAdapter::new(machine);
            let digests = BTreeMap::new();
            Ok(Site { session, hosted, bot, tennis, hand: None, newest, fresh: false, repaired: false, digests })
        };
        let sites = [site(0, first)?, site(1, second)?];
        let buffer = [0; MAX_DATAGRAM];
        let (apart, compared) = (TimeDelta::ZERO, Compared::default());
        Ok(Self { sites, links, flying: vec![], buffer, terms, round: 1, apart, compared })
    }

    /// How things are.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// Changes how things are. The link changes at once. Lag and window are agreed on when a session starts, so for those
    /// a new one does, from where the game is; where states are not exact, from its beginning.
    pub fn set_terms(&mut self, now: Instant, terms: Terms) -> Result<(), Trouble> {
        let restart = (terms.lag, terms.window) != (self.terms.lag, self.terms.window);
        self.terms = terms;
        self.links.iter_mut().for_each(|link| link.set_config(terms.link()));
        if restart { self.restart(now) } else { Ok(()) }
    }

    fn restart(&mut self, now: Instant) -> Result<(), Trouble> {
        self.round += 1;
        self.flying.clear();
        let unfit = |error: String| Trouble::failure(format!("the game cannot go on in a new session: {error}"));
        let (mut state, exact) = (vec![], self.sites[0].machine().netplay_support() == NetplaySupport::Rollback);
        if exact {
            self.sites[0].hosted.machine_mut().save(&mut state).map_err(|error| unfit(error.to_string()))?;
        }
        for (number, site) in self.sites.iter_mut().enumerate() {
            let machine = site.hosted.machine_mut();
            match exact {
                true => machine.load(&state).map_err(|error| unfit(error.to_string()))?,
                false => machine.reset(),
            }
            site.digests.clear();
            site.session = session(now, number, site.hosted.machine(), self.terms, self.round)?;
            site.newest = (0, now);
        }
        Ok(())
    }

    /// Lets everything happen that is due.
    pub fn advance(&mut self, now: Instant) -> Result<(), Trouble> {
        for (_, to, bytes) in self.flying.extract_if(.., |(at, ..)| *at <= now) {
            self.sites[to].session.handle_datagram(now, Addr(1 - to as u64), &bytes);
        }
        for number in 0..2 {
            while self.sites[number].serve(now)? {
                self.transmit(now, number);
            }
            self.transmit(now, number);
            while self.sites[number].session.poll_event().is_some() {}
        }
        self.compare();
        let [(first, at), (second, then)] = [self.sites[0].newest, self.sites[1].newest];
        if first == second {
            self.apart = (at - then).abs();
        }
        Ok(())
    }

    /// Compares all states that are certain at both sites.
    fn compare(&mut self) {
        let [first, second] = &mut self.sites;
        let certain = [&*first, &*second].map(|site| site.session.stats().confirmed.number());
        let certain = certain[0].min(certain[1]);
        while let Some(ours) = first.digests.first_entry().filter(|ours| *ours.key() < certain) {
            let (frame, ours) = ours.remove_entry();
            let Some(theirs) = second.digests.remove(&frame) else { continue };
            self.compared.times += 1;
            if ours != theirs {
                self.compared.first_different.get_or_insert(frame);
            }
        }
    }

    fn transmit(&mut self, now: Instant, from: usize) {
        while let Some(packet) = self.sites[from].session.poll_transmit(now, &mut self.buffer) {
            for at in self.links[from].send(now, packet.len) {
                self.flying.push((at, 1 - from, self.buffer[..packet.len].to_vec()));
            }
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Instant> {
        let arrivals = self.flying.iter().map(|(at, ..)| *at);
        let timers = self.sites.iter().filter_map(|site| site.session.poll_timeout());
        arrivals.chain(timers).min()
    }

    /// Packets that were sent, and that were lost.
    pub fn packets(&self) -> (u64, u64) {
        self.links.iter().map(|link| link.stats()).fold((0, 0), |sum, link| (sum.0 + link.sent, sum.1 + link.lost))
    }
}

impl Site {
    /// The machine.
    pub fn machine(&self) -> &dyn Machine {
        self.hosted.machine()
    }

    /// What is pressed here if nobody does.
    fn bots_press(&mut self) -> InputWord {
        let lag = self.session.stats().input_delay;
        let played = self.tennis.as_mut().and_then(|player| player.press(self.hosted.machine_mut(), lag));
        played.unwrap_or_else(|| self.bot.press())
    }

    /// Does one thing that the session asks for; `false` if there is none.
    fn serve(&mut self, now: Instant) -> Result<bool, Trouble> {
        let Some(turn) = self.hosted.handle_next_request(now, &mut self.session) else { return Ok(false) };
        match turn {
            RequestOutcome::InputNeeded { .. } => {
                let (player, pressed) = (self.session.site().index(), self.bots_press());
                let mut words = [0; MAX_PLAYERS];
                words[player] = self.hand.unwrap_or(pressed);
                self.session.handle_input(now, &words[..self.machine().pads().len().min(MAX_PLAYERS)]);
            }
            RequestOutcome::Stepped { frame, rendered: true } => {
                (self.newest, self.fresh) = ((frame.number(), now), true)
            }
            RequestOutcome::Stepped { rendered: false, .. } => self.repaired = true,
            RequestOutcome::Failed(trouble) => {
                return Err(Trouble::failure(format!("the game cannot be shared any further: {trouble}")));
            }
            // A frame that is repaired is hashed again, and the last one counts.
            RequestOutcome::Hashed { frame } => {
                _ = self.digests.insert(frame.number(), self.hosted.machine_mut().hash())
            }
            RequestOutcome::Saved { .. } | RequestOutcome::Loaded { .. } | RequestOutcome::SideWork => {}
        }
        Ok(true)
    }
}

/// Whether this is the game that comes with the program.
fn is_tennis(machine: &dyn Machine) -> bool {
    Game::bundled().is_some_and(|game| game_id("", &game.image).hash == machine.game_id().hash)
}

fn session(now: Instant, number: usize, machine: &dyn Machine, terms: Terms, round: u64) -> Result<Session, Trouble> {
    let Terms { lag, window, .. } = terms;
    let shared = session_adapter::SessionOptions {
        sites: 2,
        input_delay: lag,
        prediction_window: window,
        auto_delay: false,
        hash_interval: COMPARE_EVERY,
    };
    let settings = session_adapter::settings(machine, shared);
    let ids: Vec<SiteId> = SiteId::first(2).collect();
    let peers = vec![(ids[1 - number], Addr(1 - number as u64))];
    let config = session_adapter::config(machine, round, ids[number], peers, settings);
    Session::new(now, config).map_err(|error| Trouble::failure(format!("this game cannot be shared so: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::ToyMachine;

    fn world(terms: Terms) -> World {
        let machine = || -> Box<dyn Machine> { Box::new(ToyMachine::new(1)) };
        World::new(Instant::ZERO, [machine(), machine()], terms, 5).unwrap()
    }

    fn run(world: &mut World, mut now: Instant, seconds: i64) -> Instant {
        let end = now + TimeDelta::from_secs(seconds);
        while now < end {
            world.advance(now).unwrap();
            now = world.next().unwrap().max(now + TimeDelta::from_nanos(1));
        }
        now
    }

    #[test]
    fn the_sites_play_the_same_over_a_bad_link() {
        let mut world = world(Terms { loss_percent: 10, jitter_ms: 10, ..Terms::default() });
        run(&mut world, Instant::ZERO, 20);
        for site in &world.sites {
            let stats = site.session.stats();
            assert!(stats.frame.number() > 1_000, "{stats:?}");
            assert!(stats.resimulated > 0 && stats.stalls < 100, "{stats:?}");
        }
        let other = world.sites[1].session.site();
        assert_eq!(world.sites[0].session.peer_stats(Instant::ZERO, other).unwrap().mismatches, 0);
        assert!(world.packets().1 > 50);
        assert!(world.compared.times > 15 && world.compared.first_different.is_none(), "{:?}", world.compared);
    }

    #[test]
    fn a_site_that_goes_astray_is_seen_whatever_its_session_says() {
        let machines: [Box<dyn Machine>; 2] = [Box::new(ToyMachine::new(1)), Box::new(ToyMachine::new(1).astray(200))];
        let mut world = World::new(Instant::ZERO, machines, Terms::default(), 5).unwrap();
        run(&mut world, Instant::ZERO, 10);
        assert!(world.compared.first_different.is_some_and(|frame| frame < 300), "{:?}", world.compared);
    }

    #[test]
    fn other_dials_begin_a_new_session_from_where_the_game_is() {
        let mut world = world(Terms::default());
        let now = run(&mut world, Instant::ZERO, 5);
        let before = world.sites[0].session.stats().frame;
        world.set_terms(now, Terms { rtt_ms: 200, ..world.terms() }).unwrap();
        assert_eq!(world.sites[0].session.stats().frame, before, "another link is no other session");
        world.set_terms(now, Terms { lag: 8, window: 0, ..world.terms() }).unwrap();
        let hashes = [0, 1].map(|site| world.sites[site].hosted.machine_mut().hash());
        assert_eq!(hashes[0], hashes[1]);
        run(&mut world, now, 10);
        let stats = world.sites[0].session.stats();
        assert!(stats.frame.number() > 300 && stats.input_delay == 8 && stats.resimulated == 0, "{stats:?}");
    }

    #[test]
    fn a_person_takes_over_from_a_bot() {
        let mut world = world(Terms::default());
        world.sites[0].hand = Some(0);
        world.sites[1].hand = Some(0);
        run(&mut world, Instant::ZERO, 5);
        assert_eq!(world.sites[0].session.stats().resimulated, 0, "who presses nothing is guessed rightly");
    }
}
