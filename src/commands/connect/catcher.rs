//! Receives the browser's redirect after the consent, if it goes to this machine. Listens for a
//! single path, and responds with a short page for the user.

use crate::daemon::tasks::has_stopped;
use crate::{Failure, Result};
use callbridge_listener::body::{Body, response, whole};
use callbridge_listener::hyper::header::{CACHE_CONTROL, HeaderValue, REFERRER_POLICY};
use callbridge_listener::hyper::{Method, Request, Response, StatusCode, Uri};
use callbridge_listener::serve::{AnswerHttp, Limits, Open, serve};
use callbridge_listener::site::SiteRules;
use callbridge_listener::{hyper::body::Incoming, places::ConnectionPlace};
use callbridge_model::{Code, Secret};
use callbridge_oauth::consent::{ConsentReply, Redirect, read};
use callbridge_ops::log::say;
use futures_util::future::join_all;
use std::{io::ErrorKind, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::mpsc, sync::watch};

const LIMITS: Limits = Limits {
    connections: 16,
    head_within: Duration::from_secs(10),
    ..Limits::FEW
};

/// The listeners on the redirect's addresses on this machine.
#[derive(Debug)]
pub(crate) struct Catcher {
    listeners: Vec<TcpListener>,
    path: String,
}

impl Catcher {
    /// Listens on all of the redirect's addresses, because a browser may use either address of
    /// `localhost`, and another program listening on one of them would receive the code. Returns
    /// `Ok(None)` if the redirect goes to another machine, or if this machine can't listen there,
    /// in which case the reason is printed.
    ///
    /// # Errors
    /// Returns an error if another program is listening on one of the addresses.
    pub(crate) async fn listen(redirect: &Redirect) -> Result<Option<Self>> {
        let Some(addresses) = redirect.listen() else {
            return Ok(None);
        };
        let mut listeners = Vec::new();
        let mut closed = None;
        for address in addresses {
            match TcpListener::bind(address).await {
                Ok(listener) => listeners.push(listener),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    let message = format!(
                        "cannot listen at {address}: another program listens there, and would \
                         receive the consent's code for {}. Stop that program, or register another \
                         port and give it with --redirect-uri",
                        redirect.text
                    );
                    return Err(Failure::new(Code::Usage, message));
                }
                Err(error) => {
                    closed = Some(format!("cannot listen at {address}: {error}"));
                    if !is_no_address_of_ours(&error) {
                        listeners.clear();
                        break;
                    }
                }
            }
        }
        if let Some(message) = closed
            && listeners.is_empty()
        {
            say(&message);
            return Ok(None);
        }
        let path = redirect.path().to_owned();
        Ok(Some(Self { listeners, path }))
    }

    /// Serves until `stopped` is `true`, and completes any responses in progress. Sends every
    /// redirect to `backs`, even one without the expected `state`.
    pub(crate) async fn serve(
        self,
        state: Secret,
        backs: mpsc::Sender<ConsentReply>,
        stopped: watch::Receiver<bool>,
    ) {
        let path = self.path;
        let answer = Arc::new(RedirectPage { path, state, backs });
        let serving = self.listeners.into_iter().map(|listener| {
            let open = Open {
                name: "--redirect-uri",
                listener,
                tls: None,
                limits: LIMITS,
                site: SiteRules {
                    // The browser is redirected here by the CRM's consent page, as proven by the
                    // `state` parameter.
                    navigation: true,
                    ..SiteRules::STRICT
                },
            };
            serve(open, Arc::clone(&answer), has_stopped(stopped.clone()))
        });
        join_all(serving).await;
    }
}

/// Returns `true` if the error means that this machine doesn't have the address. Without IPv6,
/// there's no `::1`, so no program can listen there.
fn is_no_address_of_ours(error: &std::io::Error) -> bool {
    let unsupported = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(unsupported)
}

/// The page shown by the browser after the redirect.
struct RedirectPage {
    path: String,
    state: Secret,
    backs: mpsc::Sender<ConsentReply>,
}

impl AnswerHttp for RedirectPage {
    async fn answer(&self, place: &ConnectionPlace, request: Request<Incoming>) -> Response<Body> {
        let _answering = place.answer();
        let (status, message, back) =
            judge(request.method(), request.uri(), &self.path, &self.state);
        if let Some(back) = back {
            // This fails if the code arrives too late and nothing is waiting for it anymore.
            let _ = self.backs.send(back).await;
        }
        let mut page = response(status, "text/html; charset=utf-8", whole(page(message)));
        let headers = page.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        page
    }
}

/// Returns the HTTP status, the page's text, and the consent's reply in the request, if any. `path`
/// and `state` are the expected values.
fn judge(
    method: &Method,
    target: &Uri,
    path: &str,
    state: &Secret,
) -> (StatusCode, &'static str, Option<ConsentReply>) {
    // A target with a host is a request to a proxy, which this server isn't.
    if target.authority().is_some() || target.path() != path {
        let message = "callbridge waits for a consent, but not at this address.";
        return (StatusCode::NOT_FOUND, message, None);
    }
    if method != Method::GET {
        let message = "callbridge waits for the browser's redirect, which is a GET request.";
        return (StatusCode::METHOD_NOT_ALLOWED, message, None);
    }
    let back = read(target.query().unwrap_or_default(), state);
    let message = match back {
        ConsentReply::Code(_) => {
            "The consent has arrived. You can close this page. The terminal shows the result."
        }
        ConsentReply::Declined => {
            "The consent was declined. Nothing was connected; you can close this page."
        }
        ConsentReply::Failed(_) => {
            "The CRM did not ask for consent. Nothing was connected. The terminal shows the \
             reason."
        }
        ConsentReply::Wrong(_) => {
            "This redirect does not belong to the present consent, so it was ignored. Open the \
             address that the terminal shows."
        }
    };
    let status = if back.is_final() {
        StatusCode::OK
    } else {
        StatusCode::BAD_REQUEST
    };
    (status, message, Some(back))
}

