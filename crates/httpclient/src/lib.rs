//! The HTTP client of the tests. For development only.
//!
//! | item | what it is for |
//! |---|---|
//! | [`Client`] | one connection, HTTP/1.1 or HTTP/2, which a test holds |
//! | [`send`], [`try_send`] | one request on a connection of its own |
//! | [`Pool`] | many requests to several servers, over connections that are kept |
//! | [`uuid_v7`], [`ulid`], [`imf_fixdate`] | keys and headers that carry a time |
//! | [`Raw`] | a connection on which a test writes what it likes |
//!
//! What a test of a success can't go on without panics; [`try_send`] and [`Pool`] return errors.

mod answer;
mod client;
mod once;
mod pool;
mod raw;
mod timed;

pub use answer::Answer;
pub use client::{BOTH, Client, Protocol};
pub use once::{json, send, try_send};
pub use pool::Pool;
pub use raw::Raw;
pub use timed::{imf_fixdate, ulid, uuid_v7};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

/// What a body may fail with.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// Any body that can be sent.
type AnyBody = UnsyncBoxBody<Bytes, BodyError>;

fn any_body<B>(body: B) -> AnyBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    body.map_err(Into::into).boxed_unsync()
}
