//! Selects a player's server: the nearest that admits the player. Moves to another server when the present one is
//! silent or about to stop, or when another is clearly nearer.

use std::collections::BTreeMap;

use coplay::time::{Instant, TimeDelta};

use crate::protocol::{PROTOCOL_VERSION, Pong, encode_ping};

/// Ping interval after the first choice of a server.
const PING_INTERVAL: TimeDelta = TimeDelta::from_millis(500);
/// Ping interval before the first choice of a server.
const INITIAL_PING_INTERVAL: TimeDelta = TimeDelta::from_millis(60);
/// Number of answers of every server that are required before the first choice.
const MIN_ANSWERS: u32 = 3;
/// Time after which fewer answers suffice for the first choice.
const INITIAL_CHOICE_TIMEOUT: TimeDelta = TimeDelta::from_millis(400);
/// Resolution of round-trip times: servers within one step count as equally near.
const RTT_RESOLUTION: TimeDelta = TimeDelta::from_millis(5);
/// Number of recent answers per server; the shortest round trip of them counts.
const RTT_SAMPLES: usize = 8;
/// Minimum gain in round-trip time for a move.
const MIN_RTT_GAIN: TimeDelta = TimeDelta::from_millis(10);
/// Minimum gain for a move as a fraction of the present round-trip time: 1 divided by this number.
const MIN_RTT_GAIN_DIVISOR: i64 = 4;
/// Minimum time on a server before a move to a nearer one. It doubles with every move after a shorter stay than
/// [`COOLDOWN_RESET_TIME`].
const MIN_MOVE_COOLDOWN: TimeDelta = TimeDelta::from_secs(4);
/// Upper limit of the doubling of [`MIN_MOVE_COOLDOWN`].
const MAX_MOVE_COOLDOWN: TimeDelta = TimeDelta::from_secs(128);
/// Length of stay after which the next move resets the minimum time on a server to [`MIN_MOVE_COOLDOWN`].
const COOLDOWN_RESET_TIME: TimeDelta = TimeDelta::from_secs(300);
/// Silence after which the player leaves a server. It doubles when a silent server is left soon after a move, because
/// where all servers are overloaded, moves add to the load. Any other move resets it.
const MIN_SILENCE_TIMEOUT: TimeDelta = TimeDelta::from_millis(900);
/// Upper limit of the doubling of [`MIN_SILENCE_TIMEOUT`].
const MAX_SILENCE_TIMEOUT: TimeDelta = TimeDelta::from_millis(3_600);
/// Length of stay below which leaving a silent server doubles the silence timeout.
const RECENT_MOVE: TimeDelta = TimeDelta::from_secs(10);
/// Silence after which a server is forgotten.
const SERVER_EXPIRY: TimeDelta = TimeDelta::from_secs(10);
/// Maximum age of the last answer of a live server.
const LIVENESS_TIMEOUT: TimeDelta = TimeDelta::from_millis(1_600);

/// Selector of a player's server, which pings the known servers and chooses among them. `K` identifies a server.
#[derive(Clone, Debug)]
pub struct ServerSelector<K> {
    servers: BTreeMap<K, ServerStatus>,
    current: Option<K>,
    /// Time at which the present server was chosen.
    current_since: Instant,
    silence_timeout: TimeDelta,
    /// Minimum time on the present server before a move to a nearer one.
    move_cooldown: TimeDelta,
    started: Instant,
    next_ping: Instant,
    moves: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct ServerStatus {
    /// Ring of the last round-trip times.
    rtt_samples: [Option<TimeDelta>; RTT_SAMPLES],
    answer_count: u32,
    last_answer: Option<Instant>,
    /// Time of the first call of [`ServerSelector::expire_silent`] after this server was added.
    first_checked: Option<Instant>,
    is_draining: bool,
    is_full: bool,
    player_count: u16,
    /// Version of the protocol that the server speaks, if it is not ours.
    other_protocol_version: Option<u8>,
}

impl ServerStatus {
    fn rtt(&self) -> Option<TimeDelta> {
        self.rtt_samples.iter().flatten().min().copied()
    }

    fn has_full_samples(&self) -> bool {
        self.answer_count as usize >= RTT_SAMPLES
    }

    fn is_live(&self, now: Instant) -> bool {
        self.last_answer.is_some_and(|answered| now - answered < LIVENESS_TIMEOUT)
    }

