//! The files written by `init`, including their contents, a comparison with existing files, and the
//! final write.

use super::{Answers, cancellation, flag_lines, pbx, say};
use crate::config::{TokenFrom, secret_kind};
use crate::{Failure, OrFail as _, Result};
use callbridge_model::{Code, ExposeSecret as _, Secret, SecretKind, credstore};
use callbridge_setup::flags_file::{self, difference};
use callbridge_setup::proposal::{EndpointKind, extension, propose};
use rustix::fs::{Access, access};
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// Maximum number of phones to list in the flags file's notes.
const TELEPHONES_MAX: usize = 100;

struct PlannedFile {
    path: PathBuf,
    text: Secret,
    /// Whether the file contains a secret, in which case only its owner can read it, and its
    /// content isn't shown.
    secret: bool,
}

/// All files that will be written.
pub(crate) struct Planned {
    /// The command that asks for the company's consent, or `None` if there's a token or a hub.
    pub connect: Option<String>,
    files: Vec<PlannedFile>,
}

/// Creates the files from the answers. `path` is the path of the flags file.
///
/// # Errors
/// Returns an error if a secret can't be read or a value has several lines.
pub(crate) fn plan(answers: &Answers, shown: &pbx::ShownPbx, path: &Path) -> Result<Planned> {
    let config = answers.config()?;
    let mut flags = answers.init.flags.clone();
    let mut files = Vec::new();
    let with_secrets: Vec<_> = config
        .sources
        .iter()
        .filter_map(|source| Some((source, secret_kind(&source.url.transport)?)))
        .collect();
    // A single secret becomes the credential, whereas with several sources, secrets stay in their
    // files.
    if let [(only, kind)] = &with_secrets[..]
        && let Some(place) = &only.secret
    {
        files.push(credential(answers, *kind, &place.read()?));
        for url in &mut flags.sources.source {
            *url = remove_secret_file(url);
        }
    }
    let crm = config.crm.as_ref();
    let token = crm.and_then(|crm| crm.token.as_ref());
    if let Some(TokenFrom::Place(place)) = token {
        files.push(credential(answers, SecretKind::Token, &place.read()?));
    }
    let forward = config.forward.as_ref();
    if let Some(place) = forward.and_then(|forward| forward.token.as_ref()) {
        files.push(credential(answers, SecretKind::Forward, &place.read()?));
    }
    flags.crm.token_file = None;
    flags.hub.forward_token_file = None;
    if let Some(messenger) = &answers.messenger {
        files.push(PlannedFile {
            path: messenger.path.clone(),
            text: messenger.curl.clone(),
            secret: true,
        });
    }
    let is_unconnected = token.is_none() && forward.is_none();
    let connect = is_unconnected.then(|| {
        let crm = flags.crm.crm_url.as_deref().unwrap_or_default();
        let state = flags.operation.state.as_deref().unwrap_or("DIR");
        format!(
            "callbridge connect --crm-url {crm} --auth-url … --consent-url … --client-id … \
             --redirect-uri … --state {state}"
        )
    });
    let is_listed = flags.trunks.employees.is_some();
    let notes = if is_listed { vec![] } else { notes(shown) };
    let text =
        flags_file::text(&answers.init.name, &flag_lines(&flags), &notes).or_fail(Code::Usage)?;
    files.push(PlannedFile {
        path: path.to_path_buf(),
        text: Secret::from(text),
        secret: false,
    });
    Ok(Planned { connect, files })
}

/// Returns the file for a credential that systemd passes to the service.
fn credential(answers: &Answers, kind: SecretKind, secret: &Secret) -> PlannedFile {
    let store = credstore(Path::new(&answers.init.etc));
    let name = &answers.init.name;
    PlannedFile {
        path: store.join(format!("callbridge.{name}.{}", kind.credential())),
        text: Secret::from(format!("{}\n", secret.expose_secret())),
        secret: true,
    }
}

/// Returns comment lines for the flags file, which list the PBX's phones as a draft for the
/// employee list.
fn notes(shown: &pbx::ShownPbx) -> Vec<String> {
    let proposals = [shown.switch.clone(), propose(&shown.endpoints)].concat();
    let entries: Vec<String> = proposals
        .iter()
        .filter(|proposed| proposed.kind == EndpointKind::Telephone)
        .map(|telephone| extension(&telephone.endpoint))
        .filter(|extension| can_be_listed(extension))
        .map(|extension| format!("{extension}:ID"))
        .take(TELEPHONES_MAX)
        .collect();
    if entries.is_empty() {
        return Vec::new();
    }
    let heading = "Employees: replace each ID with the employee's id in the CRM, and remove the # \
                   below:";
    vec![
        heading.to_owned(),
        format!("--employees={}", entries.join(";")),
    ]
}

fn can_be_listed(extension: &str) -> bool {
    // Any other character would start a new entry in the list.
    extension
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.+*#".contains(&b))
}

