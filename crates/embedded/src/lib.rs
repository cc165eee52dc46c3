//! The engine and the stores inside a process of another language.
//!
//! The modules for Python and Node are built on this crate. It answers the requests of the protocol
//! API as a sidecar does: it calls the sidecar's own router, without a socket. So every way gives
//! the same results and the same problem codes.
//!
//! | file | is |
//! |---|---|
//! | `options` | the settings of a store |
//! | `opening` | a store that is being opened |
//! | `engine` | the engine on a runtime of its own: calls, their end, and closing |
//! | `request` | a request to the API, and its reply |
//!
//! Nothing here knows of Python or Node, and no thread of the runtime touches either.

mod engine;
mod opening;
mod options;
mod request;

pub use engine::{EmbeddedEngine, EngineGone, EnteredCall, RunningCall, TURN, Turn};
pub use opening::{Opening, OpeningError, OpeningTurn};
pub use options::EmbeddedOptions;
pub use request::{ApiReply, ApiRequest, ApiRequestError, CallOutcome, call_limit};
