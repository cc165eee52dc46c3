use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::message::Message;
use crate::settings::ToolRule;

pub(super) const TOOL: &str = "pay";

const WINDOW: Duration = Duration::from_secs(1);

const ANSWER: &[u8] = br#"{"id":1,"result":{"content":[],"structuredContent":{"paid":true}}}"#;

/// A gateway that derives short-lived keys.
async fn gateway() -> Arc<Gateway> {
    let mut settings = Settings::new("test");
    settings.window = WINDOW;
    settings.policy.lease = WINDOW / 2;
    settings.tools.push(ToolRule {
        name: TOOL.to_owned(),
        key: Some(KeyRule::Derive),
        ..ToolRule::default()
    });
    let semel = Semel::open("memory://").await.unwrap();
    Gateway::new(semel, settings).unwrap()
}

pub(super) fn call(tool: &str, arguments: &Value) -> Call {
    let params = json!({"name": tool, "arguments": arguments});
    let text = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    Call::read(&Message::new(Bytes::from(text.to_string()))).unwrap()
}

/// Makes a call that times out. Returns its result and, if it was sent, the doubt to resolve.
async fn call_that_times_out(
    gateway: &Arc<Gateway>,
    arguments: &Value,
) -> (Value, Option<OpenDoubt>) {
    let plan = gateway.plan(call(TOOL, arguments), None, &Caller::default());
    let Plan::Run(job) = plan else {
        panic!("it is not protected");
    };
    let sent = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&sent);
    let send = move |sending: OutgoingCall| -> BoxFuture<'static, Outcome> {
        *seen.lock() = Some(sending.doubt);
        Box::pin(async { Outcome::TimedOut })
    };
    let said: Value = match gateway.run(*job, None, send).await {
        Reply::Message(text) => serde_json::from_slice(&text).unwrap(),
        other => panic!("{other:?}"),
    };
    let open = sent.lock().take();
    (said["result"].clone(), open)
}

/// Makes a call that ends in doubt. Returns its key and the doubt to resolve.
async fn call_in_doubt(gateway: &Arc<Gateway>, arguments: &Value) -> (String, OpenDoubt) {
    let (result, open) = call_that_times_out(gateway, arguments).await;
    let meta = &result["_meta"];
    assert_eq!(meta["semel/code"], "idempotency_in_doubt", "{result}");
    let key = meta["semel/idempotencyKey"].as_str().unwrap();
    (key.to_owned(), open.expect("it was sent"))
}

async fn state(gateway: &Gateway, key: &str) -> String {
    let asked = call(
        "semel_status",
        &json!({"tool": TOOL, "idempotencyKey": key}),
    );
    let said = gateway.status(&asked, &Caller::default()).await;
    let said: Value = serde_json::from_slice(&said).unwrap();
    let state = said["result"]["structuredContent"]["state"].as_str();
    state.unwrap().to_owned()
}

#[tokio::test]
async fn late_answer_after_the_window_is_stored_and_replayed() {
    let (gateway, arguments) = (gateway().await, json!({"to": "a"}));
    let (key, open) = call_in_doubt(&gateway, &arguments).await;
    gateway.sleep(WINDOW * 3 / 2).await;
    assert_eq!(state(&gateway, &key).await, "in_doubt");
    gateway.resolve_late(&open, ANSWER).await;
    assert_eq!(state(&gateway, &key).await, "completed");
    // A retry with the key that the status named, and a retry without any key.
    let with_key = json!({"to": "a", "idempotencyKey": key});
    for arguments in [&with_key, &arguments] {
        let (result, sent) = call_that_times_out(&gateway, arguments).await;
        assert!(sent.is_none(), "it acts again: {arguments}");
        assert_eq!(result["structuredContent"]["paid"], true, "{result}");
        assert_eq!(result["_meta"]["semel/replayed"], true, "{result}");
    }
}

