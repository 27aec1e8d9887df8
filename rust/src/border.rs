//! What crosses the C border: borrowed slices in, owned buffers out, errors as text.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

/// Borrowed bytes, valid for the length of the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TwSlice {
    pub data: *const u8,
    pub size: usize,
}

impl TwSlice {
    /// # Safety
    /// `data` points to `size` readable bytes for the lifetime the caller picks.
    pub unsafe fn bytes<'a>(&self) -> &'a [u8] {
        array(self.data, self.size)
    }

    /// # Safety
    /// As `bytes`.
    pub unsafe fn text<'a>(&self, what: &str) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes()).map_err(|e| format!("{what} is not valid UTF-8 at byte {}", e.valid_up_to()))
    }
}

/// # Safety
/// `data` points to `size` readable values, or `size` is 0.
pub unsafe fn array<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

/// A vector given away; its `tw_*_free` takes it back.
#[repr(C)]
pub struct TwVec<T> {
    data: *mut T,
    size: usize,
    capacity: usize,
}

pub type TwBuffer = TwVec<u8>;
pub type TwIds = TwVec<i32>;

impl<T> TwVec<T> {
    pub fn give(values: Vec<T>) -> Self {
        let mut values = std::mem::ManuallyDrop::new(values);
        Self { data: values.as_mut_ptr(), size: values.len(), capacity: values.capacity() }
    }

    /// # Safety
    /// The vector was made by `give` and not changed.
    pub unsafe fn take_back(&mut self) {
        if !self.data.is_null() {
            drop(Vec::from_raw_parts(self.data, self.size, self.capacity));
            self.data = std::ptr::null_mut();
        }
    }
}

#[no_mangle]
pub unsafe extern "C" fn tw_buffer_free(buffer: *mut TwBuffer) {
    (*buffer).take_back();
}

#[no_mangle]
pub unsafe extern "C" fn tw_ids_free(ids: *mut TwIds) {
    (*ids).take_back();
}

pub fn panic_text(payload: Box<dyn std::any::Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    format!("refused by a library: {text}")
}

/// A panic is reported as an error, so nothing is printed for it. All Rust code of the program is this crate.
static QUIET_PANICS: Once = Once::new();

/// Runs `body`; on an error or a panic writes the text to `error` and returns None.
///
/// # Safety
/// `error` is null or writable.
pub unsafe fn guard<T>(error: *mut TwBuffer, body: impl FnOnce() -> Result<T, String>) -> Option<T> {
    QUIET_PANICS.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(message)) => message,
        Err(payload) => panic_text(payload),
    };
    if !error.is_null() {
        error.write(TwBuffer::give(message.into_bytes()));
    }
    None
}
