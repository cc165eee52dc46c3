//! A submitter that sends three in ten again, and after a restart whatever it heard nothing of.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use semel_core::Key;
use semel_jobs::{NewJob, Queue, SubmitOutcome};

use crate::SUBMITTERS;

/// Submissions on the way at a time.
const AT_ONCE: u64 = 50;

/// The key of a submission: in three cases of ten, that of an earlier one of any submitter.
fn key(submitter: u64, position: u64) -> String {
    let mut random = StdRng::seed_from_u64(submitter << 32 | position);
    if position > 0 && random.random_bool(0.3) {
        let earlier = random.random_range(position.saturating_sub(500)..position);
        return key(random.random_range(0..SUBMITTERS as u64), earlier);
    }
    format!("order-{submitter}-{position}")
}

fn job(key: &str) -> NewJob {
    let params = format!(r#"{{"key": "{key}", "amount": 100}}"#);
    let mut job = NewJob::new("charge", params);
    job.key = Some(Key::parse(key).expect("a key"));
    // Workers are killed more often here than anywhere.
    job.max_attempts = Some(1000);
    job
}

pub(crate) async fn submit(url: &str, number: u64, total: u64) {
    let queue = crate::open(url).await;
    let pool = crate::pool(url).await;
    let clock = semel::tokio_env().clock;
    let pause = || clock.sleep(Duration::from_millis(50));
    let question = "SELECT coalesce(max(position) + 1, 0) FROM acks WHERE submitter = $1";
    let submitter = i32::try_from(number).expect("a small number");
    let mut next = loop {
        let asked = sqlx::query_scalar::<_, i64>(question).bind(submitter);
        match asked.fetch_one(&pool).await {
            Ok(next) => break next.unsigned_abs(),
            Err(_) => pause().await,
        }
    };
    while next < total {
        let end = (next + AT_ONCE).min(total);
        let keys: Vec<String> = (next..end).map(|position| key(number, position)).collect();
        let answers = acknowledged(&*queue, &keys, &pause).await;
        let positions: Vec<i64> = (next..end).map(u64::cast_signed).collect();
        let jobs: Vec<String> = answers
            .iter()
            .map(|answer| answer.job().id.to_string())
            .collect();
        let states: Vec<&str> = answers.iter().map(SubmitOutcome::status).collect();
        let note = "INSERT INTO acks (submitter, position, key, job_id, status) \
                    SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[]) ON CONFLICT DO NOTHING";
        loop {
            let note = sqlx::query(note).bind(submitter).bind(&positions);
            let noted = note
                .bind(&keys)
                .bind(&jobs)
                .bind(&states)
                .execute(&pool)
                .await;
            if noted.is_ok() {
                break;
            }
            pause().await;
        }
        next = end;
    }
}

/// Submits until each has an answer.
async fn acknowledged<F: Future<Output = ()>>(
    queue: &dyn Queue,
    keys: &[String],
    pause: impl Fn() -> F,
) -> Vec<SubmitOutcome> {
    let mut answers: Vec<Option<SubmitOutcome>> = vec![None; keys.len()];
    loop {
        let open: Vec<usize> = (0..keys.len()).filter(|n| answers[*n].is_none()).collect();
        if open.is_empty() {
            return answers.into_iter().flatten().collect();
        }
        let jobs = open.iter().map(|n| job(&keys[*n])).collect();
        for (n, answer) in open.iter().zip(queue.enqueue(jobs).await) {
            answers[*n] = answer.ok();
        }
        if answers.iter().any(Option::is_none) {
            pause().await;
        }
    }
}
