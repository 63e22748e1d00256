//! Tests that every recorded call is journaled correctly, no matter which source reports it.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::live;
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, LEADS, Recording, TRUNKS};
use callbridge_sandbox::Server;
use callbridge_testbed::broker::{self, Broker};
use callbridge_testbed::expected::Expected;
use callbridge_testbed::pbx::{self, FakePbx};
use futures_util::future::join_all;

/// A PBX, a callbridge, and a CRM.
struct Scene {
    place: Place,
    crm: Server,
    group: Vec<Recording>,
}

impl Scene {
    async fn new(group: Vec<Recording>) -> Self {
        Self {
            place: Place::new(),
            crm: crm::start().await,
            group,
        }
    }

    /// Returns one scene per group of recordings that a single PBX can send one after the other.
    async fn for_groups(recordings: Vec<Recording>) -> Vec<Self> {
        join_all(recordings::groups(recordings).into_iter().map(Self::new)).await
    }

    /// Returns one scene per group of recordings that a single PBX can send at the same time.
    async fn for_simultaneous_groups() -> Vec<Self> {
        let groups = recordings::simultaneous(recordings::all());
        join_all(groups.into_iter().map(Self::new)).await
    }

    fn run(&self, source: &str, more: &[&str]) -> Program {
        let flags = [&[source, RATE_FLAG, "--cdr-wait=2s"], more].concat();
        self.place.run(&self.crm.url(), &flags)
    }

    /// Waits for all calls to end, stops the program, and checks the journal.
    async fn end(self, mut program: Program, expected: &[Expected]) {
        let finished = u64::try_from(expected.len()).expect("few");
        let status = program.settled(finished).await;
        assert_eq!(status.books.finished, finished);
        program.terminate().await;
        crm::judge(&self.crm, &self.place.letters().await, expected);
    }

    /// Reads the recordings from a single file in this format, and checks the journal.
    async fn read_as(self, format: &str) {
        let mut all = Vec::new();
        for recording in &self.group {
            if format == "ami" {
                all.extend_from_slice(&recording.ami);
            } else {
                all.extend_from_slice(&recording.json);
            }
        }
        self.place.write("recorded", all);
        let source = self.place.file("recorded", format);
        let flags = [TRUNKS[0], TRUNKS[1], "--until-idle"];
        self.run(&source, &flags).expect_success().await;
        let expected = recordings::expected(&self.group);
        crm::judge(&self.crm, &self.place.letters().await, &expected);
    }
}

#[tokio::test]
async fn every_recording_from_ami_file_is_journaled_correctly() {
    let scenes = Scene::for_groups(recordings::all()).await;
    join_all(scenes.into_iter().map(|scene| scene.read_as("ami"))).await;
}

#[tokio::test]
async fn every_recording_from_ami_json_file_is_journaled_correctly() {
    let scenes = Scene::for_groups(recordings::all()).await;
    join_all(scenes.into_iter().map(|scene| scene.read_as("ami-json"))).await;
}

#[tokio::test]
async fn concurrent_calls_are_journaled_like_separate_calls() {
    let groups = recordings::simultaneous(recordings::all());
    let busiest = groups.iter().map(Vec::len).max();
    assert!(busiest >= Some(50), "only {busiest:?} at the same time");
    join_all(groups.into_iter().map(async |group| {
        let (place, crm) = (Place::new(), crm::start().await);
        place.write("recorded", recordings::interleaved(&group));
        let source = place.file("recorded", "ami");
        let flags = [&source, TRUNKS[0], TRUNKS[1], RATE_FLAG, "--until-idle"];
        place.run(&crm.url(), &flags).expect_success().await;
        let expected = recordings::expected(&group);
        crm::judge(&crm, &place.letters().await, &expected);
    }))
    .await;
}

#[tokio::test]
async fn calls_from_two_sources_then_repeated_are_journaled_once() {
    let group = recordings::simultaneous(recordings::all()).swap_remove(0);
    let mut scene = Scene::new(group).await;
    let (ami, socket) = (FakePbx::ami().await, FakePbx::websocket().await);
    let second = scene.place.ami(&ami);
    let flags = [second.as_str(), TRUNKS[0], TRUNKS[1]];
    let mut program = scene.run(&format!("--source=ws://{}/", socket.addr()), &flags);
    tokio::join!(ami.logged_in(1), socket.logged_in(1));
    scene.group = live::moved_to_soon(&scene.group);
    tokio::join!(
        live::send_frames(&socket, &scene.group),
        live::send_events(&ami, &scene.group)
    );
    let expected = recordings::expected(&scene.group);
    let finished = u64::try_from(expected.len()).expect("few");
    let frames = program.settled(finished).await.sources[0].read;
    for frame in scene.group.iter().flat_map(Recording::frames) {
        socket.say(frame).await;
    }
    program
        .until("all frames again", |status| {
            status.sources[0].read >= 2 * frames
        })
        .await;
    scene.end(program, &expected).await;
}

