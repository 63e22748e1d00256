//! A state's PostgreSQL server, including whether a process can lead on it, and what could be lost
//! if the server fails.

use super::{CheckFinding, advice, fault, well};
use callbridge_model::ExitCode as _;
use callbridge_spool::{Error, Grade, PostgresUrl, ServerFinding, ServerReport, inspect_server};

/// Tests the server. The report is `None` if it didn't respond or no process can lead on it.
pub(crate) fn check(url: &PostgresUrl) -> (Vec<CheckFinding>, Option<ServerReport>) {
    // This is a separate thread, because a task mustn't block on another runtime.
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| inspect_server(url));
        asking.join().unwrap_or(Err(Error::Closed))
    });
    match asked {
        Ok(report) => {
            let found = report.findings.iter().map(finding).collect();
            let usable = Some(report).filter(ServerReport::can_lead);
            (found, usable)
        }
        Err(error) => {
            let fix = "check the address, the database, the role, and secret-file= in --state";
            (vec![fault(error.exit_code(), "database", error, fix)], None)
        }
    }
}

fn finding(found: &ServerFinding) -> CheckFinding {
    let name = format!("database {}", found.part);
    match found.grade {
        Grade::Ok => well(name, &found.message),
        Grade::Unknown => advice(name, &found.message, &found.fix),
        Grade::Failed(code) => fault(code, name, &found.message, &found.fix),
    }
}
