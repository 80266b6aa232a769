//! What must hold at every site, known without looking into the engine: the inputs that were given are those that step
//! the machine.

use coplay::input::Word;
use coplay::session::{Event, Settings};
use coplay::wire::{Error, Message};

use crate::site::{SESSION, Site, site_id, words};

/// Checks the inputs with which `at` is asked to step `frame`. Under attack, only its own are sure.
pub(crate) fn check_inputs(settings: &Settings, sites: &[Site], at: usize, frame: u32, inputs: &[Word], forged: bool) {
    let ownership = &settings.ownership;
    assert_eq!(inputs.len(), ownership.players());
    for (player, input) in inputs.iter().enumerate() {
        let mut owned = 0;
        for (number, site) in sites.iter().enumerate() {
            let mask = ownership.mask(site_id(number), player);
            owned |= mask;
            if number != at && forged {
                continue;
            }
            let expected = given(settings, site, frame)[player] & mask;
            assert_eq!(input & mask, expected, "site {at} steps frame {frame} with a wrong input of site {number}");
        }
        assert_eq!(input & !owned, 0, "site {at} steps frame {frame} with bits that nobody has");
    }
}

/// What a site gave for a frame: nothing before the lag is over, and nothing once it has left.
fn given(settings: &Settings, site: &Site, frame: u32) -> [Word; coplay::input::MAX_PLAYERS] {
    let Some(at) = frame.checked_sub(settings.lag) else { return words(0) };
    match site.given.get(at as usize) {
        Some(input) => words(*input),
        None if site.left => words(0),
        None => panic!("frame {frame} is stepped before its input was given"),
    }
}

/// As long as nothing was forged, nobody disagrees, moves or goes astray.
pub(crate) fn check_event(event: &Event, forged: bool) {
    let suspicious =
        matches!(event, Event::Diverged { .. } | Event::Disagreed { .. } | Event::Refused { .. } | Event::Moved { .. });
    assert!(forged || !suspicious, "out of the blue: {event}");
    assert!(!event.to_string().is_empty());
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
