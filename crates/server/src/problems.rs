//! `docs/errors`: a page for each problem that a caller can meet, made from the tables that the answers are made from.

use std::fmt::Write as _;

use semel::http::{HELP, Help, PROBLEMS};

use crate::proxy::{Cause, ClientFault, ProxyError, Retry};

/// What the sidecar adds to the problems of the layer.
const FORWARDING: [(Cause, Help); 8] = [
    (
        Cause::Unreachable,
        Help {
            code: "upstream_unreachable",
            known: "The service could not be connected to. Nothing was sent, and the key is free.",
            caller: "Send it again, with the same key where there is one: it is as safe as the first time.",
            operator: "Does the service run, and is `upstream.urls` right? `semel doctor` looks.",
        },
    ),
    (
        Cause::Full,
        Help {
            code: "upstream_full",
            known: "As many requests with a key are with the service as `limits.running` lets be, and none of them ended in time. Nothing was sent, and the key is free.",
            caller: "Send it again after `Retry-After`, with the same key.",
            operator: "Is the service slow? Requests whose clients have left are among them. `limits.running` is the bound.",
        },
    ),
    (
        Cause::Timeout,
        Help {
            code: "upstream_timeout",
            known: "The request was sent and no answer came in `upstream.response_timeout`. Whether it took effect is not known; the service may still be at work.",
            caller: "`retryable` says what is safe: with a key under `takeover`, the same key again; under `hold` the key is in doubt; without a key, asking again may do it twice.",
            operator: "An answer that takes long wants a longer `response_timeout`. For effects that can't be undone, `crash = \"hold\"`.",
        },
    ),
    (
        Cause::Broken,
        Help {
            code: "upstream_broken",
            known: "The request was sent, and the connection broke before the answer. Whether it took effect is not known.",
            caller: "As with [`upstream_timeout`](upstream_timeout.md).",
            operator: "The service crashed, or closed a connection that was being used again: keep `upstream.idle_timeout` below the service's own.",
        },
    ),
    (
        Cause::Unforwardable,
        Help {
            code: "request_not_forwardable",
            known: "A request of this method or form, such as `CONNECT`, is not forwarded. Nothing was sent.",
            caller: "Send what a reverse proxy can pass on.",
            operator: "",
        },
    ),
    (
        Cause::Client(ClientFault::TooLarge),
        Help {
            code: "request_too_large",
            known: "The body has more bytes than `listener.max_body`. Of a request with a key nothing was sent; one without may have reached the service in part.",
            caller: "Send less.",
            operator: "`listener.max_body`.",
        },
    ),
    (
        Cause::Client(ClientFault::TooSlow),
        Help {
            code: "request_slow",
            known: "The body of a request without a key paused for longer than `listener.body_timeout`; the service may have got part of it.",
            caller: "Asking again may do it twice. With a key it is safe: then the whole body is read before anything is sent.",
            operator: "`listener.body_timeout`.",
        },
    ),
    (
        Cause::Client(ClientFault::Gone),
        Help {
            code: "request_broken",
            known: "The body of a request without a key broke off; the service may have got part of it.",
            caller: "As with [`request_slow`](request_slow.md).",
            operator: "",
        },
    ),
];

/// What the sidecar refuses before anything is looked at.
const AT_THE_DOOR: [Entry; 6] = [
    Entry {
        status: 503,
        grpc: None,
        retryable: "yes",
        title: "As many requests are under way as may be",
        help: Help {
            code: "overloaded",
            known: "The process has as many requests, or connections, as it takes at a time. Nothing was started.",
            caller: "Send it again after `Retry-After`, with the same key where there is one.",
            operator: "`limits.requests` and `limits.connections` are the bounds; `semel_limit_used` says how near they are. Is the service slow? Does one caller send too much? Then give it a rate: `limits.tenant_rate` and its like.",
        },
    },
    Entry {
        status: 429,
        grpc: None,
        retryable: "yes",
        title: "You have as many requests under way as you may",
        help: Help {
            code: "too_many_requests",
            known: "This tenant, principal or address has its share of what the process takes at a time: requests under way, or requests with a key that are with the service, those included whose clients have left. Nothing was sent to the service.",
            caller: "Wait until some of your requests have ended, and send it again with the same key.",
            operator: "`limits.tenant_share`, `limits.principal_share`, `limits.address_share`; 100 where there is only one.",
        },
    },
    Entry {
        status: 429,
        grpc: None,
        retryable: "yes",
        title: "Too many requests a second",
        help: Help {
            code: "rate_limited",
            known: "This tenant, principal or address sends more requests a second than it may. Nothing was started.",
            caller: "Send it again after `Retry-After`, with the same key where there is one.",
            operator: "`limits.tenant_rate`, `limits.principal_rate`, `limits.address_rate`.",
        },
    },
    Entry {
        status: 401,
        grpc: None,
        retryable: "no",
        title: "The request doesn't say whose it is",
        help: Help {
            code: "token_required",
            known: "The tenant or the caller is read from a token, and there is none, or it is out of date or can't be used. Nothing was started.",
            caller: "Get a new token and send it as `Authorization: Bearer …`; `WWW-Authenticate` says what is wrong with the old one.",
            operator: "`jwt.key_file`, `jwt.algorithm`, `jwt.issuer`, `jwt.audience`; the clocks (`jwt.leeway`).",
        },
    },
    Entry {
        status: 400,
        grpc: None,
        retryable: "no",
        title: "The request's length can be read in two ways",
        help: Help {
            code: "request_ambiguous",
            known: "The request has two lengths, or a head too long to be followed. Nothing was sent to the service, and the connection is closed.",
            caller: "Send one `Content-Length`, or `Transfer-Encoding: chunked`.",
            operator: "Something in between that writes a second length is where requests can be smuggled: mend it.",
        },
    },
    Entry {
        status: 400,
        grpc: None,
        retryable: "no",
        title: "A header's name has an underscore",
        help: Help {
            code: "header_name_ambiguous",
            known: "A header's name has an underscore, which many services take for a hyphen: a client could say what only whatever is in front may. Nothing was sent to the service.",
            caller: "Send the header with a hyphen, or leave it out.",
            operator: "`listener.allow_underscores = true`, where the service tells the two apart.",
        },
    },
];

