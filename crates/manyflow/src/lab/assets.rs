//! The files of the page, which `build.rs` packs.

use std::io::Read as _;

use flate2::read::DeflateDecoder;
use hyper::StatusCode;

use super::reply::{Reply, page};

/// The path of each file below `web`, the length of its text, and the packed text.
const FILES: &[(&str, usize, &[u8])] = include!(concat!(env!("OUT_DIR"), "/web.rs"));

/// Returns the file at a path of the page, if there is one.
pub(super) fn find(path: &str) -> Option<Reply> {
    let path = match path {
        "" => "index.html",
        path => path,
    };
    let (_, length, packed) = FILES.iter().find(|(known, ..)| *known == path)?;
    let mut file = Vec::with_capacity(*length);
    let unpacked = DeflateDecoder::new(*packed).read_to_end(&mut file);
    unpacked.expect("build.rs has packed the file");
    Some(page(StatusCode::OK, media_type(path), file))
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}
