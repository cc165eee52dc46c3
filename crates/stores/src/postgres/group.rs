//! The statements for claims and settlements of several callers.

use std::sync::Arc;

use semel_core::identity::Address;
use semel_core::store::StoreResult;
use semel_core::{Claim, Fence};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use super::Inner;
use super::error::store_error;
use super::row::{Bound, signed, uuid};
use super::statements::{insert_all, lock};
use crate::sql::group::{Claims, Ending, Endings, Grouped, Groups, Inserted, Settled};
use crate::sql::row::answer_columns;

impl Grouped for Inner {
    fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    fn strong(&self) -> Option<Arc<Self>> {
        self.telling.upgrade()
    }

    async fn insert_all(&self, lane: usize, claims: &Claims) -> StoreResult<Inserted> {
        let statement = || {
            let asks = claims.iter().map(|waiting| &waiting.call);
            let locks = asks
                .clone()
                .map(|ask: &Claim| lock(&ask.identity.address()));
            let locks: Vec<i64> = locks.collect();
            insert_all(self.sql.insert_all.within(lane), &asks).bind(locks)
        };
        let rows = self.link.rows(statement).await?;
        rows.iter().map(inserted).collect()
    }

    async fn settle_all(&self, lane: usize, endings: &Endings) -> StoreResult<Settled> {
        let statement = || settle_all(self.sql.settle_all.within(lane), endings);
        let rows = self.link.rows(statement).await?;
        rows.iter().map(settled).collect()
    }

    fn wake(&self, address: Address) {
        self.tell(address);
    }
}

fn inserted(row: &PgRow) -> StoreResult<((Address, u128), Fence)> {
    let address: Uuid = row.try_get(0).map_err(store_error)?;
    let token: Uuid = row.try_get(1).map_err(store_error)?;
    let fence: i64 = row.try_get(2).map_err(store_error)?;
    let fence = Fence(fence.unsigned_abs());
    Ok(((address.into_bytes(), token.as_u128()), fence))
}

/// The address of a settled record, and whether somebody waits.
fn settled(row: &PgRow) -> StoreResult<(Address, bool)> {
    let address: Uuid = row.try_get(0).map_err(store_error)?;
    Ok((address.into_bytes(), row.try_get(1).map_err(store_error)?))
}

fn settle_all(query: Bound, endings: &Endings) -> Bound {
    fn each<T>(endings: &Endings, of: impl Fn(&Ending) -> T) -> Vec<T> {
        endings.iter().map(|waiting| of(&waiting.call)).collect()
    }
    let (mut heads, mut bodies, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for waiting in endings {
        let (head, body, omitted) = answer_columns(waiting.call.answer(), false);
        heads.push(head);
        bodies.push(body);
        bytes.push(omitted);
    }
    let address = |ending: &Ending| ending.lease.identity.address();
    let seal = |ending: &Ending| Uuid::from_bytes(ending.lease.identity.seal());
    query
        .bind(each(endings, |ending| Uuid::from_bytes(address(ending))))
        .bind(each(endings, seal))
        .bind(each(endings, |ending| signed(ending.lease.fence.0)))
        .bind(each(endings, |ending| uuid(ending.lease.token)))
        .bind(each(endings, |ending| ending.settlement.state() as i16))
        .bind(heads)
        .bind(bodies)
        .bind(bytes)
        .bind(each(endings, |ending| lock(&address(ending))))
}
