//! A private RabbitMQ node with its own folder, ports on loopback, and epmd. The system's broker is
//! not touched, and no process is left, however the test's process ends.
//!
//! Its keeper (`crate::keeper`) starts epmd and rabbitmq-server, and ends both.

mod configuration;
pub mod raw;

use self::configuration::{configure, definitions, deployed, post};
use crate::authority::Authority;
use crate::keeper::{Keeper, Reach};
use crate::port::free_port;
use crate::wait::DEADLINE;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions,
    QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The secret of every user of the node.
pub const SECRET: &str = "broker secret";
/// Salt 01020304, SHA-256 of salt and [`SECRET`]: RabbitMQ's `rabbit_password_hashing_sha256`.
pub const SECRET_HASH: &str = "AQIDBGObpnBu1ic8YwtmZ+9wVNlaSLjbEFSljfGqA65XU+Cd";
/// A user with all rights in the virtual host.
pub const ADMINISTRATOR: &str = "administrator";
/// A user who can read everything in the virtual host, and has no other right.
pub const READER: &str = "reader";
/// The virtual host of the deployed definitions.
const VHOST: &str = "pbx";
/// The environment variable with the place of the node that all tests of a run share.
pub const SHARED: &str = "CALLBRIDGE_TEST_BROKER";

const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// `setsid` makes the node a process group, which can be ended by its id.
const SCRIPT: &str = r#"
epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 >/dev/null 2>&1 </dev/null &
epmd=$!
run() { exec setsid "$PROGRAMS/rabbitmq-server"; }
processes() { echo "-$main"; }
end() { end_main; kill "$epmd"; }
"#;

/// A running node.
pub struct Broker {
    place: Place,
    vhost: String,
    /// `None` for a node that another process started.
    keeper: Option<Keeper>,
    /// Holds the authority's files until the node is dropped.
    _authority: Option<Authority>,
}

/// The place of a node.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Place {
    port: u16,
    tls_port: u16,
    epmd_port: u16,
    /// The port of its HTTP API, if it has one.
    http_port: Option<u16>,
    folder: PathBuf,
    ca_file: PathBuf,
}

/// One message, taken from a queue.
#[derive(Debug)]
pub struct Taken {
    pub body: Vec<u8>,
    pub properties: BasicProperties,
}

impl Taken {
    /// Returns a header's text, or an empty text without the header.
    pub fn header(&self, name: &str) -> String {
        let headers = self.properties.headers().as_ref();
        let value = headers.and_then(|headers| headers.inner().get(name));
        match value {
            Some(AMQPValue::LongString(text)) => text.to_string(),
            Some(other) => format!("{other:?}"),
            None => String::new(),
        }
    }
}

