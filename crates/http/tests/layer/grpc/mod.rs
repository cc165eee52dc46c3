//! gRPC through tonic, with the same layer.

mod server;

use futures_util::stream::{self, StreamExt as _};
use semel::http::Route;
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;

use crate::support::{Protocol, Runs, until};
use server::{Rig, Text, code, is_replay, keyed};

#[tokio::test]
async fn a_unary_call_runs_once_and_its_message_is_replayed() {
    let rig = Rig::new(Route::new().keep_header("x-charge-id")).await;
    let first = rig.charge("k", "book").await.unwrap();
    let second = rig.charge("k", "book").await.unwrap();
    assert!(!is_replay(first.metadata()) && is_replay(second.metadata()));
    assert_eq!(
        (first.get_ref(), second.get_ref()),
        (&"book 1".to_owned(), &"book 1".to_owned())
    );
    assert_eq!(second.metadata().get("x-charge-id").unwrap(), "1");
    assert!(second.metadata().get("x-original-request-time").is_some());
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn a_final_status_is_replayed_with_message_and_details() {
    let rig = Rig::new(Route::new()).await;
    let first = rig.charge("k", "declined").await.unwrap_err();
    let second = rig.charge("k", "declined").await.unwrap_err();
    assert!(is_replay(second.metadata()));
    for status in [&first, &second] {
        assert_eq!(
            (status.code(), status.message()),
            (Code::FailedPrecondition, "döner")
        );
        assert_eq!(status.details(), [1, 2]);
    }
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn statuses_that_say_not_now_free_the_key() {
    for (what, hold) in [
        ("unavailable", false),
        ("busy", false),
        ("busy", true),
        ("panic", false),
    ] {
        let route = if hold {
            Route::new().hold()
        } else {
            Route::new()
        };
        let rig = Rig::new(route).await;
        for _ in 0..2 {
            assert!(rig.charge("k", what).await.is_err());
        }
        assert_eq!(rig.runs.begun(), 2, "{what}");
    }
    let rig = Rig::new(Route::new().hold()).await;
    assert_eq!(
        rig.charge("k", "unavailable").await.unwrap_err().code(),
        Code::Unavailable
    );
    let doubt = rig.charge("k", "unavailable").await.unwrap_err();
    assert_eq!(
        (doubt.code(), code(&doubt)),
        (Code::FailedPrecondition, "idempotency_in_doubt")
    );
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn call_without_a_final_status_is_not_completed() {
    let runs = Runs::default();
    let charges = runs.clone();
    // As through a proxy that loses trailers.
    let lossy = move || async move {
        charges.begin();
        ([("content-type", "application/grpc")], "message")
    };
    let router = axum::Router::new().fallback(axum::routing::post(lossy));
    let rig = crate::support::Rig::with(Route::new().hold(), router).await;
    let mut client = rig.client(Protocol::Http2).await;
    let call = || {
        axum::http::Request::post("/test.Charges/Charge")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("idempotency-key", "k")
            .body(axum::body::Body::from("\0\0\0\0\u{4}book"))
            .unwrap()
    };
    assert_eq!(client.send(call()).await.text(), "message");
    let again = client.send(call()).await;
    let doubt = (Code::FailedPrecondition as i32).to_string();
    assert_eq!(again.header("grpc-status"), Some(&*doubt), "{again:?}");
    assert_eq!(runs.begun(), 1);
}

#[tokio::test]
async fn other_message_or_invalid_key_is_refused() {
    let rig = Rig::new(Route::new()).await;
    rig.charge("k", "book").await.unwrap();
    let conflict = rig.charge("k", "car").await.unwrap_err();
    assert_eq!(
        (conflict.code(), code(&conflict)),
        (Code::FailedPrecondition, "idempotency_conflict")
    );
    let pushback = conflict.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert_eq!(pushback, "-1", "retrying won't help");
    let invalid = rig.charge("no key", "book").await.unwrap_err();
    assert_eq!(invalid.code(), Code::InvalidArgument);
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn call_without_a_key_passes_unless_one_is_required() {
    let rig = Rig::new(Route::new()).await;
    for _ in 0..2 {
        rig.charge("", "book").await.unwrap();
    }
    assert_eq!(rig.runs.begun(), 2);
    let rig = Rig::new(Route::new().require_key()).await;
    let refused = rig.charge("", "book").await.unwrap_err();
    assert_eq!(
        (refused.code(), code(&refused)),
        (Code::InvalidArgument, "idempotency_key_required")
    );
}

#[tokio::test]
async fn concurrent_calls_share_one_run_that_survives_cancellation() {
    let rig = Rig::new(Route::new()).await;
    let (a, b) = tokio::join!(rig.charge("k", "slow"), rig.charge("k", "slow"));
    assert_eq!(a.unwrap().into_inner(), b.unwrap().into_inner());
    assert_eq!(rig.runs.begun(), 1);
    tokio::select! {
        _ = rig.charge("l", "slow") => panic!("not cancelled"),
        () = until("it runs", || rig.runs.begun() == 2) => {}
    }
    until("it ends", || rig.runs.ended() == 2).await;
    assert!(is_replay(rig.charge("l", "slow").await.unwrap().metadata()));
    assert_eq!(rig.semel.engine().running(), 0);
}

#[tokio::test]
async fn client_streams_pass_without_a_key_and_are_refused_with_one() {
    let rig = Rig::new(Route::new()).await;
    let upload = async |key: &str| {
        let messages = stream::iter(["a".to_owned(), "b".to_owned()]);
        let path = PathAndQuery::from_static("/test.Charges/Upload");
        let mut grpc = rig.grpc().await;
        grpc.client_streaming(keyed(messages, key), path, Text::default())
            .await
    };
    assert_eq!(upload("").await.unwrap().into_inner(), "2 1");
    let refused = upload("k").await.unwrap_err();
    assert_eq!(
        (refused.code(), code(&refused)),
        (Code::Unimplemented, "idempotency_unary_only")
    );
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn a_stream_of_answers_that_fits_is_replayed_whole() {
    let rig = Rig::new(Route::new()).await;
    for _ in 0..2 {
        let path = PathAndQuery::from_static("/test.Charges/Watch");
        let mut grpc = rig.grpc().await;
        let request = keyed("x".to_owned(), "k");
        let answer = grpc
            .server_streaming(request, path, Text::default())
            .await
            .unwrap();
        let parts: Vec<String> = answer
            .into_inner()
            .map(|part| part.unwrap())
            .collect()
            .await;
        assert_eq!(parts, ["part 0 of 1", "part 1 of 1", "part 2 of 1"]);
    }
    assert_eq!(rig.runs.begun(), 1);
}

#[tokio::test]
async fn oversized_message_is_reported_and_does_not_run_again() {
    let policy = semel::Policy::default().with_max_answer_bytes(10);
    let rig = Rig::new(Route::new().policy(policy)).await;
    let what = "a book with a long title";
    assert!(rig.charge("k", what).await.is_ok());
    let told = rig.charge("k", what).await.unwrap_err();
    assert_eq!(
        (told.code(), code(&told)),
        (Code::DataLoss, "idempotency_body_not_kept")
    );
    assert!(is_replay(told.metadata()));
    assert_eq!(rig.runs.begun(), 1);
}
