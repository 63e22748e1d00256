//! The authorization page (§4.2): `GET` shows it, `POST` to the same address decides.
//!
//! ```text
//! GET  /consent?response_type=code&client_id=…&redirect_uri=…&scope=…&state=…   200 the page
//! POST the same address   decision=approve|decline, company=ID,
//!                         picked=yes and grant=… for each ticked box     302 to redirect_uri
//! ```
//! Without `picked`, the whole scope is approved. Without `company`, the first company approves.
//! Wrong parameters give a page with 400 (with 401 for a blocked company), and never a redirect,
//! because the address to return to cannot be trusted then.

use crate::{
    Application, AuthorizationCode, BODY_BYTES_MAX, ConsentRequest, Endpoint, Grant, Problem,
    Request, Response, Sandbox, TokenKey, ViolationKind, oauth::problem::Code,
    oauth::problem::Form,
};
use url::Url;

/// Answers `GET` and `POST` of the authorization page, and logs refusals.
pub(crate) fn consent(core: &mut Sandbox, request: &Request) -> Response {
    core.judge_consent(request);
    let asked = Form::read(request.query.as_bytes()).and_then(|form| read_request(core, &form));
    let answer = match (request.method.as_str(), asked) {
        ("GET" | "HEAD", Ok(asked)) => Ok(question(core, &asked)),
        ("POST", Ok(asked)) => decide(core, asked, &request.body),
        ("GET" | "HEAD" | "POST", Err(problem)) => Err(problem),
        _ => return no_question(405, "405", "GET or POST"),
    };
    answer.unwrap_or_else(|problem| {
        core.oauth.log.push(core.now, Endpoint::Consent, &problem);
        if problem.code != Code::CompanyBlocked {
            core.record_violation(ViolationKind::Invalid, "§4.2", problem.to_string());
        }
        let (status, message) = problem.code.answer();
        no_question(status, message, &problem.message)
    })
}

/// Checks the query parameters of the authorization page. Refuses wrong parameters with the code
/// 6900, 6902, 6904, 6906, or 6907 (§7.6).
fn read_request(core: &Sandbox, form: &Form) -> Result<ConsentRequest, Problem> {
    if form.one("response_type")? != Some("code") {
        return Err(Code::InvalidRequest.because("response_type is not `code`"));
    }
    let client_id = form.needed("client_id")?;
    let redirect_uri = form.needed("redirect_uri")?.to_owned();
    let application = core
        .oauth
        .client(client_id)
        .filter(|known| known.published)
        .ok_or_else(|| {
            Code::ApplicationNotFound.because("no published application has this client_id")
        })?;
    if application.suspended {
        return Err(Code::InvalidGrant.because("the application is suspended"));
    }
    if !application.redirect_uris.contains(&redirect_uri) {
        let message = "redirect_uri is not exactly one of the registered";
        return Err(Code::InvalidRedirectUri.because(message));
    }
    form.one("state")?;
    Ok(ConsentRequest {
        application: application.clone(),
        redirect_uri,
        scope: scope_of(form.one("scope")?.unwrap_or_default(), application)?,
        // The state is kept unchanged, even if it is empty.
        state: form.all("state").next().map(str::to_owned),
    })
}

fn decide(core: &mut Sandbox, asked: ConsentRequest, body: &[u8]) -> Result<Response, Problem> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Code::InvalidRequest.because("the form is too large"));
    }
    let form = Form::read(body)?;
    match form.one("decision")? {
        Some("approve") => {}
        Some("decline") => return Ok(back(&asked, "error", "access_denied")),
        _ => {
            let message = "decision is neither approve nor decline";
            return Err(Code::InvalidRequest.because(message));
        }
    }
    let company = match form.one("company")? {
        None => core.settings.company.id,
        Some(id) => id
            .parse()
            .map_err(|_| Code::InvalidRequest.because("company is not a number"))?,
    };
    let Some(known) = core.companies.get(&company) else {
        return Err(Code::InvalidRequest.because("no such company"));
    };
    if known.blocked {
        return Err(Code::CompanyBlocked.because("the company is blocked"));
    }
    let mut approved = asked.clone();
    approved.scope = ticked_grants(&form, &asked)?;
    let code = approve(core, approved, company);
    Ok(back(&asked, "code", &code))
}

/// Issues an authorization code for a request that a company approved. Only the fingerprint of the
/// code is stored.
pub(super) fn approve(core: &mut Sandbox, approved: ConsentRequest, company: i64) -> String {
    let code = core.mint("svc_ac_");
    let record = AuthorizationCode {
        application: approved.application.id,
        company,
        redirect_uri: approved.redirect_uri,
        grants: approved.scope,
        issued_at: core.now,
        used: None,
    };
    core.oauth.forget(core.now);
    core.oauth.codes.insert(TokenKey::from_value(&code), record);
    code
}

