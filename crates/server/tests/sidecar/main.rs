//! The sidecar on real sockets, in front of real services.

mod floods;
mod forward;
mod frames;
mod lifecycle;
mod limits;
mod lost;
mod replays;
mod support;
mod tls;
mod tokens;
mod upgrades;
