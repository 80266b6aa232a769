//! Which server a player is on: the nearest that takes it, and another when that one is silent or about to go, or when another is clearly
//! nearer.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::protocol::{Pong, encode_ping};

/// All servers are asked so often how they are; before the first choice more often.
const PING_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
const INITIAL_PING_INTERVAL: TimeDelta = TimeDelta::from_millis(60);
/// So many answers of a server make a round-trip time; or whatever there is after a while.
const MIN_ANSWERS: u32 = 3;
const INITIAL_CHOICE_TIMEOUT: TimeDelta = TimeDelta::from_millis(400);
/// Whoever is not farther than this is as near.
const RTT_RESOLUTION: TimeDelta = TimeDelta::from_millis(5);
/// How far a server is follows from so many last answers, of which the quickest counts.
const RTT_SAMPLES: usize = 8;
/// Nobody moves to who is not nearer by this, and by one part in so many of the way.
const MIN_RTT_GAIN: TimeDelta = TimeDelta::from_millis(10);
const MIN_RTT_GAIN_DIVISOR: i64 = 4;
/// Nor before it was so long where it is: longer with every move, up to this, unless it stays for long.
const MIN_MOVE_COOLDOWN: TimeDelta = TimeDelta::from_secs(4);
const MAX_MOVE_COOLDOWN: TimeDelta = TimeDelta::from_secs(128);
const COOLDOWN_RESET_TIME: TimeDelta = TimeDelta::from_secs(300);
/// Who is silent for so long is left. Who has only just moved waits longer before the next time, up to this: where all servers have too much to do,
/// moving makes it more.
const MIN_SILENCE_TIMEOUT: TimeDelta = TimeDelta::from_millis(900);
const MAX_SILENCE_TIMEOUT: TimeDelta = TimeDelta::from_millis(3_600);
const RECENT_MOVE: TimeDelta = TimeDelta::from_secs(10);
/// Who is silent for so long is forgotten.
const SERVER_EXPIRY: TimeDelta = TimeDelta::from_secs(10);
/// Whoever answered so lately is there.
const LIVENESS_TIMEOUT: TimeDelta = TimeDelta::from_millis(1_600);

/// A player's choice between servers, which are known by something.
#[derive(Clone, Debug)]
pub struct ServerSelector<K> {
    servers: BTreeMap<K, ServerStatus>,
    current: Option<K>,
    /// When the present server was chosen.
    current_since: Instant,
    silence_timeout: TimeDelta,
    /// For so long we do not look for a nearer one.
    move_cooldown: TimeDelta,
    started: Instant,
    next_ping: Instant,
    moves: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct ServerStatus {
    /// The last round trips, in a ring.
    rtt_samples: [Option<TimeDelta>; RTT_SAMPLES],
    answer_count: u32,
    last_answer: Option<Instant>,
    /// When it was first looked whether it is silent.
    first_checked: Option<Instant>,
    is_draining: bool,
    is_full: bool,
    player_count: u16,
}

impl ServerStatus {
    fn rtt(&self) -> Option<TimeDelta> {
        self.rtt_samples.iter().flatten().min().copied()
    }

    fn has_full_samples(&self) -> bool {
        self.answer_count as usize >= RTT_SAMPLES
    }

    fn is_live(&self, now: Instant) -> bool {
        self.last_answer.is_some_and(|heard| now - heard < LIVENESS_TIMEOUT)
    }

    /// The nearest is best; of those that are as near, the one with the fewest players.
    fn rank(&self) -> (i64, u16) {
        let steps = self.rtt().map_or(i64::MAX, |rtt| rtt.as_nanos() / RTT_RESOLUTION.as_nanos());
        (steps, self.player_count)
    }
}

impl<K: Ord + Copy> ServerSelector<K> {
    /// Nobody is known yet.
    pub fn new(now: Instant) -> Self {
        Self {
            servers: BTreeMap::new(),
            current: None,
            current_since: now,
            silence_timeout: MIN_SILENCE_TIMEOUT,
            move_cooldown: MIN_MOVE_COOLDOWN,
            started: now,
            next_ping: now,
            moves: 0,
        }
    }

    /// There is a way to a server.
    pub fn add_server(&mut self, server: K) {
        self.servers.entry(server).or_default();
    }

    /// A server answers.
    pub fn on_pong(&mut self, now: Instant, server: K, pong: &Pong) {
        let Some(known) = self.servers.get_mut(&server) else { return };
        known.rtt_samples[known.answer_count as usize % RTT_SAMPLES] = Some((now - pong.stamp).max(TimeDelta::ZERO));
        known.answer_count = known.answer_count.saturating_add(1);
        (known.last_answer, known.player_count) = (Some(now), pong.player_count);
        (known.is_draining, known.is_full) = (pong.is_draining, pong.is_full);
    }

    /// Whether a server was heard of late.
    pub fn is_live(&self, now: Instant, server: K) -> bool {
        self.servers.get(&server).is_some_and(|known| known.is_live(now))
    }

