//! Datagrams for many: RTP packets whose content is sealed with the group's key.
//!
//! ```text
//! RTP header (RFC 3550): version 2, payload type 96, sequence number, timestamp, SSRC = site      12 bytes
//! channel, and the upper bits of the packet's number, of which the sequence number is the lower    5 bytes
//! content, sealed by XChaCha20-Poly1305; all before it is authenticated with it                    n + 16 bytes
//! ```
//!
//! The nonce is the number of the sender's *run*, random and told to all over secured channels, and the packet's number in that run. So no nonce
//! is used twice however often a program is started anew, and a packet of an earlier run does not open. A packet is taken once.
//!
//! The key is everybody's: it keeps out who is not in the group, and does not tell those in it apart. Whoever is in can pose as
//! another one here; on the channels between two sites nobody can.

use std::collections::BTreeMap;
use std::fmt;

use blake2::Blake2sMac;
use blake2::digest::Mac;
use blake2::digest::consts::U16;
use chacha20poly1305::{AeadInPlace, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use rtp_types::{RtpPacket, RtpPacketBuilder};
use serde::{Deserialize, Serialize};

use super::message::Run;
use crate::key::{PeerKey, random};
use crate::udp::Seen;

/// A member whose numbers are all others' already is not let in. They have 32 bits, so not even the second is ever needed by chance.
const MOST_NUMBERS: u32 = 8;
/// The first payload type that has no fixed meaning.
const PAYLOAD_TYPE: u8 = 96;
/// The RTP header, and what is in front of all content.
const RTP: usize = RtpPacket::MIN_RTP_PACKET_LEN;
const HEAD: usize = RTP + 1 + 4;
const TAG: usize = 16;
/// What sealing adds to a datagram.
pub(super) const OVERHEAD: usize = HEAD + TAG;

/// What everybody in a group knows and nobody else does.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupKey([u8; 32]);

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group key")
    }
}

impl GroupKey {
    pub(super) fn random() -> Self {
        Self(random())
    }

    /// What tells the group from others, and shows that one knows its key.
    pub(super) fn name(&self) -> u64 {
        u64::from_le_bytes(self.digest(b"name", &[]))
    }

    /// The number of a member, whoever lets it in and however often; the next one if that is another's already.
    pub(super) fn site(&self, member: &PeerKey, attempt: u32) -> u32 {
        let bytes: [u8; 4] = self.digest(b"site", &[&member.0, &attempt.to_le_bytes()]);
        u32::from_le_bytes(bytes)
    }

    /// All numbers that a member can have, the first that nobody else has before others.
    pub(super) fn sites(&self, member: &PeerKey) -> impl Iterator<Item = u32> {
        (0..MOST_NUMBERS).map(move |attempt| self.site(member, attempt))
    }

    fn digest<const N: usize>(&self, purpose: &[u8], parts: &[&[u8]]) -> [u8; N] {
        let mut mac = <Blake2sMac<U16> as blake2::digest::KeyInit>::new_from_slice(&self.0).expect("a key of 32 bytes");
        mac.update(purpose);
        parts.iter().for_each(|part| mac.update(part));
        let whole = mac.finalize().into_bytes();
        std::array::from_fn(|at| whole[at])
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&self.0.into())
    }
}

fn nonce(run: &Run, number: u64) -> XNonce {
    let mut nonce = [0; 24];
    nonce[..16].copy_from_slice(run);
    nonce[16..].copy_from_slice(&number.to_le_bytes());
    nonce.into()
}

/// Makes the packets of one run of a site.
pub(super) struct Sealer {
    cipher: XChaCha20Poly1305,
    site: u32,
    run: Run,
    next: u64,
}

impl Sealer {
    pub(super) fn new(group: &GroupKey, site: u32, run: Run) -> Self {
        Self { cipher: group.cipher(), site, run, next: 0 }
    }

    /// A packet for all who listen to a channel. `None` if it would be longer than anything, or the last number was used.
    pub(super) fn seal(&mut self, channel: u8, timestamp: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        let number = self.next;
        let upper = u32::try_from(number >> 16).ok()?;
        self.next += 1;
        let builder = RtpPacketBuilder::<&[u8], &[u8]>::new().payload_type(PAYLOAD_TYPE).ssrc(self.site);
        let mut packet = builder.sequence_number(number as u16).timestamp(timestamp).write_vec().ok()?;
        packet.push(channel);
        packet.extend_from_slice(&upper.to_be_bytes());
        packet.extend_from_slice(bytes);
        let (head, content) = packet.split_at_mut(HEAD);
        let tag = self.cipher.encrypt_in_place_detached(&nonce(&self.run, number), head, content).ok()?;
        packet.extend_from_slice(&tag);
        Some(packet)
    }
}

