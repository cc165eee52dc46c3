//! Both APIs on real sockets, on memory, Redis and PostgreSQL.

mod access;
mod admin;
mod audit;
mod bounds;
mod chain;
mod claims;
mod dashboard;
mod data_erasure;
mod events;
mod guide;
mod jobs;
mod operators;
mod sign_ins;
mod support;
mod tokens;
