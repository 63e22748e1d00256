//! Packs the texts of the languages.

use std::path::Path;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("no OUT_DIR"))?;
    for language in ["en", "ru", "uz"] {
        let file = format!("texts/{language}.json");
        println!("cargo:rerun-if-changed={file}");
        let packed = callbridge_packed::pack(&std::fs::read_to_string(&file)?);
        std::fs::write(Path::new(&out).join(format!("{language}.packed")), packed)?;
    }
    Ok(())
}
