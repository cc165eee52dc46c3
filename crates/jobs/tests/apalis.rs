//! A worker of `apalis` that is given some tasks more than once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apalis_core::backend::TaskSink as _;
use apalis_core::backend::memory::MemoryStorage;
use apalis_core::error::BoxDynError;
use apalis_core::task::Task;
use apalis_core::task::data::Data;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use semel::{Policy, Semel};
use semel_core::Namespace;
use semel_jobs::tower::{OnceLayer, TaskIdentity};

/// How often each ran, and how many came.
#[derive(Clone, Default)]
struct Seen {
    runs: Arc<[AtomicUsize; 10]>,
    failed: Arc<AtomicUsize>,
}

async fn charge(
    order: usize,
    seen: Data<Seen>,
    worker: WorkerContext,
) -> Result<usize, BoxDynError> {
    if order == usize::MAX {
        worker.stop()?;
        return Ok(0);
    }
    // The first run of one of them fails: it is run again when it comes again.
    if order == 7 && seen.failed.fetch_add(1, Ordering::SeqCst) == 0 {
        return Err("no luck".into());
    }
    seen.runs[order].fetch_add(1, Ordering::SeqCst);
    Ok(order * 100)
}

#[tokio::test]
async fn a_task_that_comes_again_is_not_run_again() {
    let semel = Semel::open("memory://").await.unwrap();
    let namespace = Namespace::new("", "", "charge").unwrap();
    let describe = |task: &Task<usize>| {
        (task.args != usize::MAX).then(|| {
            TaskIdentity::new(
                format!("order-{}", task.args),
                task.args.to_string().into_bytes(),
            )
        })
    };
    let layer = OnceLayer::new(semel.engine(), namespace, Policy::default(), describe);
    let mut storage = MemoryStorage::new();
    for _ in 0..3 {
        for order in 0..10 {
            storage.push(order).await.unwrap();
        }
    }
    storage.push(usize::MAX).await.unwrap();
    let seen = Seen::default();
    let worker = WorkerBuilder::new("worker-1")
        .backend(storage)
        .data(seen.clone())
        .layer(layer)
        .build(charge);
    worker.run().await.unwrap();
    let runs: Vec<usize> = seen
        .runs
        .iter()
        .map(|runs| runs.load(Ordering::SeqCst))
        .collect();
    assert_eq!(runs, [1; 10]);
}
