//! A cluster, two hubs over it, collectors, and the CRM.
//!
//! Each hub is on this machine or on a node. The CRM has the same address everywhere, even on a
//! node that is cut off.

use crate::support::crm::settings;
use crate::support::program::{Place, Program};
use callbridge_model::Status;
use callbridge_model::status::Role;
use callbridge_sandbox::window::Rate;
use callbridge_sandbox::{self as sandbox, Server};
use callbridge_testbed::patroni::{Cluster, Node};
use callbridge_testbed::postgres::SECRET;
use callbridge_testbed::wait::until_within;
use reqwest::Certificate;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

const COLLECTORS: u32 = 5;
/// Ports for calls, one per hub.
const PORTS: [u16; 2] = [8443, 8444];
/// Longest wait for a hub's answer to one call.
const ANSWER: Duration = Duration::from_secs(4);
/// A change of roles takes at most this long.
const CHANGE: Duration = Duration::from_secs(120);
/// The PBX of the script that posts calls.
const PROBE: &str = "probe";

/// One of the two hubs.
pub struct Hub {
    place: Place,
    port: u16,
    /// The node on which the hub runs, or `None` for this machine.
    node: Option<Node>,
    program: Option<Program>,
}

pub struct Collector {
    pbx: String,
    place: Place,
    program: Program,
    written: u32,
}

pub struct Stage {
    pub cluster: Cluster,
    pub crm: Server,
    pub hubs: [Hub; 2],
    collectors: Vec<Collector>,
    script: Script,
}

/// A script that posts calls, one at a time.
struct Script {
    http: reqwest::Client,
    token: String,
    /// The number of the next call.
    next: u32,
}

impl Stage {
    pub async fn start() -> Self {
        // An error means that another part has already set it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = Cluster::start().await;
        let mut config = settings();
        config.settings.rate = Rate::default();
        let crm = sandbox::start(config).await.expect("a sandbox");
        for node in Node::ALL {
            serve_crm_on(&cluster, node, crm.addr()).await;
        }
        let hubs = PORTS.map(|port| {
            let secret = cluster.write("database.secret", SECRET);
            let mut hub = Hub {
                place: Place::in_database(&cluster.url(&secret)),
                port,
                node: None,
                program: None,
            };
            hub.start(&cluster, &crm);
            hub
        });
        let ca = std::fs::read(cluster.ca_file()).expect("readable");
        let roots = Certificate::from_pem_bundle(&ca).expect("a certificate");
        let http = reqwest::Client::builder()
            .tls_certs_only(roots)
            .no_proxy()
            .timeout(ANSWER)
            .build()
            .expect("a client");
        let mut stage = Self {
            cluster,
            crm,
            hubs,
            collectors: Vec::new(),
            script: Script {
                http,
                token: String::new(),
                next: 0,
            },
        };
        let leader = stage.leader().await;
        for n in 0..COLLECTORS {
            let pbx = format!("pbx{n}");
            let token = stage.add_branch(leader, &pbx).await;
            let collector = stage.start_collector(pbx, &token);
            stage.collectors.push(collector);
        }
        stage.script.token = stage.add_branch(leader, PROBE).await;
        stage
    }

    async fn add_branch(&self, leader: usize, pbx: &str) -> String {
        let add = ["branch", "add", pbx, "--pbx", pbx, "--json"];
        let lines = self.hubs[leader].place.lines(&add).await;
        lines[0]["token"].as_str().expect("a token").to_owned()
    }

