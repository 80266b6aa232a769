//! Two sites share a game in one process, over a simulated link with a one-way delay of 40 ms and 5 % packet loss. Both
//! predict the other's inputs and roll back mispredictions; their confirmed states are equal.
//!
//! `cargo run -p coplay --example two_sites`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)] // a host program

#[allow(dead_code)] // each example uses a part of it
mod common;

use std::process::ExitCode;

use common::{Game, buttons, settings};
use coplay::codec::MAX_DATAGRAM;
use coplay::id::{Addr, SiteId};
use coplay::session::{Config, Request, Session};
use coplay::time::{Instant, TimeDelta};

/// One-way delay of the link.
const DELAY: TimeDelta = TimeDelta::from_millis(40);
/// Number of frames to play: 10 s.
const FRAMES: u32 = 600;

/// A site: its session, its machine and its saved states.
struct Site {
    number: u8,
    session: Session,
    game: Game,
    saved: Vec<Game>,
}

/// A datagram on its way.
struct InFlight {
    arrives_at: Instant,
    to: u8,
    bytes: Vec<u8>,
}

fn main() -> ExitCode {
    common::run(play)
}

fn play() -> Result<(), Box<dyn std::error::Error>> {
    let mut now = Instant::ZERO;
    let mut sites = [Site::new(now, 0)?, Site::new(now, 1)?];
    let mut link: Vec<InFlight> = Vec::new();
    let mut sent = 0;
    while sites.iter().any(|site| site.session.stats().confirmed.number() < FRAMES) {
        for site in &mut sites {
            for datagram in link.extract_if(.., |datagram| datagram.arrives_at <= now && datagram.to == site.number) {
                site.session.handle_datagram(now, Addr(u64::from(1 - site.number)), &datagram.bytes);
            }
            site.handle_requests(now);
            let mut buf = [0; MAX_DATAGRAM];
            while let Some(packet) = site.session.poll_transmit(now, &mut buf) {
                sent += 1;
                // Every twentieth datagram is lost.
                if sent % 20 != 0 {
                    let bytes = buf[..packet.len].to_vec();
                    link.push(InFlight { arrives_at: now + DELAY, to: packet.to.0 as u8, bytes });
                }
            }
        }
        // A real program waits for a datagram or for `Session::poll_timeout`, whichever comes first.
        now += TimeDelta::from_millis(1);
    }
    for site in &sites {
        let (stats, other) = (site.session.stats(), SiteId::new(1 - site.number).ok_or("no such site")?);
        let peer = site.session.peer_stats(now, other).ok_or("the other site is no peer")?;
        println!("site {}: {}", site.number, site.game.picture());
        println!("    {} rollbacks, {} resimulated frames", stats.rollbacks, stats.resimulated);
        println!("    {} states compared, {} differ", peer.compared, peer.mismatches);
    }
    Ok(())
}

impl Site {
    fn new(now: Instant, number: u8) -> Result<Self, Box<dyn std::error::Error>> {
        let site = |number| SiteId::new(number).ok_or("no such site");
        let peers = vec![(site(1 - number)?, Addr(u64::from(1 - number)))];
        let session = Session::new(now, Config::new(1, site(number)?, peers, settings()?))?;
        let saved = vec![Game::default(); session.slots()];
        Ok(Self { number, session, game: Game::default(), saved })
    }

    fn handle_requests(&mut self, now: Instant) {
        let Self { number, session, game, saved } = self;
        while let Some(request) = session.poll_request(now) {
            match request {
                Request::Sample { frame } => {
                    let mut inputs = [0; 2];
                    inputs[usize::from(*number)] = buttons(usize::from(*number), frame);
                    session.handle_input(now, &inputs);
                }
                Request::Advance { inputs, .. } => game.step(inputs),
                Request::Save { slot, .. } => saved[slot].clone_from(game),
                Request::Load { slot, .. } => game.clone_from(&saved[slot]),
                Request::Hash { .. } => session.handle_hash(game.hash()),
                // Requests for spectators, late joiners and reports of differences: see `udp_game`.
                _ => {}
            }
        }
    }
}
