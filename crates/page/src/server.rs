//! Serves the page, which includes the limits on sockets and bodies, the checks on each request,
//! and the choice of the view that responds to it.

use crate::answer::{self, Handled, Problem, harden};
use crate::language::{LANGUAGE_COOKIE, Language};
use crate::page::{AuthenticatedRequest, Page};
use crate::request::{Asked, FormFields, check_origin, is_own_host};
use crate::shell::{Badges, PageShell, Viewer, now_seconds};
use crate::{assets, login, random, views};
use callbridge_listener::body::{self, Body};
use callbridge_listener::descriptors;
use callbridge_listener::places::{ConnectionPlace, PeerGroup};
use callbridge_listener::serve::{self, AnswerHttp, Limits, Open};
use callbridge_listener::site::{HostRule, SiteRules};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::{net::TcpListener, time::timeout};

/// Maximum number of connections, which is enough for several people's browsers with six
/// connections each and their live parts.
const CONNECTIONS_MAX: usize = 256;
/// Maximum length of a form in bytes. The longest one selects fifty dead letters.
const FORM_BYTES_MAX: usize = 64 * 1024;
/// How long a form may take to arrive.
const FORM_WITHIN: Duration = Duration::from_secs(10);
/// How long a page may take to be ready. Anything that takes longer runs in the background.
const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Serves the page until `shutdown`, and then ends its background work.
pub async fn serve(listener: TcpListener, page: Page, shutdown: impl Future<Output = ()>) {
    page.take_up_sessions().await;
    let page = Arc::new(page);
    let limits = Limits {
        connections: descriptors::share(CONNECTIONS_MAX),
        // This is long enough for a live stream, or an export of ten thousand dead letters.
        answer_within: Duration::from_secs(600),
        stop_within: Duration::from_secs(2),
        ..Limits::FEW
    };
    let open = Open {
        name: "--page",
        listener,
        tls: page.settings.tls.clone(),
        limits,
        site: SiteRules {
            // The page checks the host itself, and responds to any other host with a page that
            // lists its own.
            hosts: HostRule::Any,
            behind_proxy: page.settings.is_behind_proxy(),
            navigation: false,
        },
    };
    let stop = async {
        shutdown.await;
        page.close.send_replace(true);
    };
    serve::serve(open, Arc::clone(&page), stop).await;
    page.jobs.end().await;
    page.checks.end().await;
}

impl AnswerHttp for Page {
    async fn answer(&self, place: &ConnectionPlace, request: Request<Incoming>) -> Response<Body> {
        let asked = match self.read(request, place.origin).await {
            Ok(asked) => asked,
            Err(status) => return plain_response(status),
        };
        let _answering = place.answer();
        let shown = timeout(PAGE_WITHIN, self.response(&asked)).await;
        let mut response = shown.unwrap_or_else(|_| plain_response(StatusCode::GATEWAY_TIMEOUT));
        harden(&mut response);
        response
    }
}

/// Creates a plain-text response, for requests that none of the page's forms send.
fn plain_response(status: StatusCode) -> Response<Body> {
    let message = body::whole(format!("{status}\n"));
    let mut response = body::response(status, "text/plain; charset=utf-8", message);
    harden(&mut response);
    response
}

impl Page {
    /// Reads a request with its form. The error is the status of the response.
    async fn read(&self, request: Request<Incoming>, peer: PeerGroup) -> Result<Asked, StatusCode> {
        let (head, body) = request.into_parts();
        let mut form = FormFields::default();
        if head.method == Method::POST {
            let value = head.headers.get(header::CONTENT_TYPE);
            let content_type = value.and_then(|value| value.to_str().ok());
            let kind = content_type.unwrap_or_default().split(';').next();
            let untyped = content_type.is_none();
            let bytes = timeout(FORM_WITHIN, body::read(body, FORM_BYTES_MAX))
                .await
                .map_err(|_| StatusCode::REQUEST_TIMEOUT)?
                .map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
            if kind != Some("application/x-www-form-urlencoded") && !(untyped && bytes.is_empty()) {
                return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            }
            form = FormFields::read(&bytes);
        }
        let client = if self.settings.trusts_proxy(peer) {
            Asked::forwarded_address(&head.headers)
        } else {
            None
        };
        Ok(Asked {
            query: FormFields::read(head.uri.query().unwrap_or_default().as_bytes()),
            method: head.method,
            uri: head.uri,
            headers: head.headers,
            form,
            from: client.map_or(peer, PeerGroup::from),
        })
    }

    /// Passes a request through all checks to its view. Problems become pages.
    async fn response(&self, asked: &Asked) -> Response<Body> {
        let shell = self.shell(asked);
        let handled = self.handled(&shell, asked).await;
        handled.unwrap_or_else(|problem| answer::problem(&shell, &problem))
    }

