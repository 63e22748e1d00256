//! A collector's login that floods its sender: long messages, made-up names, words without end, the
//! lease's queue. On a real RabbitMQ with the users of `deploy/rabbitmq/fleet.json`, while the
//! sender's process is given 256 MB.

use crate::broker::{self, Broker};
use crate::crm::{self, RATE_FLAG};
use crate::fleet::message;
use crate::flood;
use crate::program::{Place, Program};
use crate::wait::until;
use callbridge_model::status::LeasePhase;
use callbridge_model::{Status, clock};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The process may have so much memory.
const MEMORY_MAX: u64 = 256 << 20;
/// And of that be resident, beside the program's own file: a debug build's is longer than all that
/// the shipped one takes.
const RESIDENT_MAX: u64 = 128 << 20;
/// The longest message that a broker takes that was told no other limit.
const LONGEST: usize = 128 << 20;
/// A message of the length up to which it is read.
const LONG: usize = 1 << 20;
const CALL: &str = "application/vnd.callbridge.call+json; version=1";
const WORD: &str = "application/vnd.callbridge.words+json; version=1";

/// A limit of a process's memory: a control group of its own where root may make one, as systemd's
/// `MemoryMax=`; else of what it may write to (of its addresses malloc reserves more for each
/// thread than it ever uses).
struct MemoryLimit {
    group: Option<PathBuf>,
}

impl MemoryLimit {
    fn new() -> Self {
        let name = format!("callbridge-test-{}", std::process::id());
        let roots = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        let limited = |(root, file): (&str, &str)| {
            use std::io::Write as _;
            let group = Path::new(root).join(&name);
            std::fs::create_dir(&group).ok()?;
            let opened = std::fs::OpenOptions::new()
                .write(true)
                .open(group.join(file));
            let limit = MEMORY_MAX.to_string();
            match opened.and_then(|mut file| file.write_all(limit.as_bytes())) {
                Ok(()) => Some(group),
                Err(_) => {
                    std::fs::remove_dir(&group).ok();
                    None
                }
            }
        };
        Self {
            group: roots.into_iter().find_map(limited),
        }
    }

    /// What starts a program under it.
    fn words(&self) -> Vec<String> {
        match &self.group {
            Some(group) => vec![
                "sh".to_owned(),
                "-c".to_owned(),
                "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"".to_owned(),
                group.display().to_string(),
            ],
            None => vec!["prlimit".to_owned(), format!("--data={MEMORY_MAX}")],
        }
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            std::fs::remove_dir(group).ok();
        }
    }
}

/// A user of the fleet who publishes.
struct Login {
    user: &'static str,
    channel: Channel,
    _connection: Connection,
}

impl Login {
    async fn of(node: &Broker, user: &'static str) -> Self {
        let secret = broker::SECRET.replace(' ', "%20");
        let url = format!("amqp://{user}:{secret}@127.0.0.1:{}/calls", node.port());
        let connection = Connection::connect(&url, ConnectionProperties::default()).await;
        let connection = connection.expect("let in");
        let channel = connection.create_channel().await.expect("a channel");
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        confirms.await.expect("confirms");
        Self {
            user,
            channel,
            _connection: connection,
        }
    }

    /// Publishes to one of the two streams, as the login may; all are confirmed.
    async fn publish(&self, stream: &str, kind: &str, bodies: impl Iterator<Item = Vec<u8>>) {
        let exchange = match (self.user, stream) {
            ("sender", _) => "",
            (_, "calls") => "collectors",
            _ => "collectors.words",
        };
        let properties = BasicProperties::default()
            .with_content_type(kind.into())
            .with_user_id(self.user.into());
        let options = BasicPublishOptions::default();
        let mut under_way = Vec::new();
        for body in bodies {
            let properties = properties.clone();
            let (exchange, key) = (exchange.into(), stream.into());
            let sent = (self.channel).basic_publish(exchange, key, options, &body, properties);
            under_way.push(sent.await.expect("sent"));
            if under_way.len() == 100 {
                for confirm in under_way.drain(..) {
                    confirm.await.expect("confirmed");
                }
            }
        }
        for confirm in under_way {
            confirm.await.expect("confirmed");
        }
    }

    /// Calls of a PBX of its own, that number of them.
    async fn calls(&self, of: &str, number: usize) {
        let call = |n| {
            let mut call = message(&format!("{of}-{n}"));
            call["pbx"] = json!(self.user);
            call.to_string().into_bytes()
        };
        self.publish("calls", CALL, (0..number).map(call)).await;
    }

    /// Messages that are no calls, of this length.
    async fn garbage(&self, number: usize, length: usize) {
        let bodies = (0..number).map(|_| vec![b'?'; length]);
        self.publish("calls", CALL, bodies).await;
    }

