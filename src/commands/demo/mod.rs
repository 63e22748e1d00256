//! `demo`, which plays recorded calls over a real socket through the daemon into a CRM on loopback.
//!
//! | module | what it contains |
//! |---|---|
//! | [`recording`] | the recorded calls, shifted to the present |
//! | [`pbx`] | sends them over a WebSocket, as amiws would, or as a FreeSWITCH event socket |
//!
//! The CRM, the PBX, and the daemon between them all run on loopback. The demo shows a live table
//! on a terminal, one line per event elsewhere, or JSON lines.

pub(crate) mod pbx;
pub(crate) mod recording;

use crate::commands::ScratchFolder;
use crate::config::flags::Flags;
use crate::config::{Checking, Config, Demo, DemoPbx, Faults};
use crate::daemon::{Daemon, open};
use crate::terminal::{has_color, width};
use crate::{Failure, OrFail as _, Result, print};
use callbridge_admin::explain::line::{OneLine, cut};
use callbridge_model::{Code, Environment, ExposeSecret, Secret, Status, clock};
use callbridge_ops::metrics::Durations;
use callbridge_sandbox::{self as sandbox, token::IdSet};
use callbridge_spool::{Row, RowId, State, tables};
use serde_json::json;
use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};
use tokio::{net::TcpListener, time::Instant};

/// Timeout for all calls to be settled.
const ENDS_WITHIN: Duration = Duration::from_secs(55);
const CHECK_EVERY: Duration = Duration::from_millis(150);
/// Number of customer calls in the recordings.
const CALLS: u64 = 7;
/// Maximum number of calls to show in the table.
const SHOWN_MAX: usize = 50;
/// The leads in the demo's CRM. Lead 4005, which is called in one of the recordings, doesn't exist.
const LEADS: &str = "4001-4004";
/// The extensions in the recordings, and their employees.
const EMPLOYEES: &str = "101:501;102:502;103:503";

/// Plays the demo until every call has been settled. With `--stay`, continues until `shutdown`
/// resolves.
///
/// # Errors
/// Fails with 1 if the books don't balance or a call wasn't settled in time.
pub(crate) async fn run(demo: Demo, shutdown: impl Future<Output = ()>) -> Result<()> {
    let name = format!("callbridge-demo-{}", uuid::Uuid::new_v4().simple());
    let path = std::env::temp_dir().join(name);
    let what = format_args!("cannot make the folder {}", path.display());
    let scratch = ScratchFolder::make(path.clone()).or_fail_at(Code::CannotWrite, what)?;
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .or_fail(Code::Failed)?;
    let pbx_addr = listener.local_addr().or_fail(Code::Failed)?;
    let token = Secret::from(format!("svc_pat_{}", uuid::Uuid::new_v4().simple()));
    let crm = start_crm(&token).await?;
    let source = match demo.pbx {
        DemoPbx::Asterisk => format!("ws://{pbx_addr}/"),
        DemoPbx::Freeswitch => format!("esl://{pbx_addr}"),
    };
    let config = config(&scratch.0, &source, &crm.url(), &token)?;
    let mut view = View {
        form: form(demo.json),
        shown: BTreeMap::new(),
        lines_drawn: 0,
    };
    view.say(&format!("a PBX at {source}, a CRM at {},", crm.url()))?;
    view.say("callbridge between them; nothing leaves this machine")?;
    for recording in recording::RECORDINGS {
        view.say(&format!("  {}", recording.story))?;
    }
    let now = clock::now().wall.floor_seconds().get();
    let frames = recording::schedule(demo.pbx, now);
    let played = tokio::spawn(async move {
        // Only the daemon breaks the connection, and it logs the reason itself.
        match demo.pbx {
            DemoPbx::Asterisk => drop(pbx::serve(listener, frames).await),
            DemoPbx::Freeswitch => drop(pbx::serve_event_socket(listener, frames).await),
        }
    });
    let durations = Durations::default();
    let (spool, guard) = open::state(&config, &durations).await?;
    let mut daemon = Daemon::start(&config, &spool, &durations, |_| {}).await?;
    let mut shutdown = std::pin::pin!(shutdown);
    let ended = tokio::select! {
        ended = watch(&daemon, &mut view, demo.pbx) => ended,
        () = &mut shutdown => Err(Failure::new(Code::Failed, "interrupted")),
    };
    let ended = match ended {
        Ok(status) => finish(&status, &crm, &view, demo, &mut daemon, shutdown).await,
        Err(failure) => Err(failure),
    };
    daemon.stop(guard).await;
    played.abort();
    let stopped = crm.stop().await;
    ended.and(stopped.map_err(|error| Failure::wrap(Code::Failed, error)))
}

