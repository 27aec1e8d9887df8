//! Chat templates: Jinja over JSON values, with limits on time, memory and depth.

use crate::border::{array, guard, TwBuffer, TwSlice, TwVec};
use aho_corasick::{AhoCorasick, MatchKind};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};
use serde::Serialize;
use serde_json::{Map, Value as Json};

/// Instructions, and one per 64 bytes made: a second or so, and at most 64 MiB beside the input.
const BASE_FUEL: u64 = 1_000_000;
/// On top, so that a long conversation may be copied a few times.
const FUEL_PER_INPUT_BYTE: u64 = 2;
const RECURSION_LIMIT: usize = 120;
const MAX_TEMPLATE_BYTES: usize = 1 << 20;

/// Names that a request cannot give as a further variable.
const RESERVED: [&str; 4] = ["messages", "tools", "add_generation_prompt", "continue_final_message"];

const NAME: &str = "chat_template";

pub struct TwTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

fn compile(source: &str, bos: &str, eos: &str) -> Result<TwTemplate, String> {
    if source.len() > MAX_TEMPLATE_BYTES {
        return Err(format!("chat template has {} bytes, at most {MAX_TEMPLATE_BYTES} are supported", source.len()));
    }
    let mut environment = Environment::new();
    environment
        .set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| e.to_string())?);
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_debug(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(print_as_python);
    environment.add_filter("tojson", to_json);
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_template_owned(NAME, without_generation_marks(source)).map_err(|e| describe(&e))?;
    Ok(TwTemplate { environment, bos: bos.to_owned(), eos: eos.to_owned() })
}

/// `{% generation %}` marks what a trainer learns from; for a prompt it is a block without effect.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open);
        out.push_str(before);
        let Some(close) = tag[2..].find("%}").map(|at| at + 2) else {
            rest = tag;
            break;
        };
        let (tag, after) = tag.split_at(close + 2);
        match tag[2..close].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+') {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn describe(error: &Error) -> String {
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too long or makes too much text".to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let line = error.line().map_or(String::new(), |line| format!(" at line {line}"));
    let mut text = format!("chat template{line}: {what}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

// ---- what Python's templates expect ----------------------------------------------------------------

/// `{{ true }}` is `True`, `{{ none }}` is `None` in Jinja2.
fn print_as_python(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }).map_err(Error::from),
        ValueKind::None => out.write_str("None").map_err(Error::from),
        ValueKind::Undefined | ValueKind::String => minijinja::escape_formatter(out, state, value),
        ValueKind::Number if value.is_integer() => minijinja::escape_formatter(out, state, value),
        _ => {
            let mut text = String::new();
            python_repr(value, 0, &mut text)?;
            state.consume_fuel(text.len() as u64 / 64)?;
            out.write_str(&text).map_err(Error::from)
        }
    }
}

fn python_repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > RECURSION_LIMIT {
        return Err(Error::new(ErrorKind::InvalidOperation, "value is nested too deep to print"));
    }
    match value.kind() {
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::None => out.push_str("None"),
        ValueKind::Number if !value.is_integer() => {
            let number = f64::try_from(value.clone())?;
            out.push_str(&python_float(number));
        }
        ValueKind::String => python_quote(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => {
            let tuple = value.is_tuple();
            out.push(if tuple { '(' } else { '[' });
            let mut count = 0;
            for (i, each) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                python_repr(&each, depth + 1, out)?;
                count += 1;
            }
            if tuple && count == 1 {
                out.push(',');
            }
            out.push(if tuple { ')' } else { ']' });
        }
        ValueKind::Map if !value.is_kwargs() => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                python_repr(&key, depth + 1, out)?;
                out.push_str(": ");
                python_repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn python_quote(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || c as u32 == 0x7F => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// Shortest digits, as Python prints them: an exponent from 1e16 on and below 1e-4.
fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let text = format!("{number}");
    if text.contains('.') {
        text
    } else {
        text + ".0"
    }
}

/// `json.dumps(value, ensure_ascii=False)`: spaces after comma and colon, no escapes for HTML.
struct PythonJson<'a> {
    pretty: Option<serde_json::ser::PrettyFormatter<'a>>,
}

