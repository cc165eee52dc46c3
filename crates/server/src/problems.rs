//! The pages of `docs/errors`: one for each error code.

use std::fmt::Write as _;

use semel::core::Code;

use crate::help::{self, Help};

/// The path and the text of a page.
pub type ProblemPage = (String, String);

/// All pages, with the list first.
#[must_use]
pub fn pages() -> Vec<ProblemPage> {
    let mut pages = vec![("docs/errors/README.md".to_owned(), list())];
    pages.extend(help::all().map(|help| {
        let path = format!("docs/errors/{}.md", help.code);
        (path, page(help))
    }));
    pages.push(("crates/client/src/code.rs".to_owned(), client_codes()));
    pages
}

/// The codes by which the client decides about a retry. The client has no dependency on this
/// workspace, so it has a copy.
const CLIENT_CODES: [Code; 15] = [
    Code::AuditUnavailable,
    Code::BodyBroken,
    Code::BodySlow,
    Code::Conflict,
    Code::InDoubt,
    Code::InFlight,
    Code::Late,
    Code::NoRoom,
    Code::Overloaded,
    Code::RateLimited,
    Code::RecordUnreadable,
    Code::StoreUnavailable,
    Code::TooManyRequests,
    Code::TooManyWaiters,
    Code::UpstreamUnreachable,
];

fn client_codes() -> String {
    let mut text = "//! The codes by which the client decides whether to ask again.\n//!\n\
                    //! Made by `cargo xtask generate` from `semel_core::Code`; do not edit.\n\n"
        .to_owned();
    for code in CLIENT_CODES {
        let word = code.as_str();
        let name = word.trim_start_matches("idempotency_").to_ascii_uppercase();
        // Writing into a `String` cannot fail.
        let _ = writeln!(text, "pub(crate) const {name}: &str = \"{word}\";");
    }
    text
}

/// Whether a retry can succeed.
const fn describe_retry(code: Code) -> &'static str {
    match code {
        // It depends on the key and its policy: the member `retryable` of the document has the
        // answer.
        Code::UpstreamTimeout | Code::UpstreamBroken => "see `retryable`",
        _ if code.is_retryable() => "yes",
        _ => "no",
    }
}

const MADE: &str = "<!-- Made by `cargo xtask generate`; do not edit. -->\n\n";

fn page(help: &Help) -> String {
    let Help {
        code,
        known,
        caller,
        operator,
    } = *help;
    let grpc = code
        .grpc()
        .map_or_else(|| "–".to_owned(), |grpc| grpc.to_string());
    let mut page = format!(
        "{MADE}# {code}\n\n**{}.** Status {}, gRPC {grpc}; retry: {}.\n\n\
         ## What happened\n\n{known}\n\n## What to do as a caller\n\n{caller}\n",
        code.title(),
        code.status(),
        describe_retry(code)
    );
    if !operator.is_empty() {
        // Writing into a `String` cannot fail.
        let _ = write!(page, "\n## What to do as an operator\n\n{operator}\n");
    }
    page.push_str("\n[All codes](README.md)\n");
    page
}

fn list() -> String {
    let mut page = format!(
        "{MADE}# Error codes\n\n\
         Every error is a problem document (RFC 9457) with one of these codes as its `code`, with \
         `retryable` and, if waiting helps, `retryAfterMs`. Codes stay the same from version to \
         version. A [profile](../http.md#profiles) may change the status; jobs answer \
         `idempotency_conflict` with 409. A request head that is too long (431) or malformed (400) \
         is refused without a document.\n\n\
         | code | status | retry | |\n|---|---|---|---|\n"
    );
    for code in Code::ALL {
        let (status, title) = (code.status(), code.title());
        let again = describe_retry(*code);
        // Writing into a `String` cannot fail.
        let _ = writeln!(
            page,
            "| [`{code}`]({code}.md) | {status} | {again} | {title} |"
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_page() {
        let pages = pages();
        assert_eq!(pages.len(), 2 + Code::ALL.len());
        for code in Code::ALL {
            let path = format!("docs/errors/{code}.md");
            let found = pages.iter().find(|(known, _)| *known == path);
            let (_, text) = found.expect("a page");
            assert!(text.contains(code.title()), "{text}");
        }
    }
}
