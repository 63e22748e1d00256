//! Logging in, either by name and password or using the link from `callbridge page`, and logging
//! out. After logging in, the user returns to the page on which the session ended.

use crate::answer::{self, Handled, Problem, see};
use crate::language::{LANGUAGE_COOKIE, Language};
use crate::random::form_token;
use crate::request::{Asked, FormFields, link, local_path};
use crate::sessions::{LoggedIn, SESSION_SECONDS};
use crate::shell::{PageShell, Viewer, now_seconds};
use crate::throttle::{Admitted, LoginThrottle, LoginTurn, WAIT_MAX};
use crate::{page::Page, passwords::PASSWORD_BYTES_MAX};
use askama::Template;
use callbridge_admin::PageRole;
use callbridge_listener::body::Body;
use callbridge_listener::places::{PeerGroup, random};
use callbridge_model::clock;
use hyper::{Response, StatusCode, header, header::HeaderValue};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// Memory for hashing is released if it hasn't been used for this long.
const MEMORY_KEPT: Duration = Duration::from_secs(60);
/// Name of the field that holds an expired session's input.
const CARRIED: &str = "carried";

#[derive(Template)]
#[template(path = "login.html")]
struct LoginSheet<'a> {
    c: &'a PageShell,
    name: &'a str,
    /// The path to open after logging in.
    next: &'a str,
    /// The encoded fields of a form that was sent after its session had ended.
    carried: &'a str,
    wrong: Option<&'a str>,
    /// Whether the password file contains any users.
    by_name: bool,
}

#[derive(Template)]
#[template(path = "open.html")]
struct OpenSheet<'a> {
    c: &'a PageShell,
    token: &'a str,
    good: bool,
}

#[derive(Template)]
#[template(path = "carry_on.html")]
struct CarryOnSheet<'a> {
    c: &'a PageShell,
    path: &'a str,
    fields: FormFields,
    /// The typed fields for display, as names and values.
    typed: Vec<(String, String)>,
}

/// Returns the token and session of the first cookie that belongs to an open session.
pub(crate) fn find_session<'a>(page: &Page, asked: &'a Asked) -> Option<(&'a str, LoggedIn)> {
    let now = now_seconds();
    let people = page.settings.people.borrow();
    let mut tokens = asked.cookies(&page.cookie);
    tokens.find_map(|token| Some((token, page.sessions.find(now, token, &people)?)))
}

/// Handles a request without a session by redirecting to the login, or by showing the login along
/// with the input of a form that was sent.
pub(crate) fn handle_logged_out(
    page: &Page,
    shell: &PageShell,
    asked: &Asked,
    path: &[&str],
) -> Handled {
    if path == ["live"] {
        let message = shell.t("login.ended");
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "login.title",
            message,
        ));
    }
    if path == ["logout"] {
        return Ok(see("/login"));
    }
    if !asked.is_post() {
        let next = Some(asked.target()).filter(|target| *target != "/");
        return Ok(see(&link("/login", &[("next", next)])));
    }
    // The form's session has expired, so its input is carried through the login.
    let view = LoginSheet {
        carried: &asked.form.without("token").encode(),
        wrong: Some(shell.t("login.ended")),
        ..LoginSheet::new(page, shell, asked.uri.path())
    };
    answer::html_as(StatusCode::UNAUTHORIZED, &view)
}

impl<'a> LoginSheet<'a> {
    /// Creates the initial form, without any input or errors.
    fn new(page: &Page, shell: &'a PageShell, next: &'a str) -> Self {
        Self {
            c: shell,
            name: "",
            next,
            carried: "",
            wrong: None,
            by_name: !page.settings.people.borrow().is_empty(),
        }
    }

    /// Returns the carried fields for display, as names and values.
    fn typed_fields(&self) -> Vec<(String, String)> {
        displayed_fields(self.c, &FormFields::read(self.carried.as_bytes()))
    }
}

/// Returns a form's fields by their displayed names, except for those that nobody types.
fn displayed_fields(shell: &PageShell, fields: &FormFields) -> Vec<(String, String)> {
    let named = fields.iter().filter_map(|(name, value)| {
        let known = shell.has_word("field", name) && !value.trim().is_empty();
        known.then(|| (shell.word("field", name), value.to_owned()))
    });
    named.take(20).collect()
}