impl serde_json::ser::Formatter for PythonJson<'_> {
    fn write_f64<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, value: f64) -> std::io::Result<()> {
        writer.write_all(python_float(value).as_bytes())
    }

    fn begin_array<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.begin_array(writer),
            None => writer.write_all(b"["),
        }
    }

    fn end_array<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.end_array(writer),
            None => writer.write_all(b"]"),
        }
    }

    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.begin_array_value(writer, first),
            None if first => Ok(()),
            None => writer.write_all(b", "),
        }
    }

    fn end_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        self.pretty.as_mut().map_or(Ok(()), |pretty| pretty.end_array_value(writer))
    }

    fn begin_object<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.begin_object(writer),
            None => writer.write_all(b"{"),
        }
    }

    fn end_object<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.end_object(writer),
            None => writer.write_all(b"}"),
        }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        match &mut self.pretty {
            Some(pretty) => pretty.begin_object_key(writer, first),
            None if first => Ok(()),
            None => writer.write_all(b", "),
        }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        self.pretty.as_mut().map_or(Ok(()), |pretty| pretty.end_object_value(writer))
    }
}

/// Inside JSON only strings hold such characters. Private ones stay, as they may stand in for others.
fn escape_beyond_ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut units = [0; 2];
    for c in json.chars() {
        if c.is_ascii() || c >= '\u{F0000}' {
            out.push(c);
        } else {
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

fn refuse_undefined(value: &Value, depth: usize) -> Result<(), Error> {
    if depth > RECURSION_LIMIT {
        return Err(Error::new(ErrorKind::InvalidOperation, "value is nested too deep for tojson"));
    }
    match value.kind() {
        ValueKind::Undefined => Err(Error::new(ErrorKind::UndefinedError, "tojson of an undefined value")),
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.try_for_each(|each| refuse_undefined(&each, depth + 1))
        }
        ValueKind::Map => value.try_iter()?.try_for_each(|key| refuse_undefined(&value.get_item(&key)?, depth + 1)),
        _ => Ok(()),
    }
}

fn to_json(state: &State, value: &Value, options: Kwargs) -> Result<Value, Error> {
    const MAX_INDENT: usize = 16;
    let indent: Option<Value> = options.get("indent")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let separators: Option<Value> = options.get("separators")?;
    options.assert_all_used()?;
    let indent = match indent {
        Some(indent) if !indent.is_none() && !indent.is_undefined() => Some(usize::try_from(indent)?.min(MAX_INDENT)),
        _ => None,
    };
    refuse_undefined(value, 0)?;

    let mut json =
        serde_json::to_value(value).map_err(|e| Error::new(ErrorKind::BadSerialization, format!("tojson: {e}")))?;
    if sort_keys == Some(true) {
        json.sort_all_objects();
    }
    let indent_text = [b' '; MAX_INDENT];
    let mut out = Vec::new();
    let written = match separators {
        // Templates that give separators ask for the short form.
        Some(given) if !given.is_none() && indent.is_none() => {
            let pair: Vec<String> = given.try_iter()?.map(|each| each.to_string()).collect();
            if pair != [",", ":"] && pair != [", ", ": "] {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "tojson: separators are (',', ':') or (', ', ': ')",
                ));
            }
            if pair[0] == "," {
                json.serialize(&mut serde_json::Serializer::new(&mut out))
            } else {
                let formatter = PythonJson { pretty: None };
                json.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter))
            }
        }
        _ => {
            let pretty = indent.map(|size| serde_json::ser::PrettyFormatter::with_indent(&indent_text[..size]));
            json.serialize(&mut serde_json::Serializer::with_formatter(&mut out, PythonJson { pretty }))
        }
    };
    written.map_err(|e| Error::new(ErrorKind::BadSerialization, format!("tojson: {e}")))?;
    state.consume_fuel(out.len() as u64 / 64)?;
    let text = String::from_utf8(out).map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(Value::from(if ensure_ascii == Some(true) { escape_beyond_ascii(&text) } else { text }))
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The date in UTC, so that a prompt does not depend on where the server stands.
fn strftime_now(format: String) -> Result<String, Error> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    strftime(&format, now)
}

