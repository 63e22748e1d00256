//! Opens the state, which includes checking that it belongs to this CRM and PBX, restoring the
//! calls that were open, and finding the position at which each source continues.

use super::leadership;
use super::trunks::KnownTrunks;
use crate::config::{Config, SourceConfig as SourceFlag};
use crate::{Failure, OrFail as _, build_time};
use callbridge_admin::{LockWait, socket};
use callbridge_crm::FieldNames;
use callbridge_intake::gap_log::{self, GapLog};
use callbridge_intake::identity;
use callbridge_intake::unmatched::{self, UnmatchedLog};
use callbridge_intake::{Intake, Memory as Remembered, Settings, SourceSettings, label_all};
use callbridge_leads::{directory::backfill::ReadLeads, lead_field};
use callbridge_mapping::Rules;
use callbridge_model::{Code, SecretPlace, clock};
use callbridge_ops::metrics::Durations;
use callbridge_sender::new_state;
use callbridge_source::url::From;
use callbridge_source::{EventTime, FilePosition, Secret, Source, SourceId, Transport};
use callbridge_spool::{
    self as spool, FinishedCalls, Guard, Handle, LeadDirectory, Op, StatePlace, open_postgres,
    tables,
};
use std::path::Path;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Time from the end of one round of reading the CRM's leads until the next. With webhooks, a round
/// merely verifies the reported changes. Without them, it's the only way to learn about changes.
const LEADS_EVERY: Duration = Duration::from_secs(60);
const LEADS_EVERY_BESIDE_WEBHOOKS: Duration = Duration::from_secs(15 * 60);

pub(crate) struct Opened {
    /// A handle to the spool's thread.
    pub spool: Handle,
    /// The finished calls that the spool knows, for the intake's lookups.
    pub memory: FinishedCalls,
    /// The directory of leads by phone number.
    pub directory: Arc<LeadDirectory>,
    /// The intake, with the open calls restored.
    pub intake: Intake,
    /// The trunks, along with since when each one has been known.
    pub trunks: KnownTrunks,
    /// The sources, which are ready to run, in the order of the flags.
    pub sources: Vec<Source>,
    /// The settings with which the intake decodes and assembles calls.
    pub assembling: Settings,
}

/// Returns the settings with which these flags open the spool.
fn spool_settings(config: &Config, durations: &Durations) -> spool::Settings {
    let commit = durations.commit.clone();
    spool::Settings {
        look_up: config.crm.is_some() && !config.dry_run,
        drop_employee: config.crm.as_ref().is_some_and(|crm| crm.drop_employee),
        shows: lead_field_settings(config),
        names: field_names(config),
        notices: config.dead_letters.is_some(),
        waiting_notices: config
            .dead_letters
            .as_ref()
            .is_some_and(|queue| queue.url.waiting),
        lead_directory: read_leads(config),
        on_commit: Some(Arc::new(move |took| commit.observe(took.as_secs_f64()))),
        ..spool::Settings::default()
    }
}

/// Returns how the CRM's leads are read, or `None` without `--lead-directory`.
fn read_leads(config: &Config) -> Option<ReadLeads> {
    if !config.lead_directory {
        return None;
    }
    let every = match config.webhooks {
        Some(_) => LEADS_EVERY_BESIDE_WEBHOOKS,
        None => LEADS_EVERY,
    };
    Some(ReadLeads {
        country: config.rules.country,
        every,
    })
}

