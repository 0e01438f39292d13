//! One page on its way into the cache: bytes in, changed bytes out.

use std::borrow::Cow;
use std::mem;
use std::sync::{Arc, LazyLock};

use encoding_rs::WINDOWS_1252;
use lol_html::html_content::{ContentType, TextChunk};
use lol_html::send::{Element, HtmlRewriter, IntoHandler, Settings, TextHandler};
use lol_html::{
    AsciiCompatibleEncoding, ElementContentHandlers, HandlerResult, MemorySettings, OutputSink,
    Selector,
};
use microcache_policy::edge::MOST_FRAGMENTS;
use parking_lot::Mutex;

use super::scripts::ScriptValue;
use super::tags::{BrowserInclude, TagReader};
use crate::config::page_edits::{Assembly, Hole, PageEdits, Token, TokenPlace, escaped};

/// The most memory for the elements around the place that is read, and for one tag.
const MEMORY: usize = 1 << 20;
/// The longest script in which variables are replaced, in bytes.
const LONGEST_SCRIPT: usize = 1 << 20;

type Handlers = ElementContentHandlers<'static, lol_html::send::SendHandlerTypes>;

/// The element that stands for an include of the browser.
static ELEMENT: LazyLock<Option<Selector>> = LazyLock::new(|| "microcache-include".parse().ok());
static SCRIPT: LazyLock<Option<Selector>> = LazyLock::new(|| "script".parse().ok());

/// Changes a page while it arrives.
pub(super) struct PageEditor {
    tags: TagReader,
    /// `None` once it has given up, or at the end.
    html: Option<HtmlRewriter<'static, Output>>,
    state: Arc<Mutex<EditState>>,
}

/// The part of an editor that its handlers share.
struct EditState {
    out: Vec<u8>,
    includes: Vec<BrowserInclude>,
    /// Holes so far.
    holes: usize,
    /// The element of the script, until it is in the page.
    script: Option<String>,
    /// A script has a token that the browser replaces.
    has_variable: bool,
    /// The rest of the page is unchanged, since it takes too much memory.
    has_given_up: bool,
}

struct Output(Arc<Mutex<EditState>>);

impl OutputSink for Output {
    fn handle_chunk(&mut self, chunk: &[u8]) {
        self.0.lock().out.extend_from_slice(chunk);
    }
}

impl EditState {
    /// Puts the script before an element, once in a page.
    fn add_script(&mut self, element: &mut Element<'_, '_>) {
        if let Some(script) = self.script.take() {
            element.before(&script, ContentType::Html);
        }
    }
}

impl PageEditor {
    /// `has_tokens`: the page is not one that brings a visitor's own tokens.
    pub(super) fn new(edits: &PageEdits, tags: TagReader, has_tokens: bool) -> Self {
        let state = Arc::new(Mutex::new(EditState {
            out: Vec::new(),
            includes: Vec::new(),
            holes: 0,
            script: Some(edits.script()),
            has_variable: false,
            has_given_up: false,
        }));
        // Every byte is a character of it, so text in any encoding goes through unchanged.
        let encoding = AsciiCompatibleEncoding::new(WINDOWS_1252);
        let memory = MemorySettings::new()
            .with_max_allowed_memory_usage(MEMORY)
            .with_graceful_bail_out_on_memory_limit_exceeded(true);
        let mut settings = Settings::new_send()
            .with_encoding(encoding.unwrap_or_else(AsciiCompatibleEncoding::utf_8))
            .with_memory_settings(memory)
            .with_strict(false)
            .with_enable_esi_tags(true)
            .with_adjust_charset_on_meta_tag(false)
            .with_graceful_bail_out_on_content_handler_error(true);
        let mut add = |select: &Selector, handlers: Handlers| {
            let empty = Settings::new_send();
            let before = mem::replace(&mut settings, empty);
            settings =
                before.append_element_content_handler((Cow::Owned(select.clone()), handlers));
        };
        if let Some(select) = &*ELEMENT {
            add(select, on_element(&state, include));
        }
        for hole in &edits.holes {
            add(
                &hole.select.parsed,
                hole_handler(&state, hole, edits.assembly),
            );
        }
        let tokens = edits.tokens.iter().filter(|_| has_tokens);
        let mut variables = Vec::new();
        for token in tokens {
            match &token.place {
                TokenPlace::Attribute(select, name) => {
                    add(&select.parsed, token_handler(&state, token, name));
                }
                TokenPlace::Variable(path) => variables.push((path.clone(), token.clone())),
            }
        }
        if let Some(select) = SCRIPT.as_ref().filter(|_| !variables.is_empty()) {
            add(select, script_handler(&state, variables));
        }
        let html = HtmlRewriter::new(settings, Output(Arc::clone(&state)));
        let html = Some(html);
        Self { tags, html, state }
    }

    /// Returns the next bytes of the changed page.
    pub(super) fn write(&mut self, data: &[u8]) -> Vec<u8> {
        self.push(data, false)
    }

    /// Returns the last bytes of the changed page.
    pub(super) fn end(&mut self) -> Vec<u8> {
        self.push(&[], true)
    }

