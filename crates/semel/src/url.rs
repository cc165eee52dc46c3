//! Parses the scheme of a store's URL. Errors repeat only the scheme, because the rest may contain
//! a password.

use semel_core::MemoryConfig;

use crate::error::OpenError;

pub(crate) fn one_or_two(urls: &str) -> Result<(&str, Option<&str>), OpenError> {
    let mut urls = urls.split_whitespace();
    let first = urls.next().ok_or(OpenError::NotAUrl)?;
    let second = urls.next();
    match urls.next() {
        Some(_) => Err(OpenError::ManyStores),
        None => Ok((first, second)),
    }
}

/// A kind of store by the scheme of its URL, whether or not this build has it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreScheme {
    /// `memory`.
    Memory,
    /// `mysql`, `mariadb`.
    MySql,
    /// `s3`, `gs`, `az`.
    Object,
    /// `postgres`, `postgresql`.
    Postgres,
    /// `redis`, `rediss`, and either with `+` and a topology.
    Redis,
    /// `sqlite`.
    Sqlite,
}

impl StoreScheme {
    /// The scheme of a URL, if a store has it.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        Self::parse(url.split_once("://")?.0)
    }

    fn parse(scheme: &str) -> Option<Self> {
        match scheme {
            "memory" => Some(Self::Memory),
            "mysql" | "mariadb" => Some(Self::MySql),
            "s3" | "gs" | "az" => Some(Self::Object),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "sqlite" => Some(Self::Sqlite),
            _ => {
                matches!(scheme.split('+').next(), Some("redis" | "rediss")).then_some(Self::Redis)
            }
        }
    }

    /// One name for all spellings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::MySql => "mysql",
            Self::Object => "object",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::Sqlite => "sqlite",
        }
    }
}

/// The kind of store that a URL names.
#[derive(Clone, Copy)]
pub(crate) enum StoreKind {
    Memory,
    #[cfg(feature = "mysql")]
    MySql,
    #[cfg(feature = "object")]
    Object,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "redis")]
    Redis,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

/// The kind of store, and the rest of the URL after the scheme.
pub(crate) fn read(url: &str) -> Result<(StoreKind, &str), OpenError> {
    let found = url.split_once("://");
    // The scheme is repeated if no store has it: what can't be one may be a password.
    let found = found.filter(|(scheme, _)| is_scheme(scheme));
    let (scheme, rest) = found.ok_or(OpenError::NotAUrl)?;
    let kind = match StoreScheme::parse(scheme) {
        Some(StoreScheme::Memory) => StoreKind::Memory,
        #[cfg(feature = "mysql")]
        Some(StoreScheme::MySql) => StoreKind::MySql,
        #[cfg(feature = "object")]
        Some(StoreScheme::Object) => StoreKind::Object,
        #[cfg(feature = "postgres")]
        Some(StoreScheme::Postgres) => StoreKind::Postgres,
        #[cfg(feature = "redis")]
        Some(StoreScheme::Redis) => StoreKind::Redis,
        #[cfg(feature = "sqlite")]
        Some(StoreScheme::Sqlite) => StoreKind::Sqlite,
        _ => {
            let scheme = scheme.chars().take(32).collect();
            return Err(OpenError::Scheme { scheme });
        }
    };
    Ok((kind, rest))
}

/// Whether a text can be a scheme. What can't may be part of a password.
#[doc(hidden)]
#[must_use]
pub fn is_scheme(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.bytes().all(fits)
}

/// Checks that the URLs can be parsed, without connecting. For `fuzz/`.
///
/// # Errors
/// As [`crate::open_store`] has them.
#[doc(hidden)]
pub fn check_store_url(urls: &str) -> Result<(), OpenError> {
    let (first, second) = one_or_two(urls)?;
    for url in [Some(first), second].into_iter().flatten() {
        let (kind, rest) = read(url)?;
        let checked = match kind {
            StoreKind::Memory => {
                memory_config(rest)?;
                Ok(())
            }
            #[cfg(feature = "mysql")]
            StoreKind::MySql => semel_stores::mysql::check_url(url),
            #[cfg(feature = "object")]
            StoreKind::Object => semel_stores::object::check_url(url),
            #[cfg(feature = "postgres")]
            StoreKind::Postgres => semel_stores::postgres::check_url(url),
            #[cfg(feature = "redis")]
            StoreKind::Redis => semel_stores::redis::check_url(url),
            #[cfg(feature = "sqlite")]
            StoreKind::Sqlite => semel_stores::sqlite::check_url(url),
        };
        checked.map_err(OpenError::Store)?;
    }
    Ok(())
}

pub(crate) fn memory_config(rest: &str) -> Result<MemoryConfig, OpenError> {
    let mut config = MemoryConfig::default();
    let options = rest.trim_start_matches('/').trim_start_matches('?');
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("capacity", number)) => {
                config.capacity = number.parse().map_err(|_| OpenError::Option("capacity"))?;
            }
            _ => return Err(OpenError::Option("an option that isn't known")),
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_names_its_store() {
        for (urls, name) in [
            (&["memory://"][..], "memory"),
            (&["mysql://h", "mariadb://h"], "mysql"),
            (&["s3://b", "gs://b", "az://b"], "object"),
            (&["postgres://h", "postgresql://h"], "postgres"),
            (&["redis://h", "rediss://h", "redis+sentinel://h"], "redis"),
            (&["sqlite:///p"], "sqlite"),
        ] {
            for url in urls {
                let scheme = StoreScheme::of_url(url);
                assert_eq!(scheme.map(StoreScheme::name), Some(name), "{url}");
            }
        }
        for url in ["", "postgres", "postgres:h", "oracle://h", "mysql+x://h"] {
            assert_eq!(StoreScheme::of_url(url), None, "{url}");
        }
    }

    #[test]
    fn errors_repeat_only_valid_schemes() {
        for url in [
            "postgres:user:hunter2@host/db?at=x://y",
            "hunter2@host://db",
            "user:hunter2@host/db",
        ] {
            let told = check_store_url(url).unwrap_err();
            assert!(!format!("{told} {told:?}").contains("hunter2"), "{told}");
        }
        let told = check_store_url("floppy://a").unwrap_err().to_string();
        assert!(told.contains("floppy://"), "{told}");
    }

    #[test]
    fn three_urls_are_rejected_without_connecting() {
        let three = "memory:// memory:// memory://";
        assert!(matches!(check_store_url(three), Err(OpenError::ManyStores)));
        assert!(check_store_url("memory:// memory://?capacity=7").is_ok());
        assert!(check_store_url(" ").is_err());
    }
}
