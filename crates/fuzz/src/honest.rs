//! What must hold at every site, known without looking into the engine: the inputs that were given are those that step
//! the machine, and a site that is dropped is dropped with the same frame everywhere.

use coplay::id::SiteId;
use coplay::session::{Event, Settings};
use coplay::wire::{Error, Message, Refusal};

use crate::machine::Words;
use crate::site::{SESSION, Site, site_id, words};

/// The first frame without each site, of those that were dropped.
pub(crate) type Drops = [Option<u32>; coplay::id::MAX_SITES];

/// Checks the inputs of all frames that a site is certain of. Under attack, only its own are sure.
pub(crate) fn check_certain(settings: &Settings, sites: &[Site], at: usize, drops: &Drops, forged: bool) {
    // What a site does that was dropped does not concern the others, and it may not know yet.
    let frames = (0..).zip(&sites[at].machine.certain).filter(|(frame, _)| is_in_game(drops, at, *frame));
    for (frame, inputs) in frames {
        check_inputs(settings, sites, at, frame, inputs, (drops, forged));
    }
}

fn is_in_game(drops: &Drops, site: usize, frame: u32) -> bool {
    drops[site].is_none_or(|last| frame < last)
}

fn check_inputs(
    settings: &Settings,
    sites: &[Site],
    at: usize,
    frame: u32,
    inputs: &Words,
    (drops, forged): (&Drops, bool),
) {
    let ownership = &settings.ownership;
    for (player, input) in inputs.iter().enumerate().take(ownership.players()) {
        let mut owned = 0;
        for (number, site) in sites.iter().enumerate() {
            let mask = ownership.mask(site_id(number), player);
            owned |= mask;
            if number != at && forged {
                continue;
            }
            let there = is_in_game(drops, number, frame);
            let expected = if there { given(settings, site, frame)[player] & mask } else { 0 };
            assert_eq!(input & mask, expected, "site {at} steps frame {frame} with a wrong input of site {number}");
        }
        assert_eq!(input & !owned, 0, "site {at} steps frame {frame} with bits that nobody has");
    }
}

/// What a site gave for a frame: nothing before the lag is over, and nothing once it has left.
fn given(settings: &Settings, site: &Site, frame: u32) -> Words {
    let Some(at) = frame.checked_sub(settings.lag) else { return words(0) };
    match site.given.get(at as usize) {
        Some(input) => words(*input),
        None if site.left => words(0),
        None => panic!("frame {frame} is certain before its input was given"),
    }
}

/// As long as nothing was forged, nobody disagrees, moves or goes astray, and all agree on who is dropped with which frame.
pub(crate) fn check_event(event: &Event, at: usize, drops: &mut Drops, forged: bool) {
    assert!(!event.to_string().is_empty());
    if forged {
        return;
    }
    match event {
        Event::Dropped { site, frame } => {
            assert!(drops[at].is_none(), "site {at} was dropped and drops site {site}");
            let told = *drops[site.index()].get_or_insert(frame.number());
            assert_eq!(told, frame.number(), "site {site} is dropped with different frames");
        }
        Event::Diverged { site, .. } => {
            let dropped = |site: SiteId| drops[site.index()].is_some();
            assert!(dropped(*site) || dropped(site_id(at)), "out of the blue: {event}");
        }
        Event::Refused { reason: Refusal::Dropped, .. } => assert!(drops[at].is_some(), "out of the blue: {event}"),
        Event::Disagreed { .. } | Event::Refused { .. } | Event::Moved { .. } | Event::Joined { .. } => {
            panic!("out of the blue: {event}")
        }
        _ => {}
    }
}

/// Whether somebody who is believed could have meant harm with these bytes. `known` is whether they come from an address
/// that a peer has.
pub(crate) fn is_forgery(bytes: &[u8], known: bool) -> bool {
    match Message::decode(bytes) {
        Ok(Message::Tick(tick)) => known || tick.identity.is_some_and(|identity| identity.session == SESSION),
        Ok(Message::Hello(hello)) => hello.session == SESSION,
        Err(Error::Version(_)) => known,
        Err(_) => false,
    }
}
