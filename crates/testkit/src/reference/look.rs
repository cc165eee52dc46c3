//! The reads of a sequence: lookups, sweeps and listings.

use semel_core::store::Query;
use semel_core::{Identity, Record};

use super::driver::{Difference, Run};
use super::op::KEYS;
use super::tally::Rule;

impl Run<'_> {
    pub(super) async fn read(&mut self, key: usize) -> Result<(), Difference> {
        let (rule, expected) = self.models[key].read(self.now);
        let found = self.store.read(self.identity(key)).await;
        self.same(rule, &expected, found)
    }

    pub(super) async fn sweep(&mut self) -> Result<(), Difference> {
        let now = self.now;
        let expected = self
            .models
            .iter_mut()
            .filter_map(|model| model.sweep(now).then_some(()))
            .count();
        let rule = if expected > 0 {
            Rule::Swept
        } else {
            Rule::SweptNothing
        };
        let found = self.store.sweep(usize::MAX).await;
        self.same(rule, &expected, found)
    }

    /// Lists page by page to the end. The order is the store's own; compared is the set.
    pub(super) async fn list(&mut self, mut query: Query) -> Result<(), Difference> {
        let (rule, expected) = self.listed(&query);
        let mut found: Vec<(Identity, Record)> = Vec::new();
        let found = loop {
            let page = match self.store.list(&query).await {
                Ok(page) => page,
                Err(error) => break Err(error),
            };
            found.extend(page.records);
            // More than there is means that the listing repeats itself, perhaps for ever.
            if page.next.is_none() || found.len() > expected.len() {
                found.sort_unstable_by_key(|(identity, _)| *identity);
                break Ok(found);
            }
            query.after = page.next;
        };
        self.same(rule, &expected, found)
    }

    fn listed(&self, query: &Query) -> (Rule, Vec<(Identity, Record)>) {
        let mut rule = Rule::Listed;
        let mut expected = Vec::new();
        for model in &self.models {
            let (Some(entry), (_, Some(record))) = (model.entry(), model.read(self.now)) else {
                continue;
            };
            let (state, by_clock) = entry.listed_as(self.now);
            let tenant = query.tenant.as_deref();
            if query.state.is_none_or(|wanted| wanted == state)
                && tenant.is_none_or(|wanted| wanted == record.namespace.tenant())
            {
                if by_clock && query.state.is_some() {
                    rule = Rule::ListedLapse;
                }
                expected.push((model.subject().identity, record));
            }
        }
        expected.sort_unstable_by_key(|(identity, _)| *identity);
        if expected.is_empty() {
            (Rule::ListedNothing, expected)
        } else {
            (rule, expected)
        }
    }

    pub(super) async fn look_at_all(&mut self) -> Result<(), Difference> {
        for key in 0..KEYS {
            self.read(key).await?;
        }
        self.list(Query::default().with_limit(1)).await
    }
}
