//! Listing, inspecting, histories.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use semel_core::store::{Cursor, Query as StoreQuery};
use semel_core::{Identity, Namespace, Record};
use semel_http::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::AdminState;
use super::access::Operator;
use super::operators::Role;
use super::view::{RecordView, Show};
use crate::api::{
    Failure, Id, Json, P400, P401, P403, P404, P408, P413, P415, P422, P500, P503, Query, answered,
    check_text, hex, present, standing, store_failed,
};
use crate::audit::{Draft, Entry};

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StateFilter {
    /// Somebody runs it.
    Running,
    /// Done.
    Completed,
    /// Failed for good.
    Failed,
    /// Nobody knows; a lapsed lease that may not be taken over included.
    InDoubt,
    /// Free to claim.
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

/// Which records to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only those that stand so.
    #[param(inline, nullable = false)]
    state: Option<StateFilter>,
    /// Only of this environment.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    environment: Option<String>,
    /// Only of this tenant.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    tenant: Option<String>,
    /// Only of this scope.
    #[param(nullable = false, max_length = 128, pattern = "^[ -~]+$")]
    scope: Option<String>,
    /// Go on after the page that gave this cursor.
    #[param(nullable = false, min_length = 1, max_length = 32768)]
    cursor: Option<String>,
    /// At most so many; 100 where it isn't said. A page may be short and still have a next one.
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
    /// Whether this store may list a record twice.
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
        (status = 414, description = "The address is too long: a cursor that no listing gave."),
        P400, P401, P403, P422, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    operator: Operator,
    Query(query): Query<ListQuery>,
) -> Result<Response, Failure> {
    let tenant = operator.asks_of(query.tenant)?;
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
            "limit is from 1 to 1000, and a cursor is as a listing gave it",
        ));
    }
    let asked = StoreQuery {
        environment: query.environment,
        tenant,
        scope: query.scope,
        state: query.state.map(Into::into),
        after: query.cursor.map(Cursor),
        limit,
    };
    let store = state.semel.store();
    let page = store
        .list(&asked)
        .await
        .map_err(|error| store_failed(&error))?;
    let now = store.now().await.map_err(|error| store_failed(&error))?;
    let shown = page.records.iter();
    let view = RecordPage {
        records: shown
            .map(|(identity, record)| RecordView::of(identity, record, now, Show::Outline))
            .collect(),
        next: page.next.map(|Cursor(cursor)| cursor),
        may_repeat: !store.capabilities().lists_once,
    };
    Ok(answered(StatusCode::OK, &view))
}

/// How much to show.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InspectQuery {
    /// Show the answer too: it may have people's data in it.
    #[serde(default)]
    #[param(nullable = false)]
    answer: bool,
}

/// Inspect a record.
#[utoipa::path(
    get,
    path = "/admin/v1/records/{id}",
    tag = "admin",
    params(("id" = String, Path, description = "The key's hash.", pattern = "^[0-9a-f]{64}$"), InspectQuery),
    responses(
        (status = 200, description = "The record.", body = RecordView),
        P400, P401, P403, P404, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn inspect(
    State(state): State<AdminState>,
    operator: Operator,
    Id(identity): Id,
    Query(query): Query<InspectQuery>,
) -> Result<Response, Failure> {
    let record = state.see(&operator, &identity).await?;
    if !query.answer {
        return state.shown(&identity, &record, Show::Whole).await;
    }
    operator.may(Role::Operate)?;
    state.note_reading(&operator, &identity, &record).await?;
    state.shown(&identity, &record, Show::WithAnswer).await
}

impl AdminState {
    /// Writes down that somebody reads an answer: it may have people's data in it.
    async fn note_reading(
        &self,
        operator: &Operator,
        identity: &Identity,
        record: &Record,
    ) -> Result<(), Failure> {
        let written = self.trail.record(Draft {
            kind: "admin.answer.read",
            place: Some(record.namespace.clone()),
            id: Some(hex(identity.as_bytes())),
            actor: operator.name().map(str::to_owned),
            ..Draft::default()
        });
        written.await.map_err(|_| {
            let detail = "the audit trail can't be written to; the answer is not shown";
            Failure::of("audit_unavailable", detail)
        })
    }

    /// The record; none where the operator may not know of it.
    pub(super) async fn see(
        &self,
        operator: &Operator,
        identity: &Identity,
    ) -> Result<Record, Failure> {
        let found = self.semel.engine().look(identity).await;
        let found = found.map_err(|problem| Failure::of_engine(&problem))?;
        found
            .filter(|record| operator.may_see(record.namespace.tenant()))
            .ok_or_else(Failure::not_found)
    }

    async fn shown(
        &self,
        identity: &Identity,
        record: &Record,
        show: Show,
    ) -> Result<Response, Failure> {
        let (_, now) = standing(&self.semel, record).await?;
        let view = RecordView::of(identity, record, now, show);
        Ok(answered(StatusCode::OK, &view))
    }
}

/// Which key to look up. The key goes in the body: addresses end up in logs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdminLookup {
    /// The environment; left out, it is the server's own.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]+$"
    )]
    environment: Option<String>,
    /// The tenant.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 128,
        pattern = "^[ -~]+$"
    )]
    tenant: Option<String>,
    /// What is done, such as `charge`.
    #[schema(min_length = 1, max_length = 128, pattern = "^[ -~]+$")]
    scope: String,
    /// The authenticated caller that the key is of, where the door makes that part of it.
    #[serde(default, deserialize_with = "present")]
    #[schema(
        nullable = false,
        min_length = 1,
        max_length = 1024,
        pattern = "^[ -~]+$"
    )]
    principal: Option<String>,
    /// The caller's key.
    #[schema(min_length = 1, max_length = 255, pattern = "^[A-Za-z0-9_.:-]+$")]
    key: String,
}

