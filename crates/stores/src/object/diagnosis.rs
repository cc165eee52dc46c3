//! Health checks of the bucket for `semel doctor`. Never on the hot path.

use semel_core::diagnosis::{Finding, Severity};
use semel_core::store::StoreResult;

use super::Inner;
use super::probe;

impl Inner {
    pub(super) async fn diagnose(&self) -> StoreResult<Vec<Finding>> {
        let clock = self.link.time.clock();
        let began = clock.now();
        let tried = Box::pin(probe::probe(&self.link, &self.root, self.cloud)).await;
        let took = clock.now().since(began);
        let (server, here) = (self.link.time.now(), clock.wall());
        let apart = here.since(server).max(server.since(here));
        let conditions = match tried {
            Ok(_) => Finding::good("conditional writes", "kept to, also when many ask at once"),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let fix = "two callers could win: use another server, or a newer version of it";
                let found = cause.unwrap_or_else(|| error.to_string());
                Finding::bad("conditional writes", Severity::Broken, found, fix)
            }
        };
        Ok(vec![
            conditions,
            self.sweeping(),
            Finding::clock(apart, took),
        ])
    }

    fn sweeping(&self) -> Finding {
        let fix = "expired records are treated as absent, but stay: give the bucket the rule that `semel lifecycle` prints";
        if self.can_sweep() {
            return Finding::good("sweeping", "done by our processes, by conditional deletion");
        }
        let found = if self.fitness.deletes {
            "off in the URL"
        } else {
            "not possible: the server has no conditional deletion that we can use"
        };
        Finding::bad("sweeping", Severity::Note, found, fix)
    }
}
