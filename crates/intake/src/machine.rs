//! Which machine this is. Its id (`/etc/machine-id`) is confidential: it stays in this file, and
//! what is made of it is hashed, as machine-id(5) asks for.
//!
//! | file | what it is |
//! |---|---|
//! | `$CALLBRIDGE_MACHINE_ID_FILE` | where it is set: a host's file, elsewhere in a container |
//! | `/etc/machine-id` | 32 hex digits, made at the installation or the first boot |
//! | `/var/lib/dbus/machine-id` | the same on machines without systemd |

use callbridge_model::Environment;
use ring::hmac;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Names another file that holds the machine's id.
pub const VARIABLE: &str = "CALLBRIDGE_MACHINE_ID_FILE";

const FILE: &str = "/etc/machine-id";
const FILE_OF_DBUS: &str = "/var/lib/dbus/machine-id";

/// Salt for the machine's id: a random number of this application. Another one would give every PBX
/// that has no name another id.
const APPLICATION: [u8; 16] = [
    0x4c, 0x1d, 0x0e, 0x77, 0x9a, 0x2b, 0x4f, 0x63, 0x8e, 0x52, 0xb0, 0x3c, 0xd9, 0x16, 0xf4, 0xa8,
];

/// No more of the file is read: an id with its line's end is shorter.
const BYTES_MAX: u64 = 256;

/// Files that a container engine leaves in the containers it makes.
const MARKS_OF_CONTAINERS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// And what it tells their processes.
const VARIABLES_OF_CONTAINERS: [&str; 2] = ["container", "KUBERNETES_SERVICE_HOST"];

/// Ids that came with an image to many machines: Debian's images for containers (11.1, 11.2), which
/// people also boot.
const OF_IMAGES: [&str; 2] = [
    "85f94e57ab75f80918cab17d001eac85",
    "88544b92092430bc5d3fbbffc12a2f04",
];

/// A machine's id, hashed for this application. It cannot be turned back.
#[derive(Clone)]
pub struct MachineId(hmac::Key);

/// Reason for which this machine is not known by an id of its own: a file, and the fault of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {why}", .file.display())]
pub struct Unknown {
    file: PathBuf,
    why: String,
}

impl Unknown {
    pub(crate) fn new(file: &Path, why: impl Into<String>) -> Self {
        let (file, why) = (file.to_owned(), why.into());
        Self { file, why }
    }
}

/// An image's file, to be filled at the first boot.
const NOT_SET: &str = "is not filled yet";
const NOT_AN_ID: &str = "holds no machine id, which is 32 hex digits";
/// The id of a template: other machines have it, too.
const SHARED: &str = "holds an id that many machines have";
/// In a container: the id came with the image, and other containers of it have it, too.
const OF_IMAGE: &str = "is the container image's, and the same in each of its containers";

impl MachineId {
    /// Reads this machine's id: from the file that [`VARIABLE`] names; else, in a container, only
    /// from one that was mounted into it.
    ///
    /// # Errors
    /// When it has none, or one that is not its own.
    pub fn of_this(environment: &Environment) -> Result<Self, Unknown> {
        if let Some(file) = environment.path(VARIABLE) {
            return Self::read(&file);
        }
        let file = match Path::new(FILE).try_exists() {
            Ok(false) if Path::new(FILE_OF_DBUS).exists() => Path::new(FILE_OF_DBUS),
            Ok(_) | Err(_) => Path::new(FILE),
        };
        let id = Self::read(file)?;
        let (mut variables, mut marks) =
            (VARIABLES_OF_CONTAINERS.iter(), MARKS_OF_CONTAINERS.iter());
        let contained = variables.any(|name| environment.text(name).is_some())
            || marks.any(|mark| Path::new(mark).exists());
        if contained && !is_mounted(file) {
            return Err(Unknown::new(file, OF_IMAGE));
        }
        Ok(id)
    }

