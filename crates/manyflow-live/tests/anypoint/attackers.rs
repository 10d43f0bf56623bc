//! Attackers.
