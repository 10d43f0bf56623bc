//! The needs of receivers, by their reports.

use manyflow_object::needs::Needs;

use super::Tally;
use super::table::ReceiverState;

/// The symbols that receivers have reported to need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Those of each receiver that receives.
    pub needs: Vec<Needs>,
    /// Whether they are those of all receivers: each one that is expected, or has ever reported,
    /// has said what it needs, or has ended.
    pub is_complete: bool,
}

impl Tally {
    /// Returns what receivers need. `None` if one of them needs everything, or nobody has said what
    /// it needs.
    pub fn wanted(&self) -> Option<Wanted> {
        let (mut needs, mut is_complete) = (Vec::new(), true);
        for receiver in self.table().receivers() {
            match (receiver.state, &receiver.needs) {
                (ReceiverState::Receiving, Some(needed)) => needs.push(needed.clone()),
                // It does not know the files yet.
                (ReceiverState::Receiving, None) if receiver.transfer.total_bytes == 0 => {
                    is_complete = false;
                }
                (ReceiverState::Receiving, None) => return None,
                (ReceiverState::NeverHeard | ReceiverState::Silent, _) => is_complete = false,
                (ReceiverState::Done | ReceiverState::Failed(_) | ReceiverState::Left, _) => {}
            }
        }
        let is_known = needs.iter().any(|needs| !needs.is_empty());
        is_known.then_some(Wanted { needs, is_complete })
    }
}
