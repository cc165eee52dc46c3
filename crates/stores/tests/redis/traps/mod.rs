//! Traps: what servers and networks do sooner or later, and what must not come of it.

mod cuts;
mod dropped;
mod errors;
mod failover;
mod memory;
mod refusals;
mod renewals;
mod scripts;
mod slots;
mod versions;
mod watching;
