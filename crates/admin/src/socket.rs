//! The Unix socket in the state folder, mode 0600. `status`, `dead`, `lead`, and other commands
//! send requests to the running daemon through it.

use super::protocol::{ControlReply, ControlRequest};
use super::user;
use callbridge_listener::accept::Acceptor;
use callbridge_model::{Zone, plain_file};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

pub const NAME: &str = "control.sock";
/// The private folder in which the socket is created before it is moved into the state folder.
const NURSERY: &str = ".control";
/// Maximum length of a request in bytes.
const QUESTION_BYTES_MAX: u64 = 1 << 20;
/// Time between two checks that the socket's file still exists.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of requests that are answered at the same time.
const CONNECTIONS_MAX: usize = 16;

/// A folder that is kept open. The socket's path goes through `/proc/self/fd`, so it stays below
/// the 107 bytes of a Unix socket address, even if the folder's path is long.
struct Folder {
    _held: std::fs::File,
    path: PathBuf,
}

impl Folder {
    fn open(state: &Path) -> io::Result<Self> {
        let held = plain_file::folder(state)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{NAME}", held.as_raw_fd()));
        Ok(Self { _held: held, path })
    }
}

/// Answers the requests of commands. Each [`ControlReply`] is sent as soon as it is known. The last
/// reply is `End` or `Error`.
pub trait AnswerRequest: Send + Sync + 'static {
    /// Answers the request of the Unix user `who`, and sends the replies to `to`. Completes when
    /// everything was sent or the client has disconnected.
    fn answer(
        &self,
        ask: ControlRequest,
        who: &str,
        to: mpsc::Sender<ControlReply>,
    ) -> impl Future<Output = ()> + Send;
}

/// Listens on the socket in the state folder. A socket left by a killed process is replaced,
/// because the spool's lock proves that no other process uses this folder. The socket is created in
/// a folder that no other user can enter, and moved once it is private. So no other user can ever
/// connect, whatever the umask.
///
/// # Errors
/// If the folder cannot be written.
pub fn listen(state: &Path) -> io::Result<UnixListener> {
    let nursery = state.join(NURSERY);
    match std::fs::remove_dir_all(&nursery) {
        // A leftover file is in the folder's place.
        Err(error) if error.kind() == ErrorKind::NotADirectory => std::fs::remove_file(&nursery)?,
        removed => none_if_absent(removed).map(drop)?,
    }
    std::fs::DirBuilder::new().mode(0o700).create(&nursery)?;
    let listener = UnixListener::bind(&Folder::open(&nursery)?.path)?;
    let born = nursery.join(NAME);
    std::fs::set_permissions(&born, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&born, state.join(NAME))?;
    none_if_absent(std::fs::remove_dir(&nursery))?;
    Ok(listener)
}

/// Answers requests with `handler` until `shutdown` completes. If the socket's file is deleted, a
/// new socket is created.
pub async fn keep<A: AnswerRequest>(
    state: PathBuf,
    listener: UnixListener,
    handler: Arc<A>,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = std::pin::pin!(shutdown);
    let mut listening = Some(listener);
    let mut looks = tokio::time::interval(CHECK_EVERY);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut answers = JoinSet::new();
    let mut incoming = Acceptor::new("commands");
    loop {
        let next = async {
            match &listening {
                Some(listener) => incoming.next(|| listener.accept()).await,
                None => std::future::pending().await,
            }
        };
        let (stream, _) = tokio::select! {
            () = &mut shutdown => break,
            taken = next => taken,
            _ = looks.tick() => {
                let is_there = state.join(NAME).exists();
                if listening.is_none() {
                    listening = listen(&state).ok();
                } else if !is_there {
                    tracing::warn!("the socket for commands is gone from {}", state.display());
                    listening = None;
                }
                continue;
            }
        };
        while answers.try_join_next().is_some() {}
        let Ok(permit) = room.clone().try_acquire_owned() else {
            refuse(&stream);
            continue;
        };
        let handler = Arc::clone(&handler);
        answers.spawn(async move {
            let _permit = permit;
            if let Err(error) = converse(stream, &*handler).await {
                tracing::debug!(%error, "a command ended before it received its answer");
            }
        });
    }
    answers.shutdown().await;
}

