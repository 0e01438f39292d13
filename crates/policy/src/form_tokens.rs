//! Tokens of forms and nonces: values that a page has for one visitor, by which an application recognizes the visitor's
//! own requests (CSRF). A page with one must not be shared.
//!
//! There is no registry of their names, so a few words decide, in any case: `csrf` and `xsrf` anywhere, `nonce` at the
//! end, and names that frameworks generate. A name counts where it is that of a form control or `<meta>`, and where a
//! value follows it, as in an attribute, a URL, JSON or a script. A false positive costs a hit; a false negative gives
//! one visitor's token to others.
//!
//! The body is scanned as it is to be stored: a control whose value is empty, or a tag of ours, has no token any more.

use crate::field_name::FieldName;
use crate::identity::identifies;
use crate::response::ResponseFacts;
use crate::syntax::contains_ignoring_case;

/// A scan of a body that arrives in pieces, split anywhere.
#[derive(Debug, Default)]
pub struct FormTokenScan {
    /// The last bytes received: those not judged yet, and [`BACK`] before them.
    window: Vec<u8>,
    /// The bytes of the window that are judged.
    judged: usize,
    found: bool,
}

/// The longest name of a token, in bytes.
const LONGEST: usize = 64;
/// The context of a name, in bytes before its beginning and behind its end.
const BACK: usize = 192;
const AHEAD: usize = 192;
/// Bytes that are judged together.
const STEP: usize = 16 * 1024;

impl FormTokenScan {
    /// Adds the next bytes. Returns true once a token is found.
    pub fn push(&mut self, data: &[u8]) -> bool {
        for piece in data.chunks(STEP) {
            if self.found {
                break;
            }
            self.window.extend_from_slice(piece);
            let until = self.window.len().saturating_sub(LONGEST + AHEAD);
            self.judge(until);
            let gone = self.judged.saturating_sub(BACK);
            self.window.drain(..gone);
            self.judged -= gone;
        }
        self.found
    }

    /// Ends the body. Returns true if it has a token.
    pub fn finish(&mut self) -> bool {
        self.judge(self.window.len());
        self.found
    }

    fn judge(&mut self, until: usize) {
        let window = &self.window[..];
        let begins = |&at: &usize| {
            let before = at.checked_sub(1).map(|before| window[before]);
            is_word(window[at]) && !before.is_some_and(is_word)
        };
        let mut words = (self.judged..until).filter(begins);
        self.found = self.found || words.any(|at| is_token(window, at));
        self.judged = self.judged.max(until);
    }
}

/// Returns true if a body has a token.
pub fn has_form_token(body: &[u8]) -> bool {
    let mut scan = FormTokenScan::default();
    scan.push(body) || scan.finish()
}

/// Returns true if the fields of a response have a token: a nonce for scripts, or a field that identifies a visitor.
pub(crate) fn in_fields(response: &ResponseFacts<'_>) -> bool {
    let tag_fields = &response.rules.tag_fields;
    response.fields.lines().any(|line| {
        let name = line.name();
        let is_policy = name
            .get(..23)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"content-security-policy"));
        let is_tag_field = || {
            let mut all = tag_fields.iter();
            all.any(|one| name.eq_ignore_ascii_case(one.name.as_bytes()))
        };
        is_policy && contains_ignoring_case(line.value(), b"'nonce-")
            || FORGERY
                .iter()
                .any(|word| contains_ignoring_case(name, word))
            || identifies(FieldName::of(name)) && !is_tag_field()
    })
}

/// Words for cross-site request forgery.
const FORGERY: [&[u8]; 2] = [b"csrf", b"xsrf"];

/// Names that frameworks generate, beside those with a word of [`FORGERY`] or `nonce`.
const NAMES: [&[u8]; 11] = [
    b"__requestverificationtoken",
    b"_token",
    b"authenticity_token",
    b"form_build_id",
    b"form_key",
    b"form_token",
    b"formhash",
    b"logintoken",
    b"requestverificationtoken",
    b"sesskey",
    b"static_token",
];

/// The beginning of a tag in the place of a token. Those in pages of an origin are written otherwise on their way here,
/// or name a fragment.
const TAG: &[u8] = b"<esi:include ";

/// Values that are no tokens, as in `nonce: null`.
const EMPTY: [&[u8]; 5] = [b"false", b"null", b"true", b"undefined", b"void"];

