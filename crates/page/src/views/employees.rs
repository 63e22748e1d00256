//! What employees did, today or in a week: answered, missed, waiting, called back.

use crate::answer::{self, Handled};
use crate::backend::{EmployeeTable, Span};
use crate::csv::CsvText;
use crate::page::Visit;
use crate::shell::PageShell;
use askama::Template;
use callbridge_spool::employee_work::EmployeeWork;

#[derive(Template)]
#[template(path = "employees.html")]
struct EmployeesSheet<'a> {
    c: &'a PageShell,
    rows: EmployeeTable,
    total: EmployeeWork,
    week: bool,
    /// The most inbound calls of one of them: the length of the longest bar.
    most: u64,
}

/// `GET /employees`
pub(crate) async fn table(mut visit: Visit<'_>) -> Handled {
    visit.look_around().await;
    let span = span(&visit);
    let rows = visit.page.backend.employees(span).await?;
    let sum = |figure: fn(&EmployeeWork) -> u64| rows.values().map(figure).sum();
    let total = EmployeeWork {
        answered: sum(|did| did.answered),
        missed: sum(|did| did.missed),
        outbound: sum(|did| did.outbound),
        talk_sec: sum(|did| did.talk_sec),
        ..EmployeeWork::default()
    };
    let most = rows.values().map(|did| did.answered + did.missed).max();
    let sheet = EmployeesSheet {
        c: &visit.shell,
        rows,
        total,
        week: span == Span::Week,
        most: most.unwrap_or(0).max(1),
    };
    answer::html(&sheet)
}

fn span(visit: &Visit<'_>) -> Span {
    match visit.asked.query.get("span") {
        Some("week") => Span::Week,
        _ => Span::Today,
    }
}

impl EmployeesSheet<'_> {
    /// Of a hundred.
    fn width(&self, calls: &u64) -> u64 {
        calls.saturating_mul(100) / self.most
    }
}

/// `GET /employees.csv`
pub(crate) async fn csv(visit: &Visit<'_>) -> Handled {
    let span = span(visit);
    let rows = visit.page.backend.employees(span).await?;
    let mut csv = CsvText::new(&[
        "extension",
        "employeeId",
        "answered",
        "missed",
        "outbound",
        "talkSec",
        "waitSec",
        "callBackSec",
    ]);
    let mean = |seconds: Option<f64>| seconds.map(|it| format!("{it:.1}")).unwrap_or_default();
    for (extension, did) in rows {
        csv.row([
            extension.unwrap_or_default(),
            did.employee_id.map(|id| id.to_string()).unwrap_or_default(),
            did.answered.to_string(),
            did.missed.to_string(),
            did.outbound.to_string(),
            did.talk_sec.to_string(),
            mean(did.mean_wait_sec()),
            mean(did.mean_call_back_sec()),
        ]);
    }
    let name = match span {
        Span::Today => "callbridge-employees-today.csv",
        Span::Week => "callbridge-employees-week.csv",
    };
    Ok(csv.download(name))
}
