//! The receivers that the options of `send` name.

use std::net::SocketAddr;

use anyhow::Result;
use manyflow_files::completion::{Audience, read_expected};

use crate::cli::{AudienceArgs, UntilDone};
use manyflow_terminal::usage;

impl AudienceArgs {
    /// Returns the receivers whose reports are taken, and the address for them.
    pub(super) fn audience(&self) -> Result<Option<(SocketAddr, Audience)>> {
        let listed = self.expect.as_deref().map(read_expected).transpose();
        let listed = listed.map_err(|error| usage(format!("--expect: {error}")))?;
        let audience = match (listed, self.until_done) {
            (None, None) => return Ok(None),
            (None, Some(UntilDone::Number(number))) => Audience::Number(number),
            (None, Some(UntilDone::All)) => {
                return Err(usage(
                    "--until-done without a number needs a list of receivers: add --expect FILE, or a number",
                ));
            }
            (Some(receivers), until_done) => Audience::Listed {
                ends_after: ends_after(receivers.len() as u32, until_done)?,
                receivers,
            },
        };
        Ok(Some((self.reports, audience)))
    }
}

fn ends_after(listed: u32, until_done: Option<UntilDone>) -> Result<Option<u32>> {
    match until_done {
        None => Ok(None),
        Some(UntilDone::All) => Ok(Some(listed)),
        Some(UntilDone::Number(number)) if number <= listed => Ok(Some(number)),
        Some(UntilDone::Number(number)) => Err(usage(format!(
            "--until-done {number}: --expect lists {listed} receivers, which is less: give no number to wait for all"
        ))),
    }
}
