//! The models of applications and liars that ACP's tables describe.

use manyflow_model::error::Fault;
use manyflow_model::quantity::{Count, Seconds};
use manyflow_netsim::models::anypoint::{Lie, Service, Span, Worker, Workload};

use crate::schema::SessionTable;
use crate::schema::protocols::{AcpTable, LieName, Protocol, SquareTable};

/// Checks that the ends of a session can lie as its table wants.
///
/// # Errors
/// Returns an error if they follow no XCP routers.
pub(crate) fn check_lie(table: &SessionTable) -> Result<(), Fault> {
    if table.protocol != Protocol::Acp {
        return Ok(());
    }
    let checked = lie(&table.acp).check(table.acp.config().control);
    checked.map_err(|error| Fault::value(error).within(Protocol::Acp.name()))
}

/// Returns the false statements of the ends to XCP routers.
pub(crate) fn lie(table: &AcpTable) -> Lie {
    match table.lie {
        LieName::Honest => Lie::Honest,
        LieName::TenfoldWindow => Lie::WindowTimes(10.0),
        LieName::TenthOfWindow => Lie::WindowTimes(0.1),
        LieName::TenfoldRtt => Lie::RttTimes(10.0),
        LieName::TenthOfRtt => Lie::RttTimes(0.1),
        LieName::NeverDecreases => Lie::NeverDecreases,
        LieName::TakesAll => Lie::TakesAll,
    }
}

/// Returns an application that sends during the spans `sends` and works on each frame for
/// `service`. Without `service`, the session's own service time applies. Without `keys` in the
/// table, the frames' keys count from `first_key`.
///
/// # Errors
/// Returns an error if the workload is out of its range.
pub(crate) fn worker(
    table: &AcpTable,
    sends: Vec<Span>,
    service: Option<Seconds>,
    first_key: u32,
    seed: u64,
) -> Result<Worker, Fault> {
    let workload = Workload {
        first_key,
        ..workload(table, sends, service)
    };
    let longest = table.config().frame_bytes_max;
    Worker::new(workload, longest, seed).map_err(Fault::value)
}

fn workload(table: &AcpTable, sends: Vec<Span>, service: Option<Seconds>) -> Workload {
    let constant = service.or(table.service).unwrap_or_default();
    Workload {
        sends,
        frames: table.frames.map(Count::get),
        frame_bytes: table.config().frame_bytes_max,
        frames_per_s: table.frame_rate.map(|rate| rate.0),
        keys: table.keys.get(),
        first_key: 0,
        service: match (service, table.square) {
            (None, Some(square)) => alternating(square),
            _ => Service::Constant(constant.duration()),
        },
    }
}

fn alternating(square: SquareTable) -> Service {
    Service::Square {
        low: square.low.duration(),
        high: square.high.duration(),
        period: square.period.duration(),
    }
}
