//! What becomes of a request whose task fails in the middle of it, or whose turn it is not? And of
//! what another has sent before it was?

use super::*;
use crate::Task;
use crate::crm_proxy::asking;
use callbridge_crm::{Address, Request, Setup};
use callbridge_model::{Judged, Outcome, Permit, Reason};
use callbridge_sandbox as sandbox;
use callbridge_spool::{Done, Finished, Row, RowId, SlotRow, State, tables};
use callbridge_testkit::Wait as _;
use callbridge_testkit::sample;
use tempfile::TempDir;

/// No test takes so long unless something is wrong.
const DEADLINE: Duration = Duration::from_secs(60);

/// A sender whose loop the test turns, and whom it asks.
struct Stage {
    work: Loop,
    _folder: TempDir,
    guard: callbridge_spool::Guard,
    crm: Arc<sandbox::Server>,
}

impl Stage {
    async fn begin() -> Self {
        Self::with(Permit::unlimited()).await
    }

    /// Whose requests leave only with this leave.
    async fn with(permit: Permit) -> Self {
        let mut config = sandbox::Config::default();
        config.settings.persist_after = Duration::from_millis(10);
        config.settings.persist_jitter = Duration::ZERO;
        let crm = sandbox::start(config).await.expect("started");
        Self::beside(Arc::new(crm), permit).await
    }

    /// Another of the same CRM.
    async fn beside(crm: Arc<sandbox::Server>, permit: Permit) -> Self {
        // whoever comes second finds it installed, which is as good
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let (spool, guard) =
            callbridge_spool::open(folder.path(), callbridge_spool::Settings::default())
                .expect("a new state");
        let address = Address::parse(&crm.url()).expect("loopback");
        let sender = Sender {
            spool,
            client: Arc::new(Client::new(Setup {
                permit,
                ..Setup::new(address)
            })),
            token: TokenSource::Fixed(Secret::from("svc_pat_sandbox".to_owned())),
            settings: Settings::default(),
            request_times: Box::new(|_| {}),
            questions: asking().1,
            pulse: Heartbeat::new("sender"),
            lease: None,
        };
        let (status, _) = watch::channel(SenderStatus::default());
        let work = sender.open(status).await.expect("readable");
        Self {
            work,
            _folder: folder,
            guard,
            crm,
        }
    }

    async fn row(&self, row: RowId) -> Row {
        let read = self
            .work
            .with
            .spool
            .read(move |store| tables::calls::row(store, row))
            .await;
        read.expect("readable").expect("a row")
    }

    /// Turns the loop until it is so.
    async fn until(&mut self, so: impl Fn(&Loop) -> bool) {
        let turning = async {
            while !so(&self.work) {
                let until = self.work.turn().await.expect("a spool");
                let far = Duration::from_secs(3600);
                let wait = until.map_or(far, |at| at.saturating_sub(clock::now().boot));
                let wait = wait.min(SPOOL_AGAIN); // the spool may have changed
                tokio::select! {
                    Some(answered) = self.work.in_flight.join_next_with_id() => {
                        self.work.answered(answer_or_lost(answered));
                    }
                    () = tokio::time::sleep(wait) => {}
                }
            }
        };
        if timeout(DEADLINE, turning).await.is_err() {
            let rows = self
                .work
                .with
                .spool
                .read(|store| tables::calls::oldest(store, 9))
                .await;
            panic!("not in time: {rows:?}");
        }
    }

    /// A call has come.
    async fn told(&self) -> RowId {
        let told = vec![Op::Finish(Box::new(journaled()))];
        let done = self.work.with.spool.write(told);
        let [Done::New(row)] = done.await.expect("stored")[..] else {
            panic!("not new");
        };
        row
    }

    /// A call has come that a state before this one may have sent; its lead is not known here.
    async fn told_anew(&self) -> RowId {
        let mut told = journaled();
        let uuid = told.judged.record.uuid.expect("a uuid");
        told.judged.record.lead_id = None;
        told.judged.outcome = Outcome::DeadLetter;
        told.judged.reason = Some(Reason::NoLead);
        let possibly_sent = Op::PeerOutcome(PeerOutcome::PossiblySent(uuid));
        let told = vec![Op::Finish(Box::new(told)), possibly_sent];
        let done = self.work.with.spool.write(told).await.expect("stored");
        let Done::New(row) = done[0] else {
            panic!("not new");
        };
        row
    }

    /// Requests of this kind that the CRM has answered, whoever sent them.
    fn asked(&self, wanted: sandbox::routes::Endpoint) -> u64 {
        self.crm.admin(|core, _| {
            let counts = core.counts().iter();
            let of = counts.filter(|((endpoint, _), _)| *endpoint == wanted);
            of.map(|(_, count)| *count).sum()
        })
    }

    /// A call whose request is made, and whose step and slot are committed; nothing was sent yet.
    async fn launched(&mut self) -> (RowId, u32, Request) {
        let row = self.told().await;
        let ask = self.work.core.ask(clock::now());
        let head = self
            .work
            .with
            .spool
            .read(move |store| tables::work_queue::head(store, &ask))
            .await;
        let head = head.expect("readable");
        let Decision::Send(plan) = self.work.core.next(clock::now(), &head) else {
            panic!("nothing to send");
        };
        assert_eq!(plan.task, Task::Submit(row));
        let slot = plan.slot;
        let task = plan.task.clone();
        let about = move |store: &Store, ask: &QueueQuery| task.about(store, ask);
        let about = self.work.read(clock::now(), about).await.expect("open");
        let about = about.expect("readable");
        let launch = self.work.core.launch(clock::now(), plan, about);
        let Launch {
            request: Some((request, _)),
            ops,
        } = launch
        else {
            panic!("not sent");
        };
        self.work.with.spool.write(ops).await.expect("stored");
        assert_eq!(self.row(row).await.state, State::Sending);
        (row, slot, request)
    }

