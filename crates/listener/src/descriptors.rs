//! File descriptors of the process. Each listener uses only a part of them, so that enough are left
//! for sources, the CRM, and the spool.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit that [`raise`] sets, the same as in the shipped systemd unit.
const WANTED: u64 = 4096;
/// Divisor of the soft limit. A listener uses at most a quarter.
const PART: u64 = 4;

/// Raises the soft limit of open files, if the hard limit allows it. Shells set 1024, which is too
/// little in a flood of connections. If the limit cannot be raised, each listener holds fewer
/// connections.
pub fn raise() {
    let now = getrlimit(Resource::Nofile);
    let hard = now.maximum.unwrap_or(u64::MAX);
    let soft = now.current.unwrap_or(u64::MAX);
    let raised = WANTED.min(hard);
    if soft < raised {
        let limit = Rlimit {
            current: Some(raised),
            maximum: now.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "cannot raise the limit of file descriptors");
        }
    }
}

/// Returns the number of connections that a listener can hold if it asks for `wanted`: at most a
/// quarter of the soft limit, and at least one.
pub fn share(wanted: usize) -> usize {
    part(wanted, getrlimit(Resource::Nofile).current)
}

fn part(wanted: usize, soft: Option<u64>) -> usize {
    let most = soft.map_or(u64::MAX, |soft| soft / PART);
    // At least one connection, so that a single client always gets an answer.
    wanted
        .min(usize::try_from(most).unwrap_or(usize::MAX))
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_uses_at_most_a_quarter_of_the_descriptors() {
        assert_eq!(part(1024, Some(4096)), 1024);
        assert_eq!(part(1024, Some(1024)), 256);
        assert_eq!(part(32, Some(1024)), 32);
        assert_eq!(part(1024, None), 1024);
        assert_eq!(part(32, Some(2)), 1);
    }
}