/// Returns the URL without `secret-file=`, because the secret becomes a credential.
fn remove_secret_file(url: &str) -> String {
    let Some((address, keys)) = url.split_once('?') else {
        return url.to_owned();
    };
    let kept: Vec<&str> = keys
        .split('&')
        .filter(|key| !key.starts_with("secret-file="))
        .collect();
    let mark = if kept.is_empty() { "" } else { "?" };
    format!("{address}{mark}{}", kept.join("&"))
}

impl Planned {
    /// Returns the paths of all files on a single line.
    pub(crate) fn path_list(&self) -> String {
        let paths: Vec<String> = self
            .files
            .iter()
            .map(|file| file.path.display().to_string())
            .collect();
        paths.join(", ")
    }

    /// Shows the new files and how they differ from existing ones, and asks whether to write them.
    ///
    /// # Errors
    /// Fails with 73 if files exist with different content and nobody has agreed to replace them,
    /// or with 130 if the user says no.
    pub(crate) async fn agree(&self, answers: &mut Answers) -> Result<()> {
        let mut others = Vec::new();
        let mut shown = String::new();
        for file in &self.files {
            let path = file.path.display();
            let text = file.text.expose_secret();
            let old = match std::fs::read(&file.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if !file.secret {
                        shown.push_str(&format!("\n{path}:\n{text}"));
                    }
                    continue;
                }
                // A file that can't be read exists nonetheless.
                read => read.unwrap_or_default(),
            };
            if old == text.as_bytes() {
                continue;
            }
            others.push(path.to_string());
            if file.secret {
                shown.push_str(&format!("\n{path} has a different secret\n"));
            } else {
                let before = String::from_utf8_lossy(&old);
                shown.push_str(&format!("\n{path}:\n{}", difference(&before, text)));
            }
        }
        say(&shown)?;
        let is_new = others.is_empty();
        let others = others.join(", ");
        if answers.init.yes || (is_new && !answers.init.asks) {
            return Ok(());
        }
        if !answers.init.asks {
            let message = format!(
                "{others} would be overwritten\n  fix: give --yes to overwrite, or another \
                 --name\nnothing was written"
            );
            return Err(Failure::new(Code::CannotWrite, message));
        }
        let message = if is_new {
            "Write these files?".to_owned()
        } else {
            format!("Overwrite {others}?")
        };
        if answers.agrees(&message, is_new).await? {
            Ok(())
        } else {
            Err(cancellation())
        }
    }

    /// Writes all files under temporary names first, and then renames them.
    ///
    /// # Errors
    /// Fails with 73 and a message that says which file is to blame. If a temporary file can't be
    /// written, none of the previous files has been changed.
    pub(crate) fn write(&self) -> Result<()> {
        let mut waiting = Vec::new();
        for file in &self.files {
            let beside = file
                .write_beside()
                .map_err(|error| cannot_write(&file.path, &error))?;
            waiting.push((beside, &file.path));
        }
        for (beside, path) in waiting {
            let what = format_args!("{}: cannot be written", path.display());
            beside
                .persist(path)
                .map_err(|refused| refused.error)
                .or_fail_at(Code::CannotWrite, what)?;
        }
        Ok(())
    }
}

/// Checks that this user can write to the configuration directory `etc`, before asking any
/// questions.
///
/// # Errors
/// Fails with 73 and a message that says which directory is to blame.
pub(crate) fn must_be_writable(etc: &Path) -> Result<()> {
    for folder in [etc.to_path_buf(), credstore(etc)] {
        let existing = folder
            .ancestors()
            .find(|above| above.exists())
            .unwrap_or(Path::new("/"));
        access(existing, Access::WRITE_OK).map_err(|error| cannot_write(&folder, &error.into()))?;
    }
    Ok(())
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let message = format!(
        "{}: cannot be written: {error}\n  fix: run init as root, or give --etc a folder that you \
         can write to\nnothing was written",
        path.display()
    );
    Failure::new(Code::CannotWrite, message)
}

impl PlannedFile {
    /// Writes the text to a temporary file in the same directory, creating the directory if it's
    /// missing. Dropping the returned path removes the file, unless it has been renamed.
    fn write_beside(&self) -> io::Result<TempPath> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let of_folder = if self.secret { 0o700 } else { 0o755 };
        let of_file = if self.secret { 0o600 } else { 0o644 };
        let mut making = DirBuilder::new();
        making.recursive(true).mode(of_folder).create(folder)?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let path = folder.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(of_file)
            .open(&path)?;
        let beside = TempPath::try_from_path(path)?;
        file.write_all(self.text.expose_secret().as_bytes())?;
        // This is set explicitly because of the umask.
        file.set_permissions(Permissions::from_mode(of_file))?;
        file.sync_all()?;
        Ok(beside)
    }
}
