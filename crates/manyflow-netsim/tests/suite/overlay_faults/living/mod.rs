//! Tests a topology that changes: daemons that crash, restart and join late; links that flap;
//! partitions and heals; besides lossy links and cuts that nobody notices. Clients connect again
//! when their daemon restarts. In all cases each member reads each sender's messages in order and
//! none twice; those who remain connected miss none; everybody makes progress when the faults are
//! over; and daemons keep nothing when all clients have gone.

mod check;
mod clients;
mod ordered;
mod plan;
mod site;
mod world;

pub(crate) use check::check;
pub(crate) use plan::Plan;
pub(crate) use world::{run, run_ordered};
