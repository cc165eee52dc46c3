//! Keys that carry a time, on routes that limit their age (P52).

use std::time::Duration;

use semel::Mode;
use semel::core::store::Query;
use semel::http::Route;
use semel_core::Code;
use semel_core::event::{ShadowDecision, Step};
use semel_httpclient::{ulid, uuid_v7};

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE_MILLIS: u64 = 60_000;

#[tokio::test]
async fn an_old_key_is_refused_and_nothing_runs() {
    for protocol in BOTH {
        let runs = Runs::default();
        let rig = Rig::with(Route::new().key_age(HOUR), counting(&runs)).await;
        let mut client = rig.client(protocol).await;
        for make in [uuid_v7, ulid] {
            for minutes in [61, 24 * 60, 30 * 365 * 24 * 60] {
                let key = make(now() - minutes * MINUTE_MILLIS, 1);
                let answer = client.send(post("/", &key, "{}")).await;
                let told = (412, "idempotency_key_too_old".to_owned(), false);
                assert_eq!(answer.problem_and_retry(), told, "{key}");
                assert_eq!(answer.json()["keyRules"]["maxAge"], "PT1H");
            }
        }
        assert_eq!(runs.begun(), 0);
        let refused =
            |step: &Step| matches!(step, Step::Refused { code } if *code == Code::KeyTooOld);
        assert_eq!(rig.log.count(refused), 6);
    }
}

#[tokio::test]
async fn a_young_key_runs_once() {
    let runs = Runs::default();
    let rig = Rig::with(Route::new().key_age(HOUR), counting(&runs)).await;
    for (n, make) in [uuid_v7, ulid].into_iter().enumerate() {
        // Made some minutes ago, now, and by a clock that is ahead.
        for (m, at) in [now() - 59 * MINUTE_MILLIS, now(), now() + 4 * MINUTE_MILLIS]
            .into_iter()
            .enumerate()
        {
            let key = make(at, 1);
            let run = (3 * n + m + 1).to_string();
            for is_replay in [false, true] {
                let answer = rig.send(post("/", &key, "{}")).await;
                assert_eq!((answer.text(), answer.is_replay()), (&*run, is_replay));
            }
        }
    }
    assert_eq!(runs.begun(), 6);
}

#[tokio::test]
async fn keys_without_a_time_and_of_the_future_are_refused() {
    let runs = Runs::default();
    let rig = Rig::with(Route::new().key_age(HOUR), counting(&runs)).await;
    let ahead = now() + 6 * MINUTE_MILLIS;
    for key in ["k-1".to_owned(), uuid_v7(ahead, 1), ulid(ahead, 1)] {
        let answer = rig.send(post("/", &key, "{}")).await;
        let told = (400, "idempotency_key_invalid".to_owned());
        assert_eq!(answer.problem(), told, "{key}");
    }
    assert_eq!(runs.begun(), 0);
    // A request without a key is not old.
    let plain = rig.send(without_key(post("/", "", "{}"))).await;
    assert_eq!(plain.text(), "1");
}

/// As long as a key is young enough, its record is there: otherwise it would run twice.
#[tokio::test]
async fn records_are_kept_for_longer_than_keys_are_taken() {
    let kept = async |route: Route, ttl: Option<&str>| {
        let rig = Rig::with(route, counting(&Runs::default())).await;
        let mut request = post("/", &uuid_v7(now(), 1), "{}");
        if let Some(ttl) = ttl {
            request = with(request, "x-idempotency-ttl", ttl);
        }
        assert_eq!(rig.send(request).await.status, 200);
        let page = rig.semel.store().list(&Query::default()).await.unwrap();
        page.records[0].1.retention
    };
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let brief = || Route::new().retention(minutes(10));
    assert_eq!(kept(brief(), None).await, minutes(10));
    assert_eq!(kept(brief().key_age(HOUR), None).await, minutes(65));
    assert_eq!(kept(brief().key_age(minutes(1)), None).await, minutes(10));
    let chosen = brief().key_age(HOUR).caller_ttl(minutes(30));
    assert_eq!(kept(chosen, Some("60000")).await, minutes(65));
}

#[tokio::test]
async fn observe_mode_reports_old_keys_and_runs_them() {
    let runs = Runs::default();
    let route = Route::new().key_age(HOUR).mode(Mode::Observe);
    let rig = Rig::with(route, counting(&runs)).await;
    let key = uuid_v7(now() - 61 * MINUTE_MILLIS, 1);
    assert_eq!(rig.send(post("/", &key, "{}")).await.text(), "1");
    let would = Step::Observed {
        decision: ShadowDecision::Refuse(Code::KeyTooOld),
    };
    assert_eq!(rig.log.count(|step| *step == would), 1);
}
