//! Tests two hubs that share a PostgreSQL, where one is leading and the other is waiting as a
//! standby.

use super::stage::{add_branch, free_address, messages, post};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use callbridge_model::status::{LeadershipStatus, Role};
use callbridge_sandbox::Server;
use callbridge_testbed::postgres::Postgres;
use callbridge_testbed::wait::until;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// A leader that ended without closing its session is replaced within this time.
const TAKEOVER: Duration = Duration::from_secs(15);

/// One of two hubs that share a database.
struct Hub {
    place: Place,
    flags: Vec<String>,
    program: Program,
    collect: SocketAddr,
    metrics: SocketAddr,
    page: SocketAddr,
}

impl Hub {
    fn start(url: &str, name: &str, crm: &str, token: Option<&str>) -> Self {
        let place = Place::in_database(url);
        if let Some(token) = token {
            place.write("token", token);
        }
        Self::start_in(place, name, crm)
    }

    fn start_in(place: Place, name: &str, crm: &str) -> Self {
        let collect = free_address();
        let metrics = free_address();
        let page = free_address();
        let flags = [
            format!("--state={}", place.state()),
            format!("--instance={name}"),
            format!("--collect={collect}"),
            format!("--listen={metrics}"),
            format!("--page={page}"),
            format!("--crm-url={crm}"),
            format!("--token-file={}", place.path("token")),
            "--country=UZ".to_owned(),
            RATE_FLAG.to_owned(),
        ];
        let mut arguments = vec!["run".to_owned()];
        arguments.extend(flags.clone());
        let program = place.start(&arguments, &[]);
        Self {
            place,
            flags: flags.to_vec(),
            program,
            collect,
            metrics,
            page,
        }
    }

    /// Waits until the hub has this role, and returns the leadership status.
    async fn wait_for_role(&mut self, role: Role) -> LeadershipStatus {
        let what = format!("the role {}", role.word());
        let status = self.program.until(&what, |status| {
            let leadership = status.leadership.as_ref();
            leadership
                .is_some_and(|leadership| leadership.role == role && leadership.leader.is_some())
        });
        status.await.leadership.expect("a leadership")
    }
}

/// Returns a page's status and text.
async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    // An error means that another test has already installed the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .expect("a client");
    let response = http.get(format!("http://{address}{path}")).send().await;
    let response = response.ok()?;
    let status = response.status().as_u16();
    Some((status, response.text().await.ok()?))
}

/// Starts a leader and its standby.
async fn start_pair(crm: &Server, url: &str) -> [Hub; 2] {
    let mut first = Hub::start(url, "hub1", &crm.url(), None);
    first.wait_for_role(Role::Leader).await;
    let mut second = Hub::start(url, "hub2", &crm.url(), None);
    second.wait_for_role(Role::Standby).await;
    [first, second]
}

/// Returns the URL of a new, empty schema.
fn new_schema_url() -> String {
    Postgres::shared().url(&Postgres::new_schema())
}

/// Promise: A standby answers 503 with the leader's name, and only the leader is ready.
#[tokio::test]
async fn standby_answers_503_with_name_of_leader() {
    let crm = crm::start().await;
    let [first, second] = start_pair(&crm, &new_schema_url()).await;
    let health = get(second.metrics, "/healthz").await.expect("an answer");
    assert_eq!(health.0, 200);
    for (address, path) in [
        (second.metrics, "/readyz"),
        (second.collect, "/v1/calls"),
        (second.page, "/"),
    ] {
        let (status, text) = get(address, path).await.expect("an answer");
        assert_eq!(status, 503, "{path}");
        assert_eq!(text.trim_end(), "hub1 leads; this process is a standby");
    }
    let ready = get(first.metrics, "/readyz").await.expect("an answer");
    assert_eq!(ready.0, 200);
    let (_, metrics) = get(second.metrics, "/metrics").await.expect("an answer");
    assert!(metrics.contains("callbridge_leader 0\n"), "{metrics}");
    let round_trip = "callbridge_database_round_trip_seconds ";
    assert!(!metrics.contains(round_trip), "{metrics}");
    let lost = "callbridge_database_sessions_lost_total 0\n";
    assert!(metrics.contains(lost), "{metrics}");
    let (_, metrics) = get(first.metrics, "/metrics").await.expect("an answer");
    assert!(metrics.contains("callbridge_leader 1\n"), "{metrics}");
    assert!(metrics.contains("callbridge_standbys 1\n"), "{metrics}");
    assert!(metrics.contains(round_trip), "{metrics}");
}

