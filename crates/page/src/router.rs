//! From a request to its answer: who asks, whether they may, and which view answers.

use crate::answer::{self, Handled, Problem};
use crate::language::{LANGUAGE_COOKIE, Language};
use crate::page::{AuthenticatedRequest, Page};
use crate::request::{Asked, Foreign, check_host, check_origin};
use crate::settings::Settings;
use crate::shell::{Badges, PageShell, Viewer, now_seconds};
use crate::{assets, login, random, views};
use callbridge_listener::body::Body;
use hyper::{Response, StatusCode, header};
use std::sync::PoisonError;
use subtle::ConstantTimeEq as _;

impl Page {
    /// Routes a request through all checks to its view; problems become pages.
    pub(crate) async fn shown(&self, asked: &Asked) -> Response<Body> {
        // Before anything else: nobody may come by a name that is not ours.
        let shell = self.shell(asked);
        if check_host(asked, &self.settings).is_err() {
            return answer::problem(&shell, &foreign(&shell, &self.settings, Foreign::Host));
        }
        let path = asked.uri.path();
        if let Some(asset) = assets::find(path) {
            return asset;
        }
        let parts = path.strip_prefix('/').map(|path| path.split('/').collect());
        let parts: Vec<&str> = parts.unwrap_or_default();
        let Some(methods) = methods(&parts) else {
            let words = shell.with("problem.no_page.words", path);
            let none = Problem::new(StatusCode::NOT_FOUND, "problem.no_page", words);
            return answer::problem(&shell, &none);
        };
        if !methods.split(',').any(|it| it == asked.method.as_str()) {
            return not_allowed(&shell, methods);
        }
        match self.enter(&shell, asked, &parts).await {
            Ok(response) => response,
            Err(problem) => answer::problem(&shell, &problem),
        }
    }

    async fn enter(&self, shell: &PageShell, asked: &Asked, path: &[&str]) -> Handled {
        if asked.is_post() {
            check_origin(asked, &self.settings)
                .map_err(|why| foreign(shell, &self.settings, why))?;
        }
        match path {
            ["login"] => return login::login(self, shell, asked).await,
            ["open", token] => return login::open(self, shell, asked, token).await,
            ["language", code] => return Ok(login::language(self, asked, code)),
            _ => {}
        }
        let Some((token, one)) = self.authenticator.whose(asked, &self.settings.passwords()) else {
            return login::outside(self, shell, asked, path);
        };
        let form_token = random::form_token(token);
        if asked.is_post() {
            let sent = asked.form.typed("token");
            if !bool::from(sent.as_bytes().ct_eq(form_token.as_bytes())) {
                let forbidden = StatusCode::FORBIDDEN;
                return Err(Problem::known(forbidden, shell, "problem.token"));
            }
            if path == ["logout"] {
                return login::logout(self, token).await;
            }
            if !one.role.may_act() {
                let forbidden = StatusCode::FORBIDDEN;
                return Err(Problem::known(forbidden, shell, "problem.role"));
            }
        }
        let session = random::hash(token);
        let mut shell = shell.clone();
        // What waits to be said is said by a page, not to a script that listens.
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

    fn shell(&self, asked: &Asked) -> PageShell {
        let chosen = asked.cookies(LANGUAGE_COOKIE).find_map(Language::by_code);
        let wished = || Language::wished(asked.header(header::ACCEPT_LANGUAGE));
        PageShell {
            language: chosen.unwrap_or_else(wished),
            zone: self.backend.zone(),
            now: now_seconds(),
            viewer: None,
            target: match asked.is_post() {
                true => "/".to_owned(),
                false => asked.target().to_owned(),
            },
            badges: Badges::default(),
            pbx: self.backend.pbx(),
            lead_url: self.settings.lead_url.clone(),
            notice: None,
        }
    }
}

fn foreign(shell: &PageShell, settings: &Settings, why: Foreign) -> Problem {
    let (title, words) = match why {
        Foreign::Host => ("problem.host", "problem.host.words"),
        Foreign::NoOrigin => ("problem.origin", "problem.no_origin.words"),
        Foreign::Origin => ("problem.origin", "problem.origin.words"),
    };
    let words = shell.with(words, settings.hosts().join(", "));
    Problem::new(StatusCode::FORBIDDEN, title, words)
}

/// The methods that a path knows, of which these are the parts; `None` where nothing is there.
fn methods(path: &[&str]) -> Option<&'static str> {
    Some(match path {
        ["login" | "check"] | ["open", _] | ["letters", "export"] => "GET,HEAD,POST",
        ["logout"] | ["letters", "act"] | ["numbers", "give" | "take"] => "POST",
        ["" | "calls" | "calls.csv" | "letters" | "numbers" | "numbers.csv"]
        | ["missed" | "missed.csv" | "employees" | "employees.csv" | "pbx" | "fleet" | "live"]
        | ["language" | "calls", _]
        | ["calls", _, "picture.svg"] => "GET,HEAD",
        ["letters", id] if id.parse::<i64>().is_ok() => "GET,HEAD",
        ["jobs", id] if id.parse::<u64>().is_ok() => "GET,HEAD",
        _ => return None,
    })
}

fn not_allowed(shell: &PageShell, methods: &'static str) -> Response<Body> {
    let words = shell.with("problem.method.words", methods);
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let problem = Problem::new(status, "problem.method", words);
    let mut response = answer::problem(shell, &problem);
    let allow = header::HeaderValue::from_static(methods);
    response.headers_mut().insert(header::ALLOW, allow);
    response
}
