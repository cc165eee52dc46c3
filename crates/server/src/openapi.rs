//! The OpenAPI document of all APIs, from which `spec/openapi.json` is generated.

use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;

use crate::web::ProblemDocument;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Semel",
        description = "Sent many times, done once. The protocol API (`/v1`) claims, renews and \
                       settles keys by explicit calls. The admin API (`/admin/v1`) is for operators, \
                       on its own listener. The jobs API (`/mesh`) enqueues a job once however often \
                       it is submitted.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(ProblemDocument)),
    tags(
        (name = "protocol", description = "Claim, run, settle, replay."),
        (
            name = "jobs",
            description = "Submit, look up and wait; lease, heartbeat, complete and fail."
        ),
        (
            name = "admin",
            description = "List, inspect, unlock, resolve, reset, erase, purge, follow."
        )
    )
)]
struct Document;

/// The document as JSON.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn openapi() -> Result<String, serde_json::Error> {
    let (_, api) = crate::api::routes().split_for_parts();
    let (_, admin) = crate::admin::routes().split_for_parts();
    let (_, mut document) =
        OpenApiRouter::<()>::with_openapi(Document::openapi()).split_for_parts();
    let (_, jobs) = crate::jobs::routes().split_for_parts();
    document.merge(api);
    document.merge(jobs);
    document.merge(admin);
    let bearer = |what: &str| {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(what));
        SecurityScheme::Http(scheme.build())
    };
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("bearer", bearer("The token of a tenant."));
    components.add_security_scheme("admin", bearer("The admin token."));
    let mut text = document.to_pretty_json()?;
    text.push('\n');
    Ok(text)
}