    /// Returns whether the server admits the player.
    fn is_available(&self) -> bool {
        !self.is_draining && !self.is_full && self.other_protocol_version.is_none()
    }

    /// Returns the rank, lowest best: the nearest server, and of equally near ones the one with the fewest players.
    fn rank(&self) -> (i64, u16) {
        let steps = self.rtt().map_or(i64::MAX, |rtt| rtt.as_nanos() / RTT_RESOLUTION.as_nanos());
        (steps, self.player_count)
    }
}

impl<K: Ord + Copy> ServerSelector<K> {
    /// Creates a selector that knows no servers.
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

    /// Adds a server that datagrams can reach.
    pub fn add_server(&mut self, server: K) {
        self.servers.entry(server).or_default();
    }

    /// Processes the answer of a known server to a ping: its round-trip time, its players, and whether it admits more.
    pub fn on_pong(&mut self, now: Instant, server: K, pong: &Pong) {
        let Some(known) = self.servers.get_mut(&server) else { return };
        known.rtt_samples[known.answer_count as usize % RTT_SAMPLES] = Some((now - pong.stamp).max(TimeDelta::ZERO));
        known.answer_count = known.answer_count.saturating_add(1);
        (known.last_answer, known.player_count) = (Some(now), pong.player_count);
        (known.is_draining, known.is_full) = (pong.is_draining, pong.is_full);
        known.other_protocol_version = Some(pong.protocol_version).filter(|version| *version != PROTOCOL_VERSION);
    }

    /// Returns whether a server answered within the last 1.6 s.
    pub fn is_live(&self, now: Instant, server: K) -> bool {
        self.servers.get(&server).is_some_and(|known| known.is_live(now))
    }

    /// Returns whether no server is chosen, at least one live server is not draining, and all such servers are full.
    pub fn are_all_full(&self, now: Instant) -> bool {
        let mut live = self.servers.values().filter(|known| known.is_live(now) && !known.is_draining).peekable();
        self.current.is_none() && live.peek().is_some() && live.all(|known| known.is_full)
    }

    /// Returns the protocol version of a server that has answered, if no server is chosen and all that have answered
    /// speak versions other than [`PROTOCOL_VERSION`].
    pub fn other_protocol_version(&self) -> Option<u8> {
        let mut answered = self.servers.values().filter(|known| known.last_answer.is_some()).peekable();
        let version = answered.peek()?.other_protocol_version?;
        (self.current.is_none() && answered.all(|known| known.other_protocol_version.is_some())).then_some(version)
    }

    /// Forgets servers that were silent for 10 s, except the present one. A restarted server has another id.
    pub fn expire_silent(&mut self, now: Instant) {
        let current = self.current;
        self.servers.retain(|server, known| {
            // For a server that has not answered yet, the first check counts.
            let since = known.last_answer.unwrap_or(*known.first_checked.get_or_insert(now));
            Some(*server) == current || now - since < SERVER_EXPIRY
        });
    }

    /// Returns the present server; `None` before the first choice.
    pub fn current(&self) -> Option<K> {
        self.current
    }

    /// Returns the number of moves between servers; the first choice does not count.
    pub fn moves(&self) -> u32 {
        self.moves
    }

    /// Returns the servers to ping and the ping to send, if it is due.
    pub fn poll_pings(&mut self, now: Instant) -> Option<(Vec<K>, Vec<u8>)> {
        if now < self.next_ping {
            return None;
        }
        self.next_ping = now + if self.current.is_none() { INITIAL_PING_INTERVAL } else { PING_INTERVAL };
        Some((self.servers.keys().copied().collect(), encode_ping(now)))
    }

    /// Returns when the next ping is due.
    pub fn poll_timeout(&self) -> Instant {
        self.next_ping
    }