async fn converse<A: AnswerRequest>(stream: UnixStream, handler: &A) -> io::Result<()> {
    // The system reports the user. A name in the request could be false.
    let who = user::name_of(stream.peer_cred()?.uid());
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read.take(QUESTION_BYTES_MAX));
    let mut line = String::new();
    read.read_line(&mut line).await?;
    let ask = match serde_json::from_str::<ControlRequest>(&line) {
        Ok(ask) => ask,
        Err(error) => {
            let message = format!("the daemon does not know this request: {error}");
            return send(&mut write, &ControlReply::Error { code: 64, message }).await;
        }
    };
    let (to, mut from) = mpsc::channel(64);
    let answer = handler.answer(ask, &who, to);
    let pass = async {
        while let Some(reply) = from.recv().await {
            send(&mut write, &reply).await?;
        }
        Ok(())
    };
    // An interrupted command closes its end of the connection. Then the answer stops.
    let gone = async {
        let mut rest = [0_u8; 1];
        while matches!(read.read(&mut rest).await, Ok(1..)) {}
    };
    tokio::select! {
        ((), passed) = async { tokio::join!(answer, pass) } => passed,
        () = gone => Ok(()),
    }
}

/// Sends an error to a command because too many commands are being answered. Sends nothing if the
/// connection would block.
fn refuse(stream: &UnixStream) {
    let message = format!("the daemon is already answering {CONNECTIONS_MAX} commands; try again");
    let busy = ControlReply::Error { code: 69, message };
    if let Ok(line) = serde_json::to_string(&busy) {
        let _ = stream.try_write(format!("{line}\n").as_bytes());
    }
}

async fn send(write: &mut (impl AsyncWriteExt + Unpin), reply: &ControlReply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    write.write_all(&line).await
}

/// Returns `true` if a daemon listens in this state folder. A busy or frozen daemon counts, too.
///
/// # Errors
/// If the socket's path is something other than a socket, or cannot be connected to.
pub async fn is_listening(state: &Path) -> io::Result<bool> {
    Ok(connect(state).await?.is_some())
}

