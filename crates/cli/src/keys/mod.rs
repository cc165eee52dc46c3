//! `semel keys`: look at records, and mend them.
//!
//! | file | is |
//! |---|---|
//! | `list` | which records there are |
//! | `inspect` | one record, and what happened to it |
//! | `change` | unlock, reset, erase: who and why, and a question before |
//! | `resolve` | ends a doubt |
//! | `find` | which record is meant |

mod change;
mod find;
mod inspect;
mod list;
mod resolve;

use clap::Subcommand;

pub(crate) use change::{Signed, default_actor};
pub(crate) use list::Filter;

use crate::exit::Exit;
use crate::runtime;

/// Looks at records, and mends them.
#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Lists records.
    List(list::List),
    /// Shows a record, and what happened to it.
    Inspect(inspect::Inspect),
    /// Takes the lease away from an owner that is gone or stuck.
    Unlock(change::Unlock),
    /// Ends a doubt: says what became of a run whose outcome nobody knew.
    Resolve(resolve::Resolve),
    /// Forgets a record, whatever it says: the next request with its key runs again.
    Reset(change::Reset),
    /// Makes an actor nameless in the audit trail; records are not touched.
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
