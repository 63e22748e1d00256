//! Tests of the keeper, which refreshes a connection's tokens.

use super::super::connection::tests::connection;
use super::super::scripted::{Reply, Scripted, pair};
use super::*;
use callbridge_model::{ExposeSecret as _, Secret, TokenFingerprint};
use callbridge_sender::token_update::Tokens;
use callbridge_spool::Guard;
use std::path::Path;

/// How long each step of a test may take before the test fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running keeper, along with the channels between it and the test.
struct Stage {
    state: Handle,
    guard: Guard,
    folder: tempfile::TempDir,
    updates: watch::Receiver<TokenUpdate>,
    requests: watch::Receiver<Requests>,
    sender: watch::Sender<SenderStatus>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Stage {
    /// Starts a keeper on a new state that has the connection `stored`. `host` responds to the
    /// keeper's requests.
    async fn start(host: &Scripted, stored: &Connection) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::start_in(folder, host, Some(stored)).await
    }

    /// Starts a keeper on the state in `folder`, after replacing the state's connection with
    /// `stored`, unless that's `None`.
    async fn start_in(
        folder: tempfile::TempDir,
        host: &Scripted,
        stored: Option<&Connection>,
    ) -> Self {
        let opened = callbridge_spool::open(folder.path(), callbridge_spool::Settings::default());
        let (state, guard) = opened.expect("a state");
        if let Some(stored) = stored {
            store_connection(folder.path(), stored);
        }
        let (updates, received_updates) = watch::channel(TokenUpdate::default());
        let (requests, counts) = watch::channel(Requests::new());
        let (sender, status) = watch::channel(SenderStatus::default());
        let (stop, mut stopped) = watch::channel(false);
        let keeper = Keeper {
            state: state.clone(),
            place: folder.path().into(),
            setup: Setup::new(Address::parse("https://crm.example").expect("an address")),
            auth: Some(Address::parse(&host.url).expect("an address")),
            rebind: false,
            updates,
            requests,
        };
        let task = tokio::spawn(async move {
            keeper
                .run(status, async move {
                    drop(stopped.wait_for(|stopped| *stopped).await)
                })
                .await;
        });
        Self {
            state,
            guard,
            folder,
            updates: received_updates,
            requests: counts,
            sender,
            stop,
            task,
        }
    }

    /// Waits for a token update for which `like` returns `true`, or panics with `what` after
    /// [`DEADLINE`].
    async fn wait_for_update(
        &mut self,
        what: &str,
        like: impl Fn(&TokenUpdate) -> bool,
    ) -> TokenUpdate {
        let updates = tokio::time::timeout(DEADLINE, self.updates.wait_for(like)).await;
        updates
            .unwrap_or_else(|_| panic!("{what} was not reported"))
            .expect("the keeper runs")
            .clone()
    }

    fn stored_connection(&self) -> Connection {
        stored_connection(self.folder.path()).expect("there")
    }

    /// Reports to the keeper whether the CRM accepted a token.
    fn report_token(&self, token: &str, accepted: bool) {
        self.sender.send_modify(|status| {
            status.token_print = Some(TokenFingerprint::of(token));
            status.token_taken = Some(accepted);
        });
    }

    /// Stops the keeper, closes the state, and returns the state's directory.
    async fn end(self) -> tempfile::TempDir {
        self.stop.send_replace(true);
        tokio::time::timeout(DEADLINE, self.task)
            .await
            .expect("the keeper ends")
            .expect("no panic");
        drop(self.state);
        self.guard.close();
        self.folder
    }
}

fn stored_connection(dir: &Path) -> Option<Connection> {
    store::read_in(&dir.into()).expect("readable")
}

/// Replaces the state's connection with `to`, as another process would.
fn replace_content(dir: &Path, to: Option<StoredConnection>) {
    let store = StatePlace::from(dir).connections();
    let from = store.read().expect("readable");
    let change = ConnectionChange { from, to };
    assert!(store.change(&change).expect("written"));
}

fn store_connection(dir: &Path, connection: &Connection) {
    replace_content(dir, Some(connection.stored()));
}

/// Returns a connection whose access token was issued `ago` seconds ago and has a lifetime of
/// `life` seconds.
fn connection_of_age(ago: i64, life: i64) -> Connection {
    let now = clock::now().wall.floor_seconds().get();
    Connection {
        access_token: Secret::from("svc_at_first"),
        refresh_token: Secret::from("svcrt_first"),
        issued_at: EpochSeconds::new(now - ago),
        expires_at: EpochSeconds::new(now - ago + life),
        previous_token: None,
        previous_expires_at: None,
        ..connection()
    }
}

fn current_token(updates: &TokenUpdate) -> Option<String> {
    let tokens = updates.tokens.as_ref();
    tokens.map(|tokens| tokens.current.expose_secret().to_owned())
}

