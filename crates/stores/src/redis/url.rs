//! Parses the store's URL: servers, credentials and options.
//!
//! ```text
//! redis[s]://[user:password@]host[:port][/db][?options]
//! redis[s]+sentinel://[user:password@]host[:port],…/master-name[/db][?options]
//! redis[s]+cluster://[user:password@]host[:port],…[?options]
//! ```
//!
//! Nothing of a URL is ever repeated in an error: it may hold a password.

use percent_encoding::percent_decode_str;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError, TlsCertificates,
};
use semel_core::{Certainty, StoreError, StoreErrorKind, StoreResult};

use super::durability::Durability;

/// The default prefix of all keys.
pub const DEFAULT_PREFIX: &str = "semel:";

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// A URL, taken apart.
pub(super) struct Target {
    pub(super) topology: Topology,
    pub(super) access: Access,
    pub(super) prefix: String,
    pub(super) durability: Durability,
}

pub(super) enum Topology {
    One(Host),
    Sentinel {
        sentinels: Vec<Host>,
        master: String,
        access: Access,
    },
    Cluster(Vec<Host>),
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

/// Credentials and TLS settings.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) tls: Option<TlsCertificates>,
    pub(super) login: RedisConnectionInfo,
}

impl Access {
    /// The address of a server, over TLS if that was asked for.
    pub(super) fn address(&self, host: &Host) -> ConnectionAddr {
        let (host, port) = (host.name.clone(), host.port);
        if self.tls.is_none() {
            return ConnectionAddr::Tcp(host, port);
        }
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    }

    pub(super) fn client(&self, host: &Host) -> Result<Client, RedisError> {
        let info = self.address(host).into_connection_info()?;
        let info = info.set_redis_settings(self.login.clone());
        match &self.tls {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }
}

impl Target {
    pub(super) fn parse(url: &str) -> StoreResult<Self> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad("it has no scheme"))?;
        let (tls, kind) = match scheme.split_once('+').unwrap_or((scheme, "")) {
            ("redis", kind) => (false, kind),
            ("rediss", kind) => (true, kind),
            _ => return Err(bad("the scheme isn't one of Redis")),
        };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let options = Options::parse(options)?;
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut path = path.split('/').filter(|part| !part.is_empty());
        let topology = topology(kind, hosts, &mut path, tls, &options)?;
        let db = match (path.next(), kind) {
            (None, _) => 0,
            (Some(_), "cluster") => return Err(bad("a cluster has no numbered databases")),
            (Some(db), _) => db.parse().map_err(|_| bad("the database isn't a number"))?,
        };
        if path.next().is_some() {
            return Err(bad("the path has too many parts"));
        }
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let access = access(tls, user, password, db, &options)?;
        Ok(Self {
            topology,
            access,
            prefix: options.prefix,
            durability: options.durability,
        })
    }
}

fn topology<'a>(
    kind: &str,
    hosts: &str,
    path: &mut impl Iterator<Item = &'a str>,
    tls: bool,
    options: &Options,
) -> StoreResult<Topology> {
    match kind {
        "" => match &parse_hosts(hosts, DEFAULT_PORT)?[..] {
            [host] => Ok(Topology::One(host.clone())),
            _ => Err(bad("several hosts need +sentinel or +cluster")),
        },
        "cluster" => Ok(Topology::Cluster(parse_hosts(hosts, DEFAULT_PORT)?)),
        "sentinel" => Ok(Topology::Sentinel {
            sentinels: parse_hosts(hosts, DEFAULT_SENTINEL_PORT)?,
            master: path
                .next()
                .ok_or_else(|| bad("after the sentinels comes the name of the master"))
                .and_then(decoded)?,
            access: access(
                tls,
                &options.sentinel_user,
                &options.sentinel_password,
                0,
                options,
            )?,
        }),
        _ => Err(bad("after the + comes sentinel or cluster")),
    }
}

fn access(
    tls: bool,
    user: &str,
    password: &str,
    db: i64,
    options: &Options,
) -> StoreResult<Access> {
    // The name of the client library is of no use to us, and needs a permission.
    let mut login = RedisConnectionInfo::default()
        .set_skip_set_lib_name()
        .set_db(db);
    if !user.is_empty() {
        login = login.set_username(decoded(user)?);
    }
    if !password.is_empty() {
        login = login.set_password(decoded(password)?);
    }
    let tls = if tls {
        // The process may choose the crypto provider; without one, rustls can't start.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Some(options.certificates()?)
    } else {
        None
    };
    Ok(Access { tls, login })
}

fn parse_hosts(text: &str, default_port: u16) -> StoreResult<Vec<Host>> {
    text.split(',')
        .map(|text| parse_host(text, default_port).ok_or_else(|| bad("a host can't be read")))
        .collect()
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
pub(super) fn parse_host(text: &str, default_port: u16) -> Option<Host> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']')?;
            (name, port.strip_prefix(':'))
        }
        // A bare IPv6 address is what a server says; its port is after the last colon.
        None => match text.rsplit_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Ok(default_port), str::parse).ok()?;
    (!name.is_empty()).then(|| Host {
        name: name.to_owned(),
        port,
    })
}

fn decoded(text: &str) -> StoreResult<String> {
    let text = percent_decode_str(text).decode_utf8();
    Ok(text.map_err(|_| bad("a part isn't UTF-8"))?.into_owned())
}

struct Options {
    prefix: String,
    durability: Durability,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    sentinel_user: String,
    sentinel_password: String,
}

impl Options {
    fn parse(text: &str) -> StoreResult<Self> {
        let mut options = Self {
            prefix: DEFAULT_PREFIX.to_owned(),
            durability: Durability::Server,
            ca: None,
            cert: None,
            key: None,
            sentinel_user: String::new(),
            sentinel_password: String::new(),
        };
        for option in text.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "prefix" => options.prefix = prefix(&decoded(value)?)?,
                "durability" => {
                    options.durability = Durability::parse(&decoded(value)?)
                        .ok_or_else(|| bad("durability is wait:N or waitaof:LOCAL:N"))?;
                }
                "ca" => options.ca = Some(decoded(value)?),
                "cert" => options.cert = Some(decoded(value)?),
                "key" => options.key = Some(decoded(value)?),
                "sentinel_user" => value.clone_into(&mut options.sentinel_user),
                "sentinel_password" => value.clone_into(&mut options.sentinel_password),
                _ => {
                    return Err(bad("it has an option that isn't known; known are prefix, \
                                    durability, ca, cert, key, sentinel_user, sentinel_password"));
                }
            }
        }
        Ok(options)
    }

    fn certificates(&self) -> StoreResult<TlsCertificates> {
        let read = |path: &String| {
            std::fs::read(path).map_err(|_| bad("a file of ca, cert or key can't be read"))
        };
        let client_tls = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some(ClientTlsConfig {
                client_cert: read(cert)?,
                client_key: read(key)?,
            }),
            (None, None) => None,
            _ => return Err(bad("cert and key come together")),
        };
        Ok(TlsCertificates {
            client_tls,
            root_cert: self.ca.as_ref().map(read).transpose()?,
        })
    }
}

/// Checks the prefix. A brace would put all keys into one slot, and a wildcard would match foreign
/// keys.
fn prefix(text: &str) -> StoreResult<String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.:".contains(&b);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(fits) {
        return Err(bad("a prefix has 1 to 64 of A-Z a-z 0-9 _ - . :"));
    }
    Ok(text.to_owned())
}

fn bad(why: &str) -> StoreError {
    let said = format!("the URL of the store can't be used: {why}");
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
}
