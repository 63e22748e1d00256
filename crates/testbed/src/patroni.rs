//! A Patroni cluster of three nodes with the files of `deploy/hub/patroni`. It needs root. Each
//! node has a network namespace with etcd, Patroni, and PostgreSQL. A bridge connects them and this
//! machine.
//!
//! ```text
//!  db1 (.11)   db2 (.12)   db3 (.13)     etcd, Patroni, PostgreSQL, and programs of a test
//!     └───────────┼───────────┘
//!              bridge ──── this machine (.254)
//! ```
//! No process, namespace, or folder is left, however the test's process ends (`crate::keeper`).

use crate::keeper::Keeper;
use crate::postgres::{ROLE, SECRET, programs};
use crate::wait::{DEADLINE, until_within};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// Time for a cluster to begin, or a node to come back: Patroni copies the data of the primary.
const START: Duration = Duration::from_secs(240);

/// The user of a node's programs. PostgreSQL refuses root.
const USER: [&str; 5] = [
    "setpriv",
    "--reset-env",
    "--reuid=postgres",
    "--regid=postgres",
    "--clear-groups",
];

/// The name of this machine's certificate.
const OUTSIDE: &str = "outside";

/// The files that are written for each node.
const FILES: [&str; 3] = ["config.yml", "patroni.env", "etcd.env"];

/// The keeper's script. A line is `ready`, `start NODE`, `signal SIGNAL NODE [PROGRAM]`, `link
/// up|down NODE`, `hide NODE`, or `show NODE`. `NET` begins the names of the bridge, its ports, and
/// the namespaces.
const SCRIPT: &str = r#"
nodes='db1 db2 db3'
address() { echo "$PREFIX.1${1#db}"; }
# A link-layer address that no machine has.
nowhere=02:00:00:00:00:99

ip link add "$NET" type bridge
ip addr add "$PREFIX.254/24" dev "$NET"
ip link set "$NET" up
for node in $nodes; do
    ip netns add "$NET-$node"
    ip link add "$NET-$node" type veth peer name eth0 netns "$NET-$node"
    ip link set "$NET-$node" master "$NET" up
    ip -n "$NET-$node" link set lo up
    ip -n "$NET-$node" addr add "$(address "$node")/24" dev eth0
    ip -n "$NET-$node" link set eth0 up
done >"$FOLDER/network.log" 2>&1

# What systemd does with an EnvironmentFile.
with_environment='set -a; . "$0"; exec "$@"'
launch() {
    node=$1 name=$2; shift 2
    cd "$FOLDER/$node"
    exec ip netns exec "$NET-$node" $AS sh -c "$with_environment" "$FOLDER/$node/$name.env" "$@" \
        >>"$FOLDER/$node/$name.log" 2>&1 </dev/null
}
# The processes of a node, or of one of its programs. What a test started there is another user's.
processes() {
    for id in $(ip netns pids "$NET-$1"); do
        [ "$(stat -c %U "/proc/$id" 2>/dev/null)" = postgres ] || continue
        [ -z "$2" ] || grep -q "^Name:.*$2" "/proc/$id/status" 2>/dev/null || continue
        echo "$id"
    done
}
# Processes begin others while they are found.
signal_all() {
    signal=$1; shift
    for again in 1 2 3; do
        for id in $(processes "$@"); do kill -s "$signal" "$id" 2>/dev/null; done
    done
    true
}
act() {
    case $1 in
    ready) ip netns exec "$NET-db3" true ;;
    start)
        launch "$2" etcd etcd &
        launch "$2" patroni patroni "$FOLDER/$2/config.yml" &
        ;;
    signal) signal_all "$2" "$3" "$4" ;;
    link) ip link set "$NET-$3" "$2" ;;
    hide) for peer in $nodes; do
            [ "$peer" = "$2" ] || ip -n "$NET-$2" neigh replace "$(address "$peer")" \
                lladdr $nowhere nud permanent dev eth0 || return 1
        done ;;
    show) ip -n "$NET-$2" neigh flush dev eth0 nud permanent ;;
    *) false ;;
    esac
}
end() {
    for node in $nodes; do
        for again in 1 2 3 4 5; do
            ids=$(ip netns pids "$NET-$node")
            [ -n "$ids" ] || break
            kill -s KILL $ids
            sleep 0.1
        done
        ip netns del "$NET-$node"
        ip link del "$NET-$node"
    done
    ip link del "$NET"
}
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(u8);

impl Node {
    /// All nodes.
    pub const ALL: [Self; 3] = [Self(1), Self(2), Self(3)];

