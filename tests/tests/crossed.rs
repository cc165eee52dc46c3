//! Effects that ask for each other's keys, the way in which locks deadlock. Here nobody waits for
//! ever: a request holds one lease, and a wait for another's has an end.

use std::sync::Arc;
use std::time::Duration;

use semel::{Error, OnBusy, Policy, Problem, Semel, tokio_env};
use tokio::sync::Barrier;

/// How long a caller waits for another's run, at most.
const PATIENCE: Duration = Duration::from_millis(300);

/// Runs `outer`; its effect, once both have begun, asks for `inner`. → what it was told of that.
async fn cross(semel: Semel, outer: String, inner: String, both: Arc<Barrier>) -> String {
    let again = semel.clone();
    let call = semel.operation("crossed").key(&outer).no_payload();
    let answer = call.run(move |_| async move {
        both.wait().await;
        let call = again.operation("crossed").key(&inner).no_payload();
        let told = call
            .run(|_| async { Ok::<_, std::io::Error>("ran".to_owned()) })
            .await;
        Ok::<_, std::io::Error>(match told {
            Ok(answer) => answer.value,
            Err(Error::Problem(Problem::Busy { .. })) => "busy".to_owned(),
            Err(error) => error.to_string(),
        })
    });
    answer.await.expect("the outer one ends").value
}

/// Two and two, crossed, in one process and in two.
async fn nobody_waits_for_ever(url: &str) {
    let policy = Policy::default().with_on_busy(OnBusy::Wait(PATIENCE));
    let node = async || {
        let builder = Semel::builder().policy(policy.clone());
        builder.open(url).await.expect("a store")
    };
    let (first, second) = (node().await, node().await);
    for other in [&first, &second] {
        let run = tokio_env().entropy.next_u128();
        let (a, b) = (format!("a-{run:032x}"), format!("b-{run:032x}"));
        let both = Arc::new(Barrier::new(2));
        let one = cross(first.clone(), a.clone(), b.clone(), Arc::clone(&both));
        let two = cross(other.clone(), b.clone(), a.clone(), both);
        let (one, two) = tokio::join!(tokio::spawn(one), tokio::spawn(two));
        let told = [one.expect("no panic"), two.expect("no panic")];
        // Both held their own; at least one of them was told so instead of waiting for the other
        // for ever. The other may have been given the answer of the one that gave up first.
        assert!(told.contains(&"busy".to_owned()), "{told:?}");
        assert!(
            told.iter().all(|told| told != "ran"),
            "a held key ran: {told:?}"
        );
        for key in [a, b] {
            let call = second.operation("crossed").key(&key).no_payload();
            let later = call
                .run(|_| async { Ok::<_, std::io::Error>(String::new()) })
                .await;
            assert!(later.expect("an answer").replayed, "its key is settled");
        }
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up`")
    })
}

#[tokio::test]
async fn l8_on_redis_crossed_effects_end() {
    nobody_waits_for_ever(&variable("SEMEL_TEST_REDIS_URL")).await;
}

#[tokio::test]
async fn l8_on_postgres_crossed_effects_end() {
    nobody_waits_for_ever(&variable("SEMEL_TEST_POSTGRES_URL")).await;
}

#[tokio::test]
async fn l8_on_mariadb_crossed_effects_end() {
    nobody_waits_for_ever(&variable("SEMEL_TEST_MARIADB_URL")).await;
}

#[tokio::test]
async fn l8_on_sqlite_crossed_effects_end() {
    let folder = semel_testkit::private::new_folder("crossed");
    nobody_waits_for_ever(&format!("sqlite://{}/keys.db", folder.display())).await;
    std::fs::remove_dir_all(folder).expect("a folder of our own");
}

#[tokio::test]
async fn l8_in_a_bucket_crossed_effects_end() {
    nobody_waits_for_ever(&variable("SEMEL_TEST_S3_URL")).await;
}
