//! A body that says of itself what the body within it said before it was wrapped: whether it is empty, and how long. Without
//! that, a request without a body is passed on as one of unknown length.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};

/// What is known of a body's length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    least: u64,
    most: Option<u64>,
    ended: bool,
}

impl Length {
    pub(crate) fn of(body: &impl Body) -> Self {
        let hint = body.size_hint();
        Self {
            least: hint.lower(),
            most: hint.upper(),
            ended: body.is_end_stream(),
        }
    }

    fn pass(&mut self, bytes: u64) {
        self.least = self.least.saturating_sub(bytes);
        self.most = self.most.map(|most| most.saturating_sub(bytes));
    }
}

/// The body, and what is known of what is left of it.
#[derive(Debug)]
pub(crate) struct Known<B> {
    body: Pin<Box<B>>,
    length: Length,
}

impl<B> Known<B> {
    pub(crate) fn new(body: B, length: Length) -> Self {
        Self {
            body: Box::pin(body),
            length,
        }
    }
}

impl<B: Body> Body for Known<B> {
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
                self.length.pass(bytes);
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
