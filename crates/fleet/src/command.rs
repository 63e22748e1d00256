//! `fleet`: reads the status reports, shows the table, and exits with 0 where all report.

use crate::error::Error;
use crate::options::FleetOptions;
use crate::roster::Roster;
use crate::words::{keep_reading, table};
use crate::{metrics, text};
use callbridge_listener::body::{self, Body};
use callbridge_listener::places::ConnectionPlace;
use callbridge_listener::serve::{self, AnswerHttp, Limits, Open};
use callbridge_model::status::FleetTable;
use callbridge_model::status::fleet::FleetStatus;
use callbridge_model::status::text::TextStyle;
use callbridge_model::{Environment, Zone};
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

/// No table is drawn over sooner.
const DRAWN_FOR: Duration = Duration::from_secs(1);
/// The screen is cleared, and the table stands in its upper left.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Runs the command `fleet` to its end; with `--watch` or `--listen` until `shutdown`.
///
/// # Errors
/// What is wrong and what to do; [`Error::Unhealthy`] where somebody is silent.
pub async fn run(
    options: FleetOptions,
    environment: &Environment,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let checked = options.check(environment)?;
    let is_terminal = io::stdout().is_terminal();
    let style = TextStyle {
        colour: is_terminal && environment.text("NO_COLOR").is_none(),
        zone: Zone::of(None),
    };
    if !options.watch && checked.listen.is_none() {
        tokio::select! {
            table = table(&checked.stream, checked.since) => return show(&table?, &options, &style),
            () = shutdown => return Ok(()),
        }
    }
    let (shown, status) = watch::channel(Some(FleetStatus::default()));
    let stop = watch::Sender::new(false);
    let serving = listen(checked.listen, status.clone(), stop.subscribe()).await?;
    let following = keep_reading(&checked.stream, checked.since, Roster::default(), &shown);
    let drawing = async {
        match options.watch {
            true => draw(status, &style, is_terminal).await,
            false => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = drawing => ended,
        () = following => Ok(()),
        () = shutdown => Ok(()),
    };
    stop.send_replace(true);
    if let Some(serving) = serving {
        let _ = serving.await;
    }
    ended
}

fn show(table: &FleetTable, options: &FleetOptions, style: &TextStyle) -> Result<(), Error> {
    match options.json {
        true => print(&format!("{}\n", serde_json::json!(table)))?,
        false => print(&text::render(table, style))?,
    }
    match table.healthy {
        true => Ok(()),
        false => Err(Error::Unhealthy(unhealthy(table))),
    }
}

/// The faults of the fleet in one line, as the command's error.
fn unhealthy(table: &FleetTable) -> String {
    let with_trouble = table.members.iter().filter(|it| it.trouble.is_some());
    match (with_trouble.count(), table.troubles.first()) {
        (0, Some(trouble)) => trouble.what.clone(),
        (0, None) => "something is wrong".to_owned(),
        (1, _) => "1 of the fleet is silent or cannot do its work".to_owned(),
        (many, _) => format!("{many} of the fleet are silent or cannot do their work"),
    }
}

fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

type Shown = watch::Receiver<Option<FleetStatus>>;

fn table_of(shown: &Shown) -> Option<Arc<FleetTable>> {
    shown.borrow().as_ref()?.table.clone()
}

async fn draw(mut shown: Shown, style: &TextStyle, is_terminal: bool) -> Result<(), Error> {
    let mut drawn = None;
    while shown.changed().await.is_ok() {
        let table = table_of(&shown).filter(|it| drawn != Some(it.at));
        let Some(table) = table else { continue };
        drawn = Some(table.at);
        let at = style.zone.second(table.at);
        let clear = if is_terminal { CLEAR } else { "" };
        print(&format!("{clear}{at}\n{}", text::render(&table, style)))?;
        sleep(DRAWN_FOR).await;
    }
    Ok(())
}

/// Serves metrics, where that is asked for.
async fn listen(
    addr: Option<SocketAddr>,
    shown: Shown,
    mut stop: watch::Receiver<bool>,
) -> Result<Option<tokio::task::JoinHandle<()>>, Error> {
    let Some(addr) = addr else { return Ok(None) };
    let listener = TcpListener::bind(addr).await;
    let listener = listener.map_err(|error| Error::Listen {
        addr,
        why: error.to_string(),
    })?;
    tracing::info!(address = %listener.local_addr().unwrap_or(addr), "metrics of the fleet");
    let open = Open {
        name: "--listen",
        listener,
        tls: None,
        limits: Limits::FEW,
    };
    let stopped = async move { drop(stop.wait_for(|stop| *stop).await) };
    let serving = serve::serve(open, Arc::new(Metrics(shown)), stopped);
    Ok(Some(tokio::spawn(serving)))
}

struct Metrics(Shown);

impl AnswerHttp for Metrics {
    async fn answer(&self, _: &ConnectionPlace, request: Request<Incoming>) -> Response<Body> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let (status, text) = match (request.uri().path(), is_read, table_of(&self.0)) {
            ("/metrics", true, Some(table)) => (StatusCode::OK, metrics::render(&table)),
            ("/metrics", true, None) => {
                let words = "the status reports are not read yet\n".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, words)
            }
            ("/metrics", false, _) => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        let content_type = match status {
            StatusCode::OK => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            _ => "text/plain; charset=utf-8",
        };
        body::response(status, content_type, body::whole(text))
    }
}
