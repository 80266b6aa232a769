//! Stateless cookies: a sender that returns a cookie receives the datagrams to the address to which the cookie was
//! sent.

use std::net::SocketAddr;

use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{KeyInit, Mac};
use coplay::time::{Instant, TimeDelta};

use crate::key::random_bytes;

pub(super) type Cookie = [u8; COOKIE_LEN];
pub(super) const COOKIE_LEN: usize = 16;

/// Length of a cookie period. A cookie is valid until the end of the period after its own, for 20 to 40 s.
const COOKIE_PERIOD: TimeDelta = TimeDelta::from_secs(20);

/// Random key with which an endpoint computes and checks its cookies.
#[derive(Debug)]
pub(super) struct CookieGenerator {
    key: [u8; 32],
}

impl CookieGenerator {
    pub(super) fn new() -> Self {
        Self { key: random_bytes() }
    }

    pub(super) fn cookie(&self, now: Instant, addr: SocketAddr) -> Cookie {
        self.cookie_for_period(period(now), addr)
    }

    pub(super) fn is_valid(&self, now: Instant, addr: SocketAddr, cookie: &Cookie) -> bool {
        let current = period(now);
        [current, current.wrapping_sub(1)].iter().any(|period| self.cookie_for_period(*period, addr) == *cookie)
    }

    fn cookie_for_period(&self, period: u64, addr: SocketAddr) -> Cookie {
        let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(&self.key).expect("the key has 32 bytes");
        mac.update(&period.to_le_bytes());
        mac.update(&addr.port().to_le_bytes());
        match addr.ip().to_canonical() {
            std::net::IpAddr::V4(ip) => mac.update(&ip.octets()),
            std::net::IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        mac.finalize().into_bytes().into()
    }
}

fn period(now: Instant) -> u64 {
    (now.as_nanos() / COOKIE_PERIOD.as_nanos()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_valid_for_one_address_and_limited_time() {
        let (generator, now) = (CookieGenerator::new(), Instant::ZERO + COOKIE_PERIOD * 7);
        let [one, other]: [SocketAddr; 2] = ["10.0.0.1:7000", "10.0.0.1:7001"].map(|addr| addr.parse().unwrap());
        let cookie = generator.cookie(now, one);
        assert!(generator.is_valid(now, one, &cookie) && generator.is_valid(now + COOKIE_PERIOD, one, &cookie));
        assert!(!generator.is_valid(now, other, &cookie) && !generator.is_valid(now + COOKIE_PERIOD * 2, one, &cookie));
        assert!(!CookieGenerator::new().is_valid(now, one, &cookie));
    }
}