    /// The id that a file holds.
    ///
    /// # Errors
    /// When it holds none that one machine alone could have.
    pub fn read(file: &Path) -> Result<Self, Unknown> {
        let mut text = String::new();
        let read = std::fs::File::open(file)
            .and_then(|opened| opened.take(BYTES_MAX).read_to_string(&mut text));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Unknown::new(file, "is not there"),
            io::ErrorKind::InvalidData => Unknown::new(file, NOT_AN_ID),
            _ => Unknown::new(file, format!("cannot be read: {error}")),
        })?;
        Self::parse(file, text.trim())
    }

    fn parse(file: &Path, text: &str) -> Result<Self, Unknown> {
        if text.is_empty() || text == "uninitialized" {
            return Err(Unknown::new(file, NOT_SET));
        }
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let digits = digits.to_ascii_lowercase();
        let hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| hex);
        let number = number.ok_or_else(|| Unknown::new(file, NOT_AN_ID))?;
        // Made up by hand: one digit again and again, or one after the other.
        let repeats = digits.chars().all(|digit| digits.starts_with(digit));
        let counts = "0123456789abcdef".repeat(3).contains(&digits);
        if repeats || counts || OF_IMAGES.contains(&digits.as_str()) {
            return Err(Unknown::new(file, SHARED));
        }
        let machine = hmac::Key::new(hmac::HMAC_SHA256, &number.to_be_bytes());
        let ours = hmac::sign(&machine, &APPLICATION);
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, ours.as_ref())))
    }

    /// A number that stands for these words on this machine, and for no others on none else.
    pub fn number_of(&self, words: &[&str]) -> u64 {
        let mut context = hmac::Context::with_key(&self.0);
        for word in words {
            let length = u64::try_from(word.len()).unwrap_or(u64::MAX);
            context.update(&length.to_be_bytes());
            context.update(word.as_bytes());
        }
        let tag = context.sign();
        let first = tag.as_ref().first_chunk().copied();
        u64::from_be_bytes(first.unwrap_or_default())
    }
}

/// The file was brought into the container by itself, and so is not of its image.
fn is_mounted(file: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|about| about.dev());
    file.parent()
        .is_some_and(|folder| device(folder) != device(file))
}

impl std::fmt::Debug for MachineId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MachineId(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f1";

    fn parsed(text: &str) -> Result<MachineId, Unknown> {
        MachineId::parse(Path::new("m"), text)
    }

    #[test]
    fn ids_that_one_machine_cannot_have_alone_are_refused() {
        let of = |why| Unknown::new(Path::new("m"), why);
        for text in ["", "uninitialized"] {
            assert_eq!(parsed(text).expect_err("none"), of(NOT_SET));
        }
        for text in [
            "00000000000000000000000000000000",
            "ffffffffffffffffffffffffffffffff",
            "0123456789abcdef0123456789abcdef",
            "88544b92092430bc5d3fbbffc12a2f04",
        ] {
            let error = parsed(text).expect_err("shared");
            assert_eq!(error, of(SHARED), "{text}");
        }
        for text in [
            "x",
            "0f1e2d3c",
            "0f1e2d3c4b5a69788796a5b4c3d2e1fg",
            "…",
            "+1",
        ] {
            let error = parsed(text).expect_err("no id");
            assert_eq!(error, of(NOT_AN_ID), "{text}");
        }
    }

    #[test]
    fn the_same_id_is_read_however_it_is_written() {
        let number = |text: &str| parsed(text).expect("an id").number_of(&["a"]);
        assert_eq!(number(ID), number(&ID.to_ascii_uppercase()));
        assert_eq!(number(ID), number("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f1"));
        assert_ne!(number(ID), number(&ID.replace("f1", "f2")));
    }

    #[test]
    fn words_are_told_apart_where_one_ends_and_the_next_begins() {
        let id = parsed(ID).expect("an id");
        assert_ne!(id.number_of(&["ab", "c"]), id.number_of(&["a", "bc"]));
        assert_ne!(id.number_of(&["a"]), id.number_of(&["a", ""]));
    }

    #[test]
    fn neither_the_id_nor_what_it_is_hashed_to_is_printed() {
        let id = parsed(ID).expect("an id");
        assert_eq!(format!("{id:?}"), "MachineId(..)");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("id");
        let written = ID.replace('f', "g");
        std::fs::write(&file, &written).expect("written");
        let error = MachineId::read(&file).expect_err("no id").to_string();
        assert!(!error.contains(&written), "{error}");
    }

    #[test]
    fn the_file_that_the_variable_names_is_the_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("id");
        let path = file.to_str().expect("UTF-8");
        let environment = Environment::of([(VARIABLE, path), ("container", "docker")]);
        let missing = MachineId::of_this(&environment).expect_err("missing");
        assert_eq!(missing, Unknown::new(&file, "is not there"));
        std::fs::write(&file, format!("{ID}\n")).expect("written");
        let id = MachineId::of_this(&environment).expect("an id");
        assert_eq!(
            id.number_of(&["a"]),
            parsed(ID).expect("an id").number_of(&["a"])
        );
    }

    #[test]
    fn a_file_that_came_with_the_image_is_told_from_one_that_was_brought_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("id");
        std::fs::write(&file, ID).expect("written");
        assert!(!is_mounted(&file));
        assert!(
            is_mounted(Path::new("/proc")),
            "/proc is a mount on any Linux"
        );
    }
}
