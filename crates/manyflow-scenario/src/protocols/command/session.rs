//! Command sessions: one endpoint, which stands for the command at its node.

use crate::builder::Builder;
use crate::protocols::session::{Reporter, SessionProtocol};
use crate::schema::protocols::required;
use crate::world::Command;
use manyflow_model::error::{Fault, Problem};
use manyflow_model::observables::Observable;
use manyflow_model::quantity::Seconds;

/// Commands at nodes.
pub(crate) struct Commands;

impl SessionProtocol for Commands {
    fn receiver(&self) -> Reporter {
        Reporter::new("a command", &[])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("a command", &[&[Observable::ExitCode]])
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        let table = required(builder.table.command.as_ref(), "command")?;
        let command = Command {
            session: builder.session.name.clone(),
            at: builder.session.staff[0],
            run: table.run.clone(),
            start: builder.draw(builder.table.start, "sender"),
            stop: builder.table.stop.map(Seconds::time),
        };
        if builder.network.add_command(&command) {
            return Ok(());
        }
        let message = "`command` runs a program: run this scenario with `manyflow emulate`";
        let path = ["sessions", &builder.table.name, "protocol"];
        Err(Fault::at(&path, Problem::Value(message.to_owned())))
    }
}
