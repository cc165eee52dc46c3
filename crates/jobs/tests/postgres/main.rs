//! The queue on a real PostgreSQL.

mod bounds;
mod ends;
mod leases;
mod submit;
mod support;