/// Quotation marks as they are written inside attributes and scripts.
const QUOTES: [&[u8]; 10] = [
    b"\"", b"'", b"`", b"&quot;", b"&#34;", b"&#x22;", b"&#39;", b"&#039;", b"&#x27;", b"\\u0022",
];

/// Returns true if the word that begins here is the name of a token.
fn is_token(window: &[u8], begin: usize) -> bool {
    let rest = &window[begin..];
    let length = rest.iter().position(|&byte| !is_word(byte));
    let length = length.unwrap_or(rest.len());
    if !(4..=LONGEST).contains(&length) {
        return false;
    }
    let (word, after) = rest.split_at(length);
    let word = word.strip_prefix(b"u0022").unwrap_or(word);
    let after = &after[..after.len().min(AHEAD)];
    let before = &window[..begin];
    let is_control = |attributes: &[&[u8]]| {
        names_control(before, attributes) && !names_name(word) && !is_emptied(before, after)
    };
    if is_token_name(word) {
        is_control(&[b"name", b"id"]) || has_value(after)
    } else {
        is_control_name(word) && is_control(&[b"name"])
    }
}

/// Returns true for a control that says what tokens are called, as `<meta name="csrf-param">` does.
fn names_name(word: &[u8]) -> bool {
    let mut ends = [&b"param"[..], b"parameter", b"header"].into_iter();
    ends.any(|end| ends_with(word, end))
}

/// Returns true if the tag around these bytes has values, and each is empty or the place of a visitor's own token.
fn is_emptied(before: &[u8], after: &[u8]) -> bool {
    let near = &before[before.len().saturating_sub(BACK)..];
    let (Some(start), Some(end)) = (
        near.iter().rposition(|&byte| byte == b'<'),
        after.iter().position(|&byte| byte == b'>'),
    ) else {
        return false;
    };
    let (opened, rest) = (&near[start..], &after[..end]);
    // A tag in an attribute before the name.
    let closed = opened.iter().position(|&byte| byte == b'>');
    let mut is_found = opened.starts_with(TAG);
    if closed.is_some_and(|at| !is_found || opened.get(at + 1) != Some(&b'"')) {
        return false;
    }
    let tag = [opened, b"?", rest].concat();
    for attribute in [&b"value="[..], b"content="] {
        for at in memchr::memmem::find_iter(&tag.to_ascii_lowercase(), attribute) {
            let value = &tag[at + attribute.len()..];
            let is_empty = [&b"\"\""[..], b"''"].iter().any(|it| value.starts_with(it));
            if !is_empty && !value[1.min(value.len())..].starts_with(TAG) {
                return false;
            }
            is_found = true;
        }
    }
    is_found
}

fn is_token_name(word: &[u8]) -> bool {
    let last = word.rsplit(|&byte| byte == b'.').next().unwrap_or(word);
    ends_with(last, b"nonce")
        || FORGERY.iter().any(|one| contains_ignoring_case(word, one))
        || NAMES.iter().any(|one| last.eq_ignore_ascii_case(one))
}

fn ends_with(word: &[u8], end: &[u8]) -> bool {
    let tail = word.len().checked_sub(end.len()).map(|at| &word[at..]);
    tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}

/// Returns true for names that are those of tokens in forms only. Joomla's have 32 hexadecimal digits.
fn is_control_name(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"token")
        || word.len() == 32 && word.iter().all(u8::is_ascii_hexdigit)
}

/// Returns true if a name behind these bytes is the value of such an attribute, as in `name="` and `name="form[`, but not
/// in a selector (`[name="`).
fn names_control(before: &[u8], attributes: &[&[u8]]) -> bool {
    let mut before = without_quotes_at_end(before);
    if let Some(outer) = before.strip_suffix(b"[") {
        let is_outer = |byte: u8| is_word(byte) || b"[]".contains(&byte);
        let length = outer.iter().rev().take_while(|&&byte| is_outer(byte));
        before = without_quotes_at_end(&outer[..outer.len() - length.count()]);
    }
    let [before @ .., b'=' | b':'] = before else {
        return false;
    };
    let before = without_quotes_at_end(before);
    attributes.iter().any(|attribute| {
        let at = before.len().checked_sub(attribute.len());
        at.is_some_and(|at| {
            let (before, last) = before.split_at(at);
            let is_other = |&byte: &u8| is_word(byte) || byte == b'[';
            last.eq_ignore_ascii_case(attribute) && !before.last().is_some_and(is_other)
        })
    })
}

