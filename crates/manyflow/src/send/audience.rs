//! The receivers that the options of `send` name.

use std::net::SocketAddr;

use anyhow::Result;
use manyflow_files::completion::{Audience, read_expected};

use crate::cli::AudienceArgs;
use manyflow_terminal::usage;

impl AudienceArgs {
    /// Returns the receivers whose reports are taken, and the address for them.
    pub(super) fn audience(&self) -> Result<Option<(SocketAddr, Audience)>> {
        let listed = self.expect.as_deref().map(read_expected).transpose();
        let listed = listed.map_err(|error| usage(format!("--expect: {error}")))?;
        let audience = Audience::new(listed, self.until_done);
        let audience = audience.map_err(|error| usage(error.to_string()))?;
        Ok(audience.map(|audience| (self.reports, audience)))
    }
}
