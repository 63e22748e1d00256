//! Puts the commit into `--version`, with its time beside it: no clock of ours is right before
//! that. Without git, or outside a checkout, the commit stays `unknown`.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=CALLBRIDGE_COMMIT");
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rerun-if-changed=build.rs");
    // Addresses that are set at the start take a tenth of the room in this form (glibc 2.36).
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let built = std::env::var("SOURCE_DATE_EPOCH").ok();
    let built = built.or_else(|| git(&["log", "-1", "--format=%ct"]));
    if let Some(built) = built.filter(|text| text.bytes().all(|b| b.is_ascii_digit())) {
        println!("cargo:rustc-env=CALLBRIDGE_BUILT={built}");
    }
    if std::env::var_os("CALLBRIDGE_COMMIT").is_some() {
        return; // given by who builds without a checkout: a package, a container
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo:rustc-env=CALLBRIDGE_COMMIT={commit}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
