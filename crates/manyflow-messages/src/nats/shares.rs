//! The memory that the subscriptions of users and connections take.
//!
//! All groups of a daemon's clients share a pool. A user may take at most three times what the pool
//! has left, and one of its connections at most three times what the user has left. So one user
//! alone may take three quarters of the pool, but however many take as much as they can, there is
//! room for another (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
//! switches", 1998).

use std::collections::HashMap;
use std::rc::Rc;

/// The memory that a subscription takes at most besides its texts, in bytes. That of its group is
/// counted in the state of the daemon.
const SUBSCRIPTION_BYTES: usize = 512;
/// The maximum of a share, as a multiple of what is left.
const MULTIPLE: usize = 3;

/// The bytes that the subscriptions of each user take.
#[derive(Debug)]
pub(crate) struct Shares {
    pool: usize,
    taken: usize,
    /// No number is zero.
    users: HashMap<Rc<str>, usize>,
}

impl Shares {
    /// Returns the shares of a pool of this many bytes.
    pub(crate) fn new(pool: usize) -> Shares {
        Shares {
            pool,
            taken: 0,
            users: HashMap::new(),
        }
    }

    /// Returns the bytes of the pool.
    pub(crate) fn pool(&self) -> usize {
        self.pool
    }

    /// Returns the bytes that the subscriptions of a user take.
    pub(crate) fn of_user(&self, user: &str) -> usize {
        self.users.get(user).copied().unwrap_or(0)
    }

    /// Returns whether a connection of a user, whose subscriptions take `connection` bytes, may
    /// take `bytes` more.
    pub(crate) fn fits(&self, user: &str, connection: usize, bytes: usize) -> bool {
        let of_user = self.of_user(user) + bytes;
        let Some(free) = self.pool.checked_sub(self.taken + bytes) else {
            return false;
        };
        let of_user_free = (MULTIPLE * free).checked_sub(of_user);
        of_user_free.is_some_and(|free| connection + bytes <= MULTIPLE * free)
    }

    pub(crate) fn add(&mut self, user: &Rc<str>, bytes: usize) {
        self.taken += bytes;
        *self.users.entry(Rc::clone(user)).or_default() += bytes;
    }

    pub(crate) fn remove(&mut self, user: &str, bytes: usize) {
        self.taken -= bytes;
        if let Some(of_user) = self.users.get_mut(user) {
            *of_user -= bytes;
            if *of_user == 0 {
                self.users.remove(user);
            }
        }
    }
}

/// Returns the bytes that a subscription takes at most.
pub(crate) fn subscription_bytes(pattern: &[u8], queue: Option<&[u8]>, sid: &[u8]) -> usize {
    let texts = pattern.len() + queue.map_or(0, <[u8]>::len) + sid.len();
    SUBSCRIPTION_BYTES + texts
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: usize = 1_000_000;

    /// Takes as much as a new connection of a user can in steps of 100 bytes.
    fn fill(shares: &mut Shares, user: &str) -> usize {
        let user: Rc<str> = Rc::from(user);
        let mut connection = 0;
        while shares.fits(&user, connection, 100) {
            shares.add(&user, 100);
            connection += 100;
        }
        connection
    }

    #[test]
    fn a_connection_alone_may_take_two_thirds_of_the_pool() {
        let mut shares = Shares::new(POOL);
        let taken = fill(&mut shares, "a");
        assert!((600_000..750_000).contains(&taken), "{taken}");
    }

    #[test]
    fn greedy_connections_of_a_user_leave_room_for_others_of_the_user_and_for_other_users() {
        let mut shares = Shares::new(POOL);
        let of_a: Vec<_> = (0..3).map(|_| fill(&mut shares, "a")).collect();
        assert!(of_a.iter().all(|taken| *taken > 100), "{of_a:?}");
        let of_a = of_a.iter().sum::<usize>();
        assert!(of_a <= POOL * 3 / 4, "{of_a}");
        let of_b = fill(&mut shares, "b");
        assert!(of_b > 50_000, "{of_b}");
        assert!(fill(&mut shares, "c") > 10_000);
    }

    #[test]
    fn what_is_given_back_is_free() {
        let mut shares = Shares::new(POOL);
        let first = fill(&mut shares, "a");
        shares.remove("a", first);
        assert_eq!((shares.taken, shares.users.len()), (0, 0));
        assert_eq!(fill(&mut shares, "a"), first);
    }
}
