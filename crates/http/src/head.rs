//! The head of a stored answer: status, kept headers, and a gRPC call's trailers, packed.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version, 1 |
//! | 1 | flags: 1 headers left out, as they were past the bound |
//! | 2 | status, little-endian |
//! | 2 | number of headers |
//! | … | each header: length of the name (1), name, length of the value (2), value |
//! | 2 | number of trailers |
//! | … | each trailer, the same |

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use semel_core::Answer;

const VERSION: u8 = 1;
const HEADERS_LEFT_OUT: u8 = 1;

/// The stored part of a response besides its body.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredHead {
    /// The status.
    pub status: StatusCode,
    /// The stored headers, in their order.
    pub headers: HeaderMap,
    /// The stored trailers of a gRPC call.
    pub trailers: HeaderMap,
    /// Whether the headers were too large to store.
    pub headers_left_out: bool,
}

/// The bytes are not a head of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored response was written by another door or by a newer version")]
pub struct HeadError;

impl StoredHead {
    /// A head with this status, without headers and trailers.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            trailers: HeaderMap::new(),
            headers_left_out: false,
        }
    }

    /// Packs it, within the bound of an answer's head (P27). What is past the bound is left out
    /// whole, and the head says so.
    ///
    /// ```
    /// use semel_http::StoredHead;
    ///
    /// let head = StoredHead::new(http::StatusCode::CREATED);
    /// assert_eq!(StoredHead::decode(&head.encode()), Ok(head));
    /// ```
    #[must_use]
    pub fn encode(&self) -> Bytes {
        if self.headers_left_out {
            return bare(self.status);
        }
        pack(self.status, self.headers.iter(), self.trailers.iter())
    }

    /// Decodes a head strictly: no missing bytes, no extra bytes, no contradicting flags.
    ///
    /// # Errors
    /// [`HeadError`] if the bytes are no head.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeadError> {
        let mut rest = bytes;
        let [version, flags] = *take::<2>(&mut rest)?;
        if version != VERSION
            || flags & !HEADERS_LEFT_OUT != 0
            || bytes.len() > Answer::MAX_HEAD_BYTES
        {
            return Err(HeadError);
        }
        let status = u16::from_le_bytes(*take(&mut rest)?);
        let head = Self {
            status: StatusCode::from_u16(status).map_err(|_| HeadError)?,
            headers: pull(&mut rest)?,
            trailers: pull(&mut rest)?,
            headers_left_out: flags & HEADERS_LEFT_OUT != 0,
        };
        let contradicts =
            head.headers_left_out && !(head.headers.is_empty() && head.trailers.is_empty());
        if rest.is_empty() && !contradicts {
            Ok(head)
        } else {
            Err(HeadError)
        }
    }

    /// Sets [`headers`](Self::headers).
    #[must_use]
    pub fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// Sets [`trailers`](Self::trailers).
    #[must_use]
    pub fn with_trailers(mut self, trailers: HeaderMap) -> Self {
        self.trailers = trailers;
        self
    }

    /// Sets [`headers_left_out`](Self::headers_left_out).
    #[must_use]
    pub const fn with_headers_left_out(mut self, headers_left_out: bool) -> Self {
        self.headers_left_out = headers_left_out;
        self
    }
}

/// Encodes a head without collecting it first.
pub(crate) fn pack<'a>(
    status: StatusCode,
    headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
    trailers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
) -> Bytes {
    let mut out = Vec::with_capacity(160);
    out.extend_from_slice(&[VERSION, 0]);
    out.extend_from_slice(&status.as_u16().to_le_bytes());
    let fits = push(&mut out, headers) && push(&mut out, trailers);
    if fits && out.len() <= Answer::MAX_HEAD_BYTES {
        out.into()
    } else {
        bare(status)
    }
}

/// A head without headers, because they exceed the limit.
fn bare(status: StatusCode) -> Bytes {
    let [low, high] = status.as_u16().to_le_bytes();
    Bytes::copy_from_slice(&[VERSION, HEADERS_LEFT_OUT, low, high, 0, 0, 0, 0])
}

