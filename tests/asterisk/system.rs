//! The Asterisk that a root holds: its release, where its parts lie, and by which channel driver
//! its phones and carriers speak.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `tests/run asterisk` installs it.
const ROOT: &str = "/var/cache/callbridge/asterisk-sid";
/// Another place for it.
const ROOT_VARIABLE: &str = "CALLBRIDGE_ASTERISK";
/// The first release whose own default is `chan_pjsip` alone: `chan_sip` is deprecated from 17 on
/// and gone from 21 on.
const PJSIP_SINCE: u32 = 17;
/// Where builds and packages put modules, seen from the root.
const MODULES: [&str; 5] = [
    "usr/lib/asterisk/modules",
    "usr/lib/x86_64-linux-gnu/asterisk/modules",
    "usr/lib/aarch64-linux-gnu/asterisk/modules",
    "usr/lib64/asterisk/modules",
    "usr/local/lib/asterisk/modules",
];
/// Below which of them `sounds` lies.
const DATA: [&str; 2] = ["usr/share/asterisk", "var/lib/asterisk"];

/// How phones and carriers reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `chan_sip`.
    Sip,
    /// `chan_pjsip`.
    Pjsip,
}

impl Driver {
    /// As `--driver` names it.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "sip" => Ok(Self::Sip),
            "pjsip" => Ok(Self::Pjsip),
            _ => bail!("--driver is sip or pjsip, not {name}"),
        }
    }

    /// Its module, without the ending.
    pub fn module(self) -> &'static str {
        match self {
            Self::Sip => "chan_sip",
            Self::Pjsip => "chan_pjsip",
        }
    }

    /// Its file of phones and carriers.
    pub fn file(self) -> &'static str {
        match self {
            Self::Sip => "sip.conf",
            Self::Pjsip => "pjsip.conf",
        }
    }

    /// What its channels' names begin with.
    pub fn technology(self) -> &'static str {
        match self {
            Self::Sip => "SIP",
            Self::Pjsip => "PJSIP",
        }
    }

    /// The device of a phone or carrier, as `SIP/101`.
    pub fn device(self, user: &str) -> String {
        format!("{}/{user}", self.technology())
    }

    /// What is dialed to reach a number over a carrier.
    pub fn outside(self, carrier: &str, number: &str) -> String {
        match self {
            Self::Sip => format!("SIP/{carrier}/{number}"),
            Self::Pjsip => format!("PJSIP/{number}@{carrier}"),
        }
    }
}

/// An installed Asterisk.
#[derive(Clone, Debug)]
pub struct System {
    /// The root of its file system.
    pub root: PathBuf,
    /// As it tells it itself: `16.28.0~dfsg-0+deb11u4`.
    pub version: String,
    /// Of the version; 1 for all of 1.x.
    pub major: u32,
    /// By which it is called.
    pub driver: Driver,
    /// Its modules, seen from inside.
    pub modules: PathBuf,
    /// Its sounds are below, seen from inside.
    pub data: PathBuf,
    /// The folder of the language that its announcements are in.
    pub language: String,
}

/// The first of these folders below `root` that holds `what`; seen from inside.
fn inside(root: &Path, folders: &[&str], what: &str) -> Option<PathBuf> {
    let found = folders
        .iter()
        .find(|folder| root.join(folder).join(what).exists());
    found.map(|folder| Path::new("/").join(folder))
}

/// The folder below `sounds` that has the announcement of the dialplan. Packages hang `en` up by a
/// link that means something only inside, or leave it out.
fn language(sounds: &Path) -> Result<Option<String>> {
    if sounds.join("en").symlink_metadata().is_ok() {
        return Ok(Some("en".to_owned()));
    }
    for entry in std::fs::read_dir(sounds)? {
        let entry = entry?;
        let files = ["gsm", "wav", "ulaw"].map(|kind| format!("hello-world.{kind}"));
        if files.iter().any(|file| entry.path().join(file).exists()) {
            return Ok(entry.file_name().into_string().ok());
        }
    }
    Ok(None)
}

/// The release of a version.
fn major(version: &str) -> Result<u32> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next();
    let digits = digits.unwrap_or_default();
    digits.parse().with_context(|| {
        format!("`asterisk -V` says {version}, which is no release: take one that was released")
    })
}

impl System {
    /// What the root of this run holds, called by this driver or by the usual one of its release.
    pub fn find(wanted: Option<Driver>) -> Result<Self> {
        let root = std::env::var_os(ROOT_VARIABLE).map_or_else(|| ROOT.into(), PathBuf::from);
        let shown = root.display();
        ensure!(
            root.join("usr/sbin/asterisk").exists(),
            "there is no Asterisk in {shown} (usr/sbin/asterisk): {ROOT_VARIABLE} names the root \
             of a system that has one; without it `tests/run asterisk` installs its own"
        );
        let mut asked = Command::new("chroot");
        let asked = asked.arg(&root);
        let asked = asked.args(["/usr/sbin/asterisk", "-V"]).output()?;
        let said = String::from_utf8_lossy(&asked.stdout);
        let version = said.trim().strip_prefix("Asterisk ").with_context(|| {
            let why = String::from_utf8_lossy(&asked.stderr);
            format!("the Asterisk in {shown} does not tell its version: {said}{why}")
        })?;
        let major = major(version)?;
        let usual = if major < PJSIP_SINCE {
            Driver::Sip
        } else {
            Driver::Pjsip
        };
        let driver = wanted.unwrap_or(usual);
        let file = format!("{}.so", driver.module());
        let Some(modules) = inside(&root, &MODULES, &file) else {
            let module = driver.module();
            let fix = match (driver, major) {
                (Driver::Sip, 21..) => "Asterisk 21 and later have none: leave --driver out",
                (Driver::Sip, 12..) => "install its modules, or try --driver pjsip",
                (Driver::Sip, _) | (Driver::Pjsip, 12..) => "install its modules",
                (Driver::Pjsip, _) => "Asterisk 11 and older have none: leave --driver out",
            };
            bail!("the Asterisk {version} in {shown} has no {module} ({file}): {fix}");
        };
        let none = || format!("the Asterisk in {shown} has no sounds: install its core sounds");
        let data = inside(&root, &DATA, "sounds").with_context(none)?;
        let sounds = root.join(data.strip_prefix("/")?).join("sounds");
        let language = language(&sounds)?.with_context(none)?;
        Ok(Self {
            driver,
            modules,
            data,
            language,
            version: version.to_owned(),
            major,
            root,
        })
    }

    /// Whether it has a module.
    pub fn has(&self, module: &str) -> bool {
        let modules = self.modules.strip_prefix("/").unwrap_or(&self.modules);
        let file = self.root.join(modules).join(module);
        file.with_extension("so").exists()
    }

    /// Above the table.
    pub fn words(&self) -> String {
        let (version, root) = (&self.version, self.root.display());
        format!(
            "Asterisk {version} in {root}, called by {}",
            self.driver.module()
        )
    }
}
