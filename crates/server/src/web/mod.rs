//! The HTTP toolkit of all interfaces: JSON, problem documents, access. Imports no other module.
//!
//! | file | is |
//! |---|---|
//! | `access` | bearer tokens of tenants, and the loopback rule for interfaces without tokens |
//! | `failure`, `problem` | errors as RFC 9457 problem documents |
//! | `json` | bounded JSON requests, query parameters, JSON responses |
//! | `fallback` | responses for unknown paths and methods |
//! | `peer`, `headers` | the other end of a connection; edits of header maps |
//! | `sized_body` | a body that keeps its size hint through wrappers |
//! | `tenant_limits` | the limits of tenants, which the limiter implements |
//! | `token_file` | files of named tokens: of operators, and of the APIs' callers |
//! | `hex` | text forms of bytes |

mod access;
mod failure;
mod fallback;
mod headers;
mod hex;
mod json;
mod peer;
mod problem;
mod sized_body;
mod tenant_limits;
mod token_file;

pub use access::{Access, AccessError, MIN_TOKEN_BYTES, Tokens, check_exposure};
pub(crate) use access::{Caller, bearer, digest, require_guard, require_loopback_host};
pub(crate) use failure::{
    Failure, Problem400, Problem401, Problem403, Problem404, Problem408, Problem409, Problem413,
    Problem415, Problem422, Problem429, Problem500, Problem503, ProblemDocument,
};
pub(crate) use fallback::{method_not_allowed, with_fallbacks};
pub(crate) use headers::remove_unless;
pub(crate) use hex::{hex, unhex};
pub(crate) use json::{
    BodyLimits, Json, Query, RecordId, check_text, deserialize_nullable,
    deserialize_optional_whole, deserialize_present, deserialize_whole, json_response,
    refuse_own_scope,
};
pub use peer::Peer;
pub(crate) use problem::problem_response;
pub(crate) use semel_core::time::{rfc3339_millis as format_time, to_millis};
pub(crate) use sized_body::{BodyLength, SizedBody};
pub(crate) use tenant_limits::{LimitTenants, SettlementEffect, TenantLimits, TenantQuota};
pub(crate) use token_file::{Account, Grant, TokenFile, create_token};
pub use token_file::{NewEntry, NewToken, TokenFileError};