#[tokio::test]
async fn late_failure_after_the_window_stays_a_failure() {
    let (gateway, arguments) = (gateway().await, json!({"to": "a"}));
    let (key, open) = call_in_doubt(&gateway, &arguments).await;
    gateway.sleep(WINDOW * 3 / 2).await;
    let failure = br#"{"id":1,"result":{"content":[],"isError":true}}"#;
    gateway.resolve_late(&open, failure).await;
    for _ in 0..2 {
        assert_eq!(state(&gateway, &key).await, "failed");
        let (result, sent) = call_that_times_out(&gateway, &arguments).await;
        assert!(sent.is_none(), "it acts again");
        assert_eq!(result["isError"], true, "{result}");
    }
}

#[tokio::test]
async fn answer_within_the_window_expires_with_the_window() {
    let (gateway, arguments) = (gateway().await, json!({"to": "a"}));
    let (key, open) = call_in_doubt(&gateway, &arguments).await;
    gateway.resolve_late(&open, ANSWER).await;
    assert_eq!(state(&gateway, &key).await, "completed");
    let (result, sent) = call_that_times_out(&gateway, &arguments).await;
    assert!(sent.is_none(), "it acts again: {result}");
    gateway.sleep(WINDOW * 3 / 2).await;
    // A released guard says nothing about the call.
    assert_eq!(state(&gateway, &key).await, "unknown");
    let (_, sent) = call_that_times_out(&gateway, &arguments).await;
    assert!(sent.is_some(), "after the window it is a new call");
}

/// A gateway whose keys are derived from `/to` alone.
async fn gateway_by_identity() -> Arc<Gateway> {
    let mut settings = Settings::new("test");
    settings.policy.lease = WINDOW / 2;
    settings.tools.push(ToolRule {
        name: TOOL.to_owned(),
        identity: Some(vec![crate::pointer::ArgumentPath::parse("/to").unwrap()]),
        ..ToolRule::default()
    });
    let semel = Semel::open("memory://").await.unwrap();
    Gateway::new(semel, settings).unwrap()
}

/// Makes a call with this outcome. Returns its result, and whether it was sent.
async fn call_with(
    gateway: &Arc<Gateway>,
    arguments: &Value,
    caller: &Caller,
    outcome: Outcome,
) -> (Value, bool) {
    let listed = Some(ToolFacts::default());
    let Plan::Run(job) = gateway.plan(call(TOOL, arguments), listed, caller) else {
        panic!("it is not protected");
    };
    let sent = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&sent);
    let send = move |_: OutgoingCall| -> BoxFuture<'static, Outcome> {
        *seen.lock() = true;
        Box::pin(async move { outcome })
    };
    let said: Value = match gateway.run(*job, None, send).await {
        Reply::Message(text) => serde_json::from_slice(&text).unwrap(),
        other => panic!("{other:?}"),
    };
    let was_sent = *sent.lock();
    (said["result"].clone(), was_sent)
}

fn answered() -> Outcome {
    Outcome::Answered(Bytes::from_static(ANSWER))
}

#[tokio::test]
async fn variant_of_a_call_is_held_until_the_caller_says_what_it_is() {
    let (gateway, nobody) = (gateway_by_identity().await, Caller::default());
    let first = json!({"to": "a", "note": "rent"});
    assert!(call_with(&gateway, &first, &nobody, answered()).await.1);
    let reworded = json!({"to": "a", "note": "the rent"});
    let (held, sent) = call_with(&gateway, &reworded, &nobody, answered()).await;
    assert!(!sent, "{held}");
    assert_eq!(held["isError"], true);
    assert_eq!(held["_meta"]["semel/code"], Code::Held.as_str());
    let against = &held["_meta"]["semel/heldAgainst"];
    assert_eq!(against["differs"], json!(["/note"]), "{held}");
    assert_eq!(against["state"], "completed");
    assert!(!held.to_string().contains("rent"), "no value: {held}");
    // It is the earlier call: its result, and no second act.
    let same = json!({"to": "a", "note": "the rent", "newCall": false});
    let (replay, sent) = call_with(&gateway, &same, &nobody, answered()).await;
    assert!(!sent, "{replay}");
    assert_eq!(replay["structuredContent"]["paid"], true, "{replay}");
    assert_eq!(replay["_meta"]["semel/replayed"], true);
    // It is a second call: it acts, once.
    let new = json!({"to": "a", "note": "the rent", "newCall": true});
    assert!(call_with(&gateway, &new, &nobody, answered()).await.1);
    let (replay, sent) = call_with(&gateway, &new, &nobody, answered()).await;
    assert!(!sent, "{replay}");
    let keyed = json!({"to": "a", "note": "the rent", "idempotencyKey": "k-new"});
    assert!(call_with(&gateway, &keyed, &nobody, answered()).await.1);
    // The first call again is a replay, as before.
    let (replay, sent) = call_with(&gateway, &first, &nobody, answered()).await;
    assert!(
        !sent && replay["_meta"]["semel/replayed"] == true,
        "{replay}"
    );
}