/// Sends a request to the daemon of this state folder, waits for the first reply, and returns a
/// reader of the replies. Returns `None` if no daemon runs, or if the daemon ended before it read
/// the request.
///
/// # Errors
/// If the daemon is there but communication fails.
pub async fn ask(state: &Path, ask: &ControlRequest) -> io::Result<Option<Replies>> {
    let Some(stream) = connect(state).await? else {
        return Ok(None);
    };
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    // A daemon that stops reading the request may have sent the reason, so its reply is read.
    let wrote = write.write_all(&line).await;
    match read.fill_buf().await.map(|reply| !reply.is_empty()) {
        Ok(is_said) if is_said || wrote.is_ok() => Ok(Some(Replies {
            from: RepliesFrom::Daemon {
                lines: read.lines(),
                _write: write,
            },
            zone: None,
        })),
        Ok(_) => Ok(None),
        // Linux reports this if the daemon closed the connection before it read the request.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns a connection to the daemon of this state folder. Returns `None` if no daemon runs.
async fn connect(state: &Path) -> io::Result<Option<UnixStream>> {
    let Some(folder) = none_if_absent(Folder::open(state))? else {
        return Ok(None);
    };
    // A link could lead to a socket that accepts every request and never answers.
    let found = folder.path.symlink_metadata();
    if found.is_ok_and(|found| !found.file_type().is_socket()) {
        let message = format!("{NAME} is not a socket of callbridge: move it away");
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    none_if_absent(UnixStream::connect(&folder.path).await)
}

/// Returns `None` for an error that means that no daemon runs. `NotADirectory` is such an error,
/// because the spool reports a file in the folder's place. `ConnectionReset` means that the
/// listener closed before it accepted the connection.
fn none_if_absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    use ErrorKind::{ConnectionRefused, ConnectionReset, NotADirectory, NotFound};
    let absent = [NotFound, NotADirectory, ConnectionRefused, ConnectionReset];
    match result {
        Err(error) if absent.contains(&error.kind()) => Ok(None),
        result => result.map(Some),
    }
}

/// The replies to one request, from the daemon or from a handler in this process.
pub struct Replies {
    from: RepliesFrom,
    zone: Option<Zone>,
}

enum RepliesFrom {
    Daemon {
        lines: Lines<BufReader<OwnedReadHalf>>,
        _write: OwnedWriteHalf,
    },
    Here(mpsc::Receiver<ControlReply>),
}

impl Replies {
    /// Makes a reader of replies that a handler in this process sends.
    pub const fn from_handler(replies: mpsc::Receiver<ControlReply>) -> Self {
        Self {
            from: RepliesFrom::Here(replies),
            zone: None,
        }
    }

    /// Returns the next reply. `None` if the daemon closed the connection.
    ///
    /// # Errors
    /// If the connection breaks or the daemon uses another protocol.
    pub async fn next(&mut self) -> io::Result<Option<ControlReply>> {
        loop {
            let reply = match &mut self.from {
                RepliesFrom::Daemon { lines, .. } => match lines.next_line().await? {
                    Some(line) => Some(serde_json::from_str(&line).map_err(io::Error::other)?),
                    None => None,
                },
                RepliesFrom::Here(replies) => replies.recv().await,
            };
            match reply {
                Some(ControlReply::Zone(name)) => self.zone = Zone::from_name(&name),
                reply => return Ok(reply),
            }
        }
    }

    /// Returns the zone of the daemon's PBX, if it has been received.
    pub fn zone(&self) -> Option<&Zone> {
        self.zone.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl AnswerRequest for Echo {
        async fn answer(
            &self,
            request: ControlRequest,
            who: &str,
            replies: mpsc::Sender<ControlReply>,
        ) {
            let mut item = serde_json::to_value(&request).expect("a question");
            item["who"] = who.into();
            let _ = replies
                .send(ControlReply::Zone("Asia/Tashkent".to_owned()))
                .await;
            let _ = replies.send(ControlReply::Item(item)).await;
            let _ = replies.send(ControlReply::End { count: 1 }).await;
        }
    }

    #[tokio::test]
    async fn socket_in_folder_with_very_long_path_answers_requests() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("d".repeat(120)).join("e".repeat(120));
        std::fs::create_dir_all(&deep).expect("a folder");
        assert!(
            ask(&deep, &ControlRequest::Status)
                .await
                .expect("an answer")
                .is_none(),
            "nobody is there"
        );
        let listener = listen(&deep).expect("a listener");
        let mode = std::fs::metadata(deep.join(NAME))
            .expect("a socket")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(keep(deep.clone(), listener, Arc::new(Echo), async {
            let _ = stopped.await;
        }));
        let mut replies = ask(&deep, &ControlRequest::Watch)
            .await
            .expect("a line")
            .expect("a daemon");
        let first = replies.next().await.expect("a line");
        assert_eq!(
            first,
            Some(ControlReply::Item(
                serde_json::json!({"ask": "watch", "who": user::own_name()})
            ))
        );
        let zone = Zone::from_name("Asia/Tashkent");
        assert_eq!(
            replies.zone(),
            zone.as_ref(),
            "the zone arrives before all other replies"
        );
        assert_eq!(
            replies.next().await.expect("a line"),
            Some(ControlReply::End { count: 1 })
        );
        assert_eq!(replies.next().await.expect("a line"), None);
        stop.send(()).expect("a server");
        server.await.expect("it ends");
        // The daemon ended before it read the request.
        let listener = listen(&deep).expect("a listener");
        let (unread, ()) = tokio::join!(ask(&deep, &ControlRequest::Status), async {
            let (line, _) = listener.accept().await.expect("a line");
            line.readable().await.expect("a question");
        });
        assert!(unread.expect("no fault").is_none());
        // The daemon ended before it accepted the connection.
        let (unaccepted, ()) = tokio::join!(ask(&deep, &ControlRequest::Status), async {
            drop(listener);
        });
        assert!(unaccepted.expect("no fault").is_none());
        // A file left by a killed process does not interfere.
        assert!(
            ask(&deep, &ControlRequest::Status)
                .await
                .expect("no fault")
                .is_none()
        );
        listen(&deep).expect("again");
    }

    #[tokio::test]
    async fn command_over_the_connection_limit_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = listen(folder.path()).expect("a listener");
        let state = folder.path().to_owned();
        let echo = Arc::new(Echo);
        let server = tokio::spawn(keep(state, listener, echo, std::future::pending()));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            silent.push(connect(folder.path()).await.expect("a line"));
        }
        let replies = ask(folder.path(), &ControlRequest::Status).await;
        let mut replies = replies.expect("a line").expect("a daemon");
        let reply = replies.next().await.expect("a line");
        let message = "the daemon is already answering 16 commands; try again".to_owned();
        assert_eq!(reply, Some(ControlReply::Error { code: 69, message }));
        assert_eq!(silent.iter().flatten().count(), CONNECTIONS_MAX);
        server.abort();
    }
}
