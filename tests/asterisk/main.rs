//! `tests/run asterisk`: places calls on a real Asterisk while callbridge listens over AMI, and
//! compares the journal with the script of each scenario. Needs root, and is not part of the
//! default run.
//!
//! ```text
//! phones, carriers ──SIP──▶ Asterisk ──AMI──▶ callbridge ──HTTP──▶ sandbox CRM
//!        ▲                  (chroot)                                  │
//!     scenario ───────────────── truth ◀──── compared ────────────────┘
//! ```

mod ari;
mod bridge;
mod configuration;
mod judge;
mod line;
mod manager;
mod pbx;
mod phone;
mod recording;
mod relay;
mod scenarios;
mod sip;
mod stage;
mod system;
mod truth;
mod wait;

use anyhow::{Context, Result, bail};
use judge::Judge;
use pbx::Plan;
use scenarios::Scenario;
use stage::Stage;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use system::{Driver, System};

const HELP: &str = "tests/run asterisk [--list] [--record DIR] [--system-name NAME]
                   [--without-timestamps] [--driver sip|pjsip] [--keep-log] [NAME…]
  CALLBRIDGE_ASTERISK   the root of a system that has an Asterisk, instead of the installed one
  NAME                  scenarios to play, all by default; part of a name is enough
  --list                names and stories
  --record DIR          writes DIR/NAME/{ami.raw,cel.csv,cdr.csv,expected.json} of each scenario
  --system-name NAME    Asterisk has this system name
  --without-timestamps  events have no timestamps
  --driver              chan_sip or chan_pjsip; by default chan_sip up to Asterisk 16
  --keep-log            prints what callbridge and Asterisk said at the end";

/// Every scenario ends within this time.
const SCENARIO_DEADLINE: Duration = Duration::from_secs(120);

#[derive(Default)]
struct Options {
    names: Vec<String>,
    list: bool,
    keep_log: bool,
    record: Option<PathBuf>,
    system_name: String,
    without_timestamps: bool,
    driver: Option<Driver>,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => options.list = true,
                "--keep-log" => options.keep_log = true,
                "--without-timestamps" => options.without_timestamps = true,
                "--record" => options.record = Some(words.next().context("--record DIR")?.into()),
                "--system-name" => {
                    options.system_name = words.next().context("--system-name NAME")?;
                }
                "--driver" => {
                    let name = words.next().context("--driver sip|pjsip")?;
                    options.driver = Some(Driver::from_name(&name)?);
                }
                "--help" | "-h" => bail!("{HELP}"),
                flag if flag.starts_with('-') => bail!("{flag} is not known\n{HELP}"),
                _ => options.names.push(word),
            }
        }
        Ok(options)
    }

    /// Returns the scenarios that match the names. A complete name matches only itself.
    fn chosen(&self) -> Result<Vec<Scenario>> {
        let all = scenarios::all();
        if self.names.is_empty() {
            return Ok(all);
        }
        let mut chosen: BTreeSet<&str> = BTreeSet::new();
        for name in &self.names {
            let matching = matching_names(&all, name);
            if matching.is_empty() {
                bail!("no scenario is called {name}; see --list");
            }
            chosen.extend(matching);
        }
        let scenarios = all.into_iter();
        Ok(scenarios
            .filter(|scenario| chosen.contains(scenario.name))
            .collect())
    }
}

/// Returns the names of the scenarios that match the name. A complete name matches only itself.
fn matching_names(scenarios: &[Scenario], name: &str) -> Vec<&'static str> {
    let names = scenarios.iter().map(|scenario| scenario.name);
    if names.clone().any(|full| full == name) {
        names.filter(|full| *full == name).collect()
    } else {
        names.filter(|full| full.contains(name)).collect()
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let run = async {
        let options = Options::read(std::env::args().skip(1))?;
        let chosen = options.chosen()?;
        if options.list {
            for scenario in &chosen {
                println!("{:36} {}", scenario.name, scenario.story);
            }
            return Ok(true);
        }
        if !rustix::process::geteuid().is_root() {
            bail!("a chroot and its Asterisk need root: run tests/run asterisk as root");
        }
        play_all(&options, chosen).await
    };
    match runtime.block_on(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

async fn play_all(options: &Options, chosen: Vec<Scenario>) -> Result<bool> {
    let begun = Instant::now();
    let plan = Plan {
        system_name: options.system_name.clone(),
        cel_over_ami: options.record.is_some(),
        without_timestamps: options.without_timestamps,
        ..Plan::default()
    };
    let system = System::find(options.driver)?;
    println!("{}", system.words());
    let mut left = Vec::new();
    let mut fitting = Vec::new();
    for scenario in &chosen {
        match scenario.needs.and_then(|need| need.missing(&system)) {
            Some(why) => left.push(format!("not run: {}: {why}", scenario.name)),
            None => fitting.push(scenario),
        }
    }
    let mut stage = Stage::new(system, plan).await?;
    println!("{}", judge::HEAD);
    let mut judge = Judge::default();
    let (mut right, mut wrong) = (0_usize, 0_usize);
    for scenario in fitting {
        let verdict = play(options, &mut stage, &mut judge, scenario).await;
        if verdict { right += 1 } else { wrong += 1 }
    }
    for words in judge.final_errors(&mut stage, wrong == 0).await? {
        println!("  {words}");
        wrong += 1;
    }
    // Scenarios that AMI reports completely would not show this error.
    if std::fs::metadata(stage.pbx.file(pbx::CELS))?.len() == 0 {
        println!("  Asterisk has written no CEL: see --keep-log");
        wrong += 1;
    }
    if options.keep_log {
        println!("{}\n{}", stage.bridge.log(), stage.pbx.log());
    }
    stage.bridge.stop().await?;
    stage.pbx.shut_down().await?;
    left.iter().for_each(|words| println!("{words}"));
    println!(
        "\ntest result: {}. {right} passed; {wrong} failed; {} s",
        if wrong == 0 { "ok" } else { "FAILED" },
        begun.elapsed().as_secs()
    );
    Ok(wrong == 0)
}

/// Plays one scenario and prints its row. Returns `true` if everything was right.
async fn play(
    options: &Options,
    stage: &mut Stage,
    judge: &mut Judge,
    scenario: &Scenario,
) -> bool {
    let played = async {
        judge.remember_calls(stage).await?;
        let recorder = match &options.record {
            Some(_) => Some(recording::Recorder::start(&stage.pbx).await?),
            None => None,
        };
        let truths = (scenario.play)(stage).await?;
        stage.ami.wait_until_quiet().await?;
        let verdict = judge.judge(stage, &truths).await?;
        if let (Some(recorder), Some(folder)) = (recorder, &options.record) {
            let folder = folder.join(scenario.name);
            // If a PBX was stopped, no connection received its last events.
            if let Err(error) = recorder.write(&folder, scenario.story, &truths).await {
                println!("not recorded: {}: {error:#}", scenario.name);
            }
        }
        anyhow::Ok(verdict)
    };
    let verdict = match tokio::time::timeout(SCENARIO_DEADLINE, played).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(error)) => judge::Verdict::broken(&format!("{error:#}")),
        Err(_) => judge::Verdict::broken("the scenario did not end"),
    };
    print!("{}", verdict.rows(scenario.name));
    let cleared = async {
        stage.clear().await?;
        if !verdict.is_right() {
            Judge::wait_until_settled(stage).await?;
        }
        anyhow::Ok(())
    };
    if let Err(error) = cleared.await {
        println!("  clearing up: {error:#}");
        return false;
    }
    verdict.is_right()
}