/// A doubt outlives the window, and its variants are held for as long.
#[tokio::test]
async fn variant_of_a_call_in_doubt_is_held() {
    let mut settings = gateway_by_identity().await.settings.clone();
    settings.window = WINDOW;
    let gateway = Gateway::new(Semel::open("memory://").await.unwrap(), settings).unwrap();
    let nobody = Caller::default();
    let first = json!({"to": "a", "note": "rent"});
    let (doubt, _) = call_with(&gateway, &first, &nobody, Outcome::TimedOut).await;
    assert_eq!(doubt["_meta"]["semel/code"], Code::InDoubt.as_str());
    let reworded = json!({"to": "a", "note": "the rent"});
    for _ in 0..2 {
        let (held, sent) = call_with(&gateway, &reworded, &nobody, answered()).await;
        assert!(!sent, "{held}");
        let against = &held["_meta"]["semel/heldAgainst"];
        assert_eq!(against["state"], "in_doubt", "{held}");
        assert_eq!(against["differs"], json!(["/note"]), "{held}");
        gateway.sleep(WINDOW * 3 / 2).await;
    }
    let same = json!({"to": "a", "note": "the rent", "newCall": false});
    let (doubt, sent) = call_with(&gateway, &same, &nobody, answered()).await;
    assert!(!sent, "{doubt}");
    assert_eq!(
        doubt["_meta"]["semel/code"],
        Code::InDoubt.as_str(),
        "{doubt}"
    );
}

#[tokio::test]
async fn caller_with_other_credentials_learns_nothing_of_the_earlier_call() {
    let gateway = gateway_by_identity().await;
    let with = |credentials: &str| Caller {
        credentials: credentials.to_owned(),
        ..Caller::default()
    };
    let first = json!({"to": "a", "note": "rent"});
    assert!(
        call_with(&gateway, &first, &with("ann"), answered())
            .await
            .1
    );
    for arguments in [
        json!({"to": "a", "note": "the rent"}),
        json!({"to": "a", "note": "the rent", "newCall": false}),
    ] {
        for stranger in ["bob", ""] {
            let (told, sent) = call_with(&gateway, &arguments, &with(stranger), answered()).await;
            assert!(!sent, "{told}");
            assert_eq!(
                told["_meta"]["semel/code"],
                Code::Conflict.as_str(),
                "{told}"
            );
            assert!(!told.to_string().contains("heldAgainst"), "{told}");
        }
    }
}

