//! The files of the page.

use hyper::StatusCode;

use super::reply::{Reply, page};

macro_rules! assets {
    ($($path:literal: $media_type:literal, $file:literal;)*) => {
        /// Returns the file at a path of the page, if there is one.
        pub(super) fn find(path: &str) -> Option<Reply> {
            match path {
                $($path => Some(page(
                    StatusCode::OK,
                    $media_type,
                    &include_bytes!(concat!("../../web/", $file))[..],
                )),)*
                _ => None,
            }
        }
    };
}

assets! {
    "": "text/html; charset=utf-8", "index.html";
    "style.css": "text/css; charset=utf-8", "style.css";
    "app.js": "text/javascript; charset=utf-8", "app.js";
    "chart.js": "text/javascript; charset=utf-8", "chart.js";
    "editor.js": "text/javascript; charset=utf-8", "editor.js";
    "format.js": "text/javascript; charset=utf-8", "format.js";
    "link.js": "text/javascript; charset=utf-8", "link.js";
    "live.js": "text/javascript; charset=utf-8", "live.js";
    "order.js": "text/javascript; charset=utf-8", "order.js";
    "run.js": "text/javascript; charset=utf-8", "run.js";
    "server.js": "text/javascript; charset=utf-8", "server.js";
    "topology.js": "text/javascript; charset=utf-8", "topology.js";
    "icon.svg": "image/svg+xml", "icon.svg";
    "vendor/uplot/uPlot.iife.min.js": "text/javascript; charset=utf-8", "vendor/uplot/uPlot.iife.min.js";
    "vendor/uplot/uPlot.min.css": "text/css; charset=utf-8", "vendor/uplot/uPlot.min.css";
    "vendor/uplot/LICENSE": "text/plain; charset=utf-8", "vendor/uplot/LICENSE";
}
