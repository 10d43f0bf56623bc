//! The reports of `recv` to the sender.

use std::path::Path;

use anyhow::Result;
use manyflow_files::completion::{Failure, Identity, ReceiverStatus, ReportPlan, Reporting};
use manyflow_files::sdp::SessionDescription;
use manyflow_files::session::{ProgressSinks, ReceiveError};
use manyflow_net::group_key::GroupKey;
use manyflow_net::keys::SigningKey;
use serde_json::json;

use crate::cli::RecvArgs;
use crate::post_receive::PostReceiveError;
use manyflow_terminal::display::{Display, OutputError};
use manyflow_terminal::usage;

/// A plan of reports, and the receiver that makes them.
pub(crate) struct Reports {
    plan: ReportPlan,
    identity: Identity,
}

impl Reports {
    /// Returns what to report, if the sender asks for reports. `session` is where the description
    /// was loaded from, and `output` the folder of the files.
    ///
    /// # Errors
    /// If the key of `--identity` cannot be read.
    pub(crate) fn new(
        args: &RecvArgs,
        session: &str,
        output: &Path,
        description: &SessionDescription,
        group: Option<&GroupKey>,
    ) -> Result<Option<Reports>> {
        let options = &args.identity;
        let key = options
            .identity
            .as_deref()
            .map(SigningKey::read)
            .transpose();
        let key = key.map_err(|error| usage(format!("--identity: {error}")))?;
        let plan = ReportPlan::new(description, group, session);
        let Some(plan) = plan.filter(|_| !options.no_report) else {
            return Ok(None);
        };
        let name = options.name.clone();
        let identity = Identity::new(name, key, output, description);
        Ok(Some(Reports { plan, identity }))
    }

    pub(crate) fn start(self, sinks: &ProgressSinks) -> Reporting {
        Reporting::start(self.plan, self.identity, sinks)
    }
}

/// Reports how the receiver has ended, until the sender answers or the user interrupts. The files
/// are here in any case, so a sender that does not answer is no error.
pub(crate) async fn end(
    reporting: Reporting,
    ended: &Result<()>,
    display: &Display,
    interruption: impl Future<Output = ()>,
) -> Result<(), OutputError> {
    if let Err(error) = ended {
        if let Some(status) = status_of(error) {
            // The error says more than a missing answer.
            let _ = reporting.end(status).await;
        }
        return Ok(());
    }
    let within = reporting.window().as_secs();
    let spinner = display.spinner(format!(
        "reporting to the sender at a random time within {within} s; Ctrl-C skips that"
    ));
    let reported = reporting.end(ReceiverStatus::Done);
    let reported = tokio::select! {
        result = reported => result.map_err(|error| error.to_string()),
        () = interruption => Err("interrupted".to_owned()),
    };
    spinner.finish_and_clear();
    if let Err(reason) = &reported {
        tracing::warn!("the sender may not know that all files are here: {reason}");
    }
    display.print_json(&json!({"event": "reported", "counted": reported.is_ok()}))
}

/// Returns the state of a receiver that has ended with this error, if it is one to report.
fn status_of(error: &anyhow::Error) -> Option<ReceiverStatus> {
    if let Some(error) = error.downcast_ref::<ReceiveError>() {
        return ReceiverStatus::of_error(error);
    }
    match error.downcast_ref::<PostReceiveError>()? {
        PostReceiveError::Interrupted(_) => Some(ReceiverStatus::Left),
        _ => Some(ReceiverStatus::Failed(Failure::Command)),
    }
}
