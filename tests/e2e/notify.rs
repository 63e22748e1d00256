//! Is a command told once when a trouble begins and once when it ends, over restarts? Do the examples
//! of deploy/notify tell a chat and a mailbox?

use crate::crm::{self, RATE_FLAG};
use crate::program::Place;
use crate::recordings;
use crate::wait;
use callbridge_model::Status;
use callbridge_model::status::FindingKind;
use callbridge_notify::history::{Notification, Turn};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:NONE";

fn told(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.at("told")).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.filter_map(Result::ok).collect()
}

async fn tells(place: &Place, lines: usize) -> Vec<Value> {
    let stored = || place.logs().matches("--notify-command has run").count() >= lines;
    wait::until(&format!("{lines} runs"), async || stored()).await;
    told(place)
}

#[tokio::test]
async fn a_command_is_told_once_when_a_trouble_begins_and_once_when_it_ends() {
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
    let first = tells(&place, 1).await;
    assert_eq!(
        (&first[0]["kind"], &first[0]["state"]),
        (&"no_lead".into(), &"begins".into())
    );
    assert_eq!(first[0]["what"], "1 call waits for a lead");
    let todo = first[0]["todo"].as_str().expect("a command");
    assert!(
        todo.starts_with("callbridge lead missing --state"),
        "{todo}"
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
        "none of ours: {variables}"
    );
    program.terminate().await;

    // The same trouble, and then none any more.
    let mut program = place.run(&crm.url(), &flags);
    let parked = |it: &Status| it.books.parked == 1;
    program.until("the call that waits", parked).await;
    let given = place
        .lines(&["lead", "give", "+998901110001", "4001", "--json"])
        .await;
    assert_eq!(given[0]["left"], 1);
    let both = tells(&place, 2).await;
    assert_eq!(
        (&both[1]["kind"], &both[1]["state"]),
        (&"no_lead".into(), &"ends".into())
    );
    assert_eq!(both[1]["since"], both[0]["since"]);
    assert_eq!(both.len(), 2, "told once: {both:?}");
    program.terminate().await;
}

/// A server that answers each request of curl, and hands on what it was asked: HTTP or SMTP.
struct Double {
    address: String,
    asked: mpsc::Receiver<String>,
}

impl Double {
    fn start(serve: fn(TcpStream) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (ask, asked) = mpsc::channel();
        std::thread::spawn(move || {
            for line in listener.incoming().map_while(Result::ok) {
                if ask.send(serve(line)).is_err() {
                    return;
                }
            }
        });
        Self { address, asked }
    }

    async fn next(&self) -> String {
        let mut next = None;
        wait::until("a message", async || {
            next = self.asked.try_recv().ok();
            next.is_some()
        })
        .await;
        next.expect("a message")
    }
}

/// Of a POST its path, its form, and the arguments of all processes that run meanwhile.
fn telegram(mut line: TcpStream) -> String {
    let mut reader = BufReader::new(line.try_clone().expect("a line"));
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let from = head.len();
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            break;
        }
        let named = head[from..].to_ascii_lowercase();
        if let Some(value) = named.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut form = vec![0; length];
    reader.read_exact(&mut form).expect("a form");
    let form: Vec<(String, String)> = url::form_urlencoded::parse(&form).into_owned().collect();
    let seen = arguments();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    line.write_all(answer.as_bytes()).expect("answered");
    let shown = seen.contains("bot1:TOKEN");
    format!(
        "{} {form:?} token shown: {shown}",
        head.lines().next().unwrap_or_default()
    )
}

/// What `ps` shows.
fn arguments() -> String {
    let all = std::fs::read_dir("/proc").expect("processes");
    let all = all.filter_map(|it| std::fs::read(it.ok()?.path().join("cmdline")).ok());
    all.map(|it| String::from_utf8_lossy(&it).into_owned())
        .collect()
}

/// What an SMTP server is told.
fn smtp(mut line: TcpStream) -> String {
    let reader = BufReader::new(line.try_clone().expect("a line"));
    let (mut told, mut in_mail) = (String::new(), false);
    let mut say = |words: &str| {
        line.write_all(format!("{words}\r\n").as_bytes())
            .expect("said")
    };
    say("220 double");
    for text in reader.lines().map_while(Result::ok) {
        told.push_str(&format!("{text}\n"));
        match (in_mail, text.as_str()) {
            (true, ".") => {
                in_mail = false;
                say("250 taken");
            }
            (true, _) => {}
            (false, "DATA") => {
                in_mail = true;
                say("354 go on");
            }
            (false, "QUIT") => {
                say("221 bye");
                break;
            }
            (false, _) => say("250 well"),
        }
    }
    told
}

fn script(name: &str) -> String {
    format!("{}/deploy/notify/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test]
async fn a_chat_hears_of_troubles_and_of_customers_who_wait_and_no_argument_holds_the_token() {
    let (place, crm) = (Place::new(), crm::start().await);
    let double = Double::start(telegram);
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
    // The call waits for a lead, its customer for a call back: one message, or two.
    let (mut told, mut seen) = (String::new(), Vec::new());
    while !(told.contains("1 call waits for a lead") && told.contains("for a call back")) {
        seen.push(double.next().await);
        told = seen.concat();
        assert!(seen.len() <= 2, "{seen:?}");
    }
    assert!(told.contains("POST /bot1:TOKEN/sendMessage"), "{told}");
    assert!(told.contains(r#"("chat_id", "-100")"#), "{told}");
    let waits = "❗ 1 customer waits for a call back longer than 30 min: +998901110002 (50 min";
    assert!(told.contains(waits), "{told}");
    assert!(told.contains("→ callbridge missed --state"), "{told}");
    assert!(!told.contains("token shown: true"), "{told}");
    program.terminate().await;
    assert!(!place.logs().contains("901110002"), "no number in the log");
}

#[tokio::test]
async fn a_mail_holds_all_that_is_told_at_one_moment() {
    let (place, double) = (Place::new(), Double::start(smtp));
    let curl = format!(
        "url = \"smtp://{}\"\nmail-from = \"pbx@example.com\"\nmail-rcpt = \"admin@example.com\"\n",
        double.address
    );
    let curl = place.write("mail", &curl);
    let line = |state: Turn, what: &str| Notification {
        kind: FindingKind::SourceDown.word(),
        state,
        since: 1,
        what: what.to_owned(),
        todo: "callbridge check".to_owned(),
    };
    let told = [
        line(Turn::Begins, "source hq/ami is down: «отказ»"),
        line(Turn::Ends, "2 dead letters"),
    ];
    let command = format!("{} '{curl}'", script("mail"));
    callbridge_notify::command::run(&command, &told)
        .await
        .expect("mailed");
    let mail = double.next().await;
    assert!(mail.contains("RCPT TO:<admin@example.com>"), "{mail}");
    assert!(
        mail.contains("\nTo: admin@example.com\nSubject: callbridge on "),
        "{mail}"
    );
    let body =
        "\n\nsource hq/ami is down: «отказ»\n  to do: callbridge check\n\nOver: 2 dead letters\n";
    assert!(mail.contains(body), "{mail}");
    // What is missing is said by the script's last line.
    let nowhere = format!("{} /no/such/file", script("mail"));
    let failed = callbridge_notify::command::run(&nowhere, &told).await;
    let words = failed.expect_err("failed").to_string();
    assert!(words.ends_with(": /no/such/file cannot be read"), "{words}");
}
