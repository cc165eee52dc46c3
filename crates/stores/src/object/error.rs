//! What a server of objects says, as a store error: what is known, and whether to try again.

use object_store::Error;
use semel_core::{Certainty, StoreError, StoreErrorKind};

use super::http::Stamp;
use crate::ServerError;

/// What a server of objects may answer a request of ours: the status, and S3's word for it where that counts. What is not
/// here only a change of the configuration mends, and nothing was changed.
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

/// What became of a request that did not succeed. Only what the server refused in words is known not to have happened:
/// an error of the server's own may come after the write.
pub(super) fn store_error(stamp: &Stamp, error: &Error) -> StoreError {
    let code = code(&error.to_string());
    let (kind, certainty) = match stamp.status() {
        None if stamp.was_never_sent() => (StoreErrorKind::Unavailable, Certainty::Definite),
        None => (StoreErrorKind::Unavailable, Certainty::Unknown),
        Some(status) => classify(status, code.as_deref()),
    };
    // Not the client's own words: they repeat what the server says of the request, and with whose key it was signed.
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

/// What to do about the mistakes that people make.
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

/// The word that S3 has for it.
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

/// The server can't be trusted with records.
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
    fn every_row_is_what_its_answer_is_taken_for() {
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
    fn what_may_have_been_done_is_not_taken_for_refused() {
        for status in [200, 204, 206, 408, 429, 500, 503] {
            let error = of(status, "");
            let known = (error.kind, error.certainty);
            let open = (StoreErrorKind::Unavailable, Certainty::Unknown);
            assert_eq!(known, open, "{status}");
        }
    }

    #[test]
    fn a_request_that_came_too_slowly_is_worth_another_try_and_others_are_not() {
        let slow = of(400, "<Error><Code>RequestTimeout</Code></Error>");
        assert_eq!(slow.kind, StoreErrorKind::Unavailable);
        assert_eq!(slow.certainty, Certainty::Definite);
        let wrong = of(400, "<Error><Code>InvalidRequest</Code></Error>");
        assert_eq!(wrong.kind, StoreErrorKind::Rejected);
    }
}
