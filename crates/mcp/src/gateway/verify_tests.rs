//! Doubts that a lookup resolves.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use semel::core::event::LookupResult;
use serde_json::{Value, json};

use super::tests::{TOOL, call};
use super::*;
use crate::message::Id;
use crate::settings::ToolRule;
use crate::verify::{LookupArgument, LookupCondition, VerifyRule};

/// A server whose tool `find_payment` tells what `pay` did.
#[derive(Default)]
struct Bank {
    /// What the lookups answer, in order. The last one stays.
    results: Mutex<Vec<Value>>,
    lookups: Mutex<Vec<Value>>,
    payments: AtomicUsize,
}

impl Bank {
    fn answering(results: &[Value]) -> Arc<Self> {
        Arc::new(Self {
            results: Mutex::new(results.to_vec()),
            ..Self::default()
        })
    }

    fn lookup(self: &Arc<Self>) -> Lookup {
        let bank = Arc::clone(self);
        Arc::new(move |lookup| {
            let message = lookup.message(&Id("7".into()));
            bank.lookups
                .lock()
                .push(serde_json::from_slice(&message).unwrap());
            let mut results = bank.results.lock();
            let result = match results.len() {
                0 => None,
                1 => Some(results[0].clone()),
                _ => Some(results.remove(0)),
            };
            let answer = result.map(|result| json!({"id": 7, "result": result}).to_string());
            Box::pin(std::future::ready(Ok(answer.map(Bytes::from))))
        })
    }

    /// Makes a call whose answer is lost. Returns what the model is told.
    async fn pay(self: &Arc<Self>, gateway: &Arc<Gateway>, arguments: &Value) -> Value {
        let plan = gateway.plan(call(TOOL, arguments), None, &Caller::default());
        let Plan::Run(job) = plan else {
            panic!("it is not protected");
        };
        let bank = Arc::clone(self);
        let send = move |_: OutgoingCall| -> BoxFuture<'static, Outcome> {
            bank.payments.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Outcome::Lost })
        };
        match gateway.run(*job, Some(self.lookup()), send).await {
            Reply::Message(text) => {
                let said: Value = serde_json::from_slice(&text).unwrap();
                said["result"].clone()
            }
            other => panic!("{other:?}"),
        }
    }

    fn payments(&self) -> usize {
        self.payments.load(Ordering::Relaxed)
    }
}

fn found(payment: &Value) -> Value {
    json!({"content": [{"type": "text", "text": "a list"}], "structuredContent": {"payment": payment}})
}

fn rule() -> VerifyRule {
    let mut rule = VerifyRule::new("find_payment");
    let reference = LookupArgument::Call(crate::pointer::ArgumentPath::parse("/invoice").unwrap());
    rule.arguments.insert("reference".to_owned(), reference);
    let payment = |exists: bool| {
        let condition = json!({"at": "/payment", "exists": exists});
        Some(serde_json::from_value::<LookupCondition>(condition).unwrap())
    };
    (rule.done, rule.not_done) = (payment(true), payment(false));
    rule.after = Duration::ZERO;
    rule.pause = Duration::from_millis(1);
    rule
}

/// A gateway with the rule, and what it reports.
async fn gateway(rule: VerifyRule, key: KeyRule) -> (Arc<Gateway>, Arc<Reports>) {
    let mut settings = Settings::new("test");
    settings.tools.push(ToolRule {
        name: TOOL.to_owned(),
        key: Some(key),
        verify: Some(Arc::new(rule)),
        ..ToolRule::default()
    });
    let reports = Arc::new(Reports::default());
    let semel = Semel::builder().observer(Arc::clone(&reports) as _);
    let gateway = Gateway::new(semel.open("memory://").await.unwrap(), settings).unwrap();
    (gateway, reports)
}

#[derive(Default)]
struct Reports(Mutex<Vec<(LookupResult, u16, bool)>>);

