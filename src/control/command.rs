//! `status`, `dead …` and `lead …`: asks the daemon, or the spool where no daemon runs, and
//! prints what it says.

use super::desk::Desk;
use super::patience::Patience;
use super::protocol::{Ask, Reply, Selection};
use super::socket::{self, Answer, Replies};
use crate::cli::command::{Asking, Dead, Explain};
use crate::cli::dispatch::print;
use crate::cli::exit::{Code, Failure};
use crate::clock;
use crate::dead_letter::text;
use crate::explain::kept::Kept;
use crate::explain::text::Paint;
use crate::journal::Rules;
use crate::ops::Status;
use crate::people::files::Watched;
use crate::spool::{self, Error, Handle};
use serde_json::Value;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::{Arc, RwLock};
use tokio::sync::mpsc;

/// Who answers.
enum Source {
    Daemon(Replies),
    Spool(mpsc::Receiver<Reply>, tokio::task::JoinHandle<()>),
}

impl Source {
    async fn next(&mut self) -> Result<Option<Reply>, Failure> {
        match self {
            Self::Daemon(replies) => replies.next().await.map_err(|error| {
                Failure::new(Code::Unreachable, format!("the daemon broke off: {error}"))
            }),
            Self::Spool(replies, _) => Ok(replies.recv().await),
        }
    }
}

/// The daemon of this state folder; else its spool, with these rules.
async fn find(state: &Path, ask: Ask, rules: Rules) -> Result<Source, Failure> {
    let patience = Patience::begin();
    let (handle, guard) = loop {
        let asked = socket::ask(state, &ask).await;
        if let Some(replies) = asked.map_err(|error| mute(state, &error))? {
            return Ok(Source::Daemon(replies));
        }
        let settings = spool::Settings {
            create: false,
            ..spool::Settings::default()
        };
        match spool::open(state, settings) {
            Ok(opened) => break opened,
            Err(Error::Locked { .. }) if patience.has_more().await => {}
            Err(Error::Missing { dir }) => return Err(nobody(&dir)),
            Err(error) => return Err(Failure::of(Code::of_number(error.exit_code()), error)),
        }
    };
    let desk = offline(handle, rules);
    let (to, replies) = mpsc::channel(64);
    let task = tokio::spawn(async move {
        desk.answer(ask, to).await;
        drop(desk);
        // Blocks until the spool's thread has ended, which is soon.
        let _ = tokio::task::spawn_blocking(move || guard.close()).await;
    });
    Ok(Source::Spool(replies, task))
}

/// There is a daemon, and it cannot be spoken to.
pub(super) fn mute(state: &Path, error: &std::io::Error) -> Failure {
    let words = format!("cannot speak to the daemon of {}: {error}", state.display());
    Failure::new(Code::Unreachable, words)
}

/// There is neither daemon nor state.
pub(super) fn nobody(state: &Path) -> Failure {
    let words = format!(
        "no daemon runs on {0} and there is no state in it: start `callbridge run --state {0}`, \
         or name its folder with --state",
        state.display()
    );
    Failure::new(Code::Unreachable, words)
}

/// A desk over the spool alone.
fn offline(spool: Handle, rules: Rules) -> Desk {
    let mut lists = Watched::new(&rules.trunks);
    for news in lists.reload(clock::now().wall) {
        if let Err(error) = news.result {
            eprintln!("callbridge: {error}");
        }
    }
    let books = spool.clone();
    Desk {
        spool,
        rules,
        people: Arc::new(RwLock::new(Arc::new(lists.people().clone()))),
        status: Box::new(move || {
            let spool = books.clone();
            Box::pin(async move {
                let books = spool.read(|store| Ok(store.books())).await?;
                let head = books.ready + books.sending + books.submitted;
                let mut status = Status {
                    books,
                    ..Status::default()
                };
                status.backlog.calls = head;
                status.token.state = "unknown".to_owned();
                status.pause = Some(crate::ops::status::Pause {
                    reason: "no daemon runs".to_owned(),
                    cure: "start `callbridge run`, or its systemd unit".to_owned(),
                });
                Ok(status)
            })
        }),
    }
}

