//! Checks the lists of leads and employees, including each file and each bad row in it.

use super::{CheckFinding, advice, fault, well};
use crate::config::Config;
use callbridge_mapping::people::files::{Error, News, Watched};
use callbridge_mapping::{People, people::matching};
use callbridge_model::{Code, clock};
use std::collections::BTreeMap;

const MEND: &str = "correct the row; the valid rows are in use, and the file is read again \
                    automatically";

/// Checks every list used by the trunks. Also returns the employees in the lists that can be read.
pub(crate) fn check(config: &Config) -> (Vec<CheckFinding>, People) {
    let mut lists = Watched::for_trunks(config.rules.every_trunk());
    let news = lists.reload(clock::now().wall);
    let mut found: Vec<CheckFinding> = news.iter().flat_map(findings).collect();
    found.extend(doubtful_extensions(config, lists.people()));
    found.extend(trunks_without_employees(config));
    (found, lists.people().clone())
}

/// Reports trunks whose calls won't have an employee because the trunk has no employee list. Trunks
/// without an endpoint are skipped, because their messages may identify the employee.
fn trunks_without_employees(config: &Config) -> Option<CheckFinding> {
    // The calls go to a hub, which has the lists.
    if config.forward.is_some() {
        return None;
    }
    let names: Vec<&str> = config
        .rules
        .trunks
        .iter()
        .filter(|trunk| trunk.journal && trunk.employees.is_none() && !trunk.endpoint.is_empty())
        .map(|trunk| trunk.name.as_str())
        .collect();
    if names.is_empty() {
        return None;
    }
    let message = format!(
        "--employees is missing: no call over {} will have an employee",
        names.join(", ")
    );
    let fix = "list the extensions with the ids of the employees in the CRM: --employees \
         101:501;102:502, or a FILE";
    Some(advice("employees", message, fix))
}

/// Reports employees whose extension is probably wrong.
fn doubtful_extensions(config: &Config, people: &People) -> Vec<CheckFinding> {
    let mut doubtful = BTreeMap::new();
    for trunk in config.rules.trunks.iter() {
        let Some(employees) = people.employees_at(trunk) else {
            continue;
        };
        for (extension, _) in employees.iter() {
            if let Some(meant) = matching::probable_extension(extension.as_str()) {
                doubtful.insert(extension.as_str().to_owned(), meant);
            }
        }
    }
    let mut found = Vec::new();
    for (extension, meant) in doubtful {
        let message = "has letters among its digits, so it matches no extension";
        let fix = format!("did you mean {meant}? correct --employees");
        let name = format!("employee at {extension}");
        found.push(fault(Code::Input, name, message, fix));
    }
    found
}

fn findings(news: &News) -> Vec<CheckFinding> {
    let name = format!("list {}", news.file.display());
    let mut found = vec![match &news.result {
        Ok(change) => {
            let about = &change.about;
            let message = format!("{}: {}{}", news.kind.word(), about.rows, about.remarks());
            if about.is_empty() {
                advice(
                    &name,
                    message,
                    "the file has a header but no rows: add rows",
                )
            } else {
                well(&name, message)
            }
        }
        Err(error @ Error::Missing(_)) => {
            let fix = "put the file there, or correct its path";
            fault(Code::NoInput, &name, error, fix)
        }
        Err(
            error @ (Error::Unreadable(..)
            | Error::TooLarge(_)
            | Error::Header(..)
            | Error::Useless(..)),
        ) => {
            let fix = "correct the file; a running callbridge keeps the rows that it has read";
            fault(Code::Input, &name, error, fix)
        }
    }];
    let Some(about) = news.list_report() else {
        return found;
    };
    for row in &about.named {
        let message = match row.cell.as_str() {
            "" => row.message.clone(),
            cell => format!("`{cell}` {}", row.message),
        };
        let name = format!("{name} line {}", row.line);
        found.push(fault(Code::Input, name, message, MEND));
    }
    if about.unlisted_count() > 0 {
        let message = format!("more rows that cannot be used: {}", about.unlisted_count());
        found.push(fault(
            Code::Input,
            format!("{name} and so on"),
            message,
            MEND,
        ));
    }
    found
}
