//! Which PBX a source's calls belong to. The id is part of every call's uuid: another id would
//! double every call, so the one first used is kept in the spool and a change is refused.
//!
//! Where no flag names the PBX, its id is made of three things: this machine's id, the address of
//! the first source, and the endpoints of its trunks. The same flags give the same id wherever
//! their state lies, so that a daemon begun by hand and one begun as a service journal one record
//! a call. Another port is another PBX (tunnels), and so are other trunks: of two instances that
//! share a PBX's trunks each tells a call that passes both in its own way, and needs a uuid of its
//! own for it.

use crate::machine::{MachineId, Unknown};
use callbridge_mapping::Trunk;
use callbridge_model::{Code, ExitCode};
use callbridge_source::SourceUrl;
use std::collections::BTreeSet;

/// Under which name the spool keeps the id of the PBX that no `pbx=` names.
pub const META_KEY: &str = "pbx-id";

/// Nothing names the PBX, and this machine has no id of its own to make one of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is missing, and none can be made: {0}. Give the PBX a name for good, as --pbx-id NAME: it is \
     part of every call's uuid"
)]
pub struct UnnamedPbx(pub Unknown);

/// No id can be settled on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PbxIdConflict {
    /// `--pbx-id` is another than the one that the stored calls were journaled under.
    #[error(
        "the PBX was called `{stored}` when its calls were journaled, and --pbx-id now says \
         `{given}`: every call would be journaled a second time. Give --pbx-id {stored}, or \
         another --state"
    )]
    Changed {
        /// Id under which the spool has the calls.
        stored: String,
        /// Id that the flag gives now.
        given: String,
    },
    /// Neither spool nor flag has an id, and none can be made.
    #[error("--pbx-id: {0}")]
    UnnamedPbx(#[from] UnnamedPbx),
}

impl ExitCode for PbxIdConflict {
    fn exit_code(&self) -> Code {
        match self {
            Self::Changed { .. } => Code::Configuration,
            Self::UnnamedPbx(_) => Code::Usage,
        }
    }
}

/// Origin of the id of the PBX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Kept in the state by an earlier run.
    Stored,
    /// `--pbx-id`, for the first time.
    Given,
    /// Made of machine, source and trunks, for the first time.
    Derived,
}

impl Origin {
    /// For `check`, behind the id.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Stored => "as the state has it",
            Self::Given => "as --pbx-id says",
            Self::Derived => "made of this machine, the first source and the trunks",
        }
    }
}

/// The id of the PBX that no `pbx=` names: as stored, else as given, else as derived. A stored id
/// stays whatever the flags would give now. `None` where nothing needs one.
///
/// # Errors
/// When flag and spool disagree, or there is none.
pub fn settle(
    stored: Option<String>,
    given: Option<&str>,
    derived: Option<&Result<String, Unknown>>,
) -> Result<Option<(String, Origin)>, PbxIdConflict> {
    let settled = match (stored, given, derived) {
        (Some(stored), Some(given), _) if stored != given => {
            let given = given.to_owned();
            return Err(PbxIdConflict::Changed { stored, given });
        }
        (Some(stored), _, _) => (stored, Origin::Stored),
        (None, Some(given), _) => (given.to_owned(), Origin::Given),
        (None, None, Some(Ok(derived))) => (derived.clone(), Origin::Derived),
        (None, None, Some(Err(unknown))) => return Err(UnnamedPbx(unknown.clone()).into()),
        (None, None, None) => return Ok(None),
    };
    Ok(Some(settled))
}

