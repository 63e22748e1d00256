//! A private PostgreSQL server with Debian's programs, its own folder, and its own port on
//! loopback. Debian's clusters are not touched, and no process is left, however the test's process
//! ends (`crate::keeper`).

use crate::authority::Identity;
use crate::keeper::{Keeper, Reach};
use crate::port::free_port;
use crate::wait::DEADLINE;
use serde::{Deserialize, Serialize};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The environment variable with the place of the server that all tests of a run share.
pub const SHARED: &str = "CALLBRIDGE_TEST_POSTGRES";
/// The database of the tests.
pub const DATABASE: &str = "calls";
/// The role that callbridge connects as: it owns the database, and has no other right.
pub const ROLE: &str = "callbridge";

/// The password of [`ROLE`], which only a server with TLS asks for.
pub const SECRET: &str = "database secret";

/// A folder on a disk. `tests/run` keeps temporary folders in memory.
pub(crate) const DISK: &str = "/var/tmp";
/// Debian's folder with the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The keeper's script. Each backend is a process group, so the script finds backends by their
/// parent.
const SCRIPT: &str = r#"
run() { exec $AS "$PROGRAMS/postgres" -D "$FOLDER/data"; }
processes() { echo "$main" $(pgrep -P "$main"); }
"#;

/// Whether the server syncs its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing is synced, and the files are in memory.
    None,
    /// Every commit is synced to a disk.
    Synced,
}

/// A running server.
pub struct Postgres {
    place: Place,
    /// `None` for a server that another process started.
    keeper: Option<Keeper>,
}

/// The place of a server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Place {
    port: u16,
    folder: PathBuf,
    programs: PathBuf,
}