#[tokio::test]
async fn commands_that_write_fail_on_standby_with_leaders_name() {
    let crm = crm::start().await;
    let [first, second] = start_pair(&crm, &new_schema_url()).await;
    let output = second
        .place
        .command(&["branch", "add", "samarkand", "--pbx", "samarkand"])
        .await;
    assert_eq!(output.status.code(), Some(69));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("hub1 leads"), "{text}");
    add_branch(&first.place, "samarkand", "samarkand").await;
    let branches = second.place.lines(&["branch", "list", "--json"]).await;
    assert_eq!(branches[0]["branch"], "samarkand");
    for hub in [&first, &second] {
        let status = hub.place.lines(&["status", "--json"]).await.remove(0);
        assert_eq!(status["leadership"]["leader"]["name"], "hub1");
        assert_eq!(status["leadership"]["standbys"][0]["name"], "hub2");
    }
    // The next commands run in a place without a daemon.
    let other = Place::in_database(&first.place.state());
    let status = other.lines(&["status", "--json"]).await.remove(0);
    assert_eq!(status["leadership"]["role"], "command");
    let output = other.command(&["branch", "remove", "samarkand"]).await;
    assert_eq!(output.status.code(), Some(69));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("hub1 leads"), "{text}");
}

#[tokio::test]
async fn check_of_standby_recognizes_its_daemons_addresses() {
    let crm = crm::start().await;
    let [_first, second] = start_pair(&crm, &new_schema_url()).await;
    let mut arguments = vec!["check", "--json"];
    arguments.extend(second.flags.iter().map(String::as_str));
    let output = second.place.command(&arguments).await;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("is in use by the running daemon"), "{text}");
    assert!(!text.contains("already in use"), "{text}");
    assert!(text.contains("not asked: hub1 leads"), "{text}");
}

