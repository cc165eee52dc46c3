//! Azure's Blob Storage, as its makers give it to developers: Azurite.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::process::{Spec, Stop};
use super::recipes::{NODE_JS, NPM};
use super::{Instance, Profile, Service, http};
use crate::exec;

const VERSION: &str = "3.35.0";
const CONTAINER: &str = "semel";
/// The account that every emulator has, with the key that its makers published for it; in base 64,
/// and for a URL.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const KEY_IN_URL: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq%2FK1SZFPTOtr%2FKBHBeksoGMGw%3D%3D";

/// Makes the container: a signed request, for which nothing else here has the means.
const MAKE: &str = r#"
import base64, datetime, hashlib, hmac, sys, urllib.error, urllib.request
port, account, key, container = sys.argv[1:]
now = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
head = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
text = "PUT" + "\n" * 12 + "".join(f"{k}:{v}\n" for k, v in head.items())
text += f"/{account}/{account}/{container}\nrestype:container"
sign = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
head["Authorization"] = f"SharedKey {account}:{base64.b64encode(sign).decode()}"
url = f"http://127.0.0.1:{port}/{account}/{container}?restype=container"
try:
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=head))
except urllib.error.HTTPError as error:
    if error.code != 409:
        raise
"#;

/// The emulator, one process.
#[derive(Debug)]
pub(crate) struct Azurite;

impl Service for Azurite {
    fn profile(&self) -> Profile {
        Profile {
            name: "azurite",
            needs: &[],
            packages: &[NODE_JS, NPM],
            wheel: None,
            user: None,
            ports: &["blob"],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let port = instance.port("blob")?;
        let data = instance.make_folder("data")?;
        let script = install(instance)?;
        let args = [
            script.display().to_string(),
            "--blobHost=127.0.0.1".to_owned(),
            format!("--blobPort={port}"),
            format!("--location={}", data.display()),
            "--silent".to_owned(),
            "--skipApiVersionCheck".to_owned(),
            "--disableTelemetry".to_owned(),
        ];
        instance.run(&Spec {
            role: "blob".to_owned(),
            program: exec::find_program("node").context("node is not installed")?,
            args: args.into(),
            stop: Stop::Kill,
        })?;
        instance.wait_for("answering", Duration::from_secs(60), || answers(port))?;
        let mut make = Command::new("python3");
        make.args(["-c", MAKE, &port.to_string(), ACCOUNT, KEY, CONTAINER]);
        exec::capture(&mut make).map(drop)
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        answers(instance.port("blob")?)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let endpoint = format!("http://127.0.0.1:{}/{ACCOUNT}", instance.port("blob")?);
        let url = format!("az://{ACCOUNT}:{KEY_IN_URL}@{CONTAINER}?endpoint={endpoint}");
        Ok(vec![("SEMEL_TEST_AZ_URL".to_owned(), url)])
    }

    fn version(&self, _: &Instance<'_>) -> Result<String> {
        Ok(format!("Azurite {VERSION}"))
    }
}

/// Anything but silence: strangers are refused.
fn answers(port: u16) -> Result<()> {
    let said = http::ask("GET", port, "/")?;
    ensure!(said.status >= 400, "a stranger is let in: {}", said.status);
    Ok(())
}

/// The program, installed unless it is there.
fn install(instance: &Instance<'_>) -> Result<PathBuf> {
    let folder = instance.tools().join(format!("azurite-{VERSION}"));
    let script = folder.join("node_modules/azurite/dist/src/blob/main.js");
    if !script.is_file() {
        instance.say("installing Azurite");
        // Beside and renamed: an interrupted run leaves no half tool that looks whole.
        let beside = instance.tools().join("azurite.new");
        if beside.exists() {
            std::fs::remove_dir_all(&beside)?;
        }
        std::fs::create_dir_all(&beside)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]);
        npm.arg(format!("azurite@{VERSION}")).current_dir(&beside);
        exec::capture(&mut npm)?;
        std::fs::rename(&beside, &folder)?;
    }
    Ok(std::path::absolute(script)?)
}
