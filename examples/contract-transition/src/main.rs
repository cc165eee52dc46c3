//! Serves the transitions, and lets an outbox ask for what it has: `DATABASE_URL=postgres://… cargo
//! run`. `ADDRESS` is where it listens, `127.0.0.1:3000` by default.

use std::time::Duration;

use anyhow::Context as _;
use contract_transition::{App, outbox};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").context(
        "set DATABASE_URL to a PostgreSQL database, such as postgres://me@127.0.0.1/contracts",
    )?;
    let app = App::open(&url).await?;
    let (semel, pool) = (app.semel.clone(), app.pool.clone());
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let remote = format!("http://{}", listener.local_addr()?);
    println!("listening on {remote}");
    tokio::spawn(async move {
        loop {
            if let Ok(answered @ 1..) = outbox::replay(&pool, &remote, None).await {
                println!("the outbox got {answered} answers");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app.router())
        .with_graceful_shutdown(stop)
        .await?;
    semel.idle().await;
    Ok(())
}
