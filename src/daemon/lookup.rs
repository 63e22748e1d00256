//! Who calls, told to a dialplan: the look-up's listener, its thread, and its password kept fresh.

use super::tasks::{Tasks, follow};
use crate::config::{Config, LookupConfig};
use crate::{Failure, OrFail as _};
use callbridge_intake::run::SharedPeople;
use callbridge_lookup::desk::{ANSWER_WITHIN, Desk, LookUp};
use callbridge_lookup::http::{self, Access, Gate};
use callbridge_lookup::{answer::Answer, tally::Tally};
use callbridge_mapping::Trunks;
use callbridge_model::{Code, SecretPlace};
use callbridge_ops::metrics::Durations;
use callbridge_spool::LeadDirectory;
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// Starts it, where it is asked for; its counts for the metrics.
///
/// # Errors
/// When the address is not free or the password cannot be read.
pub(crate) async fn start(
    config: &Config,
    people: &SharedPeople,
    leads: &Arc<LeadDirectory>,
    durations: &Durations,
    tasks: &mut Tasks,
) -> Result<Option<Arc<Tally>>, Failure> {
    let Some(asked) = &config.lookup else {
        return Ok(None);
    };
    let access = access(asked, tasks)?;
    let (listener, address) = config.held.listen("--lookup", asked.listen).await?;
    let trunks = config.rules.trunks.clone();
    let look_up = look_up(trunks, Arc::clone(people), Arc::clone(leads));
    let desk = Desk::open(look_up, ANSWER_WITHIN).await;
    let desk = desk.map_err(|error| Failure::of(Code::Configuration, error))?;
    let tally = Arc::new(Tally::new(durations.lookup.clone()));
    tracing::info!(%address, "callers are looked up");
    let gate = Gate {
        desk,
        access,
        tally: Arc::clone(&tally),
    };
    let stop = tasks.stop();
    tasks.start(http::serve(listener, gate, stop));
    Ok(Some(tally))
}

/// As calls are judged when they end: by the same lists and leads.
pub(crate) fn look_up(trunks: Trunks, people: SharedPeople, leads: Arc<LeadDirectory>) -> LookUp {
    Box::new(move |question| {
        let people = Arc::clone(&people.read().unwrap_or_else(PoisonError::into_inner));
        Answer::find(question, &trunks, &people, |lead| leads.shown(lead))
    })
}

fn access(asked: &LookupConfig, tasks: &mut Tasks) -> Result<Access, Failure> {
    let (networks, mut secrets) = (asked.allow.clone(), None);
    if let Some(place) = &asked.secret {
        let read = place.read_lines();
        let read = read.or_fail_at(Code::Configuration, "--lookup-secret-file")?;
        let (current, known) = watch::channel(read);
        secrets = Some(known);
        let again = move |place: &SecretPlace| {
            current.send_replace(place.read_lines().map_err(|error| error.to_string())?);
            Ok(())
        };
        tasks.start_until_stop(follow(place.clone(), "--lookup-secret-file", again));
    }
    Ok(Access { networks, secrets })
}