fn form(json: bool) -> Form {
    // A terminal without `TERM` is treated as a dumb one.
    let is_plain = !has_color() || std::env::var_os("TERM").is_none();
    let width = width().filter(|width| *width >= 40).unwrap_or(80);
    match (json, is_plain) {
        (true, _) => Form::Json,
        (false, true) => Form::Plain,
        (false, false) => Form::Live { width },
    }
}

async fn start_crm(token: &Secret) -> Result<sandbox::server::Server> {
    let mut config = sandbox::Config {
        token: token.clone(),
        ..sandbox::Config::default()
    };
    config.settings.company.name = "Demo company".to_owned();
    config.settings.company.leads = IdSet::parse(LEADS).unwrap_or_default();
    config.settings.persist_after = Duration::from_secs(1);
    let started = sandbox::start(config).await;
    started.map_err(|error| Failure::wrap(Code::Failed, error))
}

/// Returns the configuration for flags that an administrator might type, ignoring this machine's
/// environment variables.
fn config(scratch: &Path, source: &str, crm: &str, token: &Secret) -> Result<Config> {
    let is_freeswitch = source.starts_with("esl:");
    let mut flags = Flags::default();
    flags.sources.source = vec![source.to_owned()];
    flags.sources.pbx_id = Some("demo".to_owned());
    flags.trunks.trunk = vec![
        trunk("city", 16_000, is_freeswitch),
        trunk("gsm", 16_001, is_freeswitch),
    ];
    flags.trunks.employees = Some(EMPLOYEES.to_owned());
    flags.crm.crm_url = Some(crm.to_owned());
    flags.operation.state = Some(scratch.join("state").display().to_string());
    let environment = Environment::from_pairs([
        ("CALLBRIDGE_TOKEN", token.expose_secret()),
        ("CALLBRIDGE_ESL_SECRET", pbx::PASSWORD),
    ]);
    let checking = Checking::new(&environment, Faults::default()).for_run();
    Ok(checking.config(flags)?)
}

fn trunk(name: &str, port: u16, is_freeswitch: bool) -> String {
    if is_freeswitch {
        format!("{name}=gateway/{name}|address/127.0.0.1:{port},country=UZ,lead=var:lead_id")
    } else {
        format!("{name}=PJSIP/{name},country=UZ,strip=9,lead=var:LEAD_ID")
    }
}

/// Shows the calls until every one has been settled or the timeout is reached, and returns the last
/// status.
async fn watch(daemon: &Daemon, view: &mut View, pbx: DemoPbx) -> Result<Status> {
    let begin = Instant::now();
    let ends = recording::longest_recording_sec(pbx) + 2;
    let spool = daemon.observer.spool.clone();
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    loop {
        ticks.tick().await;
        // The status with the books is read before the rows, so any calls that the books count as
        // settled are also settled in the rows.
        let status = daemon.observer.status().await?;
        let rows: Vec<Row> = spool
            .read(|store| tables::calls::oldest(store, SHOWN_MAX))
            .await?;
        let passed = i64::try_from(begin.elapsed().as_secs()).unwrap_or(i64::MAX);
        view.update(&rows, &status, ends - passed)?;
        let all = status.books.finished >= CALLS && status.books.internal >= 1;
        if (all && status.books.settled()) || begin.elapsed() > ENDS_WITHIN {
            return Ok(status);
        }
    }
}