impl semel::Observer for Reports {
    fn observe(&self, event: &semel::Event<'_>) {
        if let Step::Verified {
            found,
            attempts,
            evidence,
            ..
        } = event.step
        {
            assert_eq!(event.operation, Some(TOOL));
            self.0.lock().push((found, attempts, evidence.is_some()));
        }
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn effect_that_is_found_ends_the_doubt_and_is_replayed() {
    for key in [KeyRule::Derive, KeyRule::Optional] {
        let (gateway, reports) = gateway(rule(), key).await;
        let bank = Bank::answering(&[found(&json!({"id": "p-1"}))]);
        let mut arguments = json!({"to": "a", "invoice": "i-7"});
        if key == KeyRule::Optional {
            arguments["idempotencyKey"] = json!("k-1");
        }
        for _ in 0..3 {
            let told = bank.pay(&gateway, &arguments).await;
            assert!(text(&told).contains("took effect"), "{told}");
            assert_eq!(told["content"][1]["text"], "a list", "{told}");
            assert_eq!(told["isError"], false, "{told}");
            assert_eq!(told["_meta"]["semel/verifiedBy"], "find_payment", "{told}");
        }
        assert_eq!(bank.payments(), 1);
        assert_eq!(*reports.0.lock(), [(LookupResult::Done, 1, true)]);
        let lookups = bank.lookups.lock();
        let [lookup] = lookups.as_slice() else {
            panic!("{lookups:?}");
        };
        let expected = json!({"name": "find_payment", "arguments": {"reference": "i-7"}});
        assert_eq!(lookup["params"], expected);
        assert_eq!(lookup["method"], "tools/call");
    }
}

#[tokio::test]
async fn effect_that_did_not_happen_frees_the_key() {
    let (gateway, reports) = gateway(rule(), KeyRule::Derive).await;
    let bank = Bank::answering(&[found(&Value::Null)]);
    let arguments = json!({"invoice": "i-7"});
    for payments in 1..=2 {
        let told = bank.pay(&gateway, &arguments).await;
        assert!(text(&told).starts_with("This call did nothing"), "{told}");
        assert_eq!(told["_meta"]["semel/retryable"], true, "{told}");
        assert_eq!(bank.payments(), payments);
    }
    let expected = (LookupResult::NotDone, 1, true);
    assert_eq!(*reports.0.lock(), [expected, expected]);
}

#[tokio::test]
async fn effect_that_may_still_come_stays_in_doubt() {
    let slow = VerifyRule {
        after: Duration::from_secs(60),
        ..rule()
    };
    let (gateway, reports) = gateway(slow, KeyRule::Derive).await;
    let bank = Bank::answering(&[found(&Value::Null)]);
    for _ in 0..2 {
        let told = bank.pay(&gateway, &json!({"invoice": "i-7"})).await;
        let code = &told["_meta"]["semel/code"];
        assert_eq!(code, Code::InDoubt.as_str(), "{told}");
    }
    assert_eq!(bank.payments(), 1);
    let expected = (LookupResult::Unknown, 3, false);
    assert_eq!(*reports.0.lock(), [expected, expected]);
}

#[tokio::test]
async fn lookup_is_repeated_until_it_is_clear() {
    let (gateway, reports) = gateway(rule(), KeyRule::Derive).await;
    let failed = json!({"isError": true, "content": [{"type": "text", "text": "try later"}]});
    let asks = json!({"resultType": "input_required", "structuredContent": {"payment": 1}});
    let bank = Bank::answering(&[failed, asks, found(&json!(1))]);
    let told = bank.pay(&gateway, &json!({"invoice": "i-7"})).await;
    assert!(text(&told).contains("took effect"), "{told}");
    assert_eq!(*reports.0.lock(), [(LookupResult::Done, 3, true)]);
}

/// A gateway that was killed leaves a doubt that nobody has looked up.
#[tokio::test]
async fn later_call_looks_up_the_doubt_of_an_earlier_one() {
    for (payment, payments) in [(json!(1), 1), (Value::Null, 2)] {
        let (gateway, _) = gateway(rule(), KeyRule::Derive).await;
        let arguments = json!({"invoice": "i-7"});
        let silent = Bank::answering(&[]);
        let told = silent.pay(&gateway, &arguments).await;
        let code = &told["_meta"]["semel/code"];
        assert_eq!(code, Code::InDoubt.as_str(), "{told}");
        let bank = Bank::answering(&[found(&payment), found(&json!(1))]);
        let told = bank.pay(&gateway, &arguments).await;
        assert!(text(&told).contains("took effect"), "{told}");
        assert_eq!(silent.payments() + bank.payments(), payments);
    }
}

#[tokio::test]
async fn server_that_is_gone_is_asked_no_more() {
    let patient = VerifyRule {
        pause: Duration::from_secs(30),
        ..rule()
    };
    let (gateway, reports) = gateway(patient, KeyRule::Derive).await;
    let payment = call(TOOL, &json!({"invoice": "i-7"}));
    let Plan::Run(job) = gateway.plan(payment, None, &Caller::default()) else {
        panic!("it is not protected");
    };
    let gone: Lookup = Arc::new(|_| Box::pin(std::future::ready(Err(ServerGone))));
    let send = |_: OutgoingCall| -> BoxFuture<'static, Outcome> {
        Box::pin(std::future::ready(Outcome::Lost))
    };
    let Reply::Message(told) = gateway.run(*job, Some(gone), send).await else {
        panic!("it has no answer");
    };
    let told: Value = serde_json::from_slice(&told).unwrap();
    let code = &told["result"]["_meta"]["semel/code"];
    assert_eq!(code, Code::InDoubt.as_str(), "{told}");
    assert_eq!(*reports.0.lock(), [(LookupResult::Unknown, 1, false)]);
}

#[tokio::test]
async fn callers_of_one_key_look_it_up_once() {
    let (gateway, reports) = gateway(rule(), KeyRule::Derive).await;
    let arguments = json!({"invoice": "i-7"});
    Bank::answering(&[]).pay(&gateway, &arguments).await;
    reports.0.lock().clear();
    let bank = Bank::answering(&[found(&json!(1))]);
    let calls = (0..20).map(|_| bank.pay(&gateway, &arguments));
    for told in futures_util::future::join_all(calls).await {
        assert!(text(&told).contains("took effect"), "{told}");
    }
    assert_eq!(bank.payments(), 0);
    assert_eq!(*reports.0.lock(), [(LookupResult::Done, 1, true)]);
}

#[tokio::test]
async fn call_without_the_arguments_of_the_lookup_stays_in_doubt() {
    let (gateway, reports) = gateway(rule(), KeyRule::Derive).await;
    let bank = Bank::answering(&[found(&json!(1))]);
    let told = bank.pay(&gateway, &json!({"to": "a"})).await;
    let code = &told["_meta"]["semel/code"];
    assert_eq!(code, Code::InDoubt.as_str(), "{told}");
    assert!(bank.lookups.lock().is_empty());
    assert!(reports.0.lock().is_empty());
}
