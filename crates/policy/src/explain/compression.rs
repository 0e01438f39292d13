//! Explanations for responses that are sent uncompressed.

use super::Explanation;
use crate::compression::{NotCompressed, NotCompressible};

impl NotCompressed {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::NotCompressible(why) => why.explanation(),
            Self::InFile => Explanation::of(
                "it lies in a file, and only what lies in memory is compressed",
            )
            .unless("raise `memory`, or `max_object` on the route"),
            Self::StoredBefore => Explanation::of(
                "it was stored before its route compressed, and other caches have not been told of it",
            )
            .unless("purge it"),
            Self::NotAccepted => Explanation::of(
                "the request accepts no coding of `compress`, or prefers what is not encoded",
            )
            .by("RFC 9110 §12.5.3")
            .unless("add a header such as `Accept-Encoding: gzip, br, zstd`, as browsers send it"),
            Self::ClientSpecific => Explanation::of(
                "the request has credentials, and the response depends on them: it may be this visitor's own, with a \
                 secret in it that could be guessed by how long it is",
            )
            .unless("`compress_personal` on the route says that there is nothing to guess"),
            Self::Part => {
                Explanation::of("the request asks for a part, and parts are of what is stored")
                    .by("RFC 9110 §14.2")
            }
            Self::NotReady => Explanation::of(
                "what the request accepts has not been made yet: the first who asks for it does not wait",
            ),
            Self::NoGain => Explanation::of("it becomes less than a sixteenth smaller"),
        }
    }
}

impl NotCompressible {
    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Off => Explanation::of("the route does not compress")
                .unless("`compress = [\"zstd\", \"br\", \"gzip\"]` on the route"),
            Self::NotWhole => {
                Explanation::of("its status says that it has no content, or a part of it")
                    .by("RFC 9110 §15")
            }
            Self::TooSmall => Explanation::of("it is shorter than `compress_min`"),
            Self::TooLarge => {
                Explanation::of("it is longer than `compress_max`").unless("raise `compress_max`")
            }
            Self::Encoded => Explanation::of("the application has encoded it already")
                .by("RFC 9110 §8.4")
                .unless("have the application send what is not encoded to who accepts only that"),
            Self::Type => Explanation::of("its `Content-Type` is none of `compress_types`")
                .unless("have the application name the type, or add it to `compress_types`"),
            Self::NoTransform => Explanation::of("`no-transform` forbids to change it")
                .by("RFC 9111 §5.2.2.6")
                .unless("have the application leave `no-transform` out"),
            Self::Personal => Explanation::of(
                "it is stored by a cookie, or by a field with a secret, and may hold a secret that could be guessed \
                 by how long it is",
            )
            .unless("`compress_personal` on the route says that there is nothing to guess"),
        }
    }
}
