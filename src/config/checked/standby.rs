//! `--standby`: several machines, one of which sends.

use super::{Config, Crm, SourceConfig, TokenFrom};
use crate::config::Faults;
use crate::config::options::Flags;
use callbridge_source::url::{QueueSource, Transport};

/// The name of the lease's queue, and whether all is there that a standby needs.
pub(super) fn check(
    flags: &Flags,
    sources: &[SourceConfig],
    crm: Option<&Crm>,
    faults: &mut Faults,
) -> Option<String> {
    let name = faults.read(
        "--standby",
        &flags.crm.standby,
        callbridge_fleet::lease::queue::name,
    )?;
    if flags.crm.forward.is_some() {
        faults.add(
            "--standby",
            "is a sender's: a collector forwards the calls of its own PBX; remove it",
        );
    }
    if flags.operation.dry_run {
        faults.add(
            "--standby",
            "cannot be used with --dry-run: it would hold the lease and send nothing; remove one \
             of them",
        );
    }
    if !sources.iter().any(|source| stream(source).is_some()) {
        faults.add(
            "--standby",
            "needs calls that each machine can read: --source \
             'amqp://USER@HOST/VHOST?stream=S&format=call'",
        );
    }
    if matches!(
        crm.and_then(|it| it.token.as_ref()),
        Some(TokenFrom::Connection)
    ) {
        faults.add(
            "--standby",
            "the state folder holds a connection by consent, whose refresh tokens belong to one \
             machine alone: end it with `callbridge disconnect`, and give --token-file or \
             --token-command on each",
        );
    }
    Some(name)
}

fn stream(source: &SourceConfig) -> Option<&QueueSource> {
    match &source.url.transport {
        Transport::Amqp(queue) if source.url.is_stream_of_calls() => Some(queue),
        _ => None,
    }
}

impl Config {
    /// The name of the lease, and the stream whose broker keeps it.
    pub(crate) fn lease(&self) -> Option<(&str, &SourceConfig, &QueueSource)> {
        let name = self.standby.as_deref()?;
        let mut all = self.sources.iter();
        all.find_map(|source| stream(source).map(|queue| (name, source, queue)))
    }
}
