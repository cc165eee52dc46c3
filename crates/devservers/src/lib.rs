//! Servers for development: which program, which flags, and when it is ready.
//!
//! | module | what it is for |
//! |---|---|
//! | [`postgres`], [`redis`], [`mariadb`], [`nats`], [`seaweed`] | one server each |
//! | [`launch`] | a program with its arguments, and the user that it runs as |
//! | [`exec`] | other programs, run to their end |
//! | [`time`] | real time |
//! | `private` | servers that belong to one test, to kill, pause and restart (feature `private`) |
//!
//! `cargo xtask services` installs programs and composes the sets that tests share; tests and fault
//! runs start servers of their own.

pub mod exec;
pub mod launch;
pub mod mariadb;
pub mod nats;
pub mod postgres;
#[cfg(feature = "private")]
pub mod private;
pub mod redis;
pub mod seaweed;
pub mod time;
