//! The sidecar on real sockets, in front of real services.

mod answer_retention;
mod api_limits;
mod azure;
mod callers;
mod erasure;
mod floods;
mod forward;
mod frames;
mod iceberg;
mod key_rules;
mod lifecycle;
mod limits;
mod lost;
mod quotas;
mod replays;
mod scopes;
mod support;
mod tls;
mod tokens;
mod upgrades;