    /// Words of collectors of PBXs that there are not.
    async fn words(&self, number: usize) {
        let at = clock::now().wall.floor_seconds().get();
        let word = |n| {
            let word = json!({
                "role": "collector", "instance": format!("made-up-{n}"),
                "pbx": [format!("made-up-{n}")], "hostname": "nowhere", "version": "0.1.0",
                "books": callbridge_model::status::Books::default(), "startedAt": at, "at": at,
            });
            word.to_string().into_bytes()
        };
        self.publish("calls.words", WORD, (0..number).map(word))
            .await;
    }

    /// Whether the broker closes the channel of who publishes to the lease's queue.
    async fn is_refused_the_lease(node: &Broker, user: &'static str) -> bool {
        let login = Self::of(node, user).await;
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let key = "calls.lease".into();
        let sent = (login.channel).basic_publish("".into(), key, options, b"?", properties);
        match sent.await {
            Ok(confirm) => confirm.await.is_err(),
            Err(_) => true,
        }
    }
}

fn sender(place: &Place, limit: &MemoryLimit, crm: &str, source: &str) -> Program {
    let arguments = [
        "run".to_owned(),
        format!("--source={source}&format=call"),
        format!("--crm-url={crm}"),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.path("state")),
        "--trunk=city=,country=UZ".to_owned(),
        "--standby=calls.lease".to_owned(),
        RATE_FLAG.to_owned(),
    ];
    let words = limit.words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    place.start_under(&words, &arguments, &[])
}

fn holds_the_lease(status: &Status) -> bool {
    let lease = status.lease.as_ref();
    lease.is_some_and(|lease| lease.state == LeasePhase::Holding)
}

fn names(status: &Status, words: &str) -> bool {
    status.todo.iter().any(|it| it.what.starts_with(words))
}

fn unreadable(status: &Status) -> u64 {
    status.letters.get("unreadable").copied().unwrap_or(0)
}

#[tokio::test]
async fn a_login_that_floods_its_sender_keeps_nobody_out_and_is_named_also_while_it_stops() {
    let (limit, place, crm) = (MemoryLimit::new(), Place::new(), crm::start().await);
    let made = tokio::task::spawn_blocking(|| {
        let node = Broker::start();
        node.import("fleet.json");
        node
    });
    let node = made.await.expect("a node");
    let (secret, port) = (place.write("secret", broker::SECRET), node.port());
    let source = format!("amqp://sender@127.0.0.1:{port}/calls?stream=calls&secret-file={secret}");
    let mut program = sender(&place, &limit, &crm.url(), &source);
    program.until("its lease", holds_the_lease).await;
    let (flooder, other) = (
        Login::of(&node, "branch1").await,
        Login::of(&node, "sender").await,
    );

    other.calls("before", 10).await;
    flooder.garbage(100, LONG).await;
    flooder.words(1_000).await;
    flooder.garbage(5_200, 30).await;
    other.calls("between", 10).await;
    flooder.garbage(1, LONGEST).await;
    assert!(Login::is_refused_the_lease(&node, "branch1").await);
    flooder.calls("of its own", 10).await;
    other.calls("after", 10).await;
    let all_named = |it: &Status| {
        let letters = names(it, "login branch1 floods the dead letters");
        letters && names(it, "login branch1 floods the stream of status reports")
    };
    let done = |it: &Status| it.books.journaled >= 40 && all_named(it);
    let status = program
        .until("all calls, and a login that is named", done)
        .await;
    assert_eq!(status.books.journaled, 40, "{:?}", status.books);
    assert_eq!(status.books.unreadable, 5_301, "{:?}", status.books);
    assert!(holds_the_lease(&status), "{:?}", status.lease);
    assert_eq!(unreadable(&status), 5_000, "half of the room");

    // Of who comes later there is room for what cannot be read.
    flooder.garbage(3, 30).await;
    other.garbage(3, 30).await;
    let told = |it: &Status| it.books.unreadable == 5_307;
    let status = program.until("some more of it", told).await;
    assert_eq!(unreadable(&status), 5_003);
    let (resident, file) = (flood::peak(&program), flood::figure(&program, "RssFile:"));
    println!("at most {resident} bytes were resident, {file} of them the program's file");
    assert!(resident - file < RESIDENT_MAX, "{resident}, {file}");

    let flood = tokio::spawn(async move {
        loop {
            flooder.garbage(100, LONG).await;
        }
    });
    let floods = |it: &Status| it.books.unreadable > 5_320;
    program.until("a flood", floods).await;
    program.terminate().await;
    flood.abort();
    let status = place.lines(&["status", "--json"]).await.remove(0);
    let status: Status = serde_json::from_value(status).expect("a status");
    assert!(status.books.balance(), "{:?}", status.books);
    assert!(names(&status, "login branch1 floods the dead letters"));
    let group = limit.group.clone();
    drop(limit);
    until("the end of the control group", async || {
        !group.as_ref().is_some_and(|it| it.exists())
    })
    .await;
}