/// The record holds no sketch: the answer lives apart from it, or an operator gave it.
#[tokio::test]
async fn unidentified_caller_gets_no_answer_of_a_record_without_a_sketch() {
    let [ann, stranger] = ["ann", ""].map(|credentials| Caller {
        credentials: credentials.to_owned(),
        session: "s".to_owned(),
        is_remote: true,
        ..Caller::default()
    });
    let first = json!({"to": "a", "note": "rent"});
    let same = json!({"to": "a", "note": "the rent", "newCall": false});
    for by_operator in [false, true] {
        let mut settings = gateway_by_identity().await.settings.clone();
        settings.window = Duration::from_secs(60);
        settings.policy.answer_retention = Some(Duration::from_secs(30)).filter(|_| !by_operator);
        let gateway = Gateway::new(Semel::open("memory://").await.unwrap(), settings).unwrap();
        let outcome = match by_operator {
            false => answered(),
            true => Outcome::TimedOut,
        };
        assert!(call_with(&gateway, &first, &ann, outcome).await.1);
        if by_operator {
            resolve_as_operator(&gateway, &first, &ann).await;
        }
        let (told, sent) = call_with(&gateway, &same, &stranger, answered()).await;
        assert!(!sent, "{told}");
        let code = match by_operator {
            false => Code::Conflict,
            true => Code::Held,
        };
        assert_eq!(told["_meta"]["semel/code"], code.as_str(), "{told}");
        assert!(!told.to_string().contains("paid"), "{told}");
    }
}

