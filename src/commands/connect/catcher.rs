//! Catches the browser's way back where it ends on this machine: a listener for one path, with a
//! short page for the person in front of it.

use crate::privilege::Held;
use callbridge_listener::accept::Acceptor;
use callbridge_model::secret::Secret;
use callbridge_oauth::consent::{Back, Redirect, read};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::Url;

/// Bytes of a request's head.
const HEAD_MAX: usize = 16 * 1024;
/// So long a request may take to come, and its answer to go.
const WITHIN: Duration = Duration::from_secs(10);
/// Connections at one time; more wait.
const LINES_MAX: usize = 16;

/// Listens for the redirect.
#[derive(Debug)]
pub(crate) struct Catcher {
    listeners: Vec<TcpListener>,
    path: String,
}

/// Why the way back cannot be caught.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unheard {
    /// Another program listens where the browser will go: the code would be its.
    #[error(
        "cannot listen at {address}: another program does, and the browser would bring the \
         consent's code for {redirect} to it. End it, or register another port and give that as \
         --redirect-uri"
    )]
    Taken {
        address: SocketAddr,
        /// As it is registered.
        redirect: String,
    },
    /// We may not, or the machine has no such address: nobody else gets it.
    #[error("cannot listen at {address}: {error}")]
    Closed {
        address: SocketAddr,
        error: std::io::Error,
    },
}

impl Catcher {
    /// Listens at the redirect's own address, at each of them: a browser may take either one of
    /// `localhost`, and what listens at the other would get the code. `Ok(None)` where it is not
    /// on this machine.
    ///
    /// # Errors
    /// When it cannot have all of its addresses.
    pub(crate) async fn listen(redirect: &Redirect, held: &Held) -> Result<Option<Self>, Unheard> {
        let Some(addresses) = redirect.listen() else {
            return Ok(None);
        };
        let (mut listeners, mut missing) = (Vec::new(), None);
        for address in addresses {
            match held.listener(address).await {
                Ok(listener) => listeners.push(listener),
                Err(error) if is_no_address_of_ours(&error) => {
                    missing = Some(Unheard::Closed { address, error });
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    let redirect = redirect.text.clone();
                    return Err(Unheard::Taken { address, redirect });
                }
                Err(error) => return Err(Unheard::Closed { address, error }),
            }
        }
        let path = redirect.path().to_owned();
        match missing {
            Some(missing) if listeners.is_empty() => Err(missing),
            Some(_) | None => Ok(Some(Self { listeners, path })),
        }
    }

    /// Serves until it is dropped; every way back goes out, wrong ones, too.
    pub(crate) async fn serve(self, state: Secret, backs: mpsc::Sender<Back>) {
        let lines = Arc::new(Semaphore::new(LINES_MAX));
        let path: Arc<str> = self.path.into();
        let mut serving = JoinSet::new();
        for listener in self.listeners {
            let (lines, path) = (Arc::clone(&lines), Arc::clone(&path));
            let (state, backs) = (state.clone(), backs.clone());
            serving.spawn(async move {
                let mut answering = JoinSet::new();
                let mut incoming = Acceptor::new("--redirect-uri");
                while let Ok(line) = Arc::clone(&lines).acquire_owned().await {
                    let (stream, _) = incoming.next(&listener).await;
                    let (path, state, backs) = (Arc::clone(&path), state.clone(), backs.clone());
                    answering.spawn(async move {
                        let answered = timeout(WITHIN, answer(stream, &path, &state)).await;
                        drop(line);
                        if let Ok(Some(back)) = answered {
                            // nobody waits any more: it came too late
                            let _ = backs.send(back).await;
                        }
                    });
                    while answering.try_join_next().is_some() {}
                }
            });
        }
        while serving.join_next().await.is_some() {}
    }
}

/// The machine has no such address: without IPv6 there is no `::1`, and nobody listens there.
fn is_no_address_of_ours(error: &std::io::Error) -> bool {
    let unsupported = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(unsupported)
}

/// Answers one request; what it brought, where it is the redirect.
async fn answer(mut stream: TcpStream, path: &str, state: &Secret) -> Option<Back> {
    let head = head(&mut stream).await?;
    let (status, words, back) = judge(&head, path, state);
    let page = page(words);
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\n\
         connection: close\r\n\r\n{page}",
        page.len()
    );
    stream.write_all(answer.as_bytes()).await.ok();
    stream.shutdown().await.ok();
    back
}

/// The head of a request; `None` when none comes, or it is too long.
async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut some = [0; 2048];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut some).await.ok()?;
        if count == 0 || bytes.len() + count > HEAD_MAX {
            return None;
        }
        bytes.extend_from_slice(&some[..count]);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Status, words for the page, and what the request brought.
