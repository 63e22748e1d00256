//! Sends one request to the daemon, or to the spool if no daemon is running, and reads the replies.

use crate::config::Asking;
use crate::daemon::{leadership, open};
use crate::{Failure, OrFail as _, Result, print};
use callbridge_admin::socket::{AnswerRequest, Replies};
use callbridge_admin::state_access::{Access, ask_or_open, open_here};
use callbridge_admin::{CommandHandler, ControlReply, ControlRequest, socket, user};
use callbridge_mapping::{Rules, people::files::Watched};
use callbridge_model::status::{Pause, Role, findings};
use callbridge_model::{Code, Zone, clock, safe_cell, safe_json, safe_lines};
use callbridge_ops::{kept::stored_status, log::say};
use callbridge_spool::{self as spool, Guard, Handle, StatePlace, folder};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, sync::RwLock, time::Duration};
use tokio::{sync::mpsc, task::JoinHandle};

/// Interval between checks of whether a daemon is running again.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The replies to a request and, if no daemon is running, the task in this process that sends them.
type Conversation = (Replies, Option<JoinHandle<()>>);

/// Sends the request to this state's daemon. If no daemon is running, opens the spool and handles
/// the request in this process.
async fn find(at: &Asking, ask: ControlRequest) -> Result<Conversation> {
    let state = &at.state;
    let access = ask_or_open(
        async || match reach(at, &ask).await? {
            None if is_missing(state) => Err(no_daemon_or_state(state)),
            replies => Ok(replies),
        },
        || open_existing(state, ask.only_reads()),
    )
    .await?;
    let (handle, guard) = match access {
        Access::Daemon(replies) => return Ok((replies, None)),
        Access::Spool(handle, guard) => (handle, guard),
    };
    let handler = open_handler(handle, at.rules.clone(), state).await?;
    let (to, replies) = mpsc::channel(64);
    let task = tokio::spawn(async move {
        handler.answer(ask, &user::own_name(), to).await;
        drop(handler);
        // This blocks until the spool's thread has ended, which won't take long.
        let _ = tokio::task::spawn_blocking(move || guard.close()).await;
    });
    Ok((Replies::from_handler(replies), Some(task)))
}

/// Opens the state in this process, or fails if it doesn't exist. `only_reads` means that the
/// request doesn't change anything in the state.
fn open_existing(state: &StatePlace, only_reads: bool) -> Result<(Handle, Guard), spool::Error> {
    let settings = spool::Settings {
        create: false,
        ..spool::Settings::default()
    };
    open_here(state, settings, only_reads)
}

/// Returns `true` if the directory doesn't contain a state. A database is checked when it's opened.
fn is_missing(state: &StatePlace) -> bool {
    let Some(folder) = state.folder() else {
        return false;
    };
    folder.join(folder::FILE).symlink_metadata().is_err()
}

/// Returns the failure if there's neither a daemon nor a state.
fn no_daemon_or_state(state: &StatePlace) -> Failure {
    let message = format!(
        "no daemon runs on {state} and there is no state in it: start `callbridge run --state \
         {state}`, or give the daemon's state with --state"
    );
    Failure::new(Code::Unreachable, message)
}

/// Returns a handler that serves requests from the spool, without a daemon.
async fn open_handler(spool: Handle, rules: Rules, state: &StatePlace) -> Result<CommandHandler> {
    let zone = spool.meta(open::ZONE_KEY).await?;
    let mut lists = Watched::for_trunks(rules.every_trunk());
    match state.lead_directory() {
        Ok(directory) => lists = lists.with_directory(Arc::new(directory)),
        Err(error) => say(&error.to_string()),
    }
    for news in lists.reload(clock::now().wall) {
        match news.result.map(|change| change.about.bad) {
            Err(error) => say(&error.to_string()),
            Ok(0) => {}
            Ok(bad) => say(&format!(
                "{}: rows that cannot be used: {bad}; `callbridge check` lists them",
                news.file.display()
            )),
        }
    }
    let spool_of_status = spool.clone();
    let folder = state.flag();
    Ok(CommandHandler {
        asking: None,
        page: None,
        branches: None,
        files_again: BTreeMap::new(),
        zone,
        field_list_wrapper: None,
        spool,
        rules,
        people: Arc::new(RwLock::new(Arc::new(lists.people().clone()))),
        status: Box::new(move || {
            let spool = spool_of_status.clone();
            let folder = folder.clone();
            Box::pin(async move {
                let at = clock::now().wall.floor_seconds().get();
                let read = spool.read(move |store| {
                    let leadership = leadership::read(store, Role::Command)?;
                    Ok((
                        stored_status(store, at, &folder, crate::RELEASE)?,
                        leadership,
                    ))
                });
                let (mut status, leadership) = read.await?;
                let books = &status.books;
                status.backlog.calls = books.ready + books.sending + books.submitted;
                status.token.state = "unknown".to_owned();
                status.leadership = leadership;
                let leads = status
                    .leadership
                    .as_ref()
                    .is_some_and(|them| them.leader.is_some());
                if !leads {
                    let fix = "start `callbridge run`, or its systemd unit";
                    status.pause = Some(Pause::new(findings::NO_DAEMON, fix));
                }
                Ok(status.judged())
            })
        }),
    })
}