/// Serves `GET /login`, which shows the form, and `POST /login`, which opens a session.
pub(crate) async fn login(page: &Page, shell: &PageShell, asked: &Asked) -> Handled {
    if !asked.is_post() {
        let next = local_path(asked.query.get("next").unwrap_or("/"));
        return match find_session(page, asked) {
            // Someone who's already logged in is redirected.
            Some(_) => Ok(see(next)),
            None => answer::html(&LoginSheet::new(page, shell, next)),
        };
    }
    let name = asked.form.get("name").unwrap_or_default().to_owned();
    let next = asked.form.typed_value("next");
    let carried = asked.form.typed_value(CARRIED);
    let attempt = LoginAttempt::enter(page, asked.from, &name);
    if !attempt.wait().await {
        tracing::debug!(from = ?asked.from, "refused a login to the page: too many tries");
        let view = LoginSheet {
            name: &name,
            carried: &carried,
            wrong: Some(shell.t("login.busy")),
            ..LoginSheet::new(page, shell, local_path(&next))
        };
        let refused = answer::html_as(StatusCode::TOO_MANY_REQUESTS, &view)?;
        let seconds = WAIT_MAX.as_secs().to_string();
        return Ok(answer::add_header(refused, "retry-after", &seconds));
    }
    let password = asked.form.typed_value("password");
    let Some(role) = role(page, &name, password).await else {
        drop(attempt);
        tracing::warn!(from = ?asked.from, "wrong name or password for the page");
        let view = LoginSheet {
            name: &name,
            carried: &carried,
            wrong: Some(shell.t("login.wrong")),
            ..LoginSheet::new(page, shell, local_path(&next))
        };
        return answer::html_as(StatusCode::FORBIDDEN, &view);
    };
    attempt.succeed();
    let line = page.settings.people.borrow().print(&name);
    let token = open_session(page, &name, role, line).await?;
    let mut response = if carried.is_empty() {
        see(local_path(&next))
    } else {
        let form_token = form_token(&token);
        let mut shell = shell.clone();
        shell.viewer = Some(Viewer {
            who: name,
            role,
            form_token,
        });
        // The fields that were typed before the session ended, with a button for resending them.
        let fields = FormFields::read(carried.as_bytes());
        answer::html(&CarryOnSheet {
            c: &shell,
            path: local_path(&next),
            typed: displayed_fields(&shell, &fields),
            fields,
        })?
    };
    hand_over(page, &mut response, &token);
    Ok(response)
}

/// A login that was admitted by the throttle, which it leaves when dropped.
struct LoginAttempt<'a> {
    page: &'a Page,
    began: Duration,
    admitted: Admitted,
}

impl<'a> LoginAttempt<'a> {
    fn enter(page: &'a Page, from: PeerGroup, name: &str) -> Self {
        let began = clock::now().boot;
        let admitted = lock_throttle(page).enter(began, from, name, random);
        // This may have displaced an attempt that's waiting for its turn.
        page.login_left.notify_waiters();
        Self {
            page,
            began,
            admitted,
        }
    }

    /// Waits until the password can be hashed. Returns `false` if another attempt has taken the
    /// place, but not before the longest wait is over, since a client that retries immediately
    /// would otherwise displace everyone else.
    async fn wait(&self) -> bool {
        tokio::time::sleep(self.admitted.wait).await;
        loop {
            let mut left = std::pin::pin!(self.page.login_left.notified());
            left.as_mut().enable();
            let turn = lock_throttle(self.page).try_begin(self.admitted.rank);
            match turn {
                LoginTurn::Hash => return true,
                LoginTurn::Wait => left.await,
                LoginTurn::Displaced => {
                    let waited = clock::now().boot.saturating_sub(self.began);
                    tokio::time::sleep(WAIT_MAX.saturating_sub(waited)).await;
                    return false;
                }
            }
        }
    }

    fn leave(&self, is_right: bool) {
        lock_throttle(self.page).leave(self.admitted.rank, is_right);
        self.page.login_left.notify_waiters();
    }

