//! Which server a player is on: the nearest that takes it, and another when that one is silent or about to go, or when another is clearly
//! nearer.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::talk::{Pong, ping};

/// All servers are asked so often how they are; before the first choice more often.
const PING_EVERY: TimeDelta = TimeDelta::from_millis(500);
const PING_SOON: TimeDelta = TimeDelta::from_millis(60);
/// So many answers of a server make a round-trip time; or whatever there is after a while.
const ENOUGH: u32 = 3;
const PATIENCE: TimeDelta = TimeDelta::from_millis(400);
/// Whoever is not farther than this is as near.
const AS_NEAR: TimeDelta = TimeDelta::from_millis(5);
/// How far a server is follows from so many last answers, of which the quickest counts.
const TRIPS: usize = 8;
/// Nobody moves to who is not nearer by this, and by one part in so many of the way.
const NEARER: TimeDelta = TimeDelta::from_millis(10);
const NEARER_PART: i64 = 4;
/// Nor before it was so long where it is: longer with every move, up to this, unless it stays for long.
const REST: TimeDelta = TimeDelta::from_secs(4);
const MOST_REST: TimeDelta = TimeDelta::from_secs(128);
const LONG: TimeDelta = TimeDelta::from_secs(300);
/// Who is silent for so long is left. Who has only just moved waits longer before the next time, up to this: where all servers have too much to do,
/// moving makes it more.
const SILENT: TimeDelta = TimeDelta::from_millis(900);
const MOST_PATIENT: TimeDelta = TimeDelta::from_millis(3_600);
const ONLY_JUST: TimeDelta = TimeDelta::from_secs(10);
/// Who is silent for so long is forgotten.
const FORGET: TimeDelta = TimeDelta::from_secs(10);
/// Whoever answered so lately is there.
const LATELY: TimeDelta = TimeDelta::from_millis(1_600);

/// A player's choice between servers, which are known by something.
#[derive(Clone, Debug)]
pub struct Voyage<K> {
    servers: BTreeMap<K, Known>,
    current: Option<K>,
    /// When the present server was chosen.
    since: Instant,
    patience: TimeDelta,
    /// For so long we do not look for a nearer one.
    rest: TimeDelta,
    began: Instant,
    next_ping: Instant,
    moves: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The last round trips, in a ring.
    trips: [Option<TimeDelta>; TRIPS],
    answers: u32,
    heard: Option<Instant>,
    /// When it was first looked whether it is silent.
    looked_at: Option<Instant>,
    drains: bool,
    full: bool,
    players: u16,
}

impl Known {
    fn rtt(&self) -> Option<TimeDelta> {
        self.trips.iter().flatten().min().copied()
    }

    fn is_well_known(&self) -> bool {
        self.answers as usize >= TRIPS
    }

    fn is_there(&self, now: Instant) -> bool {
        self.heard.is_some_and(|heard| now - heard < LATELY)
    }

    /// The nearest is best; of those that are as near, the one with the fewest players.
    fn rank(&self) -> (i64, u16) {
        let steps = self.rtt().map_or(i64::MAX, |rtt| rtt.as_nanos() / AS_NEAR.as_nanos());
        (steps, self.players)
    }
}

impl<K: Ord + Copy> Voyage<K> {
    /// Nobody is known yet.
    pub fn new(now: Instant) -> Self {
        Self {
            servers: BTreeMap::new(),
            current: None,
            since: now,
            patience: SILENT,
            rest: REST,
            began: now,
            next_ping: now,
            moves: 0,
        }
    }

    /// There is a way to a server.
    pub fn on_up(&mut self, server: K) {
        self.servers.entry(server).or_default();
    }

    /// A server answers.
    pub fn on_pong(&mut self, now: Instant, server: K, pong: &Pong) {
        let Some(known) = self.servers.get_mut(&server) else { return };
        known.trips[known.answers as usize % TRIPS] = Some((now - pong.stamp).max(TimeDelta::ZERO));
        known.answers = known.answers.saturating_add(1);
        (known.heard, known.players) = (Some(now), pong.players);
        (known.drains, known.full) = (pong.drains, pong.full);
    }

    /// Whether a server was heard of late.
    pub fn is_there(&self, now: Instant, server: K) -> bool {
        self.servers.get(&server).is_some_and(|known| known.is_there(now))
    }

    /// Whether we are nowhere because all servers that answer have no room for us.
    pub fn is_full(&self, now: Instant) -> bool {
        let mut there = self.servers.values().filter(|known| known.is_there(now) && !known.drains).peekable();
        self.current.is_none() && there.peek().is_some() && there.all(|known| known.full)
    }

    /// Forgets servers that were silent for long: whoever is started anew is another one.
    pub fn forget_silent(&mut self, now: Instant) {
        let current = self.current;
        self.servers.retain(|server, known| {
            // Of one that has not answered yet it counts when it was first looked at.
            let since = known.heard.unwrap_or(*known.looked_at.get_or_insert(now));
            Some(*server) == current || now - since < FORGET
        });
    }

