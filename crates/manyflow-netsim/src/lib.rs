//! A deterministic network simulator: it runs manyflow's protocols as they ship.
#![forbid(unsafe_code)]
