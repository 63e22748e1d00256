//! The demo's PBXs, which are a WebSocket server that plays the recordings as amiws would, and a
//! TCP server that behaves like FreeSWITCH's event socket.

use super::recording::TimedFrame;
use futures_util::{SinkExt, StreamExt};
use std::{io, time::Duration};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::{net::TcpListener, net::tcp::OwnedWriteHalf, time::Instant};
use tokio_tungstenite::tungstenite::{Error, Message};

/// Serves the first client by sending each frame at its time after the connection was established.
/// After that, the connection is kept open until the client closes it, as a real PBX would.
///
/// # Errors
/// Returns an error if the client breaks the connection.
pub(crate) async fn serve(listener: TcpListener, frames: Vec<TimedFrame>) -> Result<(), Error> {
    let (stream, _) = listener.accept().await?;
    let socket = tokio_tungstenite::accept_async(stream).await?;
    let (mut write, mut read) = socket.split();
    let begin = Instant::now();
    let play = async {
        for frame in frames {
            let after = Duration::from_micros(u64::try_from(frame.after_micros).unwrap_or(0));
            tokio::time::sleep_until(begin + after).await;
            write.send(Message::text(frame.text)).await?;
        }
        std::future::pending::<Result<(), Error>>().await
    };
    // Pings are only responded to while the connection is being read.
    let listen = async { while matches!(read.next().await, Some(Ok(_))) {} };
    tokio::select! {
        played = play => played,
        () = listen => Ok(()),
    }
}

/// The demo's password, which isn't a secret, because it's only valid on loopback and during the
/// demo.
pub(crate) const PASSWORD: &str = "demo";

/// The command with which a client lists the channels after subscribing.
const LIST: &str = "api show channels as json";

/// Serves the first client by accepting its login and sending each event at its time after the
/// client has listed the channels. After that, the connection is kept open until the client closes
/// it.
///
/// # Errors
/// Returns an error if the client breaks the connection.
pub(crate) async fn serve_event_socket(
    listener: TcpListener,
    events: Vec<TimedFrame>,
) -> io::Result<()> {
    let (stream, _) = listener.accept().await?;
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    write.write_all(b"Content-Type: auth/request\n\n").await?;
    let mut events = events.into_iter().peekable();
    let mut begun: Option<Instant> = None;
    loop {
        let next = begun.and_then(|begun| {
            let after = u64::try_from(events.peek()?.after_micros).unwrap_or(0);
            Some(begun + Duration::from_micros(after))
        });
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            line = lines.next_line() => match line? {
                None => return Ok(()),
                Some(command) => {
                    answer(&mut write, &command).await?;
                    // Calls don't start until the client has listed the channels.
                    if command == LIST {
                        begun = Some(Instant::now());
                    }
                }
            },
            () = due => {
                if let Some(event) = events.next() {
                    write_frame(&mut write, "text/event-json", &event.text).await?;
                }
            }
        }
    }
}

async fn answer(write: &mut OwnedWriteHalf, command: &str) -> io::Result<()> {
    let reply = match command {
        // Commands end with an empty line.
        "" => return Ok(()),
        LIST => return write_frame(write, "api/response", "{\"row_count\":0}").await,
        "api uptime ms" => return write_frame(write, "api/response", "86400000\n").await,
        _ if command.starts_with("api ") => {
            return write_frame(write, "api/response", "-ERR not in the demo\n").await;
        }
        _ if command == format!("auth {PASSWORD}") => "+OK accepted",
        _ if command.starts_with("auth ") => "-ERR invalid",
        _ => "+OK",
    };
    let reply = format!("Content-Type: command/reply\nReply-Text: {reply}\n\n");
    write.write_all(reply.as_bytes()).await
}

async fn write_frame(write: &mut OwnedWriteHalf, kind: &str, body: &str) -> io::Result<()> {
    let head = format!("Content-Length: {}\nContent-Type: {kind}\n\n", body.len());
    write.write_all((head + body).as_bytes()).await
}
