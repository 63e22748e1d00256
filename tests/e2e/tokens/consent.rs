//! Tests that `connect` connects a company's application, using the sandbox's consent page and the
//! tests' browser.

use crate::support::connecting::{Connecting, http};
use crate::support::crm::{self, RATE};
use crate::support::program::Place;
use crate::support::recordings::{self, TRUNKS};
use callbridge_model::ExposeSecret as _;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::oauth::{Application, connection};
use callbridge_sandbox::token::{Grant, TokenKey};
use callbridge_sandbox::window::Rate;
use callbridge_sandbox::{Action, Endpoint, Rule, Server};
use callbridge_spool::ConnectionStore;
use callbridge_testbed::port::free_addr;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use tokio::process::Command;

/// The application's client ID. `SECRET` is the client secret.
const CLIENT: &str = "svc_app_of_the_tests";
const SECRET: &str = "svc_sec_of_the_tests";
/// The application's ID in the sandbox.
const APPLICATION: i64 = 2;
/// The grants that the application may request.
const ALLOWED_GRANTS: [&str; 4] = [
    "PERMISSION_OPEN_API_CALL:SAVE",
    "PERMISSION_OPEN_API_CALL:READ",
    "PERMISSION_OPEN_API_LEAD:READ",
    "PERMISSION_OPEN_API_LEAD:SAVE",
];

/// A CRM that knows the application, along with a callbridge's directory.
pub struct Stage {
    pub place: Place,
    pub crm: Server,
    redirect: String,
    /// The value of `--rate`.
    rate: String,
}

/// Returns a redirect URL on a free port of this machine.
fn free_redirect() -> String {
    format!("http://{}/back", free_addr())
}

impl Stage {
    /// Creates a stage whose access tokens are valid for `life`.
    pub async fn new(life: Duration) -> Self {
        Self::with_redirect(Place::new(), life, &free_redirect(), RATE).await
    }

    /// Creates a stage in this place whose access tokens are valid for `life`.
    pub async fn in_place(place: Place, life: Duration) -> Self {
        Self::with_redirect(place, life, &free_redirect(), RATE).await
    }

    /// Creates a stage with the request rate given in the CRM's document.
    pub async fn at_full_rate(life: Duration) -> Self {
        let rate = Rate {
            window: Duration::from_secs(60),
            ..RATE
        };
        Self::with_redirect(Place::new(), life, &free_redirect(), rate).await
    }

    /// Creates a stage with this redirect URL for the application and this request rate.
    async fn with_redirect(place: Place, life: Duration, redirect: &str, rate: Rate) -> Self {
        let mut config = crm::settings();
        config.settings.rate = rate;
        // Tokens are issued and revoked by a separate host (§5.6.9). The API's host responds to
        // such a request with 404 and counts a violation.
        config.auth_listen = Some(config.listen);
        config.settings.access_life = life;
        let grants = ALLOWED_GRANTS.map(|grant| Grant::parse(grant).expect("a grant"));
        config.settings.application = Some(Application {
            id: APPLICATION,
            secret: TokenKey::from_value(SECRET),
            redirect_uris: vec![redirect.to_owned()],
            allowed: grants.into(),
            ..Application::new(CLIENT.to_owned())
        });
        let crm = sandbox::start(config).await.expect("a sandbox");
        place.write("client.secret", SECRET);
        Self {
            place,
            crm,
            redirect: redirect.to_owned(),
            rate: format!("{}/{}s", rate.requests, rate.window.as_secs()),
        }
    }

    /// Returns the flags for `connect`.
    fn connect_flags(&self) -> [String; 7] {
        [
            format!("--crm-url={}", self.crm.url()),
            format!("--auth-url={}", self.crm.auth_url()),
            format!("--consent-url={}/consent", self.crm.url()),
            format!("--client-id={CLIENT}"),
            format!("--client-secret-file={}", self.place.path("client.secret")),
            format!("--redirect-uri={}", self.redirect),
            format!("--state={}", self.place.state()),
        ]
    }

    /// Starts `connect` with the flags in `more`, and waits for the URL that it shows.
    pub async fn connect(&self, more: &[&str]) -> Connecting {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callbridge"));
        let command = command.env_clear().arg("connect");
        Connecting::start(command.args(self.connect_flags()).args(more)).await
    }

