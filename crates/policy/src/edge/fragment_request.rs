//! The fields of a request for a fragment.

use crate::field_name::NameList;
use crate::fields::{Fields, FieldsBuf};
use crate::hop::NominatedFields;

/// The fields that are about the page and its content alone. A fragment is asked for as a whole, uncompressed and
/// without conditions, and a reload of the page does not extend to it.
const OF_PAGE: NameList = NameList::new(&[
    "a-im",
    "accept-encoding",
    "available-dictionary",
    "cache-control",
    "content-*",
    "dictionary-id",
    "expect",
    "if-*",
    "max-forwards",
    "pragma",
    "range",
    "request-range",
    "surrogate-capability",
    "trailer",
]);

/// Returns the fields of a GET for a fragment of the page that a request asks for: the visitor's cookies, credentials,
/// languages and addresses are the same.
pub fn fragment_request(page: Fields<'_>) -> FieldsBuf {
    let nominated = NominatedFields::by(page);
    let mut fields = FieldsBuf::indexed(page.as_block().len());
    fields.extend_lines(page, |line| {
        let name = line.field_name();
        !OF_PAGE.has(name) && !nominated.stays_behind(name)
    });
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn a_fragment_is_asked_for_by_the_same_visitor() {
        let lines = "Host: a\nCookie: b=c\nAuthorization: Basic x\nAccept: text/html\nAccept-Language: de\n\
            User-Agent: d\nX-Forwarded-For: 192.0.2.1\nX-Forwarded-Proto: https\ntraceparent: e\nReferer: /f";
        let page = fields(lines);
        assert_eq!(
            fragment_request(page.fields()).into_block(),
            page.into_block()
        );
    }

    #[test]
    fn fields_of_the_page_alone_are_left_out() {
        for line in [
            "Accept-Encoding: gzip",
            "Available-Dictionary: :a:",
            "Cache-Control: no-cache",
            "Pragma: no-cache",
            "Content-Length: 3",
            "content-type: text/plain",
            "Transfer-Encoding: chunked",
            "Trailer: a",
            "Expect: 100-continue",
            "Upgrade: websocket",
            "Connection: upgrade",
            "TE: trailers",
            "If-None-Match: \"a\"",
            "IF-MODIFIED-SINCE: x",
            "If-Match: *",
            "If-Range: x",
            "Range: bytes=0-1",
            "Max-Forwards: 3",
            "Surrogate-Capability: evil=\"ESI/1.0\"",
            "Connection: x-a\nX-A: 1",
        ] {
            let page = fields(&format!("A: 1\n{line}\nB: 2"));
            let left = fragment_request(page.fields()).into_block();
            assert_eq!(String::from_utf8_lossy(&left), "A: 1\r\nB: 2\r\n", "{line}");
        }
    }
}
