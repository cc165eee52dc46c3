//! The layer on real sockets: HTTP/1.1, HTTP/2 and gRPC.

mod bodies;
mod cors;
mod disconnects;
mod extract;
mod failures;
mod grpc;
mod keys;
mod modes;
mod paths;
mod profiles;
mod replay;
mod scopes;
mod stored;
mod storm;
mod streaming;
mod support;
mod tenants;
mod waiting;
mod webhook;
