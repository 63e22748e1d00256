//! The program's commands.
//!
//! | module | command |
//! |---|---|
//! | [`check`] | `check`: tests whether the PBX, the CRM, and this machine are ready for `run` |
//! | [`connect`] | `connect` and `disconnect`: tokens by consent |
//! | [`control`] | `status`, `calls`, `dead …`, `lead …`: asks the daemon, prints the response |
//! | [`demo`] | `demo`: plays recorded calls into the sandbox, and shows them |
//! | [`init`] | `init`: asks, detects, and writes a service's flags and secrets |
//! | [`state`] | `state export`, `state import`, `state move`: the whole state |
//! | [`explain`] | `explain`: explains a recording or a stored call step by step |
//!
//! [`dispatch`] runs the command that was read.

pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod connect;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod state;

use crate::commands::control as command;
use crate::config::Command;
use crate::terminal::has_color;
use crate::{Result, print};
use callbridge_admin::explain::story::Paint;
use callbridge_model::{Environment, forbid_dumps};
use std::{fs::DirBuilder, future::Future, io, os::unix::fs::DirBuilderExt as _, path::PathBuf};

/// Runs the command. `shutdown` resolves when the process is asked to stop.
pub async fn dispatch(
    command: Command,
    environment: &Environment,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    if command.holds_secrets() {
        forbid_dumps();
    }
    match command {
        Command::Run(config) => {
            callbridge_ops::log::set_up(config.log, environment);
            crate::daemon::run::run(*config, shutdown).await
        }
        Command::Demo(demo) => {
            callbridge_ops::log::set_up(demo.log, environment);
            demo::run(demo, shutdown).await
        }
        Command::Check(check) => {
            callbridge_ops::log::set_up(check.config.log, environment);
            crate::commands::check::run(&check).await
        }
        Command::Explain(explain) if explain.file.is_none() => {
            let color = has_color();
            explain::kept::run(&explain, Paint { color }).await
        }
        Command::Explain(explain) => {
            let mut out = io::BufWriter::new(io::stdout().lock());
            explain::run(&explain, environment, &mut out, &mut io::stderr().lock())
        }
        Command::Audit(audit) => audit::run(*audit, &mut io::stderr()).await,
        Command::Status(mode, at) => command::status::run(&at, mode, shutdown).await,
        Command::Ask { request, csv, at } => command::ask(request, csv, &at, shutdown).await,
        Command::PagePassword { name, role } => command::page::password(&name, role).await,
        Command::Connect(connect) => crate::commands::connect::run(*connect).await,
        Command::Disconnect { state, forget } => connect::disconnect(&state, forget).await,
        Command::Sandbox(options) => {
            callbridge_ops::log::set_up(Default::default(), environment);
            Ok(callbridge_sandbox::run(*options, shutdown).await?)
        }
        Command::Init(init) => {
            callbridge_ops::log::set_up(Default::default(), environment);
            crate::commands::init::run(*init, environment, shutdown).await
        }
        Command::State(state) => crate::commands::state::run(&state),
        Command::Print(text) => print(text),
    }
}

/// A temporary directory, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct ScratchFolder(pub PathBuf);

impl ScratchFolder {
    /// Creates the directory, accessible only by its owner.
    ///
    /// # Errors
    /// Returns an error if the directory can't be created or the path already exists.
    pub(crate) fn make(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "{} cannot be removed", self.0.display());
        }
    }
}
