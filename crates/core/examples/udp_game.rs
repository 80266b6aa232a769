//! One player of a game of two, over UDP. Start it twice:
//!
//! ```text
//! cargo run -p coplay --example udp_game -- 0 127.0.0.1:7000 127.0.0.1:7001
//! cargo run -p coplay --example udp_game -- 1 127.0.0.1:7001 127.0.0.1:7000
//! ```
//!
//! Kill one of the two programs and start it again: the other one drops it after 2 s of silence, goes on, and sends it
//! the game's state when it is back. `spectator` watches the game.
//!
//! The engine does not authenticate, so this program is for networks without strangers; see the crate's documentation.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)] // a host program

#[allow(dead_code)] // each example uses a part of it
mod common;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;

use common::network::{Network, address};
use common::{Game, SESSION, buttons, settings};
use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteId};
use coplay::session::{Config, Event, LateJoinConfig, Request, Session, SessionEnd};
use coplay::spectator_feed::{FeedConfig, SpectatorStart};
use coplay::time::TimeDelta;

/// Silence after which the other player is dropped.
const DROP_TIMEOUT: TimeDelta = TimeDelta::from_secs(2);

fn main() -> ExitCode {
    common::run(play)
}

fn play() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [site, own, other] = &args[..] else {
        return Err("usage: udp_game SITE OWN_ADDRESS OTHER_ADDRESS, where SITE is 0 or 1".into());
    };
    let site = site.parse().ok().filter(|site| *site < 2).ok_or("SITE must be 0 or 1")?;
    let mut player = Player::new(site, address(own)?, address(other)?)?;
    loop {
        if let Some(frame) = player.run_once()?
            && frame % 60 == 59
        {
            println!("frame {:>6}  {}", frame + 1, player.game.picture());
        }
    }
}

/// A player: the session, the machine and its saved states, and the network.
struct Player {
    site: u8,
    network: Network,
    session: Session,
    game: Game,
    saved: Vec<Game>,
}

impl Player {
    fn new(site: u8, own: SocketAddr, other: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let network = Network::open(own, vec![other])?;
        let session = Session::new(network.now(), config(site, None)?)?;
        let saved = vec![Game::default(); session.slots()];
        Ok(Self { site, network, session, game: Game::default(), saved })
    }

    /// Does what is due, then waits for a datagram or the next deadline. Returns the number of a confirmed frame, if
    /// there is an unread one.
    fn run_once(&mut self) -> Result<Option<u32>, Box<dyn Error>> {
        self.handle_requests()?;
        self.send_all();
        self.handle_events()?;
        let mut buf = [0; MAX_DATAGRAM];
        let deadline = self.session.poll_timeout().unwrap_or(self.network.now());
        if let Some((from, bytes)) = self.network.receive(deadline, &mut buf)? {
            self.session.handle_datagram(self.network.now(), from, bytes);
        }
        Ok(self.session.poll_confirmed().map(|confirmed| confirmed.frame.number()))
    }

    fn handle_requests(&mut self) -> Result<(), Box<dyn Error>> {
        let player = usize::from(self.site);
        while let Some(request) = self.session.poll_request(self.network.now()) {
            match request {
                Request::Sample { frame } => {
                    let mut inputs = [0; 2];
                    inputs[player] = buttons(player, frame);
                    self.session.handle_input(self.network.now(), &inputs);
                }
                Request::Advance { inputs, .. } => self.game.step(inputs),
                Request::Save { slot, .. } => self.saved[slot].clone_from(&self.game),
                Request::Load { slot, .. } => self.game.clone_from(&self.saved[slot]),
                Request::Hash { .. } => self.session.handle_hash(self.game.hash()),
                // A late joiner or a spectator needs a state, the present one or one that was saved.
                Request::Snapshot { slot, .. } => {
                    let game = slot.map_or(&self.game, |slot| &self.saved[slot]);
                    self.session.handle_snapshot(&game.to_bytes(), game.hash());
                }
                // This site joins late. The state comes from the network.
                Request::Restore { state, .. } => {
                    self.game = Game::from_bytes(state).ok_or("the other player sent an invalid state")?;
                }
                Request::Regions { .. } | Request::Pages { .. } => {}
            }
            // A packet must not wait for the next step of the machine.
            self.send_all();
        }
        Ok(())
    }

    fn send_all(&mut self) {
        let mut buf = [0; MAX_DATAGRAM];
        while let Some(packet) = self.session.poll_transmit(self.network.now(), &mut buf) {
            self.network.send(packet.to, &buf[..packet.len]);
        }
    }

    fn handle_events(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(event) = self.session.poll_event() {
            match event {
                // The game runs already: join it late.
                Event::Refused { .. } => {
                    println!("the game runs already: joining it");
                    let join = LateJoinConfig { start: SpectatorStart::Snapshot, max_state_len: 1_024 };
                    self.session = Session::new(self.network.now(), config(self.site, Some(join))?)?;
                    return Ok(());
                }
                Event::Ended(SessionEnd::Dropped) => return Err("the other player goes on without this one".into()),
                Event::Ended(end) => return Err(format!("the game is over: {end:?}").into()),
                Event::Diverged { frame, .. } => return Err(format!("the states differ after frame {frame}").into()),
                event => println!("{event:?}"),
            }
        }
        Ok(())
    }
}

fn config(site: u8, late_join: Option<LateJoinConfig>) -> Result<Config, Box<dyn Error>> {
    let settings = settings()?;
    let number = |site| SiteId::new(site).ok_or("no such site");
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    Ok(Config {
        // Late joiners and spectators get the game from this feed.
        feed: Some(FeedConfig::new(SESSION, seconds, settings.clone())),
        late_join,
        incarnation: seconds as u32,
        drop_timeout: Some(DROP_TIMEOUT),
        can_play_alone: true,
        ..Config::new(SESSION, number(site)?, vec![(number(1 - site)?, Addr(0))], settings)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Plays until `frames` frames are confirmed.
    fn play_until(player: &mut Player, frames: u32) {
        let mut end = 0;
        while end < frames {
            if let Some(frame) = player.run_once().unwrap() {
                end = frame + 1;
            }
        }
    }

    /// Returns an address on this computer whose port is free.
    fn free_addr() -> SocketAddr {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.local_addr().unwrap()
    }

    #[test]
    fn a_killed_player_is_dropped_and_joins_again() {
        let (one, two) = (free_addr(), free_addr());
        let host = std::thread::spawn(move || {
            let mut host = Player::new(0, one, two).unwrap();
            play_until(&mut host, 420);
            host
        });
        let mut guest = Player::new(1, two, one).unwrap();
        play_until(&mut guest, 60);
        drop(guest);
        std::thread::sleep(Duration::from_millis(2_500));
        let mut guest = Player::new(1, two, one).unwrap();
        play_until(&mut guest, 410);
        let host = host.join().unwrap();
        let site = |number| SiteId::new(number).unwrap();
        let at_guest = guest.session.peer_stats(guest.network.now(), site(0)).unwrap();
        let at_host = host.session.peer_stats(host.network.now(), site(1)).unwrap();
        assert!(at_guest.compared > 0 && at_host.compared > 0, "states are compared after the join");
        assert_eq!((at_guest.mismatches, at_host.mismatches), (0, 0));
    }
}
