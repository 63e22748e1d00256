//! `fleet`: reads the status reports, shows the table, and exits with 0 where all report.

use crate::reports::{keep_reading, table};
use crate::{Error, ReportStream, metrics, roster::Roster, text};
use callbridge_listener::body::{self, Body};
use callbridge_listener::places::ConnectionPlace;
use callbridge_listener::serve::{self, AnswerHttp, Limits, Open};
use callbridge_listener::site::SiteRules;
use callbridge_model::status::FleetTable;
use callbridge_model::status::fleet::FleetStatus;
use callbridge_model::status::text::TextStyle;
use callbridge_model::{Environment, SecretKind, SecretPlace, Zone, dates};
use callbridge_source::{BrokerUrl, Secret};
use clap::Args;
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use std::io::{self, IsTerminal as _, Write as _};
use std::{net::SocketAddr, ops::RangeInclusive, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::watch, time::sleep};

/// No table is drawn over sooner.
const DRAWN_FOR: Duration = Duration::from_secs(1);
/// The screen is cleared, and the table stands in its upper left.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Text after the flags in `fleet --help`.
const EXAMPLES: &str = "\
Examples:
  callbridge fleet --source 'amqps://sender@mq1,mq2/calls?stream=calls&secret-file=/run/amqp.secret'
  callbridge fleet --json --source … | jq '.members[] | select(.speech != \"speaking\")'
Exit: 0 when all report and nothing is wrong, 1 when somebody is silent, was stopped, or cannot do
its work, 69 when the stream cannot be read.";

/// Ages that `--since` may ask for: up to those that the stream keeps.
const SINCE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);

/// `fleet`
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct FleetOptions {
    /// The stream of the calls, as --forward names it; its status reports are read as well
    ///
    /// amqp(s)://USER@H1,H2/VHOST?stream=S&secret-file=FILE. The user needs the right to read the
    /// stream S.words. The secret may also be the credential amqp-secret or the variable
    /// CALLBRIDGE_AMQP_SECRET.
    #[arg(long, value_name = "URL")]
    pub source: Option<String>,
    /// Status reports of this age count: 3h, 2d; who has been silent for longer is not shown
    #[arg(long, value_name = "TIME", default_value = "3h")]
    pub since: String,
    /// Go on reading, and update the table as it changes, until interrupted
    #[arg(long)]
    pub watch: bool,
    /// Go on reading, and serve /metrics at this address: 127.0.0.1:9480
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command `fleet` to its end; with `--watch` or `--listen` until `shutdown`.
///
/// # Errors
/// What is wrong and what to do; [`Error::Unhealthy`] where somebody is silent.
pub async fn run(
    options: FleetOptions,
    environment: &Environment,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let (stream, since, address) = options.check(environment)?;
    let is_terminal = io::stdout().is_terminal();
    let style = TextStyle {
        colour: is_terminal && environment.text("NO_COLOR").is_none(),
        zone: Zone::of(None),
    };
    if !options.watch && address.is_none() {
        tokio::select! {
            table = table(&stream, since) => return show(&table?, &options, &style),
            () = shutdown => return Ok(()),
        }
    }
    let (shown, status) = watch::channel(Some(FleetStatus::default()));
    let stop = watch::Sender::new(false);
    let serving = listen(address, status.clone(), stop.subscribe()).await?;
    let following = keep_reading(&stream, since, Roster::default(), &shown);
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
    if table.healthy {
        return Ok(());
    }
    let with_trouble = table.members.iter().filter(|it| it.trouble.is_some());
    Err(Error::Unhealthy(
        match (with_trouble.count(), table.troubles.first()) {
            (0, Some(trouble)) => trouble.what.clone(),
            (0, None) => "something is wrong".to_owned(),
            (1, _) => "1 of the fleet is silent or cannot do its work".to_owned(),
            (many, _) => format!("{many} of the fleet are silent or cannot do their work"),
        },
    ))
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
        site: SiteRules::STRICT,
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

/// The flags of `fleet`, parsed and checked: `--source`, `--since` and `--listen`.
type Checked = (ReportStream, Duration, Option<SocketAddr>);

impl FleetOptions {
    /// Checks all flags, and returns all faults at once.
    fn check(&self, environment: &Environment) -> Result<Checked, Error> {
        let mut faults = Vec::new();
        let stream = self.stream(environment, &mut faults);
        let since = duration(&self.since);
        if since.is_none() {
            let words = "is not a time span of 7 days at most: give it as 30m, 3h or 2d";
            faults.push(format!("--since {}: {words}", self.since));
        }
        let listen = self.listen.as_deref().and_then(|text| {
            let words = "is not an address: give IP:PORT, as 127.0.0.1:9480";
            let wrong = |_| faults.push(format!("--listen {text}: {words}"));
            text.parse().map_err(wrong).ok()
        });
        if self.watch && self.json {
            faults.push("--watch cannot be used with --json: keep one".to_owned());
        }
        match (stream, since, faults.is_empty()) {
            (Some(stream), Some(since), true) => Ok((stream, since, listen)),
            _ => Err(Error::Flags(faults)),
        }
    }

    fn stream(&self, environment: &Environment, faults: &mut Vec<String>) -> Option<ReportStream> {
        let Some(text) = self.source.as_deref().filter(|text| !text.is_empty()) else {
            let words = "is missing: give the stream of the calls, as \
                         amqps://USER@HOST/VHOST?stream=calls&secret-file=FILE";
            faults.push(format!("--source {words}"));
            return None;
        };
        let url = BrokerUrl::stream(&without_format(text)).map_err(|wrong| {
            faults.extend(wrong.iter().map(|it| format!("--source {it}")));
        });
        let url = url.ok()?;
        let file = url.secret_file.as_deref();
        let place = SecretPlace::find(SecretKind::Amqp, file, environment);
        let missing = |words| faults.push(format!("--source {}: {words}", url.public()));
        let place = place.map_err(missing).ok()?;
        let secret = match (place.fixed(), place.file()) {
            (Some(secret), _) => Secret::Value(secret),
            (None, Some(path)) => Secret::File(path.to_owned()),
            (None, None) => Secret::None,
        };
        Some(ReportStream::of(&url, secret))
    }
}

/// Takes `format=call` off, so that the URL of a sender's source can be given as it stands.
fn without_format(text: &str) -> String {
    let Some((front, query)) = text.split_once('?') else {
        return text.to_owned();
    };
    let kept = query.split('&').filter(|pair| *pair != "format=call");
    format!("{front}?{}", kept.collect::<Vec<_>>().join("&"))
}

fn duration(text: &str) -> Option<Duration> {
    dates::span(text).filter(|it| SINCE.contains(it))
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
