//! Gathers the running daemon's status for `status`, metrics, health, and systemd.

use super::collect::{self, HubView};
use super::readers::{self, Others};
use super::secret_files::SecretFiles;
use super::trunks::{self, KnownTrunks};
use super::{leadership, lists, outward::Outward, webhooks::ReceiverView};
use callbridge_admin::command_handler::audit::{DIFFERENT_KEY, UNEXPLAINED_KEY};
use callbridge_hub::forward::run::ForwardView;
use callbridge_leads::lead_field::Fit;
use callbridge_lookup::tally::Tally;
use callbridge_model::status::{
    Backlog, Books, Employees, ForwardStatus, FreeSpace, HubStatus, LeadField, LeadFields,
    OutboxStatus, Pause, Role, SecretFile, SourceState, SourceStatus, Status, Token,
};
use callbridge_model::{Grant, clock, heartbeat as pulse};
use callbridge_ops::http::Watch;
use callbridge_ops::metrics::{Durations, Observed};
use callbridge_page::Sessions;
use callbridge_spool::tables::{self, lead_requests::lead_requests_waiting};
use callbridge_spool::{self as spool, Error, Handle};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::watch;

/// Receivers and handles for reading each component's status.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    pub spool: Handle,
    /// Each source's status, in the order of the flags, which is also the order of `others` and
    /// `seen_up`.
    pub sources: watch::Receiver<Vec<SourceStatus>>,
    /// Other processes that read the same source.
    pub others: Others,
    /// The file or directory that each source reads, in the same order, or `None` for other kinds
    /// of sources.
    pub source_paths: Vec<Option<PathBuf>>,
    /// Sources that have been up at least once.
    pub seen_up: watch::Receiver<Vec<bool>>,
    /// The status of the sender and its helpers.
    pub outward: Outward,
    /// Durations measured by the components.
    pub durations: Durations,
    /// The page's sessions, whose number is reported, or `None` without a page.
    pub page_sessions: Option<Sessions>,
    /// The listener for calls from branches, or `None` without `--collect`.
    pub hub: Option<HubView>,
    /// The state of the connection to the hub, or `None` without `--forward`.
    pub forward: Option<watch::Receiver<ForwardView>>,
    /// The webhook receiver, or `None` without `--webhook-listen`.
    pub webhooks: Option<ReceiverView>,
    /// Counts of lookups by dialplans, or `None` without `--lookup`.
    pub lookups: Option<Arc<Tally>>,
    /// The states of the lists of leads and employees.
    pub lists: lists::ListStates,
    /// Errors in the files with page passwords and lookup secrets.
    pub secret_files: SecretFiles,
    /// How the extensions in the newest calls compare with the employee lists.
    pub employees: watch::Receiver<Option<Employees>>,
    /// The URLs in `--forward`.
    pub forward_hubs: Vec<String>,
    /// The trunks given by the flags.
    pub trunks: KnownTrunks,
    pub state: String,
    /// Why the last run of `--notify-command` failed.
    pub notify_problem: watch::Sender<Option<String>>,
    /// The `check` command with the arguments of `run`.
    pub check_command: Option<String>,
    /// Where to put a new token, as shown in messages.
    pub token_place: Option<String>,
}

impl Observer {
    /// Gathers the whole status and judges it.
    ///
    /// # Errors
    /// Returns an error if the spool can't be read.
    pub(crate) async fn status(&self) -> Result<Status, Error> {
        let now = clock::now().wall;
        let at = now.floor_seconds().get();
        let state = self.state.clone();
        let read = self.spool.read(move |store| {
            let kept = callbridge_ops::kept::stored_status(store, at, &state, crate::RELEASE)?;
            let fields = tables::shows::lead_fields(store, now)?;
            let calls = tables::trunk_calls::trunk_calls(store, at - trunks::DAY)?;
            let missed = tables::missed::missed_by_trunk(store)?;
            let notices = tables::outbox::notices_waiting(store)?;
            let hub = collect::read_hub(store)?;
            let leadership = leadership::read(store, Role::Leader)?;
            Ok((kept, fields, calls, missed, notices, hub, leadership))
        });
        let (kept, fields, calls, missed, notices, hub, mut leadership) = read.await?;
        let health = self.spool.health();
        if let Some(leadership) = &mut leadership {
            leadership::add_health(leadership, &health);
        }
        let (trunks, day_calls) = self.trunks.statuses(&calls, &missed);
        let books = kept.books;
        let sender = self.outward.sender.borrow().clone();
        // This pause takes precedence over the sender's, because without the disk, no call can be
        // sent or accepted.
        let pause = health
            .trouble
            .map(|error| Pause::new("disk", error.to_string()));
        let directory = self.spool.read(tables::backfill::directory_status).await?;
        let waiting = books.ready + books.sending + books.submitted;
        let forward = self.forward.as_ref().map(|view| view.borrow().clone());
        let forward_pause = forward.as_ref().and_then(|view| view.pause.clone());
        let status = Status {
            budget: sender.budget(clock::now().boot),
            // The sender's count is from its last turn, whereas the books are current.
            backlog: Backlog {
                calls: waiting,
                ..sender.backlog
            },
            sources: self.source_statuses(),
            lead_fields: fields.map(|fields| lead_fields(&fields, &sender.token)),
            token: Token {
                print: sender.token_print.map(|print| print.to_string()),
                ..sender.token
            },
            pause: pause.or(sender.pause).or(forward_pause),
            hub: self.hub.as_ref().map(|view| HubStatus {
                paused_branches: sender.paused_branches,
                ..view.status(hub, clock::now())
            }),
            leadership,
            forward: forward.map(|view| forward_status(&view, &self.forward_hubs, &books)),
            degraded: sender.degraded,
            webhooks: self.webhooks.as_ref().map(ReceiverView::status),
            directory,
            lists: self.lists.borrow().values().cloned().collect(),
            secret_files: self.secret_files(),
            employees: self.employees.borrow().clone().or(kept.employees),
            check_command: self.check_command.clone(),
            token_place: self.token_place.clone(),
            trunks,
            day_calls,
            outboxes: self.outboxes(notices),
            notify_problem: self.notify_problem.borrow().clone(),
            ..kept
        };
        Ok(status.judged())
    }

