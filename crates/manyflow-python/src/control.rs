//! Congestion controls that are written in Python.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use manyflow_scenario::{Controls, Stop};
use manyflow_tcp as tcp;
use pyo3::prelude::*;

/// The state of a connection at an acknowledgement, a loss or a time-out.
#[pyclass(frozen, get_all, module = "manyflow._native")]
pub(crate) struct Moment {
    now_s: f64,
    acknowledged: u32,
    segment_bytes: u32,
    in_flight: u32,
    rtt_s: f64,
    rtt_sample_s: f64,
    is_mark: bool,
}

impl From<&tcp::Moment> for Moment {
    fn from(moment: &tcp::Moment) -> Moment {
        Moment {
            now_s: moment.now.as_secs_f64(),
            acknowledged: moment.acknowledged,
            segment_bytes: moment.segment_bytes,
            in_flight: moment.in_flight,
            rtt_s: moment.rtt_s,
            rtt_sample_s: moment.rtt_sample_s,
            is_mark: moment.is_mark,
        }
    }
}

/// The first exception of a control. It stops all runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure {
    error: Arc<Mutex<Option<PyErr>>>,
    stop: Stop,
}

impl Failure {
    pub(crate) fn new(stop: Stop) -> Failure {
        Failure {
            stop,
            ..Failure::default()
        }
    }

    fn report(&self, error: PyErr) {
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
        self.stop.request();
    }

    /// Returns the exception, if there was one.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Returns the controls of a scenario. Each name has a class, or another callable that makes an
/// object for each connection.
pub(crate) fn controls(makers: BTreeMap<String, Py<PyAny>>, failure: &Failure) -> Controls {
    let mut controls = Controls::default();
    for (name, maker) in makers {
        let failure = failure.clone();
        controls.add(&name, move || {
            Box::new(Control::new(&maker, failure.clone()))
        });
    }
    controls
}

/// A control whose decisions an object in Python makes. Its attributes `window` and `rate` are read
/// after each call.
#[derive(Debug)]
struct Control {
    /// The object, if it could be made.
    object: Option<Py<PyAny>>,
    window: f64,
    rate: Option<f64>,
    failure: Failure,
}

impl Control {
    fn new(maker: &Py<PyAny>, failure: Failure) -> Control {
        let mut control = Control {
            object: None,
            window: 1.0,
            rate: None,
            failure,
        };
        Python::attach(|py| {
            let made = maker.call0(py).and_then(|object| {
                control.take_over(object.bind(py))?;
                Ok(object)
            });
            match made {
                Ok(object) => control.object = Some(object),
                Err(error) => control.failure.report(error),
            }
        });
        control
    }

    /// Calls a method of the object, and takes over its decisions. After an exception nothing is
    /// called: the run is about to end.
    fn call(&mut self, method: &str, moment: &tcp::Moment) {
        if self.failure.stop.is_requested() {
            return;
        }
        let called = Python::attach(|py| {
            let Some(object) = self.object.as_ref().map(|object| object.clone_ref(py)) else {
                return Ok(());
            };
            object.call_method1(py, method, (Moment::from(moment),))?;
            self.take_over(object.bind(py))
        });
        if let Err(error) = called {
            self.failure.report(error);
        }
    }

    fn take_over(&mut self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        self.window = object.getattr("window")?.extract()?;
        self.rate = match object.getattr_opt("rate")? {
            Some(rate) => rate.extract()?,
            None => None,
        };
        Ok(())
    }
}

impl tcp::Control for Control {
    fn on_ack(&mut self, moment: &tcp::Moment) {
        self.call("on_ack", moment);
    }

    fn on_loss(&mut self, moment: &tcp::Moment) {
        self.call("on_loss", moment);
    }

    fn on_timeout(&mut self, moment: &tcp::Moment) {
        self.call("on_timeout", moment);
    }

    fn window_segments(&self) -> f64 {
        self.window
    }

    fn rate_bits_per_s(&self) -> Option<f64> {
        self.rate
    }
}