/// Packets that were not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfit {
    /// They are none of ours.
    pub garbage: u64,
    /// They say that they are from a site that is not in the group.
    pub strangers: u64,
    /// They were not made with the group's key, or in another run of the sender, or were changed.
    pub forged: u64,
    /// They came before, or are too old to tell.
    pub replayed: u64,
}

impl Unfit {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.garbage + self.strangers + self.forged + self.replayed
    }
}

/// What a packet brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// Nothing for us.
    Nothing,
    /// Something that we sent ourselves.
    Own,
    /// Something from a site.
    Content { site: u32, bytes: Vec<u8> },
}

/// Opens the packets of all sites but our own.
pub(super) struct Opener {
    cipher: XChaCha20Poly1305,
    me: u32,
    sources: BTreeMap<u32, Source>,
    unfit: Unfit,
}

/// Somebody from whom packets may come.
struct Source {
    run: Run,
    seen: Seen,
}

impl Opener {
    pub(super) fn new(group: &GroupKey, me: u32) -> Self {
        Self { cipher: group.cipher(), me, sources: BTreeMap::new(), unfit: Unfit::default() }
    }

    pub(super) fn unfit(&self) -> Unfit {
        self.unfit
    }

    /// Packets are taken from these sites and no others. Which were seen is forgotten only with the run that they belong to.
    pub(super) fn set_sources(&mut self, sources: impl IntoIterator<Item = (u32, Run)>) {
        let mut before = std::mem::take(&mut self.sources);
        for (site, run) in sources {
            let known = before.remove(&site).filter(|source| source.run == run);
            self.sources.insert(site, known.unwrap_or_else(|| Source { run, seen: Seen::new() }));
        }
    }

    /// Takes a packet of anybody's. What is for a channel to which we do not listen is left alone.
    pub(super) fn open(&mut self, packet: &[u8], listens: impl Fn(u8) -> bool) -> Opened {
        let Some(Head { site, channel, number }) = Head::read(packet) else {
            self.unfit.garbage += 1;
            return Opened::Nothing;
        };
        if site == self.me {
            return Opened::Own;
        }
        let Some(source) = self.sources.get_mut(&site) else {
            self.unfit.strangers += 1;
            return Opened::Nothing;
        };
        if !listens(channel) {
            return Opened::Nothing;
        }
        if !source.seen.is_new(number) {
            self.unfit.replayed += 1;
            return Opened::Nothing;
        }
        let (head, rest) = packet.split_at(HEAD);
        let (content, tag) = rest.split_at(rest.len() - TAG);
        let mut bytes = content.to_vec();
        let nonce = nonce(&source.run, number);
        if self.cipher.decrypt_in_place_detached(&nonce, head, &mut bytes, Tag::from_slice(tag)).is_err() {
            self.unfit.forged += 1;
            return Opened::Nothing;
        }
        source.seen.note(number);
        Opened::Content { site, bytes }
    }
}

/// What a packet says before it is opened.
struct Head {
    site: u32,
    channel: u8,
    number: u64,
}