/// Parses a scope string (§2.3): grants with single spaces between them. The application must be
/// allowed to request all of them.
pub(super) fn scope_of(text: &str, application: &Application) -> Result<Vec<Grant>, Problem> {
    if text.is_empty() {
        return Err(Code::InvalidScope.because("scope is missing or empty"));
    }
    let mut scope = Vec::new();
    for word in text.split(' ') {
        let Some(grant) = Grant::parse(word) else {
            let message = "scope is not PERMISSION:SCOPE with single spaces";
            return Err(Code::InvalidScope.because(message));
        };
        if !application.allowed.contains(&grant) {
            let message = format!("{word} is outside the allowed grants");
            return Err(Code::InvalidScope.because(message));
        }
        if !scope.contains(&grant) {
            scope.push(grant);
        }
    }
    Ok(scope)
}

fn ticked_grants(form: &Form, asked: &ConsentRequest) -> Result<Vec<Grant>, Problem> {
    if form.one("picked")?.is_none() {
        return Ok(asked.scope.clone());
    }
    let picked: Vec<&str> = form.all("grant").collect();
    for word in &picked {
        if !asked.scope.iter().any(|grant| grant.as_str() == *word) {
            return Err(Code::InvalidScope.because("a grant that was not asked for"));
        }
    }
    if picked.is_empty() {
        return Err(Code::InvalidScope.because("approved without a single grant; decline instead"));
    }
    let kept = (asked.scope.iter()).filter(|grant| picked.contains(&grant.as_str()));
    Ok(kept.cloned().collect())
}

/// Redirects the browser to the application's `redirect_uri`, with the query parameter `name` and
/// the unchanged state.
fn back(asked: &ConsentRequest, name: &str, value: &str) -> Response {
    // Registered addresses are absolute, because `redirect_uri` refuses others.
    let location = Url::parse(&asked.redirect_uri).map(|mut to| {
        let mut query = to.query_pairs_mut();
        query.append_pair(name, value);
        if let Some(state) = &asked.state {
            query.append_pair("state", state);
        }
        drop(query);
        String::from(to)
    });
    Response {
        location: location.ok(),
        ..html(302, String::new())
    }
}

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
<meta name=\"referrer\" content=\"no-referrer\">\
<meta http-equiv=\"Content-Security-Policy\" \
content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'\">\
<title>Connect an application</title><style>\
body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem}\
fieldset{border:1px solid #ccc;border-radius:.5rem;margin:1rem 0}label{display:block}\
code{background:#f4f4f4}button{font:inherit;padding:.4rem 1.2rem;margin-right:.5rem}\
small{color:#555}</style></head><body>\n";

/// Creates an HTML answer that is sent at once.
fn html(status: u16, body: String) -> Response {
    Response::new(status, "text/html; charset=utf-8", body)
}

/// Returns the HTML page on which a person selects a company, and approves or declines the request.
/// Blocked companies are not listed.
fn question(core: &Sandbox, asked: &ConsentRequest) -> Response {
    let own = &asked.application;
    let texts = [&own.name, &own.client_id, &asked.redirect_uri];
    let [name, client, to] = texts.map(|text| escape(text));
    let mut choices = String::new();
    let mut grants = String::new();
    let open = core.companies.values().filter(|company| !company.blocked);
    for (nth, company) in open.enumerate() {
        let checked = if nth == 0 { " checked" } else { "" };
        let id = company.id;
        let name = escape(&company.name);
        choices += &format!(
            "<label><input type=\"radio\" name=\"company\" value=\"{id}\"{checked}> \
             {name} ({id})</label>\n"
        );
    }
    for grant in &asked.scope {
        let grant = escape(grant.as_str());
        grants += &format!(
            "<label><input type=\"checkbox\" name=\"grant\" value=\"{grant}\" checked> \
             {grant}</label>\n"
        );
    }
    // Without an action, the form goes to this page's address, including its parameters.
    let page = format!(
        "{HEAD}<h1>Connect {name}?</h1>\n\
<p><code>{client}</code> asks for access to a company of this sandbox.</p>\n\
<form method=\"post\">\n<fieldset><legend>Company</legend>\n\
{choices}</fieldset>\n<fieldset><legend>It may</legend>\n\
<input type=\"hidden\" name=\"picked\" value=\"yes\">\n\
{grants}</fieldset>\n\
<button name=\"decision\" value=\"approve\">Approve</button>\n\
<button name=\"decision\" value=\"decline\">Decline</button>\n</form>\n\
<p><small>You will return to <code>{to}</code>.</small></p>\n</body></html>\n"
    );
    html(200, page)
}

/// Returns the HTML page that shows why a request was refused.
fn no_question(status: u16, title: &str, message: &str) -> Response {
    let title = escape(title);
    let message = escape(message);
    let page = format!("{HEAD}<h1>{title}</h1>\n<p>{message}</p>\n</body></html>\n");
    html(status, page)
}

/// Escapes text for HTML, so it cannot end an element or an attribute.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