/// Returns a predicate that's `true` if the current access token is `name`.
fn has_token(name: &'static str) -> impl Fn(&TokenUpdate) -> bool {
    move |updates| current_token(updates).as_deref() == Some(name)
}

/// Returns the CRM's response to an unknown client or a blocked company.
fn unauthorized_reply() -> Reply {
    let no = serde_json::json!({"message": "yo'q", "accept": false, "error": null, "errors": []});
    Reply::Say(401, no.to_string())
}

fn reason(updates: &TokenUpdate) -> Option<&str> {
    updates.trouble.as_ref().map(|pause| pause.reason.as_str())
}

#[tokio::test]
async fn expiring_token_is_refreshed_and_stored_before_published() {
    let host = Scripted::start(vec![pair("second", 3_600)]).await;
    let mut stage = Stage::start(&host, &connection_of_age(3_500, 3_600)).await;
    let updates = stage
        .wait_for_update("the second token", has_token("svc_at_second"))
        .await;
    let stored = stage.stored_connection();
    assert_eq!(stored.refresh_token.expose_secret(), "svcrt_second");
    assert_eq!(stored.refresh_began_at, None);
    let Some(Tokens {
        previous: Some((previous, end)),
        ..
    }) = updates.tokens
    else {
        panic!("the first one still works");
    };
    assert_eq!(previous.expose_secret(), "svc_at_first");
    assert!(end > clock::now().wall.floor_seconds());
    assert_eq!(host.requests().len(), 1);
    let count = ("oauth_token".to_owned(), "granted".to_owned());
    assert_eq!(stage.requests.borrow().get(&count), Some(&1));
    stage.end().await;
}

/// Replaces the stored connection with one that has the access token `name`, and waits until the
/// keeper uses it. The keeper handles reports about tokens before it reads the connection again.
async fn reconnect(stage: &mut Stage, name: &'static str) {
    let new = Connection {
        access_token: Secret::from(name),
        ..connection_of_age(0, 3_600)
    };
    store_connection(stage.folder.path(), &new);
    stage.wait_for_update(name, has_token(name)).await;
}

#[tokio::test]
async fn token_that_the_crm_refuses_is_refreshed_once() {
    let host = Scripted::start(vec![pair("second", 3_600)]).await;
    let mut stage = Stage::start(&host, &connection_of_age(0, 3_600)).await;
    stage
        .wait_for_update("the first token", has_token("svc_at_first"))
        .await;
    stage.report_token("svc_at_another", false);
    reconnect(&mut stage, "svc_at_new").await;
    assert!(host.requests().is_empty(), "another token was refused");
    stage.report_token("svc_at_new", false);
    let updates = stage
        .wait_for_update("the second token", has_token("svc_at_second"))
        .await;
    let tokens = updates.tokens.expect("tokens");
    assert!(tokens.previous.is_none(), "the new one is refused");
    assert!(
        stage.stored_connection().refused_at.is_some(),
        "so that a restart knows"
    );
    stage.report_token("svc_at_second", false);
    reconnect(&mut stage, "svc_at_third").await;
    assert_eq!(host.requests().len(), 1, "the next one is a minute away");
    stage.end().await;
}

fn needs_reconnect(updates: &TokenUpdate) -> bool {
    reason(updates) == Some(RECONNECT)
}

#[tokio::test]
async fn refused_refresh_token_ends_connection_until_reconnect() {
    let no = serde_json::json!({"message": "eskirgan", "accept": false, "error": null});
    let host = Scripted::start(vec![Reply::Say(400, no.to_string())]).await;
    let mut stage = Stage::start(&host, &connection_of_age(3_500, 3_600)).await;
    let updates = stage.wait_for_update("the end", needs_reconnect).await;
    assert_eq!(
        current_token(&updates).as_deref(),
        Some("svc_at_first"),
        "it still lives"
    );
    let fix = updates.trouble.expect("trouble").fix;
    assert!(fix.contains("400: eskirgan") && fix.contains("run: callbridge connect --crm-url"));
    stage.report_token("svc_at_first", false);
    let updates = stage
        .wait_for_update("no token", |updates| updates.tokens.is_none())
        .await;
    assert_eq!(reason(&updates), Some(RECONNECT));
    let folder = stage.end().await;
    // After a restart, nothing is sent using a connection that's known to be over.
    assert!(
        stored_connection(folder.path())
            .expect("there")
            .over
            .is_some()
    );
    let mut stage = Stage::start_in(folder, &host, None).await;
    stage
        .wait_for_update("the end again", needs_reconnect)
        .await;
    let new = Connection {
        access_token: Secret::from("svc_at_new"),
        ..connection_of_age(0, 3_600)
    };
    store_connection(stage.folder.path(), &new);
    let updates = stage
        .wait_for_update("the new token", has_token("svc_at_new"))
        .await;
    assert_eq!(updates.trouble, None);
    assert_eq!(host.requests().len(), 1);
    stage.end().await;
}

