//! The runtime of commands that end by themselves.

use std::future::Future;

use crate::exit::{self, Exit};

/// Runs a command to its end.
pub(crate) fn block_on(command: impl Future<Output = Result<(), Exit>>) -> Result<(), Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
    let ended = runtime.block_on(command);
    // Connections that are kept open have nobody left to talk to.
    runtime.shutdown_background();
    ended
}