/// Appends the fields. Returns whether all of them fit.
fn push<'a>(
    out: &mut Vec<u8>,
    headers: impl Iterator<Item = (&'a HeaderName, &'a HeaderValue)>,
) -> bool {
    let count_at = out.len();
    out.extend_from_slice(&[0, 0]);
    let mut count: u16 = 0;
    for (name, value) in headers {
        let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
        let lengths = (u8::try_from(name.len()), u16::try_from(value.len()));
        let (Ok(name_length), Ok(value_length)) = lengths else {
            return false;
        };
        out.push(name_length);
        out.extend_from_slice(name);
        out.extend_from_slice(&value_length.to_le_bytes());
        out.extend_from_slice(value);
        // The limit is already exceeded.
        if out.len() > Answer::MAX_HEAD_BYTES {
            return false;
        }
        count += 1;
    }
    out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
    true
}

fn pull(rest: &mut &[u8]) -> Result<HeaderMap, HeadError> {
    let count = u16::from_le_bytes(*take(rest)?);
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let [length] = *take::<1>(rest)?;
        let name = slice(rest, usize::from(length))?;
        // Names are lower case; any other spelling would be a second encoding of the same head.
        let name = HeaderName::from_lowercase(name).map_err(|_| HeadError)?;
        let length = u16::from_le_bytes(*take(rest)?);
        let value = slice(rest, usize::from(length))?;
        let value = HeaderValue::from_bytes(value).map_err(|_| HeadError)?;
        headers.try_append(name, value).map_err(|_| HeadError)?;
    }
    Ok(headers)
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], HeadError> {
    let (taken, left) = rest.split_first_chunk().ok_or(HeadError)?;
    *rest = left;
    Ok(taken)
}

fn slice<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], HeadError> {
    let (taken, left) = rest.split_at_checked(length).ok_or(HeadError)?;
    *rest = left;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(value: &str) -> StoredHead {
        let mut headers = HeaderMap::new();
        headers.append("location", HeaderValue::from_str(value).unwrap());
        headers.append("link", HeaderValue::from_static("<a>"));
        headers.append("link", HeaderValue::from_static("<b>"));
        let mut trailers = HeaderMap::new();
        trailers.append("grpc-status", HeaderValue::from_static("0"));
        StoredHead {
            status: StatusCode::CREATED,
            headers,
            trailers,
            headers_left_out: false,
        }
    }

    #[test]
    fn head_round_trips() {
        let packed = head("/charges/1").encode();
        assert_eq!(StoredHead::decode(&packed), Ok(head("/charges/1")));
        assert_eq!(packed[..4], [1, 0, 201, 0]);
    }

    #[test]
    fn oversized_headers_are_left_out_completely() {
        let packed = head(&"x".repeat(Answer::MAX_HEAD_BYTES)).encode();
        let found = StoredHead::decode(&packed).unwrap();
        assert!(found.headers_left_out && found.headers.is_empty());
        assert_eq!(found.status, StatusCode::CREATED);
        let most = "x".repeat(Answer::MAX_HEAD_BYTES - 100);
        assert_eq!(StoredHead::decode(&head(&most).encode()), Ok(head(&most)));
    }

    #[test]
    fn damaged_heads_are_refused() {
        let packed = head("/charges/1").encode();
        for length in 0..packed.len() {
            assert_eq!(
                StoredHead::decode(&packed[..length]),
                Err(HeadError),
                "{length}"
            );
        }
        let mut longer = packed.to_vec();
        longer.push(0);
        assert_eq!(StoredHead::decode(&longer), Err(HeadError));
        let mut newer = packed.to_vec();
        newer[0] = 2;
        assert_eq!(StoredHead::decode(&newer), Err(HeadError));
        let mut contradicting = packed.to_vec();
        contradicting[1] = HEADERS_LEFT_OUT;
        assert_eq!(StoredHead::decode(&contradicting), Err(HeadError));
        assert_eq!(StoredHead::decode(b""), Err(HeadError));
    }
}