    /// Starts `connect` in a new terminal, which combines stdout and stderr.
    pub async fn connect_in_terminal(&self, more: &[&str]) -> Connecting {
        let more = more.iter().map(|flag| (*flag).to_owned());
        let arguments = self.connect_flags().into_iter().chain(more);
        let arguments: Vec<String> = arguments.map(|argument| format!("'{argument}'")).collect();
        let program = env!("CARGO_BIN_EXE_callbridge");
        let line = format!("'{program}' connect {}", arguments.join(" "));
        let mut command = Command::new("script");
        let command = command.env_clear().env("PATH", "/usr/bin:/bin");
        Connecting::start(command.args(["-qefc", &line, "/dev/null"])).await
    }

    /// Runs `connect`, and approves everything on the consent page.
    pub async fn approve_connection(&self) {
        let connecting = self.connect(&[]).await;
        connecting.answer("decision=approve").await;
        let output = connecting.end().await;
        assert_eq!(output.code, Some(0), "{output:?}");
    }

    /// Returns the flags for `run` with a connection, without a token file, along with those in
    /// `more`.
    pub fn flags(&self, more: &[&str]) -> Vec<String> {
        let source = self.place.file("recorded", "ami");
        let flags = [source.as_str(), TRUNKS[0], TRUNKS[1]];
        let arguments = self.place.arguments(&self.crm.url(), &flags).into_iter();
        let kept = arguments.filter(|flag| !flag.starts_with("--token-file="));
        let rate = format!("--rate={}", self.rate);
        kept.chain([rate])
            .chain(more.iter().map(|flag| (*flag).to_owned()))
            .collect()
    }

    /// Makes the company revoke every refresh token in the CRM.
    pub fn revoke(&self) {
        let company = crm::settings().settings.company.id;
        self.crm.admin(|core, _| {
            connection::revoke_refresh_tokens(core, APPLICATION, company);
        });
    }

    /// Posts `body` to `/sandbox/admin/{path}`, and returns the response.
    async fn administer(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}/sandbox/admin/{path}", self.crm.url());
        let page = http("POST", &url, "application/json", &body.to_string()).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        serde_json::from_str(&page.body).expect("JSON")
    }

    /// Returns the connection stored in the state, if there is one.
    pub fn stored(&self) -> Option<Value> {
        stored_in(&self.place.connections())
    }

    /// Checks that no request violated the CRM's document.
    pub fn judge(&self) {
        let violations = crm::conduct(&self.crm, |_| false);
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }
}

/// Returns the connection stored in this state, if there is one.
pub fn stored_in(state: &ConnectionStore) -> Option<Value> {
    let content = state.read().expect("readable")?.content;
    Some(serde_json::from_str(content.expose_secret()).expect("JSON"))
}

/// Appends one call to the recording that the program reads.
fn append_call(stage: &Stage) {
    let call = recordings::one("inbound_answered");
    stage.place.append("recorded", &call.ami);
}

#[tokio::test]
async fn connection_journals_calls_until_disconnect_revokes_it() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.out.starts_with("connected: company "), "{output:?}");
    let file = stage.place.at("state").join("spool.db");
    let mode = file.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stored = stage.stored().expect("stored");
    let access = stored["accessToken"].as_str().expect("a token").to_owned();
    let shown = format!("{output:?}");
    for secret in [
        &access,
        SECRET,
        stored["refreshToken"].as_str().expect("a token"),
    ] {
        assert!(!shown.contains(secret), "{shown}");
    }
    append_call(&stage);
    let flags = stage.flags(&["--until-idle"]);
    stage.place.start(&flags, &[]).expect_success().await;
    assert_eq!(stage.crm.journal().len(), 1);
    assert!(!stage.place.logs().contains(&access), "a token in the log");
    let check = stage.flags(&[]);
    let check: Vec<&str> = check[1..].iter().map(String::as_str).collect();
    let report = stage
        .place
        .lines(&[&["check", "--json"], &check[..]].concat())
        .await;
    for name in ["connection", "company"] {
        let row = report.iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("no row {name}: {report:?}"));
        assert_eq!(row["ok"], true, "{name}: {row}");
    }
    let disconnect = stage.place.command(&["disconnect"]).await;
    let out = String::from_utf8_lossy(&disconnect.stdout);
    assert!(disconnect.status.success(), "{disconnect:?}");
    assert!(
        out.contains("its tokens are revoked\ncalls queued or unconfirmed: 0"),
        "{out}"
    );
    assert!(stage.stored().is_none());
    let is_accepted = stage.crm.admin(|core, now| core.token_works(now, &access));
    assert!(!is_accepted, "the access token is revoked, too");
    let second_run = stage.place.start(&flags, &[]).ended().await;
    assert_eq!(second_run.code(), Some(64), "{}", stage.place.logs());
    assert_eq!(
        stage.place.command(&["disconnect"]).await.status.code(),
        Some(66)
    );
    stage.judge();
}

