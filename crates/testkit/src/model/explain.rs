//! Explains a path of the model, one line per step.

use stateright::Path;

use super::codec::client_of;
use super::step::Step;
use super::world::{Call, Client, Message, Operator, Phase, Reply, Row, Stray, World};

/// Tells what happened on the way to the end of `path`.
pub(super) fn explain(path: Path<World, Step>) -> Vec<String> {
    let path = path.into_vec();
    let steps = path.windows(2).filter_map(|pair| {
        let [(before, step), (after, _)] = pair else {
            return None;
        };
        Some(format!(
            "t={}  {}",
            after.now,
            sentence(before, (*step)?, after)
        ))
    });
    steps.collect()
}

fn sentence(before: &World, step: Step, after: &World) -> String {
    match step {
        Step::Tick => "a tick passes".to_owned(),
        Step::Sweep => "the store sweeps the record away".to_owned(),
        Step::StrayArrives { stray } => {
            let message = described(before.strays[stray]);
            format!(
                "the store takes up a stray {message}; {}",
                record(after.row)
            )
        }
        Step::Look | Step::Resolve { .. } | Step::ResolveAgain => of_operator(step, after),
        Step::Claim { client }
        | Step::Arrive { client }
        | Step::Swap { client }
        | Step::Deliver { client }
        | Step::LoseReply { client }
        | Step::TimeOut { client }
        | Step::Restart { client }
        | Step::Renew { client, .. }
        | Step::EndEffect { client, .. } => {
            let who = name(client);
            of_client(
                who,
                &before.clients[client],
                step,
                &after.clients[client],
                after.row,
            )
        }
    }
}

fn of_client(who: char, was: &Client, step: Step, is: &Client, row: Option<Row>) -> String {
    match step {
        Step::Claim { .. } => format!("{who} sends a claim, token {}", is.token),
        Step::Arrive { .. } => {
            let reply = match is.call {
                Call::Replied { reply, .. } => said(reply),
                Call::Looked { .. } => "looks, and decides".to_owned(),
                _ => String::new(),
            };
            format!(
                "the store takes up {who}'s {}: {reply}; {}",
                call(was),
                record(row)
            )
        }
        Step::Swap { .. } => match is.call {
            Call::Replied { reply, .. } => format!(
                "the store finds what it saw for {who}, and writes: {}; {}",
                said(reply),
                record(row)
            ),
            _ => format!("the store finds another record than it saw for {who}"),
        },
        Step::Deliver { .. } => format!("{who} reads the reply and is now {}", phase(is)),
        Step::LoseReply { .. } => format!("the reply to {who}'s {} is lost", call(was)),
        Step::TimeOut { .. } => format!("{who} gives its {} up for lost", call(was)),
        Step::Restart { .. } => format!("{who} crashes, or its caller asks again"),
        Step::Renew {
            checkpoint: true, ..
        } => format!("{who} sends a renewal with a checkpoint"),
        Step::Renew { .. } => format!("{who} sends a renewal"),
        Step::EndEffect { verdict, .. } => {
            format!("{who}'s effect ends: {verdict:?}; it is now {}", phase(is))
        }
        _ => format!("{step:?}"),
    }
}

fn of_operator(step: Step, after: &World) -> String {
    let done = match after.operator {
        Operator::Resolved { done: true }
        | Operator::Unsure { done: true, .. }
        | Operator::ResolvedAgain { done: true } => "done",
        _ => "refused",
    };
    let what = match step {
        Step::Resolve {
            resolve,
            lost: false,
        } => format!("resolves: {resolve:?}, {done}"),
        Step::Resolve {
            resolve,
            lost: true,
        } => {
            format!("resolves: {resolve:?}, {done}, but the reply is lost")
        }
        Step::ResolveAgain => format!("says the same again: {done}"),
        _ => "sees a doubt".to_owned(),
    };
    format!("the operator {what}; {}", record(after.row))
}

fn name(client: usize) -> char {
    ['A', 'B', 'C'].get(client).copied().unwrap_or('?')
}

fn call(client: &Client) -> &'static str {
    match client.phase {
        Phase::Claiming { .. } => "claim",
        Phase::Working { .. } | Phase::Renewing { .. } => "renewal",
        _ => "settlement",
    }
}

fn phase(client: &Client) -> String {
    match client.phase {
        Phase::Working { fence, .. } => format!("working under fence {fence}"),
        Phase::Settling { fence, verdict, .. } => format!("settling fence {fence}: {verdict:?}"),
        Phase::Answered { answer } => format!("answered: #{answer}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn said(reply: Reply) -> String {
    match reply {
        Reply::Won { fence, how, .. } => format!("Won, fence {fence} ({how:?})"),
        Reply::Replay { answer } => format!("Replay, #{answer}"),
        Reply::InDoubt { how } => format!("InDoubt ({how:?})"),
        Reply::Done { how } => format!("Done ({how:?})"),
        Reply::Mismatch { .. } => "Mismatch".to_owned(),
        other => format!("{other:?}"),
    }
}

fn described(stray: Stray) -> String {
    let Stray::Flying { message, .. } = stray else {
        return format!("{stray:?}");
    };
    let owner = name(client_of(message.token()));
    match message {
        Message::Claim { token } => format!("claim of {owner}, token {token}"),
        Message::Renew { fence, .. } => format!("renewal of {owner}, fence {fence}"),
        Message::Settle { fence, verdict, .. } => {
            format!("settlement of {owner}, fence {fence}: {verdict:?}")
        }
    }
}

fn record(row: Option<Row>) -> String {
    row.map_or_else(
        || "the key is absent".to_owned(),
        |row| format!("the record is {}", in_words(row)),
    )
}

pub(super) fn in_words(row: Row) -> String {
    let answer = if row.answer == 0 {
        String::new()
    } else {
        format!(", #{}", row.answer)
    };
    format!(
        "{}: fence {}, token {}, attempt {}, {:?}, written t={}{answer}",
        row.state.as_str(),
        row.fence,
        row.token,
        row.attempt,
        row.crash,
        row.written,
    )
}
