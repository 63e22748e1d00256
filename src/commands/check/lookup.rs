//! Checks the lookup at ring time, including its address, its password, and one lookup per trunk.
//! Reports why it can't find some callers or extensions, such as employees who aren't on any list.

use super::place::unusable_address;
use super::{CheckFinding, advice, fault, well};
use crate::config::Config;
use callbridge_call::redact::Redactor;
use callbridge_lookup::{answer::extension, http::PATH};
use callbridge_mapping::{LeadRule, People, Trunk};
use callbridge_model::{Code, EmployeeId, ExposeSecret, Secret};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use std::{cmp::Reverse, io};
use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::TcpStream, time::timeout};

/// Timeout for a response. A PBX doesn't wait any longer.
const WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of bytes to read from a response.
const BYTES_MAX: u64 = 16 * 1024;
/// Maximum number of employees to list in a finding.
const NAMED_MAX: usize = 3;
/// A fictional number, including a country code, that doesn't belong to any customer.
const NOBODYS: &str = "%2B12025550123";

/// Returns all findings about the lookup, or none without `--lookup`. If no daemon is running
/// (`daemon` is `false`), no lookup is sent.
pub(crate) async fn check(config: &Config, people: &People, daemon: bool) -> Vec<CheckFinding> {
    let Some(lookup) = &config.lookup else {
        return Vec::new();
    };
    let secret = match lookup.secret.as_ref().map(|place| place.read()).transpose() {
        Ok(secret) => secret,
        Err(error) => {
            let fix = "the first line of the file must be the password that the dialplan sends";
            return vec![fault(Code::Configuration, "lookup", error, fix)];
        }
    };
    let desks = EmployeeExtensions::read(config, people);
    if !daemon {
        let unusable = unusable_address("lookup", lookup.listen, false).await;
        let message = format!(
            "{} is free; run check again while callbridge runs to test the lookup",
            lookup.listen
        );
        let mut found = vec![unusable.unwrap_or_else(|| well("lookup", message))];
        let trunks = config.rules.trunks.iter();
        found.extend(trunks.map(|trunk| caller_finding(trunk, &desks, None)));
        return found;
    }
    let mut found = Vec::new();
    for trunk in config.rules.trunks.iter() {
        match ask(lookup.listen, &trunk.name, secret.as_ref()).await {
            Ok((200, answer, took)) if answer["known"].is_string() => {
                found.push(caller_finding(trunk, &desks, Some((&answer, took))));
            }
            answered => return vec![failed_finding(lookup.listen, answered)],
        }
    }
    found
}

/// Employees by extension, and the employees responsible for leads.
struct EmployeeExtensions<'a> {
    people: &'a People,
    /// The number of leads for each responsible employee, or empty if there's no directory yet.
    responsible: Vec<(EmployeeId, u64)>,
}

impl<'a> EmployeeExtensions<'a> {
    fn read(config: &Config, people: &'a People) -> Self {
        let mut responsible = match config.state_place().lead_directory() {
            Ok(directory) => directory.responsible_employees().unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        responsible.sort_by_key(|(id, leads)| (Reverse(*leads), *id));
        Self {
            people,
            responsible,
        }
    }

    /// Returns a message that lists the responsible employees without an extension on this trunk,
    /// those with the most leads first, or `None` if all of them have one.
    fn without_extension(&self, trunk: &Trunk) -> Option<String> {
        let mut without = self.responsible.clone();
        without.retain(|(id, _)| extension(*id, self.people, trunk).is_none());
        if without.is_empty() {
            return None;
        }
        let named: Vec<String> = without
            .iter()
            .take(NAMED_MAX)
            .map(|(id, leads)| format!("{id} ({leads})"))
            .collect();
        let count = without.len();
        let more = if count > named.len() { ", …" } else { "" };
        Some(format!(
            "{count} of {} responsible employees have no extension here; by id, with their number \
             of leads: {}{more}",
            self.responsible.len(),
            named.join(", ")
        ))
    }
}

/// Reports which callers over this trunk will be found, and which parts of the result will be
/// missing. `answered` is the response to a test lookup and how long it took.
fn caller_finding(
    trunk: &Trunk,
    desks: &EmployeeExtensions<'_>,
    answered: Option<(&Value, Duration)>,
) -> CheckFinding {
    let name = format!("lookup {}", trunk.name);
    let message = match answered {
        Some((answer, took)) => {
            let why = answer["reason"].as_str().unwrap_or("several");
            format!("answered {why} to a test lookup in {} ms", took.as_millis())
        }
        None => "callers of this trunk".to_owned(),
    };
    let without = desks.without_extension(trunk);
    let (missing, fix) = if !trunk.leads.iter().any(LeadRule::is_by_number) {
        let fix = "give lead=directory: rules that read values of the dialplan cannot find a \
                   caller before it runs";
        ("no rule finds a lead by number, so no caller is known", fix)
    } else if trunk.employees.is_none() {
        let fix = "give the trunk employees=EXTENSION:EMPLOYEE;… or a file";
        ("without employees= no extension is returned", fix)
    } else if let Some(text) = &without {
        let fix = "add them to the trunk's employees=; without that, their customers go straight \
                   to the queue";
        (text.as_str(), fix)
    } else {
        return well(name, message);
    };
    advice(name, format!("{message}; {missing}"), fix)
}

/// A response's status, body, and how long it took.
type Answered = io::Result<(u16, Value, Duration)>;

fn failed_finding(at: SocketAddr, answered: Answered) -> CheckFinding {
    let (message, fix) = match answered {
        Ok((401, ..)) => (
            format!("{at} refuses the password"),
            "the running callbridge has another password: check its password file, which it reads \
             every second",
        ),
        // Only other machines are allowed to query.
        Ok((403, ..)) => {
            let message = "runs, but --lookup-allow refuses requests from this machine's dialplan";
            return well("lookup", format!("{at} {message}"));
        }
        Ok((status, ..)) => (
            format!("{at} answered {status} instead of the caller"),
            "another program answers there: give --lookup another port",
        ),
        Err(error) => (
            format!("{at}: {error}"),
            "the running callbridge was started without this --lookup: restart it",
        ),
    };
    fault(Code::Unreachable, "lookup", message, fix)
}

/// Returns the address by which this machine can reach the listener, which is loopback if the
/// listener's address is unspecified.
fn reachable_address(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

/// Sends one lookup the way a dialplan would.
async fn ask(at: SocketAddr, trunk: &str, secret: Option<&Secret>) -> Answered {
    let trunk = utf8_percent_encode(trunk, NON_ALPHANUMERIC);
    let header =
        secret.map(|secret| format!("authorization: Bearer {}\r\n", secret.expose_secret()));
    let request = format!(
        "GET {PATH}?phone={NOBODYS}&trunk={trunk} HTTP/1.1\r\nhost: {at}\r\n{}\r\n",
        header.unwrap_or_default()
    );
    let begun = Instant::now();
    let asking = async {
        let mut line = TcpStream::connect(reachable_address(at)).await?;
        line.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        line.take(BYTES_MAX).read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let Ok(answered) = timeout(WITHIN, asking).await else {
        let message = "no answer within a second";
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    };
    let password = secret.map(ExposeSecret::expose_secret);
    let text = Redactor::new(password).redact(&String::from_utf8_lossy(&answered?));
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
    let answer = body.and_then(|body| serde_json::from_str(body).ok());
    Ok((
        status.unwrap_or(0),
        answer.unwrap_or_default(),
        begun.elapsed(),
    ))
}
