//! Tests that no secret appears in any output, file, or process list.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program, TOKEN};
use crate::support::recordings::{self, TRUNKS};
use callbridge_model::Status;
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::pbx::{self, FakePbx};
use callbridge_testbed::wait::until;
use std::fs;
use std::path::{Path, PathBuf};

const QUEUE: &str = "secrets";
const DEAD_LETTER_QUEUE: &str = "secrets-letters";

/// All secrets used by the tests.
const SECRETS: [&str; 5] = [
    TOKEN,
    pbx::SECRET,
    broker::SECRET,
    "a wrong password",
    OLD_TOKEN,
];
/// A token that the CRM rejects.
const OLD_TOKEN: &str = "svc_pat_revoked_long_ago";

/// Returns a secret in every form in which programs usually write bytes, which are plain, in a URL,
/// in base64 at each offset, in hexadecimal, and as a list of numbers.
pub fn forms(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let encoded = percent_encoding::percent_encode(bytes, percent_encoding::NON_ALPHANUMERIC);
    let mut forms = vec![
        secret.to_owned(),
        secret.replace(' ', "%20"),
        secret.replace(' ', "+"),
        encoded.to_string(),
        join_bytes(bytes, "", |byte| format!("{byte:02x}")),
        join_bytes(bytes, "", |byte| format!("{byte:02X}")),
        join_bytes(bytes, " ", |byte| format!("{byte:02x}")),
        join_bytes(bytes, ", ", |byte| byte.to_string()),
        join_bytes(bytes, ", ", |byte| format!("0x{byte:02x}")),
    ];
    for alphabet in ["+/", "-_"] {
        forms.extend((0..3).map(|skipped| base64(bytes, skipped, alphabet)));
    }
    forms
}

/// Returns each byte's text, joined with `separator`.
fn join_bytes(bytes: &[u8], separator: &str, text: impl Fn(u8) -> String) -> String {
    let parts: Vec<String> = bytes.iter().map(|byte| text(*byte)).collect();
    parts.join(separator)
}

/// Returns the part of a base64 text that depends only on `bytes` if they're preceded by `skipped`
/// other bytes. `last_two` has the last two characters of the alphabet.
fn base64(bytes: &[u8], skipped: usize, last_two: &str) -> String {
    let letters = ('A'..='Z')
        .chain('a'..='z')
        .chain('0'..='9')
        .chain(last_two.chars());
    let alphabet: Vec<char> = letters.collect();
    let bits = std::iter::repeat_n(0, skipped).chain(bytes.iter().copied());
    let bits: Vec<u8> = bits
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
        .collect();
    let sextets = bits.chunks_exact(6).skip((skipped * 8).div_ceil(6));
    sextets
        .map(|sextet| alphabet[number_from_bits(sextet)])
        .collect()
}

/// Returns the number with these binary digits.
fn number_from_bits(bits: &[u8]) -> usize {
    bits.iter().fold(0, |sum, bit| sum * 2 + usize::from(*bit))
}

/// Checks that a text doesn't contain a secret in any form. `source` identifies the text in the
/// message.
fn assert_no_secret(source: &str, text: &[u8]) {
    for form in SECRETS.into_iter().flat_map(forms) {
        let found = memchr::memmem::find(text, form.as_bytes());
        assert!(found.is_none(), "`{form}` is in {source}");
    }
}

/// Checks that no file in the state contains a secret.
fn assert_no_secret_in_state(place: &Place) {
    let mut seen = 0;
    for entry in fs::read_dir(place.at("state")).expect("the state") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let bytes = fs::read(&path).expect("readable");
            assert_no_secret(&path.display().to_string(), &bytes);
            seen += 1;
        }
    }
    assert!(seen >= 2, "the state and its lock at least");
}

#[test]
fn secret_search_finds_every_encoding() {
    let secret = broker::SECRET;
    assert_eq!(base64(b"broker secret", 0, "+/"), "YnJva2VyIHNlY3Jld");
    for text in [
        "Authorization: Basic YnJpZGdlOmJyb2tlciBzZWNyZXQ=",
        "AGJyaWRnZQBicm9rZXIgc2VjcmV0",
        "amqp://bridge:broker%20secret@host",
        "b\"\\0bridge\\0broker secret\"",
        "[98, 114, 111, 107, 101, 114, 32, 115, 101, 99, 114, 101, 116]",
        "62726f6b657220736563726574",
    ] {
        let found = forms(secret).iter().any(|form| text.contains(form));
        assert!(found, "{text}");
    }
}

