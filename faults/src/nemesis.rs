//! The nemesis: faults of workers and of the network, chosen from the seed, and undone before the
//! round ends.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rand::RngExt as _;
use rand::rngs::StdRng;
use semel_testkit::proxy::{Cut, Proxy, Way};
use tokio::sync::Mutex;

use crate::clock::{pass, tick};
use crate::crew::WorkerPool;
use crate::kinds::{Kind, StrikeCounts};
use crate::points::Point;
use crate::verdict::Windows;

const HOUR: i64 = 3600;

/// Strikes workers until the tick `until`.
pub(crate) async fn strike_workers(
    crew: Arc<Mutex<WorkerPool>>,
    windows: Arc<parking_lot::Mutex<Windows>>,
    mut rng: StdRng,
    lease: Duration,
    until: u64,
) -> Result<StrikeCounts> {
    let mut struck = StrikeCounts::default();
    loop {
        pass(Duration::from_millis(rng.random_range(100..500))).await;
        if tick() >= until {
            return Ok(struck);
        }
        let (workers, processes, skews) = {
            let crew = crew.lock().await;
            (crew.len(), crew.has_processes(), crew.can_skew())
        };
        let index = rng.random_range(0..workers);
        match rng.random_range(0..10) {
            0..3 => {
                crew.lock().await.replace(index, 0).await?;
                struck.add(Kind::KillWorker, 1);
            }
            3..7 if processes => {
                let point = Point::ALL[rng.random_range(0..Point::ALL.len())];
                let after = rng.random_range(0..40);
                let died = kill_at(&crew, index, point, after).await?;
                struck.add(Kind::of_point(point), u64::from(died));
            }
            7..9 if processes => {
                let client = crew.lock().await.client_of(index);
                let from = tick();
                crew.lock().await.stop(index, true);
                pass(lease.mul_f64(rng.random_range(1.1..2.0))).await;
                crew.lock().await.stop(index, false);
                windows.lock().pauses.push((client, from, tick()));
                struck.add(Kind::PauseWorker, 1);
            }
            9 if skews => {
                let mut crew = crew.lock().await;
                let was = crew.skew_of(index);
                let now = match rng.random_range(0..2) {
                    _ if was != 0 => 0,
                    0 => HOUR,
                    _ => -HOUR,
                };
                crew.replace(index, now).await?;
                struck.add(Kind::ClientClockSkew, u64::from(now != 0));
            }
            _ => {}
        }
    }
}

/// Lets a worker die at a point, if it gets there. Returns whether it died.
async fn kill_at(crew: &Mutex<WorkerPool>, index: usize, point: Point, after: u32) -> Result<bool> {
    crew.lock().await.arm(index, Some((point, after))).await;
    for _ in 0..40 {
        pass(Duration::from_millis(25)).await;
        let mut crew = crew.lock().await;
        if crew.is_dead(index) {
            crew.replace(index, 0).await?;
            return Ok(true);
        }
    }
    crew.lock().await.arm(index, None).await;
    Ok(false)
}

/// The faults of the network.
pub(crate) const ON_WAYS: [Kind; 4] = [
    Kind::CutBeforeWrite,
    Kind::CutAfterWrite,
    Kind::Latency,
    Kind::Partition,
];

/// Strikes the network once, and undoes it. Returns how often it struck.
pub(crate) async fn strike_ways(
    kind: Kind,
    ways: &[Proxy],
    rng: &mut StdRng,
    lease: Duration,
) -> u64 {
    let way = &ways[rng.random_range(0..ways.len())];
    match kind {
        Kind::CutBeforeWrite | Kind::CutAfterWrite => {
            let cut = if kind == Kind::CutBeforeWrite {
                Cut::BeforeRequest
            } else {
                Cut::BeforeReply
            };
            let before = way.cuts();
            for _ in 0..rng.random_range(1..5) {
                way.cut_after(rng.random_range(0..30), cut);
            }
            pass(Duration::from_millis(400)).await;
            way.disarm();
            way.cuts() - before
        }
        Kind::Latency => {
            let all = rng.random_bool(0.3);
            let struck: Vec<&Proxy> = if all {
                ways.iter().collect()
            } else {
                vec![way]
            };
            for way in &struck {
                way.delay(Way::Request, Duration::from_millis(rng.random_range(0..60)));
                way.delay(Way::Reply, Duration::from_millis(rng.random_range(0..60)));
            }
            pass(Duration::from_millis(rng.random_range(300..800))).await;
            for way in &struck {
                way.delay(Way::Request, Duration::ZERO);
                way.delay(Way::Reply, Duration::ZERO);
            }
            1
        }
        _ => {
            way.hold(Way::Request, true);
            way.hold(Way::Reply, rng.random_bool(0.5));
            pass(lease.mul_f64(rng.random_range(0.3..1.6))).await;
            if rng.random_bool(0.5) {
                way.cut_all();
            }
            way.hold(Way::Request, false);
            way.hold(Way::Reply, false);
            1
        }
    }
}
