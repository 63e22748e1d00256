//! Tests an application that a company connects, with the real program, the sandbox's consent page,
//! and the tests' browser.

use crate::support::connecting::{Connecting, http};
use crate::support::crm::{self, RATE};
use crate::support::program::Place;
use crate::support::recordings::{self, TRUNKS};
use callbridge_call::EventTime;
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

/// The client id of the application, and its secret.
const CLIENT: &str = "svc_app_of_the_tests";
const SECRET: &str = "svc_sec_of_the_tests";
/// The application's id in the sandbox.
const APPLICATION: i64 = 2;
/// The grants that it can request at most.
const ALLOWED: [&str; 4] = [
    "PERMISSION_OPEN_API_CALL:SAVE",
    "PERMISSION_OPEN_API_CALL:READ",
    "PERMISSION_OPEN_API_LEAD:READ",
    "PERMISSION_OPEN_API_LEAD:SAVE",
];

/// A sandbox with the application, and the folder of one callbridge.
pub struct Stage {
    pub place: Place,
    pub crm: Server,
    redirect: String,
    /// The value of `--rate`.
    rate: String,
}

/// Returns a redirect address on a free port of this machine.
fn free_redirect() -> String {
    format!("http://{}/back", free_addr())
}

impl Stage {
    /// Creates a stage whose access tokens live this long.
    pub async fn new(life: Duration) -> Self {
        Self::with(Place::new(), life, &free_redirect(), RATE).await
    }

    /// Creates a stage in this place.
    pub async fn in_place(place: Place, life: Duration) -> Self {
        Self::with(place, life, &free_redirect(), RATE).await
    }

    /// Creates a stage with the rate in the document.
    pub async fn at_full_rate(life: Duration) -> Self {
        let rate = Rate {
            window: Duration::from_secs(60),
            ..RATE
        };
        Self::with(Place::new(), life, &free_redirect(), rate).await
    }