/// Asks, hands each item to `each`, and returns how many there were.
async fn converse(
    state: &Path,
    ask: Ask,
    rules: Rules,
    mut each: impl FnMut(&Value) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut source = find(state, ask, rules).await?;
    let mut items = 0;
    let ended = loop {
        match source.next().await? {
            Some(Reply::Item(item)) => {
                items += 1;
                each(&item)?;
            }
            Some(Reply::Ready) => {}
            Some(Reply::End { .. }) => break Ok(items),
            Some(Reply::Error { code, words }) => {
                break Err(Failure::new(Code::of_number(code), words));
            }
            None => {
                let words = "the daemon ended before its answer; ask again";
                break Err(Failure::new(Code::Unreachable, words));
            }
        }
    };
    if let Source::Spool(_, task) = source {
        let _ = task.await;
    }
    ended
}

pub(super) fn line(text: &str) -> Result<(), Failure> {
    print(format!("{text}\n").as_bytes())
}

/// `status`
///
/// # Errors
/// 69 without daemon and state.
pub async fn status(at: &Asking) -> Result<(), Failure> {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let show = |item: &Value| {
        if at.json {
            return line(&item.to_string());
        }
        match serde_json::from_value::<Status>(item.clone()) {
            Ok(status) => print(status.to_text(colour).as_bytes()),
            Err(error) => Err(Failure::new(
                Code::Unreachable,
                format!("the daemon is of another version: {error}"),
            )),
        }
    };
    converse(&at.state, Ask::Status, Rules::default(), show).await?;
    Ok(())
}

/// `dead …`. `shutdown` ends `dead watch`.
///
/// # Errors
/// 65 when a letter was refused or is not there, 69 without daemon and state.
pub async fn dead(
    what: Dead,
    at: &Asking,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let state = &at.state;
    match what {
        Dead::List(which) => list(which, at).await,
        Dead::Show(which) => {
            let width = width();
            let show = |item: &Value| match at.json {
                true => line(&item.to_string()),
                false => line(&text::show(item, width)),
            };
            let ask = Ask::Letters { which, whole: true };
            converse(state, ask, Rules::default(), show).await.map(drop)
        }
        Dead::Retry {
            which,
            lead,
            employee,
            dry_run,
        } => {
            let ask = Ask::Retry {
                which,
                lead,
                employee,
                dry_run,
            };
            change(ask, at).await
        }
        Dead::Discard(which) => change(Ask::Discard { which }, at).await,
        Dead::Export { which, csv } => export(which, csv, state).await,
        Dead::Watch => tokio::select! {
            ended = super::watch::watch(at, width()) => ended,
            () = shutdown => Ok(()),
        },
    }
}

async fn list(which: Selection, at: &Asking) -> Result<(), Failure> {
    let width = width();
    let mut first = true;
    let show = |item: &Value| {
        if at.json {
            return line(&item.to_string());
        }
        if std::mem::take(&mut first) {
            line(&text::list_head(width))?;
        }
        line(&text::list_line(item, width))
    };
    let ask = Ask::Letters {
        which,
        whole: false,
    };
    let found = converse(&at.state, ask, Rules::default(), show).await?;
    if found == 0 && !at.json {
        line("no dead letters")?;
    }
    Ok(())
}

/// Commands that change letters: what became of each, and 65 if one was refused.
async fn change(ask: Ask, at: &Asking) -> Result<(), Failure> {
    let mut refused = 0;
    let show = |item: &Value| {
        let result = item
            .get("result")
            .and_then(Value::as_str)
            .unwrap_or_default();
        refused += u64::from(result == "refused");
        if at.json {
            return line(&item.to_string());
        }
        let id = item.get("id").map(Value::to_string).unwrap_or_default();
        let lead = match item.get("leadId").and_then(Value::as_i64) {
            Some(lead) => format!(", lead {lead}"),
            None => String::new(),
        };
        let why = item.get("why").and_then(Value::as_str).unwrap_or_default();
        let why = if why.is_empty() {
            String::new()
        } else {
            format!(": {why}")
        };
        line(&format!("{id:>6}  {}{lead}{why}", result.replace('_', " ")))
    };
    let all = converse(&at.state, ask, Rules::default(), show).await?;
    if refused > 0 {
        let words = format!("{refused} of {all} letters were refused, for the reasons above");
        return Err(Failure::new(Code::Input, words));
    }
    if all == 0 && !at.json {
        line("no dead letters")?;
    }
    Ok(())
}

