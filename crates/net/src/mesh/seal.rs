//! Multicast packets: RTP packets whose content is sealed with the key of the mesh.
//!
//! ```text
//! RTP header (RFC 3550): version 2, payload type 96, sequence number, timestamp, SSRC = site      12 bytes
//! channel, and the upper bits of the packet's number, of which the sequence number is the lower    5 bytes
//! content, sealed by XChaCha20-Poly1305; all before it is authenticated with it                    n + 16 bytes
//! ```
//!
//! The nonce consists of the sender's *run id*, a random number that all members get over secured channels, and the
//! packet's number in that run. So no nonce repeats across restarts of a program, and a packet of an earlier run does
//! not open. Each packet is accepted at most once.
//!
//! All members share the key: it keeps strangers out and does not distinguish members. A member can impersonate another
//! in multicast, but not on the channel between two sites.

use std::collections::BTreeMap;
use std::fmt;

use blake2::Blake2sMac;
use blake2::digest::Mac;
use blake2::digest::consts::U16;
use rtp_types::{RtpPacket, RtpPacketBuilder};
use serde::{Deserialize, Serialize};

use crate::key::{PeerKey, random_bytes};
use crate::seal::{Opener, ReplayFilter, RunId, Sealer, TAG_LEN};

/// Number of site numbers that a member can have. Admission fails if others have all of them. A site number has 32
/// bits, so that a collision by chance is very unlikely.
const MAX_SITE_NUMBER_ATTEMPTS: u32 = 8;
/// RTP payload type of all packets: the first dynamic one.
const PAYLOAD_TYPE: u8 = 96;
/// Length of the RTP header, in bytes.
const RTP_HEADER_LEN: usize = RtpPacket::MIN_RTP_PACKET_LEN;
/// Length of everything in front of the content, in bytes.
const HEADER_LEN: usize = RTP_HEADER_LEN + 1 + 4;
/// Bytes that sealing adds to a datagram.
pub(super) const SEAL_OVERHEAD: usize = HEADER_LEN + TAG_LEN;

/// Key shared by all members of a mesh.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MeshKey([u8; 32]);

impl fmt::Debug for MeshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mesh key")
    }
}

impl MeshKey {
    pub(super) fn random() -> Self {
        Self(random_bytes())
    }

    /// Returns a number that identifies the mesh and proves knowledge of its key.
    pub(super) fn mesh_id(&self) -> u64 {
        u64::from_le_bytes(self.digest(b"name", &[]))
    }

    /// Returns a site number of a member, independent of the admitting site; `attempt` selects another one on
    /// collision.
    pub(super) fn site_number(&self, member: &PeerKey, attempt: u32) -> u32 {
        let bytes: [u8; 4] = self.digest(b"site", &[&member.0, &attempt.to_le_bytes()]);
        u32::from_le_bytes(bytes)
    }

    /// Returns all site numbers that a member can have, in order of preference.
    pub(super) fn site_numbers(&self, member: &PeerKey) -> impl Iterator<Item = u32> {
        (0..MAX_SITE_NUMBER_ATTEMPTS).map(move |attempt| self.site_number(member, attempt))
    }

    fn digest<const N: usize>(&self, purpose: &[u8], parts: &[&[u8]]) -> [u8; N] {
        let mut mac =
            <Blake2sMac<U16> as blake2::digest::KeyInit>::new_from_slice(&self.0).expect("the key has 32 bytes");
        mac.update(purpose);
        parts.iter().for_each(|part| mac.update(part));
        let whole = mac.finalize().into_bytes();
        std::array::from_fn(|at| whole[at])
    }
}

/// Sealer and site number with which one run of a site seals its packets.
pub(super) struct MulticastSealer {
    sealer: Sealer,
    site: u32,
}

impl MulticastSealer {
    pub(super) fn new(mesh_key: &MeshKey, site: u32, run_id: RunId) -> Self {
        Self { sealer: Sealer::new(&mesh_key.0, run_id, 0), site }
    }

