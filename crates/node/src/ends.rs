//! The ends of calls, for the thread of JavaScript.

use napi::bindgen_prelude::{Buffer, FnArgs, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Result, Status};
use napi_derive::napi;
use semel_embedded::{ApiReply, CallOutcome};

/// A reply of the API, as JavaScript gets it.
#[napi(object, object_from_js = false)]
pub(crate) struct NativeReply {
    /// The status of HTTP.
    pub status: u16,
    /// Names and values, one after the other.
    pub headers: Vec<String>,
    /// The whole body.
    pub body: Buffer,
}

impl From<ApiReply> for NativeReply {
    fn from(reply: ApiReply) -> Self {
        let headers = reply.headers();
        let headers = headers.flat_map(|(name, value)| [name.to_owned(), value.to_owned()]);
        Self {
            status: reply.status,
            headers: headers.collect(),
            body: Buffer::from(Vec::from(reply.body)),
        }
    }
}

/// What is told: a ticket, what became of it, and the reply or a reason.
pub(crate) type ToldArgs = FnArgs<(u32, &'static str, Option<NativeReply>, Option<String>)>;

/// The function that is told.
pub(crate) type Tell<'scope> = Function<'scope, ToldArgs, ()>;

/// What became of an opening, a call or a closing.
pub(crate) enum End {
    Opened,
    Failed(String),
    Called(CallOutcome),
    Closed,
}

/// The way to the function that is told. It keeps no event loop alive: the package does that while
/// a call is under way.
pub(crate) struct Ends(ThreadsafeFunction<(u32, End), (), ToldArgs, Status, false, true>);

impl Ends {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments from JavaScript arrive by value"
    )]
    pub(crate) fn new(tell: Tell<'_>) -> Result<Self> {
        let builder = tell.build_threadsafe_function::<(u32, End)>();
        let builder = builder.callee_handled::<false>().weak::<true>();
        let function = builder.build_callback(|context| {
            let (ticket, end) = context.value;
            let (kind, reply, reason) = match end {
                End::Opened => ("opened", None, None),
                End::Failed(reason) => ("failed", None, Some(reason)),
                End::Called(CallOutcome::Replied(reply)) => ("replied", Some(reply.into()), None),
                End::Called(CallOutcome::TimedOut) => ("timed_out", None, None),
                End::Called(CallOutcome::Closed) | End::Closed => ("closed", None, None),
            };
            Ok(FnArgs::from((ticket, kind, reply, reason)))
        })?;
        Ok(Self(function))
    }

    /// Queues it for the thread of JavaScript. Nobody hears it where that thread has ended.
    pub(crate) fn tell(&self, ticket: u32, end: End) {
        let mode = ThreadsafeFunctionCallMode::NonBlocking;
        self.0.call((ticket, end), mode);
    }
}
