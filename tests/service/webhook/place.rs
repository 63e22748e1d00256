//! A receiver with its own spool, and deliveries as the CRM makes them.

use super::line::{Line, soon};
use callbridge_call::{Direction, EpochSeconds, EventTime, FinishedCall, UniqueId};
use callbridge_model::status::Books;
use callbridge_model::webhook_signature::Key;
use callbridge_model::{
    CallRecord, CallUuid, Judged, LeadId, Outcome, Secret, SecretPlace as File,
};
use callbridge_spool as spool;
use callbridge_spool::{Done, Finished, Guard, Handle, Op, RowId, Settings, Step};
use callbridge_webhook::http;
use callbridge_webhook::installations::Installations;
use callbridge_webhook::receiver::Receiver;
use callbridge_webhook::secrets::{Places, Secrets};
use callbridge_webhook::tally::Tally;
use rustls::ServerConfig;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// The application's secret.
pub const SECRET: &str = "4f1a0c9d2b7e6058a3c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071829";

/// Number of connections that the tests' receiver allows.
pub const PLACES: usize = 64;

/// A running receiver.
pub struct Place {
    pub addr: SocketAddr,
    pub spool: Handle,
    pub tally: Arc<Tally>,
    _folder: TempDir,
    guard: Guard,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Returns the current time, in seconds since the epoch.
pub fn now() -> i64 {
    callbridge_model::clock::now().wall.floor_seconds().get()
}

impl Place {
    /// Starts a receiver over plain HTTP, for company 77.
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts a receiver with these TLS settings, for company 77.
    pub async fn start_with(tls: Option<watch::Receiver<Arc<ServerConfig>>>) -> Self {
        let place = Self::start_unbound(tls).await;
        place.bind().await;
        place
    }

