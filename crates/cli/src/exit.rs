//! Exit codes. `docs/cli.md` has the same table.

use std::process::ExitCode;

use semel_server::StartError;

/// How the command ended.
#[derive(Debug)]
pub(crate) enum Exit {
    Ok,
    Failed { code: u8, message: String },
}

/// An unexpected error.
pub(crate) const UNEXPECTED: u8 = 1;
/// The command line is wrong, as `clap` says it too.
pub(crate) const USAGE: u8 = 2;
/// The settings are wrong.
pub(crate) const CONFIG: u8 = 3;
/// The store can't be used.
pub(crate) const STORE: u8 = 4;
/// The address can't be listened on.
pub(crate) const LISTEN: u8 = 5;
/// The self-check failed.
pub(crate) const SELF_CHECK: u8 = 6;
/// The process ended before all work was finished.
pub(crate) const CUT_OFF: u8 = 7;
/// There is no such record.
pub(crate) const NOT_FOUND: u8 = 8;
/// The change was refused, and nothing was changed.
pub(crate) const REFUSED: u8 = 9;
/// The admin API can't be reached.
pub(crate) const UNREACHABLE: u8 = 10;
/// The admin API denies access.
pub(crate) const NOT_ALLOWED: u8 = 11;
/// `doctor` found a problem.
pub(crate) const BROKEN: u8 = 12;
/// Two stores disagree.
pub(crate) const DISAGREE: u8 = 13;
/// Records of the old store can't be read, and are missing in the new one.
pub(crate) const UNREADABLE: u8 = 14;
/// The audit trail was changed.
pub(crate) const TAMPERED: u8 = 15;

impl Exit {
    pub(crate) fn failed(code: u8, message: impl Into<String>) -> Self {
        Self::Failed {
            code,
            message: message.into(),
        }
    }
}

impl From<Result<(), Self>> for Exit {
    fn from(result: Result<(), Self>) -> Self {
        result.err().unwrap_or(Self::Ok)
    }
}

impl From<StartError> for Exit {
    fn from(error: StartError) -> Self {
        let code = match &error {
            StartError::Config(_)
            | StartError::Setting(_)
            | StartError::Stack(_)
            | StartError::Tls(_) => CONFIG,
            StartError::Store { .. } => STORE,
            StartError::Listen { .. } => LISTEN,
            StartError::SelfCheck(_) => SELF_CHECK,
            _ => UNEXPECTED,
        };
        Self::failed(code, error.to_string())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Ok => Self::SUCCESS,
            Exit::Failed { code, .. } => Self::from(code),
        }
    }
}
