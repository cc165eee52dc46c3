//! [`SizedBody`]: preserves the inner body's size hint through wrappers that lose it.
//!
//! Without it, the proxy would forward a request without a body as one of unknown length.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};

/// The size hint of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLength {
    least: u64,
    most: Option<u64>,
    ended: bool,
}

impl BodyLength {
    pub(crate) fn from_body(body: &impl Body) -> Self {
        let hint = body.size_hint();
        Self {
            least: hint.lower(),
            most: hint.upper(),
            ended: body.is_end_stream(),
        }
    }

    fn subtract(&mut self, bytes: u64) {
        self.least = self.least.saturating_sub(bytes);
        self.most = self.most.map(|most| most.saturating_sub(bytes));
    }
}

/// A body with a size hint for its remaining bytes.
#[derive(Debug)]
pub(crate) struct SizedBody<B> {
    body: Pin<Box<B>>,
    length: BodyLength,
}

impl<B> SizedBody<B> {
    pub(crate) fn new(body: B, length: BodyLength) -> Self {
        Self {
            body: Box::pin(body),
            length,
        }
    }
}

impl<B: Body> Body for SizedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(self.body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                self.length.subtract(bytes);
            }
            Some(Err(_)) => {}
            None => self.length.ended = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.length.ended
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        if let Some(most) = self.length.most {
            hint.set_upper(most);
        }
        hint.set_lower(self.length.least);
        hint
    }
}
