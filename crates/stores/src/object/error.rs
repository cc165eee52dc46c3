//! Maps errors of object storage to store errors: what is known, and whether to retry.

use object_store::Error;
use semel_core::{Certainty, StoreError, StoreErrorKind};

use super::http::Stamp;
use crate::ServerError;

/// The error responses of object storage: the status, and S3's error code if it matters. For all
/// others, nothing was changed, and only a change of configuration helps.
pub const ERRORS: &[ServerError] = &{
    use Certainty::{Definite, Unknown};
    use StoreErrorKind::{Rejected, Unavailable};
    [
        ServerError::new(
            "2*",
            Unavailable,
            Unknown,
            "done, and answered in a way that can't be read",
        ),
        ServerError::new(
            "400 RequestTimeout",
            Unavailable,
            Definite,
            "the request did not arrive in time, as a whole",
        ),
        ServerError::new(
            "403 AccessDenied",
            Rejected,
            Definite,
            "the key may not do this",
        ),
        ServerError::new(
            "403 InvalidAccessKeyId",
            Rejected,
            Definite,
            "there is no such access key",
        ),
        ServerError::new(
            "403 RequestTimeTooSkewed",
            Rejected,
            Definite,
            "this machine's clock is too far off",
        ),
        ServerError::new(
            "403 SignatureDoesNotMatch",
            Rejected,
            Definite,
            "the secret of the key is another",
        ),
        ServerError::new(
            "404 NoSuchBucket",
            Rejected,
            Definite,
            "there is no such bucket",
        ),
        ServerError::new("408*", Unavailable, Unknown, "the request took too long"),
        ServerError::new("429*", Unavailable, Unknown, "too many requests"),
        ServerError::new("503 SlowDown", Unavailable, Unknown, "too many requests"),
        ServerError::new(
            "5*",
            Unavailable,
            Unknown,
            "the server failed, maybe after the write",
        ),
    ]
};

fn classify(status: u16, code: Option<&str>) -> (StoreErrorKind, Certainty) {
    let said = match code {
        Some(code) => format!("{status} {code}"),
        None => status.to_string(),
    };
    let row = ServerError::find(ERRORS, &said);
    row.map_or((StoreErrorKind::Rejected, Certainty::Definite), |row| {
        (row.kind, row.certainty)
    })
}

/// The store error of a failed request. Only an explicit rejection proves that nothing was changed:
/// an internal error of the server may follow the write.
pub(super) fn store_error(stamp: &Stamp, error: &Error) -> StoreError {
    let code = code(&error.to_string());
    let (kind, certainty) = match stamp.status() {
        None if stamp.was_never_sent() => (StoreErrorKind::Unavailable, Certainty::Definite),
        None => (StoreErrorKind::Unavailable, Certainty::Unknown),
        Some(status) => classify(status, code.as_deref()),
    };
    // The client's own message is left out: it repeats parts of the request, and the key that
    // signed it.
    let said = match (stamp.status(), code) {
        (Some(status), Some(code)) => {
            format!("the server answered {status} {code}{}", hint(&code))
        }
        (Some(status), None) => format!("the server answered {status}"),
        (None, _) if stamp.was_never_sent() => "no connection to the server".to_owned(),
        (None, _) => "the server did not answer, or not to the end".to_owned(),
    };
    StoreError::new(kind, certainty, said)
}

/// Advice for common mistakes.
fn hint(code: &str) -> &'static str {
    match code {
        "RequestTimeTooSkewed" => {
            ": this machine's clock is too far from the server's for its signatures; set it"
        }
        "NoSuchBucket" => ": make the bucket first",
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" => {
            ": the access key or its secret is another"
        }
        "AccessDenied" => ": the key may not do this; docs/stores/object.md lists what it needs",
        _ => "",
    }
}

/// S3's error code in the response.
fn code(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let fits = code.len() <= 64 && code.bytes().all(|b| b.is_ascii_alphanumeric());
    fits.then(|| code.to_owned())
}

/// No reply within the limit.
pub(super) fn too_late() -> StoreError {
    let said = "the server did not answer in time";
    StoreError::new(StoreErrorKind::Unavailable, Certainty::Unknown, said)
}

/// The server isn't fit to keep records.
pub(super) fn unfit(why: impl Into<String>) -> StoreError {
    let said: String = why.into();
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> StoreError {
        let stamp = Stamp::new("", None);
        stamp.answered(status);
        let source = body.to_owned().into();
        store_error(
            &stamp,
            &Error::Generic {
                store: "S3",
                source,
            },
        )
    }

    #[test]
    fn every_row_classifies_its_own_response() {
        for row in ERRORS {
            let (status, word) = row.code.split_once(' ').unwrap_or((row.code, ""));
            let status = format!("{:0<3}", status.trim_end_matches('*'));
            let error = of(
                status.parse().unwrap(),
                &format!("<Error><Code>{word}</Code></Error>"),
            );
            let known = (error.kind, error.certainty);
            assert_eq!(known, (row.kind, row.certainty), "{row:?}");
        }
    }

    #[test]
    fn uncertain_responses_are_not_classified_as_rejected() {
        for status in [200, 204, 206, 408, 429, 500, 503] {
            let error = of(status, "");
            let known = (error.kind, error.certainty);
            let open = (StoreErrorKind::Unavailable, Certainty::Unknown);
            assert_eq!(known, open, "{status}");
        }
    }

    #[test]
    fn slow_requests_are_retried_and_other_rejections_are_not() {
        let slow = of(400, "<Error><Code>RequestTimeout</Code></Error>");
        assert_eq!(slow.kind, StoreErrorKind::Unavailable);
        assert_eq!(slow.certainty, Certainty::Definite);
        let wrong = of(400, "<Error><Code>InvalidRequest</Code></Error>");
        assert_eq!(wrong.kind, StoreErrorKind::Rejected);
    }
}
