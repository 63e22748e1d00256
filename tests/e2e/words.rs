//! Last words: who of the collectors and senders around a stream speaks, on a real RabbitMQ with
//! the users and rights of `deploy/rabbitmq/fleet.json`.

use crate::broker::{self, Broker};
use crate::crm::{self, RATE_FLAG};
use crate::operations;
use crate::program::{Place, Program};
use crate::recordings::{LEADS, TRUNKS, in_a_row};
use crate::wait::{until, until_within};
use callbridge_model::Status;
use callbridge_model::status::FleetTable;
use callbridge_sandbox::Server;
use lapin::BasicProperties;
use lapin::options::BasicPublishOptions;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

const CALLS: usize = 5;
/// Words come by the minute.
const LONG: Duration = Duration::from_secs(300);
const CONTENT_TYPE: &str = "application/vnd.callbridge.words+json; version=1";

/// The node of all tests here, with the definitions of the fleet.
async fn fleet_node() -> &'static Broker {
    static NODE: OnceLock<Broker> = OnceLock::new();
    let made = tokio::task::spawn_blocking(|| {
        NODE.get_or_init(|| {
            let node = Broker::start();
            node.import("fleet.json");
            node
        })
    });
    made.await.expect("a node")
}

/// The stream of the calls, as this user of the fleet: a collector by its exchange.
fn url(node: &Broker, user: &str, stream: &str, place: &Place) -> String {
    let secret = place.write("secret", broker::SECRET);
    let port = node.port();
    let by = match user {
        "sender" => "",
        _ => "&exchange=collectors",
    };
    format!("amqp://{user}@127.0.0.1:{port}/calls?stream={stream}{by}&secret-file={secret}")
}

fn collector(place: &Place, forward: &str) -> Program {
    for call in in_a_row(CALLS) {
        place.append("recorded", &call.ami);
    }
    let arguments = [
        "run".to_owned(),
        format!("--forward={forward}"),
        format!("--state={}", place.path("state")),
        "--pbx-id=branch1".to_owned(),
        "--employees=101:501;102:502;103:503;104:504;105-desk:505".to_owned(),
        place.file("recorded", "ami"),
        TRUNKS[0].to_owned(),
        TRUNKS[1].to_owned(),
    ];
    place.start(&arguments, &[])
}

fn sender(place: &Place, crm: &Server, source: &str) -> Program {
    let leads = place.write("leads.csv", LEADS);
    let arguments = [
        "run".to_owned(),
        format!("--source={source}&format=call"),
        format!("--crm-url={}", crm.url()),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.path("state")),
        format!("--trunk=city=,country=UZ,lead=csv:{leads}"),
        "--listen=127.0.0.1:0".to_owned(),
        RATE_FLAG.to_owned(),
    ];
    place.start(&arguments, &[])
}

