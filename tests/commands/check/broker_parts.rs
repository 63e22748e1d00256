//! Tests `check` with queues, virtual hosts, and permissions of a real RabbitMQ node.

use super::findings::{self, CheckReport};
use crate::commands::sidecar::{Place, start_crm};
use callbridge_sandbox::Server;
use callbridge_testbed::broker::{ADMINISTRATOR, Broker, raw};

/// The most runs of one `check`. The broker serves all tests, so it can fail to answer within 10 s.
const TRIES: usize = 6;

/// Runs `check` up to `TRIES` times, until the broker is not too busy to answer.
async fn check(place: &Place, flags: &[String]) -> CheckReport {
    for _ in 1..TRIES {
        let report = findings::check(place, flags).await;
        if !report.has_timed_out() {
            return report;
        }
    }
    findings::check(place, flags).await
}

/// Returns a place with a source, its CRM, and the flags, of which `more` is the last.
async fn stage(more: &str) -> (Place, Server, Vec<String>) {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", "");
    let mut flags = place.flags_of_file(&crm.url(), "calls.ami");
    flags.push(more.to_owned());
    (place, crm, flags)
}

/// Returns the flag of a source that reads this queue.
fn source(url: &str, queue: &str) -> String {
    format!("--source={url}?queue={queue}&format=asterisk-cel&pbx=second")
}

#[tokio::test]
async fn existing_queue_passes_check_and_keeps_its_messages() {
    let broker = Broker::shared();
    broker.declare("check_there").await;
    broker.publish("check_there", &["one"]).await;
    let url = broker.url(ADMINISTRATOR);
    let (place, _crm, mut flags) = stage(&source(&url, "check_there")).await;
    flags.push(format!("--dead-letter-queue={url}?queue=check_there"));
    let report = check(&place, &flags).await;
    report.assert_clean();
    report.ok_finding("source amqp://");
    report.ok_finding("dead");
    assert_eq!(
        broker.depth("check_there").await,
        1,
        "check took no message and published none"
    );
}

#[tokio::test]
async fn queue_consumed_by_the_daemon_passes_check() {
    let broker = Broker::shared();
    broker.declare("check_consumed").await;
    let url = broker.url(ADMINISTRATOR);
    let (place, _crm, flags) = stage(&source(&url, "check_consumed")).await;
    let daemon = place.start_daemon(&flags).await;
    crate::commands::sidecar::poll_until("the queue consumed", async || {
        let status = place.status().await?;
        (status["sources"][1]["state"] == "connected").then_some(())
    })
    .await;
    check(&place, &flags).await.assert_clean();
    let status = place.status().await.expect("a status");
    assert_eq!(
        status["sources"][1]["state"], "connected",
        "the daemon still consumes the queue"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn poison_message_passes_check_and_the_daemon_takes_it() {
    let broker = Broker::shared();
    broker.declare("check_poison").await;
    raw::publish(
        broker,
        "",
        b"check_poison",
        &raw::deep_headers(1_000),
        b"not json",
    )
    .await;
    broker.publish("check_poison", &["not json either"]).await;
    let url = broker.url(ADMINISTRATOR);
    let (place, _crm, flags) = stage(&source(&url, "check_poison")).await;
    check(&place, &flags).await.assert_clean();
    let daemon = place.start_daemon(&flags).await;
    crate::commands::sidecar::poll_until("both messages acknowledged", async || {
        let status = place.status().await?;
        let are_kept = status["books"]["unreadable"] == 2;
        (are_kept && broker.depth("check_poison").await == 0).then_some(())
    })
    .await;
    check(&place, &flags).await.assert_clean();
    daemon.stop().await;
}

#[tokio::test]
async fn missing_queue_exits_69_with_command_that_creates_it() {
    let broker = Broker::shared();
    let (url, vhost) = (broker.url(ADMINISTRATOR), broker.vhost());
    let (place, _crm, flags) = stage(&source(&url, "not_there")).await;
    let report = check(&place, &flags).await;
    let command = format!("rabbitmqadmin --vhost={vhost} declare queue name=not_there");
    report.assert_single_failure(
        69,
        "source amqp://",
        "there is no queue not_there",
        &command,
    );
    let queue = format!("--dead-letter-queue={url}?queue=not_there");
    let (place, _crm, flags) = stage(&queue).await;
    check(&place, &flags)
        .await
        .assert_single_failure(69, "dead", "not_there", &command);
}

#[tokio::test]
async fn missing_vhost_exits_77_with_commands_that_create_it() {
    let broker = Broker::shared();
    let url = broker.url(ADMINISTRATOR).replace(broker.vhost(), "nowhere");
    let fix = "rabbitmqctl add_vhost nowhere";
    let (place, _crm, flags) = stage(&source(&url, "cel")).await;
    let report = check(&place, &flags).await;
    report.assert_single_failure(77, "source amqp://", "vhost nowhere not found", fix);
    report.assert_single_failure(
        77,
        "source amqp://",
        "",
        "set_permissions -p nowhere administrator",
    );
    let queue = format!("--dead-letter-queue={url}?queue=letters");
    let (place, _crm, flags) = stage(&queue).await;
    check(&place, &flags)
        .await
        .assert_single_failure(77, "dead", "vhost nowhere not found", fix);
}

#[tokio::test]
async fn missing_broker_right_exits_77() {
    let broker = Broker::shared();
    broker.declare("check_other").await;
    // With these definitions, callbridge can read only the CEL and CDR queues.
    let url = broker.url("callbridge");
    let (place, _crm, flags) = stage(&source(&url, "check_other")).await;
    let report = check(&place, &flags).await;
    let fix = "rabbitmqctl list_user_permissions callbridge";
    report.assert_single_failure(77, "source amqp://", "check_other", fix);
    // This user can read and not write.
    let url = broker.url(callbridge_testbed::broker::READER);
    let (place, _crm, flags) = stage(&format!("--dead-letter-queue={url}?queue=check_other")).await;
    check(&place, &flags)
        .await
        .assert_single_failure(77, "dead", "amq.default", "set_permissions");
}

#[tokio::test]
async fn wrong_broker_secret_exits_77_and_unreachable_broker_69() {
    let url = Broker::shared().url(ADMINISTRATOR);
    let (place, _crm, mut flags) = stage(&source(&url, "cel")).await;
    let secret = place.write("secret", "wrong").display().to_string();
    flags.pop();
    flags.push(format!("{}&secret-file={secret}", source(&url, "cel")));
    let report = check(&place, &flags).await;
    report.assert_single_failure(
        77,
        "source amqp://",
        "login refused",
        "check the user in the URL",
    );
    flags.pop();
    flags.push(format!(
        "--dead-letter-queue={url}?queue=cel&secret-file={secret}"
    ));
    check(&place, &flags).await.assert_single_failure(
        77,
        "dead",
        "login refused",
        "check the user in the URL",
    );
    flags.pop();
    flags.push("--dead-letter-queue=amqp://a@127.0.0.1:9/v?queue=cel".to_owned());
    check(&place, &flags).await.assert_single_failure(
        69,
        "dead",
        "connection refused",
        "check that the server runs",
    );
}
