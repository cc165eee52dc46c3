//! [`Interceptor`]: a way to a Redis server that reads every command, and may answer or hold the
//! one that a test names.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, ReadHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The words of a command.
pub(crate) type Words = [Vec<u8>];

/// Whether a command is one that a test means.
type Fits = fn(&Words) -> bool;

/// How many bytes the header of a packed record has.
const HEADER_BYTES: usize = semel_core::record::HEADER_BYTES;

/// Writes a record, or may.
pub(crate) fn is_write(words: &Words) -> bool {
    [&b"SET"[..], b"EVAL", b"EVALSHA"].contains(&&words[0][..])
}

/// Looks at a record that a claim lost to: the one script without arguments.
pub(crate) fn is_look(words: &Words) -> bool {
    words[0].starts_with(b"EVAL") && words.len() == 4
}

/// Replaces a record if its header is the one given.
pub(crate) fn is_swap(words: &Words) -> bool {
    words[0].starts_with(b"EVAL") && words.len() == 7 && words[4].len() == HEADER_BYTES
}

/// Listens on the loopback address for as long as it lives. One command at a time on each
/// connection.
pub(crate) struct Interceptor {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    server: SocketAddr,
    rules: Mutex<Vec<Rule>>,
    /// The replies that were refusals, of the server's and of ours, in their order.
    refusals: watch::Sender<Vec<String>>,
}

struct Rule {
    fits: Fits,
    left: usize,
    action: Action,
}

#[derive(Clone)]
enum Action {
    Answer(Vec<u8>),
    Hold(watch::Sender<Stage>),
}

/// How far a held command has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Awaited,
    Held,
    LetGo,
}

/// A command that waits between its sender and the server.
pub(crate) struct Held {
    stage: watch::Sender<Stage>,
}

impl Held {
    /// Waits until the command has come.
    pub(crate) async fn has_come(&self) {
        let mut stages = self.stage.subscribe();
        let come = stages.wait_for(|stage| *stage == Stage::Held).await;
        come.expect("we hold the sender");
    }

    /// Lets the command go on to the server.
    pub(crate) fn let_go(self) {
        self.stage.send_replace(Stage::LetGo);
    }
}

impl Interceptor {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("a port");
        let shared = Arc::new(Shared {
            server,
            rules: Mutex::default(),
            refusals: watch::Sender::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Answers the next `times` commands that fit with `reply`; the server doesn't see them.
    pub(crate) fn answer(&self, times: usize, fits: Fits, reply: &str) {
        self.add(times, fits, Action::Answer(format!("{reply}\r\n").into()));
    }

    /// How many of the answers asked for were not given yet.
    pub(crate) fn answers_left(&self) -> usize {
        self.shared.rules.lock().iter().map(|rule| rule.left).sum()
    }

    /// Holds the next command that fits.
    pub(crate) fn hold(&self, fits: Fits) -> Held {
        let stage = watch::Sender::new(Stage::Awaited);
        self.add(1, fits, Action::Hold(stage.clone()));
        Held { stage }
    }

    fn add(&self, left: usize, fits: Fits, action: Action) {
        self.shared.rules.lock().push(Rule { fits, left, action });
    }

    /// Waits until so many refusals that begin with `code` have passed.
    pub(crate) async fn refused(&self, code: &str, times: usize) {
        let mut refusals = self.shared.refusals.subscribe();
        let count = |all: &Vec<String>| all.iter().filter(|line| line.starts_with(code)).count();
        let passed = refusals.wait_for(|all| count(all) >= times).await;
        passed.expect("the sender lives in `self`");
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn due(&self, words: &Words) -> Option<Action> {
        let mut rules = self.rules.lock();
        let rule = rules
            .iter_mut()
            .find(|rule| rule.left > 0 && (rule.fits)(words))?;
        rule.left -= 1;
        Some(rule.action.clone())
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((caller, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // A connection that ends is no failure of ours.
            let _ = serve(caller, &shared).await;
        });
    }
}

async fn serve(caller: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let server = TcpStream::connect(shared.server).await?;
    caller.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_caller, mut to_caller) = tokio::io::split(caller);
    let (from_server, mut to_server) = tokio::io::split(server);
    let (mut from_caller, mut from_server) =
        (BufReader::new(from_caller), BufReader::new(from_server));
    loop {
        let request = read_value(&mut from_caller).await?;
        let mut answer = None;
        match shared.due(&words(&request)) {
            Some(Action::Answer(reply)) => answer = Some(reply),
            Some(Action::Hold(stage)) => {
                stage.send_replace(Stage::Held);
                let mut stages = stage.subscribe();
                let _ = stages.wait_for(|stage| *stage == Stage::LetGo).await;
            }
            None => {}
        }
        let reply = match answer {
            Some(reply) => reply,
            None => {
                to_server.write_all(&request).await?;
                read_value(&mut from_server).await?
            }
        };
        if let Some(refusal) = reply.strip_prefix(b"-") {
            let line = String::from_utf8_lossy(refusal).into_owned();
            shared.refusals.send_modify(|all| all.push(line));
        }
        to_caller.write_all(&reply).await?;
    }
}

/// One value of RESP2, as it came.
async fn read_value(from: &mut BufReader<ReadHalf<TcpStream>>) -> std::io::Result<Vec<u8>> {
    let (mut raw, mut pending) = (Vec::new(), 1_usize);
    while pending > 0 {
        pending -= 1;
        let begin = raw.len();
        if from.read_until(b'\n', &mut raw).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8_lossy(&raw[begin..]);
        // Below zero: nothing follows.
        let Ok(number) = line[1..].trim_end().parse::<usize>() else {
            continue;
        };
        match raw[begin] {
            b'*' => pending += number,
            b'$' => {
                let begin = raw.len();
                raw.resize(begin + number + 2, 0);
                from.read_exact(&mut raw[begin..]).await?;
            }
            _ => {}
        }
    }
    Ok(raw)
}

fn words(request: &[u8]) -> Vec<Vec<u8>> {
    let value = redis::parse_redis_value(request).expect("a command");
    redis::from_redis_value(value).expect("a list of words")
}