impl Head {
    /// `None` if it is no packet as we make them.
    fn read(packet: &[u8]) -> Option<Self> {
        let rtp = RtpPacket::parse(packet).ok()?;
        let plain = !rtp.padding_bit() && !rtp.extension_bit() && rtp.n_csrcs() == 0 && !rtp.marker_bit();
        let ours = plain && rtp.payload_type() == PAYLOAD_TYPE && packet.len() >= OVERHEAD;
        let &[channel, a, b, c, d] = packet.get(RTP..HEAD).filter(|_| ours)? else { return None };
        let number = u64::from(u32::from_be_bytes([a, b, c, d])) << 16 | u64::from(rtp.sequence_number());
        Some(Self { site: rtp.ssrc(), channel, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = [5; 16];

    fn pair() -> (GroupKey, Sealer, Opener) {
        let group = GroupKey::random();
        let (sealer, mut opener) = (Sealer::new(&group, 7, RUN), Opener::new(&group, 8));
        opener.set_sources([(7, RUN)]);
        (group, sealer, opener)
    }

    fn content(bytes: &[u8]) -> Opened {
        Opened::Content { site: 7, bytes: bytes.to_vec() }
    }

    #[test]
    fn packets_are_rtp_and_open_once() {
        let (_, mut sealer, mut opener) = pair();
        for (number, bytes) in [&b"hello"[..], b"", &[9; 1_200]].into_iter().enumerate() {
            let packet = sealer.seal(0, 90_000, bytes).unwrap();
            assert_eq!(packet.len(), bytes.len() + OVERHEAD);
            let rtp = RtpPacket::parse(&packet).unwrap();
            assert_eq!((rtp.version(), rtp.payload_type(), rtp.ssrc(), rtp.timestamp()), (2, 96, 7, 90_000));
            assert_eq!(usize::from(rtp.sequence_number()), number);
            assert_eq!(opener.open(&packet, |_| true), content(bytes));
            assert_eq!(opener.open(&packet, |_| true), Opened::Nothing);
        }
        assert_eq!(opener.unfit(), Unfit { replayed: 3, ..Unfit::default() });
    }

    #[test]
    fn sequence_numbers_begin_again_and_packets_do_not() {
        let (_, mut sealer, mut opener) = pair();
        sealer.next = (1 << 16) - 2;
        let packets: Vec<Vec<u8>> = (0..4).map(|_| sealer.seal(0, 0, b"x").unwrap()).collect();
        for packet in packets.iter().rev() {
            assert_eq!(opener.open(packet, |_| true), content(b"x"));
        }
        assert!(packets.iter().all(|packet| opener.open(packet, |_| true) == Opened::Nothing));
        sealer.next = 1 << 48;
        assert_eq!(sealer.seal(0, 0, b"x"), None, "no nonce is used twice");
    }

    #[test]
    fn whatever_is_changed_is_told() {
        let (_, mut sealer, mut opener) = pair();
        let packet = sealer.seal(3, 1, b"hello").unwrap();
        for at in 0..packet.len() {
            for bit in 0..8 {
                let mut changed = packet.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(opener.open(&changed, |_| true), Opened::Nothing, "bit {bit} of byte {at}");
            }
        }
        (0..packet.len()).for_each(|len| assert_eq!(opener.open(&packet[..len], |_| true), Opened::Nothing));
        let Unfit { garbage, strangers, forged, replayed } = opener.unfit();
        // Sixteen bits of the header are always the same for us, and 32 say who sends it.
        assert!(garbage > 0 && strangers == 32 && forged > 200 && replayed == 0, "{:?}", opener.unfit());
        assert_eq!(opener.unfit().total(), packet.len() as u64 * 9);
        assert_eq!(opener.open(&packet, |_| true), content(b"hello"), "and the genuine one is still taken");
    }

    #[test]
    fn only_the_group_is_heard_and_only_its_present_run() {
        let (group, mut sealer, mut opener) = pair();
        let old = sealer.seal(0, 0, b"old").unwrap();
        let other = Sealer::new(&GroupKey::random(), 7, RUN).seal(0, 0, b"other").unwrap();
        let stranger = Sealer::new(&group, 9, RUN).seal(0, 0, b"stranger").unwrap();
        let own = Sealer::new(&group, 8, RUN).seal(0, 0, b"own").unwrap();
        assert_eq!(opener.open(&other, |_| true), Opened::Nothing);
        assert_eq!(opener.open(&stranger, |_| true), Opened::Nothing);
        assert_eq!(opener.open(&own, |_| true), Opened::Own);
        opener.set_sources([(7, [6; 16])]);
        let new = Sealer::new(&group, 7, [6; 16]).seal(0, 0, b"new").unwrap();
        assert_eq!(opener.open(&old, |_| true), Opened::Nothing);
        assert_eq!(opener.open(&new, |_| true), content(b"new"));
        opener.set_sources([(7, [6; 16]), (9, RUN)]);
        assert_eq!(opener.open(&new, |_| true), Opened::Nothing, "what was seen is not forgotten");
        assert_eq!(opener.unfit(), Unfit { garbage: 0, strangers: 1, forged: 2, replayed: 1 });
    }

    #[test]
    fn channels_to_which_nobody_listens_are_left_alone() {
        let (_, mut sealer, mut opener) = pair();
        let packet = sealer.seal(3, 0, b"hello").unwrap();
        assert_eq!(opener.open(&packet, |channel| channel == 0), Opened::Nothing);
        assert_eq!(opener.open(&packet, |channel| channel == 3), content(b"hello"));
        assert_eq!(opener.unfit(), Unfit::default());
    }

    #[test]
    fn a_number_belongs_to_a_key_in_a_group() {
        let (one, other, key) = (GroupKey::random(), GroupKey::random(), PeerKey([1; 32]));
        assert_eq!(one.site(&key, 0), one.clone().site(&key, 0));
        assert_ne!(one.site(&key, 0), one.site(&key, 1));
        assert_ne!((one.site(&key, 0), one.name()), (other.site(&key, 0), other.name()));
        assert!(!format!("{one:?}").contains(','), "it is for logs, where no key belongs");
    }
}
