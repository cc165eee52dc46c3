//! Newline-delimited JSON: messages as lines on standard input and output, or on those of a
//! process.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::sync::mpsc;

use crate::message::MAX_BYTES;
use crate::peer::{Peer, QUEUE};

/// Connects a reader and a writer of lines. Stops reading at the end, or at a line that is too
/// long.
pub(crate) fn connect<R, W>(reader: R, writer: W) -> (Peer, tokio::task::JoinHandle<()>)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (say, incoming) = mpsc::channel(QUEUE);
    let (outgoing, to_write) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let mut reader = BufReader::with_capacity(64 * 1024, reader);
        loop {
            match read(&mut reader, MAX_BYTES).await {
                Ok(Some(line)) if line.is_empty() => {}
                Ok(Some(line)) => {
                    if say.send(line).await.is_err() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return tracing::warn!("closing a connection: {error}"),
            }
        }
    });
    let written = tokio::spawn(async move {
        // The read side notices when the peer has gone.
        let _ = write(writer, to_write).await;
    });
    (Peer { incoming, outgoing }, written)
}

/// The next line, without its end.
async fn read<R: AsyncBufRead + Unpin>(reader: &mut R, most: usize) -> io::Result<Option<Bytes>> {
    let mut line = BytesMut::new();
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            let line = (!line.is_empty()).then(|| line.freeze());
            return Ok(line);
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&available[..end.unwrap_or(available.len())]);
        let used = end.map_or(available.len(), |end| end + 1);
        reader.consume(used);
        if line.len() > most {
            let text = format!("a message has more than {most} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            return Ok(Some(line.freeze()));
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut writer: W,
    mut lines: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    let mut out = BytesMut::new();
    while let Some(line) = lines.recv().await {
        push(&mut out, &line);
        while out.len() < MAX_BYTES
            && let Ok(line) = lines.try_recv()
        {
            push(&mut out, &line);
        }
        writer.write_all(&out).await?;
        writer.flush().await?;
        out.clear();
    }
    writer.shutdown().await
}

/// Writes a message as one line. JSON allows line breaks only as white space, so they become
/// spaces.
fn push(out: &mut BytesMut, message: &[u8]) {
    if message.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let space = |byte: &u8| {
            if matches!(byte, b'\n' | b'\r') {
                b' '
            } else {
                *byte
            }
        };
        out.extend(message.iter().map(space));
    } else {
        out.extend_from_slice(message);
    }
    out.extend_from_slice(b"\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_complete_and_bounded() {
        let mut text: &[u8] = b"{\"a\":1}\r\n\n[2]\nlast";
        let mut lines = Vec::new();
        while let Some(line) = read(&mut text, 10).await.unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["{\"a\":1}", "", "[2]", "last"]);
        let mut long: &[u8] = b"0123456789a\n";
        assert!(read(&mut long, 10).await.is_err());
    }

    #[test]
    fn message_is_written_as_one_line() {
        let mut out = BytesMut::new();
        push(&mut out, b"{\r\n\"a\": 1}");
        assert_eq!(&*out, b"{  \"a\": 1}\n");
    }
}
