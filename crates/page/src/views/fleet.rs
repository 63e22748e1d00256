//! Fleet: collectors and senders around the stream, who of them is silent, and what waits for each
//! token.

use crate::answer::{self, Handled};
use crate::page::AuthenticatedRequest;
use crate::shell::PageShell;
use askama::Template;
use callbridge_model::status::fleet::{FleetRole, FleetStatus, FleetTable, Speech};
use callbridge_model::status::{FleetMember, LastWord};

/// Rows that are shown: who has trouble stands first.
const ROWS_MAX: usize = 200;

#[derive(Template)]
#[template(path = "fleet.html")]
struct FleetSheet<'a> {
    c: &'a PageShell,
    /// The fleet's status as this process sees it; `None` without a stream.
    fleet: Option<&'a FleetStatus>,
    /// Everybody; `None` of a collector, which reads no words, and before they are read.
    table: Option<&'a FleetTable>,
    rows: Vec<&'a FleetMember>,
    more: u64,
}

/// Serves `GET /fleet`: the members, those with trouble first.
pub(crate) async fn show(mut visit: AuthenticatedRequest<'_>) -> Handled {
    visit.refresh_badges().await;
    let status = visit.page.backend.status().await?;
    let fleet = status.fleet.as_ref();
    let table = fleet.and_then(|it| it.table.as_deref());
    let mut rows: Vec<&FleetMember> = table.into_iter().flat_map(|it| &it.members).collect();
    rows.sort_by_key(|it| it.trouble.is_none());
    let more = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let sheet = FleetSheet {
        c: &visit.shell,
        fleet,
        table,
        rows,
        more: u64::try_from(more).unwrap_or(u64::MAX),
    };
    answer::html(&sheet)
}

impl FleetSheet<'_> {
    fn pill(&self, member: &FleetMember) -> &'static str {
        match (member.speech, &member.trouble) {
            (Speech::Silent, _) => "down",
            (Speech::Stopped, _) | (Speech::Speaking, Some(_)) => "attention",
            (Speech::Speaking, None) => "well",
        }
    }

    /// Calls that have left it.
    fn out(&self, word: &LastWord) -> u64 {
        match word.role {
            FleetRole::Collector => word.books.forwarded,
            FleetRole::Sender => word.books.journaled,
        }
    }

    fn up(&self, word: &LastWord) -> String {
        let up = word.sources.iter().filter(|it| it.state.is_up()).count();
        format!("{up}/{}", word.sources.len())
    }
}
