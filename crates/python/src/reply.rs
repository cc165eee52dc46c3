//! Replies and errors, as Python gets them.

use pyo3::exceptions::{PyConnectionAbortedError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use semel_embedded::{ApiReply, ApiRequestError, EngineGone, OpeningError};

/// A reply of the API: status, headers, body.
pub(crate) type PyReply<'py> = (u16, Bound<'py, PyDict>, Bound<'py, PyBytes>);

pub(crate) fn reply_to_python<'py>(reply: &ApiReply, py: Python<'py>) -> PyResult<PyReply<'py>> {
    let headers = PyDict::new(py);
    for (name, value) in reply.headers() {
        headers.set_item(name, value)?;
    }
    Ok((reply.status, headers, PyBytes::new(py, &reply.body)))
}

pub(crate) fn gone(error: EngineGone) -> PyErr {
    PyConnectionAbortedError::new_err(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "handed to `map_err`")]
pub(crate) fn invalid(error: ApiRequestError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub(crate) fn not_opened(error: OpeningError) -> PyErr {
    match error {
        OpeningError::Runtime(error) => PyOSError::new_err(error.to_string()),
        OpeningError::Refused(why) => PyValueError::new_err(why),
    }
}
