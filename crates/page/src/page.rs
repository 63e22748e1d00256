//! From a request to its answer: who asks, whether they may, and which view answers.

use crate::answer::{self, Handled, Problem};
use crate::backend::Backend;
use crate::checks::CheckRun;
use crate::jobs::Jobs;
use crate::language::Language;
use crate::live::Live;
use crate::login::Doors;
use crate::request::{Asked, Foreign, check_host, check_origin};
use crate::route::Route;
use crate::sessions::SessionCount;
use crate::settings::Settings;
use crate::shell::{Badges, Notice, PageShell, Viewer};
use crate::{assets, login, random, views};
use callbridge_admin::refusal::Refusal;
use callbridge_listener::body::Body;
use callbridge_model::exit::Code;
use callbridge_model::{Zone, clock};
use hyper::{Response, StatusCode, header};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

/// Where a browser keeps the language it was switched to.
pub(crate) const LANGUAGE_COOKIE: &str = "callbridge-language";
/// Sessions for whom something waits to be said.
const NOTICES_MAX: usize = 1000;

/// The page: made from its settings and the daemon, then served.
pub struct Page {
    pub(crate) settings: Settings,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) doors: Doors,
    pub(crate) jobs: Jobs,
    pub(crate) checks: CheckRun,
    pub(crate) live: Live,
    /// By the hash of a session's token.
    notices: Mutex<BTreeMap<String, Notice>>,
    count: SessionCount,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A request of somebody who is logged in.
pub(crate) struct Visit<'a> {
    pub(crate) page: &'a Page,
    pub(crate) asked: &'a Asked,
    pub(crate) shell: PageShell,
    /// Who acts, as it is signed.
    pub(crate) who: String,
    /// The hash of the session's token.
    session: String,
}

impl Page {
    /// Of these settings, before this daemon.
    pub fn new(settings: Settings, backend: Arc<dyn Backend>) -> Self {
        let changes = backend.changes();
        Self {
            doors: Doors::new(&backend.instance()),
            settings,
            backend,
            jobs: Jobs::default(),
            checks: CheckRun::default(),
            live: Live::new(changes),
            notices: Mutex::default(),
            count: SessionCount::default(),
        }
    }

    /// Whoever watches is told how many are logged in (`callbridge_page_sessions`).
    #[must_use]
    pub fn counted_by(mut self, count: SessionCount) -> Self {
        self.count = count;
        self
    }

    /// With the sessions of before, and an end to come.
    pub(crate) async fn until(mut self, closing: watch::Receiver<bool>) -> Self {
        let kept = match self.backend.kept_sessions().await {
            Ok(kept) => kept,
            Err(refusal) => {
                tracing::warn!(
                    error = refusal.words,
                    "the page's sessions cannot be read: all log in anew"
                );
                None
            }
        };
        let now = now_seconds();
        let passwords = &self.settings.passwords();
        self.doors
            .take_up(kept.as_deref(), now, passwords, &self.count);
        self.live.close_with(closing.clone());
        self.jobs.close_with(closing);
        self
    }

    /// Waits for what works in the background: it has been told to end.
    pub(crate) async fn tasks_end(&self) {
        self.jobs.end().await;
        self.checks.end().await;
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, asked: &Asked) -> Response<Body> {
        // Before anything else: nobody may come by a name that is not ours.
        let shell = self.shell(asked);
        if check_host(asked, &self.settings).is_err() {
            return answer::problem(&shell, &foreign(&shell, &self.settings, Foreign::Host));
        }
        let path = asked.uri.path();
        if let Some(asset) = assets::find(path) {
            return asset;
        }
        let Some(route) = Route::of(path) else {
            let words = shell.with("problem.no_page.words", path);
            let none = Problem::new(StatusCode::NOT_FOUND, "problem.no_page", words);
            return answer::problem(&shell, &none);
        };
        if !route.allows(&asked.method) {
            return not_allowed(&shell, &route);
        }
        match self.enter(&shell, asked, &route).await {
            Ok(response) => response,
            Err(problem) => answer::problem(&shell, &problem),
        }
    }

