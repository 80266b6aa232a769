//! Cookies: who says one back has the address that it was sent to. Nothing is kept for it.

use std::net::SocketAddr;

use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{KeyInit, Mac};
use coplay::time::{Instant, TimeDelta};

use crate::key::random;

pub(super) type Cookie = [u8; COOKIE];
pub(super) const COOKIE: usize = 16;

/// A cookie is good for one to two of these.
const AGE: TimeDelta = TimeDelta::from_secs(20);

/// What makes the cookies.
#[derive(Debug)]
pub(super) struct Jar {
    key: [u8; 32],
}

impl Jar {
    pub(super) fn new() -> Self {
        Self { key: random() }
    }

    pub(super) fn cookie(&self, now: Instant, addr: SocketAddr) -> Cookie {
        self.of_age(age(now), addr)
    }

    pub(super) fn is_good(&self, now: Instant, addr: SocketAddr, cookie: &Cookie) -> bool {
        let age = age(now);
        [age, age.wrapping_sub(1)].iter().any(|age| self.of_age(*age, addr) == *cookie)
    }

    fn of_age(&self, age: u64, addr: SocketAddr) -> Cookie {
        let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(&self.key).expect("a key of 32 bytes");
        mac.update(&age.to_le_bytes());
        mac.update(&addr.port().to_le_bytes());
        match addr.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => mac.update(&ip.octets()),
            std::net::IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        mac.finalize().into_bytes().into()
    }
}

fn age(now: Instant) -> u64 {
    (now.as_nanos() / AGE.as_nanos()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_one_address_and_a_while() {
        let (jar, now) = (Jar::new(), Instant::ZERO + AGE * 7);
        let [here, there]: [SocketAddr; 2] = ["10.0.0.1:7000", "10.0.0.1:7001"].map(|addr| addr.parse().unwrap());
        let cookie = jar.cookie(now, here);
        assert!(jar.is_good(now, here, &cookie) && jar.is_good(now + AGE, here, &cookie));
        assert!(!jar.is_good(now, there, &cookie) && !jar.is_good(now + AGE * 2, here, &cookie));
        assert!(!Jar::new().is_good(now, here, &cookie));
    }
}
