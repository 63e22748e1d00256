//! The flags of `fleet`, and what they come to.

use crate::error::Error;
use crate::line::WordsStream;
use callbridge_model::{Environment, SecretKind, SecretPlace, dates};
use callbridge_source::{BrokerUrl, Secret};
use clap::Args;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

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

/// The flags of `fleet`, parsed and checked.
pub(crate) struct Checked {
    pub(crate) stream: WordsStream,
    pub(crate) since: Duration,
    pub(crate) listen: Option<SocketAddr>,
}

impl FleetOptions {
    /// Checks all flags, and returns all faults at once.
    pub(crate) fn check(&self, environment: &Environment) -> Result<Checked, Error> {
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
            (Some(stream), Some(since), true) => Ok(Checked {
                stream,
                since,
                listen,
            }),
            _ => Err(Error::Flags(faults)),
        }
    }

    fn stream(&self, environment: &Environment, faults: &mut Vec<String>) -> Option<WordsStream> {
        let Some(text) = self.source.as_deref().filter(|text| !text.is_empty()) else {
            let words = "is missing: give the stream of the calls, as \
                         amqps://USER@HOST/VHOST?stream=calls&secret-file=FILE";
            faults.push(format!("--source {words}"));
            return None;
        };
        let url = BrokerUrl::stream(&without_format(text));
        let url = url.map_err(|wrong| {
            faults.extend(wrong.iter().map(|it| format!("--source {it}")));
        });
        let url = url.ok()?;
        let file = url.secret_file.as_deref();
        let place = SecretPlace::find(SecretKind::Amqp, file, environment);
        let missing = |words| faults.push(format!("--source {}: {words}", url.public()));
        let place = place.map_err(missing).ok()?;
        Some(WordsStream::of(&url, secret(&place)))
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

fn secret(place: &SecretPlace) -> Secret {
    match (place.fixed(), place.file()) {
        (Some(secret), _) => Secret::Value(secret),
        (None, Some(path)) => Secret::File(path.to_owned()),
        (None, None) => Secret::None,
    }
}

fn duration(text: &str) -> Option<Duration> {
    dates::span(text).filter(|it| SINCE.contains(it))
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
