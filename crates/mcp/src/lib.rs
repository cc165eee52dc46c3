//! A gateway in front of any MCP server: agents retry, tools act once.
//!
//! The gateway parses each tool call (caller, key, arguments), runs it through the engine of
//! [`semel`], and writes the outcome as a tool result. Everything else passes byte for byte in both
//! directions. `docs/mcp.md` is the guide; ADR 0024 explains why messages are not parsed into
//! types.
//!
//! | module | content |
//! |---|---|
//! | `members`, `message` | JSON objects that keep their bytes; JSON-RPC messages |
//! | `pointer`, `identity` | JSON pointers to arguments; which arguments identify a call |
//! | `verify` | rules that tell whether a call in doubt took effect |
//! | `conversation` | what tells conversations apart |
//! | `hints`, `settings`, `tools` | hints of the server, rules of the user, the tool list |
//! | `call` | key and fingerprint of a call |
//! | `rewordings` | in observe mode, how calls that look like retries differ |
//! | `outcome` | the outcome of a forwarded call, and its verdict |
//! | `answer` | the reply to the caller |
//! | `gateway`, `status` | runs a call through the engine; the built-in tool `semel_status` |
//! | `peer`, `lines`, `process` | one end of a session, messages as lines, a server process |
//! | `session`, `forward` | relays messages between a client and a server; calls to the server |
//! | `http`, `stdio` | the two transports |
//! | `suggest`, `lint` | guesses what identifies a call; finds tools that are unsafe to retry |
//!
//! Modules import only from rows above their own (`cargo xtask deps` checks that there is no
//! circle).

mod answer;
mod call;
mod conversation;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod hints;
mod http;
mod identity;
mod lines;
mod lint;
mod members;
mod message;
mod outcome;
mod peer;
mod pointer;
mod process;
mod rewordings;
mod session;
mod settings;
mod status;
mod stdio;
mod suggest;
mod tools;
mod verify;

pub use call::Caller;
pub use conversation::ConversationSource;
pub use gateway::Gateway;
pub use http::{CallerToken, HttpFrontend, HttpListener, HttpUpstream, ListenError};
pub use lint::{LintError, LintFinding, LintSeverity, LintTarget, lint, suggest};
pub use pointer::ArgumentPath;
pub use process::{RunError, ServerCommand};
pub use settings::{CrashRule, ErrorRule, KeyRule, Settings, ToolRule};
pub use stdio::{serve_command, serve_upstream};
pub use suggest::{SuggestedRule, Suggestion};
pub use verify::{LookupArgument, LookupCondition, VerifyRule};