#[tokio::test]
async fn declined_consent_is_reported_and_stores_nothing() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=decline").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(output.err.contains("declined"), "{output:?}");
    assert!(stage.stored().is_none());
    stage.judge();
}

#[tokio::test]
async fn forged_redirect_is_refused_and_true_one_still_accepted() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let mut connecting = stage.connect(&[]).await;
    let forged = format!(
        "{}?code=svc_ac_forged&state=0123456789abcdef",
        stage.redirect
    );
    for (address, status) in [
        (forged.clone(), 400),
        (format!("{}?code=svc_ac_forged", stage.redirect), 400),
        (format!("{}/else?code=x", stage.redirect), 404),
    ] {
        assert_eq!(http("GET", &address, "text/plain", "").await.status, status);
    }
    connecting.paste(&forged).await;
    connecting.answer("decision=approve").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output.err.contains("ignored a redirect of another consent"),
        "{output:?}"
    );
    // callbridge only exchanged the right code.
    stage.judge();
}

/// Returns the number of positions at which both texts have the same digit.
fn equal_digits(one: &str, other: &str) -> usize {
    let digits = one.bytes().zip(other.bytes());
    digits.filter(|(one, other)| one == other).count()
}

#[tokio::test]
async fn connect_state_parameter_is_long_and_differs_each_time() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let mut states = std::collections::BTreeSet::<String>::new();
    for _ in 0..3 {
        let connecting = stage.connect(&[]).await;
        let open = url::Url::parse(&connecting.open).expect("a URL");
        let values = open.query_pairs().filter(|(name, _)| name == "state");
        let values: Vec<String> = values.map(|(_, value)| value.into_owned()).collect();
        let [state] = &values[..] else {
            panic!("expected one state: {}", connecting.open);
        };
        // 32 hexadecimal digits are 128 bits.
        let is_hex = state.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(state.len() >= 32 && is_hex, "{state}");
        // A counter or a time would have most of its digits in common with an earlier value.
        for previous in &states {
            let shared = equal_digits(state, previous);
            assert!(2 * shared < state.len(), "{state} {previous}");
        }
        // `connect` rejects a redirect with the state of an earlier attempt.
        let earlier = states.iter().next().cloned();
        if let Some(other) = earlier {
            let stale = format!("{}?code=svc_ac_1&state={other}", stage.redirect);
            assert_eq!(http("GET", &stale, "text/plain", "").await.status, 400);
        }
        connecting.answer("decision=decline").await;
        assert_eq!(connecting.end().await.code, Some(77));
        states.insert(state.clone());
    }
    assert_eq!(states.len(), 3, "{states:?}");
    stage.judge();
}

#[tokio::test]
async fn pasted_redirect_connects_and_wrong_state_is_refused() {
    let redirect = "https://vendor.example/back";
    let stage = Stage::with_redirect(Place::new(), Duration::from_secs(3600), redirect, RATE).await;
    let mut connecting = stage.connect(&[]).await;
    let back = connecting.submit_consent("decision=approve").await;
    connecting
        .paste(&format!("{redirect}?code=svc_ac_forged&state=x"))
        .await;
    connecting.paste(&back).await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let mut connecting = stage.connect(&[]).await;
    connecting
        .paste(&format!("{redirect}?code=svc_ac_forged&state=x"))
        .await;
    drop(connecting.child.stdin.take());
    let output = connecting.end().await;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(
        output
            .err
            .contains("its state is not the one that was sent"),
        "{output:?}"
    );
    stage.judge();
}

#[tokio::test]
async fn consent_without_required_grant_exits_77_and_run_pauses() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let connecting = stage.connect(&[]).await;
    let picked = "decision=approve&picked=yes&grant=PERMISSION_OPEN_API_CALL%3AREAD";
    connecting.answer(picked).await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(
        output
            .err
            .contains("PERMISSION_OPEN_API_CALL:SAVE was not granted"),
        "{output:?}"
    );
    assert!(
        output.err.contains("leads do not show their last call"),
        "{output:?}"
    );
    append_call(&stage);
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    let status = program
        .until("a pause", |status| status.pause.is_some())
        .await;
    assert_eq!(status.pause.expect("a pause").reason, "no_grant");
    program.terminate().await;
    stage.judge();
}