/// Returns flags for two sources, two sources with a wrong secret, a dead letter queue, and the
/// most detailed log.
fn flags(place: &Place, pbx: &FakePbx, broker: &Broker) -> Vec<String> {
    let ami = place.write("ami-secret", pbx::SECRET);
    let amqp = place.write("amqp-secret", broker::SECRET);
    let wrong = place.write("wrong-secret", "a wrong password");
    let (manager, base) = (pbx.addr(), broker.url(broker::ADMINISTRATOR));
    let cel = format!("queue={QUEUE}&format=asterisk-cel");
    let connections = [
        format!("--source=ami://bridge@{manager}?secret-file={ami}"),
        format!("--source={base}?{cel}&secret-file={amqp}&pbx=queue"),
        format!("--source=ami://bridge@{manager}?secret-file={wrong}&pbx=wrong"),
        format!("--source={base}?{cel}&secret-file={wrong}&pbx=wrong-queue"),
        format!(
            "--dead-letter-queue={base}?queue={DEAD_LETTER_QUEUE}&waiting=yes&secret-file={amqp}"
        ),
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
    connections
        .into_iter()
        .chain(usual.map(str::to_owned))
        .collect()
}

/// Checks that no HTTP page, and no output of a command that asks the daemon, contains a secret.
async fn assert_no_secret_in_answers(place: &Place, program: &Program) {
    for page in ["/healthz", "/readyz", "/nothing"] {
        let (_, body) = crate::e2e::operations::monitoring::page(program, page).await;
        assert_no_secret(page, body.as_bytes());
    }
    for arguments in [
        &["status"][..],
        &["dead", "list", "--json"],
        &["dead", "export", "--all", "--format=jsonl"],
        &["lead", "missing", "--csv"],
    ] {
        let output = place.command(arguments).await;
        assert_no_secret(
            &arguments.join(" "),
            &[output.stdout, output.stderr].concat(),
        );
    }
}

/// Checks that the output of `check` with these flags doesn't contain a secret.
async fn assert_no_secret_in_check(place: &Place, crm: &str, flags: &[String]) {
    let mut arguments = place.arguments(crm, flags);
    arguments[0] = "check".to_owned();
    arguments.retain(|flag| !flag.starts_with("--listen"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = place.command(&arguments).await;
    assert!(!output.stdout.is_empty(), "check prints a report");
    assert_no_secret("check", &[output.stdout, output.stderr].concat());
}

/// Checks that the program doesn't create core dumps and that only root can read its memory.
fn assert_no_dumps(pid: u32) {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let limits = fs::read_to_string(folder.join("limits")).expect("readable");
    let core = limits.lines().find(|line| line.starts_with("Max core"));
    let core = core.map(|line| line.split_whitespace().skip(4).take(2).collect::<Vec<_>>());
    assert_eq!(core, Some(vec!["0", "0"]), "{limits}");
    let owner = fs::metadata(folder.join("environ")).expect("there");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), 0);
    if let Ok(variables) = fs::read(folder.join("environ")) {
        assert_no_secret("the environment", &variables);
    }
}

/// Promise: No secret is in logs, status, metrics, the state, or arguments.
#[tokio::test]
async fn secrets_stay_out_of_logs_status_metrics_state_and_cmdline() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let broker = Broker::shared();
    broker.declare(QUEUE).await;
    broker.declare(DEAD_LETTER_QUEUE).await;
    let flags = flags(&place, &pbx, broker);
    let mut program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    for name in ["inbound_answered", "unknown_customer"] {
        let events = recordings::one(name);
        broker.publish(QUEUE, &events.cel()).await;
    }
    let status = program
        .until("an attempt of every connection", are_connections_tried)
        .await;
    until("two dead letters in the queue", async || {
        broker.depth(DEAD_LETTER_QUEUE).await == 2
    })
    .await;
    until("a request to the CRM", async || {
        !crm.admin(|core, _| core.counts().is_empty())
    })
    .await;

    let metrics = crate::e2e::operations::monitoring::metrics(&program).await;
    assert_no_secret("metrics", metrics.as_bytes());
    assert_no_secret(
        "status",
        serde_json::to_string(&status).expect("JSON").as_bytes(),
    );
    let shown = place.command(&["dead", "show", "--all"]).await;
    assert_no_secret("dead show", &shown.stdout);
    let command = fs::read(format!("/proc/{}/cmdline", program.id())).expect("readable");
    assert!(memchr::memmem::find(&command, b"--log=trace").is_some());
    assert_no_secret("the command line", &command);
    assert_no_dumps(program.id());
    assert_no_secret_in_answers(&place, &program).await;
    // The CRM rejects both the token from startup and the new one.
    crm.admin(|core, _| core.revoke_all());
    place.write("token", OLD_TOKEN);
    program.until("a refused token", is_token_refused).await;
    program.kill().await;
    assert_no_secret_in_state(&place);
    let log = place.logs();
    // Only callbridge's own code may log at TRACE. Its most detailed level is DEBUG.
    assert!(
        log.contains("\"level\":\"DEBUG\""),
        "the log has the most detailed level"
    );
    assert_no_secret("the log", log.as_bytes());

    let mut program = place.run(&crm.url(), &flags);
    program.until("the refusal again", is_token_refused).await;
    program.terminate().await;
    assert_no_secret("the log after a kill", place.logs().as_bytes());
    assert_no_secret_in_state(&place);
    assert_no_secret_in_check(&place, &crm.url(), &flags).await;
}