/// What `check --json` says of a collector.
pub async fn check(place: &Place, forward: &str) -> String {
    place.append("recorded", b"");
    let flags = [
        "check",
        &format!("--forward={forward}"),
        "--pbx-id=branch1",
        &place.file("recorded", "ami"),
        TRUNKS[0],
        TRUNKS[1],
        "--json",
    ];
    let output = place.command(&flags).await;
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `fleet --json` says, and how it ends.
async fn fleet(place: &Place, source: &str) -> (FleetTable, i32) {
    let source = format!("--source={source}");
    let output = place.command(&["fleet", "--json", &source]).await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let table = serde_json::from_slice(&output.stdout);
    let table = table.unwrap_or_else(|error| panic!("{error}: {told}"));
    (table, output.status.code().expect("a code"))
}

fn has_spoken(status: &Status) -> bool {
    status
        .fleet
        .as_ref()
        .is_some_and(|it| it.last_word_at.is_some())
}

/// Publishes a word as somebody else wrote it.
async fn forge(node: &Broker, stream: &str, bodies: &[String]) {
    let (_connection, channel) = node.channel().await;
    for body in bodies {
        let properties = BasicProperties::default()
            .with_content_type(CONTENT_TYPE.into())
            .with_user_id(broker::ADMINISTRATOR.into());
        let options = BasicPublishOptions::default();
        let (exchange, key) = ("".into(), stream.into());
        let sent = channel.basic_publish(exchange, key, options, body.as_bytes(), properties);
        let _ = sent.await.expect("sent").await.expect("confirmed");
    }
}

#[tokio::test]
async fn with_the_definitions_of_the_fleet_calls_and_words_go_and_all_are_seen_to_speak() {
    let (here, there, crm) = (Place::new(), Place::new(), crm::start().await);
    let node = fleet_node().await;
    let to = url(node, "branch1", "calls", &here);
    let from = url(node, "sender", "calls", &there);
    let mut sending = sender(&there, &crm, &from);
    // What `check` publishes is no call, and no letter.
    let checked = check(&here, &to).await;
    assert!(checked.contains("the stream is there"), "{checked}");
    let mut collecting = collector(&here, &to);
    let status = sending.settled(CALLS as u64).await;
    assert_eq!(status.books.journaled, CALLS as u64, "{:?}", status.books);
    assert_eq!(status.books.unreadable, 0, "{:?}", status.books);
    collecting
        .until("the collector has spoken", has_spoken)
        .await;
    sending.until("the sender has spoken", has_spoken).await;

    // A sender knows by which token it sends once it has sent.
    let healthy = async || {
        let table = fleet(&there, &from).await.0;
        table.healthy && table.members.len() == 2 && table.tokens.len() == 1
    };
    until_within(LONG, "both in the table", healthy).await;
    let (table, code) = fleet(&there, &from).await;
    assert_eq!(
        (table.totals.speaking, table.totals.silent),
        (2, 0),
        "{table:?}"
    );
    assert!(table.healthy && code == 0, "{code}: {table:?}");
    let names: Vec<_> = table
        .members
        .iter()
        .map(|it| (&*it.user, &*it.word.instance))
        .collect();
    assert_eq!(names[0], ("branch1", "branch1"));
    assert_eq!((names[1].0, table.tokens.len()), ("sender", 1));

    // The sender knows it, too.
    let up = "callbridge_collector_up{pbx=\"branch1\"} 1";
    until("its metric", async || {
        operations::metrics(&sending).await.contains(up)
    })
    .await;

    // Who ends in order says so, and nobody takes it for dead.
    collecting.terminate().await;
    let down = "callbridge_collector_up{pbx=\"branch1\"} 0";
    until("its end in the metric", async || {
        operations::metrics(&sending).await.contains(down)
    })
    .await;
    let (table, code) = fleet(&there, &from).await;
    assert_eq!(
        (table.totals.stopped, table.totals.silent, code),
        (1, 0, 1),
        "{table:?}"
    );
    let told = sending.status().await.expect("a status");
    let kinds: Vec<&str> = told.todo.iter().map(|it| it.kind.word()).collect();
    assert!(kinds.contains(&"silent_collector"), "{kinds:?}");

    // A collector may only publish.
    let source = format!("--source={}", url(node, "branch1", "calls", &here));
    let output = here.command(&["fleet", &source]).await;
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{told}");
    assert!(
        told.contains("rabbitmqctl set_permissions -p calls branch1"),
        "{told}"
    );
    sending.terminate().await;
}

/// The first block of the page under this heading that holds the words.
fn example<'a>(page: &'a str, heading: &str, holds: &str) -> &'a str {
    let (_, section) = page.split_once(heading).expect("a heading");
    let mut blocks = section.split("```text\n").skip(1);
    let block = blocks.find_map(|rest| rest.split("```").next().filter(|it| it.contains(holds)));
    block.expect("an example")
}

#[tokio::test]
async fn the_pages_curl_publishes_a_call_that_is_journaled() {
    let (place, crm) = (Place::new(), crm::start().await);
    let node = tokio::task::spawn_blocking(Broker::start_managed);
    let (node, port) = node.await.expect("a node");
    node.declare("calls").await;
    let page = include_str!("../../docs/call-message.md");
    let script = example(page, "## curl", "curl --fail")
        .replace("127.0.0.1:15672", &format!("127.0.0.1:{port}"))
        .replace("%2F", broker::VHOST)
        .replace(
            "\"user_id\": \"cloud\"",
            &format!("\"user_id\": \"{}\"", broker::ADMINISTRATOR),
        );
    let (user, secret) = (broker::ADMINISTRATOR, broker::SECRET);
    let netrc = format!("machine 127.0.0.1 login {user} password \"{secret}\"\n");
    place.write("rabbit.netrc", netrc);
    // The plugin listens some time after the broker does.
    let publish = async || {
        let mut shell = tokio::process::Command::new("sh");
        let shell = shell.arg("-c").arg(&script).current_dir(place.at(""));
        let output = shell.output().await.expect("a shell with curl");
        String::from_utf8_lossy(&output.stdout).contains("\"routed\":true")
    };
    until("curl has published the call", publish).await;
    let secret = place.write("secret", secret);
    let leads = place.write("leads.csv", "phone,leadId\n+998901110002,4002\n");
    let source = format!("{}?queue=calls&secret-file={secret}", node.url(user));
    let mut program = place.start(
        &[
            "run".to_owned(),
            format!("--source={source}&format=call"),
            format!("--crm-url={}", crm.url()),
            format!("--token-file={}", place.path("token")),
            format!("--state={}", place.path("state")),
            format!("--lead=csv:{leads}"),
            "--country=UZ".to_owned(),
            "--trunk=city=".to_owned(),
            RATE_FLAG.to_owned(),
        ],
        &[],
    );
    let status = program.settled(1).await;
    assert_eq!(status.books.journaled, 1, "{:?}", status.books);
    program.terminate().await;
    assert_eq!(crm.journal()[0].call.lead_id, 4002);
}