/// Returns the time zone in which to show times. That's the flag's time zone, or else the PBX's
/// according to the daemon, or else this machine's.
pub(crate) fn zone_of(at: &Asking, of_daemon: Option<&Zone>) -> Zone {
    match (&at.zone, of_daemon) {
        (None, Some(of_daemon)) => of_daemon.clone(),
        (flag, _) => Zone::from_pbx(flag.as_ref()),
    }
}

/// Sends a request, and passes each item in the response to `each`, along with the time zone for
/// its times. Returns the number of items.
pub(crate) async fn converse(
    at: &Asking,
    ask: ControlRequest,
    each: impl FnMut(&Value, &Zone) -> Result<()>,
) -> Result<u64> {
    listen(find(at, ask).await?, at, each).await
}

/// Sends a request, and returns the items in the response as `T`.
pub(crate) async fn all_items<T: DeserializeOwned>(
    at: &Asking,
    ask: ControlRequest,
) -> Result<Vec<T>> {
    let mut all = Vec::new();
    converse(at, ask, |item, _| {
        all.push(parse_item(item)?);
        Ok(())
    })
    .await?;
    Ok(all)
}

/// Sends a request, and prints each item as JSON or passes it to `each`. If there are no items,
/// prints the message `none`.
pub(super) async fn list_items(
    at: &Asking,
    ask: ControlRequest,
    none: Option<&str>,
    mut each: impl FnMut(&Value, &Zone) -> Result<()>,
) -> Result<()> {
    let found = converse(at, ask, |item, zone| {
        if at.json {
            json_line(item)
        } else {
            each(item, zone)
        }
    })
    .await?;
    if found == 0
        && !at.json
        && let Some(message) = none
    {
        line(message)?;
    }
    Ok(())
}

/// Sends a request, and prints each item as JSON or as the line returned by `text`. If there are no
/// items, prints the message `none`.
pub(super) async fn print_items(
    at: &Asking,
    ask: ControlRequest,
    none: Option<&str>,
    mut text: impl FnMut(&Value, &Zone) -> String,
) -> Result<()> {
    list_items(at, ask, none, |item, zone| line(&text(item, zone))).await
}

/// Prints an item as JSON, or as the line returned by `text`.
pub(super) fn show(at: &Asking, item: &Value, text: impl FnOnce() -> String) -> Result<()> {
    if at.json {
        json_line(item)
    } else {
        line(&text())
    }
}

/// Converts an item to `T`.
pub(crate) fn parse_item<T: DeserializeOwned>(item: &Value) -> Result<T> {
    T::deserialize(item).or_fail_at(Code::Unreachable, "the daemon has another version")
}

/// Sends a request to the daemon only, failing with the message `no_daemon` if there is none.
pub(super) async fn ask_daemon(
    at: &Asking,
    ask: ControlRequest,
    no_daemon: String,
    each: impl FnMut(&Value, &Zone) -> Result<()>,
) -> Result<()> {
    match reach(at, &ask).await? {
        Some(replies) => listen((replies, None), at, each).await.map(drop),
        None => Err(Failure::new(Code::Unreachable, no_daemon)),
    }
}

/// Returns the daemon's replies, or `None` if no daemon is running.
async fn reach(at: &Asking, ask: &ControlRequest) -> Result<Option<Replies>> {
    let what = format_args!("cannot reach the daemon of {}", at.state);
    let asked = socket::ask(at.state.socket_folder(), ask).await;
    asked.or_fail_at(Code::Unreachable, what)
}