impl Postgres {
    /// Returns the server that all tests of a run share (`crates/testbed/src/bin/services.rs`).
    /// Without one, this process starts its own.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<Postgres> = OnceLock::new();
        SERVER.get_or_init(|| match std::env::var(SHARED) {
            Ok(place) => Self {
                place: serde_json::from_str(&place).expect("a place"),
                keeper: None,
            },
            Err(_) => Self::start(Durability::None, ""),
        })
    }

    /// Starts a server that asks callbridge for TLS and its password.
    pub fn start_with_tls(identity: &Identity) -> Self {
        let rules = format!(
            "host all postgres 127.0.0.1/32 trust\n\
             hostssl all {ROLE} 127.0.0.1/32 scram-sha-256\n"
        );
        let files = [
            ("server.crt", identity.certificate.as_str()),
            ("server.key", identity.key.as_str()),
            ("pg_hba.conf", rules.as_str()),
        ];
        Self::start_with(Durability::None, "ssl = on\n", &files)
    }

    /// Starts a server that asks callbridge for its password by this method, without TLS.
    pub fn start_with_login(method: &str) -> Self {
        let rules = format!(
            "host all postgres 127.0.0.1/32 trust\n\
             host all {ROLE} 127.0.0.1/32 {method}\n"
        );
        Self::start_with(Durability::None, "", &[("pg_hba.conf", rules.as_str())])
    }

    /// Starts a server with these lines in its configuration.
    pub fn start(durability: Durability, configuration: &str) -> Self {
        Self::start_with(durability, configuration, &[])
    }

    /// Starts a server in this folder, usually on its own disk. Every commit is synced.
    pub fn start_in(folder: &Path, configuration: &str) -> Self {
        Self::start_at(
            new_folder_in(folder),
            Durability::Synced,
            configuration,
            &[],
            &[],
        )
    }

    /// Starts a server whose processes load this library. The variable `TEST_CLOCK` names a file
    /// with this text.
    pub fn start_with_clock(library: &Path, clock: &str) -> Self {
        let (folder, user) = new_folder(Durability::None);
        let copy = folder.join("clock.so");
        std::fs::copy(library, &copy).expect("copied");
        let file = folder.join("clock");
        std::fs::write(&file, clock).expect("written");
        let variables = [("LD_PRELOAD", copy), ("TEST_CLOCK", file)];
        Self::start_at((folder, user), Durability::None, "", &[], &variables)
    }

    /// Starts a server with these files in the folder of its data.
    fn start_with(durability: Durability, configuration: &str, files: &[(&str, &str)]) -> Self {
        Self::start_at(
            new_folder(durability),
            durability,
            configuration,
            files,
            &[],
        )
    }

    fn start_at(
        (folder, user): (PathBuf, Vec<String>),
        durability: Durability,
        configuration: &str,
        files: &[(&str, &str)],
        variables: &[(&'static str, PathBuf)],
    ) -> Self {
        let programs = programs();
        initialize(&folder, &programs, &user);
        let port = free_port();
        configure(&folder, port, durability, configuration);
        for (name, text) in files {
            write_private(&folder.join("data").join(name), text);
        }
        let server = Self::keep(folder, programs, port, &user, variables);
        server.sql_in(
            "postgres",
            &format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{SECRET}'"),
        );
        server.sql_in(
            "postgres",
            &format!("CREATE DATABASE {DATABASE} OWNER {ROLE}"),
        );
        server
    }

    /// Starts a replica of this server, which follows it.
    pub fn start_replica(&self) -> Self {
        let (folder, user) = new_folder(Durability::None);
        let programs = programs();
        copy_primary(&folder, &programs, &user, self.port());
        let port = free_port();
        configure(&folder, port, Durability::None, "");
        Self::keep(folder, programs, port, &user, &[])
    }

    /// Starts the server of this folder.
    fn keep(
        folder: PathBuf,
        programs: PathBuf,
        port: u16,
        user: &[String],
        variables: &[(&'static str, PathBuf)],
    ) -> Self {
        let mut all = variables.to_vec();
        all.push(("PROGRAMS", programs.clone()));
        all.push(("AS", user.join(" ").into()));
        let keeper = Keeper::of_program(SCRIPT, &folder, all);
        let server = Self {
            place: Place {
                port,
                folder,
                programs,
            },
            keeper: Some(keeper),
        };
        server.start_again();
        server
    }

    /// Returns its place, for other processes.
    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn port(&self) -> u16 {
        self.place.port
    }

    /// Returns the path of a program of the server's version.
    pub fn program(&self, name: &str) -> PathBuf {
        self.place.programs.join(name)
    }

    /// Returns a schema name that no other test uses. A process id is not enough: a run has more
    /// processes than Linux has ids by default.
    pub fn new_schema() -> String {
        format!("test_{}", uuid::Uuid::new_v4().simple())
    }

    /// Returns the value of `--state` for a schema.
    pub fn url(&self, schema: &str) -> String {
        self.url_at(self.port(), schema)
    }

    /// Returns the value of `--state` for a schema over a proxy on this port.
    pub fn url_at(&self, port: u16, schema: &str) -> String {
        format!("postgres://{ROLE}@127.0.0.1:{port}/{DATABASE}?schema={schema}")
    }

    /// Runs SQL as the superuser, and returns the rows, one per line, columns separated by `|`.
    pub fn sql(&self, text: &str) -> String {
        self.sql_in(DATABASE, text)
    }

    fn sql_in(&self, database: &str, text: &str) -> String {
        self.psql(database, &["-c", text])
    }

    /// Copies a schema into a file.
    pub fn dump(&self, schema: &str, file: &str) {
        let mut dumping = self.command("pg_dump", DATABASE);
        let ended = dumping.args(["-n", schema, "-f", file]).status();
        assert!(ended.expect("pg_dump").success(), "{schema} is not copied");
    }

    /// Replaces a schema by its copy.
    pub fn restore(&self, schema: &str, file: &str) {
        self.sql(&format!("DROP SCHEMA {schema} CASCADE"));
        self.psql(DATABASE, &["-f", file]);
    }

    fn psql(&self, database: &str, arguments: &[&str]) -> String {
        let ended = self
            .command("psql", database)
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"])
            .args(arguments)
            .output()
            .expect("psql");
        let problem = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{arguments:?}: {problem}");
        String::from_utf8_lossy(&ended.stdout).trim_end().to_owned()
    }

    /// Makes the command of a program that connects as the superuser.
    fn command(&self, program: &str, database: &str) -> Command {
        let mut command = Command::new(self.program(program));
        let port = self.place.port.to_string();
        command.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
        command.args(["-d", database]);
        command
    }

    fn keeper(&self) -> &Keeper {
        self.keeper.as_ref().expect("only a test's own server ends")
    }

    /// Starts the server after [`stop`](Self::stop), [`stop_at_once`](Self::stop_at_once) or
    /// [`kill`](Self::kill). Returns when it answers.
    pub fn start_again(&self) {
        let begun = Instant::now();
        while TcpListener::bind(("127.0.0.1", self.place.port)).is_err() {
            assert!(
                begun.elapsed() < DEADLINE,
                "port {} is taken",
                self.place.port
            );
            std::thread::park_timeout(Duration::from_millis(20));
        }
        self.keeper().start_program();
        while !self.answers() {
            assert!(begun.elapsed() < DEADLINE, "{}", self.log());
            if !self.keeper().is_alive() {
                // After a kill, its shared memory is in use for a moment.
                assert!(self.log().ends_with("still in use)\n"), "{}", self.log());
                self.keeper().start_program();
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let port = self.place.port.to_string();
        let asked = Command::new(self.program("pg_isready"))
            .args(["-q", "-h", "127.0.0.1", "-p", &port])
            .status();
        asked.is_ok_and(|status| status.success())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.place.folder.join("log")).unwrap_or_default()
    }

    /// Stops the server in an orderly way. Sessions end.
    pub fn stop(&self) {
        self.keeper().end(Reach::Main, "INT");
    }

    /// Runs `pg_ctl stop -m immediate`.
    pub fn stop_at_once(&self) {
        self.keeper().end(Reach::Main, "QUIT");
    }

    /// Kills the server with all its processes.
    pub fn kill(&self) {
        self.keeper().end(Reach::All, "KILL");
    }

    /// Stops all its processes with SIGSTOP. TCP is still acknowledged.
    pub fn freeze(&self) {
        self.keeper().signal(Reach::All, "STOP");
    }

    /// Continues all its processes after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        self.keeper().signal(Reach::All, "CONT");
    }
}

/// Returns the folder of the newest installed version.
pub(crate) fn programs() -> PathBuf {
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for version in versions {
        let number = version.file_name().to_string_lossy().parse();
        let programs = version.path().join("bin");
        if programs.join("initdb").exists() {
            found.extend(number.map(|number| (number, programs)));
        }
    }
    let newest = found.into_iter().max();
    let newest = newest.expect("PostgreSQL is missing: `tests/setup services` installs it (root)");
    newest.1
}

/// Makes a folder for a server, and the beginning of a command as its user.
fn new_folder(durability: Durability) -> (PathBuf, Vec<String>) {
    match durability {
        Durability::None => new_folder_in(&in_memory()),
        Durability::Synced => new_folder_in(Path::new(DISK)),
    }
}

fn new_folder_in(folder: &Path) -> (PathBuf, Vec<String>) {
    let folder = tempfile::Builder::new()
        .prefix("callbridge-postgres-")
        .tempdir_in(folder);
    let folder = folder.expect("a folder").keep();
    let user = unprivileged(&folder);
    (folder, user)
}

fn in_memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        return memory.to_path_buf();
    }
    std::env::temp_dir()
}

/// Returns the beginning of a command as a user whom the server accepts, because it refuses root.
/// The folder becomes this user's.
pub(crate) fn unprivileged(folder: &Path) -> Vec<String> {
    let is_root = Command::new("id").arg("-u").output().expect("id").stdout == b"0\n";
    if !is_root {
        return Vec::new();
    }
    let given = Command::new("chown")
        .arg("postgres:postgres")
        .arg(folder)
        .status();
    assert!(given.expect("chown").success(), "there is no user postgres");
    let words = [
        "setpriv",
        "--reuid=postgres",
        "--regid=postgres",
        "--clear-groups",
    ];
    words.map(str::to_owned).to_vec()
}

/// Writes a file as the owner of the server's other files. The server refuses a key that others can
/// read.
fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    let data = path
        .parent()
        .and_then(|data| data.metadata().ok())
        .expect("a folder");
    std::os::unix::fs::chown(path, Some(data.uid()), Some(data.gid())).expect("its owner");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("private");
}

