//! Stand-ins for the codecs in a build without them: no body is worth encoding.

#[expect(clippy::unnecessary_wraps, reason = "real ones fail")]
pub(super) mod codecs {
    use std::io;

    use microcache_store::EncodingMethod;

    pub(in crate::compress) fn encoded(
        _making: EncodingMethod,
        _body: &[u8],
    ) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}

#[expect(clippy::unnecessary_wraps, reason = "real ones fail")]
pub(super) mod deltas {
    use std::io;

    use microcache_policy::DictionaryCoding;
    use microcache_policy::dictionaries::DictionaryHash;

    pub(in crate::compress) fn hash(_dictionary: &[u8]) -> DictionaryHash {
        DictionaryHash::default()
    }

    pub(in crate::compress) fn delta(
        _coding: DictionaryCoding,
        _dictionary: &[u8],
        _hash: &DictionaryHash,
        _body: &[u8],
    ) -> io::Result<Vec<u8>> {
        Ok(Vec::new())
    }
}
