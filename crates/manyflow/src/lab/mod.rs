//! `manyflow lab`: a web page on this machine that runs scenarios and shows live roles. The
//! crate [`manyflow_lab`] has the values that it shows of scenarios and results.
//!
//! | file | contents |
//! |---|---|
//! | `server.rs` | accepts connections and routes requests |
//! | `guard.rs` | refuses requests without the token, or under the name of another site |
//! | `reply.rs` | responses, among them streams of events |
//! | `assets.rs`, `figures.rs` | the page and the scenarios that the program holds |
//! | `api.rs` | what the page asks for: checks, runs, exports |
//! | `runs.rs`, `log.rs`, `pace.rs` | runs in threads, their events, and their speed |
//! | `attach.rs` | the metrics of live roles |
//! | `order.rs` | daemons and members of ordered groups, whose links the page cuts |

mod api;
mod assets;
mod attach;
mod figures;
mod guard;
mod log;
mod order;
mod pace;
mod reply;
mod runs;
mod server;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;

use crate::cli::LabArgs;
use attach::Attached;
use figures::Figures;
use guard::Guard;
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::usage;
use order::OrderStage;
use runs::Runs;

/// The parts of the server that requests share.
struct Lab {
    guard: Guard,
    figures: Figures,
    runs: Runs,
    attached: Option<Attached>,
    /// Begins with the first request for it.
    order: OnceCell<OrderStage>,
}

pub(crate) async fn run(args: LabArgs, display: &Display) -> Result<()> {
    let figures = Figures::new(&args.scenarios)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await;
    let listener = listener
        .with_context(|| format!("cannot listen on port {}: choose another --port", args.port))?;
    let address = listener.local_addr()?;
    let guard = Guard::new(address);
    let url = url(address, guard.token(), &args)?;
    let attached = match args.attach.is_empty() {
        true => None,
        false => Some(Attached::start(args.attach)),
    };
    let lab = Lab {
        guard,
        figures,
        runs: Runs::default(),
        attached,
        order: OnceCell::new(),
    };
    let interrupted = interrupted();
    display.print_line(&format!("lab at {url}"))?;
    display.print_line("the address is a key: keep it to yourself; Ctrl-C ends the lab")?;
    display.print_json(&json!({"event": "started", "url": url}))?;
    tokio::select! {
        () = server::serve(listener, Arc::new(lab)) => Ok(()),
        () = interrupted => Ok(()),
    }
}

/// Returns the address of the page, with the part behind `#` of a permalink that is to be opened.
fn url(address: SocketAddr, token: &str, args: &LabArgs) -> Result<String> {
    let fragment = match &args.open {
        None => String::new(),
        Some(link) => match link.split_once('#') {
            Some((_, fragment)) => format!("#{fragment}"),
            None => {
                return Err(usage(
                    "--open: this is not a permalink of a lab, which has a `#`",
                ));
            }
        },
    };
    Ok(format!("http://{address}/{token}/{fragment}"))
}