/// Prints items as JSON or using `each`, even across restarts of the daemon, until the future is
/// dropped. If no daemon is running at first, calls `alone` once and waits for a daemon. `begun` is
/// the message to show once a daemon is ready. `ask` returns the request, and is passed `true` if
/// nothing has been shown yet.
pub(super) async fn follow(
    at: &Asking,
    begun: &str,
    ask: impl Fn(bool) -> ControlRequest,
    alone: impl AsyncFn() -> Result<()>,
    mut each: impl FnMut(&Value, &Zone) -> Result<()>,
) -> Result<()> {
    let mut past = true;
    let mut reported = false;
    loop {
        match reach(at, &ask(past)).await? {
            Some(replies) => {
                follow_daemon(replies, at, begun, &mut each).await?;
                past = false;
                reported = false;
            }
            None if is_missing(&at.state) => return Err(no_daemon_or_state(&at.state)),
            None if reported => {}
            None => {
                if past {
                    alone().await?;
                }
                past = false;
                reported = true;
                say(&format!("no daemon runs on {}; waiting for one", at.state));
            }
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Prints one daemon's items until that daemon ends.
async fn follow_daemon(
    mut replies: Replies,
    at: &Asking,
    begun: &str,
    each: &mut impl FnMut(&Value, &Zone) -> Result<()>,
) -> Result<()> {
    loop {
        match replies.next().await {
            Ok(Some(ControlReply::Ready)) => say(begun),
            Ok(Some(ControlReply::Item(item))) if at.json => json_line(&item)?,
            Ok(Some(ControlReply::Item(item))) => each(&item, &zone_of(at, replies.zone()))?,
            Ok(Some(ControlReply::Error { code, message })) => {
                return Err(Failure::new(Code::of_number(code), message));
            }
            // The connection to a killed daemon breaks off.
            Ok(Some(ControlReply::End { .. }) | None) | Err(_) => return Ok(()),
            Ok(Some(ControlReply::Zone(_))) => {}
        }
    }
}

async fn listen(
    (mut replies, here): Conversation,
    at: &Asking,
    mut each: impl FnMut(&Value, &Zone) -> Result<()>,
) -> Result<u64> {
    let mut items = 0;
    let mut zone = None;
    let ended = loop {
        let reply = replies.next().await;
        match reply.or_fail_at(Code::Unreachable, "the daemon closed the connection")? {
            Some(ControlReply::Item(item)) => {
                items += 1;
                let zone = zone.get_or_insert_with(|| zone_of(at, replies.zone()));
                each(&item, zone)?;
            }
            Some(ControlReply::Ready | ControlReply::Zone(_)) => {}
            Some(ControlReply::End { .. }) => break Ok(items),
            Some(ControlReply::Error { code, message }) => {
                break Err(Failure::new(Code::of_number(code), message));
            }
            None => {
                let message = "the daemon stopped before it answered; run the command again";
                break Err(Failure::new(Code::Unreachable, message));
            }
        }
    };
    if let Some(task) = here {
        let _ = task.await;
    }
    ended
}

/// Prints lines for humans, escaping control characters, since the PBX's and the CRM's texts may
/// contain them.
pub(crate) fn line(text: &str) -> Result<()> {
    print(format!("{}\n", safe_lines(text)))
}

/// Prints an item as a line of JSON.
pub(crate) fn json_line(item: &Value) -> Result<()> {
    print(format!("{}\n", safe_json(&item.to_string())))
}

/// Returns one row as CSV, escaping cells that a spreadsheet would treat as formulas.
pub(super) fn csv_line<T: AsRef<str>>(row: impl IntoIterator<Item = T>) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let row = row.into_iter().map(|cell| safe_cell(cell.as_ref()));
    writer.write_record(row).or_fail(Code::Failed)?;
    writer.into_inner().or_fail(Code::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_row_escapes_formulas_and_keeps_numbers() {
        let row = [
            "+998901110001",
            "=1+1",
            "a;@b\t-c",
            "x\u{1b}[2J\n=2",
            "4001",
        ];
        let line = csv_line(row).expect("a row");
        let line = String::from_utf8(line).expect("text");
        let expected = "+998901110001,'=1+1,a;'@b\t'-c,\"x\\u{1b}[2J\n'=2\",4001\n";
        assert_eq!(line, expected);
    }
}