/// Promise: A standby takes over within 15 seconds after the leader was killed, with all calls.
#[tokio::test]
async fn standby_takes_over_from_killed_leader_with_all_calls() {
    let crm = crm::start().await;
    let [first, mut second] = start_pair(&crm, &new_schema_url()).await;
    let token = add_branch(&first.place, "samarkand", "samarkand").await;
    let body = messages("samarkand", 0..30);
    let (status, answer) = post(first.collect, "/v1/calls", &token, body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    let url = first.place.state();
    first.program.kill().await;
    let kill_time = std::time::Instant::now();
    second.wait_for_role(Role::Leader).await;
    assert!(kill_time.elapsed() < TAKEOVER, "{:?}", kill_time.elapsed());
    let (status, again) = post(second.collect, "/v1/calls", &token, body).await;
    assert_eq!(status, 200, "{again}");
    assert_eq!(again["taken"], answer["taken"]);
    let status = second.program.status().await.expect("a status");
    assert_eq!(status.books.finished, 30);
    assert_eq!(status.pause.expect("a silence").reason, "takeover");
    // The killed hub returns as a standby.
    let mut first = Hub::start(&url, "hub1", &crm.url(), None);
    let shown = first.wait_for_role(Role::Standby).await;
    assert_eq!(shown.leader.expect("a leader").name, "hub2");
}

#[tokio::test]
async fn leader_that_loses_its_session_leads_again_without_pause() {
    let crm = crm::start().await;
    let url = new_schema_url();
    // Tests share the server, so the hub's name must be unique.
    let name = url.rsplit_once("schema=").expect("a schema").1;
    let mut hub = Hub::start(&url, name, &crm.url(), None);
    hub.wait_for_role(Role::Leader).await;
    let token = add_branch(&hub.place, "samarkand", "samarkand").await;
    let end_session = format!(
        "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
         WHERE a.application_name LIKE '% {name}' AND l.locktype = 'advisory'"
    );
    until("the end of the session", async || {
        Postgres::shared().sql(&end_session).contains('t')
    })
    .await;
    until("the hub leads again", async || {
        hub.program.log().matches("acquired the lock").count() == 2
    })
    .await;
    hub.wait_for_role(Role::Leader).await;
    let status = hub.program.status().await.expect("a status");
    assert_eq!(status.pause, None, "its slots are known");
    let (status, answer) = post(
        hub.collect,
        "/v1/calls",
        &token,
        messages("samarkand", 0..1),
    )
    .await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test]
async fn older_hub_remains_standby_while_the_schema_is_newer() {
    let crm = crm::start().await;
    let url = new_schema_url();
    let [first, mut second] = start_pair(&crm, &url).await;
    // Upgrading the leader migrates the tables. The other hub only sees the new version number.
    first.program.terminate().await;
    second.wait_for_role(Role::Leader).await;
    let schema = url.rsplit_once("schema=").expect("a schema").1;
    let update = format!("UPDATE {schema}.callbridge_schema SET version = version + 1");
    Postgres::shared().sql(&update);
    second.program.terminate().await;
    let mut older_hub = Hub::start(&url, "hub1", &crm.url(), None);
    let status = older_hub
        .program
        .until("the status names the newer schema", |status| {
            let leadership = status.leadership.as_ref();
            leadership.is_some_and(|shown| shown.problem.is_some())
        })
        .await;
    let leadership = status.leadership.expect("a leadership");
    assert_eq!(leadership.role, Role::Standby);
    let problem = leadership.problem.expect("a problem");
    assert!(problem.contains("newer"), "{problem}");
    let ready = get(older_hub.metrics, "/readyz").await.expect("an answer");
    assert_eq!(ready.0, 503);
    // The hub leads once the version matches again.
    let back = format!("UPDATE {schema}.callbridge_schema SET version = version - 1");
    Postgres::shared().sql(&back);
    older_hub.wait_for_role(Role::Leader).await;
}

#[tokio::test]
async fn wrong_token_of_standby_is_shown_in_status() {
    let crm = crm::start().await;
    let url = new_schema_url();
    let mut first = Hub::start(&url, "hub1", &crm.url(), None);
    first.wait_for_role(Role::Leader).await;
    let mut second = Hub::start(&url, "hub2", &crm.url(), Some("svc_pat_of_another"));
    let status = second
        .program
        .until("the status names the token", |status| {
            let leadership = status.leadership.as_ref();
            leadership.is_some_and(|shown| shown.problem.is_some())
        })
        .await;
    let problem = status.leadership.and_then(|shown| shown.problem);
    let problem = problem.expect("a problem");
    assert!(problem.contains("token"), "{problem}");
    let kinds: Vec<&str> = status
        .problems
        .iter()
        .map(|problem| problem.kind.word())
        .collect();
    assert_eq!(kinds, ["standby"]);
    second.place.write("token", crate::support::program::TOKEN);
    second
        .program
        .until("the right token", |status| {
            let leadership = status.leadership.as_ref();
            leadership.is_some_and(|shown| shown.problem.is_none())
        })
        .await;
}

#[tokio::test]
async fn standby_of_another_crm_exits_78() {
    let crm = crm::start().await;
    let url = new_schema_url();
    let mut first = Hub::start(&url, "hub1", &crm.url(), None);
    first.wait_for_role(Role::Leader).await;
    let other = Hub::start(&url, "hub2", "http://127.0.0.1:9", None);
    let exit_status = other.program.ended().await;
    assert_eq!(exit_status.code(), Some(78));
    assert!(
        other
            .place
            .logs()
            .contains("--crm-url is http://127.0.0.1:9")
    );
}

#[tokio::test]
async fn second_daemon_on_same_machine_exits_75_with_a_fix() {
    let crm = crm::start().await;
    let url = new_schema_url();
    let mut first = Hub::start(&url, "hub1", &crm.url(), None);
    first.wait_for_role(Role::Leader).await;
    let output = first
        .place
        .command(&[
            "run",
            "--crm-url",
            &crm.url(),
            "--token-file",
            &first.place.path("token"),
            "--collect",
            "127.0.0.1:0",
            "--country",
            "UZ",
        ])
        .await;
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{text}");
    assert!(text.contains("RUNTIME_DIRECTORY"), "{text}");
}

/// A total across both hubs is only right if the standby doesn't count any calls.
#[tokio::test]
async fn metrics_of_standby_count_no_calls() {
    let crm = crm::start().await;
    let [first, second] = start_pair(&crm, &new_schema_url()).await;
    let token = add_branch(&first.place, "samarkand", "samarkand").await;
    let (status, _) = post(
        first.collect,
        "/v1/calls",
        &token,
        messages("samarkand", 0..3),
    )
    .await;
    assert_eq!(status, 200);
    for (address, is_leader) in [(first.metrics, true), (second.metrics, false)] {
        let (_, metrics) = get(address, "/metrics").await.expect("an answer");
        let calls = metrics
            .lines()
            .filter(|line| line.starts_with("callbridge_calls{"));
        let mut counts: Vec<&str> = calls.filter_map(|line| line.split(' ').nth(1)).collect();
        counts.retain(|count| *count != "0");
        assert_eq!(!counts.is_empty(), is_leader, "{metrics}");
    }
    let status: Value = second.place.lines(&["status", "--json"]).await.remove(0);
    assert_eq!(status["books"]["finished"], 3);
}
