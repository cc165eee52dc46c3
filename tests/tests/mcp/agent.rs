//! A scripted agent that loses results and calls again, a gateway that is killed, and what was done
//! in the end.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use crate::support::{Place, Sdk, in_doubt, needs, said, words};

/// `SEMEL_MCP_CALLS` makes it a longer one.
fn intended() -> usize {
    let said = std::env::var("SEMEL_MCP_CALLS").ok();
    said.map_or(1000, |said| {
        said.parse().expect("SEMEL_MCP_CALLS is a number")
    })
}

fn agent(place: &Place, kills: usize, command: &[String], server: Option<&Path>) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/mcp/agent.py");
    let python = words(&[&needs("SEMEL_TEST_MCP_PYTHON"), Path::new(script)]);
    let mut run = place.command(&python);
    run.args([&intended().to_string(), "7", &kills.to_string()]);
    run.arg(place.folder.join("pid")).args(command);
    if let Some(server) = server {
        run.env("SERVER_PIDFILE", server);
    }
    said(&mut run)
}

fn number(value: &Value) -> usize {
    let number = value.as_u64().expect("a number");
    usize::try_from(number).expect("a small one")
}

/// How often each intended act was done.
fn done(place: &Place) -> Vec<usize> {
    let mut done = vec![0; intended()];
    for line in place.ledger() {
        let number = line
            .strip_prefix("act n")
            .and_then(|number| number.parse::<usize>().ok());
        done[number.expect("an act of the agent's")] += 1;
    }
    done
}

#[test]
fn an_agent_that_loses_results_acts_once_though_the_gateway_is_killed_twice() {
    let place = Place::new();
    let flags = ["--derive", "*", "--lease", "2s"];
    let told = agent(
        &place,
        2,
        &place.gateway(&flags, &place.server(Sdk::Python)),
        None,
    );
    let doubts = told["in_doubt"].as_array().expect("doubts");
    let doubts: Vec<usize> = doubts
        .iter()
        .map(|doubt| number(&doubt["number"]))
        .collect();
    let done = done(&place);
    for (number, times) in done.iter().enumerate() {
        match doubts.contains(&number) {
            // Nobody knows; never twice.
            true => assert!(*times <= 1, "{number} was done {times} times"),
            false => assert_eq!(*times, 1, "{number}: {told}"),
        }
    }
    assert_eq!(told["killed"], 2);
    assert_eq!(
        told["refused"].as_array().expect("refusals").len(),
        0,
        "{told}"
    );
    assert_eq!(number(&told["done"]) + doubts.len(), intended());
    // A call that ran when its gateway was killed is one that nobody saw the end of, unless it was
    // over by then.
    assert!(doubts.len() <= 2, "{told}");
    // The agent did lose results, and was answered from the record.
    let lost = number(&told["lost"]);
    assert!(
        lost > intended() / 5 && number(&told["replayed"]) >= lost,
        "{told}"
    );
    eprintln!(
        "{} calls for {} acts, {lost} results lost, in doubt: {doubts:?}",
        told["calls"],
        intended()
    );
    // What is in doubt is listed for a person: under the window's record, its guard's, or both.
    let listed = in_doubt(&place);
    let digest = |record: &Value| record["key_hint"].as_str().map(|hint| hint[5..].to_owned());
    let listed: HashSet<Option<String>> = listed.iter().map(digest).collect();
    assert_eq!(listed.len(), doubts.len(), "{listed:?}");
}

/// How often gateway or server are killed. `SEMEL_MCP_KILLS` makes it more.
fn kills() -> usize {
    let said = std::env::var("SEMEL_MCP_KILLS").ok();
    said.map_or(6, |said| said.parse().expect("SEMEL_MCP_KILLS is a number"))
}

#[test]
fn with_a_rule_about_lookups_no_doubt_is_left_for_a_person() {
    let place = Place::new();
    let rules = place.folder.join("mcp.toml");
    std::fs::write(&rules, crate::verify::rule("act", "4s")).expect("a folder of our own");
    let flags = ["--derive", "*", "--lease", "2s", "--config"];
    let flags = [&flags[..], &[rules.to_str().expect("a path in UTF-8")]].concat();
    let pid = place.folder.join("server-pid");
    let mut server = words(&[Path::new("sh"), Path::new("-c")]);
    server.push("echo $$ > \"$0\"; exec \"$@\"".to_owned());
    server.extend(words(&[&pid]));
    server.extend(place.server(Sdk::Python));
    let told = agent(&place, kills(), &place.gateway(&flags, &server), Some(&pid));
    let done = done(&place);
    let twice = done.iter().filter(|times| **times != 1).count();
    assert_eq!(twice, 0, "not done once: {told}");
    assert_eq!(told["killed"], kills());
    assert_eq!(told["in_doubt"], serde_json::json!([]), "{told}");
    assert_eq!(told["refused"], serde_json::json!([]), "{told}");
    assert_eq!(number(&told["done"]), intended());
    assert_eq!(in_doubt(&place).len(), 0);
    eprintln!(
        "{} calls for {} acts, {} kills, {} results from lookups",
        told["calls"],
        intended(),
        kills(),
        told["verified"]
    );
}

/// The same script without the gateway: the test above is able to fail.
#[test]
fn the_same_agent_without_the_gateway_acts_twice() {
    let place = Place::new();
    let told = agent(&place, 0, &place.server(Sdk::Python), None);
    let twice = done(&place).iter().filter(|times| **times > 1).count();
    eprintln!("{twice} of {} acts were done more than once", intended());
    assert!(twice > intended() / 5, "{twice}: {told}");
}
