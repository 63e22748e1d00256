//! Three RabbitMQ nodes as one cluster on one machine, each in a network of its own: a node can be
//! killed and frozen, nodes can be cut from each other while their clients reach all of them, and a
//! node's disk can be filled.
//!
//! ```text
//! test ──pipe──▶ sh (keeper.sh) ──▶ bridge ──┬── namespace 1: epmd, rabbitmq-server, small disk
//!                                            ├── namespace 2: …
//!                                            └── namespace 3: …
//! ```
//! The shell ends and removes all of it when the pipe closes.

use crate::broker::{ADMINISTRATOR, SECRET, SECRET_HASH, VHOST};
use crate::wait::{until, until_within};
use lapin::options::{ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nodes of the cluster.
pub const NODES: usize = 3;
/// Who forwards: collectors and the driver.
pub const COLLECTOR: &str = "collector";
/// Who reads the streams.
pub const SENDER: &str = "sender";

const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
const KEEPER: &str = include_str!("keeper.sh");
/// A node that has been killed, or whose peers have, starts within this.
const STARTS_WITHIN: Duration = Duration::from_secs(400);
const GREETS_WITHIN: Duration = Duration::from_secs(3);

/// See the module. Nodes are numbered from 0.
pub struct BrokerCluster {
    net: u8,
    folder: PathBuf,
    keeper: Mutex<ClusterKeeper>,
}

struct ClusterKeeper {
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    process: Child,
}

impl BrokerCluster {
    /// Starts all nodes; returns when they are one cluster.
    pub async fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("callbridge-fleet-")
            .tempdir();
        let folder = folder.expect("a folder").keep();
        let net = u8::try_from(100 + std::process::id() % 100).expect("below 200");
        for node in 0..NODES {
            configure(&folder.join(format!("node-{}", node + 1)), net);
        }
        let mut process = Command::new("bash")
            .args(["-c", KEEPER])
            .env("PROGRAMS", PROGRAMS)
            .env("FOLDER", &folder)
            .env("NET", net.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let keeper = ClusterKeeper {
            words: process.stdin.take(),
            answers: BufReader::new(process.stdout.take().expect("piped")),
            process,
        };
        let cluster = Self {
            net,
            folder,
            keeper: Mutex::new(keeper),
        };
        cluster.tell("set_up");
        // The others join the first.
        for node in 0..NODES {
            cluster.tell(&format!("start {}", node + 1));
            if node == 0 {
                cluster.answers(node).await;
            }
        }
        for node in 1..NODES {
            cluster.answers(node).await;
        }
        cluster
    }

    /// A command of `keeper.sh`.
    pub fn tell(&self, words: &str) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = keeper.words.as_mut().expect("it lives");
        writeln!(pipe, "{words}").expect("the shell listens");
        let mut answer = String::new();
        keeper.answers.read_line(&mut answer).expect("an answer");
        let log = || std::fs::read_to_string(self.folder.join("keeper.log"));
        assert_eq!(answer.trim(), "done", "{words}: {:?}", log());
    }

    /// Where a node speaks AMQP.
    pub fn addr(&self, node: usize) -> SocketAddr {
        let last = u8::try_from(node + 1).expect("few");
        (Ipv4Addr::new(10, 213, self.net, last), 5672).into()
    }

    /// Waits until a node greets: it does when all of it has started.
    pub async fn answers(&self, node: usize) {
        let what = format!("an answer of node {node}, {}", self.folder.display());
        until_within(STARTS_WITHIN, &what, async || {
            timeout(GREETS_WITHIN, greeted(self.addr(node))).await == Ok(true)
        })
        .await;
    }

    /// `kill -9` for a node and all its processes.
    pub fn kill(&self, node: usize) {
        self.tell(&format!("signal KILL {}", node + 1));
    }

    /// Starts a killed node; it answers later.
    pub fn start_again(&self, node: usize) {
        self.tell(&format!("start {}", node + 1));
    }

    /// SIGSTOP: it is there, and does nothing.
    pub fn freeze(&self, node: usize) {
        self.tell(&format!("signal STOP {}", node + 1));
    }

    /// SIGCONT.
    pub fn thaw(&self, node: usize) {
        self.tell(&format!("signal CONT {}", node + 1));
    }

    /// Two nodes hear each other no more; their clients reach both.
    pub fn cut(&self, one: usize, other: usize) {
        self.tell(&format!("cut {} {}", one + 1, other + 1));
    }

    /// All nodes hear each other again.
    pub fn heal(&self) {
        self.tell("heal");
    }

    /// The disk of a node.
    pub fn disk(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{}", node + 1)).join("data")
    }

    /// Deletes a stream with all that is in it.
    pub async fn delete_stream(&self, name: &str) {
        until("a stream is gone", async || {
            let Ok((_connection, channel)) = connect(self.addr(0), ADMINISTRATOR).await else {
                return false;
            };
            let gone = channel.queue_delete(name.into(), QueueDeleteOptions::default());
            gone.await.is_ok()
        })
        .await;
    }

    /// Makes a stream with a copy on each node, and waits until it takes messages.
    pub async fn make_stream(&self, name: &str) {
        let mut arguments = FieldTable::default();
        let text = |text: &str| AMQPValue::LongString(text.into());
        arguments.insert("x-queue-type".into(), text("stream"));
        arguments.insert("x-max-age".into(), text("30D"));
        arguments.insert("x-queue-leader-locator".into(), text("least-leaders"));
        arguments.insert("x-initial-cluster-size".into(), AMQPValue::LongInt(3));
        until("a stream", async || {
            let Ok((_connection, channel)) = connect(self.addr(0), ADMINISTRATOR).await else {
                return false;
            };
            let durable = QueueDeclareOptions {
                durable: true,
                ..QueueDeclareOptions::default()
            };
            let made = channel.queue_declare(name.into(), durable, arguments.clone());
            made.await.is_ok()
        })
        .await;
    }
}

