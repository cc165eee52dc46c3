//! The layer on real sockets: HTTP/1.1, HTTP/2 and gRPC.

mod bodies;
mod cors;
mod disconnects;
mod extract;
mod failures;
mod grpc;
mod key_age;
mod key_rules;
mod keys;
mod modes;
mod paths;
mod profiles;
mod repeatable;
mod replay;
mod scopes;
mod stored;
mod storm;
mod streaming;
mod support;
mod tenants;
mod waiting;
mod webhook;
