//! Changes with an audit trail.
//!
//! Every change is in the audit trail before it is made, and again with its outcome. If the first
//! entry cannot be written, the change is not made.

use axum::response::Response;
use http::StatusCode;
use semel::core::Code;
use semel_core::engine::OperatorOutcome;
use semel_core::{Fence, Identity, Record, StoreError};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::AdminState;
use crate::api::{Status, store_failure};
use crate::audit::Draft;
use crate::operators::Operator;
use crate::web::{Failure, check_text, hex, json_response};

/// Who makes a change, and why.
pub(super) struct ChangeAuthor<'a> {
    pub(super) actor: &'a str,
    pub(super) reason: &'a str,
}

impl ChangeAuthor<'_> {
    pub(super) fn check(&self) -> Result<(), Failure> {
        check_text("actor", self.actor, 128)?;
        check_text("reason", self.reason, 500)
    }
}

/// A change whose begin is in the audit trail.
pub(super) struct AuditedChange {
    kind: &'static str,
    draft: Draft,
}

/// A change of one record.
pub(super) struct RecordChange<'a> {
    pub(super) operator: &'a Operator,
    pub(super) author: ChangeAuthor<'a>,
    pub(super) identity: &'a Identity,
    pub(super) record: &'a Record,
    /// The kinds of the audit entries: of the begin, and of the outcome.
    pub(super) kinds: [&'static str; 2],
    /// Further details for the audit entries.
    pub(super) detail: Value,
}

impl AdminState {
    /// Writes the begin of a change to the audit trail.
    pub(super) async fn begin_change(
        &self,
        kind: [&'static str; 2],
        operator: &Operator,
        author: &ChangeAuthor<'_>,
        about: Option<(&Identity, &Record)>,
        more: Value,
    ) -> Result<AuditedChange, Failure> {
        author.check()?;
        let mut detail = Map::new();
        if let Value::Object(more) = more {
            detail.extend(more);
        }
        detail.insert("reason".to_owned(), author.reason.into());
        // The credential names the actor. A different name in the request is recorded as well.
        if operator.name().is_some_and(|name| name != author.actor) {
            detail.insert("said_to_be".to_owned(), author.actor.into());
        }
        if let Some((_, record)) = about {
            detail.insert("before".to_owned(), record.state.as_str().into());
            detail.insert("fence".to_owned(), record.fence.0.into());
        }
        let draft = Draft {
            kind: kind[0],
            namespace: about.map(|(_, record)| record.namespace.clone()),
            id: about.map(|(identity, _)| hex(identity.as_bytes())),
            actor: Some(operator.name().unwrap_or(author.actor).to_owned()),
            detail,
        };
        let written = self.trail.record(draft.clone()).await;
        written.map_err(|_| {
            let detail = "the audit trail can't be written; nothing was changed";
            Failure::new(Code::AuditUnavailable, detail)
        })?;
        Ok(AuditedChange {
            kind: kind[1],
            draft,
        })
    }

    /// Writes the outcome of a change to the audit trail, and returns whether that succeeded.
    pub(super) async fn end_change(&self, change: AuditedChange, outcome: Value) -> bool {
        let mut draft = change.draft;
        draft.kind = change.kind;
        if let Value::Object(outcome) = outcome {
            draft.detail.extend(outcome);
        }
        self.trail.record(draft).await.is_ok()
    }

    /// Checks the author of a change, and finds the record.
    pub(super) async fn find_for_change(
        &self,
        operator: &Operator,
        identity: &Identity,
        author: &ChangeAuthor<'_>,
    ) -> Result<Record, Failure> {
        author.check()?;
        self.find_record(operator, identity).await
    }

    /// Makes a change of a record between its two audit entries.
    pub(super) async fn change_record(
        &self,
        change: RecordChange<'_>,
        apply: impl Future<Output = Result<OperatorOutcome, StoreError>>,
    ) -> Result<Response, Failure> {
        let about = Some((change.identity, change.record));
        let (operator, author) = (change.operator, &change.author);
        let begun = self.begin_change(change.kinds, operator, author, about, change.detail);
        let begun = begun.await?;
        self.finish_change(begun, change.identity, apply.await)
            .await
    }

    async fn finish_change(
        &self,
        change: AuditedChange,
        identity: &Identity,
        operated: Result<OperatorOutcome, StoreError>,
    ) -> Result<Response, Failure> {
        match operated {
            Ok(OperatorOutcome::Done { before, state }) => {
                let outcome = json!({
                    "outcome": "done",
                    "before": before.state.as_str(),
                    "after": state.as_str(),
                });
                let audited = self.end_change(change, outcome).await;
                let view = ChangeView {
                    id: hex(identity.as_bytes()),
                    before: before.state.into(),
                    after: state.into(),
                    fence: before.fence.0,
                    audited,
                };
                Ok(json_response(StatusCode::OK, &view))
            }
            Ok(OperatorOutcome::Absent) => {
                self.end_change(change, json!({"outcome": "absent"})).await;
                Err(Failure::not_found())
            }
            Ok(OperatorOutcome::MovedOn(found)) => {
                let state = found.state.as_str();
                self.end_change(change, json!({"outcome": "moved_on", "after": state}))
                    .await;
                Err(record_changed(state, found.fence))
            }
            Err(error) => {
                self.end_change(
                    change,
                    json!({"outcome": "store_failed", "kind": error.kind.as_str()}),
                )
                .await;
                Err(store_failure(&error))
            }
        }
    }
}

pub(super) fn record_changed(state: &str, fence: Fence) -> Failure {
    let detail = format!(
        "the record is {state} with fence {fence}, so this change does not apply; nothing was \
         changed; read the record again"
    );
    Failure::new(Code::MovedOn, detail)
}

/// A change that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChangeView {
    /// The id of the record.
    id: String,
    /// The state before the change.
    before: Status,
    /// The state after the change; `released` after a reset.
    after: Status,
    /// The fence of the record.
    fence: u64,
    /// Whether the outcome is in the audit trail. The begin of the change always is.
    audited: bool,
}
