//! What other idempotency layers get wrong, one check each, for any layer under test.
//!
//! Each is named after where it was found. Our own tests run them on our layer; `bench/peers` runs
//! the same ones on a published peer, which shows that they can fail.

mod app;
mod client;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::BoxFuture;

use app::App;
use client::Client;

/// A layer under test.
pub(crate) trait Subject: Send + Sync {
    /// Puts the layer around the application; on a store that works, or on one that is down.
    fn wrap(&self, app: Router, store: StoreIs) -> BoxFuture<'static, Router>;
}

/// What the layer's store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreIs {
    Up,
    Down,
}

/// What a check found: nothing, or what is wrong.
pub(crate) type Found = Result<(), String>;

/// One check.
pub(crate) struct Defect {
    /// Named after where it was found.
    pub(crate) name: &'static str,
    /// Looks for it.
    pub(crate) check: fn(Arc<dyn Subject>) -> BoxFuture<'static, Found>,
}

macro_rules! defects {
    ($($name:ident),* $(,)?) => {
        /// All of them.
        pub(crate) const DEFECTS: &[Defect] = &[
            $(Defect { name: stringify!($name), check: |subject| Box::pin($name(subject)) }),*
        ];
    };
}

defects![
    axum_idempotent_concurrent_requests_both_run,
    axum_idempotent_runs_without_protection_when_the_store_is_down,
    axum_idempotent_a_large_request_is_not_protected,
    axum_idempotent_a_large_answer_is_run_again,
    powertools_a_late_finisher_changes_the_answer,
    diom_another_payload_gets_the_first_answer,
    restate_another_payload_attaches_while_running,
    warmplane_a_caller_that_gives_up_makes_the_retry_act_again,
    warmplane_a_caller_that_gives_up_cuts_the_work_in_half,
    idempotent_proxy_an_error_leaves_the_key_held,
    idempotent_proxy_the_path_is_not_part_of_the_payload,
    asgi_a_crash_leaves_the_key_held,
    express_of_many_at_once_several_run,
    fiber_another_users_answer_is_replayed,
    fiber_cookies_are_replayed,
    nestarc_a_streamed_answer_is_run_again,
    hono_location_is_lost_on_replay,
];

async fn start(subject: &Arc<dyn Subject>, store: StoreIs) -> (App, Client) {
    let app = App::default();
    let router = subject.wrap(app.router(), store).await;
    let client = Client::to(app::serve(router).await).await;
    (app, client)
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Found {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

fn ran(app: &App, times: usize) -> Found {
    let runs = app.runs();
    ensure(
        runs == times,
        format!("ran {runs} times instead of {times}"),
    )
}

async fn axum_idempotent_concurrent_requests_both_run(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    let (a, b) = tokio::join!(
        client.post("/slow", "k", "1"),
        client.post("/slow", "k", "1")
    );
    ran(&app, 1)?;
    ensure(a.body == b.body, "two callers got two answers")
}

async fn axum_idempotent_runs_without_protection_when_the_store_is_down(
    subject: Arc<dyn Subject>,
) -> Found {
    let (app, client) = start(&subject, StoreIs::Down).await;
    client.post("/charge", "k", "1").await;
    client.post("/charge", "k", "1").await;
    ensure(app.runs() < 2, format!("ran {} times", app.runs()))
}

async fn axum_idempotent_a_large_request_is_not_protected(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    let large = "x".repeat(3 * 1024 * 1024);
    // A server may answer and hang up before it has read so much.
    client.try_post("/charge", "k", &large).await;
    client.try_post("/charge", "k", &large).await;
    ensure(app.runs() < 2, format!("ran {} times", app.runs()))
}

async fn axum_idempotent_a_large_answer_is_run_again(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    client.post("/large", "k", "1").await;
    client.post("/large", "k", "1").await;
    ran(&app, 1)
}

async fn powertools_a_late_finisher_changes_the_answer(subject: Arc<dyn Subject>) -> Found {
    let (_app, client) = start(&subject, StoreIs::Up).await;
    // The first to start is the last to end.
    let first = client.clone();
    let first = tokio::spawn(async move { first.post("/ever-faster", "k", "1").await });
    app::pause(Duration::from_millis(60)).await;
    let second = client.post("/ever-faster", "k", "1").await;
    let first = first.await.map_err(|error| error.to_string())?;
    let third = client.post("/ever-faster", "k", "1").await;
    ensure(
        first.body == second.body && second.body == third.body,
        "the answer changed after it was given",
    )
}

async fn diom_another_payload_gets_the_first_answer(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    client.post("/charge", "k", "1").await;
    let other = client.post("/charge", "k", "1000").await;
    ran(&app, 1)?;
    ensure(
        other.status.is_client_error(),
        format!("answered {}", other.status),
    )
}

async fn restate_another_payload_attaches_while_running(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    let (_, other) = tokio::join!(client.post("/slow", "k", "1"), async {
        app::pause(Duration::from_millis(60)).await;
        client.post("/slow", "k", "1000").await
    });
    ran(&app, 1)?;
    ensure(
        other.status.is_client_error(),
        format!("answered {}", other.status),
    )
}

async fn warmplane_a_caller_that_gives_up_makes_the_retry_act_again(
    subject: Arc<dyn Subject>,
) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    client
        .give_up("/slow", "k", "1", Duration::from_millis(60))
        .await;
    let retry = client.post("/slow", "k", "1").await;
    ran(&app, 1)?;
    ensure(
        retry.status.is_success(),
        format!("the retry got {}", retry.status),
    )
}

async fn warmplane_a_caller_that_gives_up_cuts_the_work_in_half(
    subject: Arc<dyn Subject>,
) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    client
        .give_up("/slow", "k", "1", Duration::from_millis(60))
        .await;
    app::pause(Duration::from_millis(500)).await;
    let (begun, ended) = (app.runs(), app.ends());
    ensure(begun == ended, format!("{begun} begun, {ended} ended"))
}