fn strftime(format: &str, unix_seconds: u64) -> Result<String, Error> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let days = (unix_seconds / 86400) as i64;
    let second_of_day = unix_seconds % 86400;
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let (year, month, day) = civil_date(days);
    let weekday = DAYS[(days % 7) as usize];
    let month_name = MONTHS[(month - 1) as usize];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let (unpadded, code) = match chars.next() {
            Some('-') => (true, chars.next()),
            other => (false, other),
        };
        let number = |value: u64| {
            if unpadded {
                value.to_string()
            } else {
                format!("{value:02}")
            }
        };
        match code {
            Some('Y') => out.push_str(&year.to_string()),
            Some('y') => out.push_str(&number((year % 100) as u64)),
            Some('m') => out.push_str(&number(month as u64)),
            Some('d') => out.push_str(&number(day as u64)),
            Some('H') => out.push_str(&number(hour)),
            Some('I') => out.push_str(&number((hour + 11) % 12 + 1)),
            Some('M') => out.push_str(&number(minute)),
            Some('S') => out.push_str(&number(second)),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('B') => out.push_str(month_name),
            Some('b' | 'h') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(weekday),
            Some('a') => out.push_str(&weekday[..3]),
            Some('F') => out.push_str(&format!("{year}-{month:02}-{day:02}")),
            Some('T') => out.push_str(&format!("{hour:02}:{minute:02}:{second:02}")),
            Some('Z') => out.push_str("UTC"),
            Some('z') => out.push_str("+0000"),
            Some('%') => out.push('%'),
            other => {
                let code = other.map_or(String::new(), |c| c.to_string());
                return Err(Error::new(ErrorKind::InvalidOperation, format!("strftime_now: %{code} is not supported")));
            }
        }
    }
    Ok(out)
}

/// Days since 1970-01-01 to year, month, day (proleptic Gregorian; eras of 400 years from 0000-03-01).
fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

// ---- conversations ---------------------------------------------------------------------------------

struct Request<'a> {
    messages: &'a str,
    tools: &'a str,
    kwargs: &'a str,
    add_generation_prompt: bool,
    continue_final_message: bool,
    specials: &'a [&'a str],
}

/// A special token that the template wrote, as a range of the text.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TwSpan {
    begin: usize,
    end: usize,
}

struct Rendered {
    text: String,
    /// Only when message text holds the letters of special tokens: the places that are tokens.
    specials: Option<Vec<TwSpan>>,
}

fn parse(what: &str, text: &str) -> Result<Json, String> {
    serde_json::from_str(text).map_err(|e| format!("{what} is not valid JSON: {e}"))
}

/// Calls `visit` on every string in `value`, keys included. Parsed JSON is at most 128 deep.
fn visit_strings(value: &mut Json, visit: &mut impl FnMut(&mut String)) {
    match value {
        Json::String(text) => visit(text),
        Json::Array(items) => items.iter_mut().for_each(|item| visit_strings(item, visit)),
        Json::Object(fields) => {
            for (mut key, mut field) in std::mem::take(fields) {
                visit(&mut key);
                visit_strings(&mut field, visit);
                fields.insert(key, field);
            }
        }
        _ => {}
    }
}

/// OpenAI sends a call's arguments as a JSON text; templates want the object.
fn parse_call_arguments(messages: &mut Json) {
    let Some(messages) = messages.as_array_mut() else {
        return;
    };
    for message in messages {
        let Some(calls) = message.get_mut("tool_calls").and_then(Json::as_array_mut) else {
            continue;
        };
        for call in calls {
            let holder = if call.get("function").is_some() { call.get_mut("function") } else { Some(call) };
            if let Some(arguments) = holder.and_then(|holder| holder.get_mut("arguments")) {
                let parsed = arguments.as_str().and_then(|text| serde_json::from_str::<Json>(text).ok());
                if let Some(object) = parsed.filter(Json::is_object) {
                    *arguments = object;
                }
            }
        }
    }
}

/// Private-use characters that occur nowhere in the request or the template.
fn unused_characters(texts: &[&str], count: usize) -> Result<Vec<char>, String> {
    let mut used = std::collections::HashSet::new();
    for text in texts {
        used.extend(text.chars().filter(|c| (*c as u32) >= 0xF0000));
    }
    let free: Vec<char> = ('\u{F0000}'..='\u{FFFFD}').filter(|c| !used.contains(c)).take(count).collect();
    if free.len() < count {
        return Err("the request uses every private character there is".to_owned());
    }
    Ok(free)
}

/// Stand-ins for the first characters of special tokens inside message text: the template sees text of
/// the same length in which no special token can be found.
struct StandIns {
    of: Vec<(char, char)>, // first character, stand-in
}

