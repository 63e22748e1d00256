//! An Asterisk in a chroot, with its own configuration, ports, and folders.
//!
//! ```text
//! test ──pipe──▶ sh ──▶ chroot ROOT asterisk -f -C …
//! ```
//! The shell ends Asterisk and removes its folder when the pipe closes: at an orderly end, after a
//! panic, and after a `kill -9` of the test.

use crate::ari::Ari;
use crate::configuration;
use crate::manager::{Manager, is_event};
use crate::system::System;
use crate::wait;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The path of the CEL file in Asterisk's folder.
pub const CELS: &str = "log/cel-custom/Master.csv";
/// The path of the CDR file in Asterisk's folder.
pub const CDRS: &str = "log/cdr-csv/Master.csv";
/// The secret of every account.
pub const SECRET: &str = "secret of the live suite";

/// A shell script that runs commands from its input. After each command, it prints `done`.
const KEEPER: &str = r#"
pid=
end() { [ -z "$pid" ] || { kill -s "$1" "$pid"; wait "$pid"; pid=; } 2>/dev/null; }
while read -r word; do
    case $word in
    start) chroot "$ROOT" /usr/sbin/asterisk -f -C "$INSIDE/etc/asterisk.conf" \
        >>"$FOLDER/output" 2>&1 </dev/null & pid=$! ;;
    stop) end TERM ;;
    kill) end KILL ;;
    esac
    echo done
done
end KILL
rm -rf "$FOLDER"
"#;

/// The settings of an instance.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// `systemname` of `asterisk.conf`, or empty for none.
    pub system_name: String,
    /// Whether CEL is also sent over AMI.
    pub cel_over_ami: bool,
    /// Whether events are sent without their time.
    pub without_timestamps: bool,
    /// Values of the placeholders in the configuration, such as `@NAME@`.
    pub values: BTreeMap<&'static str, String>,
}

/// A running Asterisk.
pub struct Pbx {
    /// The installed Asterisk.
    pub system: System,
    folder: PathBuf,
    ami: u16,
    http: u16,
    words: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    keeper: Child,
}

/// Returns a free TCP port.
pub fn free_tcp() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Returns a free UDP port.
pub fn free_udp() -> Result<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Pbx {
    /// Writes the configuration and starts Asterisk. Returns when it accepts calls.
    pub async fn start(system: System, plan: Plan, sip: SocketAddr) -> Result<Self> {
        let root = &system.root;
        let folders = root.join("var/lib/callbridge-live");
        fs::create_dir_all(&folders)?;
        let folder = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(folders)?
            .keep();
        let (ami, http) = (free_tcp()?, free_tcp()?);
        let inside = Path::new("/").join(folder.strip_prefix(root)?);
        configuration::write(
            &system,
            plan,
            &folder,
            &inside,
            &[
                ("AMI", ami.to_string()),
                ("HTTP", http.to_string()),
                ("SIP", sip.to_string()),
            ],
        )?;
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER])
            .env("ROOT", root)
            .env("FOLDER", &folder)
            .env("INSIDE", &inside)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = keeper.stdout.take().context("piped")?;
        let mut pbx = Self {
            system,
            folder,
            ami,
            http,
            words: keeper.stdin.take().context("piped")?,
            answers: BufReader::new(answers).lines(),
            keeper,
        };
        pbx.boot().await?;
        Ok(pbx)
    }

    async fn send_to_shell(&mut self, word: &str) -> Result<()> {
        self.words.write_all(format!("{word}\n").as_bytes()).await?;
        let done = wait::finish_in_time(word, self.answers.next_line()).await??;
        ensure!(done.as_deref() == Some("done"), "the shell said {done:?}");
        Ok(())
    }

    /// Starts Asterisk, also after [`kill`](Self::kill) or [`stop`](Self::stop).
    pub async fn boot(&mut self) -> Result<()> {
        self.send_to_shell("start").await?;
        let started = wait::repeat_until("a booted Asterisk", async || {
            let Ok(manager) = self.manager().await else {
                return Ok(None);
            };
            let booted =
                manager.wait_for("FullyBooted", |message| is_event(message, "FullyBooted"));
            Ok(Some(booted.await?))
        });
        started.await.map(drop).with_context(|| self.log())
    }

    /// Stops Asterisk in order: Asterisk hangs up all calls and sends `Shutdown`.
    pub async fn stop(&mut self) -> Result<()> {
        self.send_to_shell("stop").await
    }

    /// Kills Asterisk, as a power failure would.
    pub async fn kill(&mut self) -> Result<()> {
        self.send_to_shell("kill").await
    }

    /// Returns a connection of an account with all rights.
    pub async fn manager(&self) -> Result<Manager> {
        Manager::login(self.ami, "scenario", SECRET).await
    }

    /// Returns the AMI port.
    pub fn ami(&self) -> u16 {
        self.ami
    }

    /// Returns the REST interface.
    pub fn ari(&self) -> Ari {
        Ari::new(self.http)
    }

    /// Stops Asterisk and removes its folder.
    pub async fn shut_down(mut self) -> Result<()> {
        self.stop().await?;
        drop(self.words);
        wait::finish_in_time("the end of the shell", self.keeper.wait()).await??;
        Ok(())
    }

    /// Returns the path of a file in Asterisk's folder, such as `log/cdr-csv/Master.csv`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns Asterisk's output and log.
    pub fn log(&self) -> String {
        let mut log = fs::read_to_string(self.file("output")).unwrap_or_default();
        log += &fs::read_to_string(self.file("log/messages")).unwrap_or_default();
        log
    }
}
