//! The installed Asterisk: its release, its folders, and the channel driver of its phones and
//! carriers.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder where `tests/run asterisk` installs Asterisk.
const ROOT: &str = "/var/cache/callbridge/asterisk-sid";
/// The variable that names another folder.
const ROOT_VARIABLE: &str = "CALLBRIDGE_ASTERISK";
/// The first release whose default is only `chan_pjsip`. `chan_sip` is deprecated since 17 and
/// removed since 21.
const PJSIP_SINCE: u32 = 17;
/// Folders in which builds and packages put modules, relative to the root.
const MODULES: [&str; 5] = [
    "usr/lib/asterisk/modules",
    "usr/lib/x86_64-linux-gnu/asterisk/modules",
    "usr/lib/aarch64-linux-gnu/asterisk/modules",
    "usr/lib64/asterisk/modules",
    "usr/local/lib/asterisk/modules",
];
/// Folders that can contain `sounds`.
const DATA: [&str; 2] = ["usr/share/asterisk", "var/lib/asterisk"];

/// The channel driver of phones and carriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `chan_sip`.
    Sip,
    /// `chan_pjsip`.
    Pjsip,
}

impl Driver {
    /// Parses a value of `--driver`.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "sip" => Ok(Self::Sip),
            "pjsip" => Ok(Self::Pjsip),
            _ => bail!("--driver is sip or pjsip, not {name}"),
        }
    }

    /// Returns the driver's module, without the file extension.
    pub fn module(self) -> &'static str {
        match self {
            Self::Sip => "chan_sip",
            Self::Pjsip => "chan_pjsip",
        }
    }

    /// Returns the driver's configuration file for phones and carriers.
    pub fn file(self) -> &'static str {
        match self {
            Self::Sip => "sip.conf",
            Self::Pjsip => "pjsip.conf",
        }
    }

    /// Returns the prefix of the names of the driver's channels.
    pub fn technology(self) -> &'static str {
        match self {
            Self::Sip => "SIP",
            Self::Pjsip => "PJSIP",
        }
    }

    /// Returns the device of a phone or carrier, such as `SIP/101`.
    pub fn device(self, user: &str) -> String {
        format!("{}/{user}", self.technology())
    }

    /// Returns the dial string for a number over a carrier.
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
    /// Its version, such as `16.28.0~dfsg-0+deb11u4`.
    pub version: String,
    /// The major number of the version. It is 1 for all of 1.x.
    pub major: u32,
    /// The driver of its phones and carriers.
    pub driver: Driver,
    /// The folder of its modules, as seen inside the root.
    pub modules: PathBuf,
    /// The folder that contains its sounds, as seen inside the root.
    pub data: PathBuf,
    /// The folder of the language of its announcements.
    pub language: String,
}

/// Returns the first of these folders below `root` that contains `what`, as seen inside the root.
fn first_folder_with(root: &Path, folders: &[&str], what: &str) -> Option<PathBuf> {
    let found = folders
        .iter()
        .find(|folder| root.join(folder).join(what).exists());
    found.map(|folder| Path::new("/").join(folder))
}

fn no_sounds(root: &Path) -> String {
    format!(
        "the Asterisk in {} has no sounds: install its core sounds",
        root.display()
    )
}

/// Returns the folder below `sounds` that has the dialplan's announcement. In packages, `en` is a
/// link that is valid only inside the root, or is missing.
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

/// Returns the major number of a version.
fn major(version: &str) -> Result<u32> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next();
    let digits = digits.unwrap_or_default();
    digits.parse().with_context(|| {
        format!("`asterisk -V` says {version}, which is no release: take one that was released")
    })
}

impl System {
    /// Finds the Asterisk of this run, with this driver or with the default driver of its release.
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
        let Some(modules) = first_folder_with(&root, &MODULES, &file) else {
            let module = driver.module();
            let fix = match (driver, major) {
                (Driver::Sip, 21..) => "Asterisk 21 and later have none: leave --driver out",
                (Driver::Sip, 12..) => "install its modules, or try --driver pjsip",
                (Driver::Sip, _) | (Driver::Pjsip, 12..) => "install its modules",
                (Driver::Pjsip, _) => "Asterisk 11 and older have none: leave --driver out",
            };
            bail!("the Asterisk {version} in {shown} has no {module} ({file}): {fix}");
        };
        let data = first_folder_with(&root, &DATA, "sounds");
        let data = data.with_context(|| no_sounds(&root))?;
        let sounds = root.join(data.strip_prefix("/")?).join("sounds");
        let language = language(&sounds)?.with_context(|| no_sounds(&root))?;
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

    /// Returns `true` if this Asterisk has the module.
    pub fn has(&self, module: &str) -> bool {
        let modules = self.modules.strip_prefix("/").unwrap_or(&self.modules);
        let file = self.root.join(modules).join(module);
        file.with_extension("so").exists()
    }

    /// Returns the line above the table, which describes this Asterisk.
    pub fn words(&self) -> String {
        let (version, root) = (&self.version, self.root.display());
        format!(
            "Asterisk {version} in {root}, called by {}",
            self.driver.module()
        )
    }
}
