//! The process's file descriptors. Each listener only uses some of them, so that enough are left
//! for sources, the CRM, and the spool.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit set by [`raise`], which is the same as in the shipped systemd unit.
const WANTED: u64 = 4096;
/// Divisor for the soft limit, of which a listener uses at most a quarter.
const PART: u64 = 4;

/// Raises the soft limit on open files, if the hard limit allows it. Shells set it to 1024, which
/// isn't enough in a flood of connections. If the limit can't be raised, each listener holds fewer
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

/// Returns how many connections a listener may hold if it asks for `wanted`, which is at most a
/// quarter of the soft limit, but at least one.
pub fn share(wanted: usize) -> usize {
    part(wanted, getrlimit(Resource::Nofile).current)
}

fn part(wanted: usize, soft: Option<u64>) -> usize {
    let most = soft.map_or(u64::MAX, |soft| soft / PART);
    // Allow at least one connection, so that a single client always gets a response.
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
