//! Members of ordered groups, whose methods return awaitables of asyncio.

use std::sync::Arc;

use manyflow_messages::{Cause, ClientError, Member as Inner, MemberEvent};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::live::raise;
use crate::runtime::{drop_in_runtime, future_into_py};

struct State {
    address: String,
    /// `None` after the end.
    member: Mutex<Option<Inner>>,
    /// Wakes a reader that waits for an event: another call wants the member.
    wanted: Notify,
}

impl State {
    /// Takes the member from a reader. The lock is fair, so the reader gets it again afterwards.
    async fn take_turn(&self) -> MutexGuard<'_, Option<Inner>> {
        self.wanted.notify_one();
        self.member.lock().await
    }

    fn check(&self, result: Result<(), ClientError>) -> PyResult<()> {
        result.map_err(|error| raise(&self.address, &error))
    }
}

/// A member of ordered groups. `manyflow.live.Member` wraps it.
#[pyclass(frozen, name = "LiveMember", module = "manyflow._native")]
pub(crate) struct Member {
    /// `None` only while it is dropped.
    state: Option<Arc<State>>,
}

impl Member {
    pub(crate) fn new(address: &str, member: Inner) -> Member {
        let state = State {
            address: address.to_owned(),
            member: Mutex::new(Some(member)),
            wanted: Notify::new(),
        };
        Member {
            state: Some(Arc::new(state)),
        }
    }
}

#[pymethods]
impl Member {
    /// Joins a group.
    fn join<'py>(&self, py: Python<'py>, group: String) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state.clone();
        future_into_py(py, async move {
            let Some(state) = state else { return Ok(()) };
            match state.take_turn().await.as_mut() {
                Some(member) => state.check(member.join(&group).await),
                None => Ok(()),
            }
        })
    }

    /// Leaves a group.
    fn leave<'py>(&self, py: Python<'py>, group: String) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state.clone();
        future_into_py(py, async move {
            let Some(state) = state else { return Ok(()) };
            match state.take_turn().await.as_mut() {
                Some(member) => state.check(member.leave(&group).await),
                None => Ok(()),
            }
        })
    }

    /// Waits for the next event; `None` after the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state.clone();
        future_into_py(py, async move {
            let Some(state) = state else { return Ok(None) };
            loop {
                let mut member = state.member.lock().await;
                let Some(member) = member.as_mut() else {
                    return Ok(None);
                };
                tokio::select! {
                    event = member.next() => {
                        let event = event.transpose();
                        let event = event.map_err(|error| raise(&state.address, &error))?;
                        return Ok(event.map(Event));
                    }
                    () = state.wanted.notified() => {}
                }
            }
        })
    }

    /// Leaves all groups.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.state.clone();
        future_into_py(py, async move {
            if let Some(state) = state {
                state.take_turn().await.take();
            }
            Ok(())
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop_in_runtime(self.state.take());
    }
}

/// Something that a member gets, as one of three tuples.
struct Event(MemberEvent);

impl<'py> IntoPyObject<'py> for Event {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = match self.0 {
            MemberEvent::Message(message) => {
                let payload = PyBytes::new(py, &message.payload);
                let service = message.service.to_string();
                ("message", service, message.sender, message.groups, payload).into_pyobject(py)?
            }
            MemberEvent::View(view) => {
                let (cause, who) = match &view.cause {
                    Cause::Join(who) => ("join", Some(&**who)),
                    Cause::Leave(who) => ("leave", Some(&**who)),
                    Cause::Disconnect(who) => ("disconnect", Some(&**who)),
                    Cause::Network => ("network", None),
                };
                let id = view.id.to_string();
                let members = (view.members, view.stayed, view.own_name);
                ("view", view.group, id, members, cause, who).into_pyobject(py)?
            }
            MemberEvent::Transitional(group) => ("transitional", group).into_pyobject(py)?,
            other => (format!("{other:?}"),).into_pyobject(py)?,
        };
        Ok(object.into_any())
    }
}