#[tokio::test]
async fn lost_or_gateway_answer_does_not_end_connection() {
    let host = Scripted::start(vec![
        Reply::Close,
        Reply::Say(400, "<html>400</html>".to_owned()),
    ])
    .await;
    let mut stage = Stage::start(&host, &connection_of_age(3_600, 3_600)).await;
    stage
        .wait_for_update("the trouble", |updates| {
            let trouble = updates.trouble.as_ref();
            trouble.is_some_and(|pause| {
                pause.reason == "unreachable" && pause.fix.contains("not from the CRM")
            })
        })
        .await;
    let stored = stage.stored_connection();
    assert!(stored.refresh_began_at.is_some(), "it may have happened");
    assert_eq!(stored.over, None);
    host.push(pair("second", 3_600));
    let updates = stage
        .wait_for_update("the second token", has_token("svc_at_second"))
        .await;
    assert_eq!(updates.trouble, None);
    let requests = host.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|text| *text == requests[0]));
    stage.end().await;
}

#[tokio::test]
async fn refresh_interrupted_by_a_kill_is_repeated_at_start() {
    let host = Scripted::start(vec![pair("second", 3_600)]).await;
    let killed = Connection {
        refresh_began_at: Some(EpochSeconds::new(1)),
        ..connection_of_age(0, 3_600)
    };
    let mut stage = Stage::start(&host, &killed).await;
    stage
        .wait_for_update("the second token", has_token("svc_at_second"))
        .await;
    stage.end().await;
}

#[tokio::test]
async fn unreachable_host_without_live_token_is_an_outage() {
    let host = Scripted::start(Vec::new()).await;
    let mut unreachable_host = host.clone();
    unreachable_host.url = "http://127.0.0.1:9".to_owned();
    let mut stage = Stage::start(&unreachable_host, &connection_of_age(3_600, 3_600)).await;
    let updates = stage
        .wait_for_update("an outage", |updates| {
            reason(updates) == Some("unreachable")
        })
        .await;
    assert!(updates.tokens.is_none(), "it has ended");
    assert_eq!(
        stage.stored_connection().refresh_began_at,
        None,
        "nothing was sent"
    );
    stage.end().await;
}

#[tokio::test]
async fn unknown_client_is_reported_with_the_possible_causes() {
    let host = Scripted::start(vec![unauthorized_reply()]).await;
    // As after a restart, the keeper doesn't know whether the CRM accepted the token.
    let mut stage = Stage::start(&host, &connection_of_age(3_500, 3_600)).await;
    let updates = stage
        .wait_for_update("the end", |updates| reason(updates) == Some(CLIENT_REFUSED))
        .await;
    let fix = updates.trouble.expect("trouble").fix;
    let both =
        "the company is blocked (its license has ended), or client id svc_app_1 or its secret";
    assert!(fix.contains(both), "{fix}");
    assert!(
        stage.stored_connection().over.is_none(),
        "it may be known again"
    );
    stage.end().await;
}

#[tokio::test]
async fn blocked_company_keeps_token_and_recovers_when_accepted() {
    let host = Scripted::start(vec![unauthorized_reply()]).await;
    let mut stage = Stage::start(&host, &connection_of_age(0, 3_600)).await;
    stage
        .wait_for_update("the first token", has_token("svc_at_first"))
        .await;
    stage.report_token("svc_at_first", false);
    let updates = stage
        .wait_for_update("the end", |updates| reason(updates) == Some(CLIENT_REFUSED))
        .await;
    assert_eq!(current_token(&updates).as_deref(), Some("svc_at_first"));
    stage.report_token("svc_at_first", true);
    let updates = stage
        .wait_for_update("the fix", |updates| updates.trouble.is_none())
        .await;
    assert_eq!(current_token(&updates).as_deref(), Some("svc_at_first"));
    stage.end().await;
    assert_eq!(host.requests().len(), 1);
}

#[tokio::test]
async fn damaged_connection_is_reported_and_token_kept() {
    let host = Scripted::start(Vec::new()).await;
    let mut stage = Stage::start(&host, &connection_of_age(0, 3_600)).await;
    stage
        .wait_for_update("the first token", has_token("svc_at_first"))
        .await;
    let damaged = StoredConnection {
        refresh_token: Secret::from("svcrt_first"),
        content: Secret::from("{\"accessToken\": \"svc_at_hidden"),
    };
    replace_content(stage.folder.path(), Some(damaged));
    let updates = stage
        .wait_for_update("the damage", |updates| updates.trouble.is_some())
        .await;
    assert_eq!(current_token(&updates).as_deref(), Some("svc_at_first"));
    let fix = updates.trouble.expect("trouble").fix;
    assert!(
        fix.contains("is damaged") && !fix.contains("hidden"),
        "{fix}"
    );
    replace_content(stage.folder.path(), None);
    let updates = stage
        .wait_for_update("no token", |updates| updates.tokens.is_none())
        .await;
    assert_eq!(reason(&updates), Some("token_missing"));
    stage.end().await;
}

