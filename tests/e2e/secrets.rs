//! Is a secret ever to be seen where people or programs look?

use crate::broker::{self, Broker};
use crate::crm::{self, RATE_FLAG};
use crate::pbx::{self, Pbx};
use crate::program::{Place, TOKEN};
use crate::recordings::{self, TRUNKS};
use crate::wait::until;
use std::fs;

const QUEUE: &str = "secrets";
const LETTERS: &str = "secrets-letters";

/// Each secret, as it is and as a URL would write it.
fn secrets() -> Vec<String> {
    let all = [TOKEN, pbx::SECRET, broker::SECRET, "a wrong password"];
    let plain = all.iter().map(|secret| (*secret).to_owned());
    plain
        .chain(all.iter().map(|secret| secret.replace(' ', "%20")))
        .collect()
}

fn assert_silent(where_: &str, text: &[u8]) {
    for secret in secrets() {
        let found = memchr::memmem::find(text, secret.as_bytes());
        assert!(found.is_none(), "`{secret}` is in {where_}");
    }
}

/// Two sources with their secrets, the same two with a wrong one, a broker for letters, and a log
/// of everything.
fn flags(place: &Place, pbx: &Pbx, broker: &Broker) -> Vec<String> {
    let ami = place.write("ami-secret", pbx::SECRET);
    let amqp = place.write("amqp-secret", broker::SECRET);
    let wrong = place.write("wrong-secret", "a wrong password");
    let (manager, base) = (pbx.addr(), broker.url(broker::ADMINISTRATOR));
    let cel = format!("queue={QUEUE}&format=asterisk-cel");
    let own = [
        format!("--source=ami://bridge@{manager}?secret-file={ami}"),
        format!("--source={base}?{cel}&secret-file={amqp}&pbx=queue"),
        format!("--source=ami://bridge@{manager}?secret-file={wrong}&pbx=wrong"),
        format!("--source={base}?{cel}&secret-file={wrong}&pbx=wrong-queue"),
        format!("--dead-letter-queue={base}?queue={LETTERS}&secret-file={amqp}"),
    ];
    let usual = [
        TRUNKS[0],
        TRUNKS[1],
        "--log=trace",
        "--log-format=json",
        "--listen=127.0.0.1:0",
        "--cdr-wait=1s",
        RATE_FLAG,
    ];
    own.into_iter().chain(usual.map(str::to_owned)).collect()
}

#[tokio::test]
async fn no_secret_is_in_logs_at_trace_status_metrics_state_or_the_command_line() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, Pbx::ami().await);
    let broker = Broker::shared();
    broker.declare(QUEUE).await;
    broker.declare(LETTERS).await;
    let flags = flags(&place, &pbx, broker);
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    for name in ["inbound_answered", "unknown_customer"] {
        let events = recordings::one(name);
        broker.publish(QUEUE, &events.cel()).await;
    }
    let ways = |it: &callbridge::ops::Status| {
        let [ami, queue, wrong, wrong_queue] = &it.sources[..] else {
            return false;
        };
        let tried = [wrong, wrong_queue]
            .iter()
            .all(|source| source.why.is_some());
        tried && ami.read > 0 && queue.read > 0 && it.books.parked == 2
    };
    let status = program.until("every line tried", ways).await;
    let letters = async || broker.depth(LETTERS).await == 2;
    until("two letters in their queue", letters).await;
    until("a request", async || {
        !crm.admin(|core, _| core.counts().is_empty())
    })
    .await;

    let metrics = crate::operations::metrics(&program).await;
    assert_silent("metrics", metrics.as_bytes());
    assert_silent(
        "status",
        serde_json::to_string(&status).expect("JSON").as_bytes(),
    );
    let shown = place.command(&["dead", "show", "--all"]).await;
    assert_silent("dead show", &shown.stdout);
    let command = fs::read(format!("/proc/{}/cmdline", program.id())).expect("readable");
    assert!(memchr::memmem::find(&command, b"--log=trace").is_some());
    assert_silent("the command line", &command);
    program.terminate().await;
    let log = place.logs();
    assert!(log.contains("\"level\":\"TRACE\""), "the log is at trace");
    assert_silent("the log", log.as_bytes());
    for entry in fs::read_dir(place.at("state")).expect("the state") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            assert_silent(
                &path.display().to_string(),
                &fs::read(&path).expect("readable"),
            );
        }
    }
}

#[tokio::test]
async fn a_password_in_a_url_is_refused_before_anything_is_opened() {
    let place = Place::new();
    let source = "--source=ami://bridge:hidden@127.0.0.1:5038";
    let program = place.run("http://127.0.0.1:1", &[source, TRUNKS[0]]);
    assert_eq!(program.ended().await.code(), Some(64));
    let words = place.logs();
    assert!(
        words.contains("secret-file") && !words.contains("hidden"),
        "{words}"
    );
    assert!(!place.at("state").exists());
}
