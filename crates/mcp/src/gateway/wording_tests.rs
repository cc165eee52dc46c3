//! How many reworded calls a rule recognizes, and how many different calls it holds, on recorded
//! pairs of calls.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::*;
use crate::message::Message;
use crate::pointer::ArgumentPath;
use crate::settings::ToolRule;
use crate::suggest::{SuggestedRule, suggest};

const PAIRS: &str = include_str!("../../tests/rewordings/pairs.json");
const FIGURES: &str = include_str!("../../tests/rewordings/figures.json");
const GUIDE: &str = include_str!("../../../../docs/mcp.md");

#[derive(Deserialize)]
struct Recorded {
    tools: Vec<RecordedTool>,
    pairs: Vec<Pair>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedTool {
    name: String,
    input_schema: Map<String, Value>,
    /// The rule that a person wrote.
    rule: ToolRule,
}

#[derive(Deserialize)]
struct Pair {
    tool: String,
    kind: Kind,
    first: Value,
    second: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Rewording,
    Different,
}

/// What a set of rules makes of all pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
struct Figures {
    /// Rewordings that do not run again.
    caught: usize,
    /// Different calls that do not run at first.
    wrongly_held: usize,
}

fn suggested_rule(tool: &RecordedTool) -> ToolRule {
    let parse = |paths: &[String]| {
        let paths = paths.iter().map(|path| ArgumentPath::parse(path).unwrap());
        Some(paths.collect())
    };
    let mut rule = ToolRule::default();
    match suggest(&tool.name, &tool.input_schema).rule {
        SuggestedRule::Identity(paths) => rule.identity = parse(&paths),
        SuggestedRule::Ignore(paths) => rule.ignore = parse(&paths),
        SuggestedRule::All => {}
    }
    rule
}

async fn figures(recorded: &Recorded, rule: impl Fn(&RecordedTool) -> ToolRule) -> Figures {
    let mut settings = Settings::new("test");
    settings.tools = recorded
        .tools
        .iter()
        .map(|tool| ToolRule {
            name: tool.name.clone(),
            key: Some(KeyRule::Derive),
            ..rule(tool)
        })
        .collect();
    let gateway = Gateway::new(Semel::open("memory://").await.unwrap(), settings).unwrap();
    let key = |tool: &str, arguments: &Value| {
        let params = json!({"name": tool, "arguments": arguments});
        let text = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let call = Call::read(&Message::new(Bytes::from(text.to_string()))).unwrap();
        match gateway.plan(call, None, &Caller::default()) {
            Plan::Run(keyed) => keyed.key,
            _ => panic!("{tool} is not protected"),
        }
    };
    let mut found = Figures::default();
    for pair in &recorded.pairs {
        // Under an equal key the second call is replayed or held: it does not run.
        if key(&pair.tool, &pair.first) == key(&pair.tool, &pair.second) {
            match pair.kind {
                Kind::Rewording => found.caught += 1,
                Kind::Different => found.wrongly_held += 1,
            }
        }
    }
    found
}

#[tokio::test]
async fn rules_recognize_as_many_rewordings_as_the_guide_says() {
    let recorded: Recorded = serde_json::from_str(PAIRS).unwrap();
    assert!(recorded.pairs.len() >= 200 && recorded.tools.len() >= 6);
    let found = BTreeMap::from([
        (
            "all arguments",
            figures(&recorded, |_| ToolRule::default()).await,
        ),
        (
            "rules by hand",
            figures(&recorded, |tool| tool.rule.clone()).await,
        ),
        ("suggested rules", figures(&recorded, suggested_rule).await),
    ]);
    let committed: BTreeMap<&str, Figures> = serde_json::from_str(FIGURES).unwrap();
    assert_eq!(found, committed);
    let count = |kind| {
        recorded
            .pairs
            .iter()
            .filter(|pair| pair.kind == kind)
            .count()
    };
    let (rewordings, different) = (count(Kind::Rewording), count(Kind::Different));
    for (rules, found) in found {
        let Figures {
            caught,
            wrongly_held,
        } = found;
        let row = format!("| {rules} | {caught} of {rewordings} | {wrongly_held} of {different} |");
        assert!(GUIDE.contains(&row), "docs/mcp.md lacks {row}");
    }
}
