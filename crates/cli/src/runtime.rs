//! The async runtime of short-lived commands.

use std::future::Future;

use crate::exit::{self, Exit};

/// Runs a command to its end.
pub(crate) fn block_on(command: impl Future<Output = Result<(), Exit>>) -> Result<(), Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::failed(exit::UNEXPECTED, error.to_string()))?;
    let ended = runtime.block_on(command);
    // Idle connections must not delay the exit.
    runtime.shutdown_background();
    ended
}