    /// Seals a packet for the subscribers of a channel. Returns `None` if the content is too long for the cipher, or if
    /// all 48-bit packet numbers are used up.
    pub(super) fn seal(&mut self, channel: u8, timestamp: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        let number = self.sealer.next_number();
        let upper = u32::try_from(number >> 16).ok()?;
        let builder = RtpPacketBuilder::<&[u8], &[u8]>::new().payload_type(PAYLOAD_TYPE).ssrc(self.site);
        let mut packet = builder.sequence_number(number as u16).timestamp(timestamp).write_vec().ok()?;
        packet.push(channel);
        packet.extend_from_slice(&upper.to_be_bytes());
        let head: [u8; HEADER_LEN] = *packet.first_chunk()?;
        self.sealer.seal(&head, bytes, &mut packet)?;
        Some(packet)
    }
}

/// Counts of rejected multicast packets, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RejectedPackets {
    /// Packets that do not have the format of a mesh packet.
    pub garbage: u64,
    /// Packets whose stated site is not a member that this site knows first-hand, or has left the mesh.
    pub unknown_senders: u64,
    /// Packets sealed with another key or in another run of the sender, or modified.
    pub forged: u64,
    /// Packets received before, or too old to decide.
    pub replayed: u64,
}

impl RejectedPackets {
    /// Returns the sum of all counts.
    pub fn total(&self) -> u64 {
        self.garbage + self.unknown_senders + self.forged + self.replayed
    }
}

/// Result of opening a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// Rejected, or on a channel without subscription.
    Ignored,
    /// A packet with this site's own number, not authenticated.
    Own,
    /// Authentic content from another site.
    Content { site: u32, bytes: Vec<u8> },
}

/// Key and replay filters with which a site opens the packets of all others.
pub(super) struct MulticastOpener {
    opener: Opener,
    own_site: u32,
    sources: BTreeMap<u32, PacketSource>,
    rejected: RejectedPackets,
}

/// A site from which packets are accepted.
struct PacketSource {
    run_id: RunId,
    replay_filter: ReplayFilter,
}

impl MulticastOpener {
    pub(super) fn new(mesh_key: &MeshKey, own_site: u32) -> Self {
        Self {
            opener: Opener::new(&mesh_key.0),
            own_site,
            sources: BTreeMap::new(),
            rejected: RejectedPackets::default(),
        }
    }

    pub(super) fn rejected(&self) -> RejectedPackets {
        self.rejected
    }

    /// Accepts packets only from these sites, in these runs. A site that was accepted before in the same run keeps its
    /// replay filter.
    pub(super) fn set_sources(&mut self, sources: impl IntoIterator<Item = (u32, RunId)>) {
        let mut before = std::mem::take(&mut self.sources);
        for (site, run_id) in sources {
            let known = before.remove(&site).filter(|source| source.run_id == run_id);
            self.sources
                .insert(site, known.unwrap_or_else(|| PacketSource { run_id, replay_filter: ReplayFilter::new() }));
        }
    }

    /// Opens a packet from an untrusted sender. A packet on a channel without subscription is ignored.
    pub(super) fn open(&mut self, packet: &[u8], is_subscribed: impl Fn(u8) -> bool) -> Opened {
        let Some(PacketHeader { site, channel, number }) = PacketHeader::parse(packet) else {
            self.rejected.garbage += 1;
            return Opened::Ignored;
        };
        if site == self.own_site {
            return Opened::Own;
        }
        let Some(source) = self.sources.get_mut(&site) else {
            self.rejected.unknown_senders += 1;
            return Opened::Ignored;
        };
        if !is_subscribed(channel) {
            return Opened::Ignored;
        }
        if !source.replay_filter.is_new(number) {
            self.rejected.replayed += 1;
            return Opened::Ignored;
        }
        let (head, sealed) = packet.split_at(HEADER_LEN);
        let Some(bytes) = self.opener.open(&source.run_id, number, head, sealed) else {
            self.rejected.forged += 1;
            return Opened::Ignored;
        };
        source.replay_filter.record(number);
        Opened::Content { site, bytes }
    }
}

