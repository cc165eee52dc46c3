//! A request's body that may not trickle: so many bytes a second, over the time that is waited for them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use semel::core::{Clock, Tick};
use semel::http::BoxError;

/// The body came too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body comes too slowly")]
pub(crate) struct TooSlow;

/// How slowly a body may come.
#[derive(Clone)]
pub(crate) struct Pace {
    pub(crate) bytes_a_second: u64,
    /// Not judged before so much was waited for.
    pub(crate) after: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A body that is held to a pace; or isn't.
pub(crate) struct Paced<B> {
    body: B,
    pace: Option<Pace>,
    /// Time in which there was nothing to read. What the reader takes is not the client's fault.
    waited: Duration,
    waits_since: Option<Tick>,
    bytes: u64,
}

impl<B> Paced<B> {
    pub(crate) const fn new(body: B, pace: Option<Pace>) -> Self {
        Self {
            body,
            pace,
            waited: Duration::ZERO,
            waits_since: None,
            bytes: 0,
        }
    }

    fn is_slow(&mut self, more: usize) -> bool {
        let Some(pace) = &self.pace else { return false };
        self.bytes = self.bytes.saturating_add(more as u64);
        if let Some(since) = self.waits_since.take() {
            self.waited += pace.clock.now().since(since);
        }
        let owed = u128::from(pace.bytes_a_second) * self.waited.as_millis() / 1000;
        self.waited > pace.after && u128::from(self.bytes) < owed
    }
}

impl<B> Body for Paced<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending()
            && self.waits_since.is_none()
            && let Some(pace) = &self.pace
        {
            self.waits_since = Some(pace.clock.now());
        }
        let Some(frame) = ready!(polled) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(Into::into)?;
        let bytes = frame.data_ref().map_or(0, |data| data.remaining());
        Poll::Ready(Some(match self.is_slow(bytes) {
            true => Err(TooSlow.into()),
            false => Ok(frame),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
