//! Faults of the primary's node.

use callbridge_testbed::patroni::{Cluster, Node, Program};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Killed,
    ServerKilled,
    Frozen,
    ServerFrozen,
    Cut,
    Hidden,
    LeaderCut,
    LeaderHidden,
}

impl Fault {
    pub const ALL: [Self; 8] = [
        Self::Killed,
        Self::ServerKilled,
        Self::Frozen,
        Self::ServerFrozen,
        Self::Cut,
        Self::Hidden,
        Self::LeaderCut,
        Self::LeaderHidden,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::ServerKilled => "server-killed",
            Self::Frozen => "frozen",
            Self::ServerFrozen => "server-frozen",
            Self::Cut => "cut",
            Self::Hidden => "hidden",
            Self::LeaderCut => "leader-cut",
            Self::LeaderHidden => "leader-hidden",
        }
    }

    pub const fn story(self) -> &'static str {
        match self {
            Self::Killed => "etcd, Patroni, and PostgreSQL of the primary get kill -9",
            Self::ServerKilled => "PostgreSQL of the primary gets kill -9",
            Self::Frozen => "etcd, Patroni, and PostgreSQL of the primary are stopped (SIGSTOP)",
            Self::ServerFrozen => "PostgreSQL of the primary is stopped (SIGSTOP)",
            Self::Cut => "the primary's node is cut off",
            Self::Hidden => "the primary's node is cut off from the other nodes only",
            Self::LeaderCut => {
                "the primary's node is cut off together with the hub that leads, which still \
                 reaches the CRM"
            }
            Self::LeaderHidden => "the same from the other nodes only: collectors reach both hubs",
        }
    }

    /// Returns `true` if the leading hub runs on the primary's node, so the fault affects the hub
    /// too.
    pub const fn has_leader(self) -> bool {
        matches!(self, Self::LeaderCut | Self::LeaderHidden)
    }

    pub fn begin(self, cluster: &Cluster, node: Node) {
        match self {
            Self::Killed => cluster.kill(node, Program::All),
            Self::ServerKilled => cluster.kill(node, Program::Postgres),
            Self::Frozen => cluster.freeze(node, Program::All),
            Self::ServerFrozen => cluster.freeze(node, Program::Postgres),
            Self::Cut | Self::LeaderCut => cluster.cut(node),
            Self::Hidden | Self::LeaderHidden => cluster.hide(node),
        }
    }

    pub fn end(self, cluster: &Cluster, node: Node) {
        match self {
            Self::Killed => cluster.begin(node),
            // Patroni restarts PostgreSQL.
            Self::ServerKilled => {}
            Self::Frozen => cluster.thaw(node, Program::All),
            Self::ServerFrozen => cluster.thaw(node, Program::Postgres),
            Self::Cut | Self::LeaderCut => cluster.join(node),
            Self::Hidden | Self::LeaderHidden => cluster.show(node),
        }
    }
}
