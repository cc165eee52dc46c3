//! Compares how the sidecar reads paths and headers with how real services read them. No service
//! may see a protected route where the sidecar saw an unprotected one.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use semel_testkit::private::{free_port, new_folder};

use crate::support::*;

/// The responses of the services on the protected route and elsewhere. Both include the head that
/// the service saw.
const CHARGED: &str = "charged";

const FASTAPI: &str = r#"
from fastapi import FastAPI, Request
app = FastAPI()
def seen(word, request): return {"at": word, "head": [f"{name}: {value}" for name, value in request.headers.items()]}
@app.post("/charges")
def charges(request: Request): return seen("charged", request)
@app.api_route("/{path:path}", methods=["GET", "POST", "PUT"])
def other(request: Request): return seen("other", request)
"#;

const EXPRESS: &str = r#"
import express from "express";
const app = express();
const seen = (at) => (request, response) => response.json({ at, head: request.rawHeaders });
app.post("/charges", seen("charged"));
app.use(seen("other"));
app.listen(Number(process.env.PORT), "127.0.0.1");
"#;

const NGINX: &str = r#"
daemon off; master_process off; error_log stderr crit; pid nginx.pid;
events {}
http {
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  underscores_in_headers on;
  server {
    listen 127.0.0.1:PORT;
    location = /charges { return 200 "charged $http_semel_fence $http_semel_attempt $http_forwarded $http_x_real_ip $http_x_forwarded_for $http_x_forwarded_user"; }
    location / { return 200 "other $http_semel_fence $http_semel_attempt $http_forwarded $http_x_real_ip $http_x_forwarded_for $http_x_forwarded_user"; }
  }
}
"#;

/// Forms of a path, most of which some service reads as `/charges`.
const PATHS: [&str; 44] = [
    "/charges",
    "/charges/",
    "/charges//",
    "/charges/.",
    "/charges/./",
    "/charges/x/..",
    "/charges/x/../",
    "//charges",
    "///charges",
    "/./charges",
    "/.//charges",
    "/x/../charges",
    "/x//../../charges",
    "/x/./../charges",
    "/../charges",
    "/Charges",
    "/CHARGES/",
    "/%63harges",
    "/%43harges",
    "/charge%73",
    "/%63%68%61%72%67%65%73",
    "/%2e/charges",
    "/%2E%2E/charges",
    "/x/%2e%2e/charges",
    "/x/.%2e/charges",
    "/%2Fcharges",
    "/%2fcharges",
    "/x%2f..%2fcharges",
    "/x/..%2fcharges",
    "/charges%2f",
    "/charges%2F..%2fcharges",
    "/%5Ccharges",
    "/x/..%5ccharges",
    "/charges%00",
    "/charges%20",
    "/charges%09",
    "/charges;a=1",
    "/charges;",
    "/;a/charges",
    "/x/..;/charges",
    "/charges%3Fa=1",
    "/charges%23a",
    "/%252fcharges",
    "/x/%252e%252e/charges",
];

/// Headers that only the sidecar, or a proxy in front of it, may send.
const LIES: [&str; 16] = [
    "Semel-Fence",
    "semel-fence",
    "SEMEL-FENCE",
    "Semel_Fence",
    "semel_fence",
    "Semel-fence",
    "Semel_Attempt",
    "Semel-Attempt",
    "Semel-Downstream-Key",
    "Forwarded",
    "X-Forwarded-For",
    "X_Forwarded_For",
    "X-Forwarded-User",
    "X-Real-IP",
    "X-Original-URL",
    "X-Rewrite-URL",
];

struct Real {
    name: &'static str,
    child: Child,
    address: SocketAddr,
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn needs(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable);
    let value =
        value.unwrap_or_else(|| panic!("{variable}: see `cargo xtask services up recipes`"));
    PathBuf::from(value)
}

#[expect(clippy::disallowed_methods, reason = "real processes run on real time")]
fn started(name: &'static str, mut command: Command, port: u16) -> Real {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let child = command.spawn().expect("the service starts");
    let real = Real {
        name,
        child,
        address,
    };
    for _ in 0..3000 {
        if TcpStream::connect(address).is_ok() {
            return real;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{name} never listens");
}

fn uvicorn() -> Real {
    let (folder, port) = (new_folder("uvicorn"), free_port());
    std::fs::write(folder.join("odd.py"), FASTAPI).expect("a file");
    let mut command = Command::new(needs("SEMEL_TEST_PYTHON"));
    command.args(["-m", "uvicorn", "odd:app", "--port", &port.to_string()]);
    command.arg("--app-dir").arg(folder);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    started("uvicorn", command, port)
}

fn express() -> Real {
    let port = free_port();
    // Node looks for modules relative to the program.
    let folder = needs("SEMEL_TEST_EXPRESS").join(format!("odd-{port}"));
    std::fs::create_dir_all(&folder).expect("a folder beside the modules");
    let file = folder.join("odd.mjs");
    std::fs::write(&file, EXPRESS).expect("a file");
    let mut command = Command::new("node");
    command.arg(file).env("PORT", port.to_string());
    let real = started("Express", command, port);
    std::fs::remove_dir_all(folder).expect("a folder of our own");
    real
}

fn nginx() -> Real {
    let (folder, port) = (new_folder("nginx"), free_port());
    let settings = NGINX.replace("PORT", &port.to_string());
    std::fs::write(folder.join("nginx.conf"), settings).expect("a file");
    let mut command = Command::new(needs("SEMEL_TEST_NGINX"));
    command.arg("-p").arg(&folder).args(["-c", "nginx.conf"]);
    started("nginx", command, port)
}

fn services() -> [Real; 3] {
    [uvicorn(), express(), nginx()]
}

const RULES: &str = "[[routes]]\npath = \"/charges\"\nrequire_key = true\n";

#[test]
#[ignore = "needs uvicorn, Express and nginx"]
fn no_service_sees_a_protected_route_that_the_sidecar_missed() {
    let mut forms = 0;
    for service in services() {
        let sidecar = sidecar(service.address, RULES);
        for path in PATHS {
            for method in ["POST", "PUT"] {
                let line = format!("{method} {path}");
                let more = [("X-HTTP-Method-Override", "POST")];
                let direct = send(service.address, &line, &more, "");
                forms += usize::from(direct.body.contains(CHARGED));
                let behind = send(sidecar.address, &line, &more, "");
                assert!(
                    !behind.body.contains(CHARGED),
                    "{}: {line} slips past the route: {behind:?}",
                    service.name
                );
            }
        }
        let with_key = post(sidecar.address, "/charges", "k", &[], "{}");
        assert!(with_key.body.contains(CHARGED), "{with_key:?}");
    }
    assert!(
        forms > 10,
        "the services read too few of these forms: {forms}"
    );
}

#[test]
#[ignore = "needs uvicorn, Express and nginx"]
fn no_service_sees_what_only_the_sidecar_may_say() {
    let mut seen = 0;
    for service in services() {
        let sidecar = sidecar(service.address, RULES);
        for name in LIES {
            for path in ["/charges", "/other"] {
                let lie = [(name, "a-lie")];
                let direct = post(service.address, path, "k", &lie, "{}");
                seen += usize::from(direct.body.contains("a-lie"));
                let behind = post(sidecar.address, path, &format!("k-{name}"), &lie, "{}");
                assert!(
                    !behind.body.contains("a-lie"),
                    "{}: {name} gets through: {behind:?}",
                    service.name
                );
            }
        }
    }
    assert!(seen > 30, "the services see too few of these: {seen}");
}
