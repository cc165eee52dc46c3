//! Attacks on the tool gateway.

use std::net::SocketAddr;

use semel_testkit::private::new_folder;

use crate::support::*;

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"export_my_mail","arguments":{"idempotencyKey":"mail-1"}}}"#;

fn call(gateway: &Program, path: &str, more: &[(&str, &str)]) -> Message {
    let mut headers = vec![JSON, ("Accept", "application/json, text/event-stream")];
    headers.extend(more);
    send(gateway.address, &format!("POST {path}"), &headers, CALL)
}

#[test]
fn other_credential_does_not_get_the_stored_result() {
    let service = Service::start();
    for name in ["X-Api-Key", "Cookie", "Authorization"] {
        let gateway = gateway(service.address, &[]);
        assert!(
            call(&gateway, "/mcp", &[(name, "alice")])
                .body
                .contains("alice")
        );
        let other = call(&gateway, "/mcp", &[(name, "mallory")]);
        assert!(!other.body.contains("alice"), "{name}: {other:?}");
        let again = call(&gateway, "/mcp", &[(name, "alice")]);
        assert!(again.body.contains("semel/replayed"), "{name}: {again:?}");
    }
}

#[test]
fn own_credential_is_limited_to_one_path_and_loopback() {
    let service = Service::start();
    for lent in ["Authorization: Bearer T0P", "X-Vault-Token: T0P"] {
        let lent = ["--header", lent];
        let gateway = gateway(service.address, &lent);
        assert!(call(&gateway, "/mcp", &[]).body.contains("T0P"));
        let other = call(&gateway, "/internal/anything", &[]);
        assert_eq!(other.status(), 404, "{other:?}");
        assert!(is_refused(service.address, &lent), "an open relay");
    }
    let named = ["--header", "User-Agent: agent"];
    let gateway = gateway(service.address, &named);
    assert_eq!(call(&gateway, "/internal/anything", &[]).status(), 200);
}

/// Nobody but a proxy in front may name the caller.
#[test]
fn principal_header_is_refused_where_anybody_can_send_it() {
    let service = Service::start();
    assert!(is_refused(
        service.address,
        &["--principal-header", "X-User"]
    ));
}

/// Whether a gateway on all addresses is refused. It would serve without end.
fn is_refused(upstream: SocketAddr, arguments: &[&str]) -> bool {
    let mut command = semel();
    command.args(["mcp", "--store", "memory://", "--listen", "0.0.0.0:0"]);
    command.args(["--upstream", &format!("http://{upstream}/mcp")]);
    let ended = command.args(arguments).status();
    !ended.expect("the program starts").success()
}

#[test]
fn caller_token_is_required_and_not_forwarded() {
    let service = Service::start();
    let file = new_folder("attacks").join("token");
    std::fs::write(&file, "0123456789abcdef").expect("a file");
    let gateway = gateway(
        service.address,
        &["--listen-token-file", file.to_str().expect("a path")],
    );
    assert_eq!(call(&gateway, "/mcp", &[]).status(), 401);
    let good = call(
        &gateway,
        "/mcp",
        &[("Authorization", "Bearer 0123456789abcdef")],
    );
    assert_eq!(good.status(), 200, "{good:?}");
    assert!(!good.body.contains("0123456789abcdef"), "{good:?}");
}

#[test]
fn call_with_two_content_lengths_is_refused() {
    let service = Service::start();
    let gateway = gateway(service.address, &[]);
    let headers = [JSON, ("Transfer-Encoding", "chunked")];
    let answer = send(gateway.address, "POST /mcp", &headers, "0\r\n\r\n");
    assert_eq!(answer.status(), 400, "{answer:?}");
    assert!(answer.body.contains("request_ambiguous"), "{answer:?}");
}