    /// Starts a receiver whose state is not bound to a company yet.
    pub async fn start_unbound(tls: Option<watch::Receiver<Arc<ServerConfig>>>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (spool, guard) =
            spool::open(&folder.path().join("state"), Settings::default()).expect("a spool");
        let places = Places {
            application: Some(File::Variable(Secret::from(SECRET))),
            ..Places::default()
        };
        let (secrets, _) = Secrets::new(places, None);
        let tally = Arc::new(Tally::new());
        let receiver = Arc::new(Receiver {
            spool: spool.clone(),
            secrets,
            installations: Installations::default(),
            country: None,
            clock_right_from: EventTime::from_seconds(0),
            tally: Arc::clone(&tally),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let stopped = async move { drop(stopped.await) };
        let task = tokio::spawn(http::serve(listener, tls, receiver, PLACES, stopped));
        Self {
            addr,
            spool,
            tally,
            _folder: folder,
            guard,
            stop,
            task,
        }
    }

    /// Binds the state to a company, as the first token does.
    pub async fn bind(&self) {
        let (company, application) = ("77".to_owned(), "5".to_owned());
        let bind = Op::BindCompany {
            company,
            application,
        };
        self.spool.write(vec![bind]).await.expect("bound");
    }

    /// Opens a connection.
    pub async fn line(&self) -> Line {
        Line::open(self.addr).await
    }

    /// Posts a delivery and returns the status of the answer.
    pub async fn post(&self, delivery: &Delivery) -> u16 {
        self.line().await.exchange(&delivery.request()).await
    }

    /// Stores the n-th call as sent to the CRM.
    pub async fn store_sent_call(&self, n: u32) -> RowId {
        let finish = Op::Finish(Box::new(call(n)));
        let done = self.spool.write(vec![finish]).await.expect("stored");
        let [Done::New(row)] = done[..] else {
            panic!("{done:?}");
        };
        let (step, at) = (Step::Send, EventTime::from_seconds(now()));
        let sent = Op::Step { row, step, at };
        self.spool.write(vec![sent]).await.expect("sent");
        row
    }

    pub async fn books(&self) -> Books {
        self.spool
            .read(|store| Ok(store.books()))
            .await
            .expect("readable")
    }

    /// Returns how many events had this result.
    pub fn count(&self, result: &str) -> u64 {
        let events = self.tally.events();
        let found = events.iter().filter(|((_, it), _)| *it == result);
        found.map(|(_, count)| count).sum()
    }

    /// Stops the receiver in order, and closes the spool.
    pub async fn stop(self) {
        drop(self.stop);
        soon("its end", self.task).await.expect("no panic");
        drop(self.spool);
        let guard = self.guard;
        tokio::task::spawn_blocking(move || guard.close())
            .await
            .expect("closed");
    }
}

/// Returns the n-th call's uuid.
pub fn uuid(n: u32) -> CallUuid {
    CallUuid(uuid::Uuid::from_u128(u128::from(n) + 1))
}

fn call(n: u32) -> Finished {
    let linkedid = UniqueId::new(format!("1795151317.{n}")).expect("an id");
    let start = now() - 60;
    let record = CallRecord {
        uuid: Some(uuid(n)),
        linkedid: linkedid.to_string(),
        pbx: "pbx1".into(),
        direction: Direction::Inbound,
        answered: true,
        lead_id: LeadId::new(4001),
        lead_from: None,
        trunk: Some("city".into()),
        client_phone: None,
        employee: None,
        employee_id: None,
        employees_in_order: Vec::new(),
        started_at: EpochSeconds::new(start),
        duration_sec: 5,
        talk_time_sec: 4,
        incomplete: false,
        estimate: false,
        by_hand: None,
        did: None,
    };
    let call = FinishedCall {
        linkedid: linkedid.clone(),
        also_known_as: vec![linkedid],
        direction: Direction::Inbound,
        answered: true,
        trunk: Some("city".into()),
        number: None,
        employee: None,
        employees_in_order: Vec::new(),
        started: EventTime::from_seconds(start),
        ended: EventTime::from_seconds(start + 5),
        talk: Duration::from_secs(4),
        variables: Vec::new(),
        userfields: Vec::new(),
        incomplete: None,
        estimate: false,
        by_arrival: false,
        live: true,
        remarks: Vec::new(),
        decided_by: Vec::new(),
        timeline: None,
        unmatched: Vec::new(),
        unknown_channels: Vec::new(),
        given: None,
        more_numbers: Vec::new(),
        shown_number: None,
        did: None,
    };
    let judged = Judged {
        record,
        outcome: Outcome::Journal,
        reason: None,
        message: String::new(),
        live: true,
        remarks: Vec::new(),
        judged_at: EventTime::from_seconds(start + 6),
        kept_out_unanswered: false,
    };
    Finished::new(judged, call)
}

/// A delivery as the CRM makes it, or with changes by a test.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub path: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Delivery {
    /// Returns a delivery about the n-th call's completion, signed now.
    pub fn for_call(n: u32) -> Self {
        Self::for_event(&completed_event(n), now(), SECRET)
    }

    /// Returns a delivery of this event, signed at the time `at` with this secret.
    pub fn for_event(event: &Value, at: i64, secret: &str) -> Self {
        let id = event["eventId"].as_str().unwrap_or("none");
        Self::for_body(event.to_string().into_bytes(), id, at, secret)
    }

    /// Returns a delivery with this body and the webhook id `id`, signed at the time `at` with this
    /// secret.
    pub fn for_body(body: Vec<u8>, id: &str, at: i64, secret: &str) -> Self {
        let timestamp = at.to_string();
        let signature = Key::new(&Secret::from(secret)).sign(&timestamp, &body);
        Self {
            path: "/webhooks",
            headers: vec![
                ("Content-Type", "application/json".into()),
                ("X-Webhook-Id", id.into()),
                ("X-Webhook-Installation-Id", "9001".into()),
                ("X-Webhook-Timestamp", timestamp),
                ("X-Webhook-Signature", signature),
            ],
            body,
        }
    }

    /// Returns only the head, with this length of the body.
    pub fn head(&self, length: usize) -> Vec<u8> {
        let mut head = format!("POST {} HTTP/1.1\r\nHost: here\r\n", self.path);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {length}\r\n\r\n");
        head.into_bytes()
    }

    /// Returns the whole request.
    pub fn request(&self) -> Vec<u8> {
        [self.head(self.body.len()), self.body.clone()].concat()
    }
}

/// Returns the event about the n-th call's completion.
pub fn completed_event(n: u32) -> Value {
    json!({
        "eventId": uuid::Uuid::from_u128(u128::from(n) + (1 << 100)).to_string(),
        "eventType": "CALL_COMPLETED", "occurredAt": now(), "companyId": 77,
        "call": {
            "callId": format!("oapi-{}", uuid(n)), "provider": "OPEN_API",
            "conversationKind": "CALL", "direction": "INBOUND", "answered": true,
            "leadIds": [4001],
        },
    })
}
