//! Serves the intake forms: `DATABASE_URL=postgres://… cargo run`. `ADDRESS` is where it listens,
//! `127.0.0.1:3000` by default.

use anyhow::Context as _;
use intake::App;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DATABASE_URL").context(
        "set DATABASE_URL to a PostgreSQL database, such as postgres://me@127.0.0.1/intake",
    )?;
    let app = App::open(&url).await?;
    let semel = app.semel.clone();
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app.router()?)
        .with_graceful_shutdown(stop)
        .await?;
    // What callers left behind is finished before the process ends.
    semel.idle().await;
    Ok(())
}
