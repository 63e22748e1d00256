//! The lookup for dialplans, which includes its listener, its thread, and its passwords, which are
//! reloaded when they change.

use super::secret_files::SecretFiles;
use super::tasks::Tasks;
use crate::config::{Config, LookupConfig};
use crate::{Failure, OrFail as _};
use callbridge_intake::run::SharedPeople;
use callbridge_lookup::desk::{ANSWER_WITHIN, Desk, LookUp};
use callbridge_lookup::http::{self, Access, Gate};
use callbridge_lookup::{answer::Answer, tally::Tally};
use callbridge_mapping::Trunks;
use callbridge_model::{Code, Secret, SecretPlace};
use callbridge_ops::metrics::Durations;
use callbridge_spool::LeadDirectory;
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// The flag for the file with the lookup passwords.
const SECRET_FILE: &str = "--lookup-secret-file";

/// Starts the lookup if `--lookup` is given, and returns its counts for the metrics.
///
/// # Errors
/// Returns an error if the address is in use or the password can't be read.
pub(crate) async fn start(
    config: &Config,
    people: &SharedPeople,
    leads: &Arc<LeadDirectory>,
    durations: &Durations,
    secret_files: &SecretFiles,
    tasks: &mut Tasks,
) -> Result<Option<Arc<Tally>>, Failure> {
    let Some(asked) = &config.lookup else {
        return Ok(None);
    };
    let access = access(asked, secret_files, tasks)?;
    let (listener, address) = super::listen_at("--lookup", asked.listen).await?;
    let trunks = config.rules.trunks.clone();
    let look_up = look_up(trunks, Arc::clone(people), Arc::clone(leads));
    let opened = Desk::open(look_up, ANSWER_WITHIN).await;
    let desk = opened.map_err(|error| Failure::wrap(Code::Configuration, error))?;
    let tally = Arc::new(Tally::new(durations.lookup.clone()));
    tracing::info!(%address, "answering lookups of callers");
    let gate = Gate {
        desk,
        access,
        tally: Arc::clone(&tally),
    };
    let stop = tasks.stop();
    tasks.start(http::serve(listener, gate, stop));
    Ok(Some(tally))
}

/// Returns the function that performs lookups. It uses the same lists and leads as the mapping of
/// finished calls.
pub(crate) fn look_up(trunks: Trunks, people: SharedPeople, leads: Arc<LeadDirectory>) -> LookUp {
    Box::new(move |question| {
        let people = Arc::clone(&people.read().unwrap_or_else(PoisonError::into_inner));
        Answer::find(question, &trunks, &people, |lead| {
            leads.current_profile(lead)
        })
    })
}

fn access(
    asked: &LookupConfig,
    secret_files: &SecretFiles,
    tasks: &mut Tasks,
) -> Result<Access, Failure> {
    let networks = asked.allow.clone();
    let mut secrets = None;
    if let Some(place) = &asked.secret {
        let read = place.read_lines();
        let lines = read.or_fail_at(Code::Configuration, SECRET_FILE)?;
        let (current, known) = watch::channel(lines);
        secrets = Some(known);
        let read_from = place.clone();
        let follow = secret_files.clone().follow(
            place.clone(),
            SECRET_FILE,
            move |text| secrets_of(&read_from, text),
            current,
        );
        tasks.start_until_stop(follow);
    }
    Ok(Access { networks, secrets })
}

/// Returns the secrets in a changed file, along with the error for `status`. A file with an error
/// doesn't let anyone in.
fn secrets_of(place: &SecretPlace, text: Result<&Secret, String>) -> (Vec<Secret>, Option<String>) {
    let secrets = match text {
        Ok(text) => place.lines_of(text).map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    match secrets {
        Ok(secrets) => (secrets, None),
        Err(error) => {
            let fault = format!("{error}; every lookup is refused");
            (Vec::new(), Some(fault))
        }
    }
}
