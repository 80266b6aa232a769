//! Watches a game of `udp_game`: downloads the present state, then steps every frame that the players have confirmed.
//!
//! `cargo run -p coplay --example spectator -- 127.0.0.1:7002 127.0.0.1:7000`

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)] // a host program

#[allow(dead_code)] // each example uses a part of it
mod common;

use std::error::Error;
use std::process::ExitCode;

use common::network::{Network, address};
use common::{Game, SESSION, settings};
use coplay::codec::MAX_DATAGRAM;
use coplay::id::Addr;
use coplay::spectator_feed::{Spectator, SpectatorConfig, SpectatorEvent, SpectatorRequest};
use coplay::time::TimeDelta;

fn main() -> ExitCode {
    common::run(watch)
}

fn watch() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [own, player] = &args[..] else {
        return Err("usage: spectator OWN_ADDRESS ADDRESS_OF_A_PLAYER".into());
    };
    let mut network = Network::open(address(own)?, vec![address(player)?])?;
    let mut spectator = Spectator::new(network.now(), SpectatorConfig::new(SESSION, settings()?, vec![Addr(0)]))?;
    let mut game = Game::default();
    let mut buf = [0; MAX_DATAGRAM];
    loop {
        handle_requests(&mut spectator, &network, &mut game)?;
        while let Some(packet) = spectator.poll_transmit(network.now(), &mut buf) {
            network.send(packet.to, &buf[..packet.len]);
        }
        while let Some(event) = spectator.poll_event() {
            match event {
                SpectatorEvent::Ended { .. } => {
                    println!("the game is over");
                    return Ok(());
                }
                SpectatorEvent::Dropped { reason } => {
                    return Err(format!("no player serves this game: {reason}").into());
                }
                event => println!("{event:?}"),
            }
        }
        let deadline = spectator.poll_timeout().unwrap_or(network.now() + TimeDelta::from_millis(10));
        if let Some((from, bytes)) = network.receive(deadline, &mut buf)? {
            let now = network.now();
            spectator.handle_datagram(now, from, bytes);
        }
    }
}

fn handle_requests(spectator: &mut Spectator, network: &Network, game: &mut Game) -> Result<(), Box<dyn Error>> {
    while let Some(request) = spectator.poll_request(network.now()) {
        match request {
            SpectatorRequest::Load { state, .. } => {
                *game = Game::from_bytes(state).ok_or("the player sent an invalid state")?;
            }
            SpectatorRequest::Advance { frame, inputs, .. } => {
                game.step(inputs);
                if frame.number() % 60 == 59 {
                    println!("frame {:>6}  {}", frame.number() + 1, game.picture());
                }
            }
            SpectatorRequest::Hash { .. } => spectator.handle_hash(game.hash()),
        }
    }
    Ok(())
}
