//! Runs checks, and reports the results.

#![expect(
    clippy::disallowed_methods,
    reason = "a suite that hangs must end, whatever clock the store has"
)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::registry::{ALL, ConformanceCheck};
use super::{CheckVerdict, Scene, Subject};

/// How long a check may take, in real time, before it counts as stuck.
const STUCK: Duration = Duration::from_secs(120);

/// What came out of one check.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The check's name.
    pub name: &'static str,
    /// The rules that it is about.
    pub rules: &'static str,
    /// Why the store doesn't keep the rule; `None` where it does.
    pub failure: Option<String>,
}

/// What came out of a suite: one row per check, none left out.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConformanceReport {
    /// Which store.
    pub store: &'static str,
    /// The rows, in the order of the rules.
    pub rows: Vec<Row>,
}

impl ConformanceReport {
    /// The names of the checks that failed.
    #[must_use]
    pub fn failures(&self) -> Vec<&str> {
        self.rows
            .iter()
            .filter(|row| row.failure.is_some())
            .map(|row| row.name)
            .collect()
    }

    /// Panics, with the whole table, unless every check passed.
    ///
    /// # Panics
    /// Where a check failed.
    pub fn assert_all_passed(&self) {
        assert!(self.failures().is_empty(), "{self}");
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failures().len();
        writeln!(
            f,
            "{}: {} checks, {failed} failed",
            self.store,
            self.rows.len()
        )?;
        for Row {
            name,
            rules,
            failure,
        } in &self.rows
        {
            match failure {
                None => writeln!(f, "  ok    {name} ({rules})")?,
                Some(why) => writeln!(f, "  FAIL  {name} ({rules}): {why}")?,
            }
        }
        Ok(())
    }
}

/// Runs every check against `subject`, one after the other, each in a corner of its own.
///
/// Must be called inside a Tokio runtime with time enabled and, for the races to be races, several
/// threads.
pub async fn run(subject: Arc<dyn Subject>) -> ConformanceReport {
    let store = subject.store().capabilities().name;
    let mut rows = Vec::with_capacity(ALL.len());
    for check in ALL {
        let failure = one(check, Arc::clone(&subject))
            .await
            .err()
            .map(|why| format!("{why:#}"));
        rows.push(Row {
            name: check.name,
            rules: check.rules,
            failure,
        });
    }
    ConformanceReport { store, rows }
}

/// Runs one check; a panic and a check that never ends are failures like any other.
async fn one(check: &ConformanceCheck, subject: Arc<dyn Subject>) -> CheckVerdict {
    let task = tokio::spawn((check.run)(Scene::new(subject)));
    let abort = task.abort_handle();
    match tokio::time::timeout(STUCK, task).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(panic)) => Err(anyhow::anyhow!("panicked: {panic}")),
        Err(_) => {
            abort.abort();
            Err(anyhow::anyhow!("not done after {STUCK:?}"))
        }
    }
}

/// The body of a test that [`conformance_tests!`](crate::conformance_tests) makes: runs the check
/// called `name` in a runtime of its own.
///
/// # Panics
/// Where the check fails, or there is none of that name.
pub fn test<S: Subject>(name: &str, subject: impl AsyncFnOnce() -> S) {
    let Some(check) = ConformanceCheck::named(name) else {
        panic!("there is no check called {name}")
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime to test in: {error}"),
    };
    let verdict = runtime.block_on(async { one(check, Arc::new(subject().await)).await });
    if let Err(why) = verdict {
        panic!("{} ({}): {why:#}", check.name, check.rules);
    }
}

/// Makes one test per check: `conformance_tests!(module_name, async || subject)`.
///
/// The second argument is an async closure or function that makes a fresh
/// [`Subject`](crate::Subject); each test calls it once, inside a runtime of its own
/// with several threads.
#[macro_export]
macro_rules! conformance_tests {
    ($module:ident, $subject:expr) => {
        mod $module {
            #[allow(
                unused_imports,
                reason = "the expression that makes a subject may need them"
            )]
            use super::*;

            $crate::with_conformance_checks!($crate::__conformance_test!($subject));
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_test {
    (($subject:expr) $($module:ident $name:ident $rules:literal;)*) => {
        $(
            #[test]
            fn $name() {
                $crate::test(stringify!($name), $subject);
            }
        )*
    };
}
