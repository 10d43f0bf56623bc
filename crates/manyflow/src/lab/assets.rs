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
    "expectations.js": "text/javascript; charset=utf-8", "expectations.js";
    "format.js": "text/javascript; charset=utf-8", "format.js";
    "gallery.js": "text/javascript; charset=utf-8", "gallery.js";
    "link.js": "text/javascript; charset=utf-8", "link.js";
    "live.js": "text/javascript; charset=utf-8", "live.js";
    "order.js": "text/javascript; charset=utf-8", "order.js";
    "page.js": "text/javascript; charset=utf-8", "page.js";
    "run.js": "text/javascript; charset=utf-8", "run.js";
    "schema.js": "text/javascript; charset=utf-8", "schema.js";
    "server.js": "text/javascript; charset=utf-8", "server.js";
    "sweep.js": "text/javascript; charset=utf-8", "sweep.js";
    "topology.js": "text/javascript; charset=utf-8", "topology.js";
    "icon.svg": "image/svg+xml", "icon.svg";
    "vendor/codemirror/codemirror.min.js": "text/javascript; charset=utf-8", "vendor/codemirror/codemirror.min.js";
    "vendor/codemirror/LICENSE": "text/plain; charset=utf-8", "vendor/codemirror/LICENSE";
    "vendor/uplot/uPlot.iife.min.js": "text/javascript; charset=utf-8", "vendor/uplot/uPlot.iife.min.js";
    "vendor/uplot/uPlot.min.css": "text/css; charset=utf-8", "vendor/uplot/uPlot.min.css";
    "vendor/uplot/LICENSE": "text/plain; charset=utf-8", "vendor/uplot/LICENSE";
}