    /// Returns the addresses where hubs accept calls, on this machine and on nodes.
    fn addresses(&self) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for port in PORTS {
            addresses.push(SocketAddr::new(self.cluster.outside(), port));
        }
        for node in Node::ALL {
            addresses.push(SocketAddr::new(self.cluster.address(node), PORTS[0]));
        }
        addresses
    }

    fn start_collector(&self, pbx: String, token: &str) -> Collector {
        let place = Place::on_disk();
        place.write("calls.jsonl", "");
        let token_file = place.write("hub-token", token);
        let hubs = self.addresses();
        let hubs: Vec<String> = hubs
            .iter()
            .map(|address| format!("https://{address}"))
            .collect();
        let arguments = [
            "run".to_owned(),
            place.file("calls.jsonl", "call"),
            format!("--forward={}", hubs.join(",")),
            format!("--forward-token-file={token_file}"),
            format!("--forward-ca-file={}", self.cluster.ca_file().display()),
            format!("--state={}", place.path("state")),
            "--country=UZ".to_owned(),
        ];
        let program = place.start(&arguments, &[]);
        Collector {
            pbx,
            place,
            program,
            written: 0,
        }
    }

    /// Ends this many calls, spread over all collectors.
    pub fn end_calls(&mut self, calls: u32) {
        for n in 0..calls {
            let collectors = self.collectors.len() as u32;
            let collector = &mut self.collectors[(n % collectors) as usize];
            let line = format!("{}\n", message(&collector.pbx, collector.written));
            collector.place.append("calls.jsonl", line.as_bytes());
            collector.written += 1;
        }
    }

    /// Waits until a hub leads, and returns its index in [`Stage::hubs`].
    pub async fn leader(&self) -> usize {
        let mut found = None;
        until_within(CHANGE, "a hub that leads", async || {
            for (at, hub) in self.hubs.iter().enumerate() {
                if hub.role().await == Some(Role::Leader) {
                    found = Some(at);
                }
            }
            found.is_some()
        })
        .await;
        found.expect("a leader")
    }

    /// Waits until one hub leads and the other is its standby. Returns the index of the leader.
    pub async fn wait_until_paired(&self) -> usize {
        let mut leader = None;
        until_within(CHANGE, "a leader and a standby", async || {
            leader = None;
            let mut roles = BTreeSet::new();
            for (at, hub) in self.hubs.iter().enumerate() {
                let Some(role) = hub.role().await else {
                    return false;
                };
                if role == Role::Leader {
                    leader = Some(at);
                }
                roles.insert(role.word());
            }
            roles.len() == 2 && leader.is_some()
        })
        .await;
        leader.expect("a leader")
    }

    /// Makes the first hub run on this node and lead.
    pub async fn lead_from(&mut self, node: Node) {
        for hub in &mut self.hubs {
            hub.stop().await;
        }
        self.hubs[0].node = Some(node);
        self.hubs[0].start(&self.cluster, &self.crm);
        let leader = self.leader().await;
        assert_eq!(leader, 0);
        self.hubs[1].start(&self.cluster, &self.crm);
        self.wait_until_paired().await;
    }

    /// Makes the first hub run on this machine again.
    pub async fn return_home(&mut self) {
        if self.hubs[0].node.is_some() {
            self.hubs[0].stop().await;
            self.hubs[0].node = None;
            self.hubs[0].start(&self.cluster, &self.crm);
        }
    }

    /// Posts a call until a hub has stored it, and returns the hub's address.
    pub async fn post_until_stored(&mut self) -> SocketAddr {
        let body = message(PROBE, self.script.next).to_string();
        let mut stored_by = None;
        until_within(CHANGE, "a hub that stores a call", async || {
            for address in self.addresses() {
                if self.script.post(address, &body).await {
                    stored_by = Some(address);
                    return true;
                }
            }
            false
        })
        .await;
        self.script.next += 1;
        stored_by.expect("an address")
    }

    /// Returns the calls that must be in the CRM's journal: each PBX with its number of calls.
    pub fn expected(&self) -> Vec<(String, u32)> {
        let mut expected = vec![(PROBE.to_owned(), self.script.next)];
        for collector in &self.collectors {
            expected.push((collector.pbx.clone(), collector.written));
        }
        expected
    }

    /// Waits until all calls are forwarded and journaled.
    pub async fn wait_until_all_journaled(&self, within: Duration) {
        for collector in &self.collectors {
            let written = u64::from(collector.written);
            until_within(within, "each call is forwarded", async || {
                let status = collector.program.status().await;
                status.is_some_and(|status| status.books.forwarded == written)
            })
            .await;
        }
        until_within(within, "each call is journaled", async || {
            let leader = self.leader().await;
            let status = self.hubs[leader].status().await;
            status.is_some_and(|status| status.books.settled())
        })
        .await;
    }

    /// Returns the logs of the hubs.
    pub fn logs(&self) -> String {
        let logs = self.hubs.iter().map(|hub| hub.place.logs());
        logs.collect::<Vec<_>>().join("\n== second hub\n")
    }
}

