//! A company: its CRM with one token, its stream, and those who send for it.

use crate::broker::{self, VHOST};
use crate::cluster::SENDER;
use crate::line::{Cabling, TappedLine};
use crate::program::{Place, TOKEN};
use crate::unit::FleetUnit;
use crate::wait::until;
use callbridge_sandbox as sandbox;
use callbridge_sandbox::Server;
use callbridge_sandbox::window::Rate;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Requests of a window, in the CRM and of all senders of a token together.
pub const RATE: Rate = Rate {
    requests: 60,
    window: Duration::from_secs(6),
};
/// [`RATE`] as a flag.
pub const RATE_FLAG: &str = "--rate=60/6s";
/// The leads of each company: those of the sandbox.
pub const LEADS: i64 = 900;

/// Who sends, and the lines that can be cut.
pub struct SendingUnit {
    pub unit: FleetUnit,
    pub brokers: Cabling,
    pub crm: TappedLine,
}

/// See the module.
pub struct Company {
    pub number: usize,
    pub stream: String,
    pub crm: Server,
    pub limit: u32,
    pub senders: Vec<SendingUnit>,
    /// A holder without a way to the CRM has handed the lease over; the next may have to wait.
    pub handed_over: AtomicBool,
    /// Messages that nobody can read lie in its stream.
    pub flooded: AtomicBool,
}

impl Company {
    /// With its CRM and so many senders, none of which is started; several stand by for each
    /// other.
    pub async fn set(number: usize, brokers: &[SocketAddr], senders: usize) -> Self {
        let mut config = sandbox::Config {
            token: TOKEN.into(),
            ..sandbox::Config::default()
        };
        config.settings.rate = RATE;
        config.settings.persist_after = Duration::from_millis(500);
        config.settings.persist_jitter = Duration::from_millis(200);
        let crm = sandbox::start(config).await.expect("a sandbox");
        let mut company = Self {
            number,
            stream: format!("calls-{number}"),
            crm,
            limit: RATE.requests,
            senders: Vec::new(),
            handed_over: AtomicBool::new(false),
            flooded: AtomicBool::new(false),
        };
        for n in 0..senders {
            let standby = (senders > 1).then(|| format!("--standby=lease-{number}"));
            let sender = company.sender(n, brokers, standby).await;
            company.senders.push(sender);
        }
        company
    }

    async fn sender(
        &self,
        n: usize,
        brokers: &[SocketAddr],
        standby: Option<String>,
    ) -> SendingUnit {
        let brokers = Cabling::to(brokers).await;
        let crm = TappedLine::to(self.crm.addr()).await;
        let place = Place::new();
        let secret = place.write("secret", broker::SECRET);
        // Each begins with another node.
        let hosts = brokers.hosts(self.number + n);
        let source = format!(
            "--source=amqp://{SENDER}@{hosts}/{VHOST}?stream={}&format=call&secret-file={secret}\
             &heartbeat=4",
            self.stream
        );
        let mut arguments = vec![
            "run".to_owned(),
            source,
            format!("--crm-url=http://{}", crm.addr()),
            format!("--token-file={}", place.path("token")),
            format!("--state={}", place.path("state")),
            RATE_FLAG.to_owned(),
        ];
        arguments.extend(standby);
        let name = format!("sender {}-{n}", self.number);
        SendingUnit {
            unit: FleetUnit::new(name, place, arguments),
            brokers,
            crm,
        }
    }

    /// Writes that the CRM has accepted so far.
    pub fn accepted(&self) -> u64 {
        self.crm.admin(|core, _| core.journal.accepted())
    }

    /// Records of the journal.
    pub fn journaled(&self) -> usize {
        self.crm.admin(|core, _| core.records().len())
    }

    /// Who sends just now: the first that is heard by the CRM.
    pub async fn holder(&self) -> &SendingUnit {
        let before: Vec<u64> = self.senders.iter().map(|it| it.crm.carried()).collect();
        let mut found = None;
        let sends = |n: &usize| self.senders[*n].crm.carried() > before[*n];
        until("a sender that sends", async || {
            found = (0..self.senders.len()).find(sends);
            found.is_some()
        })
        .await;
        &self.senders[found.expect("it was found")]
    }
}