    /// Returns the dead letter outbox with its number of waiting notices, if there's a queue.
    fn outboxes(&self, notices: u64) -> Vec<OutboxStatus> {
        let queue = self.outward.dead_letter_queue.iter();
        let outboxes = queue.map(|problem| OutboxStatus {
            name: "dead_letters".to_owned(),
            messages: notices,
            problem: problem.borrow().clone(),
        });
        outboxes.collect()
    }

    fn secret_files(&self) -> Vec<SecretFile> {
        let mut shown = self.secret_files.problems();
        if let Some(webhooks) = &self.webhooks {
            shown.extend(webhooks.secret_files());
        }
        shown
    }

    /// Returns the names of the loops that haven't completed a turn for longer than `longer_than`.
    pub(crate) fn stalled(&self, longer_than: Duration) -> Vec<&'static str> {
        pulse::stalled(&self.outward.vitals, clock::now().boot, longer_than)
    }

    /// Returns `true` if lead requests are in flight, or are waiting and could be sent now.
    pub(crate) async fn has_lead_requests(&self) -> bool {
        let (paused, grants) = {
            let sender = self.outward.sender.borrow();
            (sender.pause.is_some(), sender.token.grants.clone())
        };
        if paused {
            return false;
        }
        // If the record doesn't list any grants, there's no telling which ones the token has.
        let can_read = grants.is_empty() || Grant::LeadRead.is_among(&grants);
        let can_save = grants.is_empty() || Grant::LeadSave.is_among(&grants);
        let now = clock::now().wall;
        let waiting = self
            .spool
            .read(move |store| lead_requests_waiting(store, now));
        match waiting.await {
            Ok((lookups, fields)) => (can_read && lookups > 0) || (can_save && fields > 0),
            Err(_) => false,
        }
    }

    /// Returns each source's status, including its other readers and the free space for its files.
    fn source_statuses(&self) -> Vec<SourceStatus> {
        let mut sources = readers::with_readers(self.sources.borrow().clone(), &self.others);
        for (source, path) in sources.iter_mut().zip(&self.source_paths) {
            source.space = path.as_deref().and_then(FreeSpace::of);
        }
        sources
    }

    /// Returns how many messages have been received by sources other than files, or `None` until
    /// each of these has been up. `is_file` has one value per source.
    pub(crate) fn received_on_lines(&self, is_file: &[bool]) -> Option<u64> {
        let sources = self.sources.borrow();
        let seen_up = self.seen_up.borrow();
        let mut received = 0;
        for ((source, was_up), is_file) in sources.iter().zip(seen_up.iter()).zip(is_file) {
            if *is_file {
                continue;
            }
            if !was_up {
                return None;
            }
            received += source.read + source.skipped + source.unreadable;
        }
        Some(received)
    }

    /// Returns `true` if every file has been read to its end. Other sources have no end, so they're
    /// ignored. `is_file` has one value per source.
    pub(crate) fn files_are_read(&self, is_file: &[bool]) -> bool {
        let sources = self.sources.borrow();
        let mut files = sources.iter().zip(is_file).filter(|(_, is_file)| **is_file);
        sources.len() == is_file.len() && files.all(|(s, _)| s.state == SourceState::Done)
    }
}

