//! Forged session packets, which no honest site would send.

use coplay::frame::Frame;
use coplay::id::{MAX_SITES, SiteId, SiteSet};
use coplay::input::MissingRanges;
use coplay::session::Settings;
use coplay::session::message::{
    ClockProbe, CommandKind, Extra, Extras, Hello, MembershipDecision, Refusal, RelayedInputs, ScheduledCommand,
    SessionMessage, Tick, TickDigest, TuningStats, Vote,
};

use crate::site::SESSION_ID;

/// Buffer length in bytes, longer than any datagram.
const BUFFER_LEN: usize = 2_048;

/// Returns a packet with one mutation of its bytes, which `mutation` modulo 8 selects.
pub(crate) fn mutate(packet: &[u8], mutation: u8, at: u8, value: u8) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let at = usize::from(at) % bytes.len().max(1);
    match mutation % 8 {
        0 => change_byte(&mut bytes, at, |_| value),
        1 => change_byte(&mut bytes, at, |old| old ^ 1 << (value & 7)),
        2 => change_byte(&mut bytes, at, |old| old.wrapping_add(value)),
        3 => bytes.truncate(at),
        4 => bytes.insert(at.min(bytes.len()), value),
        5 => drop(bytes.drain(at..(at + 1).min(bytes.len()))),
        6 => bytes.extend([value; 3]),
        _ => change_byte(&mut bytes, 0, |_| value | 0x80),
    }
    bytes
}

fn change_byte(bytes: &mut [u8], at: usize, change: impl Fn(u8) -> u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = change(*byte);
    }
}

/// Returns a peer's tick with one change, to a single field or to the inputs, which `field` modulo 16 selects. `now_us`
/// is the time on the peer's clock, in microseconds.
pub(crate) fn forge_tick(genuine: &[u8], field: u8, value: u32, now_us: i64) -> Vec<u8> {
    let Ok(SessionMessage::Tick(mut tick)) = SessionMessage::decode(genuine) else { return genuine.to_vec() };
    let own_changes = value.to_le_bytes();
    let (end, near) = (u32::from(tick.end), i32::from(value as i8));
    let leave = encode_extras_tick(&[Extra::Leave(encodable_frame(if field % 16 == 4 {
        value
    } else {
        end.saturating_add_signed(near)
    }))]);
    let probe = tick.probe.unwrap_or(ClockProbe {
        stamp_us: now_us as u64 & 0xff_ffff_ffff,
        echo: None,
        end_minus_frame: 0,
        lateness_ns: Some(0),
    });
    match field % 16 {
        0 => tick.end = value as u16,
        1 => tick.end = tick.end.wrapping_add_signed(near as i16),
        2 => tick.end_minus_ack = value as i32,
        3 => tick.end_minus_ack = tick.end_minus_ack.wrapping_add(near),
        4 | 5 => tick.extras = decode_extras(&leave),
        6 => {
            tick.digest = Some(TickDigest {
                frame: tick.end.wrapping_add_signed(near as i16),
                state_hash: value,
                input_digest: value.into(),
            })
        }
        7 => tick.missing = missing_ranges(&[(value & 0xff, value >> 8 & 0xff), (value >> 16 & 0xff, value >> 24)]),
        8 => tick.missing = missing_ranges(&[(value & 0xff, value >> 8 & 0xff); coplay::input::MAX_MISSING_RANGES]),
        9 => tick.probe = Some(ClockProbe { stamp_us: u64::from(value) << 8, ..probe }),
        10 => tick.probe = Some(ClockProbe { echo: Some((value, i64::from(value >> 8))), ..probe }),
        11 => tick.probe = Some(ClockProbe { end_minus_frame: value as i32, ..probe }),
        12 => tick.probe = Some(ClockProbe { lateness_ns: Some(i64::from(value as i32) << 4), ..probe }),
        13 => append_inputs(&mut tick, true, &own_changes),
        14 => append_inputs(&mut tick, false, &own_changes),
        _ => tick.frame_count = value,
    }
    encode_tick(&tick)
}

/// Replaces the inputs of a tick by those of 1 to 256 further frames.
fn append_inputs<'a>(tick: &mut Tick<'a>, absolute: bool, bytes: &'a [u8; 4]) {
    let [len, rest @ ..] = bytes;
    let changes = if absolute { &rest[..2] } else { &[] };
    (tick.frame_count, tick.is_absolute, tick.changes) = (1 + u32::from(*len), absolute, changes);
    tick.end = tick.end.wrapping_add(1 + u16::from(*len));
    tick.resends = Default::default();
}

