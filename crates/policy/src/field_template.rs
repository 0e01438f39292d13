//! Values of fields that the operator writes, with a few properties of the request in braces.

use smallvec::SmallVec;

/// A value in literal pieces and placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTemplate {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Placeholder(Placeholder),
}

/// A property of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    ClientAddress,
    Host,
    Scheme,
    RequestId,
    CertificateSubject,
    CertificateFingerprint,
}

const PLACEHOLDERS: [(&str, Placeholder); 6] = [
    ("client_address", Placeholder::ClientAddress),
    ("host", Placeholder::Host),
    ("scheme", Placeholder::Scheme),
    ("request_id", Placeholder::RequestId),
    (
        "client_certificate_subject",
        Placeholder::CertificateSubject,
    ),
    (
        "client_certificate_fingerprint",
        Placeholder::CertificateFingerprint,
    ),
];

/// The properties of a request that placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub struct TemplateValues<'a> {
    /// The client's address.
    pub client_address: &'a [u8],
    /// The host, with the port unless it is the scheme's default.
    pub host: &'a [u8],
    /// The scheme of the connection.
    pub scheme: &'a str,
    /// The identifier of the request; empty if no template asks for it.
    pub request_id: &'a [u8],
    /// The subject of the client's certificate; empty without one.
    pub certificate_subject: &'a str,
    /// The fingerprint of the client's certificate; empty without one.
    pub certificate_fingerprint: &'a str,
}

impl FieldTemplate {
    /// Parses a value. Braces around anything but a lower-case word are literal, as in JSON.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim() != text || !text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return Err(
                "a value of a field is visible ASCII, without spaces at its ends".to_owned(),
            );
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let (before, braced) = rest.split_at(at);
            literal.push_str(before);
            let word = braced[1..].split_once('}').map(|(word, _)| word);
            if let Some(word) = word.filter(|word| is_word(word)) {
                let known = PLACEHOLDERS.iter().find(|(name, _)| *name == word);
                let (_, placeholder) = known.ok_or_else(unknown_placeholder)?;
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                pieces.push(Piece::Placeholder(*placeholder));
                rest = &braced[word.len() + 2..];
            } else {
                literal.push('{');
                rest = &braced[1..];
            }
        }
        literal.push_str(rest);
        pieces.push(Piece::Literal(literal));
        pieces.retain(|piece| !matches!(piece, Piece::Literal(text) if text.is_empty()));
        Ok(Self { pieces })
    }

    /// Returns whether it has the identifier of the request.
    pub fn has_request_id(&self) -> bool {
        let id = Piece::Placeholder(Placeholder::RequestId);
        self.pieces.contains(&id)
    }

    /// Returns whether it has a property of the client's certificate.
    pub fn has_certificate(&self) -> bool {
        use Placeholder::{CertificateFingerprint, CertificateSubject};
        let is_of_it = |piece: &Piece| {
            matches!(
                piece,
                Piece::Placeholder(CertificateSubject | CertificateFingerprint)
            )
        };
        self.pieces.iter().any(is_of_it)
    }

    /// A value without placeholders.
    pub fn literal(text: &str) -> Self {
        let pieces = vec![Piece::Literal(text.to_owned())];
        Self { pieces }
    }

    /// Returns the pieces of the value for a request.
    pub fn resolve<'a>(&'a self, values: &TemplateValues<'a>) -> SmallVec<[&'a [u8]; 8]> {
        let TemplateValues {
            client_address,
            host,
            scheme,
            request_id,
            certificate_subject,
            certificate_fingerprint,
        } = *values;
        let resolved = self.pieces.iter().map(|piece| match piece {
            Piece::Literal(text) => text.as_bytes(),
            Piece::Placeholder(Placeholder::ClientAddress) => client_address,
            Piece::Placeholder(Placeholder::Host) => host,
            Piece::Placeholder(Placeholder::Scheme) => scheme.as_bytes(),
            Piece::Placeholder(Placeholder::RequestId) => request_id,
            Piece::Placeholder(Placeholder::CertificateSubject) => certificate_subject.as_bytes(),
            Piece::Placeholder(Placeholder::CertificateFingerprint) => {
                certificate_fingerprint.as_bytes()
            }
        });
        resolved.collect()
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn unknown_placeholder() -> String {
    let known = PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}"));
    format!("placeholders are {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: TemplateValues<'_> = TemplateValues {
        client_address: b"192.0.2.1",
        host: b"example.com",
        scheme: "https",
        request_id: b"0a",
        certificate_subject: "CN=ann",
        certificate_fingerprint: "0b",
    };

    fn resolved(text: &str) -> Result<String, String> {
        let template = FieldTemplate::parse(text)?;
        let value = template.resolve(&VALUES).concat();
        Ok(String::from_utf8(value).expect("text"))
    }

    #[test]
    fn placeholders_stand_for_the_request() {
        assert_eq!(
            resolved("{scheme}://{host}/x"),
            Ok("https://example.com/x".to_owned())
        );
        assert_eq!(resolved("{client_address}"), Ok("192.0.2.1".to_owned()));
        assert_eq!(resolved("<{request_id}>"), Ok("<0a>".to_owned()));
        let of_certificate = "{client_certificate_subject};{client_certificate_fingerprint}";
        assert_eq!(resolved(of_certificate), Ok("CN=ann;0b".to_owned()));
        assert_eq!(resolved(""), Ok(String::new()));
    }

    #[test]
    fn other_braces_are_literal() {
        for text in [r#"{"group":"a","max_age":1}"#, "{", "a{}b", "{A}", "}{"] {
            assert_eq!(resolved(text), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_cannot_be_a_value_is_refused() {
        for text in ["a\r\nb", "é", " a", "a\0", "{clock}"] {
            assert!(FieldTemplate::parse(text).is_err(), "{text:?}");
        }
    }
}