/// Compares the books with the journal of the demo's CRM, and prints the result. With `--stay`,
/// waits for `shutdown`.
async fn finish(
    status: &Status,
    crm: &sandbox::server::Server,
    view: &View,
    demo: Demo,
    daemon: &mut Daemon,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let books = &status.books;
    let count = crm.journal().len() as u64;
    let violations = crm.violations();
    let message = format!("the CRM's journal has {count} calls; callbridge's books have");
    view.say(&message)?;
    view.say(&format!(
        "{} journaled, {} dead, {} waiting; not counted: {} internal",
        books.journaled, books.dead, books.waiting, books.internal
    ))?;
    let breaches = format!("the CRM counted violations of its rules: {violations:?}");
    let is_late = !books.settled() || books.finished < CALLS;
    let fault = if !books.balance() {
        Some("the books do not balance")
    } else if is_late {
        Some("not every call settled in time")
    } else if count != books.journaled {
        Some("the CRM's journal and the books differ")
    } else if !violations.is_empty() {
        Some(breaches.as_str())
    } else {
        None
    };
    if fault.is_none() {
        view.say("every call is accounted for: the books balance")?;
    }
    if demo.stay && fault.is_none() {
        let at = format!("{}/sandbox/journal", crm.url());
        let message = format!("staying until interrupted; the CRM's journal: {at}");
        view.say(&message)?;
        tokio::select! {
            () = shutdown => {}
            error = daemon.wait_for_failure() => return Err(Failure::wrap(Code::Failed, error)),
        }
    }
    if demo.json {
        let line = serde_json::to_string(status).or_fail(Code::Failed)?;
        print(format!("{line}\n"))?;
    }
    match fault {
        Some(message) => Err(Failure::new(Code::Failed, message.to_owned())),
        None => Ok(()),
    }
}

/// How the demo is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As a table that's redrawn, in color.
    Live { width: usize },
    /// As one line per event, without escape codes.
    Plain,
    /// As one line of JSON per event.
    Json,
}

/// The demo's output, including the call states that have been shown.
pub(crate) struct View {
    form: Form,
    shown: BTreeMap<RowId, State>,
    lines_drawn: usize,
}

fn line_of(row: &Row) -> OneLine {
    OneLine::from_record(&row.record, row.state, row.reason)
}

impl View {
    /// Prints a progress message.
    ///
    /// # Errors
    /// Returns an error if stdout can't be written to.
    pub(crate) fn say(&self, message: &str) -> Result<()> {
        match self.form {
            Form::Live { .. } | Form::Plain => print(format!("{message}\n")),
            Form::Json => print(format!("{}\n", json!({ "say": message }))),
        }
    }

    /// Shows the current calls and books. `left_sec` is how many seconds are left until all calls
    /// have been played.
    ///
    /// # Errors
    /// Returns an error if stdout can't be written to.
    pub(crate) fn update(&mut self, rows: &[Row], status: &Status, left_sec: i64) -> Result<()> {
        match self.form {
            Form::Live { width } => self.draw(rows, status, left_sec, width),
            Form::Plain | Form::Json => self.print_rows(rows),
        }
    }

    fn print_rows(&mut self, rows: &[Row]) -> Result<()> {
        for row in rows {
            if self.shown.insert(row.id, row.state) == Some(row.state) {
                continue;
            }
            let text = match self.form {
                Form::Json => json!({
                    "id": row.id, "state": row.state, "reason": row.reason, "call": row.record,
                })
                .to_string(),
                Form::Live { .. } | Form::Plain => {
                    let line = line_of(row);
                    format!("{} {}", line.columns(), line.state_text())
                }
            };
            print(format!("{text}\n"))?;
        }
        Ok(())
    }

    fn draw(&mut self, rows: &[Row], status: &Status, left_sec: i64, width: usize) -> Result<()> {
        // Each line comes with the escape code for its color.
        let mut lines = Vec::new();
        for row in rows {
            let call = line_of(row);
            let message = format!("  {} {}", call.columns(), call.state_text());
            lines.push((message, call.color()));
        }
        let playing = match left_sec {
            ..=0 => "  all calls have been played".to_owned(),
            left => format!("  calls are being played, {left} s to go"),
        };
        lines.push((playing, "2"));
        let books = &status.books;
        let budget = &status.budget;
        let queued = books.ready + books.sending + books.submitted;
        let message = format!(
            "  books: {} = {queued} queued + {} journaled + {} dead + {} waiting; {} of {} \
             requests",
            books.finished, books.journaled, books.dead, books.waiting, budget.used, budget.limit
        );
        lines.push((message, "1"));
        let mut text = String::new();
        if self.lines_drawn > 0 {
            let _ = write!(text, "\x1b[{}A", self.lines_drawn);
        }
        for (line, color) in &lines {
            let _ = writeln!(text, "\x1b[2K\x1b[{color}m{}\x1b[0m", cut(line, width));
        }
        self.lines_drawn = lines.len();
        print(text)
    }
}
