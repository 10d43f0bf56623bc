//! `manyflow sub --views`: a member of ordered groups, which prints messages and views.

use anyhow::{Context as _, Result};
use manyflow_messages::{Cause, Client, Member, MemberEvent, OrderedMessage, View};
use manyflow_terminal::Display;
use manyflow_terminal::shown::shown;
use manyflow_terminal::signals::interrupted;
use serde_json::{Value, json};

use super::{add_payload, end_by_interruption};
use crate::cli::SubArgs;

/// Prints what a member of these groups gets until Ctrl-C, or until there are `--count` messages.
pub(super) async fn subscribe(client: &Client, args: &SubArgs, display: &Display) -> Result<()> {
    let mut member = client.member()?;
    for group in &args.subjects {
        member.join(group).await?;
    }
    let interruption = interrupted();
    display.print_json(&json!({ "event": "joined", "subjects": args.subjects }))?;
    tokio::select! {
        result = print_events(&mut member, args.count.unwrap_or(u64::MAX), display) => result,
        () = interruption => end_by_interruption(args),
    }
}

async fn print_events(member: &mut Member, mut left: u64, display: &Display) -> Result<()> {
    while left > 0 {
        let event = member.next().await.context("all groups are left")??;
        if let MemberEvent::Message(_) = event {
            left -= 1;
        }
        display.print_line(&text(&event))?;
        if display.is_json() {
            display.print_json(&object(&event))?;
        }
    }
    Ok(())
}

/// An event as a line.
fn text(event: &MemberEvent) -> String {
    match event {
        MemberEvent::Message(message) => {
            let groups = message.groups.join(" ");
            let payload = String::from_utf8_lossy(&message.payload);
            format!("{}: {payload}", shown(&groups))
        }
        MemberEvent::View(view) => {
            let (cause, who) = cause(view);
            let who = who.map_or_else(String::new, |who| format!(" of {who}"));
            let members = view.members.join(" ");
            let group = shown(&view.group);
            format!("{group}: members after a {cause}{who}: {}", shown(&members))
        }
        MemberEvent::Transitional(group) => {
            let group = shown(group);
            format!("{group}: until the next view, other members may miss messages")
        }
        other => format!("{other:?}"),
    }
}

/// Why the members have changed, and who has caused it, as daemons write it.
fn cause(view: &View) -> (&'static str, Option<&str>) {
    match &view.cause {
        Cause::Join(who) => ("join", Some(who)),
        Cause::Leave(who) => ("leave", Some(who)),
        Cause::Disconnect(who) => ("disconnect", Some(who)),
        Cause::Network => ("network", None),
    }
}

/// An event as JSON. Views have the keys that daemons use.
pub(crate) fn object(event: &MemberEvent) -> Value {
    match event {
        MemberEvent::Message(message) => message_object(message),
        MemberEvent::View(view) => {
            let (cause, who) = cause(view);
            json!({
                "event": "view", "group": view.group, "view": view.id.to_string(), "members": view.members,
                "cause": cause, "who": who, "stayed": view.stayed, "self": view.own_name,
            })
        }
        MemberEvent::Transitional(group) => json!({ "event": "transitional", "group": group }),
        other => json!({ "event": format!("{other:?}") }),
    }
}

fn message_object(message: &OrderedMessage) -> Value {
    let mut object = json!({
        "event": "delivered", "groups": message.groups, "service": message.service.to_string(),
        "sender": message.sender,
    });
    add_payload(&mut object, &message.payload);
    object
}
