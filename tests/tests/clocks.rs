//! Nodes whose clocks are hours apart, on real servers: the store's clock decides, and nobody
//! compares his own with another's.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use semel::core::clock::{Sleep, Tick};
use semel::core::{Clock, Timestamp};
use semel::{Error, OnBusy, Policy, Problem, Semel, tokio_env};
use tokio::sync::Notify;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A machine whose clock is wrong, and was started at another time.
struct Wrong {
    clock: Arc<dyn Clock>,
    ahead: bool,
}

impl Clock for Wrong {
    fn now(&self) -> Tick {
        self.clock
            .now()
            .plus(if self.ahead { HOUR } else { 7 * HOUR })
    }

    fn wall(&self) -> Timestamp {
        let hours = u64::try_from(3 * HOUR.as_micros()).expect("three hours");
        let now = self.clock.wall().as_micros();
        Timestamp::from_micros(if self.ahead { now + hours } else { now - hours })
    }

    fn sleep(&self, for_time: Duration) -> Sleep {
        self.clock.sleep(for_time)
    }
}

/// A node that tells callers at once where another runs; its clock is three hours fast or slow, or
/// right.
async fn node(url: &str, ahead: Option<bool>) -> Semel {
    let right = tokio_env();
    let env = match ahead {
        None => right,
        Some(ahead) => {
            let clock = Arc::clone(&right.clock);
            right.with_clock(Arc::new(Wrong { clock, ahead }))
        }
    };
    // An hour: over long ago by a clock that is three hours fast.
    let policy = Policy::default()
        .with_on_busy(OnBusy::Refuse)
        .with_retention(HOUR);
    let semel = Semel::builder().env(env).policy(policy).open(url).await;
    semel.expect("a store")
}

async fn run(semel: &Semel, key: &str) -> Result<(u8, bool, SystemTime), Error> {
    let call = semel.operation("clocks").key(key).payload(&1);
    let answer = call
        .run(|_| async { Ok::<_, std::io::Error>(2_u8) })
        .await?;
    Ok((answer.value, answer.replayed, answer.original_time))
}

/// Whoever holds the lease, nobody takes it over; whoever answered, everybody is given the same.
async fn nobody_is_fooled(url: &str) {
    let nodes = [
        node(url, None).await,
        node(url, Some(true)).await,
        node(url, Some(false)).await,
    ];
    for owner in &nodes {
        let key = format!("clocks-{:032x}", tokio_env().entropy.next_u128());
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (Arc::clone(&begun), Arc::clone(&go_on));
        let call = owner.operation("clocks").key(&key).payload(&1);
        let running = tokio::spawn(call.run(move |_| async move {
            tell.notify_one();
            wait.notified().await;
            Ok::<_, std::io::Error>(1_u8)
        }));
        begun.notified().await;
        for other in &nodes {
            let told = run(other, &key).await;
            let busy = matches!(&told, Err(Error::Problem(Problem::Busy { .. })));
            assert!(busy, "a live lease was not respected: {told:?}");
        }
        go_on.notify_one();
        let first = running.await.expect("no panic").expect("an answer");
        // Of the host that the servers run on; a fresh run's own time is its node's, and says
        // nothing here.
        let right = Duration::from_micros(tokio_env().clock.wall().as_micros());
        let mut times = Vec::new();
        for other in &nodes {
            let (value, replayed, at) = run(other, &key).await.expect("an answer");
            assert_eq!((value, replayed), (first.value, true), "run again");
            times.push(at.duration_since(UNIX_EPOCH).expect("after 1970"));
        }
        assert_eq!(times[0], times[1], "one time, whoever asks");
        assert_eq!(times[0], times[2], "one time, whoever asks");
        let apart = times[0].abs_diff(right);
        assert!(apart < HOUR, "not of the store's clock: {apart:?} off");
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up`")
    })
}

#[tokio::test]
async fn l6_on_redis_the_servers_clock_decides() {
    nobody_is_fooled(&variable("SEMEL_TEST_REDIS_URL")).await;
}

#[tokio::test]
async fn l6_on_postgres_the_servers_clock_decides() {
    nobody_is_fooled(&variable("SEMEL_TEST_POSTGRES_URL")).await;
}

#[tokio::test]
async fn l6_on_mariadb_the_servers_clock_decides() {
    nobody_is_fooled(&variable("SEMEL_TEST_MARIADB_URL")).await;
}

#[tokio::test]
async fn l6_in_a_bucket_the_servers_clock_decides() {
    nobody_is_fooled(&variable("SEMEL_TEST_S3_URL")).await;
}