#[tokio::test]
async fn who_was_killed_is_silent_and_wrong_words_are_skipped_and_counted() {
    let place = Place::new();
    let node = Broker::shared();
    let secret = place.write("secret", broker::SECRET);
    let url = format!(
        "{}?stream=silent&secret-file={secret}&declare=yes",
        node.url(broker::ADMINISTRATOR)
    );
    let mut collecting = collector(&place, &url);
    collecting.until("it has spoken", has_spoken).await;
    collecting.terminate().await;
    let source = url.replace("&declare=yes", "");
    let ended = async || {
        let table = fleet(&place, &source).await.0;
        table.members.first().is_some_and(|it| it.word.ends)
    };
    until("its last word", ended).await;
    let (table, _) = fleet(&place, &source).await;
    let word = serde_json::to_value(&table.members[0].word).expect("JSON");
    assert_eq!(word["ends"], true);

    let mut killed = word.clone();
    killed["pbx"] = json!(["branch2"]);
    killed["instance"] = json!("branch2");
    killed["ends"] = json!(false);
    killed["at"] = json!(word["at"].as_i64().expect("a time") - 600);
    let mut wrong = vec!["{".to_owned(), "x".repeat(140_000), String::new()];
    for (field, value) in [
        ("role", json!("manager")),
        ("pbx", json!(["two words"])),
        ("at", json!(4_000_000_000_i64)),
        ("books", json!({"finished": -1})),
    ] {
        let mut told: Value = word.clone();
        told[field] = value;
        wrong.push(told.to_string());
    }
    forge(node, "silent.words", &wrong).await;
    forge(node, "silent.words", &[killed.to_string()]).await;
    let seen = async || fleet(&place, &source).await.0.totals.silent == 1;
    until("who is silent", seen).await;
    let (table, code) = fleet(&place, &source).await;
    assert_eq!(code, 1);
    let trouble = table.members[0].trouble.clone();
    let trouble = trouble.map_or_else(String::new, String::from);
    assert!(trouble.starts_with("silent for 1"), "{trouble}");
    let skipped = &table.skipped;
    assert_eq!(
        skipped.values().sum::<u64>(),
        wrong.len() as u64,
        "{skipped:?}"
    );
    assert_eq!(
        (skipped["too_long"], skipped["future"]),
        (1, 1),
        "{skipped:?}"
    );

    let shown = place
        .command(&["fleet", &format!("--source={source}")])
        .await;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        text.contains("branch2") && text.contains("silent for"),
        "{text}"
    );
}

/// Where `fleet --listen` with port 0 came to listen.
async fn listens(program: &Program) -> SocketAddr {
    let find = || {
        let log = program.log();
        let line = log.lines().find(|it| it.contains("metrics of the fleet"))?;
        let (_, after) = line.split_once("127.0.0.1:")?;
        let port = after.split(|it: char| !it.is_ascii_digit()).next()?;
        Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
    };
    until("its address in the log", async || find().is_some()).await;
    find().expect("an address")
}

