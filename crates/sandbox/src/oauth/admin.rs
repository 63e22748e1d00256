//! Applications and connections from outside: `GET /sandbox/oauth` and, below
//! `/sandbox/admin/oauth/`, what a person does in the CRM. JsonFields: `clientId` (may be left out
//! while there is one application) and `company` (without it the first).
//!
//! | `POST …` | body, does |
//! |---|---|
//! | `application` | registers a new one, or changes what is given (fields below) |
//! | `rotate-secret` | a new client secret, shown once; the old one is over |
//! | `disconnect` | the company ends the connection |
//! | `grants` | `{"grants": […]}`: what the connection may do from now on |
//! | `revoke` | `{"token"}`, else every refresh token of the connection |
//! | `approve` | `{"redirectUri", "scope"}`: an authorization code past the consent page |
//!
//! An application: `{"clientId", "clientSecret", "name", "redirectUris": […], "grants": […],
//! "published", "suspended", "embedded"}`.

use super::super::admin::{AdminAnswer, JsonFields, flag, grants, text, whole};
use super::super::core::Sandbox;
use super::super::token::TokenKey;
use super::application::{Application, ConsentRequest};
use super::consent::scope_of;
use super::options::redirect_uri;
use crate::oauth::connection;
use crate::oauth::consent;
use crate::token_gen;
use callbridge_call::EventTime;
use serde_json::{Value, json};

/// Does what is ordered; null: no such act.
pub(crate) fn administer(
    core: &mut Sandbox,
    now: EventTime,
    act: &str,
    fields: &JsonFields,
) -> AdminAnswer {
    if act == "application" {
        return register(core, now, fields);
    }
    let application = named(core, fields)?;
    let (id, client_id) = (application.id, application.client_id.clone());
    let company = whole(fields, "company")?.unwrap_or(core.settings.company.id);
    let done = json!({ "done": act });
    let none = || format!("{client_id} has no connection to company {company}");
    match act {
        "rotate-secret" => {
            let secret = connection::rotate_client_secret(core, now, id);
            Ok(json!({ "clientId": client_id, "clientSecret": secret }))
        }
        "disconnect" => {
            let there = connection::disconnect(core, now, id, company);
            there.then_some(done).ok_or_else(none)
        }
        "grants" => {
            let grants = grants(fields)?;
            let there = connection::set_connection_grants(core, now, id, company, grants);
            there.then_some(done).ok_or_else(none)
        }
        "revoke" => {
            match text(fields, "token")? {
                Some(token) => connection::revoke_any(core, now, token),
                None => connection::revoke_refresh_tokens(core, now, id, company),
            }
            Ok(done)
        }
        "approve" => {
            core.ensure_company(now, company);
            let asked = asked(&application, fields)?;
            let grants = asked.scope.clone();
            Ok(json!({ "code": consent::approve(core, now, &asked, company, grants) }))
        }
        _ => Ok(Value::Null),
    }
}

/// The application meant: by its `clientId`, or the only one.
fn named(core: &Sandbox, fields: &JsonFields) -> Result<Application, String> {
    let known = match text(fields, "clientId")? {
        Some(client_id) => core.oauth.client(client_id),
        None => {
            let mut all = core.oauth.applications();
            all.next().filter(|_| all.next().is_none())
        }
    };
    let missing = || "`clientId`: no such application, or several".to_owned();
    known.cloned().ok_or_else(missing)
}

fn asked(application: &Application, fields: &JsonFields) -> Result<ConsentRequest, String> {
    let first = || application.redirect_uris.first().map(String::as_str);
    let redirect_uri = text(fields, "redirectUri")?.or_else(first);
    let redirect_uri = redirect_uri.ok_or("`redirectUri` is missing")?;
    let scope = match text(fields, "scope")? {
        Some(scope) => scope_of(scope, application).map_err(|problem| problem.to_string())?,
        None => application.allowed.clone(),
    };
    Ok(ConsentRequest {
        application: application.clone(),
        redirect_uri: redirect_uri.to_owned(),
        scope,
        state: None,
    })
}

