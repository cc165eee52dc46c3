//! Explains a path of the model, one line per step.

use stateright::Path;

use super::super::explain::in_words;
use super::super::world::Row;
use super::step::Step;
use super::world::{Client, Phase, World};

/// Tells what happened on the way to the end of `path`.
pub(in super::super) fn explain(path: Path<World, Step>) -> Vec<String> {
    let path = path.into_vec();
    let steps = path.windows(2).filter_map(|pair| {
        let [(before, step), (after, _)] = pair else {
            return None;
        };
        let step = (*step)?;
        Some(format!(
            "t={}  {}; old: {}; new: {}",
            after.now,
            sentence(before, step, after),
            record(after.rows[0]),
            record(after.rows[1]),
        ))
    });
    steps.collect()
}

fn sentence(before: &World, step: Step, after: &World) -> String {
    match step {
        Step::Ask { client }
        | Step::Arrive { client }
        | Step::Fail { client, .. }
        | Step::Start { client }
        | Step::Renew { client }
        | Step::End { client, .. }
        | Step::Crash { client, .. }
        | Step::RollOut { client } => of_client(
            step,
            client,
            &before.clients[client],
            &after.clients[client],
        ),
        Step::Tick => "a tick passes".to_owned(),
        Step::Sweep { store } => format!("the {} store sweeps", ["old", "new"][store]),
        Step::StrayArrives => format!("a stray arrives: {:?}", before.stray),
        Step::CopierLists => "the copier lists the record".to_owned(),
        Step::CopierArrives => {
            let at = before.copier.run.as_ref().and_then(|run| run.at.as_ref());
            let calls = at.map_or(0, |at| at.heard.len());
            let done = after.copier.run.as_ref().is_none_or(|run| run.at.is_none());
            let end = if done {
                ", and is done with the record"
            } else {
                ""
            };
            format!("the copier's call {} is answered{end}", calls + 1)
        }
        Step::CopierDies { .. } => "the copier is killed".to_owned(),
        Step::Harm { harm } => format!("bodies are harmed: {harm:?}"),
    }
}

fn of_client(step: Step, client: usize, was: &Client, is: &Client) -> String {
    let who = ['A', 'B', 'C'].get(client).copied().unwrap_or('?');
    let what = match step {
        Step::Ask { .. } => format!("claims, token {}", is.token),
        Step::Arrive { .. } | Step::Fail { .. } => {
            let call = was.heard.as_ref().map_or(0, Vec::len) + 1;
            let of = match was.phase {
                Phase::Claiming { .. } => "claim",
                Phase::Settling { .. } => "settlement",
                _ => "renewal",
            };
            let how = if let Step::Fail { trouble, .. } = step {
                format!("gets no answer: {trouble:?}")
            } else {
                let said = is.heard.as_ref().and_then(|heard| heard.last());
                said.map_or_else(
                    || "is answered".to_owned(),
                    |said| format!("is answered {said:?}"),
                )
            };
            format!("call {call} of its {of} {how}; it is {}", phase(is))
        }
        Step::Start { .. } => format!("looks at its clock; it is {}", phase(is)),
        Step::Renew { .. } => "renews".to_owned(),
        Step::End { verdict, .. } => format!("'s effect ends: {verdict:?}"),
        Step::Crash { flying, .. } => {
            format!("dies{}", if flying { ", a call under way" } else { "" })
        }
        Step::RollOut { .. } => format!("now uses {:?}", is.uses),
        _ => String::new(),
    };
    format!("{who} ({:?}) {what}", was.uses)
}

fn phase(client: &Client) -> String {
    match &client.phase {
        Phase::Working { lease, .. } => format!("working under fence {}", lease.fence),
        Phase::Won { lease, .. } => format!("winner of fence {}", lease.fence),
        Phase::Settling { verdict, .. } => format!("settling {verdict:?}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn record(row: Option<Row>) -> String {
    row.map_or_else(|| "–".to_owned(), in_words)
}