#[tokio::test]
async fn other_company_consent_exits_77_and_is_revoked() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    stage.approve_connection().await;
    let before = stage.stored().expect("stored");
    stage
        .administer("oauth/approve", &json!({ "company": 99 }))
        .await;
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve&company=99").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(
        output
            .err
            .contains("not connected, and the new tokens were revoked"),
        "{output:?}"
    );
    assert_eq!(stage.stored().expect("stored"), before);
    append_call(&stage);
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    program.settled(1).await;
    // `connect` also rejects the other company while the daemon is running.
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve&company=99").await;
    let output = connecting.end().await;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert_eq!(stage.stored().expect("stored"), before);
    let other = stage.connect(&["--company=99"]).await;
    other.answer("decision=approve").await;
    let output = other.end().await;
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(output.err.contains("--company is 99"), "{output:?}");
    assert_eq!(stage.stored().expect("stored"), before);
    program
        .until("the end of the pause", |status| status.pause.is_none())
        .await;
    program.terminate().await;
    stage.judge();
}

#[tokio::test]
async fn connection_with_another_token_source_exits_64() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    stage.approve_connection().await;
    append_call(&stage);
    let file = format!("--token-file={}", stage.place.path("token"));
    for (more, variables) in [
        (vec![file.as_str()], vec![]),
        (vec!["--token-command=echo x"], vec![]),
        (vec![], vec![("CALLBRIDGE_TOKEN", "svc_pat_x")]),
    ] {
        let program = stage.place.start(&stage.flags(&more), &variables);
        assert_eq!(program.ended().await.code(), Some(64), "{more:?}");
    }
    let message = "the state also has a connection by `callbridge connect`";
    assert_eq!(stage.place.logs().matches(message).count(), 3);
}

#[tokio::test]
async fn token_command_runs_again_after_crm_refuses_token() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    append_call(&stage);
    let (first, token) = (stage.place.path("first"), stage.place.path("token"));
    let script =
        format!("if mkdir {first} 2>/dev/null; then echo svc_pat_old; else cat {token}; fi");
    let command = format!("--token-command={script}");
    let mut program = stage.place.start(&stage.flags(&[&command]), &[]);
    let status = program.settled(1).await;
    assert_eq!(status.books.journaled, 1);
    program.terminate().await;
}

#[tokio::test]
async fn state_export_includes_connection_only_with_secrets() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    stage.approve_connection().await;
    let stored = stage.stored().expect("stored");
    let access = stored["accessToken"].as_str().expect("a token");
    for (flag, export_text, import_text) in [
        (
            None,
            "the secrets of its connection are left out",
            "run `callbridge connect` before `run`",
        ),
        (
            Some("--with-secrets"),
            "protect it like a password",
            "stop the callbridge that it was exported from",
        ),
    ] {
        let name = flag.unwrap_or("without").trim_start_matches('-');
        let (file, new) = (stage.place.path(name), format!("state of {name}"));
        let mut export = vec!["state", "export", file.as_str()];
        export.extend(flag);
        let exported = stage.place.command(&export).await;
        let output = String::from_utf8_lossy(&exported.stdout);
        assert!(output.contains(export_text), "{exported:?}");
        let archive = std::fs::read(&file).expect("an archive");
        let has_token = archive
            .windows(access.len())
            .any(|at| at == access.as_bytes());
        assert_eq!(has_token, flag.is_some(), "{name}");
        let folder = stage.place.path(&new);
        let state = format!("--state={folder}");
        let imported = stage
            .place
            .command(&["state", "import", &file, &state])
            .await;
        let output = String::from_utf8_lossy(&imported.stdout);
        assert!(output.contains(import_text), "{imported:?}");
        let expected = flag.is_some().then(|| stored.clone());
        let state = ConnectionStore::new(&stage.place.at(&new));
        assert_eq!(stored_in(&state), expected, "{name}");
    }
    stage.judge();
}

#[tokio::test]
async fn disconnect_forget_works_when_tokens_cannot_be_revoked() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    stage.approve_connection().await;
    let refusal = Rule::always(Endpoint::OauthRevoke, Action::Gateway(404));
    stage.crm.admin(|core, _| core.set_faults(vec![refusal]));
    let failed = stage.place.command(&["disconnect"]).await;
    let output = String::from_utf8_lossy(&failed.stderr);
    assert!(output.contains("disconnect --forget`"), "{output}");
    assert!(stage.stored().is_some());
    let forgotten = stage.place.command(&["disconnect", "--forget"]).await;
    let output = String::from_utf8_lossy(&forgotten.stdout);
    assert!(forgotten.status.success(), "{forgotten:?}");
    assert!(output.contains("cannot be revoked"), "{output}");
    assert!(stage.stored().is_none());
}
