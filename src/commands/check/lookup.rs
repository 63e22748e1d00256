//! The look-up at ring time: its address, its password, one question over each trunk, and what
//! keeps it from knowing a caller or an extension.

use super::finding::CheckFinding;
use crate::config::checked::{Config, LookupConfig};
use callbridge_lookup::http::PATH;
use callbridge_mapping::people::rule::LeadRule;
use callbridge_mapping::trunk::Trunk;
use callbridge_model::exit::Code;
use callbridge_model::secret::{ExposeSecret as _, Secret};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A PBX waits no longer.
const WITHIN: Duration = Duration::from_secs(1);
/// Of an answer.
const BYTES_MAX: u64 = 16 * 1024;
/// A number of any country's caller that is nobody's: of those for films.
const NOBODYS: &str = "%2B12025550123";

/// Everything about the look-up; nothing where none is asked for.
pub(crate) async fn look(config: &Config, daemon: bool) -> Vec<CheckFinding> {
    let Some(lookup) = &config.lookup else {
        return Vec::new();
    };
    let secret = lookup.secret.as_ref().map(|place| place.read()).transpose();
    let secret = match secret {
        Ok(secret) => secret,
        Err(error) => {
            let todo = "its first line is the password that the dialplan gives";
            let what = error.to_string();
            return vec![CheckFinding::fault(
                Code::Configuration,
                "lookup",
                what,
                todo,
            )];
        }
    };
    if !daemon {
        let mut found = vec![address(lookup, config).await];
        found.extend(config.rules.trunks.iter().map(|trunk| ready(trunk, None)));
        return found;
    }
    let mut found = Vec::new();
    for trunk in config.rules.trunks.iter() {
        match ask(lookup.listen, &trunk.name, secret.as_ref()).await {
            Ok((200, answer, took)) if answer["known"].is_string() => {
                found.push(ready(trunk, Some((&answer, took))));
            }
            answered => return vec![unanswered(lookup.listen, answered)],
        }
    }
    found
}

async fn address(lookup: &LookupConfig, config: &Config) -> CheckFinding {
    let at = lookup.listen;
    match config.held.listener(at).await {
        Ok(_) => CheckFinding::well("lookup", format!("{at} is free, and tried once it runs")),
        Err(error) => {
            let todo = "give --lookup an address of this machine that nobody else uses";
            CheckFinding::fault(Code::Usage, "lookup", format!("{at}: {error}"), todo)
        }
    }
}

/// What a trunk's callers get, and what they lack.
fn ready(trunk: &Trunk, answered: Option<(&Value, Duration)>) -> CheckFinding {
    let name = format!("lookup {}", trunk.name);
    let by_number = trunk.leads.iter().any(LeadRule::is_by_number);
    let what = match answered {
        Some((answer, took)) => {
            let why = answer["why"].as_str().unwrap_or("several");
            format!("answered {why} to a trial in {} ms", took.as_millis())
        }
        None => "callers of this trunk".to_owned(),
    };
    if !by_number {
        let todo = "give lead=directory: rules that read the dialplan know no caller before it";
        let what = format!("{what}; no rule finds a lead by number, so nobody is known");
        return CheckFinding::advice(name, what, todo);
    }
    if trunk.employees.is_none() {
        let todo = "give the trunk employees=EXTENSION:EMPLOYEE;… or a file";
        let what = format!("{what}; without employees= no extension is returned");
        return CheckFinding::advice(name, what, todo);
    }
    CheckFinding::well(name, what)
}

fn unanswered(at: SocketAddr, answered: io::Result<(u16, Value, Duration)>) -> CheckFinding {
    let fault =
        |what: String, todo: &str| CheckFinding::fault(Code::Unreachable, "lookup", what, todo);
    match answered {
        Ok((401, ..)) => {
            let todo = "the running service has another password: it reads its file each second";
            fault(format!("{at} refuses the password"), todo)
        }
        // Whoever may ask is another machine.
        Ok((403, ..)) => CheckFinding::well(
            "lookup",
            format!("{at} answers, and lets no dialplan of this machine ask (--lookup-allow)"),
        ),
        Ok((status, ..)) => {
            let todo = "another program answers there: give --lookup another port";
            fault(format!("{at} answers {status}, and not who calls"), todo)
        }
        Err(error) => {
            let todo = "the service runs: restart it, so that it has --lookup";
            fault(format!("{at}: {error}"), todo)
        }
    }
}

/// Where this machine reaches it.
fn reached(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, at.port())
}

/// Asks once, as a dialplan does: status, answer, time.
async fn ask(
    at: SocketAddr,
    trunk: &str,
    secret: Option<&Secret>,
) -> io::Result<(u16, Value, Duration)> {
    let trunk = utf8_percent_encode(trunk, NON_ALPHANUMERIC);
    let secret = secret.map(|it| format!("authorization: Bearer {}\r\n", it.expose_secret()));
    let request = format!(
        "GET {PATH}?phone={NOBODYS}&trunk={trunk} HTTP/1.1\r\nhost: {at}\r\n{}\r\n",
        secret.unwrap_or_default()
    );
    let begun = Instant::now();
    let asking = async {
        let mut line = TcpStream::connect(reached(at)).await?;
        line.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        line.take(BYTES_MAX).read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = timeout(WITHIN, asking).await.map_err(|_| {
        let words = "no answer within a second";
        io::Error::new(io::ErrorKind::TimedOut, words)
    })??;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|it| it.parse().ok());
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
    let answer = body.and_then(|body| serde_json::from_str(body).ok());
    Ok((
        status.unwrap_or(0),
        answer.unwrap_or_default(),
        begun.elapsed(),
    ))
}