#[tokio::test]
async fn connection_of_another_crm_is_not_used() {
    let host = Scripted::start(Vec::new()).await;
    let mut other = connection_of_age(0, 3_600);
    other.client.crm_url = "https://other.example".to_owned();
    let mut stage = Stage::start(&host, &other).await;
    let updates = stage
        .wait_for_update("the trouble", |updates| updates.trouble.is_some())
        .await;
    assert!(updates.tokens.is_none());
    assert!(
        updates
            .trouble
            .expect("trouble")
            .fix
            .contains("https://other.example")
    );
    stage.end().await;
}

/// Promise: A new pair of tokens is on the disk before it is used.
#[tokio::test]
async fn token_is_not_refreshed_until_new_pair_can_be_stored() {
    let host = Scripted::start(Vec::new()).await;
    let mut stage = Stage::start(&host, &connection_of_age(0, 3_600)).await;
    // Without its file `spool.db`, the state can't be written.
    let (file, aside) = ("spool.db", "aside");
    let (file, aside) = (
        stage.folder.path().join(file),
        stage.folder.path().join(aside),
    );
    std::fs::rename(&file, &aside).expect("moved");
    stage.report_token("svc_at_first", false);
    stage
        .wait_for_update("the trouble", |updates| updates.trouble.is_some())
        .await;
    assert!(
        host.requests().is_empty(),
        "no pair is rotated that could not be stored"
    );
    host.push(pair("second", 3_600));
    std::fs::rename(&aside, &file).expect("moved back");
    stage
        .wait_for_update("the second token", has_token("svc_at_second"))
        .await;
    stage.end().await;
}

/// The lock is lost along with the spool's thread, and another process takes it.
#[tokio::test]
async fn pair_is_stored_though_lock_is_lost_during_refresh() {
    let host = Scripted::start(vec![Reply::Wait(Box::new(pair("second", 3_600)))]).await;
    let stage = Stage::start(&host, &connection_of_age(3_500, 3_600)).await;
    host.wait_for_requests(1).await;
    drop(stage.state);
    stage.guard.close();
    let opened = callbridge_spool::open(stage.folder.path(), callbridge_spool::Settings::default());
    let (other, guard) = opened.expect("the lock is free");
    assert!(
        read_connection(&other).await.refresh_began_at.is_some(),
        "it is noted"
    );
    host.release_answers();
    let second = async {
        loop {
            let stored = read_connection(&other).await;
            if stored.refresh_token.expose_secret() == "svcrt_second" {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, second)
        .await
        .expect("stored");
    assert_eq!(read_connection(&other).await.refresh_began_at, None);
    stage.stop.send_replace(true);
    tokio::time::timeout(DEADLINE, stage.task)
        .await
        .expect("the keeper ends")
        .expect("no panic");
    drop(other);
    guard.close();
}

async fn read_connection(state: &Handle) -> Connection {
    let stored = store::read(state).await.expect("readable");
    stored.expect("a connection")
}

#[tokio::test]
async fn connection_changed_during_refresh_is_kept_and_pair_revoked() {
    let new = Connection {
        access_token: Secret::from("svc_at_new"),
        refresh_token: Secret::from("svcrt_new"),
        ..connection_of_age(0, 3_600)
    };
    for other in [Some(new), None] {
        let host = Scripted::start(vec![
            Reply::Wait(Box::new(pair("second", 3_600))),
            Reply::Say(200, "{}".to_owned()),
            Reply::Say(200, "{}".to_owned()),
        ])
        .await;
        let mut stage = Stage::start(&host, &connection_of_age(3_500, 3_600)).await;
        host.wait_for_requests(1).await;
        replace_content(stage.folder.path(), other.as_ref().map(Connection::stored));
        host.release_answers();
        host.wait_for_requests(3).await;
        let token = other.as_ref().map(|_| "svc_at_new".to_owned());
        stage
            .wait_for_update("the other connection", |updates| {
                current_token(updates) == token
            })
            .await;
        let requests = host.requests();
        assert!(requests[1].starts_with("/v1/open-api/oauth/revoke token=svcrt_second&"));
        assert!(requests[2].starts_with("/v1/open-api/oauth/revoke token=svc_at_second&"));
        let left = stored_connection(stage.folder.path());
        let left = left.map(|connection| connection.refresh_token.expose_secret().to_owned());
        assert_eq!(left, other.map(|_| "svcrt_new".to_owned()));
        stage.end().await;
    }
}
