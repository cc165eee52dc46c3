//! `semel demo`: payments over a network that loses responses, without Semel and with it.
//!
//! The service is `crate::payments`.
//!
//! | file | content |
//! |---|---|
//! | `shop` | the client: places orders, loses responses, retries |
//! | `show` | the output |

mod shop;
mod show;

use clap::Args;
use semel_server::config::{Flag, Sources, load};
use semel_server::{Mounts, OpenOptions, Server, StartError};
use serde_json::json;

use crate::exit::{self, Exit};
use crate::out::{self, Style};
use crate::payments::Payments;
use crate::runtime;
use shop::{Round, Shop};

/// Shows Semel at work in a few seconds, without a server: a payments service, a network that loses
/// responses, and a client that retries; first without Semel, then with it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel demo --orders 5
  semel demo --service 3000")]
pub(crate) struct Demo {
    /// The number of orders.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    orders: u32,
    /// The percentage of lost responses.
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(0..=90))]
    lost: u32,
    /// The seed that decides which responses get lost.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Only serve the payments service on this port of 127.0.0.1, to put a sidecar in front of.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["orders", "lost", "seed", "json"])]
    service: Option<u16>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) fn run(self) -> Exit {
        runtime::block_on(async move {
            match self.service {
                Some(port) => serve_alone(port).await,
                None => Box::pin(self.play()).await,
            }
        })
        .into()
    }

    async fn play(&self) -> Result<(), Exit> {
        let look = Style::for_stdout();
        let is_watched = look.is_terminal() && !self.json;
        let shop = Shop::new(self.orders, self.lost, self.seed, is_watched)?;
        if !self.json {
            show::opening(look, self.orders, self.lost);
        }
        let unexpected = |error: std::io::Error| Exit::failed(exit::LISTEN, error.to_string());
        let payments = Payments::start().await.map_err(unexpected)?;
        let bare = shop.place_orders(&payments, payments.address).await?;
        if !self.json {
            show::round(look, "Without Semel", "client → payments", &bare);
        }
        // Each round gets its own service, so that the counts start at zero.
        let payments = Payments::start().await.map_err(unexpected)?;
        let sidecar = sidecar(&payments).await?;
        let safe = shop.place_orders(&payments, sidecar.address()).await?;
        if self.json {
            out::json(&json!({"without": figures(&bare), "with": figures(&safe)}));
        } else {
            show::round(look, "With Semel", "client → semel → payments", &safe);
            show::closing(look, &bare, &safe);
        }
        if safe.duplicates() == 0 && safe.charges.len() == self.orders as usize {
            return Ok(());
        }
        let message = "an order was not charged exactly once; please report this bug";
        Err(Exit::failed(exit::SELF_CHECK, message))
    }
}

/// Charges whenever it is asked, until somebody ends it.
async fn serve_alone(port: u16) -> Result<(), Exit> {
    let payments = Payments::start_at(port).await.map_err(|error| {
        let message = format!(
            "can't listen on 127.0.0.1:{port}: {error}\n    fix: --service with another port, or 0 \
             for a free one"
        );
        Exit::failed(exit::LISTEN, message)
    })?;
    let address = payments.address;
    out::say(format_args!(
        "a service that charges whenever it is asked: http://{address}/charges"
    ));
    match payments.serving.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Exit::failed(exit::UNEXPECTED, error.to_string())),
        Err(error) => Err(Exit::failed(exit::UNEXPECTED, error.to_string())),
    }
}

fn figures(round: &Round) -> serde_json::Value {
    json!({
        "orders": round.charges.len(),
        "requests": round.requests,
        "responses_lost": round.lost,
        "charges": round.total(),
        "duplicate_charges": round.duplicates(),
        "replays": round.replays,
    })
}

/// The real sidecar with default settings.
async fn sidecar(payments: &Payments) -> Result<Server, StartError> {
    let flag = |path: &str, value: &str| Flag {
        name: "demo".to_owned(),
        path: path.to_owned(),
        value: value.to_owned(),
    };
    let sources = Sources {
        flags: vec![
            flag("upstream.urls", &format!("http://{}", payments.address)),
            flag("store.url", "memory://"),
            flag("listener.address", "127.0.0.1:0"),
        ],
        ..Sources::default()
    };
    let loaded = load(&sources)?;
    let semel = OpenOptions::for_tool(&loaded.config).open_store().await?;
    Server::start(loaded, semel, Mounts::default()).await
}
