//! What employees did, today or in a week: answered, missed, waiting, called back.

use crate::answer::{self, Handled};
use crate::backend::{EmployeeFigures, Span};
use crate::csv::CsvText;
use crate::page::{Visit, refused};
use crate::shell::PageShell;
use askama::Template;

#[derive(Template)]
#[template(path = "employees.html")]
struct EmployeesSheet<'a> {
    c: &'a PageShell,
    rows: Vec<EmployeeFigures>,
    week: bool,
    /// The most inbound calls of one of them: the length of the longest bar.
    most: u64,
}

/// `GET /employees`
pub(crate) async fn table(mut visit: Visit<'_>) -> Handled {
    visit.look_around().await;
    let span = span(&visit);
    let rows = visit.page.backend.employees(span).await.map_err(refused)?;
    let most = rows.iter().map(|row| row.answered + row.missed).max();
    let sheet = EmployeesSheet {
        c: &visit.shell,
        rows,
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

    fn sum(&self, figure: fn(&EmployeeFigures) -> u64) -> u64 {
        self.rows.iter().map(figure).sum()
    }

    fn answered(&self) -> u64 {
        self.sum(|row| row.answered)
    }

    fn missed(&self) -> u64 {
        self.sum(|row| row.missed)
    }

    fn outbound(&self) -> u64 {
        self.sum(|row| row.outbound)
    }

    fn talked(&self) -> u64 {
        self.sum(|row| row.talk_sec)
    }
}

/// `GET /employees.csv`
pub(crate) async fn csv(visit: &Visit<'_>) -> Handled {
    let span = span(visit);
    let rows = visit.page.backend.employees(span).await.map_err(refused)?;
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
    for row in rows {
        csv.row([
            row.extension.unwrap_or_default(),
            row.employee_id.map(|id| id.to_string()).unwrap_or_default(),
            row.answered.to_string(),
            row.missed.to_string(),
            row.outbound.to_string(),
            row.talk_sec.to_string(),
            mean(row.wait_sec),
            mean(row.call_back_sec),
        ]);
    }
    let name = match span {
        Span::Today => "callbridge-employees-today.csv",
        Span::Week => "callbridge-employees-week.csv",
    };
    Ok(csv.download(name))
}
