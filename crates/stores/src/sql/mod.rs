//! The common part of the SQL stores: connections, rows, the steps of each call, listings,
//! transactions.
//!
//! | module | content |
//! |---|---|
//! | [`dialect`] | the dialect of a server: how to send, what an error means |
//! | [`link`] | the connection pool, and statements with retries |
//! | [`pool_health`] | which idle connections are pinged before use |
//! | [`records`] | claim, renew, settle, resolve, restore over a dialect's statements |
//! | [`row`] | a record as columns |
//! | [`group`] | group commit: calls of several callers in one statement |
//! | [`page`] | one page of a listing |
//! | [`transaction`] | the caller's transaction as a store for one run |

#![cfg_attr(
    not(all(feature = "mysql", feature = "postgres")),
    allow(dead_code, reason = "each dialect uses a part of it")
)]

pub(crate) mod dialect;
pub(crate) mod group;
pub(crate) mod link;
pub(crate) mod page;
mod pool_health;
pub(crate) mod records;
pub(crate) mod row;
pub(crate) mod transaction;
