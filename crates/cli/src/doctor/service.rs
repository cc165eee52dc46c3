//! Checks the service behind the sidecar, its CORS rules, and the sidecar itself.

use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, Method, Request, Response, Uri, header};
use semel::core::diagnosis::{Finding, Severity};
use semel_server::config::{Config, without_password};

use super::Report;
use crate::client::{HttpClient, http_client};

/// The response timeout.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn check(config: &Config, origin: &str, report: &mut Report) {
    if config.upstream.urls.is_empty() {
        return;
    }
    let ca_file = config
        .upstream
        .ca_file
        .as_ref()
        .map(std::path::PathBuf::from);
    let client = match http_client(ca_file) {
        Ok(client) => client,
        Err(message) => {
            let fix = "check upstream.ca_file";
            report.add(
                "service",
                [Finding::bad("tls", Severity::Broken, message, fix)],
            );
            return;
        }
    };
    for url in &config.upstream.urls {
        let shown = without_password(url);
        match preflight(&client, url, origin).await {
            Err(cause) => {
                let found = format!("{shown} can't be reached: {cause}");
                let fix = "start it, and check the port: requests get 502 until it answers";
                report.add(
                    "service",
                    [Finding::bad("upstream", Severity::Broken, found, fix)],
                );
            }
            Ok(answer) => {
                let found = format!("{shown} answers");
                report.add("service", [Finding::good("upstream", found)]);
                report.add("service", [judge_preflight(answer.headers())]);
            }
        }
    }
    report.add("sidecar", [sidecar(&client, config).await]);
}

/// Sends a CORS preflight request, as a browser does for a page of another site.
async fn preflight(
    client: &HttpClient,
    url: &str,
    origin: &str,
) -> Result<Response<hyper::body::Incoming>, String> {
    let request = Request::builder()
        .method(Method::OPTIONS)
        .uri(url)
        .header(header::ORIGIN, origin)
        .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
        .header(
            header::ACCESS_CONTROL_REQUEST_HEADERS,
            "content-type,idempotency-key",
        )
        .body(Body::empty())
        .map_err(|error| error.to_string())?;
    ask(client, request).await
}

async fn ask(
    client: &HttpClient,
    request: Request<Body>,
) -> Result<Response<hyper::body::Incoming>, String> {
    let clock = semel::tokio_env().clock;
    match clock.timeout(TIMEOUT, client.request(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(crate::client::cause(&error)),
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

/// Judges the response to the preflight request.
fn judge_preflight(headers: &HeaderMap) -> Finding {
    let text = |name: header::HeaderName| {
        let values = headers.get_all(name);
        let values: Vec<_> = values
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        values.join(",").to_ascii_lowercase()
    };
    let origin = text(header::ACCESS_CONTROL_ALLOW_ORIGIN);
    if origin.is_empty() {
        let found = "web pages of other sites may not call the service";
        let fix = "if they should, let the service allow their origin and the header \
                   Idempotency-Key";
        return Finding::bad("CORS", Severity::Note, found, fix);
    }
    let allowed = text(header::ACCESS_CONTROL_ALLOW_HEADERS);
    let has_key = allowed
        .split(',')
        .any(|name| matches!(name.trim(), "idempotency-key" | "*"));
    if has_key {
        return Finding::good("CORS", "web pages of other sites may send Idempotency-Key");
    }
    let found = "web pages of other sites may call the service, but not send Idempotency-Key";
    let fix = "browsers refuse every request with a key: add Idempotency-Key to \
               Access-Control-Allow-Headers";
    Finding::bad("CORS", Severity::Warning, found, fix)
}

/// Checks whether a sidecar with these settings runs and is ready.
async fn sidecar(client: &HttpClient, config: &Config) -> Finding {
    let listener = &config.listener;
    let scheme = if listener.tls.cert_file.is_some() {
        "https"
    } else {
        "http"
    };
    let address = listener.address.replace("0.0.0.0", "127.0.0.1");
    let url = format!("{scheme}://{address}{}/readyz", listener.own_path);
    let Some(uri) = url
        .parse::<Uri>()
        .ok()
        .filter(|_| !listener.own_path.is_empty())
    else {
        let found = "it has no path of its own, so it can't be checked";
        return Finding::good("ready", found);
    };
    let request = Request::builder().uri(uri).body(Body::empty());
    let Ok(request) = request else {
        return Finding::bad(
            "ready",
            Severity::Note,
            "it can't be checked",
            "check listener.address",
        );
    };
    match ask(client, request).await {
        Ok(answer) if answer.status().is_success() => {
            Finding::good("ready", format!("{url} reports ready"))
        }
        Ok(answer) => {
            let found = format!("{url} answers {}", answer.status());
            let fix = "see its log; does another process listen there?";
            Finding::bad("ready", Severity::Broken, found, fix)
        }
        Err(cause) => {
            let found = format!("{address} can't be reached: {cause}");
            let fix = "`semel serve` starts it";
            Finding::bad("ready", Severity::Note, found, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(pairs: &[(header::HeaderName, &str)]) -> Severity {
        let headers = pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect();
        judge_preflight(&headers).severity
    }

    #[test]
    fn missing_cors_header_is_a_warning() {
        let origin = (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        let allow = |names| (header::ACCESS_CONTROL_ALLOW_HEADERS, names);
        assert_eq!(judged(&[]), Severity::Note);
        assert_eq!(judged(std::slice::from_ref(&origin)), Severity::Warning);
        assert_eq!(
            judged(&[origin.clone(), allow("content-type, x-idempotency-key")]),
            Severity::Warning
        );
        assert_eq!(
            judged(&[origin.clone(), allow("Content-Type, Idempotency-Key")]),
            Severity::Good
        );
        assert_eq!(judged(&[origin, allow("*")]), Severity::Good);
    }
}
