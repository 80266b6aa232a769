//! Address of an iroh peer: its key, and network paths that may lead to it.

use std::net::{IpAddr, SocketAddr};

use ::iroh::{EndpointAddr, EndpointId, RelayUrl, TransportAddr};
use serde::{Deserialize, Serialize};

use super::{MAX_PEER_ADDR_LEN, PeerAddr};
use crate::base32;
use crate::key::PeerKey;

/// Maximum number of socket addresses of one peer: some computers have dozens, and few of them are reachable.
pub const MAX_SOCKET_ADDRS: usize = 6;
/// Maximum length of a relay URL, in bytes.
const MAX_RELAY_URL_LEN: usize = 100;

const SCHEME: &str = "iroh:";

/// Key of a peer and its known addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrohAddr {
    /// Ed25519 public key, which the peer proves in the QUIC handshake.
    pub key: PeerKey,
    /// URL of a relay that reaches the peer, if there is one.
    pub relay: Option<String>,
    /// Socket addresses at which the peer may be reached; more than [`MAX_SOCKET_ADDRS`] are invalid in a ticket or in
    /// an address from another peer.
    pub addrs: Vec<SocketAddr>,
}

impl IrohAddr {
    pub(crate) fn new<'a>(key: PeerKey, paths: impl IntoIterator<Item = &'a TransportAddr>) -> Self {
        let mut iroh_addr = Self { key, relay: None, addrs: Vec::new() };
        for path in paths {
            match path {
                TransportAddr::Relay(url) if iroh_addr.relay.is_none() && url.as_str().len() <= MAX_RELAY_URL_LEN => {
                    iroh_addr.relay = Some(url.to_string());
                }
                TransportAddr::Ip(addr) if is_advertisable(addr.ip()) => iroh_addr.addrs.push(*addr),
                _ => {}
            }
        }
        // IPv4 addresses are shorter to send and reachable from more networks.
        iroh_addr.addrs.sort_by_key(SocketAddr::is_ipv6);
        iroh_addr.addrs.dedup();
        iroh_addr.addrs.truncate(MAX_SOCKET_ADDRS);
        iroh_addr
    }

    /// Takes over the relay of `other`, if there is one. Puts those socket addresses of `other` that `self` lacks in
    /// front, and keeps at most 12 in total.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.relay.is_some() {
            self.relay.clone_from(&other.relay);
        }
        for addr in &other.addrs {
            if !self.addrs.contains(addr) {
                self.addrs.insert(0, *addr);
            }
        }
        self.addrs.truncate(2 * MAX_SOCKET_ADDRS);
    }

    /// Returns whether an address from an untrusted source has a valid key, a valid relay URL of at most 100 bytes if
    /// any, and at most [`MAX_SOCKET_ADDRS`] socket addresses.
    pub(crate) fn is_valid(&self) -> bool {
        let relay =
            self.relay.as_ref().is_none_or(|url| url.len() <= MAX_RELAY_URL_LEN && url.parse::<RelayUrl>().is_ok());
        relay && self.addrs.len() <= MAX_SOCKET_ADDRS && EndpointId::from_bytes(&self.key.0).is_ok()
    }

    pub(crate) fn endpoint_addr(&self) -> Option<EndpointAddr> {
        let id = EndpointId::from_bytes(&self.key.0).ok()?;
        let relay = self.relay.as_ref().and_then(|url| url.parse().ok()).map(TransportAddr::Relay);
        Some(EndpointAddr::from_parts(id, relay.into_iter().chain(self.addrs.iter().copied().map(TransportAddr::Ip))))
    }

    /// Returns the address as text for other peers. Drops socket addresses from the end until the text fits
    /// [`MAX_PEER_ADDR_LEN`] or none is left.
    ///
    /// # Panics
    /// Never: every field can be encoded.
    pub fn to_peer_addr(&self) -> PeerAddr {
        let mut iroh_addr = self.clone();
        loop {
            let bytes = postcard::to_allocvec(&iroh_addr).expect("every field can be encoded");
            let text = format!("{SCHEME}{}", base32::encode(&bytes));
            if text.len() <= MAX_PEER_ADDR_LEN || iroh_addr.addrs.pop().is_none() {
                return PeerAddr(text);
            }
        }
    }

    /// Parses an address of this transport; `None` for any other text and for an invalid address.
    pub fn from_peer_addr(addr: &PeerAddr) -> Option<Self> {
        let text = addr.0.strip_prefix(SCHEME).filter(|text| text.len() <= MAX_PEER_ADDR_LEN)?;
        let bytes = base32::decode(text)?;
        let (iroh_addr, rest) = postcard::take_from_bytes::<Self>(&bytes).ok()?;
        (rest.is_empty() && iroh_addr.is_valid()).then_some(iroh_addr)
    }
}

