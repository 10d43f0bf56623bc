//! Refuses keys of sessions that their protocol does not read: runs would silently be without them.

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use crate::schema::protocols::Protocol;
use manyflow_model::error::{Fault, Problem};
use manyflow_model::file::sweep::Axis;
use manyflow_model::file::tree::{Node, Value, name_of};

/// Checks the sessions of a tree that has the values of a cell. If a sweep varies the protocol of a
/// session, the session has the keys of each.
///
/// # Errors
/// Returns an error for the first key that no protocol of its session reads.
pub(super) fn check(tree: &Node, axes: &[Axis]) -> Result<(), Fault> {
    let Some(Value::List(sessions)) = tree.get("sessions").map(|node| &node.value) else {
        return Ok(());
    };
    for (index, session) in sessions.iter().enumerate() {
        let key = name_of(session).map_or_else(|| index.to_string(), str::to_owned);
        if let Some(protocols) = protocols_of(session, axes) {
            check_session(session, &protocols)
                .map_err(|fault| fault.within(&key).within("sessions"))?;
        }
    }
    Ok(())
}

/// Returns the protocols that a session has in the cells of the sweep. Returns `None` if a value is
/// no protocol: it may be the placeholder of a parameter, or an error that is found later.
fn protocols_of(session: &Node, axes: &[Axis]) -> Option<Vec<Protocol>> {
    let own = session.get("protocol")?;
    // The value of an axis has been put into the tree with its place in the file.
    let axis = axes
        .iter()
        .find(|axis| axis.values.iter().any(|value| value.span == own.span));
    let all = axis.map_or(std::slice::from_ref(own), |axis| &axis.values);
    let protocols = all.iter().map(|value| match &value.value {
        Value::Text(name) => named(name),
        _ => None,
    });
    protocols.collect()
}

fn named(name: &str) -> Option<Protocol> {
    let name: StrDeserializer<'_, Error> = name.into_deserializer();
    Protocol::deserialize(name).ok()
}

fn check_session(session: &Node, protocols: &[Protocol]) -> Result<(), Fault> {
    check_keys(session, protocols)?;
    let receivers = match session.get("receivers").map(|node| &node.value) {
        Some(Value::List(receivers)) => receivers.as_slice(),
        _ => &[],
    };
    for (index, receiver) in receivers.iter().enumerate() {
        check_keys(receiver, protocols)
            .map_err(|fault| fault.within(&index.to_string()).within("receivers"))?;
    }
    Ok(())
}

fn check_keys(table: &Node, protocols: &[Protocol]) -> Result<(), Fault> {
    let Value::Table(entries) = &table.value else {
        return Ok(());
    };
    let is_read = |key: &str| protocols.iter().any(|&protocol| reads(protocol, key));
    let Some(entry) = entries.iter().find(|entry| !is_read(&entry.key)) else {
        return Ok(());
    };
    let mut names: Vec<&str> = protocols.iter().map(|protocol| protocol.name()).collect();
    names.dedup();
    let message = format!(
        "a session of {} does not read this key: leave it out",
        names.join(" or ")
    );
    let fault = Fault::at(&[&entry.key], Problem::Value(message));
    Err(fault.spanned(&entry.key_span))
}

/// Returns whether sessions of a protocol read a key of `[[sessions]]` or of a receiver. Keys that
/// do not exist are an error of the schema.
fn reads(protocol: Protocol, key: &str) -> bool {
    match key {
        "whole-session" => protocol.is_multicast(),
        "lie" => protocol == Protocol::Sim,
        "send-buffer" | "receive-buffer" | "sends" => protocol == Protocol::Acp,
        "service" | "crash" => matches!(protocol, Protocol::Acp | Protocol::Overlay),
        key => named(key).is_none_or(|owner| owner == protocol),
    }
}
