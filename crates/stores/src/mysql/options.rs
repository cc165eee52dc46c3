//! Parses the store's URL: our own options, and those of the client.

use std::str::FromStr as _;
use std::sync::Arc;

use semel_core::store::StoreResult;
use semel_core::{Clock, StoreError};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use super::Link;
use super::error::unfit;
use crate::local_host::is_local;

/// A parsed URL.
pub(super) struct Options {
    pub(super) connect: MySqlConnectOptions,
    pub(super) max_connections: u32,
    pub(super) migrate: bool,
    pub(super) archive: bool,
}

/// The options that the client handles.
const CLIENTS: &[&str] = &[
    "ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "sslmode", "sslca", "sslcert", "sslkey", "socket",
];

impl Options {
    /// Connects.
    pub(super) async fn open(&self, clock: Arc<dyn Clock>) -> StoreResult<Link> {
        Link::open(self.connect.clone(), self.max_connections, false, clock).await
    }

    pub(super) fn parse(url: &str) -> StoreResult<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        // The client calls both the same.
        let base = base.replacen("mariadb://", "mysql://", 1);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if CLIENTS.contains(&name) {
                theirs.push(option);
            } else {
                ours.push((name, value));
            }
        }
        let connect = MySqlConnectOptions::from_str(&format!("{base}?{}", theirs.join("&")))
            // The parser's message may repeat parts of the URL, such as a password.
            .map_err(|_| refused("it isn't a URL like mysql://user@host/database"))?;
        if connect.get_database().is_none_or(str::is_empty) {
            return Err(refused(
                "it names no database; mysql://user@host/database does",
            ));
        }
        let is_said = theirs
            .iter()
            .any(|option| option.starts_with("ssl-mode=") || option.starts_with("sslmode="));
        let is_near = connect.get_socket().is_some() || is_local(connect.get_host());
        let connect = match is_said || is_near {
            true => connect,
            false => connect.ssl_mode(MySqlSslMode::VerifyIdentity),
        };
        let mut options = Self {
            connect,
            max_connections: 10,
            migrate: true,
            archive: false,
        };
        for (name, value) in ours {
            options.take(name, value)?;
        }
        Ok(options)
    }

    fn take(&mut self, name: &str, value: &str) -> StoreResult<()> {
        match (name, value) {
            ("max_connections", number) => {
                let number = number.parse().ok().filter(|number| *number > 0);
                self.max_connections =
                    number.ok_or_else(|| refused("max_connections is a number from 1"))?;
            }
            ("migrate", "on" | "off") => self.migrate = value == "on",
            ("archive", "on" | "off") => self.archive = value == "on",
            _ => {
                return Err(refused(
                    "an option isn't known; ours are max_connections, migrate=off, archive=on",
                ));
            }
        }
        Ok(())
    }
}

fn refused(said: &'static str) -> StoreError {
    unfit(format!("the store's URL can't be used: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_shows_who_it_is_unless_said_otherwise() {
        let mode = |url: &str| Options::parse(url).unwrap().connect.get_ssl_mode();
        let far = mode("mysql://u@db.internal/d");
        assert!(matches!(far, MySqlSslMode::VerifyIdentity));
        for near in ["mysql://u@127.0.0.1/d", "mariadb://u@localhost/d"] {
            assert!(matches!(mode(near), MySqlSslMode::Preferred), "{near}");
        }
        let said = mode("mysql://u@db.internal/d?ssl-mode=REQUIRED");
        assert!(matches!(said, MySqlSslMode::Required));
    }

    #[test]
    fn our_options_are_taken_and_the_rest_is_the_clients() {
        let url = "mysql://u@h:3307/d?ssl-mode=REQUIRED&max_connections=7&migrate=off&archive=on";
        let options = Options::parse(url).unwrap();
        assert_eq!(options.max_connections, 7);
        assert!(options.archive && !options.migrate);
        assert_eq!(options.connect.get_port(), 3307);
        assert_eq!(options.connect.get_database(), Some("d"));
        assert!(Options::parse("mariadb://u@h/d").is_ok());
    }

    #[test]
    fn invalid_urls_are_rejected_without_the_password() {
        for url in [
            "mysql://u:hunter2@h/d?pooling=on",
            "mysql://u:hunter2@h",
            "mysql://u:hunter2@h/d?max_connections=0",
            "mysql://u:hunter2@h:port/d",
        ] {
            let error = Options::parse(url).err().expect(url);
            let said = std::error::Error::source(&error).unwrap().to_string();
            assert!(
                said.contains("can't be used") && !said.contains("hunter2"),
                "{said}"
            );
        }
    }
}
