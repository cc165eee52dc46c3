//! The requirements documents, each tried in its own order: scripts of the examples print what a
//! document promises beside what happened, and fail where the two differ. The pages show that
//! output.

use semel_testkit::private::{PostgresServer, free_port};

use crate::Guide;

/// A page whose script starts programs of this repository, on ports of the test's own.
fn walk(page: &'static str, programs: &[&'static str], settings: &[(&str, String)]) {
    let mut guide = Guide::new(page, &[]);
    guide.programs = programs.to_vec();
    let ports = ["API_PORT", "ADMIN_PORT", "SERVICE_PORT", "PROMETHEUS_PORT"];
    for port in ports {
        guide.before += &format!("export {port}={}\n", free_port());
    }
    for (name, value) in settings {
        guide.before += &format!("export {name}='{value}'\n");
    }
    guide.follow();
}

/// The same with a database of its own.
async fn walk_on_postgres(
    page: &'static str,
    programs: &'static [&'static str],
    settings: &[(&'static str, String)],
) {
    let postgres = PostgresServer::start(&[]).await;
    let mut settings = settings.to_vec();
    settings.push(("DATABASE_URL", postgres.url()));
    let walk = tokio::task::spawn_blocking(move || walk(page, programs, &settings));
    walk.await.expect("the document is kept");
}

fn needs(variable: &str, service: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable}: see `cargo xtask services up {service}`"))
}

#[tokio::test]
async fn jobs() {
    walk_on_postgres("tutorials/walk-jobs.md", &[], &[]).await;
}

#[tokio::test]
async fn transitions() {
    let programs = &["contract-transition"];
    walk_on_postgres("tutorials/walk-transitions.md", programs, &[]).await;
}

#[test]
fn tasks() {
    let url = needs("SEMEL_TEST_S3_URL", "s3");
    let settings = [("STORE_URL", url)];
    walk("tutorials/walk-tasks.md", &["bucket-tasks"], &settings);
}

#[test]
fn replicas() {
    walk("tutorials/walk-replicas.md", &["replica"], &[]);
}

#[tokio::test]
async fn intake() {
    let settings = [("MCP_PYTHON", needs("SEMEL_TEST_MCP_PYTHON", "mcp"))];
    walk_on_postgres("tutorials/walk-intake.md", &["intake"], &settings).await;
}
