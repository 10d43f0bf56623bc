//! The services of the messages to each group of an overlay.

use std::collections::BTreeMap;

use manyflow_order::Service;
use manyflow_overlay::GroupId;

use crate::plan::sessions::Sessions;
use crate::schema::Schema;
use crate::schema::protocols::OrderName;
use manyflow_model::error::{Fault, Problem};

/// Checks that all sessions of a group have the same service, and that overlays whose order is only
/// to compare with have one group.
pub(super) fn check_services(sessions: &Sessions, schema: &Schema) -> Result<(), Fault> {
    let mut services: Vec<BTreeMap<GroupId, Service>> =
        vec![BTreeMap::new(); schema.overlays.len()];
    for session in &sessions.0 {
        let Some(own) = session.affiliation else {
            continue;
        };
        let table = &schema.sessions[session.table];
        let service = table.overlay.service.unwrap_or_default().service();
        let first = *services[own.overlay].entry(own.group).or_insert(service);
        if first != service {
            let message = format!("another session of the group has the service `{first}`");
            let path = ["sessions", &table.name, "overlay", "service"];
            return Err(Fault::at(&path, Problem::Value(message)));
        }
    }
    for (table, services) in schema.overlays.iter().zip(services) {
        let has_any_number = matches!(table.order, None | Some(OrderName::Marks));
        if !has_any_number && services.len() != 1 {
            let groups = services.len();
            let message = format!("only the order `marks` has any number of groups, not {groups}");
            let path = ["overlays", &table.name, "order"];
            return Err(Fault::at(&path, Problem::Value(message)));
        }
    }
    Ok(())
}