/// Copies the data of the server on this port.
fn copy_primary(folder: &Path, programs: &Path, user: &[String], port: u16) {
    let mut command = user.to_vec();
    command.push(programs.join("pg_basebackup").display().to_string());
    let made = Command::new(&command[0])
        .args(&command[1..])
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres"])
        .args(["--no-sync", "--checkpoint=fast", "--write-recovery-conf"])
        .arg("-D")
        .arg(folder.join("data"))
        .current_dir("/")
        .output()
        .expect("pg_basebackup");
    let problem = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "pg_basebackup: {problem}");
}

fn initialize(folder: &Path, programs: &Path, user: &[String]) {
    let mut command = user.to_vec();
    command.push(programs.join("initdb").display().to_string());
    // Under ICU, text sorts in another order than its bytes.
    let arguments = "--no-sync --auth=trust --username=postgres --encoding=UTF8 --locale=C.UTF-8 \
                     --locale-provider=icu --icu-locale=en";
    let made = Command::new(&command[0])
        .args(&command[1..])
        .args(arguments.split(' '))
        .arg("-D")
        .arg(folder.join("data"))
        .current_dir("/")
        .output()
        .expect("initdb");
    let problem = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "initdb: {problem}");
}

fn configure(folder: &Path, port: u16, durability: Durability, more: &str) {
    // A killed server would leave its segments of shared memory in /dev/shm. With mmap, they are
    // files in its folder, which is removed with it.
    let mut lines = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\n\
         max_connections = 200\nshared_buffers = 64MB\nlog_min_messages = warning\n\
         dynamic_shared_memory_type = mmap\n"
    );
    if durability == Durability::None {
        lines.push_str("fsync = off\nfull_page_writes = off\n");
    }
    lines.push_str(more);
    let path = folder.join("data/postgresql.conf");
    let before = std::fs::read_to_string(&path).expect("readable");
    std::fs::write(path, format!("{before}\n{lines}\n")).expect("written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_or_stopped_server_starts_again_with_its_rows() {
        let server = Postgres::start(Durability::Synced, "");
        server.sql("CREATE TABLE kept (x int); INSERT INTO kept VALUES (1)");
        for end in [Postgres::kill, Postgres::stop_at_once, Postgres::stop] {
            end(&server);
            assert!(!server.answers());
            server.start_again();
            assert_eq!(server.sql("SELECT count(*) FROM kept"), "1");
        }
        server.freeze();
        server.thaw();
        assert!(server.answers());
    }
}
