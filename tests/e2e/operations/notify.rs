//! Tests that `--notify-command` runs once when a problem starts and once when it ends, even across
//! restarts, and that the examples in deploy/notify send to a chat and a mailbox.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::Place;
use crate::support::recordings;
use callbridge_model::Status;
use callbridge_model::status::FindingKind;
use callbridge_ops::notify::history::{Notification, Turn};
use callbridge_ops::notify::{self, WITHIN};
use callbridge_testbed::messengers::Messenger;
use callbridge_testbed::wait;
use serde_json::Value;

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:NONE";

/// Returns the notifications that the command has appended to the file `told`.
fn notifications(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.at("told")).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.filter_map(Result::ok).collect()
}

/// Waits until the log reports `count` successful runs of the command, and returns the
/// notifications.
async fn notifications_after_runs(place: &Place, count: usize) -> Vec<Value> {
    wait::until(&format!("{count} runs"), async || {
        place.logs().matches("--notify-command has run").count() >= count
    })
    .await;
    notifications(place)
}

#[tokio::test]
async fn notify_command_runs_once_per_problem_start_and_end() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("calls.ami", &recordings::one("inbound_answered").ami);
    let source = place.file("calls.ami", "ami");
    let (lines, variables) = (place.path("told"), place.path("variables"));
    let command = format!("--notify-command=cat >> '{lines}'; env > '{variables}'");
    let flags = [&source, TRUNK, RATE_FLAG, command.as_str()];
    let variables = [
        ("CALLBRIDGE_LOG", "info".to_owned()),
        ("PATH", "/usr/bin:/bin".to_owned()),
    ];
    let program = place.run_with(&crm.url(), &flags, &variables);
    let first = notifications_after_runs(&place, 1).await;
    assert_eq!(
        (&first[0]["kind"], &first[0]["state"]),
        (&"no_lead".into(), &"begins".into())
    );
    assert_eq!(first[0]["message"], "1 call waits for a lead");
    let command = first[0]["command"].as_str().expect("a command");
    assert!(
        command.starts_with("callbridge lead missing --state"),
        "{command}"
    );
    assert!(
        first[0]["since"]
            .as_i64()
            .is_some_and(|since| since > 1_700_000_000)
    );
    let variables = std::fs::read_to_string(place.at("variables")).expect("written");
    assert!(variables.contains("PATH=/usr/bin:/bin"), "{variables}");
    assert!(
        !variables.contains("CALLBRIDGE_"),
        "variables of callbridge are removed: {variables}"
    );
    program.terminate().await;

    // The second run starts with the first one's problem. After that, the operator assigns a lead.
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("the call that waits", |status| status.books.waiting == 1)
        .await;
    let assigned = place
        .lines(&["lead", "give", "+998901110001", "4001", "--json"])
        .await;
    assert_eq!(assigned[0]["left"], 1);
    let notified = notifications_after_runs(&place, 2).await;
    assert_eq!(
        (&notified[1]["kind"], &notified[1]["state"]),
        (&"no_lead".into(), &"ends".into())
    );
    assert_eq!(notified[1]["since"], notified[0]["since"]);
    assert_eq!(notified.len(), 2, "each notification once: {notified:?}");
    program.terminate().await;
}

