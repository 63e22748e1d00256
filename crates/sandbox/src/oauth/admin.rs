//! Admin paths for applications and connections: `GET /sandbox/oauth` and, below
//! `/sandbox/admin/oauth/`, what a person does in the CRM. Bodies have `clientId` (optional if
//! there is only one application) and `company` (by default the first one).
//!
//! | `POST …` | body and effect |
//! |---|---|
//! | `application` | registers a new application, or changes the given fields (see below) |
//! | `disconnect` | ends the company's connection |
//! | `grants` | `{"grants": […]}`: the new grants of the connection |
//! | `revoke` | revokes `{"token"}`; without `token`, all refresh tokens of the connection |
//! | `approve` | `{"redirectUri", "scope"}`: returns a code without the consent page |
//!
//! An application: `{"clientId", "clientSecret", "name", "redirectUris": […], "grants": […],
//! "published", "suspended", "embedded"}`.

use crate::{
    AdminAnswer, Application, ConsentRequest, FIRST_APPLICATION, Grant, Sandbox, TokenKey,
    body::needed, body::read, oauth::connection, oauth::consent, oauth::consent::scope_of,
    oauth::state::redirect_uri,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The fields of a request body of the paths below `/sandbox/admin/oauth/`. Each path reads only
/// some of the fields.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Order {
    client_id: Option<String>,
    client_secret: Option<String>,
    company: Option<i64>,
    embedded: Option<bool>,
    grants: Option<Vec<Grant>>,
    name: Option<String>,
    published: Option<bool>,
    redirect_uri: Option<String>,
    redirect_uris: Option<Vec<String>>,
    scope: Option<String>,
    suspended: Option<bool>,
    token: Option<String>,
}

/// Answers a POST to a path below `/sandbox/admin/oauth/`. Returns null if there is no such path.
pub(crate) fn administer(core: &mut Sandbox, act: &str, body: &[u8]) -> AdminAnswer {
    let order: Order = read(body)?;
    if act == "oauth/application" {
        return register(core, order);
    }
    let known = match &order.client_id {
        Some(client_id) => core.oauth.client(client_id),
        None => only_application(core),
    };
    let application = known
        .cloned()
        .ok_or("`clientId`: no such application, or several")?;
    let id = application.id;
    let company = order.company.unwrap_or(core.settings.company.id);
    let there = match act {
        "oauth/disconnect" => connection::disconnect(core, id, company),
        "oauth/grants" => {
            let grants = needed(order.grants, "grants")?;
            connection::set_grants(core, id, company, grants)
        }
        "oauth/revoke" => {
            match order.token {
                Some(token) => connection::revoke_any(core, &token),
                None => connection::revoke_refresh_tokens(core, id, company),
            }
            true
        }
        "oauth/approve" => {
            core.ensure_company(company);
            let code = consent::approve(core, consent_request(application, order)?, company);
            return Ok(json!({ "code": code }));
        }
        _ => return Ok(Value::Null),
    };
    if there {
        Ok(json!({ "done": act }))
    } else {
        let client_id = application.client_id;
        Err(format!(
            "{client_id} has no connection to company {company}"
        ))
    }
}

fn only_application(core: &Sandbox) -> Option<&Application> {
    let mut all = core.oauth.applications.values();
    match (all.next(), all.next()) {
        (Some(only), None) => Some(only),
        (_, _) => None,
    }
}

fn consent_request(application: Application, order: Order) -> Result<ConsentRequest, String> {
    let given = order
        .redirect_uri
        .or_else(|| application.redirect_uris.first().cloned());
    let redirect_uri = needed(given, "redirectUri")?;
    let scope = match order.scope {
        Some(scope) => scope_of(&scope, &application).map_err(|problem| problem.to_string())?,
        None => application.allowed.clone(),
    };
    Ok(ConsentRequest {
        application,
        redirect_uri,
        scope,
        state: None,
    })
}

fn register(core: &mut Sandbox, order: Order) -> AdminAnswer {
    let client_id = order.client_id.as_deref();
    let known = client_id.and_then(|id| core.oauth.client(id)).cloned();
    let new = known.is_none();
    let mut application = known.unwrap_or_else(|| {
        let mut fresh = Application::new(order.client_id.unwrap_or_else(|| core.mint("svc_app_")));
        // Public applications have higher ids than the companies' own applications.
        let last = core.oauth.applications.keys().next_back();
        fresh.id = last.map_or(FIRST_APPLICATION, |last| FIRST_APPLICATION.max(*last) + 1);
        fresh
    });
    let secret = match order.client_secret {
        None if new => Some(core.mint("svc_sec_")),
        given => given,
    };
    if let Some(secret) = &secret {
        application.secret = TokenKey::from_value(secret);
    }
    if let Some(uris) = order.redirect_uris {
        let uris = uris.iter().map(|uri| redirect_uri(uri));
        application.redirect_uris = uris.collect::<Result<_, String>>()?;
    }
    application.name = order.name.unwrap_or(application.name);
    application.allowed = order.grants.unwrap_or(application.allowed);
    application.published = order.published.unwrap_or(application.published);
    application.suspended = order.suspended.unwrap_or(application.suspended);
    application.embedded = order.embedded.unwrap_or(application.embedded);
    let mut answer = json!({ "clientId": application.client_id });
    if new {
        // The client secret is shown only once (§5.6.1).
        answer["clientSecret"] = json!(secret);
    }
    connection::register(core, application);
    Ok(answer)
}

/// Returns the answer of `GET /sandbox/oauth`: applications, connections with the number of their
/// tokens that work, and refusals with their domain codes, which OAuth answers do not show.
pub(crate) fn overview(core: &Sandbox) -> Value {
    let applications = core.oauth.applications.values().map(|own| {
        json!({
            "id": own.id, "name": own.name, "clientId": own.client_id,
            "redirectUris": own.redirect_uris, "grants": own.allowed,
            "published": own.published, "suspended": own.suspended, "embedded": own.embedded,
            "webhook": core.webhooks.configs.contains_key(&own.id),
        })
    });
    let connections = core.oauth.connections.values().map(|own| {
        let key = (Some(own.application), own.company);
        let access = core.tokens.values().filter(|token| {
            (token.application, token.company) == key && token.works(core.now) && !own.disconnected
        });
        let mut refreshes = json!({ "working": 0, "used": 0, "revoked": 0, "expired": 0 });
        for (_, refresh) in core.oauth.refreshes(own.application, own.company) {
            let state = match refresh {
                refresh if refresh.used.is_some() => "used",
                refresh if refresh.revoked => "revoked",
                refresh if core.now >= refresh.expires_at => "expired",
                _ => "working",
            };
            refreshes[state] = json!(refreshes[state].as_u64().unwrap_or(0) + 1);
        }
        json!({
            "installation": core.webhooks.installed(own.company, own.application),
            "application": own.application, "company": own.company, "grants": own.grants,
            "connectedAt": own.connected_at, "disconnected": own.disconnected,
            "accessTokens": { "working": access.count() },
            "refreshTokens": refreshes,
        })
    });
    json!({
        "applications": applications.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(),
        "refused": core.oauth.log.0,
    })
}