    /// Which server we are on.
    pub fn current(&self) -> Option<K> {
        self.current
    }

    /// How often we went from one to another.
    pub fn moves(&self) -> u32 {
        self.moves
    }

    /// Servers to be asked how they are, with what to send.
    pub fn poll_pings(&mut self, now: Instant) -> Option<(Vec<K>, Vec<u8>)> {
        if now < self.next_ping {
            return None;
        }
        self.next_ping = now + if self.current.is_none() { PING_SOON } else { PING_EVERY };
        Some((self.servers.keys().copied().collect(), ping(now)))
    }

    /// When to ask again.
    pub fn poll_timeout(&self) -> Instant {
        self.next_ping
    }

    /// Looks whether to go elsewhere, given when the present server was last heard and whether it wants us to go. The new server, if so.
    pub fn choose(&mut self, now: Instant, heard: Instant, drains: bool) -> Option<K> {
        let is_silent = now - heard.max(self.since) >= self.patience;
        let must_go = self.current.is_none() || is_silent || drains;
        let others = self.servers.iter().filter(|(server, _)| self.current != Some(**server));
        let there = others.filter(|(_, known)| known.is_there(now) && !known.drains && !known.full);
        let (nearest, known) = there.min_by_key(|(_, known)| known.rank()).map(|(server, known)| (*server, *known))?;
        if !must_go && !self.is_worth(now, &known) {
            return None;
        }
        let can_wait = self.current.is_none() && now - self.began < PATIENCE;
        if can_wait && (known.answers < ENOUGH || self.servers.values().any(|other| other.answers < ENOUGH)) {
            return None;
        }
        if self.current.is_some() {
            self.on_move(now, is_silent);
        }
        (self.current, self.since) = (Some(nearest), now);
        Some(nearest)
    }

    /// Whether another server is so much nearer than ours, over several answers of both, that we go there though nothing is wrong here.
    fn is_worth(&self, now: Instant, other: &Known) -> bool {
        let Some(ours) = self.current.and_then(|server| self.servers.get(&server)) else { return false };
        let (Some(here), Some(there)) = (ours.rtt(), other.rtt()) else { return false };
        let are_known = ours.is_well_known() && other.is_well_known();
        are_known && now - self.since >= self.rest && here - there >= NEARER.max(here / NEARER_PART)
    }

    fn on_move(&mut self, now: Instant, is_silent: bool) {
        self.moves += 1;
        let stayed = now - self.since;
        let is_hasty = is_silent && stayed < ONLY_JUST;
        self.patience = if is_hasty { (self.patience * 2).min(MOST_PATIENT) } else { SILENT };
        self.rest = if stayed >= LONG { REST } else { (self.rest * 2).min(MOST_REST) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn pong(sent: i64) -> Pong {
        Pong { stamp: at(sent), drains: false, full: false, players: 0 }
    }

    /// Servers 1 and 2 answer after 30 and 10 ms, as long as they do.
    fn ask(voyage: &mut Voyage<u8>, until: i64, answers: impl Fn(u8, i64) -> bool) -> Vec<(i64, u8)> {
        let (mut chosen, mut under_way, mut heard) = (vec![], vec![], at(0));
        for millis in 0..until {
            if let Some((servers, _)) = voyage.poll_pings(at(millis)) {
                let trip = |server: &u8| if *server == 1 { 30 } else { 10 };
                under_way.extend(servers.iter().map(|server| (millis + trip(server), millis, *server)));
            }
            for (_, sent, server) in under_way.extract_if(.., |(due, ..)| *due <= millis) {
                if answers(server, millis) {
                    voyage.on_pong(at(millis), server, &pong(sent));
                }
            }
            if voyage.current().is_some_and(|server| answers(server, millis)) {
                heard = at(millis);
            }
            chosen.extend(voyage.choose(at(millis), heard, false).map(|server| (millis, server)));
        }
        chosen
    }

    #[test]
    fn the_nearest_is_chosen_and_left_when_it_is_silent() {
        let mut voyage = Voyage::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.on_up(server));
        let chosen = ask(&mut voyage, 6_000, |server, millis| server == 1 || millis < 3_000);
        assert!(
            matches!(chosen[..], [(first, 2), (second, 1)] if first < 400 && (3_800..4_000).contains(&second)),
            "{chosen:?}"
        );
        assert_eq!((voyage.current(), voyage.moves()), (Some(1), 1));
    }

    #[test]
    fn nobody_goes_where_nobody_answers() {
        let mut voyage = Voyage::new(at(0));
        voyage.on_up(1);
        assert_eq!(ask(&mut voyage, 5_000, |_, millis| millis < 2_000).len(), 1);
        assert_eq!(voyage.moves(), 0);
    }

    #[test]
    fn a_server_that_is_silent_for_long_is_forgotten_and_a_new_one_is_not() {
        let mut voyage = Voyage::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.on_up(server));
        ask(&mut voyage, 1_000, |_, _| true);
        let other = voyage.servers.keys().copied().find(|server| Some(*server) != voyage.current()).unwrap();
        assert!(voyage.is_there(at(1_000), other));
        voyage.on_up(3);
        voyage.forget_silent(at(60_000));
        assert!(!voyage.servers.contains_key(&other) && voyage.servers.contains_key(&3));
        voyage.forget_silent(at(80_000));
        assert!(!voyage.servers.contains_key(&3));
    }