/// Records the result of a call in doubt, as a person does.
async fn resolve_as_operator(gateway: &Arc<Gateway>, arguments: &Value, caller: &Caller) {
    let Plan::Run(job) = gateway.plan(call(TOOL, arguments), None, caller) else {
        panic!("it is not protected");
    };
    let answer = semel::core::Answer {
        head: Bytes::new(),
        body: semel::core::AnswerBody::Kept(Bytes::from_static(br#"{"paid":true}"#)),
    };
    let resolution = Resolution::Complete(Arc::new(answer));
    let engine = gateway.semel.engine();
    for identity in identities(&job.request, job.guard.as_ref()) {
        let record = engine.store().read(&identity).await.unwrap().unwrap();
        let fence = record.fence;
        engine.resolve(&identity, fence, &resolution).await.unwrap();
    }
}

#[tokio::test]
async fn repeated_call_does_not_act_after_the_window() {
    let mut settings = gateway_by_identity().await.settings.clone();
    settings.window = WINDOW;
    let gateway = Gateway::new(Semel::open("memory://").await.unwrap(), settings).unwrap();
    let nobody = Caller::default();
    let first = json!({"to": "a", "note": "rent"});
    assert!(call_with(&gateway, &first, &nobody, answered()).await.1);
    gateway.sleep(WINDOW * 3 / 2).await;
    let same = json!({"to": "a", "note": "the rent", "newCall": false});
    let (told, sent) = call_with(&gateway, &same, &nobody, answered()).await;
    assert!(!sent, "{told}");
    assert_eq!(
        told["_meta"]["semel/code"],
        Code::NotSent.as_str(),
        "{told}"
    );
    let text = told["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("not on record any more"), "{text}");
    let new = json!({"to": "a", "note": "the rent", "newCall": true});
    assert!(call_with(&gateway, &new, &nobody, answered()).await.1);
}

#[tokio::test]
async fn conversations_of_one_caller_are_never_merged() {
    let from = |session: &str| Caller {
        credentials: "service".to_owned(),
        session: session.to_owned(),
        is_remote: true,
        ..Caller::default()
    };
    let gateway = gateway_by_identity().await;
    let payment = json!({"to": "a"});
    for session in ["one", "two"] {
        assert!(
            call_with(&gateway, &payment, &from(session), answered())
                .await
                .1
        );
        assert!(
            !call_with(&gateway, &payment, &from(session), answered())
                .await
                .1
        );
    }
    // Which conversation it is, nobody knows: refused, with words for the model.
    let plan = gateway.plan(call(TOOL, &payment), None, &from(""));
    let Plan::Answer(Reply::Message(told)) = plan else {
        panic!("it is not refused");
    };
    let told = String::from_utf8(told.to_vec()).unwrap();
    assert!(told.contains("conversation"), "{told}");
    assert!(told.contains(Code::KeyRequired.as_str()), "{told}");
    let keyed = json!({"to": "a", "idempotencyKey": "k"});
    assert!(call_with(&gateway, &keyed, &from(""), answered()).await.1);
}

#[tokio::test]
async fn conversation_comes_from_where_the_settings_say() {
    let remote = |conversation: Option<&str>| Caller {
        conversation: conversation.map(str::to_owned),
        session: "s".to_owned(),
        is_remote: true,
        ..Caller::default()
    };
    let with_meta = |meta: &Value| {
        let params = json!({"name": TOOL, "arguments": {"to": "a"}, "_meta": meta});
        let text = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        Call::read(&Message::new(Bytes::from(text.to_string()))).unwrap()
    };
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (source, meta, caller, expected) in [
        ("session", json!({}), remote(None), Some("s")),
        ("shared", json!({}), remote(None), Some("")),
        ("header:x-thread", json!({}), remote(Some("t")), Some("t")),
        ("header:x-thread", json!({}), remote(None), None),
        (
            "meta:thread",
            json!({"thread": "m"}),
            remote(None),
            Some("m"),
        ),
        (
            "meta:thread",
            json!({"thread": ""}),
            remote(Some("t")),
            None,
        ),
        ("meta:thread", json!({}), Caller::default(), Some("")),
        (
            "trace",
            json!({"traceparent": trace}),
            remote(None),
            Some(&trace[3..35]),
        ),
        ("trace", json!({}), remote(None), None),
    ] {
        let found = with_meta(&meta).conversation(&caller, &source.parse().unwrap());
        assert_eq!(found.as_deref(), expected, "{source} {meta}");
    }
}

/// An argument of a tool that is not listed may be the tool's own.
#[tokio::test]
async fn argument_of_an_unknown_tool_is_passed_on() {
    let gateway = gateway_by_identity().await;
    let own = json!({"to": "a", "newCall": false});
    for (facts, is_passed) in [(None, true), (Some(ToolFacts::default()), false)] {
        let Plan::Run(job) = gateway.plan(call(TOOL, &own), facts, &Caller::default()) else {
            panic!("it is not protected");
        };
        let message = String::from_utf8(job.call.to_message(None).to_vec()).unwrap();
        assert_eq!(message.contains("newCall"), is_passed, "{message}");
    }
}

#[tokio::test]
async fn call_without_identifying_arguments_is_compared_whole() {
    let (gateway, nobody) = (gateway_by_identity().await, Caller::default());
    for arguments in [json!({"note": "rent"}), json!({"note": "the rent"})] {
        assert!(call_with(&gateway, &arguments, &nobody, answered()).await.1);
        assert!(!call_with(&gateway, &arguments, &nobody, answered()).await.1);
    }
}

/// An observer that collects what was held.
#[derive(Default)]
struct Held(Mutex<Vec<&'static str>>);

impl semel::Observer for Held {
    fn observe(&self, event: &semel::Event<'_>) {
        match event.step {
            Step::Held { .. } => self.0.lock().push("held"),
            Step::Observed {
                decision: ShadowDecision::Held,
            } => self.0.lock().push("observed"),
            Step::Mismatched { .. } => self.0.lock().push("mismatched"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn held_calls_are_reported_and_observed_ones_run() {
    for (mode, told, runs) in [
        (Mode::Enforce, "held", false),
        (Mode::Observe, "observed", true),
    ] {
        let held = Arc::new(Held::default());
        let semel = Semel::builder().observer(Arc::clone(&held) as _);
        let mut settings = gateway_by_identity().await.settings.clone();
        settings.policy.mode = mode;
        let gateway = Gateway::new(semel.open("memory://").await.unwrap(), settings).unwrap();
        let nobody = Caller::default();
        let first = json!({"to": "a", "note": "rent"});
        assert!(call_with(&gateway, &first, &nobody, answered()).await.1);
        let reworded = json!({"to": "a", "note": "the rent"});
        let (_, sent) = call_with(&gateway, &reworded, &nobody, answered()).await;
        assert_eq!(sent, runs, "{mode:?}");
        assert_eq!(*held.0.lock(), [told], "{mode:?}");
    }
}

#[test]
fn only_derived_keys_have_a_guard() {
    let guard = |key: &str| guard_key(&Key::parse(key).unwrap());
    let digest = "0123456789abcdef0123456789abcdef";
    let derived = guard(&format!("{DERIVED_PREFIX}{digest}")).unwrap();
    assert_eq!(derived.as_str(), format!("open-{digest}"));
    for other in ["auto-1", "auto-", "open-1", &digest[1..], digest] {
        assert!(guard(other).is_none(), "{other}");
    }
    let longer = format!("{DERIVED_PREFIX}{digest}0");
    assert!(guard(&longer).is_none());
}

/// An observer that collects refusals.
#[derive(Default)]
struct Refusals(Mutex<Vec<(&'static str, Code)>>);

impl semel::Observer for Refusals {
    fn observe(&self, event: &semel::Event<'_>) {
        match event.step {
            Step::Refused { code } => self.0.lock().push(("refused", code)),
            Step::Observed {
                decision: ShadowDecision::Refuse(code),
            } => self.0.lock().push(("observed", code)),
            _ => {}
        }
    }
}

#[tokio::test]
async fn unusable_keys_are_refused_in_enforce_mode_only() {
    for (mode, is_refused, told) in [
        (Mode::Enforce, true, Some("refused")),
        (Mode::Observe, false, Some("observed")),
        (Mode::Off, false, None),
    ] {
        let refusals = Arc::new(Refusals::default());
        let semel = Semel::builder().observer(Arc::clone(&refusals) as _);
        let mut settings = Settings::new("test");
        settings.policy.mode = mode;
        let gateway = Gateway::new(semel.open("memory://").await.unwrap(), settings).unwrap();
        let bad = json!({"idempotencyKey": "no key at all"});
        let plan = gateway.plan(call(TOOL, &bad), None, &Caller::default());
        assert_eq!(matches!(plan, Plan::Answer(_)), is_refused, "{mode:?}");
        assert_eq!(matches!(plan, Plan::Pass), !is_refused, "{mode:?}");
        // The same holds for a call with an invalid namespace.
        let nobody = Caller {
            principal: "\0".to_owned(),
            ..Caller::default()
        };
        let good = json!({"idempotencyKey": "k"});
        let plan = gateway.plan(call(TOOL, &good), None, &nobody);
        assert_eq!(matches!(plan, Plan::Answer(_)), is_refused, "{mode:?}");
        let codes = [Code::KeyRequired, Code::Refused];
        let expected: Vec<_> = told
            .into_iter()
            .flat_map(|told| codes.map(|code| (told, code)))
            .collect();
        assert_eq!(*refusals.0.lock(), expected, "{mode:?}");
    }
}

/// Remembers actor and operation of events.
#[derive(Default)]
struct Named(Mutex<Vec<(Option<String>, Option<String>)>>);

impl semel::core::event::Observer for Named {
    fn observe(&self, event: &semel::core::event::Event<'_>) {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let named = (text(event.actor), text(event.operation));
        self.0.lock().push(named);
    }
}

#[tokio::test]
async fn events_name_the_principal_and_the_tool() {
    let named = Arc::new(Named::default());
    let mut settings = Settings::new("test");
    settings.tools.push(ToolRule {
        name: TOOL.to_owned(),
        key: Some(KeyRule::Derive),
        ..ToolRule::default()
    });
    let builder = Semel::builder().observer(Arc::clone(&named) as _);
    let semel = builder.open("memory://").await.unwrap();
    let gateway = Gateway::new(semel, settings).unwrap();
    let caller = Caller {
        principal: "agent_7".to_owned(),
        ..Caller::default()
    };
    let plan = gateway.plan(call(TOOL, &json!({"amount": 5})), None, &caller);
    let Plan::Run(job) = plan else {
        panic!("it is not protected");
    };
    let send = |_| -> BoxFuture<'static, Outcome> { Box::pin(async { Outcome::TimedOut }) };
    gateway.run(*job, None, send).await;
    let named = named.0.lock();
    assert!(named.len() > 3, "{named:?}");
    let is_named = |(actor, operation): &(Option<String>, Option<String>)| {
        (actor.as_deref(), operation.as_deref()) == (Some("agent_7"), Some(TOOL))
    };
    assert!(named.iter().all(is_named), "{named:?}");
}
