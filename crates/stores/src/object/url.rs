//! Which bucket, and how to talk to it, read from a URL.
//!
//! ```text
//! s3://[key:secret@]bucket[/prefix][?options]
//! gs://bucket[/prefix][?options]
//! az://[account:key@]container[/prefix][?options]
//! ```
//!
//! What the URL doesn't say comes from the variables that each cloud's own tools read. Nothing of a
//! URL is ever repeated in an error: it may hold a secret.

use std::time::Duration;

use object_store::path::Path;
use percent_encoding::percent_decode_str;
use semel_core::{Certainty, StoreError, StoreErrorKind, StoreResult};

/// What stands before the address in every path, unless the URL says otherwise.
pub const DEFAULT_PREFIX: &str = "idempotency";

/// The shortest margin: `Date` and `Last-Modified` leave out up to a second each.
pub const MIN_CLOCK_MARGIN: Duration = Duration::from_secs(2);

/// A URL, taken apart.
pub(super) struct Target {
    pub(super) cloud: Cloud,
    pub(super) bucket: String,
    pub(super) prefix: String,
    pub(super) login: Option<(String, String)>,
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    pub(super) is_virtual: bool,
    pub(super) ca: Option<String>,
    pub(super) margin: Duration,
    pub(super) requests: usize,
    pub(super) sweeps: bool,
}

/// Whose conditions apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cloud {
    /// S3 and whatever speaks it.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl Cloud {
    /// Its scheme.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }
}

impl Target {
    pub(super) fn parse(url: &str) -> StoreResult<Self> {
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad("it has no scheme"))?;
        let cloud = [Cloud::S3, Cloud::Gcs, Cloud::Azure]
            .into_iter()
            .find(|cloud| cloud.scheme() == scheme)
            .ok_or_else(|| bad("the scheme is s3, gs or az"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (login, rest) = rest
            .rsplit_once('@')
            .map_or((None, rest), |(login, rest)| (Some(login), rest));
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let mut target = Self {
            cloud,
            bucket: name(bucket)?,
            prefix: prefix(path)?,
            login: login.map(|login| pair(cloud, login)).transpose()?,
            endpoint: None,
            region: None,
            is_virtual: false,
            ca: None,
            margin: MIN_CLOCK_MARGIN,
            requests: 64,
            sweeps: true,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            target.set(name, decoded(value)?)?;
        }
        Ok(target)
    }

    fn set(&mut self, name: &str, value: String) -> StoreResult<()> {
        match name {
            "endpoint" if self.cloud != Cloud::Gcs => self.endpoint = Some(value),
            "region" if self.cloud == Cloud::S3 => self.region = Some(value),
            "style" if self.cloud == Cloud::S3 => {
                self.is_virtual = match &*value {
                    "virtual" => true,
                    "path" => false,
                    _ => return Err(bad("style is path or virtual")),
                };
            }
            "ca" => self.ca = Some(value),
            "clock_margin" => self.margin = margin(&value)?,
            "requests" => {
                let number = value.parse().ok().filter(|n| (1..=4096).contains(n));
                self.requests = number.ok_or_else(|| bad("requests is between 1 and 4096"))?;
            }
            "sweep" => {
                self.sweeps = match &*value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(bad("sweep is on or off")),
                };
            }
            _ => {
                return Err(bad(
                    "it has an option that isn't known here; known are ca, clock_margin, requests, \
                     sweep; endpoint, region and style with s3; endpoint with az",
                ));
            }
        }
        Ok(())
    }

    /// Where everything of ours lies.
    pub(super) fn root(&self) -> Path {
        Path::from(&*self.prefix)
    }
}

fn name(text: &str) -> StoreResult<String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    if text.is_empty() || text.len() > 255 || !text.bytes().all(fits) {
        return Err(bad("after the scheme comes the name of a bucket"));
    }
    Ok(text.to_owned())
}

/// Plain characters only, so that no server and no client writes it in another way.
fn prefix(text: &str) -> StoreResult<String> {
    let text = text.trim_matches('/');
    if text.is_empty() {
        return Ok(DEFAULT_PREFIX.to_owned());
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
    let part_fits = |part: &str| !part.is_empty() && part.bytes().all(fits);
    if text.len() > 255 || !text.split('/').all(part_fits) {
        return Err(bad("a prefix has up to 255 of A-Z a-z 0-9 _ - and /"));
    }
    Ok(text.to_owned())
}

fn margin(text: &str) -> StoreResult<Duration> {
    let seconds = text.strip_suffix('s').and_then(|text| text.parse().ok());
    let margin = seconds.map(Duration::from_secs);
    margin
        .filter(|margin| (MIN_CLOCK_MARGIN..=Duration::from_secs(600)).contains(margin))
        .ok_or_else(|| bad("clock_margin is between 2s and 600s"))
}

fn pair(cloud: Cloud, login: &str) -> StoreResult<(String, String)> {
    let pair = login.split_once(':').filter(|_| cloud != Cloud::Gcs);
    let (key, secret) =
        pair.ok_or_else(|| bad("before the @ come key:secret with s3, account:key with az"))?;
    Ok((decoded(key)?, decoded(secret)?))
}

fn decoded(text: &str) -> StoreResult<String> {
    let text = percent_decode_str(text).decode_utf8();
    Ok(text.map_err(|_| bad("a part isn't UTF-8"))?.into_owned())
}

pub(super) fn bad(why: &str) -> StoreError {
    let said = format!("the URL of the store can't be used: {why}");
    StoreError::new(StoreErrorKind::Rejected, Certainty::Definite, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_prefix_and_options_are_read() {
        let url = "s3://key:s%2Fecret@bucket/a/b/?endpoint=http://127.0.0.1:1&clock_margin=5s&requests=8&sweep=off";
        let target = Target::parse(url).unwrap();
        assert_eq!((&*target.bucket, &*target.prefix), ("bucket", "a/b"));
        assert_eq!(target.login.unwrap().1, "s/ecret");
        assert_eq!(target.margin, Duration::from_secs(5));
        assert_eq!((target.requests, target.sweeps), (8, false));
        assert_eq!(Target::parse("gs://b").unwrap().prefix, DEFAULT_PREFIX);
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_never_repeated() {
        for url in [
            "s3://",
            "s3://bucket?secret=hunter2",
            "s3://bucket?clock_margin=1s",
            "s3://hunter2@bucket",
            "s3://bucket/hun ter2",
            "s3://bucket/../hunter2",
            "gs://bucket?region=hunter2",
            "ftp://bucket",
        ] {
            let error = Target::parse(url).err().unwrap();
            let said = std::error::Error::source(&error).map(ToString::to_string);
            let said = format!("{error} {}", said.unwrap_or_default());
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