impl Drop for BrokerCluster {
    fn drop(&mut self) {
        let keeper = self.keeper.get_mut();
        let keeper = keeper.unwrap_or_else(PoisonError::into_inner);
        keeper.words = None;
        let _ = keeper.process.wait();
    }
}

async fn greeted(addr: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(addr).await else {
        return false;
    };
    let mut first = [0];
    stream.write_all(b"AMQP\x00\x00\x09\x01").await.is_ok()
        && stream.read_exact(&mut first).await.is_ok()
        && first == [1]
}

/// A connection with a channel that confirms.
pub async fn connect(addr: SocketAddr, user: &str) -> Result<(Connection, Channel), lapin::Error> {
    let secret = SECRET.replace(' ', "%20");
    let url = format!("amqp://{user}:{secret}@{addr}/{VHOST}?heartbeat=10");
    let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let confirms = ConfirmSelectOptions::default();
    channel.confirm_select(confirms).await?;
    Ok((connection, channel))
}

fn configure(folder: &Path, net: u8) {
    std::fs::create_dir_all(folder).expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let cookie = write(".erlang.cookie", "callbridgefleet");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o400);
    std::fs::set_permissions(cookie, private).expect("private");
    let definitions = write("definitions.json", &definitions().to_string());
    write("env.conf", "");
    write("plugins", "[].\n");
    let mut text = format!(
        "listeners.tcp.1 = 0.0.0.0:5672\n\
         load_definitions = {}\n\
         cluster_partition_handling = pause_minority\n\
         cluster_formation.peer_discovery_backend = classic_config\n\
         cluster_formation.randomized_startup_delay_range.min = 0\n\
         cluster_formation.randomized_startup_delay_range.max = 1\n\
         log.console = true\n\
         log.console.level = warning\n\
         log.file = false\n\
         disk_free_limit.absolute = 30MB\n",
        definitions.display()
    );
    for node in 1..=NODES {
        text.push_str(&format!(
            "cluster_formation.classic_config.nodes.{node} = callbridge@10.213.{net}.{node}\n"
        ));
    }
    write("rabbitmq.conf", &text);
}

fn definitions() -> Value {
    let user = |name: &str, tags: &[&str]| {
        json!({
            "name": name, "password_hash": SECRET_HASH, "tags": tags,
            "hashing_algorithm": "rabbit_password_hashing_sha256"
        })
    };
    let right = |user: &str, configure: &str, write: &str, read: &str| {
        json!({
            "user": user, "vhost": VHOST, "configure": configure, "write": write, "read": read
        })
    };
    let own = "^(lease|calls).*";
    let written = "^(amq\\.default|(lease|calls).*)$";
    json!({
        "vhosts": [{"name": VHOST}],
        "users": [user(ADMINISTRATOR, &["administrator"]), user(COLLECTOR, &[]), user(SENDER, &[])],
        "permissions": [
            right(ADMINISTRATOR, ".*", ".*", ".*"),
            right(COLLECTOR, "^$", "^amq\\.default$", "^$"),
            right(SENDER, own, written, own),
        ],
    })
}
