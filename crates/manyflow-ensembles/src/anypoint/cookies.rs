//! Cookies, with which an end proves its address before it costs any state.
//!
//! A cookie is SipHash-2-4 with 128 bits over the address, the port and the period of time, under a
//! random key of this process. The cookies of the present and of the previous period are valid.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use manyflow_core::time::Time;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use subtle::ConstantTimeEq as _;

use super::envelope::Cookie;

/// The length of a period. A cookie is valid for one to two periods.
const PERIOD: Duration = Duration::from_secs(60);

/// Makes and checks cookies.
#[derive(Debug)]
pub(super) struct Cookies {
    key: [u8; 16],
}

impl Cookies {
    /// Draws a key.
    pub(super) fn new() -> Cookies {
        Cookies {
            key: super::random(),
        }
    }

    /// Returns the cookie of an address.
    pub(super) fn cookie(&self, now: Time, address: SocketAddr) -> Cookie {
        self.cookie_of(period(now), address)
    }

    /// Returns whether the cookie is that of the address.
    pub(super) fn is_valid(&self, now: Time, address: SocketAddr, cookie: &Cookie) -> bool {
        let present = period(now);
        let periods = [Some(present), present.checked_sub(1)];
        let mut valid = periods.into_iter().flatten();
        valid.any(|period| bool::from(self.cookie_of(period, address).ct_eq(cookie)))
    }

    fn cookie_of(&self, period: u64, address: SocketAddr) -> Cookie {
        let ip = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let mut input = [0; 26];
        input[..16].copy_from_slice(&ip);
        input[16..18].copy_from_slice(&address.port().to_be_bytes());
        input[18..].copy_from_slice(&period.to_be_bytes());
        let mut hasher = SipHasher24::new_with_key(&self.key);
        std::hash::Hasher::write(&mut hasher, &input);
        hasher.finish128().as_bytes()
    }
}

fn period(now: Time) -> u64 {
    (now - Time::ZERO).as_secs() / PERIOD.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_valid_for_its_address_and_two_periods() {
        let cookies = Cookies::new();
        let (one, two) = (
            SocketAddr::from(([127, 0, 0, 1], 9)),
            SocketAddr::from(([127, 0, 0, 1], 10)),
        );
        let made = Time::ZERO + 3 * PERIOD;
        let cookie = cookies.cookie(made, one);
        assert!(cookies.is_valid(made, one, &cookie));
        assert!(cookies.is_valid(made + PERIOD, one, &cookie));
        assert!(!cookies.is_valid(made + 2 * PERIOD, one, &cookie));
        assert!(!cookies.is_valid(made, two, &cookie));
        assert!(!Cookies::new().is_valid(made, one, &cookie));
        assert!(!cookies.is_valid(made, one, &[0; 16]));
    }
}
