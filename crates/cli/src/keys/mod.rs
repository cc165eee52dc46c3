//! `semel keys`: shows and repairs records.
//!
//! | file | content |
//! |---|---|
//! | `list` | lists records |
//! | `inspect` | one record and its history |
//! | `change` | unlock, reset and erase, with confirmation |
//! | `resolve` | resolves a doubt |
//! | `find` | finds a record by ID or key |

mod change;
mod find;
mod inspect;
mod list;
mod resolve;

use clap::Subcommand;

pub(crate) use change::{AuditArgs, default_actor};
pub(crate) use list::Filter;

use crate::exit::Exit;
use crate::runtime;

/// Shows and repairs records.
#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Lists records.
    List(list::List),
    /// Shows a record and its history.
    Inspect(inspect::Inspect),
    /// Releases a lease whose owner is gone or stuck.
    Unlock(change::Unlock),
    /// Resolves a record in doubt: records what became of its run.
    Resolve(resolve::Resolve),
    /// Deletes a record: the next request with its key runs the effect again.
    Reset(change::Reset),
    /// Anonymizes an actor in the audit trail. Records are not touched.
    Erase(change::Erase),
}

impl Keys {
    pub(crate) fn run(self) -> Exit {
        let ended = runtime::block_on(async move {
            match self {
                Self::List(list) => list.run().await,
                Self::Inspect(inspect) => inspect.run().await,
                Self::Unlock(unlock) => unlock.run().await,
                Self::Resolve(resolve) => Box::pin(resolve.run()).await,
                Self::Reset(reset) => reset.run().await,
                Self::Erase(erase) => erase.run().await,
            }
        });
        ended.into()
    }
}
