//! Where a peer lives: its key, and ways that may lead to it.

use std::net::{IpAddr, SocketAddr};

use ::iroh::{EndpointAddr, EndpointId, RelayUrl, TransportAddr};
use serde::{Deserialize, Serialize};

use crate::base32;
use crate::key::PeerKey;
use crate::lobby::MAX_PEER_ADDR_LEN;
use crate::transport::PeerAddr;

/// The most addresses of one home: some computers have dozens, and few of them lead anywhere.
pub const MAX_SOCKET_ADDRS: usize = 6;
/// The longest name of a relay.
const MAX_RELAY_URL_LEN: usize = 100;

const SCHEME: &str = "iroh:";

/// Who somebody is, and where it may be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrohAddr {
    /// Who lives there.
    pub key: PeerKey,
    /// The address of a relay that leads to it, if there is one.
    pub relay: Option<String>,
    /// Its own addresses, as far as known.
    pub addrs: Vec<SocketAddr>,
}

impl IrohAddr {
    pub(super) fn new<'a>(key: PeerKey, ways: impl IntoIterator<Item = &'a TransportAddr>) -> Self {
        let mut home = Self { key, relay: None, addrs: Vec::new() };
        for way in ways {
            match way {
                TransportAddr::Relay(url) if home.relay.is_none() && url.as_str().len() <= MAX_RELAY_URL_LEN => {
                    home.relay = Some(url.to_string());
                }
                TransportAddr::Ip(addr) if is_advertisable(addr.ip()) => home.addrs.push(*addr),
                _ => {}
            }
        }
        // The older family is shorter to tell, and leads to more.
        home.addrs.sort_by_key(SocketAddr::is_ipv6);
        home.addrs.dedup();
        home.addrs.truncate(MAX_SOCKET_ADDRS);
        home
    }

    /// Takes in what another one knows of the same peer.
    pub(super) fn merge(&mut self, other: &Self) {
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

    /// Whether it makes sense, whoever told it.
    pub(crate) fn is_valid(&self) -> bool {
        let relay =
            self.relay.as_ref().is_none_or(|url| url.len() <= MAX_RELAY_URL_LEN && url.parse::<RelayUrl>().is_ok());
        relay && self.addrs.len() <= MAX_SOCKET_ADDRS && EndpointId::from_bytes(&self.key.0).is_ok()
    }

    pub(super) fn endpoint_addr(&self) -> Option<EndpointAddr> {
        let id = EndpointId::from_bytes(&self.key.0).ok()?;
        let relay = self.relay.as_ref().and_then(|url| url.parse().ok()).map(TransportAddr::Relay);
        Some(EndpointAddr::from_parts(id, relay.into_iter().chain(self.addrs.iter().copied().map(TransportAddr::Ip))))
    }

    /// The home as a place that others can be told: without the addresses for which there is no room.
    ///
    /// # Panics
    /// Never: what it is made of can be written.
    pub fn to_peer_addr(&self) -> PeerAddr {
        let mut home = self.clone();
        loop {
            let bytes = postcard::to_allocvec(&home).expect("plain values");
            let text = format!("{SCHEME}{}", base32::encode(&bytes));
            if text.len() <= MAX_PEER_ADDR_LEN || home.addrs.pop().is_none() {
                return PeerAddr(text);
            }
        }
    }

    /// The home that a place of this transport stands for.
    pub fn from_peer_addr(place: &PeerAddr) -> Option<Self> {
        let text = place.0.strip_prefix(SCHEME).filter(|text| text.len() <= MAX_PEER_ADDR_LEN)?;
        let bytes = base32::decode(text)?;
        let (home, rest) = postcard::take_from_bytes::<Self>(&bytes).ok()?;
        (rest.is_empty() && home.is_valid()).then_some(home)
    }
}

/// An address that means something to somebody else.
fn is_advertisable(ip: IpAddr) -> bool {
    let local_to_a_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_unspecified() && !local_to_a_link
}

/// A key that is none.
#[cfg(test)]
pub(crate) fn invalid_key() -> PeerKey {
    let mut keys = (0..=u8::MAX).map(|byte| PeerKey([byte; 32]));
    keys.find(|key| EndpointId::from_bytes(&key.0).is_err()).expect("every other number is none")
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
        let ways = [
            ip("[2001:db8::7]:4711"),
            ip("192.0.2.7:4711"),
            TransportAddr::Relay("https://relay.example".parse().unwrap()),
        ];
        let home = IrohAddr::new(random_key(), &ways);
        assert!(home.addrs[0].is_ipv4() && home.addrs.len() == 2 && home.relay.is_some());
        assert_eq!(IrohAddr::from_peer_addr(&home.to_peer_addr()), Some(home));
    }

    /// However many addresses there are, others take the place.
    #[test]
    fn peer_addr_length_is_bounded() {
        let many: Vec<_> = (0..40).map(|at| ip(&format!("[2001:db8:1234:5678:9abc:def0:1234:{at:x}]:54321"))).collect();
        let relay = TransportAddr::Relay(format!("https://{}.example", "x".repeat(60)).parse().unwrap());
        let home = IrohAddr::new(random_key(), many.iter().chain([&relay]));
        assert_eq!(home.addrs.len(), MAX_SOCKET_ADDRS);
        let place = home.to_peer_addr();
        assert!(place.0.len() <= MAX_PEER_ADDR_LEN, "{place}");
        let back = IrohAddr::from_peer_addr(&place).unwrap();
        assert_eq!((back.key, &back.relay), (home.key, &home.relay));
    }

    #[test]
    fn unroutable_addresses_are_left_out() {
        let home = IrohAddr::new(random_key(), &[ip("[fe80::1]:1"), ip("0.0.0.0:1"), ip("10.0.0.1:1")]);
        assert_eq!(home.addrs, ["10.0.0.1:1".parse().unwrap()]);
    }

    #[test]
    fn invalid_peer_addrs_are_rejected() {
        let place = IrohAddr::new(random_key(), &[ip("192.0.2.7:4711")]).to_peer_addr().0;
        let cut = &place[..place.len() - 3];
        let more = format!("{place}aaaaaaaa");
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