/// Unencrypted header of a packet.
struct PacketHeader {
    site: u32,
    channel: u8,
    number: u64,
}

impl PacketHeader {
    /// Parses the header; `None` if the packet does not have the format of a mesh packet.
    fn parse(packet: &[u8]) -> Option<Self> {
        let rtp = RtpPacket::parse(packet).ok()?;
        let plain = !rtp.padding_bit() && !rtp.extension_bit() && rtp.n_csrcs() == 0 && !rtp.marker_bit();
        let ours = plain && rtp.payload_type() == PAYLOAD_TYPE && packet.len() >= SEAL_OVERHEAD;
        let &[channel, a, b, c, d] = packet.get(RTP_HEADER_LEN..HEADER_LEN).filter(|_| ours)? else { return None };
        let number = u64::from(u32::from_be_bytes([a, b, c, d])) << 16 | u64::from(rtp.sequence_number());
        Some(Self { site: rtp.ssrc(), channel, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_ID: RunId = [5; 16];

    fn pair() -> (MeshKey, MulticastSealer, MulticastOpener) {
        let mesh_key = MeshKey::random();
        let (sealer, mut opener) = (MulticastSealer::new(&mesh_key, 7, RUN_ID), MulticastOpener::new(&mesh_key, 8));
        opener.set_sources([(7, RUN_ID)]);
        (mesh_key, sealer, opener)
    }

    fn content(bytes: &[u8]) -> Opened {
        Opened::Content { site: 7, bytes: bytes.to_vec() }
    }

    #[test]
    fn packets_are_rtp_and_replays_are_rejected() {
        let (_, mut sealer, mut opener) = pair();
        for (number, bytes) in [&b"hello"[..], b"", &[9; 1_200]].into_iter().enumerate() {
            let packet = sealer.seal(0, 90_000, bytes).unwrap();
            assert_eq!(packet.len(), bytes.len() + SEAL_OVERHEAD);
            let rtp = RtpPacket::parse(&packet).unwrap();
            assert_eq!((rtp.version(), rtp.payload_type(), rtp.ssrc(), rtp.timestamp()), (2, 96, 7, 90_000));
            assert_eq!(usize::from(rtp.sequence_number()), number);
            assert_eq!(opener.open(&packet, |_| true), content(bytes));
            assert_eq!(opener.open(&packet, |_| true), Opened::Ignored);
        }
        assert_eq!(opener.rejected(), RejectedPackets { replayed: 3, ..RejectedPackets::default() });
    }

    /// The expected bytes come from another implementation of the cipher (PyCryptodome).
    #[test]
    fn a_packet_has_known_bytes() {
        let packet = MulticastSealer::new(&MeshKey([1; 32]), 7, RUN_ID).seal(3, 90_000, b"hello").unwrap();
        let known = [
            0x80, 0x60, 0x00, 0x00, 0x00, 0x01, 0x5f, 0x90, 0x00, 0x00, 0x00, 0x07, 0x03, 0x00, 0x00, 0x00, 0x00, 0x39,
            0x7b, 0x0f, 0xd7, 0x01, 0x81, 0xa6, 0x69, 0xa5, 0x0a, 0xaa, 0xef, 0x63, 0x90, 0x4c, 0xd0, 0x4e, 0x60, 0xb8,
            0x0c, 0x8e,
        ];
        assert_eq!(packet, known);
    }

    #[test]
    fn sequence_number_wraps_without_nonce_reuse() {
        let (mesh_key, _, mut opener) = pair();
        let sealer_at = |first| MulticastSealer { sealer: Sealer::new(&mesh_key.0, RUN_ID, first), site: 7 };
        let mut sealer = sealer_at((1 << 16) - 2);
        let packets: Vec<Vec<u8>> = (0..4).map(|_| sealer.seal(0, 0, b"x").unwrap()).collect();
        for packet in packets.iter().rev() {
            assert_eq!(opener.open(packet, |_| true), content(b"x"));
        }
        assert!(packets.iter().all(|packet| opener.open(packet, |_| true) == Opened::Ignored));
        assert_eq!(sealer_at(1 << 48).seal(0, 0, b"x"), None, "no nonce is reused");
    }

    #[test]
    fn modified_packets_are_rejected() {
        let (_, mut sealer, mut opener) = pair();
        let packet = sealer.seal(3, 1, b"hello").unwrap();
        for at in 0..packet.len() {
            for bit in 0..8 {
                let mut changed = packet.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(opener.open(&changed, |_| true), Opened::Ignored, "bit {bit} of byte {at}");
            }
        }
        (0..packet.len()).for_each(|len| assert_eq!(opener.open(&packet[..len], |_| true), Opened::Ignored));
        let RejectedPackets { garbage, unknown_senders, forged, replayed } = opener.rejected();
        // Sixteen bits of the header are constant in our packets, and 32 bits state the sender.
        assert!(garbage > 0 && unknown_senders == 32 && forged > 200 && replayed == 0, "{:?}", opener.rejected());
        assert_eq!(opener.rejected().total(), packet.len() as u64 * 9);
        assert_eq!(opener.open(&packet, |_| true), content(b"hello"), "the authentic packet is still accepted");
    }

    #[test]
    fn only_members_current_run_is_accepted() {
        let (mesh_key, mut sealer, mut opener) = pair();
        let old = sealer.seal(0, 0, b"old").unwrap();
        let other = MulticastSealer::new(&MeshKey::random(), 7, RUN_ID).seal(0, 0, b"other").unwrap();
        let stranger = MulticastSealer::new(&mesh_key, 9, RUN_ID).seal(0, 0, b"stranger").unwrap();
        let own = MulticastSealer::new(&mesh_key, 8, RUN_ID).seal(0, 0, b"own").unwrap();
        assert_eq!(opener.open(&other, |_| true), Opened::Ignored);
        assert_eq!(opener.open(&stranger, |_| true), Opened::Ignored);
        assert_eq!(opener.open(&own, |_| true), Opened::Own);
        opener.set_sources([(7, [6; 16])]);
        let new = MulticastSealer::new(&mesh_key, 7, [6; 16]).seal(0, 0, b"new").unwrap();
        assert_eq!(opener.open(&old, |_| true), Opened::Ignored);
        assert_eq!(opener.open(&new, |_| true), content(b"new"));
        opener.set_sources([(7, [6; 16]), (9, RUN_ID)]);
        assert_eq!(opener.open(&new, |_| true), Opened::Ignored, "the replay filter is kept");
        assert_eq!(opener.rejected(), RejectedPackets { garbage: 0, unknown_senders: 1, forged: 2, replayed: 1 });
    }

    #[test]
    fn unsubscribed_channels_are_ignored() {
        let (_, mut sealer, mut opener) = pair();
        let packet = sealer.seal(3, 0, b"hello").unwrap();
        assert_eq!(opener.open(&packet, |channel| channel == 0), Opened::Ignored);
        assert_eq!(opener.open(&packet, |channel| channel == 3), content(b"hello"));
        assert_eq!(opener.rejected(), RejectedPackets::default());
    }

    #[test]
    fn site_number_depends_on_peer_key_and_mesh_key() {
        let (one, other, key) = (MeshKey::random(), MeshKey::random(), PeerKey([1; 32]));
        assert_eq!(one.site_number(&key, 0), one.clone().site_number(&key, 0));
        assert_ne!(one.site_number(&key, 0), one.site_number(&key, 1));
        assert_ne!((one.site_number(&key, 0), one.mesh_id()), (other.site_number(&key, 0), other.mesh_id()));
        assert!(!format!("{one:?}").contains(','), "debug output goes to logs and must not contain a key");
    }
}
