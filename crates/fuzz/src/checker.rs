//! Checks what must hold at every site, without looking into the engine: the machine is stepped with the inputs that
//! were given, and a site is dropped, or joins, at the same frame everywhere.

use coplay::codec::DecodeError;
use coplay::id::{MAX_SITES, SiteId, SiteSet};
use coplay::session::message::{Refusal, SessionMessage};
use coplay::session::{Event, Settings};
use coplay::spectator_feed::message::{FeedMessage, is_feed};

use crate::machine::InputWords;
use crate::site::{FuzzedSite, SESSION_ID, input_words, site_id};

/// History of the seats, as the sites report it: in which frames each site plays.
#[derive(Debug)]
pub(crate) struct SeatOccupancyHistory {
    starters: SiteSet,
    /// Frames at which each seat was taken (`true`) or lost, in order.
    changes: [Vec<(u32, bool)>; MAX_SITES],
    /// Whether the reported changes contradict each other: a seat is taken or lost twice in a row. This is a fault
    /// unless sites can join late and a site crashed, was cut off, left or restarted.
    pub(crate) is_inconsistent: bool,
}

impl SeatOccupancyHistory {
    pub(crate) fn new(starters: SiteSet) -> Self {
        Self { starters, changes: Default::default(), is_inconsistent: false }
    }

    /// Returns whether a site was ever dropped, or joined late.
    pub(crate) fn has_changed(&self, site: SiteId) -> bool {
        !self.changes[site.index()].is_empty()
    }

    fn record(&mut self, site: SiteId, frame: u32, taken: bool) {
        let start = (0, self.starters.contains(site));
        let changes = &mut self.changes[site.index()];
        if changes.contains(&(frame, taken)) {
            return;
        }
        // A joiner may be dropped before its first frame: at equal frames the seat is first taken, then lost.
        let at = changes.partition_point(|change| (change.0, !change.1) < (frame, !taken));
        changes.insert(at, (frame, taken));
        let all = || std::iter::once(&start).chain(&*changes);
        self.is_inconsistent |= all().zip(all().skip(1)).any(|(one, next)| one.1 == next.1);
    }

    /// Returns the last change of a seat up to `frame`: its frame, and whether the seat was taken. Without a change,
    /// returns frame 0 and whether the site plays from the start.
    fn seat_at(&self, site: usize, frame: u32) -> (u32, bool) {
        let known = self.changes[site].iter().take_while(|(since, _)| *since <= frame).last();
        known.copied().unwrap_or((0, self.starters.contains(site_id(site))))
    }

    /// Returns whether a site lost its seat at or after a frame.
    fn lost_since(&self, site: usize, since: u32) -> bool {
        self.changes[site].iter().any(|(frame, taken)| !taken && *frame >= since)
    }

    /// Returns the first frame at which any site lost its seat; `u32::MAX` if none did.
    fn first_loss(&self) -> u32 {
        let losses = self.changes.iter().flatten().filter(|(_, taken)| !taken);
        losses.map(|(frame, _)| *frame).min().unwrap_or(u32::MAX)
    }
}

/// Checks the inputs of the confirmed frames of site `at`; if that site lost its seat, only of the frames before any
/// site lost its seat. After a forgery, checks only the site's own inputs and the bits that no site owns, in the frames
/// from its first one as a player on. `forged` is whether a forgery arrived, or the sites reported inconsistent changes
/// of seats.
pub(crate) fn check_confirmed(
    settings: &Settings,
    sites: &[FuzzedSite],
    at: usize,
    seats: &SeatOccupancyHistory,
    forged: bool,
) {
    let site = &sites[at];
    let seated = site.seated_from.unwrap_or(u32::MAX);
    // A dropped site may know neither that it was dropped nor which sites were dropped with it; its later frames do not
    // concern the others.
    let agreed_until = if seats.lost_since(at, seated) { seats.first_loss() } else { u32::MAX };
    let is_checked = |frame: u32| if forged { frame >= seated } else { frame < agreed_until };
    let frames =
        (site.machine.first_frame..).zip(&site.machine.confirmed_inputs).filter(|(frame, _)| is_checked(*frame));
    for (frame, inputs) in frames {
        check_inputs(settings, sites, at, frame, inputs, (seats, forged));
    }
}

