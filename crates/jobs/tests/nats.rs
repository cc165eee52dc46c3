//! Submitting to a real JetStream.

use std::time::Duration;

use async_nats::jetstream;
use semel::Semel;
use semel_core::Key;
use semel_jobs::nats::{JOB_ID, Submitter};
use semel_jobs::{Error, NewJob, SubmitOutcome};

struct Bench {
    context: jetstream::Context,
    subject: String,
}

impl Bench {
    async fn new() -> Self {
        let url = std::env::var("SEMEL_TEST_NATS_URL")
            .expect("start the servers with `cargo xtask services up`");
        let client = async_nats::connect(url).await.expect("the server");
        let context = jetstream::new(client);
        let subject = format!("jobs_{:032x}", semel::tokio_env().entropy.next_u128());
        let stream = context.create_stream(jetstream::stream::Config {
            name: subject.clone(),
            subjects: vec![subject.clone()],
            duplicate_window: Duration::from_secs(120),
            storage: jetstream::stream::StorageType::Memory,
            ..Default::default()
        });
        stream.await.expect("a stream");
        Self { context, subject }
    }

    /// A submitter whose records nobody else has.
    async fn submitter(&self) -> Submitter {
        let semel = Semel::open("memory://").await.expect("memory");
        Submitter::new(semel.engine(), self.context.clone(), "", &self.subject)
    }

    async fn messages(&self) -> u64 {
        let mut stream = self
            .context
            .get_stream(&self.subject)
            .await
            .expect("the stream");
        stream.info().await.expect("an answer").state.messages
    }
}

fn job(key: Option<&str>, amount: u64) -> NewJob {
    let mut job = NewJob::new("charge", format!(r#"{{"amount": {amount}}}"#));
    job.key = key.map(|key| Key::parse(key).expect("a key"));
    job
}

#[tokio::test]
async fn a_key_is_published_once_however_often_it_is_submitted() {
    let bench = Bench::new().await;
    let submitter = bench.submitter().await;
    let all = (0..8).map(|_| submitter.submit(job(Some("k-1"), 5)));
    let answers = futures_util::future::join_all(all).await;
    let answers: Vec<SubmitOutcome> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        answers
            .iter()
            .filter(|answer| !answer.is_duplicate())
            .count(),
        1
    );
    assert!(
        answers
            .iter()
            .all(|answer| answer.job() == answers[0].job())
    );
    let other = submitter.submit(job(Some("k-1"), 6)).await;
    assert!(matches!(other, Err(Error::Conflict)), "{other:?}");
    assert_eq!(bench.messages().await, 1);
    submitter.submit(job(None, 5)).await.unwrap();
    submitter.submit(job(None, 5)).await.unwrap();
    assert_eq!(bench.messages().await, 3);
    let stream = bench.context.get_stream(&bench.subject).await.unwrap();
    let message = stream.get_raw_message(1).await.unwrap();
    let id = message.headers.get(JOB_ID).expect("its id");
    assert_eq!(id.as_str(), answers[0].job().id.to_string());
}

/// What the stream takes for a duplicate and discards is one: nobody is told that another's job is
/// theirs.
#[tokio::test]
async fn other_parameters_are_another_message_where_the_key_was_forgotten() {
    let bench = Bench::new().await;
    let (one, other) = (bench.submitter().await, bench.submitter().await);
    let first = one.submit(job(Some("k-1"), 5)).await.unwrap();
    let second = other.submit(job(Some("k-1"), 6)).await.unwrap();
    assert_ne!(first.job(), second.job());
    assert_eq!(bench.messages().await, 2);
}

/// A submitter that vanished after it published, and before that was noted: whoever repeats it
/// knows nothing of it.
#[tokio::test]
async fn unrecorded_publish_is_not_in_the_stream_twice() {
    let bench = Bench::new().await;
    let first = bench
        .submitter()
        .await
        .submit(job(Some("k-1"), 5))
        .await
        .unwrap();
    let again = bench
        .submitter()
        .await
        .submit(job(Some("k-1"), 5))
        .await
        .unwrap();
    assert_eq!(again.job(), first.job());
    assert_eq!(bench.messages().await, 1);
}
