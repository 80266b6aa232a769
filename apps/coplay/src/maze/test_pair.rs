//! Two sites of one maze over a link with 1 ms latency, for tests.

use coplay::codec::MAX_DATAGRAM;
use coplay::peer_world::{UpdatePolicy, WorldSiteId};
use coplay::time::{Instant as Time, TimeDelta};
use coplay_maze::{MazeSettings, MazeSite};

const STEP: TimeDelta = TimeDelta::from_millis(1);

/// Simulates a game of Ann and Ben, each with two ninjas, for this number of seconds. Returns the time at the end and
/// both sites.
pub(super) fn play_pair(seconds: i64) -> (Time, [MazeSite; 2]) {
    let mut now = Time::ZERO;
    let settings = MazeSettings { cells_per_side: 5, ..MazeSettings::default() };
    let enter = |site, founder, name| {
        MazeSite::new(now, WorldSiteId(site), founder, &settings, UpdatePolicy::default(), (Some(name), 2)).unwrap()
    };
    let mut games = [enter(1, true, "Ann"), enter(2, false, "Ben")];
    games[0].add_peer(now, WorldSiteId(2));
    games[1].add_peer(now, WorldSiteId(1));
    while now < Time::ZERO + TimeDelta::from_secs(seconds) {
        let sent = [0, 1].map(|at| step(now, &mut games[at]));
        now += STEP;
        for (from, datagrams) in sent.iter().enumerate() {
            let site = games[from].site();
            datagrams.iter().for_each(|bytes| games[1 - from].handle_datagram(now, site, bytes));
        }
    }
    (now, games)
}

/// Advances a site to `now`. Returns the datagrams that it sends to the other site.
fn step(now: Time, game: &mut MazeSite) -> Vec<Vec<u8>> {
    game.advance(now);
    let mut buffer = [0; MAX_DATAGRAM];
    let mut sent = vec![];
    while let Some(packet) = game.poll_transmit(now, &mut buffer) {
        if !game.receivers(packet.to).is_empty() {
            sent.push(buffer[..packet.len].to_vec());
        }
    }
    sent
}