    /// Makes the first choice of a server, or decides whether to move, given when a message of the present server last
    /// arrived and whether that server is draining. Returns the chosen server; `None` to wait or stay.
    pub fn select(&mut self, now: Instant, last_received: Instant, is_draining: bool) -> Option<K> {
        let is_silent = now - last_received.max(self.current_since) >= self.silence_timeout;
        let must_move = self.current.is_none() || is_silent || is_draining;
        let others = self.servers.iter().filter(|(server, _)| self.current != Some(**server));
        let available = others.filter(|(_, known)| known.is_live(now) && known.is_available());
        let (nearest, known) =
            available.min_by_key(|(_, known)| known.rank()).map(|(server, known)| (*server, *known))?;
        if !must_move && !self.is_move_worthwhile(now, &known) {
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

    /// Returns whether a move from the present server to `other` pays although nothing is wrong: the move cooldown is
    /// over, and by the last [`RTT_SAMPLES`] answers of each of the two servers, `other` is nearer by the minimum gain.
    fn is_move_worthwhile(&self, now: Instant, other: &ServerStatus) -> bool {
        let Some(ours) = self.current.and_then(|server| self.servers.get(&server)) else { return false };
        let (Some(our_rtt), Some(other_rtt)) = (ours.rtt(), other.rtt()) else { return false };
        let are_measured = ours.has_full_samples() && other.has_full_samples();
        are_measured
            && now - self.current_since >= self.move_cooldown
            && our_rtt - other_rtt >= MIN_RTT_GAIN.max(our_rtt / MIN_RTT_GAIN_DIVISOR)
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
        Pong {
            stamp: at(sent),
            is_draining: false,
            is_full: false,
            player_count: 0,
            protocol_version: PROTOCOL_VERSION,
        }
    }

    /// Runs with servers 1 and 2, which answer after 30 and 10 ms while `answers` returns true. Returns the first
    /// choice and the moves, each with its time in milliseconds and the chosen server.
    fn run_pings(selector: &mut ServerSelector<u8>, until: i64, answers: impl Fn(u8, i64) -> bool) -> Vec<(i64, u8)> {
        let (mut chosen, mut in_flight, mut last_received) = (vec![], vec![], at(0));
        for millis in 0..until {
            if let Some((servers, _)) = selector.poll_pings(at(millis)) {
                let rtt = |server: &u8| if *server == 1 { 30 } else { 10 };
                in_flight.extend(servers.iter().map(|server| (millis + rtt(server), millis, *server)));
            }
            for (_, sent, server) in in_flight.extract_if(.., |(due, ..)| *due <= millis) {
                if answers(server, millis) {
                    selector.on_pong(at(millis), server, &pong(sent));
                }
            }
            if selector.current().is_some_and(|server| answers(server, millis)) {
                last_received = at(millis);
            }
            chosen.extend(selector.select(at(millis), last_received, false).map(|server| (millis, server)));
        }
        chosen
    }

    #[test]
    fn nearest_server_is_selected_and_left_when_silent() {
        let mut selector = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| selector.add_server(server));
        let chosen = run_pings(&mut selector, 6_000, |server, millis| server == 1 || millis < 3_000);
        assert!(
            matches!(chosen[..], [(first, 2), (second, 1)] if first < 400 && (3_800..4_000).contains(&second)),
            "{chosen:?}"
        );
        assert_eq!((selector.current(), selector.moves()), (Some(1), 1));
    }

    #[test]
    fn silent_servers_are_not_selected() {
        let mut selector = ServerSelector::new(at(0));
        selector.add_server(1);
        assert_eq!(run_pings(&mut selector, 5_000, |_, millis| millis < 2_000).len(), 1);
        assert_eq!(selector.moves(), 0);
    }

    #[test]
    fn silent_server_expires_and_a_new_one_does_not() {
        let mut selector = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| selector.add_server(server));
        run_pings(&mut selector, 1_000, |_, _| true);
        let other = selector.servers.keys().copied().find(|server| Some(*server) != selector.current()).unwrap();
        assert!(selector.is_live(at(1_000), other));
        selector.add_server(3);
        selector.expire_silent(at(60_000));
        assert!(!selector.servers.contains_key(&other) && selector.servers.contains_key(&3));
        selector.expire_silent(at(80_000));
        assert!(!selector.servers.contains_key(&3));
    }

    #[test]
    fn player_leaves_a_draining_server() {
        let mut selector = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| selector.add_server(server));
        run_pings(&mut selector, 1_000, |_, _| true);
        assert_eq!(selector.select(at(1_000), at(1_000), true), Some(1));
    }

    /// Runs with the given round-trip times of servers 1 and 2, in milliseconds. Returns all choices, a first one and
    /// the moves, each with its time in milliseconds and the chosen server.
    fn run_with_rtts(
        selector: &mut ServerSelector<u8>,
        from: i64,
        until: i64,
        rtts: impl Fn(i64) -> [i64; 2],
    ) -> Vec<(i64, u8)> {
        let mut chosen = vec![];
        for millis in from..until {
            if let Some((servers, _)) = selector.poll_pings(at(millis)) {
                for server in servers {
                    let rtt = rtts(millis)[usize::from(server) - 1];
                    selector.on_pong(at(millis), server, &pong(millis - rtt));
                }
            }
            chosen.extend(selector.select(at(millis), at(millis), false).map(|server| (millis, server)));
        }
        chosen
    }