fn page(message: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>callbridge</title>\
         <p>{message}</p></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::ExposeSecret as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    /// Judges a request line such as `GET /back`, without its HTTP version.
    fn judge_line(line: &str) -> (StatusCode, Option<ConsentReply>) {
        let (method, target) = line.split_once(' ').expect("a method and a target");
        let method: Method = method.parse().expect("a method");
        let target: Uri = target.parse().expect("a target");
        let (status, _, back) = judge(&method, &target, "/back", &Secret::from("s1"));
        (status, back)
    }

    #[test]
    fn redirect_is_accepted_only_as_get_on_the_right_path() {
        for (line, status, has_reply) in [
            ("GET /back?code=c&state=s1", StatusCode::OK, true),
            (
                "GET /back?error=access_denied&state=s1",
                StatusCode::OK,
                true,
            ),
            ("GET /back?code=c&state=no", StatusCode::BAD_REQUEST, true),
            ("GET /back", StatusCode::BAD_REQUEST, true),
            (
                "POST /back?code=c&state=s1",
                StatusCode::METHOD_NOT_ALLOWED,
                false,
            ),
            (
                "HEAD /back?code=c&state=s1",
                StatusCode::METHOD_NOT_ALLOWED,
                false,
            ),
            ("GET /favicon.ico", StatusCode::NOT_FOUND, false),
            ("GET /back/x?code=c&state=s1", StatusCode::NOT_FOUND, false),
            (
                "GET http://127.0.0.1/back?code=c&state=s1",
                StatusCode::NOT_FOUND,
                false,
            ),
        ] {
            let (answer_status, back) = judge_line(line);
            assert_eq!(
                (answer_status, back.is_some()),
                (status, has_reply),
                "{line}"
            );
        }
        let (_, back) = judge_line("GET /back?code=c%20d&state=s1");
        assert!(matches!(back, Some(ConsentReply::Code(code)) if code.expose_secret() == "c d"));
    }

    #[tokio::test]
    async fn forged_redirect_is_answered_and_the_real_one_is_accepted() {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        let redirect = Redirect::parse(&format!("http://127.0.0.1:{port}/back")).expect("good");
        let catcher = Catcher::listen(&redirect)
            .await
            .expect("the catcher listens")
            .expect("here");
        let busy = Catcher::listen(&redirect).await.expect_err("in use");
        let message = busy.to_string();
        assert!(
            message.starts_with("cannot listen at 127.0.0.1"),
            "{message}"
        );
        let (backs, mut replies) = mpsc::channel(4);
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(catcher.serve(Secret::from("s1"), backs, stopped));
        let mut silent = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("connected");
        silent.write_all(b"GET /back?co").await.expect("sent");
        for (query, good) in [("code=c&state=no", false), ("code=c&state=s1", true)] {
            let mut line = TcpStream::connect(("127.0.0.1", port))
                .await
                .expect("connected");
            let request = format!("GET /back?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            line.write_all(request.as_bytes()).await.expect("sent");
            let mut page = String::new();
            line.read_to_string(&mut page).await.expect("a page");
            assert_eq!(page.starts_with("HTTP/1.1 200 OK\r\n"), good, "{page}");
            assert!(page.ends_with("</html>\n"), "{page}");
            let back = replies.recv().await.expect("a reply");
            assert_eq!(back.is_final(), good);
        }
        stop.send_replace(true);
        serving.await.expect("the server ends");
    }

    #[tokio::test]
    async fn catcher_on_localhost_listens_on_both_addresses_or_none() {
        // A port that the system chose for IPv6 may be in use for IPv4.
        let port = callbridge_testbed::port::free_port();
        // A machine without IPv6 has only one address.
        let Ok(other) = TcpListener::bind(("::1", port)).await else {
            let line = b"\nnot run: the redirect listener on 127.0.0.1 and ::1 (needs IPv6)\n";
            let written = std::io::Write::write_all(&mut std::io::stderr(), line);
            return written.expect("stderr");
        };
        let redirect = Redirect::parse(&format!("http://localhost:{port}/back")).expect("good");
        let refused = Catcher::listen(&redirect).await.expect_err("half is taken");
        let message = refused.to_string();
        assert!(
            message.contains(&format!("[::1]:{port}: another")),
            "{message}"
        );
        let free = TcpListener::bind(("127.0.0.1", port)).await;
        drop(free.expect("the IPv4 port is not held"));
        drop(other);
        let catcher = Catcher::listen(&redirect).await.expect("both are free");
        let held = catcher.expect("here").listeners;
        assert_eq!(held.len(), 2);
    }
}