    /// Creates a stage with this redirect address and rate.
    async fn with(place: Place, life: Duration, redirect: &str, rate: Rate) -> Self {
        let mut config = crm::settings();
        config.settings.rate = rate;
        // Tokens are issued and revoked at a separate host (§5.6.9). Such a request to the other
        // host gets a 404 and is a violation.
        config.auth_listen = Some(config.listen);
        config.settings.access_life = life;
        let grants = ALLOWED.map(|grant| Grant::parse(grant).expect("a grant"));
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

    /// Returns the flags of `connect`.
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

    /// Starts `connect` and waits for the address that it shows.
    pub async fn connect(&self, more: &[&str]) -> Connecting {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callbridge"));
        let command = command.env_clear().arg("connect");
        Connecting::start(command.args(self.connect_flags()).args(more)).await
    }

    /// Starts `connect` in its own terminal, where its output is one text.
    pub async fn connect_in_terminal(&self, more: &[&str]) -> Connecting {
        let more = more.iter().map(|it| (*it).to_owned());
        let words = self.connect_flags().into_iter().chain(more);
        let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
        let program = env!("CARGO_BIN_EXE_callbridge");
        let typed = format!("'{program}' connect {}", words.join(" "));
        let mut command = Command::new("script");
        let command = command.env_clear().env("PATH", "/usr/bin:/bin");
        Connecting::start(command.args(["-qefc", &typed, "/dev/null"])).await
    }

    /// Connects as a company that approves everything.
    pub async fn connected(&self) {
        let connecting = self.connect(&[]).await;
        connecting.answer("decision=approve").await;
        let said = connecting.end().await;
        assert_eq!(said.code, Some(0), "{said:?}");
    }

    /// Returns the flags of `run` for a connection, without a token file.
    pub fn flags(&self, more: &[&str]) -> Vec<String> {
        let source = self.place.file("recorded", "ami");
        let flags = [source.as_str(), TRUNKS[0], TRUNKS[1]];
        let all = self.place.arguments(&self.crm.url(), &flags).into_iter();
        let own = all.filter(|flag| !flag.starts_with("--token-file="));
        let rate = format!("--rate={}", self.rate);
        own.chain([rate])
            .chain(more.iter().map(|it| (*it).to_owned()))
            .collect()
    }

    /// Makes the CRM's company revoke every refresh token.
    pub fn revoke(&self) {
        let company = crm::settings().settings.company.id;
        let revoke = |core: &mut sandbox::Sandbox, _: EventTime| {
            connection::revoke_refresh_tokens(core, APPLICATION, company);
        };
        self.crm.admin(revoke);
    }

    /// Sends a request to an admin path of the sandbox.
    async fn administer(&self, act: &str, body: &Value) -> Value {
        let url = format!("{}/sandbox/admin/{act}", self.crm.url());
        let page = http("POST", &url, "application/json", &body.to_string()).await;
        assert_eq!(page.status, 200, "{act}: {}", page.body);
        serde_json::from_str(&page.body).expect("JSON")
    }

    /// Returns the stored connection.
    pub fn stored(&self) -> Option<Value> {
        stored_in(&self.place.connections())
    }

    /// Checks that no request violated the document.
    pub fn judge(&self) {
        let wrong = crm::conduct(&self.crm, |_| false);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Returns the connection in a state.
fn stored_in(state: &ConnectionStore) -> Option<Value> {
    let content = state.read().expect("readable")?.content;
    Some(serde_json::from_str(content.expose_secret()).expect("JSON"))
}

/// Adds one call to the recording of a place.
fn one_call(stage: &Stage) {
    let call = recordings::one("inbound_answered");
    stage.place.append("recorded", &call.ami);
}

#[tokio::test]
async fn company_connects_calls_are_journaled_and_it_disconnects() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve").await;
    let said = connecting.end().await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("connected: company "), "{said:?}");
    let file = stage.place.at("state").join("spool.db");
    let mode = file.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stored = stage.stored().expect("stored");
    let access = stored["accessToken"].as_str().expect("a token").to_owned();
    let shown = format!("{said:?}");
    for secret in [
        &access,
        SECRET,
        stored["refreshToken"].as_str().expect("a token"),
    ] {
        assert!(!shown.contains(secret), "{shown}");
    }
    one_call(&stage);
    let flags = stage.flags(&["--until-idle"]);
    stage.place.start(&flags, &[]).succeeds().await;
    assert_eq!(stage.crm.journal().len(), 1);
    assert!(!stage.place.logs().contains(&access), "a token in the log");
    let check = stage.flags(&[]);
    let check: Vec<&str> = check[1..].iter().map(String::as_str).collect();
    let found = stage
        .place
        .lines(&[&["check", "--json"], &check[..]].concat())
        .await;
    let of = |name: &str| found.iter().find(|it| it["name"] == name).cloned();
    assert_eq!(of("connection").expect("looked at")["ok"], true);
    assert_eq!(of("company").expect("looked at")["ok"], true);
    let gone = stage.place.command(&["disconnect"]).await;
    let out = String::from_utf8_lossy(&gone.stdout);
    assert!(gone.status.success(), "{gone:?}");
    assert!(
        out.contains("its tokens are revoked\ncalls queued or unconfirmed: 0"),
        "{out}"
    );
    assert!(stage.stored().is_none());
    let works = stage.crm.admin(|core, now| core.token_works(now, &access));
    assert!(!works, "its access token is revoked, too");
    let again = stage.place.start(&flags, &[]).ended().await;
    assert_eq!(again.code(), Some(64), "{}", stage.place.logs());
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
    let said = connecting.end().await;
    assert_eq!(said.code, Some(77), "{said:?}");
    assert!(said.err.contains("declined"), "{said:?}");
    assert!(stage.stored().is_none());
    stage.judge();
}

#[tokio::test]
async fn forged_redirect_is_refused_and_the_true_one_is_still_taken() {
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
    let said = connecting.end().await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.err.contains("ignored a redirect that does not belong"),
        "{said:?}"
    );
    // There was one exchange, with the right code.
    stage.judge();
}

#[tokio::test]
async fn connect_state_parameter_is_unique_and_unguessable() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let mut states = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let connecting = stage.connect(&[]).await;
        let open = url::Url::parse(&connecting.open).expect("a URL");
        let all = open.query_pairs().filter(|(name, _)| name == "state");
        let all: Vec<String> = all.map(|(_, value)| value.into_owned()).collect();
        let [state] = &all[..] else {
            panic!("one state: {}", connecting.open);
        };
        let letters: std::collections::BTreeSet<char> = state.chars().collect();
        assert!(
            state.len() >= 22 && letters.len() >= 8,
            "{state}: 128 bits at least"
        );
        // The redirect returns the state unchanged, and the state of another attempt is refused.
        let others = states.iter().next().cloned();
        if let Some(other) = others {
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
    let stage = Stage::with(Place::new(), Duration::from_secs(3600), redirect, RATE).await;
    let mut connecting = stage.connect(&[]).await;
    let back = connecting.decided("decision=approve").await;
    connecting
        .paste(&format!("{redirect}?code=svc_ac_forged&state=x"))
        .await;
    connecting.paste(&back).await;
    let said = connecting.end().await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let mut connecting = stage.connect(&[]).await;
    connecting
        .paste(&format!("{redirect}?code=svc_ac_forged&state=x"))
        .await;
    drop(connecting.child.stdin.take());
    let said = connecting.end().await;
    assert_eq!(said.code, Some(77), "{said:?}");
    assert!(
        said.err.contains("its state is not the one that was sent"),
        "{said:?}"
    );
    stage.judge();
}

