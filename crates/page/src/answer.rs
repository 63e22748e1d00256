//! The page's HTTP responses, which are HTML, redirects, and files, and the headers that all of
//! them have.

use crate::shell::PageShell;
use askama::Template;
use callbridge_listener::body::{self, Body};
use hyper::{Response, StatusCode, header::HeaderValue};

/// The content security policy of pages, which doesn't allow external resources, inline code, or
/// framing.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; \
                      base-uri 'none'";
/// The content security policy of SVG drawings, which only allows the drawing's own style.
const DRAWING: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
/// Disables browser features that the page doesn't use.
const PERMISSIONS: &str = "camera=(), geolocation=(), microphone=(), payment=(), usb=()";

/// A failed request, which is shown as a separate page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The message key of the problem's title, such as `problem.host`.
    pub(crate) title: &'static str,
    /// A message about the problem and its fix, either translated or as sent by the daemon.
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, title: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            status,
            title,
            message,
        }
    }

    /// Creates a problem with translated messages. `title` is the message key of the problem's
    /// title.
    pub(crate) fn from_title(status: StatusCode, shell: &PageShell, title: &'static str) -> Self {
        Self::new(status, title, shell.t(&format!("{title}.words")))
    }

    /// Returns the problem for a path whose call, dead letter, or job doesn't exist (404).
    pub(crate) fn not_found(shell: &PageShell, title: &'static str) -> Self {
        Self::from_title(StatusCode::NOT_FOUND, shell, title)
    }
}

/// The result of a request, which is either a response or a problem to show.
pub(crate) type Handled = Result<Response<Body>, Problem>;

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemSheet<'a> {
    c: &'a PageShell,
    title: &'a str,
    message: &'a str,
}

/// Creates a page that shows the problem.
pub(crate) fn problem(shell: &PageShell, problem: &Problem) -> Response<Body> {
    let view = ProblemSheet {
        c: shell,
        title: shell.t(problem.title),
        message: &problem.message,
    };
    let mut response = html(&view).unwrap_or_else(|_| Response::new(body::whole("")));
    *response.status_mut() = problem.status;
    response
}

/// Creates the response for an SVG drawing. Its content security policy only allows the drawing's
/// own style.
pub(crate) fn svg(text: String) -> Response<Body> {
    let kind = "image/svg+xml; charset=utf-8";
    let drawing = body::response(StatusCode::OK, kind, body::whole(text));
    add_header(drawing, "content-security-policy", DRAWING)
}

/// Renders a template as a page with status 200.
pub(crate) fn html(view: &impl Template) -> Handled {
    html_as(StatusCode::OK, view)
}

/// Renders a template as a page with this status. A rendering error becomes a problem (500).
pub(crate) fn html_as(status: StatusCode, view: &impl Template) -> Handled {
    let text = view.render().map_err(|error| {
        tracing::error!(%error, "a page cannot be made");
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "problem.unavailable", error.to_string())
    })?;
    let kind = "text/html; charset=utf-8";
    Ok(body::response(status, kind, body::whole(text)))
}

/// Renders a view that contains a form. The status is 422 if the input was invalid, or 200
/// otherwise.
pub(crate) fn form(view: &impl Template, is_wrong: bool) -> Handled {
    let status = if is_wrong {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::OK
    };
    html_as(status, view)
}

/// Creates a response that the browser saves as a file.
pub(crate) fn download(body: Body, content_type: &'static str, name: &str) -> Response<Body> {
    let file = body::response(StatusCode::OK, content_type, body);
    let as_file = format!("attachment; filename=\"{name}\"");
    add_header(file, "content-disposition", &as_file)
}

/// Adds a header to the response if the value is valid.
pub(crate) fn add_header(
    mut to: Response<Body>,
    name: &'static str,
    value: &str,
) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(value) {
        to.headers_mut().insert(name, value);
    }
    to
}

/// Creates a redirect to this path (303).
pub(crate) fn see(path: &str) -> Response<Body> {
    let mut response = Response::new(body::whole(""));
    *response.status_mut() = StatusCode::SEE_OTHER;
    // A path that isn't a valid header value leads to the first view.
    add_header(add_header(response, "location", "/"), "location", path)
}

/// Adds the security headers that every HTTP response has.
pub(crate) fn harden(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    let fixed = [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // With `no-referrer`, browsers would hide the origin of the page's own forms.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", PERMISSIONS),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::from_static(POLICY);
    headers.entry("content-security-policy").or_insert(policy);
    let keep_nothing = HeaderValue::from_static("no-store");
    headers.entry("cache-control").or_insert(keep_nothing);
}
