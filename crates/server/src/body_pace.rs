//! A minimum rate for request bodies, against clients that send too slowly.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use semel::core::{Clock, Tick};
use semel::http::BoxError;

/// The body arrives below the minimum rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body arrives too slowly")]
pub(crate) struct BodyTooSlow;

/// The minimum rate of a body.
#[derive(Clone)]
pub(crate) struct BodyPace {
    pub(crate) bytes_per_second: u64,
    /// How long to wait for bytes before the rate is checked.
    pub(crate) grace: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A body with an optional minimum rate.
pub(crate) struct PacedBody<B> {
    body: B,
    pace: Option<BodyPace>,
    /// The time spent waiting for the client. The time of the reader does not count.
    waited: Duration,
    waiting_since: Option<Tick>,
    bytes: u64,
}

impl<B> PacedBody<B> {
    pub(crate) const fn new(body: B, pace: Option<BodyPace>) -> Self {
        Self {
            body,
            pace,
            waited: Duration::ZERO,
            waiting_since: None,
            bytes: 0,
        }
    }

    fn is_too_slow(&mut self, more: usize) -> bool {
        let Some(pace) = &self.pace else { return false };
        self.bytes = self.bytes.saturating_add(more as u64);
        if let Some(since) = self.waiting_since.take() {
            self.waited += pace.clock.now().since(since);
        }
        let required = u128::from(pace.bytes_per_second) * self.waited.as_millis() / 1000;
        self.waited > pace.grace && u128::from(self.bytes) < required
    }
}

impl<B> Body for PacedBody<B>
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
            && self.waiting_since.is_none()
            && let Some(pace) = &self.pace
        {
            self.waiting_since = Some(pace.clock.now());
        }
        let Some(frame) = ready!(polled) else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(Into::into)?;
        let bytes = frame.data_ref().map_or(0, |data| data.remaining());
        Poll::Ready(Some(match self.is_too_slow(bytes) {
            true => Err(BodyTooSlow.into()),
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