    /// Marks the login attempt as successful, so that it isn't counted as a wrong password.
    fn succeed(self) {
        self.leave(true);
    }
}

impl Drop for LoginAttempt<'_> {
    fn drop(&mut self) {
        // After `succeed`, the attempt has already left, so this does nothing.
        self.leave(false);
    }
}

fn lock_throttle(page: &Page) -> MutexGuard<'_, LoginThrottle> {
    page.throttle.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn role(page: &Page, name: &str, password: String) -> Option<PageRole> {
    if password.len() > PASSWORD_BYTES_MAX {
        return None;
    }
    let mut memory = Arc::clone(&page.hashing).lock_owned().await;
    let passwords = page.settings.people.borrow().clone();
    let name = name.to_owned();
    let hashing = tokio::task::spawn_blocking(move || {
        let role = passwords.role(&name, &password, &mut memory);
        (role, memory.uses)
    });
    let (role, uses) = hashing.await.ok()?;
    let memory = Arc::clone(&page.hashing);
    tokio::spawn(async move {
        tokio::time::sleep(MEMORY_KEPT).await;
        memory.lock().await.give_back(uses);
    });
    role
}

async fn open_session(
    page: &Page,
    who: &str,
    role: PageRole,
    line: Option<String>,
) -> Result<String, Problem> {
    let Some(token) = page.sessions.open(now_seconds(), who, role, line) else {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let message = "the operating system returned no random bytes";
        return Err(Problem::new(status, "problem.unavailable", message));
    };
    keep(page).await?;
    tracing::info!(who, role = role.word(), "a user logged in to the page");
    Ok(token.reveal().to_owned())
}

async fn keep(page: &Page) -> Result<(), Problem> {
    let sessions = page.sessions.to_json();
    Ok(page.backend.keep_sessions(sessions).await?)
}

fn hand_over(page: &Page, response: &mut Response<Body>, token: &str) {
    let life = if token.is_empty() { 0 } else { SESSION_SECONDS };
    let name = &page.cookie;
    let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}");
    set_cookie(page, response, cookie);
}

/// Sets a cookie, which is limited to TLS if the page is served over TLS.
fn set_cookie(page: &Page, response: &mut Response<Body>, mut cookie: String) {
    if page.settings.is_secure() {
        cookie.push_str("; Secure");
    }
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Serves `GET /open/TOKEN`, which shows a button without using up the token, and `POST`, which
/// opens a session and works only once.
pub(crate) async fn open(page: &Page, shell: &PageShell, asked: &Asked, token: &str) -> Handled {
    let links = &page.settings.links;
    let now = clock::now().boot;
    if asked.is_post()
        && let Some((who, role)) = links.take(now, token)
    {
        let token = open_session(page, &who, role, None).await?;
        let mut response = see("/");
        hand_over(page, &mut response, &token);
        return Ok(response);
    }
    let good = !asked.is_post() && links.is_good(now, token);
    let c = shell;
    let view = OpenSheet { c, token, good };
    if good {
        answer::html(&view)
    } else {
        answer::html_as(StatusCode::GONE, &view)
    }
}

/// Serves `POST /logout`, which ends the session, including in the state.
pub(crate) async fn logout(page: &Page, token: &str) -> Handled {
    page.sessions.end(token);
    let kept = keep(page).await;
    let mut response = see("/login");
    hand_over(page, &mut response, "");
    // The session has ended here in any case, but a restart might reopen it, so the error is
    // reported.
    if let Err(problem) = kept {
        let error = &problem.message;
        tracing::error!(error, "cannot delete an ended session from the state");
        return Err(problem);
    }
    Ok(response)
}

/// Serves `GET /language/ru?back=/calls`, which sets the language cookie and goes back.
pub(crate) fn language(page: &Page, asked: &Asked, code: &str) -> Response<Body> {
    let back = local_path(asked.query.get("back").unwrap_or("/"));
    let mut response = see(back);
    if let Some(language) = Language::from_code(code) {
        let code = language.code();
        let cookie =
            format!("{LANGUAGE_COOKIE}={code}; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000");
        set_cookie(page, &mut response, cookie);
    }
    response
}