/// Promise: Every recorded call is logged as it happened, over every transport.
#[tokio::test]
async fn every_recording_over_websocket_is_journaled_correctly() {
    let scenes = Scene::for_simultaneous_groups().await;
    join_all(scenes.into_iter().map(async |mut scene| {
        let pbx = FakePbx::websocket().await;
        let source = format!("--source=ws://{}/", pbx.addr());
        let program = scene.run(&source, &TRUNKS);
        pbx.logged_in(1).await;
        scene.group = live::moved_to_soon(&scene.group);
        live::send_frames(&pbx, &scene.group).await;
        let expected = recordings::expected(&scene.group);
        scene.end(program, &expected).await;
        assert_eq!(
            pbx.requests(),
            [""; 0],
            "the PBX would execute whatever callbridge sends"
        );
    }))
    .await;
}

#[tokio::test]
async fn every_recording_over_ami_md5_login_is_journaled_correctly() {
    let scenes = Scene::for_simultaneous_groups().await;
    join_all(scenes.into_iter().map(async |mut scene| {
        let pbx = FakePbx::ami().await;
        let source = scene.place.ami(&pbx);
        let program = scene.run(&source, &TRUNKS);
        pbx.logged_in(1).await;
        scene.group = live::moved_to_soon(&scene.group);
        live::send_events(&pbx, &scene.group).await;
        let expected = recordings::expected(&scene.group);
        scene.end(program, &expected).await;
        let actions = pbx.requests().join("\n\n");
        assert!(actions.contains("AuthType: MD5") && !actions.contains(pbx::SECRET));
    }))
    .await;
}

/// Returns a recording's calls as reported by CEL, with leads from [`LEADS`].
pub fn calls_in_cel(recording: &Recording) -> Vec<Expected> {
    let unknown = recording.is_placed_by_pbx();
    let calls = recording.calls.iter().map(|call| {
        let mut expected = Expected::of(call);
        let phone = if unknown {
            None
        } else {
            call["clientPhone"].as_str()
        };
        let mut leads = LEADS
            .lines()
            .filter(|line| phone.is_some_and(|phone| line.starts_with(&phone[1..])))
            .filter_map(|line| line.split_once(','));
        let (lead, other) = (leads.next(), leads.next());
        (expected.lead, expected.reason) = match (lead, other) {
            (Some((_, lead)), None) => (lead.parse().ok(), None),
            (Some(_), Some(_)) => (None, Some("ambiguous_lead".to_owned())),
            (None, _) => (None, Some("no_lead".to_owned())),
        };
        expected
    });
    calls.collect()
}

#[tokio::test]
async fn cel_events_from_a_queue_are_journaled_with_leads_from_a_list() {
    let mut recordings = recordings::all();
    recordings.retain(Recording::is_in_cel);
    let broker = Broker::shared();
    let scenes = Scene::for_groups(recordings).await;
    join_all(scenes.into_iter().enumerate().map(async |(at, scene)| {
        let queue = format!("every-recording-{at}");
        broker.declare(&queue).await;
        let secret = scene.place.write("secret", broker::SECRET);
        let source = queue_source(broker, &queue, "asterisk-cel", &secret);
        let lead = format!("--lead=csv:{}", scene.place.write("leads.csv", LEADS));
        let trunks = ["--trunk=city=PJSIP/city", "--trunk=gsm=PJSIP/gsm"];
        let flags = [&trunks[..], &["--country=UZ", "--strip=9", &lead]].concat();
        let bodies: Vec<String> = scene.group.iter().flat_map(Recording::cel).collect();
        broker.publish(&queue, &bodies).await;
        let program = scene.run(&source, &flags);
        let expected: Vec<Expected> = scene.group.iter().flat_map(calls_in_cel).collect();
        scene.end(program, &expected).await;
        assert_eq!(broker.depth(&queue).await, 0, "all is acknowledged");
    }))
    .await;
}

