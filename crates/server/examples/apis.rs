//! Both APIs on one loopback address, for trying them out and for tests from outside.
//!
//! `cargo run -p semel-server --example apis -- 127.0.0.1:7070 memory:// TOKEN [AUDIT_FILE]`; the
//! token is the one of tenant
//! `acme` and the admin's. In production the two have listeners and tokens of their own.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use semel::Semel;
use semel_server::admin::{self, AdminConfig, AdminState};
use semel_server::api::{self, ApiConfig, ApiState};
use semel_server::audit::{FileConfig, FileSink, MemoryOnlySink, Sink, Trail, TrailConfig};
use semel_server::jobs::{self, JobsState};
use semel_server::operators::Credential;
use semel_server::web::{Access, Tokens};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &'static str| arguments.next().context(what);
    let address = next("which address?")?;
    let store = next("which store?")?;
    let token = next("which token?")?;
    let env = semel::tokio_env();
    let sink: Arc<dyn Sink> = match next("").ok() {
        Some(file) => Arc::new(FileSink::open(
            FileConfig::new(file),
            Arc::clone(&env.clock),
        )?),
        None => Arc::new(MemoryOnlySink),
    };
    let trail = Trail::start(sink, TrailConfig::default(), env);
    let semel = Semel::builder()
        .observer(Arc::new(trail.clone()))
        .open(&store)
        .await?;

    let mut tokens = Tokens::default();
    tokens.add("acme", &token)?;
    let config = ApiConfig {
        max_wait: std::time::Duration::from_secs(2),
        ..ApiConfig::default()
    };
    let access = Access::Tokens(tokens);
    let api = ApiState::new(semel.clone(), access.clone(), config);
    let mut admin = AdminState::new(
        semel.clone(),
        trail.clone(),
        Credential::token(&token)?,
        AdminConfig::default(),
    );
    let mut app = api::bare_router(api);
    // Some stores can have a queue of jobs beside the records.
    if let Ok(queue) = jobs::open(&semel_server::config::Jobs::default(), &semel).await {
        let (rules, env) = (semel.key_rules().clone(), semel.engine().env().clone());
        admin = admin.with_jobs(queue.clone());
        app = app.merge(jobs::bare_router(JobsState::new(queue, access, rules, env)));
    }
    let app = app.merge(admin::router(admin));

    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