/// Returns a request for missing frames, from pairs of (held, missing); empty ranges are left out.
fn missing_ranges(all: &[(u32, u32)]) -> MissingRanges {
    let mut ranges = MissingRanges::default();
    for (held, missing) in all.iter().filter(|(_, missing)| *missing > 0) {
        ranges.push(*held, *missing);
    }
    ranges
}

fn encode_tick(tick: &Tick<'_>) -> Vec<u8> {
    let mut buf = [0; BUFFER_LEN];
    tick.encode(&mut buf).map(|len| buf[..len].to_vec()).unwrap_or_default()
}

/// A forged extra: its kind, the sites that it is about, the offset of its frame from the current one in units of three
/// frames, and a number for all other fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForgedExtra {
    pub(crate) kind: u8,
    pub(crate) sites: u8,
    pub(crate) frame_offset: u8,
    pub(crate) value: u32,
}

impl ForgedExtra {
    /// Returns a peer's tick with the forged extra in place of its own extras; `at` is the current frame.
    pub(crate) fn insert_into(&self, genuine: &[u8], at: u32) -> Vec<u8> {
        let Ok(SessionMessage::Tick(mut tick)) = SessionMessage::decode(genuine) else { return genuine.to_vec() };
        let changes = self.value.to_le_bytes();
        let carrier = encode_extras_tick(&self.extras(at, &changes[..usize::from(self.frame_offset & 3)]));
        tick.extras = decode_extras(&carrier);
        encode_tick(&tick)
    }

    fn extras<'a>(&self, at: u32, changes: &'a [u8]) -> Vec<Extra<'a>> {
        let [low, mid, high, far] = self.value.to_le_bytes();
        let near = at.saturating_add_signed(3 * i32::from(self.frame_offset as i8));
        let first = encodable_frame(if far & 0x80 != 0 { self.value & 0x7fff_ffff } else { near });
        let drop = SiteSet::from_bits(self.sites);
        let ends = [first; MAX_SITES]
            .map(|end| if far & 0x40 != 0 { encodable_frame(end.number() + u32::from(high)) } else { end });
        let ends = std::array::from_fn(|site| if self.sites >> site & 1 != 0 { ends[site] } else { Frame::ZERO });
        let (site, issuer) = (site_from_byte(low), site_from_byte(high));
        let kind = if mid & 1 != 0 {
            let (input_delay, prediction_window) = (u32::from(high), u32::from(mid) >> 1);
            CommandKind::Join {
                site,
                incarnation: u32::from(low & 3),
                members: drop,
                epoch: u32::from(mid >> 2 & 3),
                input_delay,
                prediction_window,
            }
        } else {
            CommandKind::SetDelay {
                input_delay: u32::from(low),
                prediction_window: u32::from(mid) >> 1,
                input_age: u32::from(high),
                site,
            }
        };
        let command = ScheduledCommand { issuer, frame: first, kind };
        let in_force = (mid & 2 != 0).then_some(command);
        let left_sites = SiteSet::from_bits(high);
        let decision = MembershipDecision { drop, input_ends: ends, left_sites, command: in_force };
        let epoch = u32::from(mid >> 2 & 3);
        let ballot = if mid & 0x80 != 0 { self.value } else { u32::from(low) };
        let to_evict = SiteSet::from_bits(self.sites & low);
        let vote =
            Vote { epoch, ballot, drop, input_ends: ends, left_sites, to_evict, command: in_force, accepted: None };
        let relay =
            |site| Extra::Relay(RelayedInputs { site, first_frame: first, frame_count: 1 + u32::from(mid), changes });
        match self.kind % 8 {
            0 => vec![Extra::Command(command)],
            1 => vec![Extra::Vote(vote)],
            2 => vec![Extra::Vote(Vote { accepted: Some((ballot, decision)), ..vote })],
            3 => vec![Extra::Vote(Vote { accepted: Some((u32::from(high), decision)), ..vote })],
            4 => vec![Extra::DecisionReport(epoch, decision, 0)],
            5 => drop
                .iter()
                .flat_map(|site| [Extra::RelayRequest(site, first), Extra::LeaveReport(site, first)])
                .collect(),
            6 => drop.iter().map(relay).collect(),
            _ if far & 0x20 != 0 => {
                vec![Extra::TuningStats(TuningStats { input_age: self.value, max_prediction_window: u32::from(low) })]
            }
            _ => vec![
                Extra::Command(command),
                Extra::Vote(vote),
                relay(site),
                Extra::RelayRequest(issuer, first),
                Extra::Leave(first),
            ],
        }
    }
}

