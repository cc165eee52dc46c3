//! [`Proxy`]: a way to a server that a test can cut, hold up and slow down at an exact point.
//!
//! It knows no protocol: it counts the lots of bytes as they arrive, which for one caller on one
//! connection are requests and replies. What matters most is the cut between a write and its reply
//! ([`Cut::BeforeReply`]): the server has done it, and the caller doesn't know.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use semel_core::Clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the caller to the server.
    Request,
    /// From the server to the caller.
    Reply,
}

/// Where to cut a connection, at the next lot of bytes that gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A request comes, and the server never sees it.
    BeforeRequest,
    /// The server gets a request and replies, and the caller never sees that.
    BeforeReply,
    /// The caller gets so many bytes of a reply, and no more.
    InReply(usize),
    /// The caller gets a reply, and then the connection is gone.
    AfterReply,
}

impl Cut {
    const fn way(self) -> Way {
        match self {
            Self::BeforeRequest => Way::Request,
            Self::BeforeReply | Self::InReply(_) | Self::AfterReply => Way::Reply,
        }
    }

    /// How many of `count` bytes still pass.
    const fn passing(self, count: usize) -> usize {
        match self {
            Self::BeforeRequest | Self::BeforeReply => 0,
            Self::InReply(most) if most < count => most,
            Self::InReply(_) | Self::AfterReply => count,
        }
    }
}

/// A listener on the loopback address that passes everything on to a server, for as long as it
/// lives.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    server: Mutex<SocketAddr>,
    armed: Mutex<VecDeque<(usize, Cut)>>,
    delays: Mutex<[Duration; 2]>,
    held: watch::Sender<[bool; 2]>,
    refusing: AtomicBool,
    made: AtomicU64,
    open: watch::Sender<u64>,
    cuts: watch::Sender<u64>,
    all: watch::Sender<u64>,
}

/// A connection that counts as open for as long as this lives.
struct OpenConnection(Arc<Shared>);

impl OpenConnection {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.send_modify(|open| *open += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cuts", *self.cuts.borrow())
    }
}

impl Proxy {
    /// Begins to pass connections on to `server`.
    ///
    /// # Errors
    /// Where there is no port to listen on.
    pub async fn to(server: SocketAddr, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            clock,
            server: Mutex::new(server),
            armed: Mutex::default(),
            delays: Mutex::default(),
            held: watch::Sender::new([false; 2]),
            refusing: AtomicBool::new(false),
            made: AtomicU64::new(0),
            open: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
            all: watch::Sender::new(0),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// Where to connect to.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to another server, as a name does after a failover.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.shared.server.lock() = server;
    }

    /// Forgets cuts that were asked for and have not been made. → how many.
    pub fn disarm(&self) -> usize {
        std::mem::take(&mut *self.shared.armed.lock()).len()
    }

    /// Cuts once, at the next lot of bytes that fits. Several are served in the order in which they
    /// were asked for.
    pub fn cut(&self, cut: Cut) {
        self.cut_after(0, cut);
    }

    /// Like [`Self::cut`], after so many lots of the cut's way have passed.
    pub fn cut_after(&self, lots: usize, cut: Cut) {
        self.shared.armed.lock().push_back((lots, cut));
    }

    /// Cuts every connection there is, without waiting for their ends.
    pub fn cut_all(&self) {
        self.shared.all.send_modify(|count| *count += 1);
    }

    /// Refuses new connections, and cuts all others. Once it returns, nothing passes any more.
    pub async fn silence(&self) {
        self.refuse(true);
        self.cut_all();
        // The sender lives in `self`.
        let mut open = self.shared.open.subscribe();
        let _ = open.wait_for(|open| *open == 0).await;
    }

    /// Closes new connections at once, or no longer does.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::SeqCst);
    }

    /// Holds everything back that goes `way`, or lets it go.
    pub fn hold(&self, way: Way, hold: bool) {
        self.shared
            .held
            .send_modify(|held| held[way as usize] = hold);
    }

    /// Lets everything that goes `way` come so much later.
    pub fn delay(&self, way: Way, by: Duration) {
        self.shared.delays.lock()[way as usize] = by;
    }

    /// How many armed cuts were made.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        *self.shared.cuts.borrow()
    }

    /// How many connections were passed on.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.made.load(Ordering::SeqCst)
    }

    /// Waits until so many armed cuts were made.
    pub async fn cuts_made(&self, count: u64) {
        // The sender lives in `self`.
        let _ = self
            .shared
            .cuts
            .subscribe()
            .wait_for(|made| *made >= count)
            .await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut_all();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((caller, _)) = listener.accept().await {
        let (open, all) = (OpenConnection::new(&shared), shared.all.subscribe());
        if shared.refusing.load(Ordering::SeqCst) {
            continue;
        }
        shared.made.fetch_add(1, Ordering::SeqCst);
        let server = *shared.server.lock();
        tokio::spawn(serve(caller, server, open, all));
    }
}

/// One connection, until one side closes it or the test does. Leaving drops both ends.
async fn serve(
    mut caller: TcpStream,
    server: SocketAddr,
    open: OpenConnection,
    mut all: watch::Receiver<u64>,
) {
    let shared = &open.0;
    let connected = tokio::select! {
        connected = TcpStream::connect(server) => connected,
        _ = all.changed() => return,
    };
    let Ok(mut server) = connected else { return };
    let _ = (caller.set_nodelay(true), server.set_nodelay(true));
    let (from_caller, to_caller) = caller.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        () = pass(shared, Way::Request, from_caller, to_server) => {}
        () = pass(shared, Way::Reply, from_server, to_caller) => {}
        _ = all.changed() => {}
    }
}

async fn pass(shared: &Shared, way: Way, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) {
    let mut held = shared.held.subscribe();
    let mut lot = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut lot).await {
        // The end of a connection is no lot: a cut that is armed waits for the next one.
        if count == 0 {
            return;
        }
        let delay = shared.delays.lock()[way as usize];
        if !delay.is_zero() {
            shared.clock.sleep(delay).await;
        }
        // The sender lives in `shared`.
        let _ = held.wait_for(|held| !held[way as usize]).await;
        let cut = shared.due(way);
        let passing = cut.map_or(count, |cut| cut.passing(count));
        if to.write_all(&lot[..passing]).await.is_err() {
            return;
        }
        if cut.is_some() {
            shared.cuts.send_modify(|made| *made += 1);
            return;
        }
    }
}

impl Shared {
    /// The cut that is due at this lot, if one is.
    fn due(&self, way: Way) -> Option<Cut> {
        let mut armed = self.armed.lock();
        let (lots, cut) = armed.front_mut()?;
        if cut.way() != way {
            return None;
        }
        if *lots > 0 {
            *lots -= 1;
            return None;
        }
        armed.pop_front().map(|(_, cut)| cut)
    }
}
