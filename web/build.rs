//! Compresses the built page once, so that no thread that serves connections has to, and finds the hash by which the policy
//! allows the style within it.

#![allow(clippy::expect_used, reason = "a build script has nobody to return an error to")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Smaller files fit a packet as they are.
const WORTH_IT: usize = 1024;

fn main() {
    let from = Path::new(&variable("CARGO_MANIFEST_DIR")).join("dist");
    println!("cargo:rerun-if-changed={}", from.display());
    let to = Path::new(&variable("OUT_DIR")).join("gzip");
    // What an earlier build left may be gone from the page.
    drop(fs::remove_dir_all(&to));
    compress_all(&from, &to);
    let page = fs::read_to_string(from.join("index.html")).expect("the built page is in web/dist");
    println!("cargo:rustc-env=BANTAM_PAGE_STYLE=sha256-{}", hash(style(&page)));
}

/// What stands within the page's one `style` element.
fn style(page: &str) -> &str {
    let within = page.split_once("<style>").and_then(|(_, rest)| rest.split_once("</style>"));
    within.expect("the built page holds its style: `npm run build` in web").0
}

/// As a Content-Security-Policy names it.
fn hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name).expect("cargo sets it").into()
}

fn compress_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the output directory can be written");
    for entry in fs::read_dir(from).expect("the built page is in web/dist") {
        let path = entry.expect("web/dist can be read").path();
        let target = to.join(path.file_name().expect("entries have names"));
        if path.is_dir() {
            compress_all(&path, &target);
            continue;
        }
        let bytes = fs::read(&path).expect("web/dist can be read");
        let packed = gzip(&bytes);
        // What is compressed in itself stays as it is.
        if bytes.len() > WORTH_IT && packed.len() < bytes.len() / 10 * 9 {
            fs::write(target, packed).expect("the output directory can be written");
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes all bytes")
}