    async fn handled(&self, shell: &PageShell, asked: &Asked) -> Handled {
        // This is checked first, because the page must only respond to its own hosts.
        if !is_own_host(asked, &self.settings) {
            return Err(self.foreign_request_problem(shell, "problem.host", "problem.host.words"));
        }
        let path = asked.uri.path();
        if let Some(asset) = assets::find(path) {
            return Ok(asset);
        }
        let parts: Vec<&str> = match path.strip_prefix('/') {
            Some(path) => path.split('/').collect(),
            None => Vec::new(),
        };
        let Some(methods) = methods(&parts) else {
            let message = shell.text_with("problem.no_page.words", path);
            let status = StatusCode::NOT_FOUND;
            return Err(Problem::new(status, "problem.no_page", message));
        };
        if !methods
            .split(',')
            .any(|method| method == asked.method.as_str())
        {
            let message = shell.text_with("problem.method.words", methods);
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let problem = Problem::new(status, "problem.method", message);
            let refusal = answer::problem(shell, &problem);
            return Ok(answer::add_header(refusal, "allow", methods));
        }
        if asked.is_post()
            && let Err(key) = check_origin(asked, &self.settings)
        {
            return Err(self.foreign_request_problem(shell, "problem.origin", key));
        }
        let path = &parts[..];
        match path {
            ["login"] => return login::login(self, shell, asked).await,
            ["open", token] => return login::open(self, shell, asked, token).await,
            ["language", code] => return Ok(login::language(self, asked, code)),
            _ => {}
        }
        let Some((token, one)) = login::find_session(self, asked) else {
            return login::handle_logged_out(self, shell, asked, path);
        };
        let form_token = random::form_token(token);
        if asked.is_post() {
            let sent = asked.form.typed_value("token");
            if !bool::from(sent.as_bytes().ct_eq(form_token.as_bytes())) {
                return Err(Problem::from_title(
                    StatusCode::FORBIDDEN,
                    shell,
                    "problem.token",
                ));
            }
            if path == ["logout"] {
                return login::logout(self, token).await;
            }
            if !one.role.may_act() {
                return Err(Problem::from_title(
                    StatusCode::FORBIDDEN,
                    shell,
                    "problem.role",
                ));
            }
        }
        let session = random::hash(token);
        let mut shell = shell.clone();
        // The notice is for a page, not for the script that listens for changes.
        if !asked.is_post() && path != ["live"] {
            let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
            shell.notice = notices.remove(&session);
        }
        shell.viewer = Some(Viewer {
            who: one.who.clone(),
            role: one.role,
            form_token,
        });
        let visit = AuthenticatedRequest {
            page: self,
            asked,
            shell,
            who: one.who,
            session,
        };
        views::show(visit, path).await
    }

    /// Creates the problem for a request to another host or from another site. The message lists
    /// the page's hosts.
    fn foreign_request_problem(
        &self,
        shell: &PageShell,
        title: &'static str,
        key: &str,
    ) -> Problem {
        let message = shell.text_with(key, self.settings.hosts().join(", "));
        Problem::new(StatusCode::FORBIDDEN, title, message)
    }

    fn shell(&self, asked: &Asked) -> PageShell {
        let chosen = asked.cookies(LANGUAGE_COOKIE).find_map(Language::from_code);
        let language = match chosen {
            Some(language) => language,
            None => Language::preferred(asked.header(header::ACCEPT_LANGUAGE)),
        };
        let target = if asked.is_post() { "/" } else { asked.target() };
        PageShell {
            language,
            zone: self.settings.zone.clone(),
            now: now_seconds(),
            viewer: None,
            target: target.to_owned(),
            badges: Badges::default(),
            pbx: self.backend.pbx(),
            lead_url: self.settings.lead_url.clone(),
            notice: None,
        }
    }
}

/// Returns the methods allowed for a path with these segments, or `None` if there's no such path.
fn methods(path: &[&str]) -> Option<&'static str> {
    Some(match path {
        ["login" | "check"] | ["open", _] | ["letters", "export"] => "GET,HEAD,POST",
        ["logout"] | ["letters", "act"] | ["numbers", "give" | "take"] => "POST",
        ["" | "calls" | "calls.csv" | "letters" | "numbers" | "numbers.csv"]
        | ["missed" | "missed.csv" | "employees" | "employees.csv" | "branches" | "pbx" | "live"]
        | ["language" | "calls", _]
        | ["calls", _, "picture.svg"] => "GET,HEAD",
        ["letters", id] if id.parse::<i64>().is_ok() => "GET,HEAD",
        ["jobs", id] if id.parse::<u64>().is_ok() => "GET,HEAD",
        _ => return None,
    })
}
