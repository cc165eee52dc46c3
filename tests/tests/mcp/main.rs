//! `semel mcp` with real peers: servers and clients built on the official Python and TypeScript
//! SDKs, over standard input and output and over streamable HTTP.

mod agent;
mod conformance;
mod docs;
mod example;
mod faults;
mod operators;
mod peers;
mod rules;
mod support;
mod talk;
mod verify;
mod wording;