    /// Whether we are nowhere because all servers that answer have no room for us.
    pub fn are_all_full(&self, now: Instant) -> bool {
        let mut there = self.servers.values().filter(|known| known.is_live(now) && !known.is_draining).peekable();
        self.current.is_none() && there.peek().is_some() && there.all(|known| known.is_full)
    }

    /// Forgets servers that were silent for long: whoever is started anew is another one.
    pub fn expire_silent(&mut self, now: Instant) {
        let current = self.current;
        self.servers.retain(|server, known| {
            // Of one that has not answered yet it counts when it was first looked at.
            let since = known.last_answer.unwrap_or(*known.first_checked.get_or_insert(now));
            Some(*server) == current || now - since < SERVER_EXPIRY
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
        self.next_ping = now + if self.current.is_none() { INITIAL_PING_INTERVAL } else { PING_INTERVAL };
        Some((self.servers.keys().copied().collect(), encode_ping(now)))
    }

    /// When to ask again.
    pub fn poll_timeout(&self) -> Instant {
        self.next_ping
    }

    /// Looks whether to go elsewhere, given when the present server was last heard and whether it wants us to go. The new server, if so.
    pub fn select(&mut self, now: Instant, heard: Instant, drains: bool) -> Option<K> {
        let is_silent = now - heard.max(self.current_since) >= self.silence_timeout;
        let must_go = self.current.is_none() || is_silent || drains;
        let others = self.servers.iter().filter(|(server, _)| self.current != Some(**server));
        let there = others.filter(|(_, known)| known.is_live(now) && !known.is_draining && !known.is_full);
        let (nearest, known) = there.min_by_key(|(_, known)| known.rank()).map(|(server, known)| (*server, *known))?;
        if !must_go && !self.is_move_worthwhile(now, &known) {
            return None;
        }
        let can_wait = self.current.is_none() && now - self.started < INITIAL_CHOICE_TIMEOUT;
        if can_wait
            && (known.answer_count < MIN_ANSWERS || self.servers.values().any(|other| other.answer_count < MIN_ANSWERS))
        {
            return None;
        }
        if self.current.is_some() {
            self.on_move(now, is_silent);
        }
        (self.current, self.current_since) = (Some(nearest), now);
        Some(nearest)
    }

    /// Whether another server is so much nearer than ours, over several answers of both, that we go there though nothing is wrong here.
    fn is_move_worthwhile(&self, now: Instant, other: &ServerStatus) -> bool {
        let Some(ours) = self.current.and_then(|server| self.servers.get(&server)) else { return false };
        let (Some(here), Some(there)) = (ours.rtt(), other.rtt()) else { return false };
        let are_known = ours.has_full_samples() && other.has_full_samples();
        are_known
            && now - self.current_since >= self.move_cooldown
            && here - there >= MIN_RTT_GAIN.max(here / MIN_RTT_GAIN_DIVISOR)
    }

    fn on_move(&mut self, now: Instant, is_silent: bool) {
        self.moves += 1;
        let stayed = now - self.current_since;
        let is_hasty = is_silent && stayed < RECENT_MOVE;
        self.silence_timeout =
            if is_hasty { (self.silence_timeout * 2).min(MAX_SILENCE_TIMEOUT) } else { MIN_SILENCE_TIMEOUT };
        self.move_cooldown = if stayed >= COOLDOWN_RESET_TIME {
            MIN_MOVE_COOLDOWN
        } else {
            (self.move_cooldown * 2).min(MAX_MOVE_COOLDOWN)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::ZERO + TimeDelta::from_millis(millis)
    }

    fn pong(sent: i64) -> Pong {
        Pong { stamp: at(sent), is_draining: false, is_full: false, player_count: 0 }
    }

    /// Servers 1 and 2 answer after 30 and 10 ms, as long as they do.
    fn run_pings(voyage: &mut ServerSelector<u8>, until: i64, answers: impl Fn(u8, i64) -> bool) -> Vec<(i64, u8)> {
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
            chosen.extend(voyage.select(at(millis), heard, false).map(|server| (millis, server)));
        }
        chosen
    }

    #[test]
    fn nearest_server_is_selected_and_left_when_silent() {
        let mut voyage = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.add_server(server));
        let chosen = run_pings(&mut voyage, 6_000, |server, millis| server == 1 || millis < 3_000);
        assert!(
            matches!(chosen[..], [(first, 2), (second, 1)] if first < 400 && (3_800..4_000).contains(&second)),
            "{chosen:?}"
        );
        assert_eq!((voyage.current(), voyage.moves()), (Some(1), 1));
    }

    #[test]
    fn silent_servers_are_not_selected() {
        let mut voyage = ServerSelector::new(at(0));
        voyage.add_server(1);
        assert_eq!(run_pings(&mut voyage, 5_000, |_, millis| millis < 2_000).len(), 1);
        assert_eq!(voyage.moves(), 0);
    }

    #[test]
    fn silent_server_expires_and_a_new_one_does_not() {
        let mut voyage = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.add_server(server));
        run_pings(&mut voyage, 1_000, |_, _| true);
        let other = voyage.servers.keys().copied().find(|server| Some(*server) != voyage.current()).unwrap();
        assert!(voyage.is_live(at(1_000), other));
        voyage.add_server(3);
        voyage.expire_silent(at(60_000));
        assert!(!voyage.servers.contains_key(&other) && voyage.servers.contains_key(&3));
        voyage.expire_silent(at(80_000));
        assert!(!voyage.servers.contains_key(&3));
    }

