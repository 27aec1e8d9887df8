//! Line editing with history on a terminal.

use crate::border::{guard, TwBuffer, TwSlice};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

const MAX_HISTORY: usize = 1000;

pub struct TwLineEditor {
    editor: Editor<(), MemHistory>,
}

fn new_editor() -> Result<TwLineEditor, String> {
    let config = Config::builder().max_history_size(MAX_HISTORY).map_err(|e| e.to_string())?.build();
    let history = MemHistory::with_config(&config);
    let editor = Editor::with_history(config, history).map_err(|e| e.to_string())?;
    Ok(TwLineEditor { editor })
}

enum Line {
    Text(String),
    End,
    Interrupted,
}

fn read(editor: &mut TwLineEditor, prompt: &str) -> Result<Line, String> {
    match editor.editor.readline(prompt) {
        Ok(text) => Ok(Line::Text(text)),
        Err(ReadlineError::Eof) => Ok(Line::End),
        Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
        Err(error) => Err(error.to_string()),
    }
}

#[no_mangle]
pub unsafe extern "C" fn tw_line_editor_new(error: *mut TwBuffer) -> *mut TwLineEditor {
    guard(error, new_editor).map_or(std::ptr::null_mut(), |editor| Box::into_raw(Box::new(editor)))
}

#[no_mangle]
pub unsafe extern "C" fn tw_line_editor_free(editor: *mut TwLineEditor) {
    if !editor.is_null() {
        guard(std::ptr::null_mut(), || {
            drop(Box::from_raw(editor));
            Ok(())
        });
    }
}

/// 0: `line` is written; 1: end of input; 2: interrupted (Ctrl-C); -1: `error` is written.
#[no_mangle]
pub unsafe extern "C" fn tw_line_editor_read(
    editor: *mut TwLineEditor,
    prompt: TwSlice,
    line: *mut TwBuffer,
    error: *mut TwBuffer,
) -> i32 {
    match guard(error, || read(&mut *editor, prompt.text("prompt")?)) {
        Some(Line::Text(text)) => {
            line.write(TwBuffer::give(text.into_bytes()));
            0
        }
        Some(Line::End) => 1,
        Some(Line::Interrupted) => 2,
        None => -1,
    }
}

#[no_mangle]
pub unsafe extern "C" fn tw_line_editor_remember(editor: *mut TwLineEditor, line: TwSlice) {
    guard(std::ptr::null_mut(), || (*editor).editor.add_history_entry(line.text("line")?).map_err(|e| e.to_string()));
}
