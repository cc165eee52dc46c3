//! A client that writes HTTP/2 frames itself, and so can misbehave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

const ACK: u8 = 1;
/// `END_STREAM` and `END_HEADERS`.
const WHOLE_REQUEST: u8 = 5;

/// `:method: GET`, `:scheme: http`, `:path: /` and `:authority: a` (HPACK).
const GET: [u8; 6] = [0x82, 0x86, 0x84, 0x01, 0x01, b'a'];

/// A connection that answers pings and reads all frames, but never opens its window.
pub(crate) struct FrameClient {
    writer: Arc<Mutex<OwnedWriteHalf>>,
    next_stream: u32,
    seen: Arc<Seen>,
}

/// What the server sent.
#[derive(Default)]
struct Seen {
    resets: AtomicUsize,
    is_closed: AtomicBool,
}

impl FrameClient {
    /// Connects, with so many bytes of window for each response.
    pub(crate) async fn connect(address: SocketAddr, window: u32) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an open connection");
        let (reader, mut writer) = stream.into_split();
        let preface = writer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        preface.expect("an open connection");
        // SETTINGS_INITIAL_WINDOW_SIZE is 4.
        let setting = [&[0, 4], &window.to_be_bytes()[..]].concat();
        let (writer, seen) = (Arc::new(Mutex::new(writer)), Arc::new(Seen::default()));
        write(&writer, SETTINGS, 0, 0, &setting).await;
        tokio::spawn(read_all(reader, Arc::clone(&writer), Arc::clone(&seen)));
        Self {
            writer,
            next_stream: 1,
            seen,
        }
    }

    /// Sends `GET /` and returns its stream.
    pub(crate) async fn get(&mut self) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        write(&self.writer, HEADERS, WHOLE_REQUEST, stream, &GET).await;
        stream
    }

    /// Resets a stream.
    pub(crate) async fn reset(&self, stream: u32) {
        // CANCEL is 8.
        write(&self.writer, RST_STREAM, 0, stream, &8u32.to_be_bytes()).await;
    }

    /// How many streams the server has reset.
    pub(crate) fn resets(&self) -> usize {
        self.seen.resets.load(Ordering::SeqCst)
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.seen.is_closed.load(Ordering::SeqCst)
    }
}

async fn write(writer: &Mutex<OwnedWriteHalf>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a short payload");
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    // The server may have closed the connection already.
    let _ = writer.lock().await.write_all(&frame).await;
}

async fn read_all(reader: OwnedReadHalf, writer: Arc<Mutex<OwnedWriteHalf>>, seen: Arc<Seen>) {
    let mut reader = tokio::io::BufReader::new(reader);
    let mut head = [0; 9];
    while reader.read_exact(&mut head).await.is_ok() {
        let [a, b, c, kind, flags, ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]);
        let mut payload = vec![0; length as usize];
        if reader.read_exact(&mut payload).await.is_err() {
            break;
        }
        match kind {
            SETTINGS if flags & ACK == 0 => write(&writer, SETTINGS, ACK, 0, &[]).await,
            PING if flags & ACK == 0 => write(&writer, PING, ACK, 0, &payload).await,
            RST_STREAM => {
                seen.resets.fetch_add(1, Ordering::SeqCst);
            }
            _ => {}
        }
    }
    seen.is_closed.store(true, Ordering::SeqCst);
}