fn site_from_byte(byte: u8) -> SiteId {
    SiteId::first(MAX_SITES).nth(usize::from(byte) % MAX_SITES).expect("a valid site number")
}

/// Limits a frame number to the largest that can be encoded.
fn encodable_frame(number: u32) -> Frame {
    Frame::new(number.min(u32::MAX / 2 - 1))
}

/// Encodes a tick that contains nothing but these extras.
pub(crate) fn encode_extras_tick(extras: &[Extra<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    for extra in extras {
        let mut buf = [0; BUFFER_LEN];
        let len = extra.encode(&mut buf).expect("room for an extra");
        block.extend_from_slice(&buf[..len]);
    }
    if block.is_empty() {
        return vec![0x80, 0, 0, 0, 0];
    }
    [&[0x84, 0, 0, 0][..], &(block.len() as u16).to_le_bytes(), &block, &[0]].concat()
}

pub(crate) fn decode_extras(carrier: &[u8]) -> Extras<'_> {
    Tick::decode(carrier).expect("a tick with extras").extras
}

/// Returns a tick of which only the identity and, if `flags` announce a probe, the stamp are certain to be valid.
pub(crate) fn forge_identified_tick(site: SiteId, flags: u8, rest: &[u8], now_us: i64) -> Vec<u8> {
    let mut bytes = vec![flags | 0xc0, 0, 0, 0];
    bytes.extend(SESSION_ID.to_le_bytes());
    bytes.push(site.number());
    if flags & 0x20 != 0 {
        bytes.extend(&now_us.to_le_bytes()[..5]);
    }
    bytes.extend(rest);
    bytes
}

/// Returns a peer's hello with one or two fields replaced, which `field` modulo 32 selects. `now_us` is the time on the
/// peer's clock in microseconds, `start_ns` the time on the victim's in nanoseconds.
pub(crate) fn forge_hello(
    (settings, incarnation): (Settings, u32),
    site: SiteId,
    (field, value): (u8, u32),
    now_us: i64,
    start_ns: i64,
) -> Vec<u8> {
    let mut hello = Hello {
        session_id: SESSION_ID,
        site,
        incarnation,
        your_incarnation: incarnation,
        agreed_sites: SiteSet::first(usize::from(settings.site_count)),
        is_leaving: false,
        join_readiness: None,
        refusal: None,
        stamp_us: now_us as u64,
        echo: None,
        start_ns: None,
        settings,
    };
    let far = i64::from(value as i32);
    match field % 32 {
        0 => hello.agreed_sites = SiteSet::from_bits(value as u8),
        1 => hello.is_leaving = true,
        2 => hello.refusal = Some(Refusal::AlreadyRunning),
        3 => hello.stamp_us = u64::from(value) << 32,
        4 => hello.stamp_us = hello.stamp_us.wrapping_add_signed(far),
        5 => hello.echo = Some((start_ns as u64 / 1_000, value)),
        6 => hello.echo = Some((u64::from(value) << 20, value)),
        7 => hello.start_ns = Some(start_ns.saturating_add(far << 6)),
        8 => hello.start_ns = Some(far << 32),
        9 => hello.site = SiteId::new(value as u8 & 7).unwrap_or(site),
        10 => hello.settings.input_delay = value,
        11 => hello.settings.machine.options.push(("more".into(), value.to_string())),
        12 => hello.settings.site_count = value as u8 % 9,
        13 => hello.settings.compare_interval = value,
        14 => hello.session_id ^= u64::from(value),
        15 => hello.settings.game.hash[0] = value as u8,
        16 => hello.refusal = Some(Refusal::Dropped),
        17 => hello.incarnation = value,
        18 => hello.incarnation = incarnation.wrapping_add(1),
        19 => hello.your_incarnation = value,
        20 => hello.join_readiness = Some(value & 1 != 0),
        21 => hello.settings.starting_sites = SiteSet::from_bits(value as u8),
        22 => (hello.incarnation, hello.join_readiness) = (incarnation.wrapping_add(1), Some(true)),
        23 => hello.settings.prediction_window = value,
        24 => hello.refusal = Some(Refusal::ContinuedAlone { frame: Frame::new(value) }),
        _ => (hello.agreed_sites, hello.join_readiness) = (SiteSet::from_bits(value as u8), Some(true)),
    }
    let mut buf = [0; BUFFER_LEN];
    hello.encode(&mut buf).map(|len| buf[..len].to_vec()).unwrap_or_default()
}