    fn last_byte(self) -> u8 {
        10 + self.0
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "db{}", self.0)
    }
}

/// The programs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// etcd, Patroni, and PostgreSQL.
    All,
    Postgres,
}

impl Program {
    const fn word(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Postgres => "postgres",
        }
    }
}

/// A running cluster.
pub struct Cluster {
    keeper: Keeper,
    /// Beginning of the names of the bridge and the namespaces.
    net: String,
    /// The third byte of all addresses.
    network: u8,
    folder: PathBuf,
}

/// The files of a certificate and its key.
pub struct IdentityFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// An answer of Patroni to `GET /cluster`.
#[derive(Debug, Deserialize)]
struct Members {
    members: Vec<Member>,
}

#[derive(Debug, Deserialize)]
struct Member {
    name: String,
    role: String,
    state: String,
}

impl Member {
    fn is_working(&self) -> bool {
        matches!(&*self.state, "running" | "streaming")
    }
}

impl Cluster {
    /// Starts a cluster with callbridge's role. Returns when a standby is synchronous.
    pub async fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("callbridge-patroni-")
            .tempdir_in(crate::postgres::DISK);
        let folder = folder.expect("a folder").keep();
        let network = free_network();
        let net = format!("cb{network}");
        let cluster = Self {
            keeper: Keeper::start(
                SCRIPT,
                &folder,
                [
                    ("NET", net.as_str()),
                    ("PREFIX", &format!("198.18.{network}")),
                    ("AS", &USER.join(" ")),
                ],
            ),
            net,
            network,
            folder,
        };
        let is_ready = cluster.keeper.ask("ready");
        let log = std::fs::read_to_string(cluster.folder.join("network.log"));
        assert!(is_ready, "no network: {log:?}");
        cluster.write_files();
        for node in Node::ALL {
            cluster.begin(node);
        }
        cluster.is_whole().await;
        cluster.make_role().await;
        cluster
    }

    /// Returns the address of a node.
    pub fn address(&self, node: Node) -> IpAddr {
        Ipv4Addr::new(198, 18, self.network, node.last_byte()).into()
    }

    /// Returns the address of this machine in the network of the nodes.
    pub fn outside(&self) -> IpAddr {
        Ipv4Addr::new(198, 18, self.network, 254).into()
    }

    /// Returns the path of the authority's certificate.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Returns the value of `--state`. The password is [`SECRET`], in a file.
    pub fn url(&self, secret_file: &str) -> String {
        let addresses = Node::ALL.map(|node| self.address(node).to_string());
        let ca_file = self.ca_file();
        format!(
            "postgres://{ROLE}@{}/{ROLE}?secret-file={secret_file}&ca-file={}",
            addresses.join(","),
            ca_file.display()
        )
    }

    /// Returns the network namespace of a node.
    pub fn namespace(&self, node: Node) -> PathBuf {
        Path::new("/run/netns").join(format!("{}-{node}", self.net))
    }

    /// Returns the words before a command that runs on a node, as this user.
    pub fn enter(&self, node: Node) -> Vec<String> {
        let namespace = format!("{}-{node}", self.net);
        let words = ["ip", "netns", "exec", &namespace];
        words.map(str::to_owned).to_vec()
    }

    /// Issues a certificate of the authority for a node, or for this machine.
    pub fn identity(&self, node: Option<Node>) -> IdentityFiles {
        let folder = match node {
            Some(node) => self.folder.join(node.to_string()).join("tls"),
            None => self.folder.join(OUTSIDE),
        };
        IdentityFiles {
            certificate: folder.join("node.crt"),
            key: folder.join("node.key"),
        }
    }

    /// Writes a file that only this user can read, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("private");
        path.display().to_string()
    }

    /// Starts the programs of a node.
    pub fn begin(&self, node: Node) {
        self.keeper.tell(format_args!("start {node}"));
    }

    /// Kills programs of a node.
    pub fn kill(&self, node: Node, program: Program) {
        self.signal("KILL", node, program);
    }

    /// Stops programs of a node with SIGSTOP. TCP is still acknowledged.
    pub fn freeze(&self, node: Node, program: Program) {
        self.signal("STOP", node, program);
    }

    /// Continues programs of a node after [`freeze`](Self::freeze).
    pub fn thaw(&self, node: Node, program: Program) {
        self.signal("CONT", node, program);
    }

    fn signal(&self, signal: &str, node: Node, program: Program) {
        let program = program.word();
        self.keeper
            .tell(format_args!("signal {signal} {node} {program}"));
    }

    /// Cuts a node off from the other nodes and from this machine, with all that runs there.
    pub fn cut(&self, node: Node) {
        self.keeper.tell(format_args!("link down {node}"));
    }

    /// Ends [`cut`](Self::cut).
    pub fn join(&self, node: Node) {
        self.keeper.tell(format_args!("link up {node}"));
    }

    /// Cuts a node off from the other nodes. This machine and the node still reach each other.
    pub fn hide(&self, node: Node) {
        self.keeper.tell(format_args!("hide {node}"));
    }

    /// Ends [`hide`](Self::hide).
    pub fn show(&self, node: Node) {
        self.keeper.tell(format_args!("show {node}"));
    }

    /// Returns the primary, as the first node that answers reports it. A node that was cut off or
    /// frozen reports a change late.
    pub fn primary(&self) -> Option<Node> {
        let mut members = Node::ALL.into_iter().filter_map(|node| self.members(node));
        with_role(&members.next()?, "leader")
    }

    /// Waits until all nodes work and agree on the primary and on its synchronous standby, and the
    /// standbys have all that the primary has. Before that, no standby can replace it.
    pub async fn is_whole(&self) {
        let begun = Instant::now();
        until_within(START + DEADLINE, "a whole cluster", async || {
            assert!(begun.elapsed() < START, "{}", self.logs());
            let Some(primary) = self.agreed_primary() else {
                return false;
            };
            let standbys = "SELECT count(*) FILTER (WHERE sync_state = 'sync'), count(*)
                 FROM pg_stat_replication
                 WHERE state = 'streaming' AND replay_lsn = pg_current_wal_lsn()";
            self.sql(primary, "postgres", standbys).as_deref() == Ok("1|2")
        })
        .await;
    }

    /// Returns the primary, if all nodes answer and work, and report the same one with a
    /// synchronous standby.
    fn agreed_primary(&self) -> Option<Node> {
        let mut leaders = BTreeSet::new();
        for node in Node::ALL {
            let members = self.members(node)?;
            if members.len() != Node::ALL.len() || !members.iter().all(Member::is_working) {
                return None;
            }
            with_role(&members, "sync_standby")?;
            leaders.insert(with_role(&members, "leader")?);
        }
        let leader = leaders.pop_first();
        if leaders.is_empty() { leader } else { None }
    }

    /// Returns all nodes, as one node reports them.
    fn members(&self, node: Node) -> Option<Vec<Member>> {
        let output = Command::new("curl")
            .args(["-s", "--max-time", "2", "--cacert"])
            .arg(self.ca_file())
            .arg(format!("https://{}:8008/cluster", self.address(node)))
            .output()
            .expect("curl");
        let all: Members = serde_json::from_slice(&output.stdout).ok()?;
        Some(all.members)
    }

    /// Runs SQL on the primary as callbridge's role, in a new session over TLS, and returns rows as
    /// [`sql`](Self::sql) does.
    ///
    /// # Errors
    /// If there is no primary, or the SQL fails.
    pub fn session(&self, text: &str) -> Result<String, String> {
        let addresses = Node::ALL.map(|node| self.address(node).to_string());
        let place = format!(
            "host={} user={ROLE} dbname={ROLE} sslmode=verify-full sslrootcert={} \
             target_session_attrs=read-write connect_timeout=2",
            addresses.join(","),
            self.ca_file().display()
        );
        // A commit waits until a standby has it. A timeout of the server would confirm it.
        let mut psql = Command::new("timeout");
        psql.arg("5")
            .arg(programs().join("psql"))
            .args(["-d", &place])
            .env("PGPASSWORD", SECRET);
        script(psql, text)
    }

    /// Runs SQL on a node as the superuser, and returns the rows, one per line, columns separated
    /// by `|`. The error is psql's.
    ///
    /// # Errors
    /// If the node has no running server, or the SQL fails.
    pub fn sql(&self, node: Node, database: &str, text: &str) -> Result<String, String> {
        let mut psql = Command::new(USER[0]);
        psql.args(&USER[1..])
            .arg(programs().join("psql"))
            .arg("-h")
            .arg(self.folder.join(node.to_string()).join("run"))
            .args(["-U", "postgres", "-d", database])
            .current_dir("/");
        script(psql, text)
    }

    /// Returns the end of each log.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for node in Node::ALL {
            for name in ["etcd.log", "patroni.log"] {
                let path = self.folder.join(node.to_string()).join(name);
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = &lines[lines.len().saturating_sub(100)..];
                all.push_str(&format!("== {node} {name}\n{}\n", last.join("\n")));
            }
        }
        all
    }

    fn write_files(&self) {
        let mut certificates = Command::new(deployed("patroni/certificates"));
        for node in Node::ALL {
            certificates.arg(format!("{node}={}", self.address(node)));
        }
        certificates.arg(format!("{OUTSIDE}={}", self.outside()));
        let made = certificates.current_dir(&self.folder).output();
        let made = made.expect("the script of the certificates");
        let problem = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{problem}");
        // The keeper made the folder for one user only.
        let folder = self.folder.display().to_string();
        run(&["chmod", "755", &folder]);
        run(&["chmod", "644", &format!("{folder}/ca.crt")]);
        for node in Node::ALL {
            self.write_files_of(node);
        }
    }

    fn write_files_of(&self, node: Node) {
        let folder = self.folder.join(node.to_string());
        let own = folder.display().to_string();
        let name = node.to_string();
        let address = self.address(node).to_string();
        let network = format!("198.18.{}.", self.network);
        let bin = programs().display().to_string();
        let tls = format!("{own}/tls");
        let substitutes = [
            ("@NODE@", name.as_str()),
            ("@ADDRESS@", &address),
            ("10.0.0.", &network),
            ("/etc/patroni/tls", &tls),
            ("/etc/etcd/tls", &tls),
            ("/var/lib/postgresql/15/callbridge", &format!("{own}/data")),
            (
                "/var/lib/postgresql/callbridge.pgpass",
                &format!("{own}/pgpass"),
            ),
            ("/var/run/postgresql", &format!("{own}/run")),
            ("/var/lib/etcd/callbridge", &format!("{own}/etcd")),
            ("/usr/lib/postgresql/15/bin", &bin),
        ];
        let mut unused: Vec<&str> = substitutes.iter().map(|(from, _)| *from).collect();
        for name in FILES {
            let text = std::fs::read_to_string(deployed(&format!("patroni/{name}")));
            let mut text = text.expect("a file of deploy/hub/patroni");
            for (from, to) in &substitutes {
                unused.retain(|unused| unused != from || !text.contains(from));
                text = text.replace(from, to);
            }
            if name == "patroni.env" {
                for user in ["REPLICATION", "REWIND"] {
                    text.push_str(&format!("PATRONI_{user}_PASSWORD={user}-secret\n"));
                }
            }
            std::fs::write(folder.join(name), text).expect("written");
        }
        assert!(unused.is_empty(), "no file has {unused:?}");
        for name in ["tls", "run"] {
            std::fs::create_dir(folder.join(name)).expect("made");
        }
        for name in ["ca.crt", "node.crt", "node.key"] {
            let moved = std::fs::rename(folder.join(name), folder.join("tls").join(name));
            moved.expect("renamed");
        }
        run(&["chown", "-R", "postgres:postgres", &own]);
    }

    async fn make_role(&self) {
        let primary = self.primary().expect("a primary");
        let script = std::fs::read_to_string(deployed("role.sql")).expect("a file of deploy/hub");
        let password = format!("ALTER ROLE {ROLE} PASSWORD '{SECRET}'");
        for text in [script, password] {
            let made = self.sql(primary, "postgres", &text);
            made.unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// Runs a script with psql.
fn script(mut psql: Command, text: &str) -> Result<String, String> {
    let mut psql = psql
        .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("psql");
    let mut script = psql.stdin.take().expect("piped");
    // If psql has ended, its error message has the reason.
    script.write_all(text.as_bytes()).ok();
    drop(script);
    let output = psql.wait_with_output().expect("psql");
    if output.status.success() {
        let rows = String::from_utf8_lossy(&output.stdout);
        return Ok(rows.trim_end().to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn with_role(members: &[Member], role: &str) -> Option<Node> {
    let member = members.iter().find(|member| member.role == role)?;
    Node::ALL
        .into_iter()
        .find(|node| node.to_string() == member.name)
}

/// Returns the path of a file of `deploy/hub`.
fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/hub")
        .join(name)
}

fn run(words: &[&str]) {
    let status = Command::new(words[0]).args(&words[1..]).status();
    assert!(status.is_ok_and(|status| status.success()), "{words:?}");
}

/// Finds a network of 198.18.0.0/15, which is for tests, that this machine does not use.
fn free_network() -> u8 {
    let links = Command::new("ip").args(["-o", "addr"]).output();
    let links = links.expect("iproute2 is installed").stdout;
    let links = String::from_utf8_lossy(&links).into_owned();
    let first = std::process::id() % 200;
    for step in 0..200 {
        let network = u8::try_from((first + step) % 200).expect("less than 200");
        if !links.contains(&format!("198.18.{network}.")) {
            return network;
        }
    }
    panic!("every network of 198.18.0.0/16 is used");
}
