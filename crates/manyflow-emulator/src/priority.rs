//! The priority of threads that measure time or keep it.

use nix::libc;

/// Lets the calling thread run before all threads of normal priority, so that packets are not
/// delivered late while other programs compute. Its children have normal priority again. Does
/// nothing without the right to do so; lateness is measured in any case.
pub fn raise() {
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `sched_param` is a struct of integers, for which zeros are valid.
    let mut parameters: libc::sched_param = unsafe { core::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the pointer is valid during the call, and 0 stands for the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
}
