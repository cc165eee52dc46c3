use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::message::Message;
use crate::settings::ToolRule;

const TOOL: &str = "pay";

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

fn call(tool: &str, arguments: &Value) -> Call {
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
    let said: Value = match gateway.run(*job, send).await {
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
    gateway.run(*job, send).await;
    let named = named.0.lock();
    assert!(named.len() > 3, "{named:?}");
    let is_named = |(actor, operation): &(Option<String>, Option<String>)| {
        (actor.as_deref(), operation.as_deref()) == (Some("agent_7"), Some(TOOL))
    };
    assert!(named.iter().all(is_named), "{named:?}");
}
