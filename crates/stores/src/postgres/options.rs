//! Parses the store's URL: our own options, and those of the client.

use std::str::FromStr as _;
use std::sync::Arc;

use semel_core::store::StoreResult;
use semel_core::{Certainty, Clock, StoreError, StoreErrorKind};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::Link;
use crate::local_host::is_local;

/// A parsed URL.
pub(super) struct Options {
    pub(super) connect: PgConnectOptions,
    pub(super) max_connections: u32,
    pub(super) migrate: bool,
    pub(super) archive: bool,
    /// Behind a pooler that gives each transaction another session.
    pub(super) pooled: bool,
    listen: Option<(String, u16)>,
}

/// The options that the client handles.
const CLIENTS: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

impl Options {
    /// Connects.
    pub(super) async fn open(&self, clock: Arc<dyn Clock>) -> StoreResult<Link> {
        Link::open(
            self.connect.clone(),
            self.max_connections,
            self.pooled,
            clock,
        )
        .await
    }

    pub(super) fn parse(url: &str) -> StoreResult<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if CLIENTS.contains(&name) {
                theirs.push(option);
            } else {
                ours.push((name, value));
            }
        }
        let connect = PgConnectOptions::from_str(&format!("{base}?{}", theirs.join("&")))
            // The parser's message may repeat parts of the URL, such as a password.
            .map_err(|_| refused("it isn't a URL like postgres://user@host/database"))?;
        let is_said = theirs.iter().any(|option| option.starts_with("sslmode="))
            || std::env::var_os("PGSSLMODE").is_some();
        let is_near = connect.get_socket().is_some() || is_local(connect.get_host());
        let connect = match is_said || is_near {
            true => connect,
            false => connect.ssl_mode(PgSslMode::VerifyFull),
        };
        let mut options = Self {
            connect: connect.extra_float_digits(None),
            max_connections: 10,
            migrate: true,
            archive: false,
            pooled: false,
            listen: None,
        };
        if options.connect.get_application_name().is_none() {
            options.connect = options.connect.application_name("semel");
        }
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
            ("pooler", "transaction") => self.pooled = true,
            ("listen", address) => {
                let parts = address.rsplit_once(':');
                let parts =
                    parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
                self.listen = Some(parts.ok_or_else(|| refused("listen is HOST:PORT"))?);
            }
            _ => {
                return Err(refused(
                    "an option isn't known; ours are max_connections, pooler=transaction, listen, migrate=off, \
                     archive=on",
                ));
            }
        }
        Ok(())
    }

    /// Whether statements are prepared by name: a pooler in transaction mode would forget, or mix,
    /// them.
    pub(super) const fn named(&self) -> bool {
        !self.pooled
    }

    /// How to connect for listening; `None` if a pooler is in the way and no way past it was given.
    pub(super) fn listen(&self) -> Option<PgConnectOptions> {
        match &self.listen {
            Some((host, port)) => Some(self.connect.clone().host(host).port(*port)),
            None if self.pooled => None,
            None => Some(self.connect.clone()),
        }
    }
}

fn refused(said: &'static str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Rejected,
        Certainty::Definite,
        format!("the store's URL can't be used: {said}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_are_split_from_the_clients() {
        let options = Options::parse(
            "postgres://u@h/d?sslmode=disable&max_connections=7&pooler=transaction&migrate=off",
        )
        .unwrap();
        assert_eq!(options.max_connections, 7);
        assert!(options.pooled && !options.migrate && !options.named());
        assert!(options.listen().is_none());
        assert_eq!(options.connect.get_application_name(), Some("semel"));
    }

    #[test]
    fn remote_servers_are_verified_unless_turned_off() {
        let mode = |url: &str| Options::parse(url).unwrap().connect.get_ssl_mode();
        for far in [
            "postgres://u@db.internal/d",
            "postgres://u@192.0.2.1/d?migrate=off",
        ] {
            assert!(matches!(mode(far), PgSslMode::VerifyFull), "{far}");
        }
        for near in [
            "postgres://u@127.0.0.1/d",
            "postgres://u@localhost/d",
            "postgres://u@[::1]/d",
            "postgres://u@%2Frun%2Fpostgresql/d",
        ] {
            assert!(matches!(mode(near), PgSslMode::Prefer), "{near}");
        }
        let said = mode("postgres://u@db.internal/d?sslmode=require");
        assert!(matches!(said, PgSslMode::Require));
    }

    #[test]
    fn listen_option_bypasses_the_pooler() {
        let options =
            Options::parse("postgres://u@h:6432/d?pooler=transaction&listen=db:5432").unwrap();
        let listen = options.listen().unwrap();
        assert_eq!((listen.get_host(), listen.get_port()), ("db", 5432));
    }

    #[test]
    fn url_errors_never_show_the_password() {
        for url in [
            "postgres://u:secret@h/d?max_connections=none",
            "postgres://u:secret@h/d?what=ever",
            "postgres://u:secret@[/d",
            "postgres://u:secret@h/d?sslmode=secret",
        ] {
            let error = Options::parse(url).err().unwrap();
            let said = format!("{error} {error:?}");
            assert!(!said.contains("secret"), "{said}");
        }
    }
}