fn judge(head: &str, path: &str, state: &Secret) -> (&'static str, &'static str, Option<Back>) {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let base = Url::parse("http://localhost/").ok();
    let url = match target.starts_with('/') {
        // a target that begins with // would name another host
        true => base.and_then(|base| {
            base.join(&format!("/{}", target.trim_start_matches('/')))
                .ok()
        }),
        false => None,
    };
    let Some(url) = url.filter(|url| url.path() == path) else {
        return (
            "404 Not Found",
            "callbridge waits for a consent, and not at this address.",
            None,
        );
    };
    if method != "GET" {
        let words = "callbridge waits for the browser's redirect, which is a GET.";
        return ("405 Method Not Allowed", words, None);
    }
    match read(url.query().unwrap_or_default(), state) {
        back @ Back::Code(_) => (
            "200 OK",
            "The consent has arrived. You can close this page; the terminal says how it went on.",
            Some(back),
        ),
        back @ Back::Declined => (
            "200 OK",
            "The consent was declined. Nothing was connected; you can close this page.",
            Some(back),
        ),
        back @ Back::Failed(_) => (
            "200 OK",
            "The CRM did not ask for consent. Nothing was connected; the terminal says why.",
            Some(back),
        ),
        back @ Back::Wrong(_) => (
            "400 Bad Request",
            "This does not answer callbridge's question, and nothing was done. Open the address \
             that the terminal shows.",
            Some(back),
        ),
    }
}

fn page(words: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>callbridge</title>\
         <p>{words}</p></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::secret::ExposeSecret as _;

    fn judged(line: &str) -> (&'static str, Option<Back>) {
        let head = format!("{line}\r\nhost: 127.0.0.1:1\r\n\r\n");
        let (status, _, back) = judge(&head, "/back", &Secret::from("s1"));
        (status, back)
    }

    #[test]
    fn only_a_get_of_the_right_path_is_the_redirect() {
        for (line, status, comes) in [
            ("GET /back?code=c&state=s1 HTTP/1.1", "200 OK", true),
            (
                "GET /back?error=access_denied&state=s1 HTTP/1.1",
                "200 OK",
                true,
            ),
            (
                "GET /back?code=c&state=no HTTP/1.1",
                "400 Bad Request",
                true,
            ),
            ("GET /back HTTP/1.1", "400 Bad Request", true),
            (
                "POST /back?code=c&state=s1 HTTP/1.1",
                "405 Method Not Allowed",
                false,
            ),
            (
                "HEAD /back?code=c&state=s1 HTTP/1.1",
                "405 Method Not Allowed",
                false,
            ),
            ("GET /favicon.ico HTTP/1.1", "404 Not Found", false),
            (
                "GET /back/x?code=c&state=s1 HTTP/1.1",
                "404 Not Found",
                false,
            ),
            (
                "GET http://127.0.0.1/back?code=c&state=s1 HTTP/1.1",
                "404 Not Found",
                false,
            ),
            ("", "404 Not Found", false),
        ] {
            let (said, back) = judged(line);
            assert_eq!((said, back.is_some()), (status, comes), "{line}");
        }
        let (_, back) = judged("GET /back?code=c%20d&state=s1 HTTP/1.1");
        assert!(matches!(back, Some(Back::Code(code)) if code.expose_secret() == "c d"));
    }

    #[tokio::test]
    async fn a_forged_hit_is_answered_and_the_true_one_may_still_come() {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        let redirect = Redirect::parse(&format!("http://127.0.0.1:{port}/back")).expect("good");
        let catcher = Catcher::listen(&redirect, &Held::default())
            .await
            .expect("it listens")
            .expect("here");
        let busy = Catcher::listen(&redirect, &Held::default())
            .await
            .expect_err("in use");
        let words = busy.to_string();
        assert!(words.starts_with("cannot listen at 127.0.0.1"), "{words}");
        let (backs, mut hears) = mpsc::channel(4);
        let serving = tokio::spawn(catcher.serve(Secret::from("s1"), backs));
        let mut silent = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("connected");
        silent.write_all(b"GET /back?co").await.expect("sent");
        for (query, good) in [("code=c&state=no", false), ("code=c&state=s1", true)] {
            let mut line = TcpStream::connect(("127.0.0.1", port))
                .await
                .expect("connected");
            let request = format!("GET /back?{query} HTTP/1.1\r\n\r\n");
            line.write_all(request.as_bytes()).await.expect("sent");
            let mut page = String::new();
            line.read_to_string(&mut page).await.expect("a page");
            assert_eq!(page.starts_with("HTTP/1.1 200 OK\r\n"), good, "{page}");
            let back = hears.recv().await.expect("a way back");
            assert_eq!(back.is_final(), good);
        }
        serving.abort();
    }

    #[tokio::test]
    async fn on_localhost_it_holds_both_addresses_or_none() {
        // A machine without IPv6 has one, and there is no other half to be taken.
        let Ok(other) = TcpListener::bind("[::1]:0").await else {
            return;
        };
        let port = other.local_addr().expect("its address").port();
        let redirect = Redirect::parse(&format!("http://localhost:{port}/back")).expect("good");
        let refused = Catcher::listen(&redirect, &Held::default())
            .await
            .expect_err("half is taken");
        let words = refused.to_string();
        assert!(words.contains(&format!("[::1]:{port}: another")), "{words}");
        let free = TcpListener::bind(("127.0.0.1", port)).await;
        drop(free.expect("nothing of it is held"));
        drop(other);
        let catcher = Catcher::listen(&redirect, &Held::default())
            .await
            .expect("both are free");
        let held = catcher.expect("here").listeners;
        assert_eq!(held.len(), 2);
    }
}