#[tokio::test]
async fn every_recording_in_reverse_order_from_wazo_is_journaled() {
    let broker = Broker::shared();
    let scenes = Scene::for_groups(recordings::all()).await;
    join_all(scenes.into_iter().enumerate().map(async |(at, scene)| {
        let queue = format!("wazo-{at}");
        broker.declare(&queue).await;
        let secret = scene.place.write("secret", broker::SECRET);
        let source = queue_source(broker, &queue, "wazo", &secret);
        let bodies: Vec<String> = scene.group.iter().flat_map(Recording::wazo).collect();
        broker.publish(&queue, &bodies).await;
        let program = scene.run(&source, &TRUNKS);
        let expected = recordings::expected(&scene.group);
        scene.end(program, &expected).await;
        assert_eq!(broker.depth(&queue).await, 0, "all is acknowledged");
    }))
    .await;
}

/// Returns the flag for a source that reads a queue. `secret` is the path of the secret file.
fn queue_source(broker: &Broker, queue: &str, format: &str, secret: &str) -> String {
    let base = broker.url(broker::ADMINISTRATOR);
    format!("--source={base}?queue={queue}&format={format}&secret-file={secret}")
}

/// Returns the flag for a trunk whose leads come from the CDRs' user field.
fn trunk(name: &str) -> String {
    format!(r"--trunk={name}=PJSIP/{name},country=UZ,strip=9,lead=userfield:lead=(\d+)")
}

/// A PBX's CEL queue and CDR queue. Only the CDRs' user field contains the leads.
struct Queues {
    scene: Scene,
    cel: String,
    cdr: String,
    flags: Vec<String>,
}

impl Queues {
    async fn new(name: &str) -> Self {
        let mut recordings = recordings::all();
        recordings.retain(|recording| !recording.cel().is_empty() && recording.has_leads_in_cdrs());
        // These recordings' CDRs have the agent's login in place of the customer's lead.
        recordings.retain(|recording| !recording.name.starts_with("queue_agent_"));
        assert!(
            recordings.len() > 50,
            "only {} recordings",
            recordings.len()
        );
        let scene = Scene::for_groups(recordings).await.swap_remove(0);
        let (cel, cdr) = (format!("{name}-cel"), format!("{name}-cdr"));
        let broker = Broker::shared();
        broker.declare(&cel).await;
        broker.declare(&cdr).await;
        let secret = scene.place.write("secret", broker::SECRET);
        let flags = vec![
            queue_source(broker, &cel, "asterisk-cel", &secret),
            queue_source(broker, &cdr, "asterisk-cdr", &secret),
            trunk("city"),
            trunk("gsm"),
            RATE_FLAG.to_owned(),
            "--cdr-wait=2m".to_owned(),
        ];
        Self {
            scene,
            cel,
            cdr,
            flags,
        }
    }

    fn start(&self) -> Program {
        self.scene.place.run(&self.scene.crm.url(), &self.flags)
    }

    /// Publishes all CEL events or all CDRs to their queue, and returns the number of messages.
    async fn publish(&self, queue: &str) -> u64 {
        let recordings = self.scene.group.iter();
        let bodies: Vec<String> = if queue == self.cel {
            recordings.flat_map(Recording::cel).collect()
        } else {
            recordings.flat_map(Recording::cdrs).collect()
        };
        Broker::shared().publish(queue, &bodies).await;
        u64::try_from(bodies.len()).expect("few")
    }

    async fn end(self, program: Program) {
        let expected = recordings::expected(&self.scene.group);
        self.scene.end(program, &expected).await;
    }
}

#[tokio::test]
async fn cdrs_read_before_their_calls_supply_leads() {
    let queues = Queues::new("early").await;
    let cdrs = queues.publish(&queues.cdr).await;
    let mut program = queues.start();
    program
        .until("all CDRs", |status| status.sources[1].read == cdrs)
        .await;
    program.kill().await;
    let program = queues.start();
    queues.publish(&queues.cel).await;
    queues.end(program).await;
}

#[tokio::test]
async fn cdrs_read_after_call_backlog_supply_leads() {
    let queues = Queues::new("late").await;
    let events = queues.publish(&queues.cel).await;
    let mut program = queues.start();
    program
        .until("all events", |status| status.sources[0].read == events)
        .await;
    queues.publish(&queues.cdr).await;
    queues.end(program).await;
}
