//! Every question of the page, handed to whoever knows the answer.

use super::LOOK_EVERY;
use super::figures::Week;
use crate::daemon::observer::Observer;
use callbridge_control::CommandHandler;
use callbridge_control::protocol::MissedView;
use callbridge_control::refusal::Refusal;
use callbridge_intake::Settings as IntakeSettings;
use callbridge_model::exit::Code;
use callbridge_model::{Status, Zone};
use callbridge_page::backend::{
    Acted, Backend, BackendAnswer, BackendRefusal, CallPage, CallQuery, CallView, CheckFinding,
    EmployeeFigures, Figures, GivenLead, LetterAction, LetterPage, LetterQuery, NumberView,
    OpenCallView, PbxView, RefusalKind, Span,
};
use callbridge_spool::{Handle, Op, tables};
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Under which name the spool keeps the sessions.
const SESSIONS: &str = "page.sessions";

/// The daemon, as the page sees it.
pub(crate) struct DaemonBackend {
    pub(super) spool: Handle,
    pub(super) observer: Arc<Observer>,
    pub(super) handler: Arc<CommandHandler>,
    pub(super) intake: IntakeSettings,
    pub(super) zone: Zone,
    zone_name: String,
    instance: String,
    /// What `run` was given, for `check`.
    pub(super) arguments: Vec<OsString>,
    pub(super) week: Mutex<Week>,
    changes: watch::Sender<u64>,
}

/// What the backend is made of.
pub(crate) struct BackendParts {
    pub observer: Arc<Observer>,
    pub handler: Arc<CommandHandler>,
    pub intake: IntakeSettings,
    /// The zone of the PBX, where one is known.
    pub zone: Option<String>,
    /// Parts the cookies of two pages on one host.
    pub instance: String,
    /// What `run` was given.
    pub arguments: Vec<OsString>,
}

impl DaemonBackend {
    pub(crate) fn new(parts: BackendParts) -> Self {
        let named = parts.zone.as_deref().and_then(Zone::named);
        let zone_name = match (&named, &parts.zone) {
            (Some(_), Some(name)) => name.clone(),
            (None, _) | (_, None) => own_zone(),
        };
        Self {
            spool: parts.observer.spool.clone(),
            observer: parts.observer,
            handler: parts.handler,
            intake: parts.intake,
            zone: named.unwrap_or_else(|| Zone::of(None)),
            zone_name,
            instance: parts.instance,
            arguments: parts.arguments,
            week: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    /// Counts up when a call moved or how a source is doing changed, while somebody looks.
    pub(crate) async fn look(self: Arc<Self>) -> anyhow::Result<()> {
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut last = None;
        loop {
            look.tick().await;
            // the page itself holds one, each live view another
            if self.changes.receiver_count() <= 1 {
                continue;
            }
            let moves = self.spool.read(|store| {
                let open = tables::open_calls::open_call_count(store)?;
                Ok((store.moves_so_far(), store.letters_so_far(), open))
            });
            let Ok(moves) = moves.await else { continue };
            let used = self.observer.sender.borrow().requests.clone();
            let states = self.observer.sources.states.borrow().clone();
            let states: Vec<_> = states.into_iter().map(|it| it.state).collect();
            let now = Some((moves, used, states));
            if now != last {
                last = now;
                self.changes.send_modify(|count| *count += 1);
            }
        }
    }
}

/// The zone of this machine, where no other is known.
fn own_zone() -> String {
    let zone = jiff::tz::TimeZone::system();
    zone.iana_name().unwrap_or("UTC").to_owned()
}

/// What the daemon refuses, as the page tells it.
pub(super) fn broken(refusal: impl Into<Refusal>) -> BackendRefusal {
    let Refusal { code, words } = refusal.into();
    let kind = match Code::of_number(code) {
        Code::Usage => RefusalKind::Input,
        Code::Input | Code::NoInput => RefusalKind::Unknown,
        _ => RefusalKind::Unavailable,
    };
    BackendRefusal { kind, words }
}

impl Backend for DaemonBackend {
    fn status(&self) -> BackendAnswer<'_, Status> {
        Box::pin(async { self.observer.status().await.map_err(broken) })
    }

    fn today(&self) -> BackendAnswer<'_, Figures> {
        Box::pin(super::figures::figures(self))
    }

    fn under_way(&self) -> BackendAnswer<'_, Vec<OpenCallView>> {
        Box::pin(super::calls::open_calls(self))
    }

    fn calls(&self, query: CallQuery) -> BackendAnswer<'_, CallPage> {
        Box::pin(super::calls::call_page(self, query))
    }

    fn call(&self, uuid: String) -> BackendAnswer<'_, Option<CallView>> {
        Box::pin(super::calls::one_call(self, uuid))
    }

    fn letters(&self, query: LetterQuery) -> BackendAnswer<'_, LetterPage> {
        Box::pin(super::letters::letter_page(self, query))
    }

    fn letter_ids(&self, query: LetterQuery) -> BackendAnswer<'_, Vec<u64>> {
        Box::pin(super::letters::ids_of_letters(self, query))
    }

    fn act<'a>(
        &'a self,
        action: &'a LetterAction,
        ids: &'a [u64],
        who: &'a str,
    ) -> BackendAnswer<'a, Vec<Acted>> {
        Box::pin(super::letters::act_on(self, action, ids, who))
    }

    fn numbers(&self) -> BackendAnswer<'_, Vec<NumberView>> {
        Box::pin(super::leads::numbers_without_lead(self))
    }

    fn give_lead<'a>(
        &'a self,
        phone: &'a str,
        lead: &'a str,
        who: &'a str,
    ) -> BackendAnswer<'a, u64> {
        Box::pin(super::leads::lead_given(self, phone, lead, who))
    }

    fn take_lead<'a>(&'a self, phone: &'a str, _who: &'a str) -> BackendAnswer<'a, ()> {
        Box::pin(super::leads::lead_taken(self, phone))
    }

    fn given_leads(&self) -> BackendAnswer<'_, Vec<GivenLead>> {
        Box::pin(super::leads::leads_given(self))
    }

    fn missed(&self) -> BackendAnswer<'_, Vec<MissedView>> {
        Box::pin(async { self.handler.missed_customers(None).await.map_err(broken) })
    }

    fn employees(&self, span: Span) -> BackendAnswer<'_, Vec<EmployeeFigures>> {
        Box::pin(super::people::employee_figures(self, span))
    }

    fn pbx(&self) -> BackendAnswer<'_, PbxView> {
        Box::pin(super::people::pbx_view(self))
    }

    fn check(&self) -> BackendAnswer<'_, Vec<CheckFinding>> {
        Box::pin(super::trial::checked(self))
    }

    fn kept_sessions(&self) -> BackendAnswer<'_, Option<String>> {
        let kept = self.spool.read(|store| tables::meta::meta(store, SESSIONS));
        Box::pin(async { kept.await.map_err(broken) })
    }

    fn keep_sessions(&self, sessions: String) -> BackendAnswer<'_, ()> {
        let op = Op::Meta {
            key: SESSIONS.to_owned(),
            value: sessions,
        };
        Box::pin(async { self.spool.write(vec![op]).await.map(drop).map_err(broken) })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn zone(&self) -> String {
        self.zone_name.clone()
    }

    fn instance(&self) -> String {
        self.instance.clone()
    }
}