/// Returns true if a value follows a name, as in `="a1b2"`, `:'a1b2'` and `=a1b2`, but not a call (`=get(`).
fn has_value(after: &[u8]) -> bool {
    let [b'=' | b':', after @ ..] = without_quotes_at_start(after) else {
        return false;
    };
    let value = without_quotes_at_start(after);
    let is_quoted = after.trim_ascii_start() != value;
    let length = value.iter().take_while(|&&byte| is_value(byte)).count();
    let (value, next) = value.split_at(length);
    length >= 4 && (is_quoted || !matches!(next, [b'(' | b'[', ..])) && !EMPTY.contains(&value)
}

fn without_quotes_at_start(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii_start();
        let shorter = QUOTES.iter().find_map(|quote| text.strip_prefix(*quote));
        match shorter.or_else(|| text.strip_prefix(b"\\")) {
            Some(rest) => text = rest,
            None => return text,
        }
    }
}

fn without_quotes_at_end(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii_end();
        let shorter = QUOTES.iter().find_map(|quote| text.strip_suffix(*quote));
        match shorter.or_else(|| text.strip_suffix(b"\\")) {
            Some(rest) => text = rest,
            None => return text,
        }
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

const fn is_value(byte: u8) -> bool {
    is_word(byte) || matches!(byte, b'+' | b'/' | b'~' | b'%' | b'$')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;
    use crate::testing::fields;

    /// Pieces of pages as frameworks send them.
    const TOKENS: [&str; 40] = [
        r#"<meta name="csrf-token" content="Gq2m" />"#,
        "<META CONTENT=Gq2m NAME=csrf-token>",
        r#"<input type="hidden" name="authenticity_token" value="x" autocomplete="off" />"#,
        r#"<input type="hidden" name="_token" value="x" autocomplete="off">"#,
        "<input value=x name = '_token'>",
        r#"<input type="hidden" name="csrfmiddlewaretoken" value="x">"#,
        r#"<input type="hidden" name="_csrf" value="x"/>"#,
        r#"<input type="hidden" id="_wpnonce" name="_wpnonce" value="0a1b2c3d4e" />"#,
        r#"<input name="__RequestVerificationToken" type="hidden" value="x" />"#,
        r#"<input type="hidden" name="form_build_id" value="form-x" />"#,
        r#"<input type="hidden" id="contact__token" name="contact[_token]" value="x">"#,
        r#"<input name="a[b][_csrf_token]">"#,
        r#"<input type="hidden" name="form_key" value="x">"#,
        r#"<input name="woocommerce-login-nonce" value="x">"#,
        r#"<input type="hidden" name="d41d8cd98f00b204e9800998ecf8427e" value="1">"#,
        "<input type=hidden name=token value=1>",
        r#"<input type="hidden" name="csrf_test_name" value="x">"#,
        r#"<input type="hidden" name="_csrf-frontend" value="x">"#,
        r#"<div data-nonce="a1b2c3">"#,
        r#"<script nonce="r4nd0m">"#,
        "<script nonce=r4nd0m src=a>",
        r#"{"root":"/wp-json/","nonce":"0a1b2c3d4e"}"#,
        r#"{"csrf.token":"d41d8cd98f00b204"}"#,
        "window.csrfToken = 'abcd'",
        r#"{headers: {'X-CSRF-TOKEN': "abcd"}}"#,
        r#"<div data-page="{&quot;csrf_token&quot;:&quot;abcd&quot;}">"#,
        r#"var a = "{\"_token\":\"abcd\"}""#,
        r#"var a = "{\u0022_token\u0022:\u0022abcd\u0022}""#,
        r#"{"name":"_token","value":"abcd"}"#,
        r#"<a href="/out?a=b&amp;_wpnonce=0a1b2c3d4e">"#,
        r#"<a href="/out?sesskey=0a1b2c3d4e">"#,
        r#"var params = {"apply_coupon_nonce":"0a1b2c3d4e"}"#,
        r#"M.cfg = {"sesskey":"0a1b2c3d4e"}"#,
        "<input name=\"authenticity_token\"\r\n\tvalue=\"x\">",
        // Not all values are empty.
        r#"<input value="" name="_token" data-value="x">"#,
        r#"<input title=' value=""' name="_token" value="x">"#,
        r#"<input value="x" name="_token" content="">"#,
        r#"<input name="_token" value="x"><input value="">"#,
        r#"<input value=""><input name="_token">"#,
        r#"<b value="">{"name":"_token","value":"x"}"#,
    ];

    /// Pieces of pages without a token, or with the place of one.
    const OTHERS: [&str; 26] = [
        "",
        "<p>The CSRF token protects forms. A nonce is a number: used once.</p>",
        r#"document.querySelector('meta[name="csrf-token"]').content"#,
        r#"$("input[name=_token]").val()"#,
        "const csrftoken = getCookie('csrftoken');",
        r#"e.nc&&t.setAttribute("nonce",e.nc)"#,
        "{nonce: null, csrf:undefined}",
        r#"<input name="q" value="csrf">"#,
        r#"<script nonce="">"#,
        "if (a.csrf === b) {}",
        r#"<input name="hostname" value="a1b2c3">"#,
        "/announce=a1b2c3d4",
        r#"<a href="/?page=2&amp;token_type=bearer">"#,
        "<h1 id=tokens>",
        r#"{"access_token_url":"https://example.com/"}"#,
        "mynonces=abcd",
        r#"<meta name="csrf-param" content="authenticity_token" />"#,
        r#"<meta name="_csrf_header" content="X-CSRF-TOKEN"/>"#,
        r#"<meta name="csrf-token" content="" />"#,
        r#"<META CONTENT="" NAME=csrf-token>"#,
        r#"<input type="hidden" name="authenticity_token" value="" autocomplete="off" />"#,
        r#"<input type="hidden" id="_wpnonce" name="_wpnonce" value="" />"#,
        r#"<input name="form[_token]" data-controller="csrf-protection" value='' />"#,
        r#"<input name="_token" value="<esi:include src='/csrf-token' wait='true'/>">"#,
        r#"<input value="<esi:include src='/csrf-token' wait='true'/>" name="_token">"#,
        "x-very-long-word-that-is-no-name-of-a-token-whatever-it-may-contain-csrf=abcd",
    ];

    #[test]
    fn tokens_are_found_wherever_the_body_is_split() {
        let padding = " ".repeat(300);
        let all = TOKENS.iter().map(|one| (one, true));
        for (piece, expected) in all.chain(OTHERS.iter().map(|one| (one, false))) {
            assert_eq!(has_form_token(piece.as_bytes()), expected, "{piece}");
            let page = format!("{padding}<p>{piece}</p>{padding}");
            let page = page.as_bytes();
            for split in 0..page.len() {
                let mut scan = FormTokenScan::default();
                scan.push(&page[..split]);
                scan.push(&page[split..]);
                assert_eq!(scan.finish(), expected, "{piece} {split}");
            }
            let mut scan = FormTokenScan::default();
            for byte in page {
                scan.push(&[*byte]);
            }
            assert_eq!(scan.finish(), expected, "{piece}");
            assert!(scan.window.len() <= BACK + LONGEST + AHEAD);
        }
    }

    #[test]
    fn a_token_ends_the_scan_and_what_follows_changes_nothing() {
        let mut scan = FormTokenScan::default();
        let filler = "<p>text</p>".repeat(5_000);
        assert!(!scan.push(filler.as_bytes()));
        assert!(!scan.push(b"<meta name=\"csrf-token\">"));
        assert!(scan.push(filler.as_bytes()) && scan.finish());
    }

    #[test]
    fn tokens_in_fields_are_found() {
        for (response, expected) in [
            (
                "Content-Security-Policy: script-src 'self' 'NONCE-abc'",
                true,
            ),
            (
                "content-security-policy-report-only: script-src 'nonce-abc'",
                true,
            ),
            (
                "Content-Security-Policy: script-src 'self' 'sha256-abc'",
                false,
            ),
            ("X-CSRF-Token: a", true),
            ("X-CSRFToken: a", true),
            ("X-Auth-Token: a", true),
            ("Surrogate-Key: a\nCache-Tag: b\nxkey: c", false),
            (
                "Content-Type: text/html\nX-Frame-Options: DENY\nX-Runtime: 1",
                false,
            ),
        ] {
            let (response, rules) = (fields(response), Rules::default());
            let facts = ResponseFacts::read(response.fields(), &rules);
            assert_eq!(in_fields(&facts), expected, "{response:?}");
        }
    }
}