    #[test]
    fn nearer_server_learned_later_is_moved_to_once() {
        let mut selector = ServerSelector::new(at(0));
        selector.add_server(1);
        assert_eq!(run_with_rtts(&mut selector, 0, 1_000, |_| [80, 20]).len(), 1);
        selector.add_server(2);
        let chosen = run_with_rtts(&mut selector, 1_000, 120_000, |_| [80, 20]);
        assert!(matches!(chosen[..], [(at, 2)] if at < 8_000), "{chosen:?}");
    }

    #[test]
    fn player_returns_when_the_near_server_recovers() {
        let mut selector = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| selector.add_server(server));
        let chosen =
            run_pings(&mut selector, 90_000, |server, millis| server == 1 || !(10_000..30_000).contains(&millis));
        let servers: Vec<u8> = chosen.iter().map(|(_, server)| *server).collect();
        assert_eq!(servers, [2, 1, 2], "{chosen:?}");
        assert!((30_000..45_000).contains(&chosen[2].0), "{chosen:?}");
    }

    #[test]
    fn selection_does_not_flap() {
        let both = || {
            let mut selector = ServerSelector::new(at(0));
            [1, 2].into_iter().for_each(|server| selector.add_server(server));
            selector
        };
        let alike =
            run_with_rtts(&mut both(), 0, 600_000, |millis| if millis / 20_000 % 2 == 0 { [40, 46] } else { [46, 40] });
        assert_eq!(alike.len(), 1, "moved between equally near servers: {alike:?}");
        let jitter =
            run_with_rtts(&mut both(), 0, 600_000, |millis| [40 + millis * 7_919 % 60, 40 + millis * 104_729 % 60]);
        assert!(jitter.len() <= 3, "{jitter:?}");
        let changing = |millis: i64| if millis / 20_000 % 2 == 0 { [20, 90] } else { [90, 20] };
        let moves = run_with_rtts(&mut both(), 0, 600_000, changing).len();
        assert!((3..=12).contains(&moves), "{moves} moves in ten minutes");
    }

    #[test]
    fn full_servers_are_not_selected() {
        let mut selector = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| selector.add_server(server));
        for millis in (0..3_000).step_by(20) {
            selector.on_pong(at(millis), 2, &Pong { is_full: true, ..pong(millis - 10) });
            assert_eq!(selector.select(at(millis), at(0), false), None);
        }
        assert!(selector.are_all_full(at(3_000)) && !selector.are_all_full(at(9_000)), "answers do not expire");
        selector.on_pong(at(3_000), 1, &pong(2_900));
        assert!(!selector.are_all_full(at(3_000)));
        assert_eq!(selector.select(at(3_000), at(0), false), Some(1));
    }

    /// Between servers that answer pings but send nothing else, the player moves only 4 to 8 times in 20 s.
    #[test]
    fn silence_timeout_backs_off_when_all_servers_are_silent() {
        let mut selector = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| selector.add_server(server));
        for millis in (0..20_000).step_by(10) {
            for server in [1, 2] {
                selector.on_pong(at(millis), server, &pong(millis - 10));
            }
            selector.select(at(millis), at(0), false);
        }
        assert!((4..=8).contains(&selector.moves()), "{} moves", selector.moves());
    }

    #[test]
    fn server_of_another_version_is_not_chosen_and_its_version_is_known() {
        let mut selector = ServerSelector::new(at(0));
        [1, 2].into_iter().for_each(|server| selector.add_server(server));
        assert_eq!(selector.other_protocol_version(), None);
        for millis in (10..1_000).step_by(50) {
            selector.on_pong(at(millis), 1, &Pong { protocol_version: 1, ..pong(millis - 10) });
            assert_eq!(selector.select(at(millis), at(0), false), None);
        }
        assert_eq!(selector.other_protocol_version(), Some(1));
        (1_000..1_300).step_by(50).for_each(|millis| selector.on_pong(at(millis), 2, &pong(millis - 40)));
        assert_eq!(selector.other_protocol_version(), None, "one server can be joined");
        assert_eq!(selector.select(at(1_300), at(1_300), false), Some(2));
    }
}
