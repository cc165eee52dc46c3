//! Request bodies that are buffered in memory, and the bodies of responses.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use semel_core::Clock;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of requests that the layer hands on, and of responses that it gives.
///
/// ```
/// use http_body::Body as _;
///
/// let body = semel_http::Body::from("hello");
/// assert_eq!(body.size_hint().exact(), Some(5));
/// ```
#[derive(Debug, Default)]
pub struct Body {
    // The buffered part comes first, then the rest, then the trailers.
    first: Option<Bytes>,
    rest: Option<UnsyncBoxBody<Bytes, BoxError>>,
    // Boxed, because trailers are rare and large and a body is moved often.
    trailers: Option<Box<HeaderMap>>,
}

impl Body {
    /// A body that is forwarded as it arrives.
    pub fn new<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self {
            rest: Some(body.map_err(Into::into).boxed_unsync()),
            ..Self::default()
        }
    }

    /// A body in memory.
    pub(crate) fn whole(data: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self {
            first: (!data.is_empty()).then_some(data),
            rest: None,
            trailers,
        }
    }

    /// A body of which `data` was already read.
    pub(crate) fn resumed<B>(data: Bytes, rest: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self {
            first: (!data.is_empty()).then_some(data),
            ..Self::new(rest)
        }
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(data: T) -> Self {
        Self::whole(data.into(), None)
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(data) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(rest) = &mut self.rest {
            return Pin::new(rest).poll_frame(cx);
        }
        Poll::Ready(self.trailers.take().map(|t| Ok(Frame::trailers(*t))))
    }

    fn is_end_stream(&self) -> bool {
        let rest_ended = self.rest.as_ref().is_none_or(HttpBody::is_end_stream);
        self.first.is_none() && self.trailers.is_none() && rest_ended
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, |data| data.len() as u64);
        let rest = self
            .rest
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint);
        let mut both = SizeHint::new();
        both.set_lower(first + rest.lower());
        if let Some(upper) = rest.upper() {
            both.set_upper(first + upper);
        }
        both
    }
}

/// The memory budget for the bodies of requests with a key, which stay in memory until the request
/// has ended. It is an extension of the request. Without it, only the limit of the route applies to
/// each body.
#[derive(Clone)]
pub struct BodyRoom(pub Arc<dyn TakeBytes>);

/// A reservation of memory, which ends when it is dropped.
pub trait TakeBytes: Send + Sync {
    /// Reserves further bytes; false if there is no room.
    fn take(&self, bytes: usize) -> bool;
}

impl std::fmt::Debug for BodyRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BodyRoom")
    }
}

/// Why a body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The body exceeds the size limit.
    TooLarge,
    /// The body took too long.
    TooSlow,
    /// The connection broke off.
    Broken,
    /// The memory budget is exhausted.
    NoRoom,
}

/// A body that is being read into memory.
pub(crate) struct Reader<B> {
    body: Pin<Box<B>>,
    first: Bytes,
    // Used from the second chunk on, because most bodies have only one.
    joined: BytesMut,
    trailers: Option<Box<HeaderMap>>,
    ended: bool,
    touched: bool,
}

impl<B> Reader<B>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    pub(crate) fn new(body: B) -> Self {
        let ended = body.is_end_stream();
        Self {
            body: Box::pin(body),
            first: Bytes::new(),
            joined: BytesMut::new(),
            trailers: None,
            ended,
            touched: false,
        }
    }

    /// Whether reading has begun, which answers an `Expect: 100-continue`.
    pub(crate) const fn is_touched(&self) -> bool {
        self.touched
    }

    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn keep(&mut self, piece: Bytes) {
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = piece;
            return;
        }
        if self.joined.is_empty() {
            self.joined
                .extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&piece);
    }

    /// Reads to the end: at most `most` bytes, and for at most `limit`.
    pub(crate) async fn read(
        &mut self,
        most: usize,
        limit: Duration,
        room: Option<&BodyRoom>,
        clock: &dyn Clock,
    ) -> Result<(), ReadError> {
        // The announced size exceeds the limit, so nothing needs to be read.
        if self.body.size_hint().lower() > most as u64 {
            return Err(ReadError::TooLarge);
        }
        self.pieces(limit, clock, |reader, piece| {
            if room.is_some_and(|room| !room.0.take(piece.len())) {
                return Err(ReadError::NoRoom);
            }
            reader.keep(piece);
            match reader.len() <= most {
                true => Ok(()),
                false => Err(ReadError::TooLarge),
            }
        })
        .await
    }

    /// Reads and discards the rest. Returns whether the end was reached.
    pub(crate) async fn drain(&mut self, most: usize, limit: Duration, clock: &dyn Clock) -> bool {
        if self.body.size_hint().lower() > most as u64 {
            return false;
        }
        let mut left = most;
        let drain = self.pieces(limit, clock, move |_, piece| {
            left = left.saturating_sub(piece.len());
            match left > 0 {
                true => Ok(()),
                false => Err(ReadError::TooLarge),
            }
        });
        drain.await.is_ok()
    }

    /// Passes each chunk to `take`, until the end or until it returns an error.
    async fn pieces(
        &mut self,
        limit: Duration,
        clock: &dyn Clock,
        mut take: impl FnMut(&mut Self, Bytes) -> Result<(), ReadError> + Send,
    ) -> Result<(), ReadError> {
        let mut timer = None;
        while !self.ended {
            self.touched = true;
            let frame = std::future::poll_fn(|cx| {
                if let Poll::Ready(frame) = self.body.as_mut().poll_frame(cx) {
                    return Poll::Ready(Ok(frame));
                }
                // One timer for the whole body, and no timer if the body is already there.
                let timer = timer.get_or_insert_with(|| clock.sleep(limit));
                ready!(timer.as_mut().poll(cx));
                Poll::Ready(Err(ReadError::TooSlow))
            });
            match frame.await? {
                None => self.ended = true,
                Some(Err(_)) => return Err(ReadError::Broken),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => {
                        take(self, piece)?;
                        self.ended = self.body.is_end_stream();
                    }
                    Err(frame) => self.trailers = frame.into_trailers().ok().map(Box::new),
                },
            }
        }
        Ok(())
    }

    /// The bytes read so far: the whole body once [`Reader::read`] is done.
    pub(crate) fn bytes(&mut self) -> Bytes {
        if !self.joined.is_empty() {
            self.first = std::mem::take(&mut self.joined).freeze();
        }
        self.first.clone()
    }

    /// The trailers, once the body was read to its end.
    pub(crate) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_deref()
    }

    /// The bytes read so far, followed by the rest.
    pub(crate) fn into_body(mut self) -> Body {
        let data = self.bytes();
        if self.ended {
            Body::whole(data, self.trailers)
        } else {
            Body::resumed(data, self.body)
        }
    }
}
