//! The configuration of an Asterisk: the templates of `conf/` for its release and driver, and the
//! unchanged files of `deploy/asterisk`.
//!
//! ```text
//! @NAME@               a value of the run: ports, folders, the driver's technology
//! @OUT city 12345@     the dial string for a number over a carrier
//! … ;@ from 12         a line for this release and later ones
//! … ;@ before 12       a line for older ones
//! ```

use crate::pbx::{CELS, Plan, SECRET};
use crate::system::{Driver, System};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// Folders that Asterisk does not create itself.
const FOLDERS: [&str; 6] = [
    "etc",
    "run",
    "log/cdr-csv",
    "log/cel-custom",
    "spool/outgoing",
    "db",
];

/// Writes all files to `folder`. Asterisk sees this folder as `inside`.
pub fn write(
    system: &System,
    plan: Plan,
    folder: &Path,
    inside: &Path,
    ports: &[(&'static str, String)],
) -> Result<()> {
    for name in FOLDERS {
        fs::create_dir_all(folder.join(name))?;
    }
    // Asterisk creates this file with its first call, but callbridge needs it before.
    fs::write(folder.join(CELS), "")?;
    let cel_over_ami = plan.cel_over_ami;
    let mut values = plan.values;
    values.extend(ports.iter().cloned());
    values.insert("INSIDE", inside.display().to_string());
    values.insert("MODULES", system.modules.display().to_string());
    values.insert("DATA", system.data.display().to_string());
    values.insert("LANGUAGE", system.language.clone());
    values.insert("SECRET", SECRET.to_owned());
    values.insert("SYSTEMNAME", plan.system_name);
    let timestamps = yes_or_no(!plan.without_timestamps);
    values.insert("TIMESTAMPS", timestamps.to_owned());
    values.insert("TECH", system.driver.technology().to_owned());
    let other = match system.driver {
        Driver::Sip => Driver::Pjsip,
        Driver::Pjsip => Driver::Sip,
    };
    values.insert("OTHERDRIVER", other.module().to_owned());
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in fs::read_dir(project.join("tests/asterisk/conf"))? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?;
        if name == other.file() {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let text =
            fill_template(&text, system, &values).with_context(|| path.display().to_string())?;
        fs::write(folder.join("etc").join(name), text)?;
    }
    write_deployed(&folder.join("etc"), yes_or_no(cel_over_ami))?;
    let caller = fs::read_to_string(project.join("deploy/asterisk/caller.conf"))?;
    let lookup_address = format!("127.0.0.1:{}", values["LOOKUP"]);
    let caller = caller.replace("127.0.0.1:4573", &lookup_address);
    let caller = caller.replace("PJSIP/", &format!("{}/", values["TECH"]));
    fs::write(folder.join("etc/caller.conf"), caller)?;
    Ok(())
}

const fn yes_or_no(setting: bool) -> &'static str {
    if setting { "yes" } else { "no" }
}

fn read_deployed(name: &str) -> io::Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/asterisk");
    fs::read_to_string(folder.join(name))
}

/// Writes the files that administrators install.
fn write_deployed(etc: &Path, cel_over_ami: &str) -> Result<()> {
    let cel = read_deployed("cel.conf")?;
    let over_ami = format!("[manager]\nenabled = {cel_over_ami}");
    let cel = cel.replace("[manager]\nenabled = no", &over_ami);
    ensure!(
        cel.contains(&over_ami),
        "deploy/asterisk/cel.conf has another [manager]"
    );
    fs::write(etc.join("cel.conf"), cel)?;
    let manager = read_deployed("manager.conf")?.replace("CHANGE-ME", SECRET);
    fs::write(etc.join("manager-deployed.conf"), manager)?;
    for name in ["cdr_manager.conf", "cel_custom.conf"] {
        fs::write(etc.join(name), read_deployed(name)?)?;
    }
    Ok(())
}

/// Returns a template with the lines for this Asterisk and with all values filled in.
fn fill_template(
    template: &str,
    system: &System,
    values: &BTreeMap<&'static str, String>,
) -> Result<String> {
    let mut text = String::new();
    for line in template.lines() {
        if let Some(line) = line_for_release(line, system.major)? {
            text += &fill_dial_strings(line, system.driver)?;
            text.push('\n');
        }
    }
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), value);
    }
    Ok(text)
}

/// Returns the line without its condition, if the condition holds.
fn line_for_release(line: &str, major: u32) -> Result<Option<&str>> {
    let Some((line, condition)) = line.rsplit_once(";@") else {
        return Ok(Some(line));
    };
    let mut words = condition.split_whitespace();
    let (word, release) = (words.next(), words.next().map(str::parse::<u32>));
    let holds = match (word, release, words.next()) {
        (Some("from"), Some(Ok(release)), None) => major >= release,
        (Some("before"), Some(Ok(release)), None) => major < release,
        _ => bail!("`;@{condition}` is no condition"),
    };
    Ok(holds.then_some(line.trim_end()))
}

/// Returns the line with each `@OUT carrier number@` replaced.
fn fill_dial_strings(line: &str, driver: Driver) -> Result<String> {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("@OUT ") {
        let (words, after) = after.split_once('@').context("an @OUT without its end")?;
        let (carrier, number) = words.split_once(' ').context("an @OUT of one word")?;
        text += before;
        text += &driver.outside(carrier, number);
        rest = after;
    }
    Ok(text + rest)
}