/// Opens the state. A state in a database is opened even if another process is leading.
///
/// # Errors
/// Returns an error if the state can't be used or is in use by another process on this machine.
pub(crate) async fn state(
    config: &Config,
    durations: &Durations,
) -> Result<(Handle, Guard), Failure> {
    let settings = spool_settings(config, durations);
    let place = config.state_place();
    let url = match &place {
        StatePlace::Folder(folder) => {
            spool::refuse_shared(folder)?;
            return Ok(open_spool(folder, &settings).await?);
        }
        StatePlace::Database(database) => database.url.clone(),
    };
    let folder = place.socket_folder();
    if matches!(socket::is_listening(folder).await, Ok(true)) {
        let message = format!(
            "another callbridge on this machine already uses {place}: stop it, or set \
             RUNTIME_DIRECTORY to another folder (the socket is in {})",
            folder.display()
        );
        return Err(Failure::new(Code::Locked, message));
    }
    place.make_socket_folder()?;
    let instance = leadership::instance(config);
    let opening = tokio::task::spawn_blocking(move || open_postgres(&url, instance, settings));
    Ok(opening.await.or_fail(Code::Failed)??)
}

/// Reads everything that `run` needs from its state. Stores the CRM's URL, the time zone, and the
/// PBX ID.
///
/// # Errors
/// Returns an error if the state belongs to another CRM or PBX, or can't be read.
pub(crate) async fn open(config: &Config, spool: Handle) -> Result<Opened, Failure> {
    new_state::take_slots(&spool).await?;
    let now = clock::now().wall;
    let standing = spool.read(move |store| tables::lead_requests::log_standing(store, now));
    standing.await?;
    let place = config.state_place();
    let memory = place.finished_calls()?;
    let directory = Arc::new(place.lead_directory()?);
    if let Some(crm) = &config.crm {
        let bind = Op::BindAddress {
            address: crm.setup.address.as_str().to_owned(),
            rebind: config.rebind,
        };
        spool.write(vec![bind]).await?;
    }
    remember_zone(config, &spool).await?;
    remember_pbx_id(config, &spool).await?;
    let mut settings: Vec<SourceSettings> = Vec::new();
    for flag in &config.sources {
        let pbx = flag.pbx.clone().unwrap_or_default();
        settings.push(SourceSettings::new(&flag.url, pbx, flag.catch_up));
    }
    label_all(&mut settings);
    let assembling = intake_settings(config, &settings);
    let intake = restore_intake(assembling.clone(), settings, &spool).await?;
    let mut sources = Vec::new();
    for (at, flag) in config.sources.iter().enumerate() {
        // A new catch-up file is only read from its start if the PBX has been connected before,
        // because only then does the file contain the calls missed since.
        let begin = if flag.catch_up && intake.was_listening(at) {
            Some(From::Start)
        } else {
            None
        };
        sources.push(source(at, flag, begin, &spool).await?);
    }
    let now = clock::now().wall.floor_seconds().get();
    Ok(Opened {
        trunks: KnownTrunks::take_up(&config.rules.trunks, &spool, now).await?,
        spool,
        memory,
        directory,
        intake,
        sources,
        assembling,
    })
}

/// Returns the names of the request fields used to send calls.
pub(crate) fn field_names(config: &Config) -> FieldNames {
    let crm = config.crm.as_ref();
    crm.map(|crm| crm.fields.clone()).unwrap_or_default()
}

/// Returns the lead fields that show a lead's calls, with times in the PBX's time zone, or `None`
/// without `--lead-field`.
fn lead_field_settings(config: &Config) -> Option<Arc<lead_field::Settings>> {
    let crm = config.crm.as_ref()?;
    let settings = lead_field::Settings {
        fields: crm.lead_fields.clone(),
        zone: config.zone(),
        wrapper: crm.field_list_wrapper.clone(),
    };
    (!settings.fields.is_empty()).then(|| Arc::new(settings))
}

/// Opens the spool. If a command has it open for a moment, this waits, but not if another daemon
/// does.
async fn open_spool(
    dir: &Path,
    settings: &spool::Settings,
) -> Result<(Handle, Guard), spool::Error> {
    let patience = LockWait::begin();
    loop {
        match spool::open(dir, settings.clone()) {
            Err(error @ spool::Error::Locked { .. }) => {
                let another = socket::is_listening(dir).await;
                if matches!(another, Ok(true)) || !patience.has_more().await {
                    return Err(error);
                }
            }
            opened => return opened,
        }
    }
}

