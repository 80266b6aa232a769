//! Packets that no honest site would send.

use coplay::id::{SiteId, SiteSet};
use coplay::session::Settings;
use coplay::wire::{Digest, Hello, Message, Probe, Ranges, Refusal, Tick};

use crate::site::SESSION;

/// Longer than any datagram of ours.
const ROOM: usize = 2_048;

/// A packet with one change in its bytes.
pub(crate) fn mutate(packet: &[u8], how: u8, at: u8, value: u8) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let at = usize::from(at) % bytes.len().max(1);
    match how % 8 {
        0 => set(&mut bytes, at, |_| value),
        1 => set(&mut bytes, at, |old| old ^ 1 << (value & 7)),
        2 => set(&mut bytes, at, |old| old.wrapping_add(value)),
        3 => bytes.truncate(at),
        4 => bytes.insert(at.min(bytes.len()), value),
        5 => drop(bytes.drain(at..(at + 1).min(bytes.len()))),
        6 => bytes.extend([value; 3]),
        _ => set(&mut bytes, 0, |_| value | 0x80),
    }
    bytes
}

fn set(bytes: &mut [u8], at: usize, change: impl Fn(u8) -> u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = change(*byte);
    }
}

/// A tick of a peer with one field replaced; `now_us` is the time on its clock.
pub(crate) fn forge_tick(genuine: &[u8], field: u8, value: u32, now_us: i64) -> Vec<u8> {
    let Ok(Message::Tick(mut tick)) = Message::decode(genuine) else { return genuine.to_vec() };
    let own_changes = value.to_le_bytes();
    let (end, near) = (u32::from(tick.end), i32::from(value as i8));
    let probe = tick.probe.unwrap_or(Probe {
        stamp_us: now_us as u64 & 0xff_ffff_ffff,
        echo: None,
        end_minus_frame: 0,
        late_ns: Some(0),
    });
    match field % 16 {
        0 => tick.end = value as u16,
        1 => tick.end = tick.end.wrapping_add_signed(near as i16),
        2 => tick.end_minus_ack = value as i32,
        3 => tick.end_minus_ack = tick.end_minus_ack.wrapping_add(near),
        4 => tick.leave = Some(value),
        5 => tick.leave = end.checked_add_signed(near),
        6 => tick.digest = Some(Digest { frame: tick.end.wrapping_add_signed(near as i16), hash: value }),
        7 => tick.request = ranges(&[(value & 0xff, value >> 8 & 0xff), (value >> 16 & 0xff, value >> 24)]),
        8 => tick.request = ranges(&[(value & 0xff, value >> 8 & 0xff); coplay::wire::MAX_RANGES]),
        9 => tick.probe = Some(Probe { stamp_us: u64::from(value) << 8, ..probe }),
        10 => tick.probe = Some(Probe { echo: Some((value, i64::from(value >> 8))), ..probe }),
        11 => tick.probe = Some(Probe { end_minus_frame: value as i32, ..probe }),
        12 => tick.probe = Some(Probe { late_ns: Some(i64::from(value as i32) << 4), ..probe }),
        13 => add_inputs(&mut tick, true, &own_changes),
        14 => add_inputs(&mut tick, false, &own_changes),
        _ => tick.len = value,
    }
    encoded(&tick)
}

/// Goes on where a tick ends.
fn add_inputs<'a>(tick: &mut Tick<'a>, absolute: bool, bytes: &'a [u8; 4]) {
    let [len, rest @ ..] = bytes;
    let changes = if absolute { &rest[..2] } else { &[] };
    (tick.len, tick.absolute, tick.changes) = (1 + u32::from(*len), absolute, changes);
    tick.end = tick.end.wrapping_add(1 + u16::from(*len));
    tick.answers = Default::default();
}

/// A request for frames that are lost, as (held, missing); what asks for nothing is left out.
fn ranges(all: &[(u32, u32)]) -> Ranges {
    let mut ranges = Ranges::default();
    for (held, missing) in all.iter().filter(|(_, missing)| *missing > 0) {
        ranges.push(*held, *missing);
    }
    ranges
}

fn encoded(tick: &Tick<'_>) -> Vec<u8> {
    let mut buf = [0; ROOM];
    tick.encode(&mut buf).map(|len| buf[..len].to_vec()).unwrap_or_default()
}

/// A tick of which only the flags, the identity and the stamp are sound.
pub(crate) fn identified(site: SiteId, flags: u8, rest: &[u8], now_us: i64) -> Vec<u8> {
    let mut bytes = vec![flags | 0xc0, 0, 0, 0];
    bytes.extend(SESSION.to_le_bytes());
    bytes.push(site.number());
    if flags & 0x20 != 0 {
        bytes.extend(&now_us.to_le_bytes()[..5]);
    }
    bytes.extend(rest);
    bytes
}

/// A hello of a peer with one field replaced; `now_us` is the time on its clock, `start_ns` the victim's.
pub(crate) fn forge_hello(settings: Settings, site: SiteId, deed: (u8, u32), now_us: i64, start_ns: i64) -> Vec<u8> {
    let (field, value) = deed;
    let mut hello = Hello {
        session: SESSION,
        site,
        agreed: SiteSet::first(usize::from(settings.sites)),
        leaving: false,
        refusal: None,
        stamp_us: now_us as u64,
        echo: None,
        start_ns: None,
        settings,
    };
    let far = i64::from(value as i32);
    match field % 16 {
        0 => hello.agreed = SiteSet::from_bits(value as u8),
        1 => hello.leaving = true,
        2 => hello.refusal = Some(Refusal::Running),
        3 => hello.stamp_us = u64::from(value) << 32,
        4 => hello.stamp_us = hello.stamp_us.wrapping_add_signed(far),
        5 => hello.echo = Some((start_ns as u64 / 1_000, value)),
        6 => hello.echo = Some((u64::from(value) << 20, value)),
        7 => hello.start_ns = Some(start_ns.saturating_add(far << 6)),
        8 => hello.start_ns = Some(far << 32),
        9 => hello.site = SiteId::new(value as u8 & 7).unwrap_or(site),
        10 => hello.settings.lag = value,
        11 => hello.settings.machine.options.push(("more".into(), value.to_string())),
        12 => hello.settings.sites = value as u8 % 9,
        13 => hello.settings.compare_every = value,
        14 => hello.session ^= u64::from(value),
        _ => hello.settings.game.hash[0] = value as u8,
    }
    let mut buf = [0; ROOM];
    hello.encode(&mut buf).map(|len| buf[..len].to_vec()).unwrap_or_default()
}
