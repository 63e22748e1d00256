//! Tests the sender's loop with a spool on disk, the sandbox behind a socket, and the token in a
//! file.

use crate::support::simulated_calls::call;
use callbridge_crm::{Address, Client, Setup};
use callbridge_model::clock;
use callbridge_model::status::Books;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::Server;
use callbridge_sandbox::faults::parse;
use callbridge_sender::{Sender, SenderStatus, Settings, TokenSource, question_channel};
use callbridge_spool as spool;
use callbridge_spool::{Guard, Handle, Op};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// A wait that takes this long has failed.
const DEADLINE: Duration = Duration::from_secs(180);

const TOKEN: &str = "svc_pat_sandbox";

async fn crm() -> Server {
    let mut config = sandbox::Config::default();
    config.settings.rate = sandbox::window::parse_rate("60/6s").expect("a rate");
    config.settings.persist_after = Duration::from_millis(100);
    config.settings.persist_jitter = Duration::ZERO;
    sandbox::start(config).await.expect("started")
}

/// A running sender.
struct Work {
    spool: Handle,
    guard: Guard,
    status: watch::Receiver<SenderStatus>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), spool::Error>>,
}

impl Work {
    fn start(dir: &Path, crm: &Server) -> Self {
        // An error means that another test has already installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (spool, guard) =
            spool::open(&dir.join("state"), spool::Settings::default()).expect("opened");
        let address = Address::parse(&crm.url()).expect("loopback");
        let sender = Sender {
            pulse: callbridge_model::Heartbeat::new("sender"),
            spool: spool.clone(),
            client: Arc::new(Client::new(Setup::new(address))),
            token: TokenSource::File(dir.join("token")),
            settings: Settings {
                rate: "60/6s".parse().expect("a rate"),
                ..Settings::default()
            },
            request_times: Box::new(|_| {}),
            questions: question_channel().1,
        };
        let (shown, status) = watch::channel(SenderStatus::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(sender.run(shown, async move {
            let _ = stopped.await;
        }));
        Self {
            spool,
            guard,
            status,
            stop,
            task,
        }
    }

    /// Waits until the books meet a condition.
    async fn wait_for_books(&self, so: impl Fn(&Books) -> bool) -> Books {
        let mut changed = self.spool.changed();
        let waiting = async {
            loop {
                let books = self
                    .spool
                    .read(|store| Ok(store.books()))
                    .await
                    .expect("books");
                if so(&books) {
                    return books;
                }
                changed.changed().await.expect("the spool works");
            }
        };
        tokio::time::timeout(DEADLINE, waiting)
            .await
            .expect("in time")
    }

    /// Waits until the status meets a condition.
    async fn wait_for_status(&mut self, so: impl Fn(&SenderStatus) -> bool) {
        let waiting = self.status.wait_for(|status| so(status));
        tokio::time::timeout(DEADLINE, waiting)
            .await
            .expect("in time")
            .expect("at work");
    }

    async fn finish(&self, n: std::ops::Range<u32>) {
        for n in n {
            let call = call(n, clock::now().wall, 4001, true);
            self.spool
                .write(vec![Op::Finish(Box::new(call))])
                .await
                .expect("kept");
        }
    }

    async fn stop(self) {
        self.stop.send(()).expect("at work");
        self.task.await.expect("no panic").expect("ended well");
        self.guard.close();
    }

    /// Ends the sender as a kill would: nothing more is written.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
        self.guard.close();
    }
}

fn write_token(dir: &Path) {
    std::fs::write(dir.join("token"), TOKEN).expect("written");
}

fn reason(status: &SenderStatus) -> Option<&str> {
    status.pause.as_ref().map(|pause| pause.reason.as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_a_burst_is_journaled_once_within_the_limit() {
    let (crm, dir) = (crm().await, tempfile::tempdir().expect("a folder"));
    write_token(dir.path());
    let work = Work::start(dir.path(), &crm);
    work.finish(0..50).await;
    let books = work.wait_for_books(|books| books.journaled == 50).await;
    assert_eq!((books.finished, books.settled()), (50, true));
    assert_eq!(crm.journal().len(), 50);
    assert_eq!(crm.violations(), []);
    let shown = work.status.borrow().clone();
    for (endpoint, verdict, count) in [
        ("submit", "submitted", 50),
        ("token_info", "token_valid", 1),
    ] {
        let key = (endpoint.to_owned(), verdict.to_owned());
        assert_eq!(shown.requests.get(&key).copied(), Some(count), "{endpoint}");
    }
    assert_eq!(
        (shown.token.state.as_str(), shown.token.kind.as_deref()),
        ("ok", Some("PAT"))
    );
    assert_eq!(shown.budget(clock::now().boot).limit, 60);
    work.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_token_is_used_and_refused_token_is_replaced() {
    let (crm, dir) = (crm().await, tempfile::tempdir().expect("a folder"));
    let mut work = Work::start(dir.path(), &crm);
    work.finish(0..2).await;
    work.wait_for_status(|status| reason(status) == Some("token_missing"))
        .await;
    write_token(dir.path());
    work.wait_for_books(|books| books.journaled == 2).await;
    crm.admin(|core, _| core.revoke_all());
    work.finish(2..4).await;
    work.wait_for_status(|status| reason(status) == Some("token_refused"))
        .await;
    assert_eq!(work.status.borrow().token.state, "refused");
    crm.admin(|core, now| core.issue_pat(now, "svc_pat_next", None));
    std::fs::write(dir.path().join("token"), "svc_pat_next\n").expect("written");
    work.wait_for_books(|books| books.journaled == 4).await;
    assert_eq!(crm.violations(), []);
    work.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_finishes_pending_request_and_commits_answer() {
    let (crm, dir) = (crm().await, tempfile::tempdir().expect("a folder"));
    let (rules, _) = parse("call-history delay 700ms").expect("a rule");
    crm.admin(|core, _| core.set_faults(rules));
    write_token(dir.path());
    let work = Work::start(dir.path(), &crm);
    work.finish(0..1).await;
    work.wait_for_books(|books| books.sending == 1).await;
    let spool = work.spool.clone();
    work.stop.send(()).expect("at work");
    work.task.await.expect("no panic").expect("ended well");
    let books = spool.read(|store| Ok(store.books())).await.expect("books");
    assert_eq!((books.sending, books.submitted), (0, 1));
    work.guard.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_cut_by_kill_is_found_in_journal_and_not_resent() {
    let (crm, dir) = (crm().await, tempfile::tempdir().expect("a folder"));
    let (rules, _) = parse("call-history times 1 delay 20s").expect("a rule");
    crm.admin(|core, _| core.set_faults(rules));
    write_token(dir.path());
    let work = Work::start(dir.path(), &crm);
    work.finish(0..3).await;
    work.wait_for_books(|books| books.journaled == 2 && books.sending == 1)
        .await;
    work.kill().await;
    let work = Work::start(dir.path(), &crm);
    work.wait_for_books(|books| books.journaled == 3).await;
    assert_eq!(crm.journal().len(), 3);
    let counters = work
        .spool
        .read(|store| Ok(store.counters()))
        .await
        .expect("counters");
    assert_eq!(counters.get("interrupted_requests"), Some(&1));
    assert_eq!(crm.violations().len(), 0);
    work.stop().await;
}
