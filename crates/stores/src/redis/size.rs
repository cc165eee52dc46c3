//! What the records cost the servers, for `semel bench`. Never on the hot path.

use semel_core::store::StoreResult;

use super::RedisStore;
use super::error::unexpected;
use super::health::value;

/// The resources that all masters have used so far. The cost of some work is the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedisUsage {
    /// Memory in use, by everything on the servers.
    pub bytes: u64,
    /// Commands run, for everybody.
    pub commands: u64,
    /// Masters that share the keys.
    pub masters: u64,
}

impl RedisStore {
    /// What the servers have used so far.
    ///
    /// # Errors
    /// If one doesn't answer.
    pub async fn usage(&self) -> StoreResult<RedisUsage> {
        let (_, masters) = self.inner.link.masters();
        let mut usage = RedisUsage::default();
        for node in &masters {
            let reply = node.ask(redis::cmd("INFO").arg("everything")).await?;
            let info: String = redis::from_redis_value(reply).map_err(|_| unexpected("INFO"))?;
            let number = |name| value(&info, name).and_then(|text| text.parse::<u64>().ok());
            usage.bytes += number("used_memory").unwrap_or(0);
            usage.commands += number("total_commands_processed").unwrap_or(0);
            usage.masters += 1;
        }
        Ok(usage)
    }
}
