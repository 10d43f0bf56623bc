//! Tests of the numbers of endpoints.

use manyflow_core::EndpointId;
use manyflow_scenario::plan::endpoints::Allotment;
use manyflow_scenario::plan::ids::Ends;

#[test]
fn a_unicast_receiver_has_a_pair_for_each_membership_interval() {
    let mut allotment = Allotment::default();
    allotment.take(3);
    let ids = allotment.take(4);
    let unicast = Ends::new(ids, true);
    assert_eq!(unicast.pair_in(1), (EndpointId(5), EndpointId(6)));
    let receiving: Vec<u32> = unicast.receiving().map(|id| id.0).collect();
    assert_eq!(receiving, [4, 6]);
    let multicast = Ends::new(ids, false);
    assert_eq!(multicast.receiving_in(3), EndpointId(6));
    assert_eq!(multicast.receiving().count(), 4);
}