    #[test]
    fn who_is_asked_to_go_goes() {
        let mut voyage = Voyage::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.on_up(server));
        ask(&mut voyage, 1_000, |_, _| true);
        assert_eq!(voyage.choose(at(1_000), at(1_000), true), Some(1));
    }

    /// Asks for so long, when server 1 is one way and server 2 another, in milliseconds. When somebody moved, and where to.
    fn travel(voyage: &mut Voyage<u8>, from: i64, until: i64, away: impl Fn(i64) -> [i64; 2]) -> Vec<(i64, u8)> {
        let mut chosen = vec![];
        for millis in from..until {
            if let Some((servers, _)) = voyage.poll_pings(at(millis)) {
                for server in servers {
                    let trip = away(millis)[usize::from(server) - 1];
                    voyage.on_pong(at(millis), server, &pong(millis - trip));
                }
            }
            chosen.extend(voyage.choose(at(millis), at(millis), false).map(|server| (millis, server)));
        }
        chosen
    }

    #[test]
    fn a_nearer_server_that_is_learned_of_later_is_gone_to_once() {
        let mut voyage = Voyage::new(at(0));
        voyage.on_up(1);
        assert_eq!(travel(&mut voyage, 0, 1_000, |_| [80, 20]).len(), 1);
        voyage.on_up(2);
        let chosen = travel(&mut voyage, 1_000, 120_000, |_| [80, 20]);
        assert!(matches!(chosen[..], [(at, 2)] if at < 8_000), "{chosen:?}");
    }

    #[test]
    fn who_left_a_near_server_is_back_when_that_is() {
        let mut voyage = Voyage::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.on_up(server));
        let chosen = ask(&mut voyage, 90_000, |server, millis| server == 1 || !(10_000..30_000).contains(&millis));
        let servers: Vec<u8> = chosen.iter().map(|(_, server)| *server).collect();
        assert_eq!(servers, [2, 1, 2], "{chosen:?}");
        assert!((30_000..45_000).contains(&chosen[2].0), "{chosen:?}");
    }

    #[test]
    fn nobody_flaps() {
        let both = || {
            let mut voyage = Voyage::new(at(0));
            [1, 2].into_iter().for_each(|server| voyage.on_up(server));
            voyage
        };
        let alike =
            travel(&mut both(), 0, 600_000, |millis| if millis / 20_000 % 2 == 0 { [40, 46] } else { [46, 40] });
        assert_eq!(alike.len(), 1, "about as near is near enough: {alike:?}");
        let jitter = travel(&mut both(), 0, 600_000, |millis| [40 + millis * 7_919 % 60, 40 + millis * 104_729 % 60]);
        assert!(jitter.len() <= 3, "{jitter:?}");
        let changing = |millis: i64| if millis / 20_000 % 2 == 0 { [20, 90] } else { [90, 20] };
        let moves = travel(&mut both(), 0, 600_000, changing).len();
        assert!((3..=12).contains(&moves), "{moves} moves in ten minutes");
    }

    #[test]
    fn nobody_goes_where_there_is_no_room() {
        let mut voyage = Voyage::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.on_up(server));
        for millis in (0..3_000).step_by(20) {
            voyage.on_pong(at(millis), 2, &Pong { full: true, ..pong(millis - 10) });
            assert_eq!(voyage.choose(at(millis), at(0), false), None);
        }
        assert!(voyage.is_full(at(3_000)) && !voyage.is_full(at(9_000)), "only as long as it is known");
        voyage.on_pong(at(3_000), 1, &pong(2_900));
        assert!(!voyage.is_full(at(3_000)));
        assert_eq!(voyage.choose(at(3_000), at(0), false), Some(1));
    }

    /// Servers that answer, but have no time for players, are not made to take them over again and again.
    #[test]
    fn who_finds_all_servers_silent_becomes_patient() {
        let mut voyage = Voyage::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.on_up(server));
        for millis in (0..20_000).step_by(10) {
            for server in [1, 2] {
                voyage.on_pong(at(millis), server, &pong(millis - 10));
            }
            voyage.choose(at(millis), at(0), false);
        }
        assert!((4..=8).contains(&voyage.moves()), "{} moves", voyage.moves());
    }
}