impl Broker {
    /// Returns the node that all tests of a run share (`crates/testbed/src/bin/services.rs`), with
    /// a virtual host for this process. Without such a node, this process starts one.
    pub fn shared() -> &'static Self {
        static NODE: OnceLock<Broker> = OnceLock::new();
        NODE.get_or_init(|| match std::env::var(SHARED) {
            Ok(place) => Self::attach(serde_json::from_str(&place).expect("a place")),
            Err(_) => Self::start_managed(),
        })
    }

    /// Uses a node that another process started, with a new virtual host.
    fn attach(place: Place) -> Self {
        // The id of an earlier process can come again in a run.
        let vhost = format!("test-{}", uuid::Uuid::new_v4().simple());
        let broker = Self {
            place,
            vhost,
            keeper: None,
            _authority: None,
        };
        let definitions = definitions(&broker.vhost).to_string();
        post(broker.http_port(), "/api/definitions", &definitions);
        broker
    }

    /// Returns the place of the node, for other processes.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the virtual host of this process.
    pub fn vhost(&self) -> &str {
        &self.vhost
    }

    /// Starts a separate node, for a test that stops or kills it.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts a node with an HTTP API.
    pub fn start_managed() -> Self {
        Self::start_with(Some(free_port()))
    }

    /// Returns the port of its HTTP API.
    pub fn http_port(&self) -> u16 {
        self.place.http_port.expect("a node with an HTTP API")
    }

    fn start_with(http_port: Option<u16>) -> Self {
        let server = format!("{PROGRAMS}/rabbitmq-server");
        assert!(
            std::path::Path::new(&server).exists(),
            "RabbitMQ is missing: apt-get install rabbitmq-server (tests/setup does it)"
        );
        let folder = tempfile::Builder::new()
            .prefix("callbridge-broker-")
            .tempdir();
        let folder = folder.expect("a folder").keep();
        let (port, tls_port, epmd_port) = (free_port(), free_port(), free_port());
        let authority = Authority::new();
        configure(&folder, port, tls_port, &authority);
        if let Some(port) = http_port {
            let path = folder.join("rabbitmq.conf");
            let before = std::fs::read_to_string(&path).expect("readable");
            let api = format!("management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n");
            std::fs::write(path, before + &api).expect("written");
            std::fs::write(folder.join("plugins"), "[rabbitmq_management].\n").expect("written");
        }
        let variables = [
            ("PROGRAMS", PROGRAMS.into()),
            ("HOME", folder.clone().into_os_string()),
            ("ERL_EPMD_PORT", epmd_port.to_string().into()),
            (
                "RABBITMQ_NODENAME",
                format!("callbridge-{port}@localhost").into(),
            ),
            ("RABBITMQ_DIST_PORT", free_port().to_string().into()),
            ("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf").into()),
            ("RABBITMQ_CONF_ENV_FILE", folder.join("env.conf").into()),
            (
                "RABBITMQ_ENABLED_PLUGINS_FILE",
                folder.join("plugins").into(),
            ),
            ("RABBITMQ_MNESIA_BASE", folder.join("data").into()),
            ("RABBITMQ_LOG_BASE", folder.join("logs").into()),
            ("RABBITMQ_PID_FILE", folder.join("pid").into()),
        ];
        let keeper = Keeper::of_program(SCRIPT, &folder, variables);
        let place = Place {
            port,
            tls_port,
            epmd_port,
            http_port,
            folder,
            ca_file: authority.ca_file(),
        };
        let broker = Self {
            place,
            vhost: VHOST.to_owned(),
            keeper: Some(keeper),
            _authority: Some(authority),
        };
        broker.start_again();
        broker
    }

    fn keeper(&self) -> &Keeper {
        self.keeper.as_ref().expect("only a test's own node ends")
    }

    /// Starts the node after [`stop`](Self::stop) or [`kill`](Self::kill), and returns when it
    /// answers. Durable queues and messages are still there. A start takes as long as the machine
    /// needs, and fails only if the node's process ends.
    pub fn start_again(&self) {
        let begun = Instant::now();
        // The ports of a killed node become free some time after the kill.
        for port in [self.place.port, self.place.tls_port] {
            while TcpListener::bind(("127.0.0.1", port)).is_err() {
                assert!(begun.elapsed() < DEADLINE, "port {port} is taken");
                std::thread::park_timeout(Duration::from_millis(50));
            }
        }
        self.keeper().start_program();
        while !self.answers() {
            if !self.keeper().is_alive() {
                let log = std::fs::read_to_string(self.place.folder.join("log"));
                panic!("the node did not start: {log:?}");
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }

    /// Returns `true` if the node sends its greeting on its port, which it does after all of it has
    /// started.
    fn answers(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.place.port)) else {
            return false;
        };
        let mut first = [0];
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .is_ok()
            && stream.write_all(b"AMQP\x00\x00\x09\x01").is_ok()
            && stream.read_exact(&mut first).is_ok()
            && first == [1]
    }

    /// Stops the node in an orderly way.
    pub fn stop(&self) {
        self.keeper().end(Reach::All, "TERM");
    }

    /// Kills the node with all its processes, after it has recorded its streams and quorum queues.
    /// It writes the names of their logs some seconds after it made them. A node that dies earlier
    /// has lost such a queue.
    pub fn kill(&self) {
        let begun = Instant::now();
        while let Some(log) = self.log_without_a_name() {
            assert!(begun.elapsed() < DEADLINE, "{log:?} has no name");
            std::thread::park_timeout(Duration::from_millis(50));
        }
        self.keeper().end(Reach::All, "KILL");
    }

    /// Finds a Raft log whose name is not in the registry beside it.
    fn log_without_a_name(&self) -> Option<PathBuf> {
        let node = format!("callbridge-{}@localhost", self.place.port);
        let data = self.place.folder.join("data").join(&node);
        let systems = ["coordination", "quorum"].map(|system| data.join(system).join(&node));
        let mut unnamed = systems.iter().flat_map(|system| {
            let names = std::fs::read(system.join("names.dets")).unwrap_or_default();
            let entries = std::fs::read_dir(system).into_iter().flatten().flatten();
            let logs = entries
                .map(|entry| entry.path())
                .filter(|path| path.is_dir());
            logs.filter(move |log| {
                let name = log.file_name().unwrap_or_default().as_encoded_bytes();
                !names.windows(name.len()).any(|part| part == name)
            })
        });
        unnamed.next()
    }

    /// Returns the port for AMQP without TLS.
    pub fn port(&self) -> u16 {
        self.place.port
    }

    /// Returns the port for AMQP over TLS, with a certificate for `localhost`.
    pub fn tls_port(&self) -> u16 {
        self.place.tls_port
    }

    /// Returns the path of the certificate of its authority.
    pub fn ca_file(&self) -> PathBuf {
        self.place.ca_file.clone()
    }

    /// Returns the `amqp://` URL of the virtual host, for one of its users.
    pub fn url(&self, user: &str) -> String {
        format!("amqp://{user}@127.0.0.1:{}/{}", self.place.port, self.vhost)
    }

    /// Imports an administrator's definitions of `deploy/rabbitmq`, with a secret for each user,
    /// with the node's own tool.
    pub fn import(&self, file: &str) {
        let mut all = deployed(file);
        for user in all["users"].as_array_mut().into_iter().flatten() {
            user["password_hash"] = SECRET_HASH.into();
        }
        let path = self.place.folder.join(file);
        std::fs::write(&path, all.to_string()).expect("written");
        self.ctl(&["import_definitions", &path.display().to_string()]);
        // The tool returns when the import has begun.
        let vhost = all["vhosts"][0]["name"].as_str().expect("a virtual host");
        let queues = all["queues"].as_array().expect("queues").len();
        let begun = Instant::now();
        let made = [
            "--quiet",
            "--no-table-headers",
            "list_queues",
            "-p",
            vhost,
            "name",
        ];
        while self.ctl(&made).lines().count() < queues {
            assert!(begun.elapsed() < DEADLINE, "{file} is not imported");
        }
    }

    /// Raises the node's memory alarm. It reads nothing from connections that publish until
    /// [`end_alarm`](Self::end_alarm).
    pub fn raise_alarm(&self) {
        self.ctl(&["set_vm_memory_high_watermark", "0"]);
        let begun = Instant::now();
        while self.ctl(&["eval", "rabbit_alarm:get_alarms()."]).trim() == "[]" {
            assert!(begun.elapsed() < DEADLINE, "no alarm");
        }
    }

    /// Ends the memory alarm.
    pub fn end_alarm(&self) {
        self.ctl(&["set_vm_memory_high_watermark", "0.6"]);
    }

    /// Returns the state of each connection to the node whose client is callbridge.
    pub fn connections_of_callbridge(&self) -> Vec<String> {
        let columns = ["state", "client_properties"];
        let quiet = ["--quiet", "--no-table-headers", "list_connections"];
        let listed = self.ctl(&[quiet.as_slice(), columns.as_slice()].concat());
        let ours = listed.lines().filter(|line| line.contains("callbridge"));
        let states = ours.filter_map(|line| line.split_whitespace().next());
        states.map(str::to_owned).collect()
    }

    /// Returns the output of the node's own tool.
    fn ctl(&self, arguments: &[&str]) -> String {
        let output = Command::new(format!("{PROGRAMS}/rabbitmqctl"))
            .args([
                "--node",
                &format!("callbridge-{}@localhost", self.place.port),
            ])
            .args(arguments)
            .env("HOME", &self.place.folder)
            .env("ERL_EPMD_PORT", self.place.epmd_port.to_string())
            .env("RABBITMQ_CONF_ENV_FILE", self.place.folder.join("env.conf"))
            .output();
        let output = output.expect("rabbitmqctl runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rabbitmqctl {arguments:?}: {told}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Opens a channel of the administrator, with confirms. It lives as long as its connection.
    pub async fn channel(&self) -> (Connection, Channel) {
        self.channel_of(ADMINISTRATOR).await
    }

    async fn channel_of(&self, user: &str) -> (Connection, Channel) {
        let secret = SECRET.replace(' ', "%20");
        let url = format!(
            "amqp://{user}:{secret}@127.0.0.1:{}/{}",
            self.place.port, self.vhost
        );
        let connection = Connection::connect(&url, ConnectionProperties::default()).await;
        let connection = connection.expect("a connection");
        let channel = connection.create_channel().await.expect("a channel");
        let confirms = channel.confirm_select(ConfirmSelectOptions::default());
        confirms.await.expect("confirms");
        (connection, channel)
    }

    /// Makes a durable queue.
    pub async fn declare(&self, queue: &str) {
        self.declare_with(queue, FieldTable::default()).await;
    }

    /// Makes a durable queue whose refused messages go to the second one.
    pub async fn declare_with_refused(&self, queue: &str, refused: &str) {
        self.declare(refused).await;
        let exchange = AMQPValue::LongString("".into());
        let key = AMQPValue::LongString(refused.into());
        let mut arguments = FieldTable::default();
        arguments.insert("x-dead-letter-exchange".into(), exchange);
        arguments.insert("x-dead-letter-routing-key".into(), key);
        self.declare_with(queue, arguments).await;
    }

    /// Makes a durable queue with these arguments.
    pub async fn declare_with(&self, queue: &str, arguments: FieldTable) {
        let (_connection, channel) = self.channel().await;
        let durable = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let made = channel.queue_declare(queue.into(), durable, arguments);
        made.await.expect("a queue");
    }

    /// Makes a durable queue that is certain to survive a [`kill`](Self::kill). RabbitMQ confirms a
    /// new queue some time before it is on the disk, and an orderly stop waits for that.
    pub async fn declare_for_good(self, queue: &str) -> Self {
        self.declare(queue).await;
        let again = tokio::task::spawn_blocking(|| {
            self.stop();
            self.start_again();
            self
        });
        again.await.expect("it starts again")
    }

    /// Creates an exchange that passes each message to this queue, whatever its routing key.
    pub async fn bind_fanout(&self, queue: &str, exchange: &str) {
        let (_connection, channel) = self.channel().await;
        let (kind, options) = (
            lapin::ExchangeKind::Fanout,
            ExchangeDeclareOptions::default(),
        );
        let made = channel.exchange_declare(exchange.into(), kind, options, FieldTable::default());
        made.await.expect("an exchange");
        let options = QueueBindOptions::default();
        let bound = channel.queue_bind(
            queue.into(),
            exchange.into(),
            "".into(),
            options,
            FieldTable::default(),
        );
        bound.await.expect("bound");
    }

    /// Deletes a queue, even if it has consumers.
    pub async fn delete(&self, queue: &str) {
        let (_connection, channel) = self.channel().await;
        let deleted = channel.queue_delete(queue.into(), QueueDeleteOptions::default());
        deleted.await.expect("deleted");
    }

    /// Publishes as mod_amqp does, as its user: declares its exchange, although it exists, and
    /// publishes with its routing keys. Returns when the broker has confirmed all messages.
    pub async fn publish_as_mod_amqp<T: AsRef<[u8]>>(&self, bodies: &[T]) {
        let (_connection, channel) = self.channel_of("freeswitch").await;
        let (exchange, kind) = ("TAP.Events", lapin::ExchangeKind::Topic);
        let durable = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        let declared =
            channel.exchange_declare(exchange.into(), kind, durable, FieldTable::default());
        declared.await.expect("its exchange");
        self.publish_to(&channel, exchange, "FreeSWITCH.pbx.CHANNEL..", bodies)
            .await;
    }

    /// Publishes persistent messages into a queue. Returns when the broker has confirmed all of
    /// them.
    pub async fn publish<T: AsRef<[u8]>>(&self, queue: &str, bodies: &[T]) {
        let (_connection, channel) = self.channel().await;
        self.publish_to(&channel, "", queue, bodies).await;
    }

    async fn publish_to<T: AsRef<[u8]>>(
        &self,
        channel: &Channel,
        exchange: &str,
        key: &str,
        bodies: &[T],
    ) {
        let mut confirms = Vec::new();
        for body in bodies {
            let options = BasicPublishOptions {
                mandatory: true,
                ..BasicPublishOptions::default()
            };
            let persistent = BasicProperties::default().with_delivery_mode(2);
            let sent = channel.basic_publish(
                exchange.into(),
                key.into(),
                options,
                body.as_ref(),
                persistent,
            );
            confirms.push(sent.await.expect("sent"));
        }
        for confirm in confirms {
            let confirmed = confirm.await.expect("a confirm");
            assert!(
                matches!(confirmed, Confirmation::Ack(None)),
                "{confirmed:?}"
            );
        }
    }

    /// Returns how many messages of a queue wait, without those under way to a consumer.
    pub async fn depth(&self, queue: &str) -> u32 {
        self.found(queue).await.message_count()
    }

    /// Returns the number of consumers of a queue.
    pub async fn consumers(&self, queue: &str) -> u32 {
        self.found(queue).await.consumer_count()
    }

    async fn found(&self, queue: &str) -> lapin::Queue {
        let (_connection, channel) = self.channel().await;
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let found = channel.queue_declare(queue.into(), passive, FieldTable::default());
        found.await.expect("the queue is there")
    }

    /// Takes all messages that wait in a queue.
    pub async fn take(&self, queue: &str) -> Vec<Taken> {
        let (_connection, channel) = self.channel().await;
        let mut taken = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = channel
            .basic_get(queue.into(), options)
            .await
            .expect("a get")
        {
            taken.push(Taken {
                body: message.delivery.data,
                properties: message.delivery.properties,
            });
        }
        taken
    }
}