    /// Returns true if a part of the page was not changed.
    pub(super) fn has_given_up(&self) -> bool {
        self.state.lock().has_given_up
    }

    fn push(&mut self, data: &[u8], is_last: bool) -> Vec<u8> {
        let text = self
            .tags
            .read(data, is_last, &mut self.state.lock().includes);
        let has_failed = if let Some(html) = &mut self.html {
            // It writes what it does not change after a failure, too.
            !text.is_empty() && html.write(&text).is_err()
        } else {
            self.state.lock().out.extend_from_slice(&text);
            false
        };
        if has_failed {
            self.html = None;
        }
        let has_failed_at_end = is_last && self.html.take().is_some_and(|it| it.end().is_err());
        let mut state = self.state.lock();
        state.has_given_up |= has_failed || has_failed_at_end;
        mem::take(&mut state.out)
    }
}

/// Returns the handlers for elements of one selector.
fn on_element(
    state: &Arc<Mutex<EditState>>,
    mut change: impl FnMut(&mut EditState, &mut Element<'_, '_>) -> HandlerResult + Send + 'static,
) -> Handlers {
    let state = Arc::clone(state);
    let handler = move |element: &mut Element<'_, '_>| change(&mut state.lock(), element);
    Handlers::default().element(handler)
}

/// Completes the element in the place of an include.
fn include(state: &mut EditState, element: &mut Element<'_, '_>) -> HandlerResult {
    let number = element.get_attribute("slot").and_then(|it| it.parse().ok());
    let include = number.and_then(|it: usize| state.includes.get(it));
    let Some(BrowserInclude {
        source,
        alternative,
        fallback,
    }) = include
    else {
        element.remove();
        return Ok(());
    };
    element.remove_attribute("slot");
    element.set_attribute("src", &source.replace('&', "&amp;"))?;
    if let Some(alternative) = alternative {
        element.set_attribute("alt", &alternative.replace('&', "&amp;"))?;
    }
    let (fallback, _) = WINDOWS_1252.decode_without_bom_handling(fallback);
    element.set_inner_content(&fallback, ContentType::Html);
    state.add_script(element);
    Ok(())
}

fn hole_handler(state: &Arc<Mutex<EditState>>, hole: &Hole, assembly: Assembly) -> Handlers {
    let url = escaped(&hole.include);
    on_element(state, move |state, element| {
        state.holes += 1;
        match assembly {
            _ if state.holes > MOST_FRAGMENTS => element.set_inner_content("", ContentType::Html),
            Assembly::Server => {
                let tag = format!("<esi:include src=\"{url}\"/>");
                element.set_inner_content(&tag, ContentType::Html);
            }
            Assembly::Browser => {
                let begin = format!("<microcache-include src=\"{url}\">");
                element.prepend(&begin, ContentType::Html);
                element.append("</microcache-include>", ContentType::Html);
                state.add_script(element);
            }
        }
        Ok(())
    })
}

fn token_handler(state: &Arc<Mutex<EditState>>, token: &Token, name: &str) -> Handlers {
    let (value, name, is_fetched) = (value_of(token), name.to_owned(), !token.wait);
    on_element(state, move |state, element| {
        if element.has_attribute(&name) {
            element.set_attribute(&name, &value)?;
            if is_fetched {
                state.add_script(element);
            }
        }
        Ok(())
    })
}

/// Returns the text in the place of a token: none, or a tag, without double quotes.
fn value_of(token: &Token) -> String {
    if token.wait {
        format!("<esi:include src='{}' wait='true'/>", escaped(&token.from))
    } else {
        String::new()
    }
}

/// Replaces variables in scripts, and puts our own script behind the first one that has some.
fn script_handler(state: &Arc<Mutex<EditState>>, variables: Vec<(String, Token)>) -> Handlers {
    let mut text = String::new();
    let mut is_skipped = false;
    let in_text = Arc::clone(state);
    let change = move |chunk: &mut TextChunk<'_>| {
        let is_last = chunk.last_in_text_node();
        if is_skipped {
            is_skipped = !is_last;
            return Ok(());
        }
        text.push_str(chunk.as_str());
        if text.len() > LONGEST_SCRIPT {
            in_text.lock().has_given_up = true;
            is_skipped = !is_last;
        } else if is_last {
            for (path, token) in &variables {
                let is_found = ScriptValue::of(path).replace(&mut text, &value_of(token));
                in_text.lock().has_variable |= is_found && !token.wait;
            }
        } else {
            chunk.remove();
            return Ok(());
        }
        chunk.replace(&mem::take(&mut text), ContentType::Html);
        Ok(())
    };
    let at_end = Arc::clone(state);
    let add_script = move |element: &mut Element<'_, '_>| {
        let state = Arc::clone(&at_end);
        element.on_end_tag(Box::new(move |end| {
            let mut state = state.lock();
            if state.has_variable
                && let Some(script) = state.script.take()
            {
                end.after(&script, ContentType::Html);
            }
            Ok(())
        }))
    };
    let change: TextHandler<'static> = change.into_handler();
    Handlers::default().element(add_script).text(change)
}
