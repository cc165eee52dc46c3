//! Unread HTTP/2 responses: resets streams whose clients do not read.
//!
//! On HTTP/1.1, a client that does not read stops the writes of the connection. On HTTP/2 it stops
//! only a stream: the client may answer pings and never open its flow-control window.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use semel::http::{Body, BoxError};

/// The largest piece of a response that hyper gets at once. It keeps one piece while the client's
/// window is closed.
const MAX_PIECE: usize = 16 * 1024;

tokio::task_local! {
    static STREAM: Arc<StreamProgress>;
}

/// Runs the streams of HTTP/2 connections, and resets those whose clients do not read.
#[derive(Clone, Debug)]
pub(super) struct StreamExecutor {
    /// How long a stream may make no progress because the client does not read.
    pub(super) write_timeout: Duration,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(run_stream(stream, self.write_timeout));
    }
}

/// How far the response of a stream has come.
#[derive(Debug, Default)]
struct StreamProgress {
    pieces: AtomicUsize,
    /// Whether the last piece waits for the client. If not, the service is to send the next one.
    waits_for_client: AtomicBool,
}

impl StreamProgress {
    /// The number of the piece that the client is to read.
    fn unread_piece(&self) -> Option<usize> {
        let waits = self.waits_for_client.load(Ordering::Relaxed);
        waits.then(|| self.pieces.load(Ordering::Relaxed))
    }
}

/// Runs a stream to its end. A dropped stream is reset.
async fn run_stream(stream: impl Future, limit: Duration) {
    let progress = Arc::new(StreamProgress::default());
    let mut stream = pin!(STREAM.scope(Arc::clone(&progress), stream));
    let mut timer = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(piece) = progress.unread_piece() else {
            timer = None;
            return Poll::Pending;
        };
        if timer.as_ref().is_none_or(|(of, _)| *of != piece) {
            timer = Some((
                piece,
                Box::pin(tokio::time::timeout(limit, pending::<()>())),
            ));
        }
        let Some((_, timer)) = &mut timer else {
            return Poll::Pending;
        };
        let _ = ready!(timer.as_mut().poll(cx));
        tracing::debug!("a client does not read a response; its stream is reset");
        Poll::Ready(())
    })
    .await;
}

/// The body of an HTTP/2 response, in pieces, whose progress is observed.
pub(super) struct StreamBody<T> {
    body: Body,
    /// The rest of a frame.
    rest: Bytes,
    progress: Option<Arc<StreamProgress>>,
    _until_the_body_is_dropped: T,
}

impl<T: Send + Unpin + 'static> StreamBody<T> {
    /// Wraps the response of the current stream. `kept` is dropped with it.
    pub(super) fn wrap(body: Body, kept: T) -> Body {
        Body::new(Self {
            body,
            rest: Bytes::new(),
            progress: STREAM.try_with(Arc::clone).ok(),
            _until_the_body_is_dropped: kept,
        })
    }

    fn next_piece(&mut self) -> Frame<Bytes> {
        let size = self.rest.len().min(MAX_PIECE);
        Frame::data(self.rest.split_to(size))
    }

    fn observe(&self, waits_for_client: bool) {
        let Some(progress) = &self.progress else {
            return;
        };
        progress.pieces.fetch_add(1, Ordering::Relaxed);
        progress
            .waits_for_client
            .store(waits_for_client, Ordering::Relaxed);
    }
}

impl<T: Send + Unpin + 'static> HttpBody for StreamBody<T> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.rest.is_empty() {
            self.observe(true);
            return Poll::Ready(Some(Ok(self.next_piece())));
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.observe(polled.is_ready());
        Poll::Ready(match ready!(polled) {
            Some(Ok(frame)) => Some(Ok(match frame.into_data() {
                Ok(data) => {
                    self.rest = data;
                    self.next_piece()
                }
                Err(trailers) => trailers,
            })),
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut all = SizeHint::new();
        all.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            all.set_upper(upper + rest);
        }
        all
    }
}
