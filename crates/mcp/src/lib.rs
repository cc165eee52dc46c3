//! A gateway in front of any MCP server: agents retry, tools act once.
//!
//! A call of a tool is read (whose, which key, which arguments), handed to the engine of [`semel`], and its answer
//! written as a result. Everything else passes as the bytes that it came as, in both directions: `docs/mcp.md` is the
//! guide, ADR 0024 says why messages aren't read as types.
//!
//! | module | is |
//! |---|---|
//! | `members`, `message` | JSON that stays the bytes that it was; a message, looked at as far as needed |
//! | `settings`, `tools` | how tools are treated; what the server says of them, and its list with what we add |
//! | `call` | key and fingerprint of a call |
//! | `gateway` | the door: a call → the engine → an answer |
//! | `outcome` | what became of a call that was sent on, as a verdict |
//! | `answer`, `status` | what the caller is told |
//! | `session`, `sending` | one caller and one server, message by message; calls on their way to the server |
//! | `lines`, `server` | standard input and output; a server's process |
//! | `http` | streamable HTTP: a server behind it, callers before it |
//! | `lint` | what is wrong with a server's tools |

mod answer;
mod call;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod http;
mod lines;
mod lint;
mod members;
mod message;
mod outcome;
mod sending;
mod server;
mod session;
mod settings;
mod status;
mod tools;

pub use call::Caller;
pub use gateway::Gateway;
pub use http::{CallerToken, Listen, Serve, ServeError, Upstream};
pub use lint::{Finding, LintError, Server, Severity, lint};
pub use server::{Child, RunError, bridge, stdio};
pub use settings::{Crash, Errors, KeyRule, Settings, ToolRule};