impl Hub {
    fn start(&mut self, cluster: &Cluster, crm: &Server) {
        let address = match self.node {
            Some(node) => cluster.address(node),
            None => cluster.outside(),
        };
        let identity = cluster.identity(self.node);
        let arguments = [
            "run".to_owned(),
            format!("--state={}", self.place.state()),
            format!("--instance=hub{}", self.port),
            format!("--collect={address}:{}", self.port),
            format!("--tls-cert={}", identity.certificate.display()),
            format!("--tls-key={}", identity.key.display()),
            format!("--crm-url={}", crm.url()),
            format!("--token-file={}", self.place.path("token")),
            "--country=UZ".to_owned(),
        ];
        let wrapper = self.node.map(|node| cluster.enter(node));
        let wrapper = wrapper.unwrap_or_default();
        let words: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        self.program = Some(self.place.start_under(&words, &arguments, &[]));
    }

    async fn stop(&mut self) {
        if let Some(program) = self.program.take() {
            program.terminate().await;
        }
    }

    pub async fn status(&self) -> Option<Status> {
        self.program.as_ref()?.status().await
    }

    pub async fn role(&self) -> Option<Role> {
        let leadership = self.status().await?.leadership?;
        leadership.leader.is_some().then_some(leadership.role)
    }
}

impl Script {
    /// Posts a call. Returns `true` if the hub has stored it.
    async fn post(&self, hub: SocketAddr, body: &str) -> bool {
        let request = self
            .http
            .post(format!("https://{hub}/v1/calls"))
            .bearer_auth(&self.token)
            .header("Content-Type", "application/x-ndjson")
            .body(body.to_owned());
        let Ok(response) = request.send().await else {
            return false;
        };
        if !response.status().is_success() {
            return false;
        }
        let answer: Result<Value, _> = response.json().await;
        answer.is_ok_and(|answer| answer["taken"].as_array().is_some_and(|all| all.len() == 1))
    }
}

/// Returns a call message.
fn message(pbx: &str, n: u32) -> Value {
    json!({
        "pbx": pbx, "id": format!("call.{n}"), "direction": "INBOUND",
        "phone": "+998901110001", "startedAt": 1_795_151_317 + i64::from(n),
        "durationSec": 20, "answered": true, "talkSec": 12, "leadId": 4001,
    })
}

/// Makes the CRM available at its address on a node too.
async fn serve_crm_on(cluster: &Cluster, node: Node, crm: SocketAddr) {
    let namespace = std::fs::File::open(cluster.namespace(node)).expect("a namespace");
    // A socket belongs to the namespace in which it was created. Only this thread changes to that
    // namespace.
    let bound = std::thread::spawn(move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).expect("root");
        let local: IpAddr = Ipv4Addr::LOCALHOST.into();
        TcpListener::bind(SocketAddr::new(local, crm.port())).expect("a free port")
    });
    let listener = bound.join().expect("no panic");
    listener.set_nonblocking(true).expect("a socket");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
    tokio::spawn(async move {
        while let Ok((mut inner, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut outer) = TcpStream::connect(crm).await {
                    // The connection of a killed hub breaks off.
                    copy_bidirectional(&mut inner, &mut outer).await.ok();
                }
            });
        }
    });
}