fn register(core: &mut Sandbox, now: EventTime, fields: &JsonFields) -> AdminAnswer {
    let client_id = text(fields, "clientId")?;
    let there = client_id.and_then(|id| core.oauth.client(id)).cloned();
    let given = text(fields, "clientSecret")?.map(str::to_owned);
    let secret = match (&there, given) {
        (_, Some(given)) => Some(given),
        (Some(_), None) => None,
        (None, None) => Some(token_gen::mint(core, "svc_sec_")),
    };
    let known = there.is_some();
    let mut application = there.unwrap_or_else(|| {
        let client_id = client_id.map_or_else(|| token_gen::mint(core, "svc_app_"), str::to_owned);
        Application {
            id: core.oauth.next_application(),
            ..Application::new(client_id)
        }
    });
    if let Some(secret) = &secret {
        application.secret = TokenKey::of(secret);
    }
    if let Some(name) = text(fields, "name")? {
        name.clone_into(&mut application.name);
    }
    if let Some(uris) = fields.get("redirectUris") {
        let uris = uris.as_array().ok_or("`redirectUris`: a list expected")?;
        let uris = uris.iter().map(|uri| {
            let uri = uri.as_str().ok_or("`redirectUris`: a list of texts")?;
            redirect_uri(uri)
        });
        application.redirect_uris = uris.collect::<Result<_, String>>()?;
    }
    if fields.contains_key("grants") {
        application.allowed = grants(fields)?;
    }
    application.published = flag(fields, "published")?.unwrap_or(application.published);
    application.suspended = flag(fields, "suspended")?.unwrap_or(application.suspended);
    application.embedded = flag(fields, "embedded")?.unwrap_or(application.embedded);
    let client_id = application.client_id.clone();
    connection::register(core, now, application);
    Ok(match secret {
        // Shown when it is new, once (§5.6.1).
        Some(secret) if !known => json!({ "clientId": client_id, "clientSecret": secret }),
        _ => json!({ "clientId": client_id }),
    })
}

/// `GET /sandbox/oauth`: applications, connections with how many of their tokens work, how often
/// each endpoint was asked, and the refusals with the codes that no body carries.
pub(crate) fn look(core: &Sandbox, now: EventTime) -> Value {
    let applications = core.oauth.applications().map(|own| {
        json!({
            "id": own.id, "name": own.name, "clientId": own.client_id,
            "redirectUris": own.redirect_uris, "grants": own.allowed,
            "published": own.published, "suspended": own.suspended, "embedded": own.embedded,
            "webhook": core.webhooks.config(own.id).is_some(),
        })
    });
    let connections = core.oauth.connections().map(|own| {
        let key = (Some(own.application), own.company);
        let access = core.tokens.values().filter(|token| {
            (token.application, token.company) == key && token.works(now) && !own.disconnected
        });
        let (mut usable, mut used, mut revoked, mut expired) = (0, 0, 0, 0);
        for (_, refresh) in core.oauth.refreshes(own.application, own.company) {
            match refresh {
                refresh if refresh.used.is_some() => used += 1,
                refresh if refresh.revoked => revoked += 1,
                refresh if now >= refresh.expires_at => expired += 1,
                _ => usable += 1,
            }
        }
        json!({
            "installation": core.webhooks.installed(own.company, own.application),
            "application": own.application, "company": own.company, "grants": own.grants,
            "connectedAt": own.connected_at, "disconnected": own.disconnected,
            "accessTokens": { "working": access.count() },
            "refreshTokens": {
                "working": usable, "used": used, "revoked": revoked, "expired": expired,
            },
        })
    });
    let asked = core
        .counts()
        .iter()
        .filter(|((endpoint, _), _)| endpoint.is_oauth());
    let asked = asked.map(|((endpoint, status), count)| {
        json!({ "endpoint": endpoint.word(), "status": status, "count": count })
    });
    let lives = &core.settings.oauth;
    json!({
        "applications": applications.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(),
        "asked": asked.collect::<Vec<_>>(),
        "refused": core.oauth.log.lines().collect::<Vec<_>>(),
        "lives": {
            "accessSec": lives.access_life.as_secs(), "refreshSec": lives.refresh_life.as_secs(),
            "codeSec": lives.code_life.as_secs(),
        },
    })
}
