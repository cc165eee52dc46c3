//! SeaweedFS: an S3 server whose conditional writes are atomic. Master, volume server, filer and S3
//! door in one process.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::launch::Launch;

/// The name of the tests' credentials.
pub const ACCESS_KEY: &str = "semel";
/// Their secret.
pub const SECRET_KEY: &str = "semel-secret";

/// The parts, each with a port, and another for gRPC.
const PARTS: [&str; 4] = ["s3", "master", "volume", "filer"];

/// On by default: doors that nobody asked for, and reports to the vendor. A lone master waits for
/// others after a restart, ten seconds by default. Each start takes a few new volumes; an empty one
/// costs nothing. A hundredth of the disk must be free by default, which on a big one is more than
/// a build leaves.
const FLAGS: [&str; 14] = [
    "-logtostderr=true",
    "server",
    "-filer",
    "-s3",
    "-ip=127.0.0.1",
    "-ip.bind=127.0.0.1",
    "-s3.ip.bind=127.0.0.1",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-master.telemetry=false",
    "-master.electionTimeout=1s",
    "-volume.max=500",
    "-master.volumeSizeLimitMB=64",
    "-volume.minFreeSpace=100MiB",
];

/// The server with its data in `data`; writes the file of its credentials into `folder`. `port`
/// gives the port of a part, and that of `PART-grpc`.
///
/// # Errors
/// Where the file can't be written, or there is no port.
pub fn server(
    program: PathBuf,
    folder: &Path,
    data: &Path,
    port: impl Fn(&str) -> Result<u16>,
) -> Result<Launch> {
    let identities = folder.join("identities.json");
    let text = format!(
        r#"{{"identities":[{{"name":"semel",
            "credentials":[{{"accessKey":"{ACCESS_KEY}","secretKey":"{SECRET_KEY}"}}],
            "actions":["Admin","Read","Write","List","Tagging"]}}]}}"#
    );
    std::fs::write(&identities, text)?;
    let mut args: Vec<String> = FLAGS.map(str::to_owned).into();
    args.push(format!("-dir={}", data.display()));
    args.push(format!("-s3.config={}", identities.display()));
    for part in PARTS {
        args.push(format!("-{part}.port={}", port(part)?));
        args.push(format!(
            "-{part}.port.grpc={}",
            port(&format!("{part}-grpc"))?
        ));
    }
    Ok(Launch::new(program, args))
}