/// The id of a PBX that nothing names. The order of the trunks does not count, nor what else is
/// said of them.
pub fn derive<'a>(
    machine: &MachineId,
    source: &SourceUrl,
    trunks: impl Iterator<Item = &'a Trunk>,
) -> String {
    let of_trunk = |trunk: &'a Trunk| (trunk.pbx.as_deref(), trunk.endpoint.as_str());
    let trunks: BTreeSet<_> = trunks.map(of_trunk).collect();
    let address = source.address();
    let mut words: Vec<&str> = vec!["pbx"];
    words.extend(address.parts());
    for (pbx, endpoint) in trunks {
        words.extend(["trunk", pbx.unwrap_or_default(), endpoint]);
    }
    format!("pbx-{:016x}", machine.number_of(&words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_mapping::Trunk;
    use callbridge_mapping::trunk::parse;
    use std::path::Path;

    fn machine(id: &str) -> MachineId {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("id");
        std::fs::write(&file, id).expect("written");
        MachineId::read(&file).expect("an id")
    }

    fn derived(source: &str, trunks: &[&str]) -> String {
        let machine = machine("0f1e2d3c4b5a69788796a5b4c3d2e1f1");
        derived_on(&machine, source, trunks)
    }

    fn derived_on(machine: &MachineId, source: &str, trunks: &[&str]) -> String {
        let source = SourceUrl::parse(source).expect("a source");
        let trunk = |text: &&str| parse(text, &Trunk::default()).expect("a trunk");
        let trunks: Vec<Trunk> = trunks.iter().map(trunk).collect();
        derive(machine, &source, trunks.iter())
    }

    #[test]
    fn an_id_is_stored_once_and_a_change_is_refused() {
        let none = Some(Err(Unknown::new(Path::new("m"), "is not filled yet")));
        let made = Some(Ok("pbx-1".to_owned()));
        let stored = |id: &str| Some(id.to_owned());
        let is = |id: &str, origin| Ok(Some((id.to_owned(), origin)));
        assert_eq!(
            settle(None, None, made.as_ref()),
            is("pbx-1", Origin::Derived)
        );
        assert_eq!(settle(None, Some("hq"), None), is("hq", Origin::Given));
        // What is stored stays, whatever would be made now.
        for now in [&made, &none, &None] {
            assert_eq!(
                settle(stored("old"), None, now.as_ref()),
                is("old", Origin::Stored)
            );
        }
        assert_eq!(
            settle(stored("hq"), Some("hq"), None),
            is("hq", Origin::Stored)
        );
        assert_eq!(settle(None, None, None), Ok(None));
        let changed = settle(stored("pbx-1"), Some("hq"), None).expect_err("refused");
        assert!(changed.to_string().contains("--pbx-id pbx-1"), "{changed}");
        let unnamed = settle(None, None, none.as_ref())
            .expect_err("refused")
            .to_string();
        insta::assert_snapshot!(
            unnamed,
            @"--pbx-id: is missing, and none can be made: m is not filled yet. Give the PBX a name \
              for good, as --pbx-id NAME: it is part of every call's uuid"
        );
    }

    /// Another value would journal every call of every PBX without a name once more.
    #[test]
    fn what_an_id_is_made_of_never_changes() {
        let id = derived("ami://callbridge@127.0.0.1:5038", &["city=PJSIP/city"]);
        assert_eq!(id, "pbx-1080fcde688db359");
    }

    #[test]
    fn the_same_pbx_and_trunks_have_one_id_however_they_are_written() {
        let one = derived("ami://a@127.0.0.1", &["city=PJSIP/city", "gsm=PJSIP/gsm"]);
        for (source, trunks) in [
            (
                "ami://b@localhost:5038?secret-file=/s",
                &["gsm=PJSIP/gsm,country=UZ", "town=PJSIP/city,journal=no"][..],
            ),
            (
                "amis://a@[::1]:5038",
                &["city=PJSIP/city", "gsm=PJSIP/gsm,lead=var:LEAD"],
            ),
        ] {
            assert_eq!(derived(source, trunks), one, "{source}");
        }
    }

    #[test]
    fn another_machine_port_or_trunk_is_another_id() {
        let (source, trunks) = ("ami://a@127.0.0.1:5038", &["city=PJSIP/city"][..]);
        let other = machine("1f1e2d3c4b5a69788796a5b4c3d2e1f1");
        let both = &["city=PJSIP/city", "gsm=PJSIP/gsm"][..];
        let ids = BTreeSet::from([
            derived(source, trunks),
            derived_on(&other, source, trunks),
            derived("ami://a@127.0.0.1:5039", trunks),
            derived("ami://a@pbx.example.com", trunks),
            derived("file:///var/log/cel.csv?format=cel-csv", trunks),
            derived(source, &["gsm=PJSIP/gsm"]),
            derived(source, both),
            derived(source, &["city=PJSIP/city,pbx=branch"]),
            derived(source, &[]),
        ]);
        assert_eq!(ids.len(), 9, "{ids:?}");
    }
}
