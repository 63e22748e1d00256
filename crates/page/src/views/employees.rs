//! The Employees view, which shows each employee's answered, missed, and called-back calls for
//! today or for a week.

use crate::answer::{self, Handled};
use crate::backend::EmployeeTable;
use crate::csv::{self, Columns, cell};
use crate::{page::AuthenticatedRequest, shell::PageShell};
use askama::Template;
use callbridge_spool::employee_work::EmployeeWork;

#[derive(Template)]
#[template(path = "employees.html")]
struct EmployeesSheet<'a> {
    c: &'a PageShell,
    rows: EmployeeTable,
    total: EmployeeWork,
    week: bool,
    /// The highest number of inbound calls of any employee, which is shown by the longest bar.
    most: u64,
}

/// Serves `GET /employees`, which shows the table for today or for the week.
pub(crate) async fn table(mut visit: AuthenticatedRequest<'_>) -> Handled {
    let _ = visit.refresh_badges().await;
    let days = days(&visit);
    let rows = visit.page.backend.employees(days).await?;
    let mut total = EmployeeWork::default();
    for did in rows.values() {
        total.answered += did.answered;
        total.missed += did.missed;
        total.outbound += did.outbound;
        total.talk_sec += did.talk_sec;
    }
    let most = rows.values().map(|did| did.answered + did.missed).max();
    let sheet = EmployeesSheet {
        c: &visit.shell,
        rows,
        total,
        week: days > 1,
        most: most.unwrap_or(0).max(1),
    };
    answer::html(&sheet)
}

fn days(visit: &AuthenticatedRequest<'_>) -> i64 {
    let week = visit.asked.query.get("span") == Some("week");
    if week { 7 } else { 1 }
}

impl EmployeesSheet<'_> {
    /// Returns a bar's length as a percentage of the longest bar.
    fn width(&self, calls: &u64) -> u64 {
        calls.saturating_mul(100) / self.most
    }
}

/// The CSV file's columns, which are an extension and its employee's statistics.
const COLUMNS: &Columns<(Option<String>, EmployeeWork)> = &[
    ("extension", |(extension, _), _| cell(extension)),
    ("employeeId", |(_, did), _| cell(&did.employee_id)),
    ("answered", |(_, did), _| did.answered.to_string()),
    ("missed", |(_, did), _| did.missed.to_string()),
    ("outbound", |(_, did), _| did.outbound.to_string()),
    ("talkSec", |(_, did), _| did.talk_sec.to_string()),
    ("waitSec", |(_, did), _| tenths(did.mean_wait_sec())),
    ("callBackSec", |(_, did), _| {
        tenths(did.mean_call_back_sec())
    }),
];

fn tenths(seconds: Option<f64>) -> String {
    cell(&seconds.map(|seconds| format!("{seconds:.1}")))
}

/// Serves `GET /employees.csv`, which is the table as a file.
pub(crate) async fn csv(visit: &AuthenticatedRequest<'_>) -> Handled {
    let days = days(visit);
    let rows = visit.page.backend.employees(days).await?;
    let span = if days > 1 { "week" } else { "today" };
    let name = format!("callbridge-employees-{span}.csv");
    Ok(csv::download(COLUMNS, rows, &visit.shell, &name))
}
