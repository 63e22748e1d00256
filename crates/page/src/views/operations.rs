//! The PBX and Check views. PBX shows sources and their gaps, trunks and their calls, and channels
//! and extensions that don't match anything. Check shows the findings of `check`, including what to
//! do.

use crate::answer::{self, Handled};
use crate::{background::LastCheck, page::AuthenticatedRequest, shell::PageShell};
use askama::Template;
use callbridge_model::Status;
use callbridge_model::status::{Employees, TrunkStatus, Unlisted};

/// A trunk without any calls for longer than this is highlighted.
const SILENT_SECONDS: i64 = 24 * 3600;
/// Maximum number of channel names to show.
const CHANNELS_MAX: usize = 40;

#[derive(Template)]
#[template(path = "pbx.html")]
struct PbxSheet<'a> {
    c: &'a PageShell,
    status: &'a Status,
    trunks: &'a [TrunkStatus],
    /// Trunks without any calls for a day.
    silent: Vec<&'a TrunkStatus>,
    /// Channels that don't belong to any trunk.
    channels: Vec<&'a str>,
    /// Extensions that had calls but aren't in any employee list.
    extensions: Vec<&'a Unlisted>,
}

/// Serves `GET /pbx`, which shows sources, gaps, trunks, channels, and extensions.
pub(crate) async fn pbx(mut visit: AuthenticatedRequest<'_>) -> Handled {
    let status = visit.refresh_badges().await?;
    let trunks = visit.page.backend.trunks().await?;
    let now = visit.shell.now;
    let silent = trunks.iter().filter(|trunk| {
        let last_at = trunk.last_at;
        last_at.is_none_or(|at| now - at > SILENT_SECONDS)
    });
    let channels = status.unmatched.iter().map(|channel| &*channel.prefix);
    let employees = status.employees.iter();
    let sheet = PbxSheet {
        c: &visit.shell,
        status: &status,
        silent: silent.collect(),
        channels: channels.take(CHANNELS_MAX).collect(),
        extensions: employees.flat_map(|lists| &lists.unlisted).collect(),
        trunks: &trunks,
    };
    answer::html(&sheet)
}

impl PbxSheet<'_> {
    fn is_silent(&self, trunk: &TrunkStatus) -> bool {
        self.silent.iter().any(|silent| silent.name == trunk.name)
    }

    /// Returns the employee lists if calls had extensions but none of these is in the lists.
    fn list_matches_nothing(&self) -> Option<&Employees> {
        let employees = self.status.employees.as_ref()?;
        if employees.calls > 0 && employees.matched == 0 {
            Some(employees)
        } else {
            None
        }
    }

    /// Returns `true` if calls had extensions and all of these are in the employee lists.
    fn every_extension_matches(&self) -> bool {
        let employees = self.status.employees.as_ref();
        employees.is_some_and(|lists| lists.calls > 0 && lists.matched == lists.calls)
    }

    fn length(&self, from: &i64, to: &i64) -> String {
        let seconds = u64::try_from(to.saturating_sub(*from)).unwrap_or(0);
        self.c.span(seconds)
    }
}

#[derive(Template)]
#[template(path = "check.html")]
struct CheckSheet<'a> {
    c: &'a PageShell,
    last: LastCheck,
}

/// Serves `GET /check`, which shows the last run's findings, with failed checks first.
pub(crate) async fn check(mut visit: AuthenticatedRequest<'_>) -> Handled {
    let _ = visit.refresh_badges().await;
    let mut last = visit.page.checks.last();
    // Failed findings come first, followed by doubtful ones.
    (last.findings).sort_by_key(|finding| (finding.ok, finding.ok && finding.fix.is_empty()));
    let c = &visit.shell;
    answer::html(&CheckSheet { c, last })
}

impl CheckSheet<'_> {
    fn count(&self, result: &str) -> u64 {
        let found = self.last.findings.iter();
        found.filter(|finding| finding.result() == result).count() as u64
    }

    fn result_class(&self, result: &str) -> &'static str {
        match result {
            "ok" => "well",
            "failed" => "down",
            _ => "attention",
        }
    }
}