#[tokio::test]
async fn the_fleet_is_watched_and_served_as_metrics_while_it_speaks_and_after_it() {
    let (here, there) = (Place::new(), Place::new());
    let node = Broker::shared();
    let secret = here.write("secret", broker::SECRET);
    let source = format!(
        "{}?stream=watched&secret-file={secret}",
        node.url(broker::ADMINISTRATOR)
    );
    let mut collecting = collector(&here, &format!("{source}&declare=yes"));
    collecting.until("it has spoken", has_spoken).await;
    // What it shows goes into a file.
    let shown = there.at("shown");
    let show = format!("exec \"$0\" \"$@\" > '{}'", shown.display());
    let arguments = [
        "fleet".to_owned(),
        format!("--source={source}"),
        "--watch".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
    ];
    let watching = there.start_under(&["/bin/sh", "-c", &show], &arguments, &[]);
    let addr = listens(&watching).await;
    let says = async |words: &str| {
        let (status, text) = operations::get(addr, "/metrics").await;
        assert!(status == 200 || status == 503, "{status}: {text}");
        status == 200 && text.contains(words)
    };
    let drawn = |words: &str| {
        let shown = std::fs::read_to_string(&shown).unwrap_or_default();
        shown.matches(words).count()
    };
    let up = "callbridge_collector_up{pbx=\"branch1\"} 1";
    until("it is up", async || says(up).await).await;
    let speaks = "callbridge_fleet_members{role=\"collector\",speech=\"speaking\"} 1";
    assert!(says(speaks).await && says("callbridge_fleet_silent 0").await);
    assert_eq!(operations::get(addr, "/").await.0, 404);
    // One table after the other, and what is said meanwhile is in the next.
    let twice = async || drawn("WHO ") > 1 && drawn("branch1") > 1;
    until("two tables", twice).await;
    assert_eq!(drawn("stopped"), 0);
    collecting.terminate().await;
    let down = "callbridge_collector_up{pbx=\"branch1\"} 0";
    until("its end in the metric", async || says(down).await).await;
    until("its end in the table", async || drawn("stopped") > 0).await;
    watching.terminate().await;
}

#[tokio::test]
async fn a_check_beside_another_sender_of_the_stream_shows_its_verdict_and_asks_nothing() {
    let (here, there, crm) = (Place::new(), Place::new(), crm::start().await);
    let node = Broker::shared();
    node.declare_stream("budgeted").await;
    let secret = here.write("secret", broker::SECRET);
    let source = format!(
        "{}?stream=budgeted&secret-file={secret}&declare=yes",
        node.url(broker::ADMINISTRATOR)
    );
    let mut sending = sender(&here, &crm, &source);
    let speaks = |it: &Status| has_spoken(it) && it.token.company.is_some();
    sending.until("the sender has spoken", speaks).await;
    let leads = there.write("leads.csv", LEADS);
    let flags = [
        "check".to_owned(),
        "--json".to_owned(),
        format!("--source={source}&format=call"),
        format!("--crm-url={}", crm.url()),
        format!("--token-file={}", there.path("token")),
        format!("--state={}", there.path("state")),
        format!("--trunk=city=,country=UZ,lead=csv:{leads}"),
        RATE_FLAG.to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let of_crm = async || {
        let output = there.command(&flags).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().map(serde_json::from_str::<Value>);
        let mut lines = lines.map(|line| line.expect("JSON"));
        lines.find(|it| it["name"] == "crm").expect("a line of it")
    };
    let asked = || crm.admin(|core, _| core.counts().values().sum::<u64>());
    let before = asked();
    let told = of_crm().await;
    let what = told["what"].as_str().expect("words");
    assert!(
        told["ok"] == true && what.contains(&here.path("state")),
        "{told}"
    );
    assert_eq!(asked(), before);

    // One that has ended may have sent just now.
    sending.terminate().await;
    let told = of_crm().await;
    assert!(
        told["ok"] == false && told.to_string().contains("stopped"),
        "{told}"
    );
    assert_eq!(asked(), before);
}

#[tokio::test]
async fn words_that_nobody_takes_are_said_once_with_the_command_and_touch_no_call() {
    let place = Place::new();
    let node = Broker::shared();
    node.declare_stream("wordless").await;
    let secret = place.write("secret", broker::SECRET);
    let url = format!(
        "{}?stream=wordless&secret-file={secret}",
        node.url(broker::ADMINISTRATOR)
    );
    let mut collecting = collector(&place, &url);
    let forwarded = |it: &Status| it.books.forwarded == CALLS as u64;
    collecting.until("all is forwarded", forwarded).await;
    let why = |it: &Status| it.fleet.as_ref().and_then(|it| it.why.clone());
    let status = collecting
        .until("why nobody hears it", |it| why(it).is_some())
        .await;
    let words = why(&status).unwrap_or_default();
    assert!(
        words.contains("declare queue name=wordless.words"),
        "{words}"
    );
    assert!(
        status.todo.iter().any(|it| it.kind.word() == "last_words"),
        "{:?}",
        status.todo
    );
    let told = collecting
        .log()
        .matches("status reports do not reach the broker")
        .count();
    assert_eq!(told, 1);
    collecting.terminate().await;

    let text = check(&place, &url).await;
    let line = text
        .lines()
        .find(|it| it.contains("status reports"))
        .unwrap_or_default();
    assert!(
        line.contains("wordless.words") && line.contains("\"ok\":true"),
        "{text}"
    );
}
