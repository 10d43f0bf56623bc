//! The lab as WebAssembly: the memory and the calls by which a page's worker reaches a
//! `manyflow_lab::LocalLab`. `web/worker.js` of the crate `manyflow` is the other side.
//!
//! The worker writes a question behind `input`, calls `ask`, and reads the answer at `output`.
//! Questions and answers are JSON in UTF-8. While runs are made, the worker's function `event`
//! takes their events. For these four functions, wasm-bindgen is not worth a step of the build.
//!
//! On other targets this crate is empty.
#![cfg(target_arch = "wasm32")]

use std::cell::RefCell;

use manyflow_lab::LocalLab;
use serde_json::{Value, json};

#[link(wasm_import_module = "lab")]
unsafe extern "C" {
    /// Takes the text `{"kind": ..., "value": ...}` of this length.
    safe fn event(text: *const u8, bytes: usize);
}

thread_local! {
    static LAB: RefCell<LocalLab> = RefCell::default();
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns the place for a question of this length in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn input(bytes: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(bytes, 0);
        input.as_mut_ptr()
    })
}

/// Answers the question that was written behind [`input`]. Returns the length of the answer in
/// bytes: `{"answer": ...}`, or `{"error": ...}` with the reason.
#[unsafe(no_mangle)]
pub extern "C" fn ask() -> usize {
    let question = INPUT.with_borrow(|input| String::from_utf8_lossy(input).into_owned());
    let mut report = |kind: &str, value: &Value| {
        let text = json!({"kind": kind, "value": value}).to_string();
        event(text.as_ptr(), text.len());
    };
    let answer = LAB.with_borrow_mut(|lab| lab.ask(&question, &mut report));
    let answer = match answer {
        Ok(answer) => json!({"answer": answer}),
        Err(error) => json!({"error": error}),
    };
    OUTPUT.with_borrow_mut(|output| {
        *output = answer.to_string();
        output.len()
    })
}

/// Returns the place of the answer, which remains until the next question.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}