/// The key under which the spool keeps the PBX's time zone, for commands that run without a daemon.
pub(crate) const ZONE_KEY: &str = "pbx-timezone";

/// Returns the name of the PBX's time zone, or `None` if it's the same as this machine's.
pub(crate) fn zone_name(config: &Config) -> Option<String> {
    let zone = config.pbx_timezone.as_ref();
    zone.and_then(|zone| zone.iana_name().map(str::to_owned))
}

/// Stores the time zone given by the flags if it's different from the stored one.
async fn remember_zone(config: &Config, spool: &Handle) -> Result<(), spool::Error> {
    let stored = spool.meta(ZONE_KEY).await?;
    match zone_name(config) {
        given if given == stored => Ok(()),
        Some(value) => spool.keep_meta(ZONE_KEY, value).await,
        None => {
            let key = ZONE_KEY.to_owned();
            spool.write(vec![Op::MetaGone(key)]).await.map(drop)
        }
    }
}

/// Stores `--pbx-id` in a new state. A state that has been used rejects a different ID.
async fn remember_pbx_id(config: &Config, spool: &Handle) -> Result<(), Failure> {
    let Some(given) = &config.pbx_id else {
        return Ok(());
    };
    let stored = spool.meta(identity::META_KEY).await?;
    identity::refuse_change(stored.as_deref(), given)?;
    if stored.is_none() {
        spool.keep_meta(identity::META_KEY, given.clone()).await?;
    }
    Ok(())
}

/// Returns the time from which calls count for each PBX whose file has `from=DATE`. A date without
/// a time zone is in the PBX's.
fn start_times(config: &Config, sources: &[SourceSettings]) -> BTreeMap<String, EventTime> {
    let zone = config.zone();
    let flags = config.sources.iter().zip(sources);
    let dated = flags.filter_map(|(flag, source)| match &flag.url.transport {
        Transport::File {
            from: From::Since(moment),
            ..
        } => Some((source.pbx.clone(), moment.event_time(&zone))),
        _ => None,
    });
    dated.collect()
}

/// Returns the intake's settings for these flags.
fn intake_settings(config: &Config, sources: &[SourceSettings]) -> Settings {
    Settings {
        calls: config.calls.clone(),
        zone: config.pbx_timezone.clone(),
        columns: config.columns.clone(),
        clock_right_from: build_time::right_from(),
        rules: Rules {
            since: start_times(config, sources),
            ..config.rules.clone()
        },
    }
}

/// Returns the intake with the calls that were open when the process ended.
async fn restore_intake(
    settings: Settings,
    sources: Vec<SourceSettings>,
    spool: &Handle,
) -> Result<Intake, Failure> {
    let memory = read_memory(&sources, spool).await?;
    let mut intake = Intake::new(settings, sources, memory).or_fail(Code::Usage)?;
    let read = spool.read(|store| tables::resume::all_open_calls(store));
    let open = read.await?;
    let count = open.len();
    let mut aside = Vec::new();
    for (pbx, key, bytes) in open {
        if let Err(error) = intake.restore(&pbx, key, &bytes) {
            tracing::error!(
                pbx,
                key,
                error,
                "an open call cannot be restored; its data is now a dead letter `unreadable`"
            );
            aside.extend(set_aside(pbx, key, bytes, &error));
        }
    }
    if !aside.is_empty() {
        spool.write(aside).await?;
    }
    intake.was_away();
    if count > 0 {
        tracing::info!(
            calls = count,
            "continuing calls that were open when the process ended"
        );
    }
    Ok(intake)
}

/// Turns an open call that can't be restored into a dead letter so that it isn't lost, and removes
/// it from the open calls.
fn set_aside(pbx: String, key: u64, bytes: Vec<u8>, why: &str) -> [Op; 2] {
    let kept = Op::Unreadable(spool::UnreadableBytes {
        source: format!("open calls of {pbx}"),
        pbx: pbx.clone(),
        bytes,
        cut_from: None,
        file: None,
        why: format!("a call that was open when callbridge ended cannot be restored: {why}"),
        at: clock::now().wall,
        content_type: None,
    });
    let snapshot = None;
    [kept, Op::Open { pbx, key, snapshot }]
}