#[tokio::test]
async fn consent_below_the_need_is_77_and_waits_for_the_grant() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let connecting = stage.connect(&[]).await;
    let picked = "decision=approve&picked=yes&grant=PERMISSION_OPEN_API_CALL%3AREAD";
    connecting.answer(picked).await;
    let said = connecting.end().await;
    assert_eq!(said.code, Some(77), "{said:?}");
    assert!(
        said.err
            .contains("PERMISSION_OPEN_API_CALL:SAVE was not granted"),
        "{said:?}"
    );
    assert!(
        said.err.contains("leads do not show their last call"),
        "{said:?}"
    );
    one_call(&stage);
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    let paused = program.until("a pause", |it| it.pause.is_some()).await;
    assert_eq!(paused.pause.expect("a pause").reason, "no_grant");
    program.terminate().await;
    stage.judge();
}

#[tokio::test]
async fn another_companys_consent_is_taken_back() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    stage.connected().await;
    let before = stage.stored().expect("stored");
    stage
        .administer("oauth/approve", &json!({ "company": 99 }))
        .await;
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve&company=99").await;
    let said = connecting.end().await;
    assert_eq!(said.code, Some(77), "{said:?}");
    assert!(
        said.err
            .contains("not connected, and the new tokens were revoked"),
        "{said:?}"
    );
    assert_eq!(stage.stored().expect("stored"), before);
    one_call(&stage);
    let mut program = stage.place.start(&stage.flags(&[]), &[]);
    program.settled(1).await;
    // The same while the daemon runs, which asks for the company.
    let connecting = stage.connect(&[]).await;
    connecting.answer("decision=approve&company=99").await;
    let said = connecting.end().await;
    assert_eq!(said.code, Some(77), "{said:?}");
    assert_eq!(stage.stored().expect("stored"), before);
    let other = stage.connect(&["--company=99"]).await;
    other.answer("decision=approve").await;
    let said = other.end().await;
    assert_eq!(said.code, Some(77), "{said:?}");
    assert!(said.err.contains("--company is 99"), "{said:?}");
    assert_eq!(stage.stored().expect("stored"), before);
    program
        .until("its own company", |it| it.pause.is_none())
        .await;
    program.terminate().await;
    stage.judge();
}

#[tokio::test]
async fn connection_and_another_token_are_not_guessed_between() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    stage.connected().await;
    one_call(&stage);
    let file = format!("--token-file={}", stage.place.path("token"));
    for (more, variables) in [
        (vec![file.as_str()], vec![]),
        (vec!["--token-command=echo x"], vec![]),
        (vec![], vec![("CALLBRIDGE_TOKEN", "svc_pat_x")]),
    ] {
        let program = stage.place.start(&stage.flags(&more), &variables);
        assert_eq!(program.ended().await.code(), Some(64), "{more:?}");
    }
    let words = "the state also has a connection by `callbridge connect`";
    assert_eq!(stage.place.logs().matches(words).count(), 3);
}

#[tokio::test]
async fn token_command_runs_again_after_crm_refuses_token() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    one_call(&stage);
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
async fn exported_connection_needs_secrets_or_another_consent() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    stage.connected().await;
    let stored = stage.stored().expect("stored");
    let access = stored["accessToken"].as_str().expect("a token");
    for (flag, told, then) in [
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
        let said = String::from_utf8_lossy(&exported.stdout);
        assert!(said.contains(told), "{exported:?}");
        let archive = std::fs::read(&file).expect("an archive");
        let holds = archive
            .windows(access.len())
            .any(|at| at == access.as_bytes());
        assert_eq!(holds, flag.is_some(), "{name}");
        let folder = stage.place.path(&new);
        let state = format!("--state={folder}");
        let imported = stage
            .place
            .command(&["state", "import", &file, &state])
            .await;
        let said = String::from_utf8_lossy(&imported.stdout);
        assert!(said.contains(then), "{imported:?}");
        let expected = flag.is_some().then(|| stored.clone());
        let state = ConnectionStore::new(&stage.place.at(&new));
        assert_eq!(stored_in(&state), expected, "{name}");
    }
    stage.judge();
}

#[tokio::test]
async fn connection_can_be_forgotten_when_nothing_can_be_revoked() {
    let stage = Stage::new(Duration::from_secs(3600)).await;
    stage.connected().await;
    let gone = Rule::always(Endpoint::OauthRevoke, Action::Gateway(404));
    stage.crm.admin(|core, _| core.set_faults(vec![gone]));
    let stays = stage.place.command(&["disconnect"]).await;
    let told = String::from_utf8_lossy(&stays.stderr);
    assert!(told.contains("disconnect --forget`"), "{told}");
    assert!(stage.stored().is_some());
    let forgotten = stage.place.command(&["disconnect", "--forget"]).await;
    let told = String::from_utf8_lossy(&forgotten.stdout);
    assert!(forgotten.status.success(), "{forgotten:?}");
    assert!(told.contains("cannot be revoked"), "{told}");
    assert!(stage.stored().is_none());
}
