//! Help for each error code: the texts of the pages in `docs/errors`.

mod interfaces;
mod layer;

use semel::core::Code;

/// The help text of an error code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Help {
    /// The error code.
    pub(crate) code: Code,
    /// What happened, and above all whether anything was done.
    pub(crate) known: &'static str,
    /// What the caller should do.
    pub(crate) caller: &'static str,
    /// What the operator of the service should check; empty if there is nothing.
    pub(crate) operator: &'static str,
}

const fn help(
    code: Code,
    known: &'static str,
    caller: &'static str,
    operator: &'static str,
) -> Help {
    Help {
        code,
        known,
        caller,
        operator,
    }
}

/// The help texts of all codes.
pub(crate) fn all() -> impl Iterator<Item = &'static Help> {
    layer::HELP.iter().chain(interfaces::HELP)
}
