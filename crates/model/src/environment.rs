//! The environment variables of the process, read once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folder from which systemd takes the credentials of services.
const CREDSTORE: &str = "/etc/credstore";
/// The folder with the flags of services.
pub const ETC: &str = "/etc/callbridge";

/// The environment variables, and the service whose flags were read.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    /// The folder of stored credentials, and the prefix of the file names of this service.
    store: Option<(PathBuf, String)>,
}

impl Environment {
    /// Reads the variables of this process. Empty variables count as unset.
    pub fn of_process() -> Self {
        let mut environment = Self::default();
        for (name, value) in std::env::vars_os() {
            if let Ok(name) = name.into_string() {
                environment.set(name, value);
            }
        }
        environment
    }

    /// Makes an environment that has only these variables.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in pairs {
            environment.set(name.to_owned(), value.into());
        }
        environment
    }

    fn set(&mut self, name: String, value: OsString) {
        if !value.is_empty() {
            self.variables.insert(name, value);
        }
    }

    /// Adds a service by its flags, `DIR/NAME.flags`. A user who can read the stored credentials of
    /// the service then finds them, as the service does.
    #[must_use]
    pub fn with_service(mut self, flags: &Path) -> Self {
        let name = flags
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".flags"));
        if let (Some(name), Some(folder)) = (name, flags.parent()) {
            self.store = Some((credstore(folder), format!("callbridge.{name}.")));
        }
        self
    }

    /// Returns the file of this credential, if systemd provides it.
    pub fn credential(&self, name: &str) -> Option<PathBuf> {
        let given = self.path("CREDENTIALS_DIRECTORY");
        let file = given.map(|folder| folder.join(name));
        file.filter(|file| file.exists())
    }

    /// Returns the file of this credential in the store of the service whose flags were read.
    pub fn stored_credential(&self, name: &str) -> Option<PathBuf> {
        let (folder, beginning) = self.store.as_ref()?;
        let file = folder.join(format!("{beginning}{name}"));
        if file.exists() { Some(file) } else { None }
    }

    /// Returns all names of variables, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }

    /// Returns a variable's text. `None` if the variable is unset, empty, or not UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.variables.get(name)?.to_str()
    }

    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).map(PathBuf::from)
    }
}

/// Returns the folder with the credentials of the services whose flags are in this folder.
pub fn credstore(etc: &Path) -> PathBuf {
    if etc == Path::new(ETC) {
        PathBuf::from(CREDSTORE)
    } else {
        etc.join("credstore")
    }
}
