//! The demo's PBX: a real WebSocket server that tells the recordings as amiws would.

use super::recording::TimedFrame;
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Serves the first client that comes: all recordings, each frame at its time. Then the line
/// stays open, as a PBX's does, until the client goes.
///
/// # Errors
/// When the client breaks the line.
pub(crate) async fn serve(listener: TcpListener, frames: Vec<TimedFrame>) -> Result<(), Error> {
    let (stream, _) = listener.accept().await?;
    play(stream, frames).await
}

async fn play(stream: TcpStream, frames: Vec<TimedFrame>) -> Result<(), Error> {
    let socket = tokio_tungstenite::accept_async(stream).await?;
    let (mut write, mut read) = socket.split();
    let begin = Instant::now();
    let tell = async {
        for frame in frames {
            let after = Duration::from_micros(u64::try_from(frame.after_micros).unwrap_or(0));
            tokio::time::sleep_until(begin + after).await;
            write.send(Message::text(frame.text)).await?;
        }
        std::future::pending::<Result<(), Error>>().await
    };
    // Pings are answered only while the line is read.
    let listen = async { while matches!(read.next().await, Some(Ok(_))) {} };
    tokio::select! {
        told = tell => told,
        () = listen => Ok(()),
    }
}
