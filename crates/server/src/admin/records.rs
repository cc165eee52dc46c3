//! Listing and inspecting records.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel::core::Code;
use semel_core::store::{Cursor, Query as StoreQuery};
use semel_core::{Identity, Record};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::view::{Detail, RecordView};
use crate::api::{current_state, store_failure};
use crate::audit::Draft;
use crate::operators::{Operator, Role};
use crate::web::{
    Failure, Problem400, Problem401, Problem403, Problem404, Problem422, Problem429, Problem500,
    Problem503, Query, RecordId, check_text, hex, json_response,
};

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StateFilter {
    /// The operation is running.
    Running,
    /// The operation has completed.
    Completed,
    /// The operation has failed permanently.
    Failed,
    /// The outcome is unknown. This includes expired leases that may not be taken over.
    InDoubt,
    /// The key is free to claim.
    Released,
}

impl From<StateFilter> for semel_core::State {
    fn from(filter: StateFilter) -> Self {
        match filter {
            StateFilter::Running => Self::Running,
            StateFilter::Completed => Self::Completed,
            StateFilter::Failed => Self::Failed,
            StateFilter::InDoubt => Self::InDoubt,
            StateFilter::Released => Self::Released,
        }
    }
}

/// The filter of a listing.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only records in this state.
    #[param(inline, nullable = false)]
    state: Option<StateFilter>,
    /// Only records of this environment.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    environment: Option<String>,
    /// Only records of this tenant.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    tenant: Option<String>,
    /// Only records of this scope.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    scope: Option<String>,
    /// The cursor of the previous page.
    #[param(nullable = false, min_length = 1, max_length = 32768)]
    cursor: Option<String>,
    /// The maximum number of records. Default: 100. A page may have fewer and still have a next
    /// page.
    #[param(nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordPage {
    /// The records, without answers and checkpoints.
    records: Vec<RecordView>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
    /// Whether the store may list a record twice.
    may_repeat: bool,
}

/// List records.
#[utoipa::path(
    get,
    path = "/admin/v1/records",
    tag = "admin",
    params(ListQuery),
    responses(
        (status = 200, description = "A page of records.", body = RecordPage),
        (status = 414, description = "The URL is too long; the cursor is invalid."),
        Problem400, Problem401, Problem403, Problem429, Problem422, Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    operator: Operator,
    Query(query): Query<ListQuery>,
) -> Result<Response, Failure> {
    let tenant = operator.resolve_tenant(query.tenant)?;
    for (name, text) in [
        ("environment", &query.environment),
        ("tenant", &tenant),
        ("scope", &query.scope),
    ] {
        text.as_deref()
            .map_or(Ok(()), |text| check_text(name, text, 128))?;
    }
    let limit = query.limit.unwrap_or(100);
    let cursor_fits = query
        .cursor
        .as_ref()
        .is_none_or(|cursor| (1..=32768).contains(&cursor.len()));
    if !(1..=StoreQuery::MAX_LIMIT).contains(&limit) || !cursor_fits {
        return Err(Failure::invalid(
            "limit must be from 1 to 1000, and the cursor must come from a listing",
        ));
    }
    let asked = StoreQuery::default()
        .with_environment(query.environment)
        .with_tenant(tenant)
        .with_scope(query.scope)
        .with_state(query.state.map(semel_core::State::from))
        .with_after(query.cursor.map(Cursor))
        .with_limit(limit);
    let store = state.semel.store();
    let page = store
        .list(&asked)
        .await
        .map_err(|error| store_failure(&error))?;
    let now = store.now().await.map_err(|error| store_failure(&error))?;
    let records = page.records.iter();
    let view = RecordPage {
        records: records
            .map(|(identity, record)| {
                RecordView::from_record(identity, record, now, Detail::Summary)
            })
            .collect(),
        next: page.next.map(|Cursor(cursor)| cursor),
        may_repeat: !store.capabilities().lists_once,
    };
    Ok(json_response(StatusCode::OK, &view))
}

/// The detail of a record.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InspectQuery {
    /// Whether to include the answer, which may contain personal data.
    #[serde(default)]
    #[param(nullable = false)]
    answer: bool,
}

/// Inspect a record.
#[utoipa::path(
    get,
    path = "/admin/v1/records/{id}",
    tag = "admin",
    params(
        ("id" = String, Path, description = "The id of the record: a hash of the key.",
         pattern = "^[0-9a-f]{64}$"),
        InspectQuery
    ),
    responses(
        (status = 200, description = "The record.", body = RecordView),
        Problem400, Problem401, Problem403, Problem429, Problem404, Problem500, Problem503
    ),
    security(("admin" = []))
)]
pub(super) async fn inspect(
    State(state): State<AdminState>,
    operator: Operator,
    RecordId(identity): RecordId,
    Query(query): Query<InspectQuery>,
) -> Result<Response, Failure> {
    let record = state.find_record(&operator, &identity).await?;
    if !query.answer {
        return state.respond(&identity, &record, Detail::Full).await;
    }
    operator.require_role(Role::Operate)?;
    let reading = Draft {
        namespace: Some(record.namespace.clone()),
        id: Some(hex(identity.as_bytes())),
        ..Draft::default()
    };
    state.audit_reading(&operator, reading).await?;
    state.respond(&identity, &record, Detail::WithAnswer).await
}

impl AdminState {
    /// Records in the audit trail that an operator reads an answer, which may contain personal
    /// data.
    pub(super) async fn audit_reading(
        &self,
        operator: &Operator,
        reading: Draft,
    ) -> Result<(), Failure> {
        let written = self.trail.record(Draft {
            kind: "admin.answer.read",
            actor: operator.name().map(str::to_owned),
            ..reading
        });
        written.await.map_err(|_| {
            let detail = "the audit trail can't be written, so the answer is not shown";
            Failure::new(Code::AuditUnavailable, detail)
        })
    }

    /// The record, if it exists and the operator may see it.
    pub(super) async fn find_record(
        &self,
        operator: &Operator,
        identity: &Identity,
    ) -> Result<Record, Failure> {
        let found = self.semel.engine().inspect(identity).await;
        let found = found.map_err(|problem| Failure::from_problem(&problem))?;
        found
            .filter(|record| operator.may_see(record.namespace.tenant()))
            .ok_or_else(Failure::not_found)
    }

    pub(super) async fn respond(
        &self,
        identity: &Identity,
        record: &Record,
        detail: Detail,
    ) -> Result<Response, Failure> {
        let (_, now) = current_state(&self.semel, record).await?;
        let view = RecordView::from_record(identity, record, now, detail);
        Ok(json_response(StatusCode::OK, &view))
    }
}