/// Reads these sources' gaps, unmatched channels, and last times, as stored by an earlier run.
async fn read_memory(
    sources: &[SourceSettings],
    spool: &Handle,
) -> Result<Remembered, spool::Error> {
    let gaps = spool.meta(gap_log::KEY).await?;
    let unmatched = spool.meta(unmatched::KEY).await?;
    let mut memory = Remembered {
        gaps: GapLog::restore(gaps.as_deref()).unwrap_or_else(|error| {
            tracing::error!(%error, "the list of gaps cannot be read; starting a new list");
            GapLog::default()
        }),
        unmatched: UnmatchedLog::restore(unmatched.as_deref()).unwrap_or_else(|error| {
            tracing::error!(
                %error,
                "the list of channels without a trunk cannot be read; starting a new list"
            );
            UnmatchedLog::default()
        }),
        ..Remembered::default()
    };
    for source in sources {
        let pbx = &source.pbx;
        let shown = &source.shown;
        if let Some(server) = spool.meta(callbridge_intake::server_key(pbx)).await? {
            memory.servers.insert(pbx.clone(), server);
        }
        if let Some(since) = stored_time(spool, Intake::since_key(pbx)).await? {
            memory.since.insert(pbx.clone(), since);
        }
        if let Some(received) = stored_time(spool, Intake::last_received_key(shown)).await? {
            memory.last_received.insert(shown.clone(), received);
        }
    }
    Ok(memory)
}

async fn stored_time(spool: &Handle, key: String) -> Result<Option<EventTime>, spool::Error> {
    let Some(text) = spool.meta(key.as_str()).await? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(micros) => Ok(Some(EventTime::from_micros(micros))),
        Err(_) => {
            tracing::error!(
                key,
                "a stored time cannot be read: the time since the last stop is not reported as a \
                 gap, and earlier calls are not filled in"
            );
            Ok(None)
        }
    }
}

async fn source(
    at: usize,
    flag: &SourceFlag,
    begin: Option<From>,
    spool: &Handle,
) -> Result<Source, spool::Error> {
    let shown = flag.url.to_string();
    let read = spool.read(move |store| tables::resume::position(store, &shown));
    let position = read.await?.and_then(|json| match serde_json::from_value(json) {
        Ok(position) => Some(position),
        Err(error) => {
            tracing::error!(
                %error, source = flag.url.public(),
                "the stored position of a source cannot be read: the source is read as if for the \
                 first time; use from=DATE to read what was written meanwhile"
            );
            None
        }
    });
    let mut flag = flag.clone();
    if let (Some(begin), Transport::File { from, .. }) = (begin, &mut flag.url.transport) {
        *from = begin;
    }
    Ok(source_of(at, &flag, position))
}

/// Returns a secret for sources and the broker, either as text or as the path of a file that's
/// reread on each use.
pub(crate) fn source_secret(place: Option<&SecretPlace>) -> Secret {
    match place.map(|place| (place.fixed(), place.file())) {
        Some((Some(secret), _)) => Secret::Value(secret),
        Some((None, Some(path))) => Secret::File(path.to_owned()),
        Some((None, None)) | None => Secret::None,
    }
}

/// Returns the source for this flag, whose index is `at`. Reading starts at `position`.
pub(crate) fn source_of(at: usize, flag: &SourceFlag, position: Option<FilePosition>) -> Source {
    Source::new(
        SourceId(u16::try_from(at).unwrap_or(u16::MAX)),
        flag.url.clone(),
        source_secret(flag.secret.as_ref()),
        position,
        callbridge_source::Settings::default(),
        clock::steady,
    )
}