impl StandIns {
    /// One pass; true if it hid something, and then another token may show that overlapped with one.
    fn hide(&self, text: &mut String, finder: &AhoCorasick) -> bool {
        let mut hidden = String::new();
        let mut done = 0;
        for found in finder.find_iter(text.as_str()) {
            let first = text[found.start()..].chars().next().expect("special tokens are not empty");
            hidden.push_str(&text[done..found.start()]);
            hidden.push(self.of.iter().find(|(c, _)| *c == first).map_or(first, |(_, stand_in)| *stand_in));
            done = found.start() + first.len_utf8();
        }
        if done == 0 {
            return false;
        }
        hidden.push_str(&text[done..]);
        *text = hidden;
        true
    }

    fn restore(&self, text: &str) -> String {
        text.chars().map(|c| self.of.iter().find(|(_, s)| *s == c).map_or(c, |(first, _)| *first)).collect()
    }
}

fn render(template: &TwTemplate, request: &Request) -> Result<Rendered, String> {
    let mut messages = parse("messages", request.messages)?;
    if !messages.as_array().is_some_and(|list| list.iter().all(Json::is_object)) {
        return Err("messages must be an array of objects".to_owned());
    }
    let mut tools = if request.tools.is_empty() { Json::Null } else { parse("tools", request.tools)? };
    if !(tools.is_null() || tools.is_array()) {
        return Err("tools must be an array".to_owned());
    }
    let mut kwargs = match request.kwargs {
        "" => Map::new(),
        text => match parse("chat_template_kwargs", text)? {
            Json::Object(fields) => fields,
            Json::Null => Map::new(),
            _ => return Err("chat_template_kwargs must be an object".to_owned()),
        },
    };
    if let Some(name) = RESERVED.iter().find(|name| kwargs.contains_key(**name)) {
        return Err(format!("chat_template_kwargs may not set \"{name}\"; it has its own field"));
    }
    parse_call_arguments(&mut messages);

    let source = template.environment.get_template(NAME).map_err(|e| describe(&e))?;
    let texts = [request.messages, request.tools, request.kwargs, source.source(), &template.bos, &template.eos];
    // Escapes in the JSON could spell a private character, so decoded strings are looked at.
    let decoded = std::cell::RefCell::new(Vec::new());
    let mut collect = |text: &mut String| {
        if text.chars().any(|c| c as u32 >= 0xF0000) {
            decoded.borrow_mut().push(text.clone());
        }
    };
    visit_strings(&mut messages, &mut collect);
    visit_strings(&mut tools, &mut collect);
    kwargs.values_mut().for_each(|value| visit_strings(value, &mut collect));
    let decoded = decoded.into_inner();

    let mut first_characters: Vec<char> = request.specials.iter().filter_map(|name| name.chars().next()).collect();
    first_characters.sort_unstable();
    first_characters.dedup();
    let all_texts: Vec<&str> = texts.iter().copied().chain(decoded.iter().map(String::as_str)).collect();
    let free = unused_characters(&all_texts, first_characters.len() + 1)?;
    let end_mark = free[0];
    let stand_ins = StandIns { of: first_characters.into_iter().zip(free[1..].iter().copied()).collect() };

    let mut finder = None;
    let mut hidden = false;
    if !request.specials.is_empty() {
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(request.specials)
            .map_err(|e| format!("special tokens: {e}"))?;
        let mut hide = |text: &mut String| {
            while stand_ins.hide(text, &automaton) {
                hidden = true;
            }
        };
        visit_strings(&mut messages, &mut hide);
        visit_strings(&mut tools, &mut hide);
        kwargs.values_mut().for_each(|value| visit_strings(value, &mut hide));
        finder = Some(automaton);
    }
    if request.continue_final_message {
        mark_final_message(&mut messages, end_mark)?;
    }

    let num_input_bytes = texts.iter().map(|text| text.len() as u64).sum::<u64>();
    let mut variables = Map::new();
    variables.insert("bos_token".to_owned(), template.bos.clone().into());
    variables.insert("eos_token".to_owned(), template.eos.clone().into());
    variables.extend(kwargs);
    variables.insert("messages".to_owned(), messages);
    variables.insert("tools".to_owned(), tools);
    variables.entry("documents").or_insert(Json::Null);
    variables.insert("add_generation_prompt".to_owned(), request.add_generation_prompt.into());

    let mut environment = template.environment.clone();
    environment.set_fuel(Some(BASE_FUEL + FUEL_PER_INPUT_BYTE * num_input_bytes));
    let source = environment.get_template(NAME).map_err(|e| describe(&e))?;
    let mut text = source.render(Value::from(Serde(variables))).map_err(|e| describe(&e))?;
    if request.continue_final_message {
        text = cut_at_mark(text, end_mark)?;
    }
    if !hidden {
        return Ok(Rendered { text, specials: None });
    }

    let mut restored = String::with_capacity(text.len());
    let mut specials = Vec::new();
    let mut done = 0;
    for found in finder.iter().flat_map(|finder| finder.find_iter(text.as_str())) {
        restored.push_str(&stand_ins.restore(&text[done..found.start()]));
        let begin = restored.len();
        restored.push_str(&text[found.range()]);
        specials.push(TwSpan { begin, end: restored.len() });
        done = found.end();
    }
    restored.push_str(&stand_ins.restore(&text[done..]));
    Ok(Rendered { text: restored, specials: Some(specials) })
}