    #[test]
    fn player_leaves_a_draining_server() {
        let mut voyage = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.add_server(server));
        run_pings(&mut voyage, 1_000, |_, _| true);
        assert_eq!(voyage.select(at(1_000), at(1_000), true), Some(1));
    }

    /// Asks for so long, when server 1 is one way and server 2 another, in milliseconds. When somebody moved, and where to.
    fn run_with_rtts(
        voyage: &mut ServerSelector<u8>,
        from: i64,
        until: i64,
        away: impl Fn(i64) -> [i64; 2],
    ) -> Vec<(i64, u8)> {
        let mut chosen = vec![];
        for millis in from..until {
            if let Some((servers, _)) = voyage.poll_pings(at(millis)) {
                for server in servers {
                    let trip = away(millis)[usize::from(server) - 1];
                    voyage.on_pong(at(millis), server, &pong(millis - trip));
                }
            }
            chosen.extend(voyage.select(at(millis), at(millis), false).map(|server| (millis, server)));
        }
        chosen
    }

    #[test]
    fn nearer_server_learned_later_is_moved_to_once() {
        let mut voyage = ServerSelector::new(at(0));
        voyage.add_server(1);
        assert_eq!(run_with_rtts(&mut voyage, 0, 1_000, |_| [80, 20]).len(), 1);
        voyage.add_server(2);
        let chosen = run_with_rtts(&mut voyage, 1_000, 120_000, |_| [80, 20]);
        assert!(matches!(chosen[..], [(at, 2)] if at < 8_000), "{chosen:?}");
    }

    #[test]
    fn player_returns_when_the_near_server_recovers() {
        let mut voyage = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.add_server(server));
        let chosen =
            run_pings(&mut voyage, 90_000, |server, millis| server == 1 || !(10_000..30_000).contains(&millis));
        let servers: Vec<u8> = chosen.iter().map(|(_, server)| *server).collect();
        assert_eq!(servers, [2, 1, 2], "{chosen:?}");
        assert!((30_000..45_000).contains(&chosen[2].0), "{chosen:?}");
    }

    #[test]
    fn selection_does_not_flap() {
        let both = || {
            let mut voyage = ServerSelector::new(at(0));
            [1, 2].into_iter().for_each(|server| voyage.add_server(server));
            voyage
        };
        let alike =
            run_with_rtts(&mut both(), 0, 600_000, |millis| if millis / 20_000 % 2 == 0 { [40, 46] } else { [46, 40] });
        assert_eq!(alike.len(), 1, "about as near is near enough: {alike:?}");
        let jitter =
            run_with_rtts(&mut both(), 0, 600_000, |millis| [40 + millis * 7_919 % 60, 40 + millis * 104_729 % 60]);
        assert!(jitter.len() <= 3, "{jitter:?}");
        let changing = |millis: i64| if millis / 20_000 % 2 == 0 { [20, 90] } else { [90, 20] };
        let moves = run_with_rtts(&mut both(), 0, 600_000, changing).len();
        assert!((3..=12).contains(&moves), "{moves} moves in ten minutes");
    }

    #[test]
    fn full_servers_are_not_selected() {
        let mut voyage = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.add_server(server));
        for millis in (0..3_000).step_by(20) {
            voyage.on_pong(at(millis), 2, &Pong { is_full: true, ..pong(millis - 10) });
            assert_eq!(voyage.select(at(millis), at(0), false), None);
        }
        assert!(voyage.are_all_full(at(3_000)) && !voyage.are_all_full(at(9_000)), "only as long as it is known");
        voyage.on_pong(at(3_000), 1, &pong(2_900));
        assert!(!voyage.are_all_full(at(3_000)));
        assert_eq!(voyage.select(at(3_000), at(0), false), Some(1));
    }

    /// Servers that answer, but have no time for players, are not made to take them over again and again.
    #[test]
    fn silence_timeout_backs_off_when_all_servers_are_silent() {
        let mut voyage = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| voyage.add_server(server));
        for millis in (0..20_000).step_by(10) {
            for server in [1, 2] {
                voyage.on_pong(at(millis), server, &pong(millis - 10));
            }
            voyage.select(at(millis), at(0), false);
        }
        assert!((4..=8).contains(&voyage.moves()), "{} moves", voyage.moves());
    }
}
