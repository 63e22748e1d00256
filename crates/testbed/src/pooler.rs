//! A private PgBouncer in front of a PostgreSQL server, on its own port of loopback. It ends when
//! its value is dropped, and with the test's process. It's Debian's, unless `CALLBRIDGE_PGBOUNCER`
//! names another one, such as a newer version.

use crate::keeper::Keeper;
use crate::port::free_port;
use crate::postgres::{DATABASE, Postgres, ROLE, unprivileged};
use crate::wait::DEADLINE;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SCRIPT: &str = r#"
run() { exec $AS "${CALLBRIDGE_PGBOUNCER:-/usr/sbin/pgbouncer}" -q "$FOLDER/pgbouncer.ini"; }
processes() { echo "$main"; }
"#;

/// A running pooler.
pub struct Pooler {
    port: u16,
    folder: PathBuf,
    _keeper: Keeper,
}

impl Pooler {
    /// Starts it with this `pool_mode`: `session`, `transaction`, or `statement`.
    pub fn start(server: &Postgres, mode: &str) -> Self {
        // The keeper removes the folder.
        let folder = tempfile::tempdir().expect("a folder").keep();
        let port = free_port();
        let configuration = format!(
            "[databases]\n{DATABASE} = host=127.0.0.1 port={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}/users\npool_mode = {mode}\n",
            server.port(),
            folder.display()
        );
        std::fs::write(folder.join("pgbouncer.ini"), configuration).expect("written");
        std::fs::write(folder.join("users"), format!("\"{ROLE}\" \"\"\n")).expect("written");
        let user = unprivileged(&folder).join(" ");
        let keeper = Keeper::of_program(SCRIPT, &folder, [("AS", user)]);
        keeper.start_program();
        let pooler = Self {
            port,
            folder,
            _keeper: keeper,
        };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < DEADLINE, "{}", pooler.log());
            std::thread::park_timeout(Duration::from_millis(20));
        }
        pooler
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its output.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}