fn check_inputs(
    settings: &Settings,
    sites: &[FuzzedSite],
    at: usize,
    frame: u32,
    inputs: &InputWords,
    (seats, forged): (&SeatOccupancyHistory, bool),
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
            let (since, is_seated) = if forged { seat_under_attack(site, frame) } else { seats.seat_at(number, frame) };
            let expected = if is_seated { expected_input(site, since, frame)[player] & mask } else { 0 };
            assert_eq!(input & mask, expected, "site {at} steps frame {frame} with a wrong input of site {number}");
        }
        assert_eq!(input & !owned, 0, "site {at} steps frame {frame} with bits that no site owns");
    }
}

/// Returns the seat of a site after a forgery, as frame and whether it is taken. The site may believe in a seat for any
/// reason, but gives no input before its session requests one.
fn seat_under_attack(site: &FuzzedSite, frame: u32) -> (u32, bool) {
    site.first_sampled_frame.filter(|from| frame >= *from).map_or((0, false), |from| (from, true))
}

/// Returns the input that a site gave for a frame, if it plays from frame `since` on. A frame without a given input has
/// the neutral input before the site's first input and after the site has left; any other frame without one is a
/// violation.
fn expected_input(site: &FuzzedSite, since: u32, frame: u32) -> InputWords {
    match site.given_inputs.get(&frame) {
        Some(input) => input_words(*input),
        None if site.has_ever_left || site.given_inputs.range(since..frame).next().is_none() => input_words(0),
        None => panic!("frame {frame} is confirmed before its input was given"),
    }
}

/// Checks an event of site `at` and records changes of seats, both only without a forgery. Then no site disagrees or
/// changes its address, a site joins only if `late`, and only sites whose seat changed are refused or diverge. `forged`
/// is whether a forgery arrived, `late` whether a site may join late.
pub(crate) fn check_event(event: &Event, at: usize, seats: &mut SeatOccupancyHistory, (forged, late): (bool, bool)) {
    assert!(!event.to_string().is_empty());
    if forged {
        return;
    }
    match event {
        Event::Dropped { site, frame } => seats.record(*site, frame.number(), false),
        Event::Joined { site, frame } if late => seats.record(*site, frame.number(), true),
        Event::Diverged { site, .. } => {
            assert!(seats.has_changed(*site) || seats.has_changed(site_id(at)), "unexpected event: {event}");
        }
        Event::Refused { reason: Refusal::Dropped, .. } => {
            assert!(seats.has_changed(site_id(at)), "unexpected event: {event}");
        }
        Event::Disagreed { .. } | Event::Refused { .. } | Event::AddressChanged { .. } | Event::Joined { .. } => {
            panic!("unexpected event: {event}")
        }
        _ => {}
    }
}

/// Returns whether these bytes could do harm because the engine trusts their sender: a feed message, or a hello or an
/// identified tick with the session's id; from the address of a peer (`known`) also any other tick or a packet of
/// another version.
pub(crate) fn is_plausible_forgery(bytes: &[u8], known: bool) -> bool {
    if is_feed(bytes) {
        return FeedMessage::decode(bytes).is_ok();
    }
    match SessionMessage::decode(bytes) {
        Ok(SessionMessage::Tick(tick)) => {
            known || tick.identity.is_some_and(|identity| identity.session_id == SESSION_ID)
        }
        Ok(SessionMessage::Hello(hello)) => hello.session_id == SESSION_ID,
        Err(DecodeError::Version(_)) => known,
        Err(_) => false,
    }
}