/// Look a record up by its key.
#[utoipa::path(
    post,
    path = "/admin/v1/lookups",
    tag = "admin",
    request_body = AdminLookup,
    responses(
        (status = 200, description = "The record.", body = RecordView),
        P400, P401, P403, P404, P408, P413, P415, P500, P503
    ),
    security(("admin" = []))
)]
pub(super) async fn lookup(
    State(state): State<AdminState>,
    operator: Operator,
    Json(asked): Json<AdminLookup>,
) -> Result<Response, Failure> {
    let tenant = operator.asks_of(asked.tenant)?;
    check_text("scope", &asked.scope, 128)?;
    for (name, text, most) in [
        ("environment", &asked.environment, 128),
        ("tenant", &tenant, 128),
        ("principal", &asked.principal, 1024),
    ] {
        text.as_deref()
            .map_or(Ok(()), |text| check_text(name, text, most))?;
    }
    let own = state.semel.environment();
    let namespace = Namespace::of_principal(
        asked.environment.as_deref().unwrap_or(own),
        tenant.as_deref().unwrap_or_default(),
        &asked.scope,
        asked.principal.as_deref().unwrap_or_default(),
    );
    let namespace = namespace.map_err(|error| Failure::invalid(error.to_string()))?;
    let key = state
        .semel
        .key_rules()
        .check(&asked.key)
        .map_err(Refusal::from)?;
    let identity = Identity::of(state.semel.engine().secret(), &namespace, &key);
    let record = state.see(&operator, &identity).await?;
    state.shown(&identity, &record, Show::Whole).await
}

/// How much history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// At most so many entries, the last ones; 100 where it isn't said.
    #[param(nullable = false, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// What is known of a key's past.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryView {
    /// Of the key.
    id: String,
    /// Oldest first.
    entries: Vec<Entry>,
    /// Whether that is all that this server ever kept about it. Other servers keep trails of their own.
    complete: bool,
}

/// The history of a key, as far as this server knows it.
#[utoipa::path(
    get,
    path = "/admin/v1/records/{id}/history",
    tag = "admin",
    params(("id" = String, Path, description = "The key's hash.", pattern = "^[0-9a-f]{64}$"), HistoryQuery),
    responses(
        (status = 200, description = "Entries of the audit trail; none where nothing is known.", body = HistoryView),
        P400, P401, P403
    ),
    security(("admin" = []))
)]
pub(super) async fn history(
    State(state): State<AdminState>,
    operator: Operator,
    Id(identity): Id,
    Query(query): Query<HistoryQuery>,
) -> Result<Response, Failure> {
    let limit = query.limit.unwrap_or(100);
    if !(1..=1000).contains(&limit) {
        return Err(Failure::invalid("limit is from 1 to 1000"));
    }
    let id = hex(identity.as_bytes());
    let mut history = state.trail.history(&id, limit).await;
    history
        .entries
        .retain(|entry| operator.may_see(&entry.tenant));
    let view = HistoryView {
        id,
        entries: history.entries,
        complete: history.complete,
    };
    Ok(answered(StatusCode::OK, &view))
}