    async fn enter(&self, shell: &PageShell, asked: &Asked, route: &Route) -> Handled {
        if asked.is_post() {
            check_origin(asked, &self.settings)
                .map_err(|why| foreign(shell, &self.settings, why))?;
        }
        match route {
            Route::Login => return login::login(self, shell, asked).await,
            Route::Open(token) => return login::open(self, shell, asked, token).await,
            Route::Language(code) => return Ok(login::language(self, asked, code)),
            _ => {}
        }
        let Some((token, one)) = self.doors.whose(asked, &self.settings.passwords()) else {
            return login::outside(self, shell, asked, route);
        };
        let form_token = random::form_token(token);
        if asked.is_post() {
            let sent = asked.form.typed("token");
            if !bool::from(sent.as_bytes().ct_eq(form_token.as_bytes())) {
                let forbidden = StatusCode::FORBIDDEN;
                return Err(Problem::known(forbidden, shell, "problem.token"));
            }
            if *route == Route::Logout {
                return login::logout(self, token).await;
            }
            if route.is_action() && !one.role.may_act() {
                let forbidden = StatusCode::FORBIDDEN;
                return Err(Problem::known(forbidden, shell, "problem.role"));
            }
        }
        let session = random::hash(token);
        let mut shell = shell.clone();
        // What waits to be said is said by a page, not to a script that listens.
        if !asked.is_post() && *route != Route::Live {
            let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
            shell.notice = notices.remove(&session);
        }
        shell.viewer = Some(Viewer {
            who: one.who.clone(),
            role: one.role,
            form_token,
        });
        let visit = Visit {
            page: self,
            asked,
            shell,
            who: one.who,
            session,
        };
        views::show(visit, route).await
    }

    fn shell(&self, asked: &Asked) -> PageShell {
        let chosen = asked.cookies(LANGUAGE_COOKIE).find_map(Language::by_code);
        let wished = || Language::wished(asked.header(header::ACCEPT_LANGUAGE));
        let zone = Zone::named(&self.backend.zone());
        PageShell {
            language: chosen.unwrap_or_else(wished),
            zone: zone.unwrap_or_else(|| Zone::of(None)),
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

impl Visit<'_> {
    /// Looks at the daemon's status for what stands beside every page.
    pub(crate) async fn look_around(&mut self) -> Option<callbridge_model::Status> {
        let status = self.page.backend.status().await.ok()?;
        self.shell.badges = Badges {
            missed: self.page.backend.missed_count().await.ok()?,
            letters: status.letter_count(),
            parked: status.letters.get("no_lead").copied().unwrap_or(0),
            silent: status.fleet.as_ref().map(|fleet| {
                let totals = fleet.table.as_ref().map(|table| table.totals);
                totals.map_or(0, |it| it.silent + it.stopped)
            }),
        };
        Some(status)
    }

    /// Says something at the head of the next page that this browser asks for.
    pub(crate) fn say(&self, words: String, good: bool) {
        let mut notices = self.page.notices.lock();
        let notices = notices.as_mut().map(std::ops::DerefMut::deref_mut);
        if let Ok(notices) = notices {
            if notices.len() >= NOTICES_MAX {
                notices.pop_first();
            }
            notices.insert(self.session.clone(), Notice { words, good });
        }
    }
}

impl From<Refusal> for Problem {
    /// A refusal of the daemon as a page.
    fn from(refusal: Refusal) -> Self {
        let (status, title) = match Code::of_number(refusal.code) {
            Code::Usage => (StatusCode::UNPROCESSABLE_ENTITY, "problem.input"),
            Code::Input | Code::NoInput => (StatusCode::NOT_FOUND, "problem.unknown"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "problem.unavailable"),
        };
        Self::new(status, title, refusal.words)
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

fn not_allowed(shell: &PageShell, route: &Route) -> Response<Body> {
    let words = shell.with("problem.method.words", route.methods());
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let problem = Problem::new(status, "problem.method", words);
    let mut response = answer::problem(shell, &problem);
    let allow = header::HeaderValue::from_static(route.methods());
    response.headers_mut().insert(header::ALLOW, allow);
    response
}

/// In epoch seconds.
pub(crate) fn now_seconds() -> i64 {
    clock::now().wall.micros() / 1_000_000
}
