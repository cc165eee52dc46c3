//! The queue on a real PostgreSQL.

mod bounds;
mod dead_letters;
mod ends;
mod leases;
mod lost_replies;
mod submit;
mod support;