async fn export(which: Selection, csv: bool, state: &Path) -> Result<(), Failure> {
    let ask = Ask::Letters { which, whole: true };
    if !csv {
        let show = |item: &Value| line(&item.to_string());
        return converse(state, ask, Rules::default(), show).await.map(drop);
    }
    print(&csv_line(text::CSV_COLUMNS)?)?;
    let show = |item: &Value| print(&csv_line(text::csv_row(item))?);
    converse(state, ask, Rules::default(), show).await.map(drop)
}

fn csv_line<T: AsRef<[u8]>>(row: impl IntoIterator<Item = T>) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer
        .write_record(row)
        .map_err(|error| Failure::of(Code::Failed, error))?;
    writer
        .into_inner()
        .map_err(|error| Failure::new(Code::Failed, error.to_string()))
}

/// `lead missing`
///
/// # Errors
/// 69 without daemon and state.
pub async fn lead_missing(csv: bool, at: &Asking) -> Result<(), Failure> {
    const COLUMNS: [&str; 4] = ["phone", "calls", "lastCallAt", "trunk"];
    if csv {
        print(&csv_line(COLUMNS)?)?;
    }
    let show = |item: &Value| {
        if at.json {
            return line(&item.to_string());
        }
        let field = |name: &str| match item.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let at = field("lastCallAt").parse().ok();
        let at = at.and_then(|at| jiff::Timestamp::from_second(at).ok());
        let at = at.map_or_else(String::new, |at| at.to_string());
        let row = [field("phone"), field("calls"), at, field("trunk")];
        if csv {
            return print(&csv_line(row)?);
        }
        let calls = if row[1] == "1" { "call, " } else { "calls," };
        line(&format!(
            "{:<16}  {:>4} {calls} last {}  {}",
            row[0], row[1], row[2], row[3]
        ))
    };
    let found = converse(&at.state, Ask::LeadMissing, Rules::default(), show).await?;
    if found == 0 && !csv && !at.json {
        line("every number that called has a lead")?;
    }
    Ok(())
}

/// `lead check PHONE`: the daemon's lists, or those that the flags name.
///
/// # Errors
/// 69 without daemon, state and trunks.
pub async fn lead_check(
    phone: &str,
    json: bool,
    state: &Path,
    rules: Rules,
) -> Result<(), Failure> {
    let show = |item: &Value| {
        if json {
            return line(&item.to_string());
        }
        let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        let lead = match item.get("leadId").and_then(Value::as_i64) {
            Some(lead) => format!("lead {lead}"),
            None => text("result").replace('_', " "),
        };
        line(&format!(
            "{}: {} {lead}: {}",
            text("trunk"),
            text("phone"),
            text("why")
        ))
    };
    let ask = Ask::LeadCheck {
        phone: phone.to_owned(),
    };
    let found = converse(state, ask, rules, show).await?;
    if found == 0 {
        let words = "no trunk is known here: no daemon runs, so give the --trunk flags of `run`";
        return Err(Failure::new(Code::Usage, words));
    }
    Ok(())
}

/// `explain --call ID` without a file: the call as it was put down.
///
/// # Errors
/// 69 without daemon and state, 65 when no call has the id.
pub async fn kept_call(explain: &Explain, paint: Paint) -> Result<(), Failure> {
    let config = &explain.config;
    let state = config
        .state
        .as_deref()
        .ok_or_else(|| Failure::new(Code::Usage, "--state is missing: where is the call kept?"))?;
    let id = explain.call.clone().unwrap_or_default();
    let show = |item: &Value| {
        let kept = Kept::read(item.clone()).map_err(|error| {
            let words = format!("the daemon is of another version: {error}");
            Failure::new(Code::Unreachable, words)
        })?;
        print(kept.show(explain.json, &config.rules, paint).as_bytes())
    };
    converse(state, Ask::Call { id }, config.rules.clone(), show).await?;
    Ok(())
}

/// The terminal's width; without one, lines are not cut.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|width| *width > 0)
        .unwrap_or(usize::MAX)
}