    async fn slots(&self) -> Vec<SlotRow> {
        let slots = self
            .work
            .with
            .spool
            .read(|store| tables::slots::slots(store));
        slots.await.expect("readable")
    }
}

fn journaled() -> Finished {
    let call = sample::call();
    let judged = Judged {
        live: true,
        ..Judged::journaled(sample::record(), call.ended)
    };
    Finished::new(judged, call)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_task_panics_has_lost_its_answer_and_its_call_is_journaled_all_the_same() {
    let mut stage = Stage::begin().await;
    stage.until(|work| !work.core.gate.is_probing()).await;
    let (row, slot, _) = stage.launched().await;
    stage.work.start(slot, async { panic!("a bug") });

    let answered = stage.work.in_flight.join_next_with_id().await;
    stage.work.answered(answer_or_lost(answered.expect("one")));
    assert_eq!(stage.work.core.in_flight.by_slot.len(), 0);
    assert!(stage.work.tasks.is_empty());
    assert!(stage.work.write_back().await.expect("open"));
    let lost = stage.row(row).await;
    assert_ne!(lost.state, State::Sending);
    let words = &lost.attempts.last().expect("an attempt").words;
    assert!(words.contains("callbridge failed"), "{words}");
    let slots = stage.slots().await;
    let stored = slots.iter().find(|it| it.slot == slot).expect("kept");
    assert!(stored.answered.is_some(), "it counts no longer than others");

    stage.until(is_journaled).await;
    assert_eq!(stage.row(row).await.state, State::Journaled);
    drop(stage.work);
    stage.guard.close();
}

fn is_journaled(work: &Loop) -> bool {
    let books =
        tokio::task::block_in_place(|| work.with.spool.read(|store| Ok(store.books())).wait());
    books.expect("readable").journaled == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_leave_ended_before_its_bytes_left_was_not_sent_and_waits_for_leave() {
    let permit = Permit::withheld();
    let far = Some(Duration::from_secs(1 << 40));
    permit.set(clock::now(), far);
    let mut stage = Stage::with(permit.clone()).await;
    stage.until(|work| !work.core.gate.is_probing()).await;
    let (row, slot, request) = stage.launched().await;
    let before = stage
        .crm
        .admin(|core, _| core.counts().values().sum::<u64>());
    permit.set(clock::now(), None);
    let client = Arc::clone(&stage.work.with.client);
    let token = Secret::from("svc_pat_sandbox".to_owned());
    let sent = async move { client.send(&request, &token).await };
    stage.work.start(slot, sent);
    let answered = stage.work.in_flight.join_next_with_id().await;
    stage.work.answered(answer_or_lost(answered.expect("one")));

    assert!(stage.work.write_back().await.expect("open"));
    let back = stage.row(row).await;
    assert_eq!((back.state, back.attempts.len()), (State::Ready, 0));
    assert!(stage.slots().await.iter().all(|it| it.slot != slot));
    assert_eq!(stage.work.core.in_flight.by_slot.len(), 0);
    // and nothing is chosen before leave is there again
    stage.work.turn().await.expect("a spool");
    assert_eq!(stage.work.core.in_flight.by_slot.len(), 0);
    let after = stage
        .crm
        .admin(|core, _| core.counts().values().sum::<u64>());
    assert_eq!(after, before);

    permit.set(clock::now(), far);
    stage.until(is_journaled).await;
    drop(stage.work);
    stage.guard.close();
}

/// The one before has died with its outcomes untold: only the journal knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_holder_before_has_sent_is_found_in_the_journal_when_our_turn_comes() {
    use sandbox::routes::Endpoint;
    let mut before = Stage::begin().await;
    before.told().await;
    before.until(is_journaled).await;
    let permit = Permit::withheld();
    let mut stage = Stage::beside(Arc::clone(&before.crm), permit.clone()).await;
    let row = stage.told().await;
    stage.work.turn().await.expect("a spool");
    assert_eq!(stage.row(row).await.state, State::Ready);
    let both = [Endpoint::CallHistory, Endpoint::Filter];
    let asked = both.map(|it| stage.asked(it));

    permit.set(clock::now(), Some(Duration::from_secs(1 << 40)));
    stage.until(is_journaled).await;
    let found = stage.row(row).await;
    let words = &found.attempts.last().expect("an attempt").words;
    assert!(words.contains("found in the CRM's journal"), "{words}");
    let [submitted, pages] = both.map(|it| stage.asked(it));
    assert_eq!((submitted, pages), (asked[0], asked[1] + 1));
    for stage in [before, stage] {
        drop(stage.work);
        stage.guard.close();
    }
}

/// Nothing else waits, and its lead was given by a person whom nobody asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_call_of_a_fresh_state_is_looked_for_though_nothing_is_to_be_sent() {
    use sandbox::routes::Endpoint;
    let mut before = Stage::begin().await;
    before.told().await;
    before.until(is_journaled).await;
    let mut stage = Stage::beside(Arc::clone(&before.crm), Permit::unlimited()).await;
    let row = stage.told_anew().await;
    assert_eq!(stage.row(row).await.state, State::Parked);
    let submitted = stage.asked(Endpoint::CallHistory);
    stage.until(is_journaled).await;
    assert_eq!(stage.row(row).await.state, State::Journaled);
    assert_eq!(stage.asked(Endpoint::CallHistory), submitted);
    for stage in [before, stage] {
        drop(stage.work);
        stage.guard.close();
    }
}