/// Returns whether an address may be of use to a peer: true unless it is unspecified or IPv6 link-local.
fn is_advertisable(ip: IpAddr) -> bool {
    let local_to_a_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_unspecified() && !local_to_a_link
}

/// Returns bytes that are not a valid public key.
#[cfg(test)]
pub(crate) fn invalid_key() -> PeerKey {
    let mut keys = (0..=u8::MAX).map(|byte| PeerKey([byte; 32]));
    keys.find(|key| EndpointId::from_bytes(&key.0).is_err()).expect("about half of all values are invalid keys")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::random_bytes;

    fn random_key() -> PeerKey {
        PeerKey(*::iroh::SecretKey::from_bytes(&random_bytes()).public().as_bytes())
    }

    fn ip(text: &str) -> TransportAddr {
        TransportAddr::Ip(text.parse().unwrap())
    }

    #[test]
    fn iroh_addr_round_trips_through_peer_addr() {
        let paths = [
            ip("[2001:db8::7]:4711"),
            ip("192.0.2.7:4711"),
            TransportAddr::Relay("https://relay.example".parse().unwrap()),
        ];
        let iroh_addr = IrohAddr::new(random_key(), &paths);
        assert!(iroh_addr.addrs[0].is_ipv4() && iroh_addr.addrs.len() == 2 && iroh_addr.relay.is_some());
        assert_eq!(IrohAddr::from_peer_addr(&iroh_addr.to_peer_addr()), Some(iroh_addr));
    }

    /// The text of an address with many socket addresses still fits the length limit of a peer address.
    #[test]
    fn peer_addr_length_is_bounded() {
        let many: Vec<_> = (0..40).map(|at| ip(&format!("[2001:db8:1234:5678:9abc:def0:1234:{at:x}]:54321"))).collect();
        let relay = TransportAddr::Relay(format!("https://{}.example", "x".repeat(60)).parse().unwrap());
        let iroh_addr = IrohAddr::new(random_key(), many.iter().chain([&relay]));
        assert_eq!(iroh_addr.addrs.len(), MAX_SOCKET_ADDRS);
        let addr = iroh_addr.to_peer_addr();
        assert!(addr.0.len() <= MAX_PEER_ADDR_LEN, "{addr}");
        let back = IrohAddr::from_peer_addr(&addr).unwrap();
        assert_eq!((back.key, &back.relay), (iroh_addr.key, &iroh_addr.relay));
    }

    #[test]
    fn unroutable_addresses_are_left_out() {
        let iroh_addr = IrohAddr::new(random_key(), &[ip("[fe80::1]:1"), ip("0.0.0.0:1"), ip("10.0.0.1:1")]);
        assert_eq!(iroh_addr.addrs, ["10.0.0.1:1".parse().unwrap()]);
    }

    #[test]
    fn invalid_peer_addrs_are_rejected() {
        let addr = IrohAddr::new(random_key(), &[ip("192.0.2.7:4711")]).to_peer_addr().0;
        let cut = &addr[..addr.len() - 3];
        let more = format!("{addr}aaaaaaaa");
        let longer = format!("{SCHEME}{}", "a".repeat(500));
        for bad in ["", "iroh:", "iroh:1", "127.0.0.1:7000", cut, &more, &longer] {
            assert_eq!(IrohAddr::from_peer_addr(&PeerAddr(bad.into())), None, "{bad}");
        }
        let no_key = IrohAddr { key: invalid_key(), relay: None, addrs: vec![] };
        assert_eq!(IrohAddr::from_peer_addr(&no_key.to_peer_addr()), None);
        let no_relay = IrohAddr { key: random_key(), relay: Some("not a url".into()), addrs: vec![] };
        assert_eq!(IrohAddr::from_peer_addr(&no_relay.to_peer_addr()), None);
    }
}