/// Returns the path of an example in deploy/notify.
fn script(name: &str) -> String {
    format!("{}/deploy/notify/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test]
async fn chat_gets_problem_and_missed_customer_and_args_hide_token() {
    let (place, crm) = (Place::new(), crm::start().await);
    let double = Messenger::telegram();
    let curl = format!(
        "url = \"http://{}/bot1:TOKEN/sendMessage\"\ndata = \"chat_id=-100\"\n",
        double.address
    );
    let curl = place.write("telegram", &curl);
    let command = format!("--notify-command={} '{curl}'", script("telegram"));
    let begins = callbridge_testbed::calls::now() - 3_000;
    let recorded = String::from_utf8(recordings::one("inbound_no_answer").ami).expect("text");
    let moved = callbridge_testbed::calls::moved_to(&recorded, begins);
    place.append("calls.ami", moved.as_bytes());
    let source = place.file("calls.ami", "ami");
    let flags = [&source, TRUNK, RATE_FLAG, &command, "--notify-missed=30m"];
    let program = place.run(&crm.url(), &flags);
    // The call waits for a lead, and the customer waits for a callback. callbridge reports the two
    // problems either together or separately.
    let (mut messages, mut requests) = (String::new(), Vec::new());
    while !(messages.contains("1 call waits for a lead") && messages.contains("for a callback")) {
        requests.push(double.next().await);
        messages = requests.concat();
        assert!(requests.len() <= 2, "{requests:?}");
    }
    assert!(
        messages.contains("POST /bot1:TOKEN/sendMessage"),
        "{messages}"
    );
    assert!(messages.contains(r#"("chat_id", "-100")"#), "{messages}");
    let waits = "❗ 1 customer has waited for a callback longer than 30 min: +998901110002 (50 min";
    assert!(messages.contains(waits), "{messages}");
    assert!(
        messages.contains("→ callbridge missed --state"),
        "{messages}"
    );
    assert!(!messages.contains("token shown: true"), "{messages}");
    program.terminate().await;
    assert!(!place.logs().contains("901110002"), "no number in the log");
}

#[tokio::test]
async fn mail_contains_all_notifications_of_one_run() {
    let (place, double) = (Place::new(), Messenger::smtp());
    let curl = format!(
        "url = \"smtp://{}\"\nmail-from = \"pbx@example.com\"\nmail-rcpt = \"admin@example.com\"\n",
        double.address
    );
    let curl = place.write("mail", &curl);
    let sent = [
        notification(Turn::Begins, "source hq/ami is down: «отказ»"),
        notification(Turn::Ends, "2 dead letters"),
    ];
    let command = format!("{} '{curl}'", script("mail"));
    notify::run(&command, &sent, WITHIN).await.expect("mailed");
    let mail = double.next().await;
    assert!(mail.contains("RCPT TO:<admin@example.com>"), "{mail}");
    assert!(
        mail.contains("\nTo: admin@example.com\nSubject: callbridge on "),
        "{mail}"
    );
    let body =
        "\n\nsource hq/ami is down: «отказ»\n  fix: callbridge check\n\nOver: 2 dead letters\n";
    assert!(mail.contains(body), "{mail}");
    // The last line of the error is the last line of the script's output.
    let nowhere = format!("{} /no/such/file", script("mail"));
    let failed = notify::run(&nowhere, &sent, WITHIN).await;
    let error = failed.expect_err("failed").to_string();
    assert!(error.ends_with(": /no/such/file cannot be read"), "{error}");
}

/// Returns a notification with this message.
fn notification(state: Turn, message: &str) -> Notification {
    Notification {
        kind: FindingKind::SourceDown.word(),
        state,
        since: 1,
        message: message.to_owned(),
        command: "callbridge check".to_owned(),
    }
}

#[tokio::test]
async fn chat_text_is_cut_by_utf16_units() {
    for (text, kept) in [
        // The prefix "❗ " takes up two of 4,000 UTF-16 units.
        ("я".repeat(5_000), "я".repeat(3_998)),
        ("😀".repeat(3_000), "😀".repeat(1_999)),
        (
            format!("x{}", "😀".repeat(3_000)),
            format!("x{}", "😀".repeat(1_998)),
        ),
    ] {
        let (place, double) = (Place::new(), Messenger::telegram());
        let curl = format!(
            "url = \"http://{}/bot1:TOKEN/sendMessage\"\n",
            double.address
        );
        let curl = place.write("telegram", &curl);
        let command = format!("{} '{curl}'", script("telegram"));
        let sent = [notification(Turn::Begins, &text)];
        let result = notify::run(&command, &sent, WITHIN).await;
        assert_eq!(result, Ok(()));
        let request = double.next().await;
        assert!(
            request.contains(&format!("(\"text\", \"❗ {kept}\")")),
            "{request}"
        );
    }
}

#[tokio::test]
async fn curl_error_shows_no_line_of_the_curl_config_file() {
    let place = Place::new();
    for (name, lines) in [
        (
            "telegram",
            "url = http://127.0.0.1:1/bot1:TOKEN/send Message\n",
        ),
        (
            "telegram",
            "url = \"http://127.0.0.1:1/bot1:TOKEN/sendMessage\"\n",
        ),
        ("telegram", "bot1:TOKEN = \"x\"\n"),
        ("telegram", "url = \"bot1:TOKEN://127.0.0.1\"\n"),
        (
            "mail",
            "url = smtp://127.0.0.1:1\nuser = a@b.c:TOKEN and more\n",
        ),
        ("mail", "url = \"smtp://127.0.0.1:1\"\na@b.c:TOKEN\n"),
        ("mail", "url = \"TOKEN://127.0.0.1\"\n"),
    ] {
        let curl = place.write(name, lines);
        let command = format!("{} '{curl}'", script(name));
        let sent = [notification(Turn::Begins, "a")];
        let failed = notify::run(&command, &sent, WITHIN).await;
        let error = failed.expect_err("no server");
        assert!(!error.contains("TOKEN"), "{lines}: {error}");
        assert!(
            error.contains(": curl ended with code "),
            "{lines}: {error}"
        );
        assert!(
            error.contains(&format!("check {curl} and the network")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn failed_notify_command_is_reported_and_retried() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("calls.ami", &recordings::one("inbound_answered").ami);
    let source = place.file("calls.ami", "ami");
    let (notified, tries) = (place.path("told"), place.path("tries"));
    let fixed = place.path("mended");
    let command = format!(
        "--notify-command=echo >> '{tries}'; [ -e '{fixed}' ] || \
         {{ echo no way to the chat >&2; exit 3; }}; cat >> '{notified}'"
    );
    let mut program = place.run(&crm.url(), &[&source, TRUNK, RATE_FLAG, &command]);
    let status = program
        .until("the problem", |status| notify_problem(status).is_some())
        .await;
    let message = notify_problem(&status).expect("a problem");
    assert!(message.contains("no way to the chat"), "{message}");
    let text = place.command(&["status"]).await.stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("no way to the chat"), "{text}");
    wait::until("a second try", async || count_lines(&place, "tries") >= 2).await;
    assert_eq!(count_lines(&place, "told"), 0);
    place.write("mended", "");
    program
        .until("no problem", |status| notify_problem(status).is_none())
        .await;
    let log = place.logs();
    assert!(
        log.contains("--notify-command failed and is tried again"),
        "{log}"
    );
    assert!(
        log.contains("again_sec=5") && log.contains("again_sec=10"),
        "{log}"
    );
    // The message was delivered once, even though the command was run several times.
    assert_eq!(count_lines(&place, "told"), 1);
    assert_eq!(notifications(&place)[0]["kind"], "no_lead");
    assert!(log.contains("--notify-command has run"), "{log}");
    program.terminate().await;
}

/// Returns the message about the problem with `--notify-command`, if there is one.
fn notify_problem(status: &Status) -> Option<String> {
    let found = status
        .problems
        .iter()
        .find(|problem| problem.kind == FindingKind::Notify);
    found.map(|problem| problem.message.clone())
}

/// Returns the number of lines in one of the place's files.
fn count_lines(place: &Place, name: &str) -> usize {
    let text = std::fs::read_to_string(place.at(name)).unwrap_or_default();
    text.lines().count()
}