/// One page: where it lies, and its text.
pub type Page = (String, String);

/// All pages, the list of them first.
#[must_use]
pub fn pages() -> Vec<Page> {
    let mut entries: Vec<Entry> = PROBLEMS.iter().filter_map(entry).collect();
    entries.extend(FORWARDING.iter().map(|(cause, help)| {
        let error = ProxyError {
            cause: *cause,
            retry: Retry::Safe,
        };
        let retryable = match cause {
            Cause::Timeout | Cause::Broken => "as it says",
            // These are told only of requests without a key, part of which may have been sent.
            Cause::Client(_) => "no",
            _ if error.is_retryable() => "yes",
            _ => "no",
        };
        Entry {
            status: error.status().as_u16(),
            grpc: None,
            retryable,
            title: error.title(),
            help: *help,
        }
    }));
    entries.extend(AT_THE_DOOR);
    let mut pages = vec![("docs/errors/README.md".to_owned(), list(&entries))];
    pages.extend(entries.iter().map(|entry| {
        let path = format!("docs/errors/{}.md", entry.help.code);
        (path, entry.page())
    }));
    pages
}

struct Entry {
    status: u16,
    grpc: Option<u8>,
    retryable: &'static str,
    title: &'static str,
    help: Help,
}

fn entry(row: &semel::http::Row) -> Option<Entry> {
    let help = HELP.iter().find(|help| help.code == row.code)?;
    Some(Entry {
        status: row.status,
        grpc: Some(row.grpc),
        retryable: if row.retryable { "yes" } else { "no" },
        title: row.title,
        help: *help,
    })
}

const MADE: &str = "<!-- Made by `cargo xtask generate`; do not edit. -->\n\n";

impl Entry {
    fn page(&self) -> String {
        let Help {
            code,
            known,
            caller,
            operator,
        } = self.help;
        let grpc = self
            .grpc
            .map_or_else(|| "–".to_owned(), |grpc| grpc.to_string());
        let mut page = format!(
            "{MADE}# {code}\n\n**{}.** Status {}, gRPC {grpc}; worth asking again: {}.\n\n## What is known\n\n{known}\n\n## What the caller does\n\n{caller}\n",
            self.title, self.status, self.retryable
        );
        if !operator.is_empty() {
            // Writing into a `String` cannot fail.
            let _ = write!(page, "\n## What the operator looks at\n\n{operator}\n");
        }
        page.push_str("\n[All codes](README.md)\n");
        page
    }
}

fn list(entries: &[Entry]) -> String {
    let mut page = format!(
        "{MADE}# Error codes\n\nEvery refusal is a problem document (RFC 9457) with one of these as its `code`, with `retryable` and, where waiting helps, \
         `retryAfterMs`. Codes stay as they are from version to version. Statuses are those without a [profile's](../http.md#profiles) say; \
         the protocol API answers `idempotency_lease_lost` with 409, not to be asked again, and `idempotency_payload_invalid` with 422, and jobs `idempotency_conflict` with 409. \
         A head that is too long (431), or that can't be read at all (400), is refused without a document.\n\n\
         | code | status | ask again | |\n|---|---|---|---|\n"
    );
    for Entry {
        status,
        retryable,
        title,
        help,
        ..
    } in entries
    {
        let code = help.code;
        let _ = writeln!(
            page,
            "| [`{code}`]({code}.md) | {status} | {retryable} | {title} |"
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_under_its_own_name() {
        for (cause, help) in FORWARDING {
            let error = ProxyError {
                cause,
                retry: Retry::Safe,
            };
            assert_eq!(error.code(), help.code);
        }
        let pages = pages();
        assert_eq!(
            pages.len(),
            1 + PROBLEMS.len() + FORWARDING.len() + AT_THE_DOOR.len()
        );
        for row in PROBLEMS {
            let path = format!("docs/errors/{}.md", row.code);
            let (_, text) = pages
                .iter()
                .find(|(known, _)| *known == path)
                .expect("a page");
            assert!(text.contains(row.title), "{text}");
        }
    }
}
