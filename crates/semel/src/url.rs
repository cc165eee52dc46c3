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

/// The scheme is repeated where no store has it: what can't be one may be a password.
pub(crate) fn scheme_of(url: &str) -> Result<(&str, &str), OpenError> {
    let is_scheme = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        text.bytes().all(fits)
    };
    let found = url.split_once("://");
    found
        .filter(|(scheme, _)| is_scheme(scheme))
        .ok_or(OpenError::NotAUrl)
}

/// Whether the URLs can be read, without reaching for what they name: for `fuzz/`.
///
/// # Errors
/// As [`crate::open_store`] has them.
#[doc(hidden)]
pub fn check_store_url(urls: &str) -> Result<(), OpenError> {
    let (first, second) = one_or_two(urls)?;
    for url in [Some(first), second].into_iter().flatten() {
        let (scheme, rest) = scheme_of(url)?;
        let checked = match scheme {
            "memory" => {
                memory_config(rest)?;
                Ok(())
            }
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => semel_stores::mysql::check_url(url),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => semel_stores::postgres::check_url(url),
            #[cfg(feature = "object")]
            "s3" | "gs" | "az" => semel_stores::object::check_url(url),
            #[cfg(feature = "redis")]
            _ if is_redis(scheme) => semel_stores::redis::check_url(url),
            #[cfg(feature = "sqlite")]
            "sqlite" => semel_stores::sqlite::check_url(url),
            _ => return Err(unknown(scheme)),
        };
        checked.map_err(OpenError::Store)?;
    }
    Ok(())
}

#[cfg(feature = "redis")]
pub(crate) fn is_redis(scheme: &str) -> bool {
    matches!(scheme.split('+').next(), Some("redis" | "rediss"))
}

pub(crate) fn unknown(scheme: &str) -> OpenError {
    OpenError::Scheme {
        scheme: scheme.chars().take(32).collect(),
    }
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