impl Watch for Observer {
    async fn observe(&self) -> Result<Observed, String> {
        let status = self.status().await.map_err(failed_scrape)?;
        let read = self.spool.read(|store| Ok(store.counters()));
        let counters = read.await.map_err(failed_scrape)?;
        let unexplained = self
            .spool
            .meta(UNEXPLAINED_KEY)
            .await
            .map_err(failed_scrape)?;
        let different = self
            .spool
            .meta(DIFFERENT_KEY)
            .await
            .map_err(failed_scrape)?;
        let mut requests = self.outward.sender.borrow().requests.clone();
        requests.extend(self.outward.token_requests.borrow().clone());
        Ok(Observed {
            status,
            counters,
            requests,
            log_lines_lost: callbridge_ops::log::lost_lines(),
            webhooks: self
                .webhooks
                .as_ref()
                .map(|webhooks| webhooks.tally.events()),
            branch_refusals: self.hub.as_ref().map(|hub| hub.tally.refusals()),
            lookups: self.lookups.as_ref().map(|tally| tally.counts()),
            durations: self.durations.clone(),
            audit_unexplained: unexplained.and_then(|text| text.parse().ok()),
            audit_different: different.and_then(|text| text.parse().ok()),
            page_sessions: self.page_sessions.as_ref().map(Sessions::count),
            release: crate::RELEASE,
        })
    }

    fn not_ready(&self) -> Vec<String> {
        let sources = self.sources.borrow();
        let seen_up = self.seen_up.borrow();
        let waiting = sources.iter().zip(seen_up.iter()).filter(|(_, up)| !**up);
        let reasons = waiting.map(|(source, _)| format!("{} has not been up yet", source.name()));
        let trouble = self.spool.health().trouble;
        let trouble = trouble.map(|error| format!("nothing can be stored: {error}"));
        reasons.chain(trouble).collect()
    }
}

/// Logs why a scrape doesn't have any values, and returns the reason.
fn failed_scrape(error: Error) -> String {
    tracing::warn!(%error, "the books cannot be read for a scrape");
    format!("the books cannot be read: {error}")
}

/// Returns the collector's part of `status`.
fn forward_status(view: &ForwardView, hubs: &[String], books: &Books) -> ForwardStatus {
    let mut status = ForwardStatus {
        hubs: hubs.to_vec(),
        hub: view.hub.clone(),
        forwarded: books.forwarded,
        ready: books.ready,
        reason: view.pause.as_ref().map(|pause| pause.fix.clone()),
        answered_at: view.answered_at,
        ..ForwardStatus::default()
    };
    if let Some(position) = &view.position {
        status.incarnation.clone_from(&position.incarnation);
        status.seq = position.seq;
    }
    status
}

pub(crate) fn lead_fields(fields: &spool::LeadFields, token: &Token) -> LeadFields {
    let listed = fields.fields.iter().map(|(name, id, fit)| LeadField {
        name: name.word().to_owned(),
        id: id.get(),
        ok: fit.as_ref().is_none_or(Fit::is_writable),
        message: match fit {
            Some(fit) => fit.to_string(),
            None => "not checked yet".to_owned(),
        },
    });
    let unchecked = fields.fields.iter().any(|(_, _, fit)| fit.is_none());
    // If the record doesn't list any grants, there's no telling which ones the token has.
    let barred = !token.grants.is_empty() && !Grant::LeadSave.is_among(&token.grants);
    let (state, reason) = match &fields.rests {
        _ if barred => ("off", Some(format!("the token lacks {}", Grant::LeadSave))),
        Some(rest) => ("off", Some(rest.reason.clone())),
        None if unchecked => ("unchecked", None),
        None => ("ok", None),
    };
    let rest = if barred { None } else { fields.rests.as_ref() };
    LeadFields {
        state: state.to_owned(),
        reason,
        until: rest.map(|rest| rest.until.floor_seconds().get()),
        waiting: fields.waiting,
        fields: listed.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_leads::lead_field::{FieldId, Fit, Name};

    fn field_id(id: i64) -> FieldId {
        FieldId::new(id).expect("an id")
    }

    #[test]
    fn unwritable_lead_field_and_missing_grant_are_shown() {
        let fields = spool::LeadFields {
            fields: vec![
                (Name::LastCall, field_id(11), Some(Fit::Led)),
                (Name::LastMissed, field_id(99), Some(Fit::Unknown)),
            ],
            waiting: 2,
            rests: None,
        };
        let all = lead_fields(&fields, &Token::default());
        assert_eq!((all.state.as_str(), all.waiting), ("ok", 2));
        let ok: Vec<bool> = all.fields.iter().map(|field| field.ok).collect();
        assert_eq!(ok, [true, false]);
        let token = Token {
            grants: vec![Grant::CallSave.to_string()],
            ..Token::default()
        };
        let barred = lead_fields(&fields, &token);
        assert_eq!(barred.state, "off");
        assert!(
            barred
                .reason
                .is_some_and(|reason| reason.contains("LEAD:SAVE"))
        );
    }
}
