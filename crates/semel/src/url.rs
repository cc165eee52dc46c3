//! What a store's URL says before a store reads it. Nothing of one is repeated but a scheme: it may hold a password.

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

/// Whose URL it is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
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

/// Whose it is, and what comes after the scheme.
pub(crate) fn read(url: &str) -> Result<(Kind, &str), OpenError> {
    let found = url.split_once("://");
    // The scheme is repeated where no store has it: what can't be one may be a password.
    let found = found.filter(|(scheme, _)| is_scheme(scheme));
    let (scheme, rest) = found.ok_or(OpenError::NotAUrl)?;
    let kind = match scheme {
        "memory" => Kind::Memory,
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Kind::MySql,
        #[cfg(feature = "object")]
        "s3" | "gs" | "az" => Kind::Object,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Kind::Postgres,
        #[cfg(feature = "redis")]
        _ if matches!(scheme.split('+').next(), Some("redis" | "rediss")) => Kind::Redis,
        #[cfg(feature = "sqlite")]
        "sqlite" => Kind::Sqlite,
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

/// Whether the URLs can be read, without reaching for what they name: for `fuzz/`.
///
/// # Errors
/// As [`crate::open_store`] has them.
#[doc(hidden)]
pub fn check_store_url(urls: &str) -> Result<(), OpenError> {
    let (first, second) = one_or_two(urls)?;
    for url in [Some(first), second].into_iter().flatten() {
        let (kind, rest) = read(url)?;
        let checked = match kind {
            Kind::Memory => {
                memory_config(rest)?;
                Ok(())
            }
            #[cfg(feature = "mysql")]
            Kind::MySql => semel_stores::mysql::check_url(url),
            #[cfg(feature = "object")]
            Kind::Object => semel_stores::object::check_url(url),
            #[cfg(feature = "postgres")]
            Kind::Postgres => semel_stores::postgres::check_url(url),
            #[cfg(feature = "redis")]
            Kind::Redis => semel_stores::redis::check_url(url),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => semel_stores::sqlite::check_url(url),
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
    fn what_is_no_scheme_is_not_repeated() {
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
    fn three_stores_are_refused_before_the_first_is_looked_for() {
        let three = "memory:// memory:// memory://";
        assert!(matches!(check_store_url(three), Err(OpenError::ManyStores)));
        assert!(check_store_url("memory:// memory://?capacity=7").is_ok());
        assert!(check_store_url(" ").is_err());
    }
}