async fn idempotent_proxy_an_error_leaves_the_key_held(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    client.post("/fails-once", "k", "1").await;
    let retry = client.post("/fails-once", "k", "1").await;
    ran(&app, 2)?;
    ensure(
        retry.status.is_success(),
        format!("the retry got {}", retry.status),
    )
}

async fn idempotent_proxy_the_path_is_not_part_of_the_payload(subject: Arc<dyn Subject>) -> Found {
    let (_app, client) = start(&subject, StoreIs::Up).await;
    let first = client.post("/charge", "k", "1").await;
    let other = client.post("/refund", "k", "1").await;
    ensure(
        first.body != other.body,
        "another path was answered with the first's answer",
    )
}

async fn asgi_a_crash_leaves_the_key_held(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    client.try_post("/panics-once", "k", "1").await;
    let retry = client.post("/panics-once", "k", "1").await;
    ran(&app, 2)?;
    ensure(
        retry.status.is_success(),
        format!("the retry got {}", retry.status),
    )
}

async fn express_of_many_at_once_several_run(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    let all = (0..10).map(|_| client.post("/slow", "k", "1"));
    let answers = futures_util::future::join_all(all).await;
    ran(&app, 1)?;
    let same = answers.iter().all(|answer| answer.body == answers[0].body);
    ensure(same, "not all got the same answer")
}

async fn fiber_another_users_answer_is_replayed(subject: Arc<dyn Subject>) -> Found {
    let (_app, client) = start(&subject, StoreIs::Up).await;
    let alice = client.post_as("/whoami", "k", "1", "Bearer alice").await;
    // From a browser of his own: a layer that keeps answers in a session has another one for him.
    let bob = client.another().await;
    let bob = bob.post_as("/whoami", "k", "1", "Bearer bob").await;
    ensure(
        alice.body == "Bearer alice",
        format!("alice got {}", alice.body),
    )?;
    ensure(bob.body != "Bearer alice", "bob got alice's answer")
}

async fn fiber_cookies_are_replayed(subject: Arc<dyn Subject>) -> Found {
    let (_app, client) = start(&subject, StoreIs::Up).await;
    client.post("/login", "k", "1").await;
    let replay = client.post("/login", "k", "1").await;
    let cookies = replay.all("set-cookie");
    ensure(
        !cookies.iter().any(|cookie| cookie.contains("secret")),
        "the first caller's cookie was given to the second",
    )
}

async fn nestarc_a_streamed_answer_is_run_again(subject: Arc<dyn Subject>) -> Found {
    let (app, client) = start(&subject, StoreIs::Up).await;
    client.post("/stream", "k", "1").await;
    client.post("/stream", "k", "1").await;
    ran(&app, 1)
}

async fn hono_location_is_lost_on_replay(subject: Arc<dyn Subject>) -> Found {
    let (_app, client) = start(&subject, StoreIs::Up).await;
    let first = client.post("/charge", "k", "1").await;
    let replay = client.post("/charge", "k", "1").await;
    ensure(
        first.all("location") == ["/charges/1"],
        "the application sets a location",
    )?;
    ensure(
        (replay.status, replay.all("location")) == (first.status, first.all("location")),
        format!(
            "the replay got {} {:?}",
            replay.status,
            replay.all("location")
        ),
    )
}