/// Puts `mark` at the end of the last message's text.
fn mark_final_message(messages: &mut Json, mark: char) -> Result<(), String> {
    let last = messages
        .as_array_mut()
        .and_then(|list| list.last_mut())
        .ok_or("continue_final_message needs a message to continue; messages is empty")?;
    let text = match last.get_mut("content") {
        Some(Json::String(text)) => Some(text),
        Some(Json::Array(parts)) => parts.iter_mut().rev().find_map(|part| match part.get_mut("text") {
            Some(Json::String(text)) => Some(text),
            _ => None,
        }),
        _ => None,
    };
    // The space tells whether the template trims.
    text.ok_or("continue_final_message needs text in the last message; it has none")?.extend([mark, ' ']);
    Ok(())
}

fn cut_at_mark(mut text: String, mark: char) -> Result<String, String> {
    let at = text.rfind(mark).ok_or("continue_final_message: the chat template drops the last message's text")?;
    let keeps_space = text[at + mark.len_utf8()..].starts_with(' ');
    text.truncate(at);
    if !keeps_space {
        text.truncate(text.trim_end().len());
    }
    Ok(text.replace(mark, ""))
}

// ---- C border --------------------------------------------------------------------------------------

#[repr(C)]
pub struct TwConversation {
    messages: TwSlice,
    tools: TwSlice,
    kwargs: TwSlice,
    add_generation_prompt: bool,
    continue_final_message: bool,
    specials: *const TwSlice,
    num_specials: usize,
}

pub type TwSpans = TwVec<TwSpan>;

#[no_mangle]
pub unsafe extern "C" fn tw_spans_free(spans: *mut TwSpans) {
    (*spans).take_back();
}

#[no_mangle]
pub unsafe extern "C" fn tw_template_compile(
    source: TwSlice,
    bos: TwSlice,
    eos: TwSlice,
    error: *mut TwBuffer,
) -> *mut TwTemplate {
    guard(error, || compile(source.text("the chat template")?, bos.text("bos_token")?, eos.text("eos_token")?))
        .map_or(std::ptr::null_mut(), |template| Box::into_raw(Box::new(template)))
}

#[no_mangle]
pub unsafe extern "C" fn tw_template_free(template: *mut TwTemplate) {
    if !template.is_null() {
        guard(std::ptr::null_mut(), || {
            drop(Box::from_raw(template));
            Ok(())
        });
    }
}

#[no_mangle]
pub unsafe extern "C" fn tw_template_render(
    template: *const TwTemplate,
    conversation: *const TwConversation,
    text: *mut TwBuffer,
    hidden_specials: *mut bool,
    specials: *mut TwSpans,
    error: *mut TwBuffer,
) -> bool {
    let rendered = guard(error, || {
        let conversation = &*conversation;
        // Names that are not text cannot occur in a template's text.
        let names: Vec<&str> = array(conversation.specials, conversation.num_specials)
            .iter()
            .filter_map(|name| std::str::from_utf8(name.bytes()).ok())
            .filter(|name| !name.is_empty())
            .collect();
        render(
            &*template,
            &Request {
                messages: conversation.messages.text("messages")?,
                tools: conversation.tools.text("tools")?,
                kwargs: conversation.kwargs.text("chat_template_kwargs")?,
                add_generation_prompt: conversation.add_generation_prompt,
                continue_final_message: conversation.continue_final_message,
                specials: &names,
            },
        )
    });
    match rendered {
        Some(rendered) => {
            text.write(TwBuffer::give(rendered.text.into_bytes()));
            hidden_specials.write(rendered.specials.is_some());
            specials.write(TwSpans::give(rendered.specials.unwrap_or_default()));
            true
        }
        None => false,
    }
}