/// Returns `true` if every connection in `flags` has been tried and both calls are waiting.
fn are_connections_tried(status: &Status) -> bool {
    let [ami, queue, wrong, wrong_queue] = &status.sources[..] else {
        return false;
    };
    let tried = [wrong, wrong_queue]
        .iter()
        .all(|source| source.reason.is_some());
    tried && ami.read > 0 && queue.read > 0 && status.books.waiting == 2
}

fn is_token_refused(status: &Status) -> bool {
    status.token.state == "refused"
}

#[tokio::test]
async fn state_files_are_mode_0600_under_umask_0() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let source = place.file("recorded", "ami");
    // Other users can enter this directory, because it already contains another program's file.
    fs::create_dir(place.at("state")).expect("a folder");
    fs::write(place.at("state").join("theirs"), "").expect("written");
    let path = std::env::var("PATH").expect("a path");
    let wrapper = ["sh", "-c", "umask 0; exec \"$@\"", "sh"];
    let arguments = place.arguments(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    let mut program = place.start_under(&wrapper, &arguments, &[("PATH", &path)]);
    program.settled(1).await;
    let mut names = Vec::new();
    for entry in fs::read_dir(place.at("state")).expect("the state") {
        let entry = entry.expect("an entry").path();
        let name = entry
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(
            name == "theirs" || mode(&entry) == 0o600,
            "{name}: {:o}",
            mode(&entry)
        );
        names.push(name);
    }
    for wanted in ["control.sock", callbridge_spool::folder::FILE] {
        assert!(
            names.iter().any(|name| name == wanted),
            "{wanted} of {names:?}"
        );
    }
    assert!(names.len() >= 5, "lock and WAL are there, too: {names:?}");
    program.terminate().await;
}

/// Returns a file's permissions.
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = fs::symlink_metadata(path).expect("there");
    metadata.permissions().mode() & 0o777
}

#[test]
fn configuration_in_debug_or_panic_shows_no_secret() {
    use callbridge::read;
    use callbridge_model::Environment;
    let place = Place::new();
    let environment = Environment::from_pairs([
        ("CALLBRIDGE_TOKEN", TOKEN),
        ("CALLBRIDGE_AMI_SECRET", pbx::SECRET),
        ("CALLBRIDGE_AMQP_SECRET", broker::SECRET),
        ("CALLBRIDGE_DEAD_LETTER_SECRET", "a wrong password"),
    ]);
    let arguments = [
        "callbridge",
        "run",
        "--crm-url=https://crm.example.uz",
        "--source=ami://bridge@127.0.0.1:5038",
        "--source=amqp://bridge@127.0.0.1/pbx?queue=q&format=asterisk-cel&pbx=b",
        "--dead-letter-queue=amqp://bridge@127.0.0.1/pbx?queue=letters",
        TRUNKS[0],
        "--pbx-id=office",
        &format!("--state={}", place.path("state")),
    ];
    let command = read(arguments.map(std::ffi::OsString::from), &environment).expect("good flags");
    let shown = format!("{command:?} {command:#?}");
    assert!(
        shown.contains("crm.example.uz") && shown.contains("bridge"),
        "{shown}"
    );
    assert_no_secret("the configuration", shown.as_bytes());
    // The panic prints the command's Debug form.
    let panicked = std::panic::catch_unwind(|| panic!("{command:?}")).expect_err("a panic");
    let message = panicked.downcast_ref::<String>().expect("a message");
    assert_no_secret("a panic", message.as_bytes());
}

#[tokio::test]
async fn password_in_url_exits_64_and_creates_no_state() {
    let place = Place::new();
    let source = "--source=ami://bridge:hidden@127.0.0.1:5038";
    let program = place.run("http://127.0.0.1:1", &[source, TRUNKS[0]]);
    assert_eq!(program.ended().await.code(), Some(64));
    let log = place.logs();
    assert!(
        log.contains("secret-file") && !log.contains("hidden"),
        "{log}"
    );
    assert!(!place.at("state").exists());
}
