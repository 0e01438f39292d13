//! Explanations of the coding in which a response is sent.

use super::Explanation;
use crate::coding::SentCoding;
use crate::compression::{NotCompressed, NotCompressible};

impl SentCoding {
    /// The explanation of this choice.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Plain(_) => {
                Explanation::of("the request accepts this coding, and the compressed body exists")
                    .by("RFC 9110 §12.5.3")
            }
            Self::Difference(_) => {
                Explanation::of("the client has an earlier version, and the delta to it exists")
                    .by("RFC 9842 §2.2")
            }
        }
    }
}

impl NotCompressed {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::NotCompressible(why) => why.explanation(),
            Self::InFile => Explanation::of(
                "the body is in a file, and only bodies in memory are compressed",
            )
            .unless("raise `memory`, or `max_object` on the route"),
            Self::Composed => Explanation::of(
                "the page is composed for each client, so that only its own text is compressed, and only by gzip",
            )
            .unless("send a field such as `Accept-Encoding: gzip`, and set `compress` with `gzip` on the route"),
            Self::StoredBefore => Explanation::of(
                "the response was stored before compression was enabled on its route, and lacks `Vary: \
                 Accept-Encoding`",
            )
            .unless("purge the response"),
            Self::NotAccepted => Explanation::of(
                "the request accepts no coding of `compress`, or prefers the identity coding",
            )
            .by("RFC 9110 §12.5.3")
            .unless("send a field such as `Accept-Encoding: gzip, br, zstd`, as browsers do"),
            Self::ClientSpecific => Explanation::of(
                "the request has credentials, and the response depends on them: it may contain a secret that its \
                 compressed length reveals",
            )
            .unless("set `compress_personal` on the route if such responses contain no secrets"),
            Self::Part => {
                Explanation::of("the request has a range, and ranges refer to the stored body")
                    .by("RFC 9110 §14.2")
            }
            Self::NotReady => Explanation::of(
                "the body has not been compressed yet with an accepted coding, and requests do not wait for it",
            ),
            Self::NoGain => Explanation::of("compression saves less than a sixteenth"),
        }
    }
}

impl NotCompressible {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Off => Explanation::of("the route does not compress")
                .unless("set `compress = [\"zstd\", \"br\", \"gzip\"]` on the route"),
            Self::NotWhole => {
                Explanation::of("the status implies no content, or only a part of it")
                    .by("RFC 9110 §15")
            }
            Self::TooSmall => Explanation::of("the body is shorter than `compress_min`"),
            Self::TooLarge => {
                Explanation::of("the body is longer than `compress_max`").unless("raise `compress_max`")
            }
            Self::Encoded => Explanation::of("the application has already encoded the body")
                .by("RFC 9110 §8.4")
                .unless("have the application send an unencoded body if the request accepts no coding"),
            Self::Type => Explanation::of("`Content-Type` is not in `compress_types`")
                .unless("have the application send the right type, or add it to `compress_types`"),
            Self::NoTransform => Explanation::of("`no-transform` forbids compression")
                .by("RFC 9111 §5.2.2.6")
                .unless("have the application omit `no-transform`"),
            Self::Personal => Explanation::of(
                "the cache key contains a cookie or a secret field, so that the response may contain a secret that \
                 its compressed length reveals",
            )
            .unless("set `compress_personal` on the route if such responses contain no secrets"),
        }
    }
}
