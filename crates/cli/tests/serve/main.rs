//! The real program: start, requests, reload, signals.

mod apis;
mod life;
mod support;
mod words;
