//! One page of a listing, ordered by address. Addresses never change, so each record is listed once
//! (P29).

use std::future::Future;

use semel_core::Identity;
use semel_core::identity::Address;
use semel_core::store::{Cursor, Page, Query, StoreResult};

use super::dialect::unfit;
use super::row::{ParsedRow, RowRecord};

/// The most rows that one page reads, so that a search for rare records becomes many short
/// statements.
pub(crate) const READ_AT_MOST: usize = 5_000;

/// The largest number of records that is counted; beyond it, the number is estimated.
pub(crate) const COUNT_AT_MOST: i64 = 1_000_000;

/// The statements of a listing.
pub(crate) trait Listing: Sync {
    /// The last address that a page reads; `None` if the table ends before.
    fn boundary(
        &self,
        after: &Address,
    ) -> impl Future<Output = StoreResult<Option<Address>>> + Send;

    /// The rows after `after`, up to `end`, that the query asks for, in order.
    fn listed(
        &self,
        query: &Query,
        after: &Address,
        end: Option<&Address>,
    ) -> impl Future<Output = StoreResult<Vec<(Address, ParsedRow)>>> + Send;

    /// Fetches a body that is kept apart; `None` if the record is gone.
    fn complete(
        &self,
        seen: RowRecord,
    ) -> impl Future<Output = StoreResult<Option<RowRecord>>> + Send {
        std::future::ready(Ok(Some(seen)))
    }
}

pub(crate) async fn page<L: Listing>(listing: &L, query: &Query) -> StoreResult<Page> {
    let after = query.after.as_ref().map_or(Ok([0; 16]), parse)?;
    let end = listing.boundary(&after).await?;
    let rows = listing.listed(query, &after, end.as_ref()).await?;
    let last = rows.last().map(|(address, _)| *address);
    let is_full = rows.len() == query.page_size();
    let next = if is_full { last } else { end };
    let mut page = Page::default().with_next(next.map(|address| Cursor(hex(&address))));
    for (_, found) in rows {
        // An unreadable row is counted but not listed.
        let Ok(seen) = found else {
            page.unreadable += 1;
            continue;
        };
        let Some(seen) = listing.complete(seen).await? else {
            continue;
        };
        let identity = Identity::from_halves(&seen.address, &seen.record.seal);
        page.records.push((identity, seen.record));
    }
    Ok(page)
}

/// Accepts exactly the form that a page gave: 32 lower-case hex digits.
fn parse(cursor: &Cursor) -> StoreResult<Address> {
    let number = u128::from_str_radix(&cursor.0, 16).ok();
    let address = number.map(u128::to_be_bytes);
    let address = address.filter(|address| hex(address) == cursor.0);
    address.ok_or_else(|| unfit("the cursor isn't one of this store's; restart the listing"))
}

pub(crate) fn hex(address: &Address) -> String {
    format!("{:032x}", u128::from_be_bytes(*address))
}
