//! Limits on connections that have not proved who they are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

/// The maximum number of handshakes under way, from all addresses.
const HANDSHAKES_MAX: usize = 1024;
/// The maximum number of handshakes under way from one address.
const HANDSHAKES_OF_ADDRESS_MAX: usize = 32;

/// The handshakes that are under way, by address. Strangers can begin any number of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshakes(Rc<RefCell<HashMap<IpAddr, usize>>>);

/// A handshake that is under way. It has ended when this is dropped.
#[derive(Debug)]
pub(super) struct Handshake {
    all: Handshakes,
    from: IpAddr,
}

impl Handshakes {
    /// Begins a handshake with an address, unless there are too many.
    pub(super) fn begin(&self, from: IpAddr) -> Option<Handshake> {
        let mut counts = self.0.borrow_mut();
        let total: usize = counts.values().sum();
        let count = counts.get(&from).copied().unwrap_or(0);
        if total >= HANDSHAKES_MAX || count >= HANDSHAKES_OF_ADDRESS_MAX {
            return None;
        }
        counts.insert(from, count + 1);
        let all = self.clone();
        Some(Handshake { all, from })
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut counts = self.all.0.borrow_mut();
        if let Some(count) = counts.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_many_handshakes_leaves_room_for_others() {
        let (one, two) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let handshakes = Handshakes::default();
        let mut held: Vec<_> = core::iter::from_fn(|| handshakes.begin(one)).collect();
        assert_eq!(held.len(), HANDSHAKES_OF_ADDRESS_MAX);
        assert!(handshakes.begin(two).is_some());
        held.pop();
        assert!(handshakes.begin(one).is_some());
        held.clear();
        assert!(handshakes.0.borrow().is_empty());
    }

    #[test]
    fn the_number_of_all_handshakes_is_limited() {
        let handshakes = Handshakes::default();
        let addresses = (0..u32::MAX).map(|number| IpAddr::from(number.to_be_bytes()));
        let held: Vec<_> = addresses
            .map_while(|address| handshakes.begin(address))
            .collect();
        assert_eq!(held.len(), HANDSHAKES_MAX);
    }
}
